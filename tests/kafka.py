"""Kafka's and ZooKeeper's own processes and tools, for tests that run them beside Quorate.

The jars come from `shared/peers/kafka/fetch`, the data from `shared/data`. A clone alone has
neither: then these tests are skipped with the reason. With CI set and the shared folder there, a
missing part is a failure, never a skip.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.kafka_classes import class_archive
from tests.processes import Process, write_properties

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("QUORATE_SHARED", ROOT.parent / "shared"))
PEERS = Path(os.environ.get("PEERS", Path.home() / ".cache/peers"))
GOLDEN = SHARED / "data/kafka-4.3/quorum"
"""Directories that Kafka 4.3 wrote, read-only."""
KAFKA_3_9 = PEERS / "kafka-3.9.1"
"""The jars of the last release that runs on ZooKeeper, and of ZooKeeper 3.8."""
KAFKA_4_3 = PEERS / "kafka-4.3.0"


def missing(reason: str) -> None:
    """Skip, or fail where CI promised that it is there."""
    if os.environ.get("CI") and SHARED.exists():
        pytest.fail(reason)
    pytest.skip(reason)


def fetch(jars: Path) -> None:
    """Get the jars of a release if they are not there."""
    if not shutil.which("java"):
        missing("Java is not installed")
    if not (jars / ".complete").exists():
        command = SHARED / "peers/kafka/fetch"
        if not command.exists() or not shutil.which("mvn"):
            missing(f"no jars in {jars}, and {command} or Maven is not there to get them")
        subprocess.run([command, jars.name.removeprefix("kafka-")], check=True)


def copy_writable(source: Path, target: Path) -> Path:
    """A copy of a read-only directory that may be written."""
    shutil.copytree(source, target)
    for path in (target, *target.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return target


def java(jars: Path, *arguments: object, heap_mib: int = 256) -> list[str]:
    """A command line. arguments: options of the JVM, the class, and its arguments."""
    with_jars = ("java", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*")
    archived = class_archive(jars, with_jars)
    return [*with_jars, f"-Xmx{heap_mib}m", *archived, *map(str, arguments)]


def run_java(jars: Path, *arguments: object, cwd: Path | None = None) -> str:
    """Run a tool of Kafka, which must end with status 0; what it printed, errors last."""
    done = subprocess.run(
        java(jars, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", *arguments),
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


class KafkaNode(Process):
    """A broker or controller of Kafka, its properties and its log in `folder`.

    options: of its JVM.
    """

    def __init__(self, folder: Path, jars: Path, settings: Mapping[str, object]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(f"Kafka in {folder.name}", folder / "server.log")
        self.folder = folder
        self.jars = jars
        self.settings = dict(settings)
        self.options: Sequence[str] = ()

    @property
    def properties(self) -> Path:
        return self.folder / "server.properties"

    @property
    def command(self) -> Sequence[object]:
        return java(self.jars, *self.options, "kafka.Kafka", self.properties, heap_mib=400)

    def configure(self) -> None:
        """Write the settings to the properties file; `start` does that, too."""
        write_properties(self.properties, self.settings)

    def format(self, cluster_id: str, *options: str) -> None:
        """options: further ones of kafka-storage, such as `--no-initial-controllers`."""
        self.configure()
        arguments = ("format", "-t", cluster_id, "-c", self.properties, *options)
        run_java(self.jars, "kafka.tools.StorageTool", *arguments)

    def start(self) -> None:
        self.configure()
        super().start()
