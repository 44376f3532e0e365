"""What is in progress in a cluster of Kafka 4.3 survives a takeover and the way back.

A reassignment waits for a broker that is down, a transaction is open, and the cluster has an older
metadata.version, which Quorate raises. Kafka's tools, its metadata shell and the log's bytes show
that nothing else changed.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path

import pytest

from tests.integration.support import CLUSTER
from tests.kafka import KAFKA_4_3, PEERS
from tests.processes import HOST, free_ports, until
from tests.wire.kafka_nodes import STOP_S, ClusterNode, KafkaCluster
from tests.wire.metadata_support import LOG
from tests.wire.takeover_support import Clients, Operator, runbook

HERE = Path(__file__).parent
SHELL = PEERS / "shell-4.3.0"
SECOND_BROKER = 102
TOPICS = "org.apache.kafka.tools.TopicCommand"
MOVED = "moved"
OPEN = "open"
LEVELS = {"dynamic": ("4.1-IV1", "4.2-IV1"), "static": ("3.9-IV0", "4.0-IV3")}
"""metadata.version before the takeover, and what Quorate raises it to."""
LENGTH_END = 12
"""A batch starts with its base offset, 8 bytes, and the length of the rest, 4."""
CHANGING = ("cluster", "features", "provenance", "producerIds")
"""The parts of the image that registrations, the upgrade and producers change."""


@pytest.fixture(params=LEVELS)
def operator(
    request: pytest.FixtureRequest, kafka_tool: Callable[..., str], tmp_path: Path
) -> Iterator[Operator]:
    cluster = KafkaCluster(tmp_path, kafka_tool, static=request.param == "static")
    cluster.broker.settings |= {
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
    }
    made = Operator(cluster, tmp_path)
    try:
        cluster.format_and_start(LEVELS[request.param][0])
        yield made
    finally:
        made.kill()
        cluster.kill()


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

    def configure(self) -> None:
        """Settings of a topic and of all brokers, a quota, and a SCRAM user."""
        credentials = "SCRAM-SHA-512=[iterations=4096,password=secret]"
        for entity, setting in (
            (("topics", "--entity-name", MOVED), "retention.ms=3600000"),
            (("brokers", "--entity-default"), "log.cleaner.threads=2"),
            (("users", "--entity-name", "alice"), "producer_byte_rate=1048576"),
            (("users", "--entity-name", "alice"), credentials),
        ):
            self.config("--alter", "--add-config", setting, "--entity-type", *entity)

    def reassigned_to(self, broker_id: int) -> bool:
        described = self.tool(TOPICS, "--describe", "--topic", MOVED)
        return re.search(rf"Replicas: {broker_id}\tIsr: {broker_id}\b", described) is not None

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
            "topic configs": self.config(*describe, "topics", "--entity-name", MOVED),
            "brokers' configs": self.config(*describe, "brokers", "--entity-default"),
            "users": self.config(*describe, "users"),
        }
        return {name: "\n".join(sorted(text.splitlines())) for name, text in outputs.items()}


class OpenTransaction:
    """A producer whose transaction stays open until `commit`."""

    def __init__(self, folder: Path, servers: str) -> None:
        jars = f"{KAFKA_4_3}/*"
        subprocess.run(["javac", "-d", folder, "-cp", jars, HERE / "Transaction.java"], check=True)
        self._log = folder / "transaction.log"
        with self._log.open("w") as errors:
            self._process = subprocess.Popen(
                ["java", "-Xmx128m", "-cp", f"{folder}:{jars}", "Transaction", servers, OPEN],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.begun = self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, self._log.read_text()[-3000:]
        return line

    def commit(self) -> str:
        """What a reader of committed records then finds."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._line()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def second_broker(cluster: KafkaCluster, folder: Path) -> ClusterNode:
    """A further broker of the cluster, formatted."""
    (port,) = free_ports(1)
    own = {"listeners": f"PLAINTEXT://{HOST}:{port}"}
    shared = {
        name: value
        for name, value in cluster.broker.settings.items()
        if name not in ("node.id", "log.dirs")
    }
    node = ClusterNode(folder / "b102", SECOND_BROKER, {**shared, **own})
    node.format(CLUSTER)
    return node


def committed_log(cluster: KafkaCluster) -> bytes:
    """What two of the three stopped controllers have. The last to stop may have written more."""
    folders = [Path(str(each.settings["log.dirs"]), LOG) for each in cluster.controllers.values()]
    logs = [
        b"".join(path.read_bytes() for path in sorted(folder.glob("*.log"))) for folder in folders
    ]
    common: bytes = max(map(os.path.commonprefix, combinations(logs, 2)), key=len)
    end = 0
    while (following := end + batch_size(common, end)) <= len(common):
        end = following
    return common[:end]


def batch_size(log: bytes, start: int) -> int:
    """Bytes of the record batch at `start`, or more than there are if it is incomplete."""
    header = log[start : start + LENGTH_END]
    if len(header) < LENGTH_END:
        return LENGTH_END
    return LENGTH_END + int.from_bytes(header[8:], "big")


def image(log: bytes, folder: Path) -> dict[str, str]:
    """What Kafka's metadata shell reads from a log, by the image's parts."""
    if not (SHELL / ".complete").exists():
        to = ("dependency:copy-dependencies", f"-DoutputDirectory={SHELL}")
        pom = (HERE / "shell/pom.xml", "-Dkafka.version=4.3.0")
        subprocess.run(["mvn", "-q", "-B", "-f", *pom, *to], check=True)
        (SHELL / ".complete").touch()
    file = folder / "shell" / f"{0:020}.log"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(log)
    tree = subprocess.run(
        [
            "java", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
            "-cp", f"{SHELL}/*:{KAFKA_4_3}/*", "org.apache.kafka.shell.MetadataShell",
            "--snapshot", file, "tree", "/image",
        ],
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip
    _, *parts = re.split(r"^(\w+):$", tree, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def in_progress(image_parts: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in image_parts.items() if name not in CHANGING}


@pytest.mark.timeout(900)
def test_what_is_in_progress_survives(operator: Operator, tmp_path: Path) -> None:
    cluster = operator.cluster
    level = LEVELS["static" if cluster.static else "dynamic"][1]
    state = State(cluster)
    clients = Clients(cluster)
    clients.create(MOVED)
    clients.write()
    cluster.topics("--create", "--topic", OPEN)
    state.configure()
    joining = second_broker(cluster, tmp_path)
    joining.start()
    transaction = OpenTransaction(tmp_path, cluster.broker_address)
    try:
        assert transaction.begun == "open: []"
        joining.wait_started()
        joining.stop(STOP_S)
        # The tool moves partitions only to brokers that are up.
        assert clients.kafka.reassign(cluster.broker_address, MOVED, SECOND_BROKER) == 0
        before = state.shown()
        assert f"replicas: {SECOND_BROKER},101. adding: {SECOND_BROKER}" in before["reassignments"]

        check, stop, *rest = runbook(0)
        operator.follow([check, stop])
        log_before = committed_log(cluster)
        image_before = image(log_before, tmp_path)
        operator.follow(rest)
        assert state.shown() == before
        state.features("upgrade", "--metadata", level)
        assert state.level() == level
        clients.write()

        stop, *rest = runbook(1)
        operator.follow([stop])
        log_between = committed_log(cluster)
        assert log_between.startswith(log_before)
        assert in_progress(image(log_between, tmp_path)) == in_progress(image_before)
        operator.follow(rest)
        assert state.shown() == before
        assert state.level() == level
        assert transaction.commit() == "committed: [begun, continued]"
        joining.start()
        until("the reassignment is complete", lambda: state.reassigned_to(SECOND_BROKER), 60)
        clients.write()
        clients.check()
    finally:
        transaction.kill()
        joining.kill()
    cluster.stop_controllers()
    assert committed_log(cluster).startswith(log_between)
