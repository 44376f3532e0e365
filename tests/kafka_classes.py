"""Archives of Kafka's classes (Java's class data sharing): with one, a process of Kafka needs about
half the processor time to start.
"""

from __future__ import annotations

import fcntl
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.processes import HOST, Process, free_ports, write_properties

START_S = 90.0
CLUSTER = "AAAAAAAAAAAAAAAAAAAAAQ"


@cache
def class_archive(jars: Path, command: Sequence[str]) -> tuple[str, ...]:
    """Options of a JVM that uses the archive of these jars; makes it where there is none.

    command: `java` with the jars. A JVM with other jars or of another release starts without it.
    """
    archive = jars.with_name(f"{jars.name}.jsa")
    with jars.with_name(f"{jars.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            _make(archive, command)
    return (f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def _make(archive: Path, command: Sequence[str]) -> None:
    """Archive the classes that a controller and broker in one process loads until it ends."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        client, controller = (f"{HOST}:{port}" for port in free_ports(2))
        properties = folder / "server.properties"
        write_properties(
            properties,
            {
                "process.roles": "broker,controller",
                "node.id": 1,
                "listeners": f"PLAINTEXT://{client},CONTROLLER://{controller}",
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
                "controller.quorum.bootstrap.servers": controller,
                "log.dirs": folder / "data",
            },
        )
        storage = ("kafka.tools.StorageTool", "format", "--standalone", "-t", CLUSTER)
        subprocess.run([*command, *storage, "-c", properties], check=True, capture_output=True)
        made = archive.with_suffix(".new")
        server = Process(
            f"{archive.name}'s server",
            folder / "server.log",
            *command,
            f"-XX:ArchiveClassesAtExit={made}",
            "kafka.Kafka",
            properties,
        )
        with server:
            server.start()
            server.wait_said("Kafka Server started", START_S)
            server.stop(START_S)
        made.replace(archive)
