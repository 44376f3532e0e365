"""A controller of Kafka 4.3 as an observer of Quorate's quorum: it registers, and is no voter."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.bridge_support import KafkaQuorum, listens
from tests.integration.support import CLUSTER, HOST, free_ports, until
from tests.kafka import PEERS
from tests.wire.test_controller_tools import CLUSTERS, QUORUM, run

OBSERVER = 9


@pytest.mark.timeout(240)
def test_a_controller_of_kafka_registers_but_cannot_be_added(
    kafka_tool: Callable[..., str], tmp_path: Path
) -> None:
    quorum = KafkaQuorum(tmp_path, (1, 2, 3))
    quorum.format_and_start("4.1-IV1")
    address = ",".join(f"{HOST}:{port}" for port in quorum.ports.values())
    (port,) = free_ports(1)
    settings = {
        "process.roles": "controller",
        "node.id": OBSERVER,
        "controller.listener.names": "KAFKA",
        "listeners": f"KAFKA://{HOST}:{port}",
        "listener.security.protocol.map": "KAFKA:PLAINTEXT",
        "controller.quorum.bootstrap.servers": address,
        "log.dirs": tmp_path / "observer",
    }
    properties = tmp_path / "observer.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    kafka_tool(
        "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", properties,
        "--no-initial-controllers",
    )  # fmt: skip
    until("all listen", lambda: all(map(listens, quorum.ports.values())))
    log = tmp_path / "observer.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                "java", "-Xmx256m", "-XX:TieredStopAtLevel=1",
                "-cp", f"{PEERS}/kafka-4.3.0/*", "kafka.Kafka", str(properties),
            ],
            stdout=output, stderr=output, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    where = ("--bootstrap-controller", address)
    try:
        until(
            "its registration is in the log",
            lambda: "registration has been persisted to the metadata log" in log.read_text(),
            90.0,
        )
        assert f" {port} " in run(CLUSTERS, "list-endpoints", *where)
        said = run(QUORUM, *where, "--command-config", properties, "add-controller")
        assert "InvalidRequestException" in said, said
        assert "runs Kafka, and only controllers of Quorate can be voters" in said, said
        described = run(QUORUM, *where, "describe", "--replication")
        (line,) = (text for text in described.splitlines() if text.startswith(f"{OBSERVER} "))
        assert "Observer" in line
    finally:
        process.kill()
        process.wait()
        quorum.kill()
