"""The state of a cluster of Kafka before and after a takeover, by Kafka's tools and the log."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

from tests.kafka import KAFKA_4_3, PEERS
from tests.processes import until
from tests.wire.kafka_nodes import KafkaCluster
from tests.wire.metadata_support import LOG

HERE = Path(__file__).parent
SHELL = PEERS / "shell-4.3.0"
TOPICS = "org.apache.kafka.tools.TopicCommand"
LENGTH_END = 12
"""A batch starts with its base offset, 8 bytes, and the length of the rest, 4."""
NOT_READ = "offset -1"
CHANGING = ("cluster", "features", "provenance", "producerIds")
"""The parts of the image that registrations, upgrades and producers change."""
SHELL_S = 20
"""How long to wait for Kafka's metadata shell: one run in 15 hangs, others take a second."""


class State:
    """The state of a cluster, as Kafka's tools show it."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster

    def tool(self, name: str, *arguments: str) -> str:
        to = ("--bootstrap-server", self._cluster.broker_address)
        return self._cluster.kafka_tool(name, *to, *arguments)

    def config(self, *arguments: str) -> str:
        return self.tool("kafka.admin.ConfigCommand", *arguments)

    def features(self, *arguments: str) -> str:
        return self.tool("org.apache.kafka.tools.FeatureCommand", *arguments)

    def reassignments(self, *arguments: str) -> str:
        name = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
        return self.tool(name, *arguments)

    def level(self) -> str:
        """The finalized metadata.version."""
        found = re.search(
            r"metadata\.version.*FinalizedVersionLevel: (\S+)", self.features("describe")
        )
        assert found is not None
        return found[1]

    def shown(self) -> dict[str, str]:
        """By command. The order of what a tool lists is not stable."""
        describe = ("--describe", "--entity-type")
        outputs = {
            "topics": self.tool(TOPICS, "--describe"),
            "reassignments": self.reassignments("--list"),
            "topics' configs": self.config(*describe, "topics"),
            "brokers' configs": self.config(*describe, "brokers", "--entity-default"),
            "users": self.config(*describe, "users"),
        }
        return {name: "\n".join(sorted(text.splitlines())) for name, text in outputs.items()}


def committed_log(cluster: KafkaCluster) -> bytes:
    """A checkpoint, if the log starts above 0, and what two stopped controllers have after it.

    The last controller to stop may have written more.
    """
    folders = [Path(str(each.settings["log.dirs"]), LOG) for each in cluster.controllers.values()]
    checkpoint, start = b"", 0
    if not all((folder / f"{0:020}.log").exists() for folder in folders):
        file = max(folders[0].glob("*.checkpoint"))
        checkpoint, start = file.read_bytes(), int(file.name.split("-")[0])
    logs = [
        b"".join(
            batch
            for path in sorted(folder.glob("*.log"))
            for batch in batches(path.read_bytes(), start)
        )
        for folder in folders
    ]
    common: bytes = max(map(os.path.commonprefix, combinations(logs, 2)), key=len)
    return checkpoint + b"".join(batches(common, start))


def batches(log: bytes, start: int) -> Iterator[bytes]:
    """The whole record batches from offset `start` on."""
    position = 0
    while position + LENGTH_END <= len(log):
        offset = int.from_bytes(log[position : position + 8], "big")
        end = position + LENGTH_END + int.from_bytes(log[position + 8 : position + 12], "big")
        if end <= len(log) and offset >= start:
            yield log[position:end]
        position = end


def image(log: bytes, folder: Path) -> dict[str, str]:
    """What Kafka's metadata shell reads from a checkpoint and a log that follows it, by part."""
    if not (SHELL / ".complete").exists():
        to = ("dependency:copy-dependencies", f"-DoutputDirectory={SHELL}")
        pom = (HERE / "shell/pom.xml", "-Dkafka.version=4.3.0")
        subprocess.run(["mvn", "-q", "-B", "-f", *pom, *to], check=True)
        (SHELL / ".complete").touch()
    file = folder / "shell" / f"{0:020}.log"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(log)
    command = [
        "java", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
        "-cp", f"{SHELL}/*:{KAFKA_4_3}/*", "org.apache.kafka.shell.MetadataShell",
        "--snapshot", file, "tree", "/image",
    ]  # fmt: skip

    def read() -> dict[str, str]:
        try:
            ran = subprocess.run(
                command, capture_output=True, text=True, check=True, timeout=SHELL_S
            )
        except subprocess.TimeoutExpired:
            return {}
        _, *parts = re.split(r"^(\w+):$", ran.stdout, flags=re.MULTILINE)
        found = dict(zip(parts[::2], parts[1::2], strict=True))
        # The shell sometimes answers before it has read the file, or never ends.
        return {} if NOT_READ in found["provenance"] else found

    found: dict[str, str] = until("the shell has read the file", read, 15 * SHELL_S)
    return {name: text for name, text in found.items() if name not in CHANGING}
