"""What is in progress in a cluster of Kafka 4.3 survives a takeover and the way back.

A reassignment waits for a broker that is down, a transaction is open, and the cluster has an older
metadata.version, which Quorate raises. Kafka's tools, its metadata shell and the log's bytes show
that nothing else changed.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.support import CLUSTER
from tests.kafka import KAFKA_4_3
from tests.processes import HOST, Dialog, free_ports, until
from tests.wire.kafka_nodes import STOP_S, ClusterNode, KafkaCluster
from tests.wire.takeover_state import TOPICS, State, committed_log, image
from tests.wire.takeover_support import Clients, Operator, runbook

HERE = Path(__file__).parent
SECOND_BROKER = 102
MOVED = "moved"
OPEN = "open"
PRODUCER_S = 300.0
LEVELS = {"dynamic": ("4.1-IV1", "4.2-IV1"), "static": ("3.9-IV0", "4.0-IV3")}
"""metadata.version before the takeover, and what Quorate raises it to."""


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


class OpenTransaction(Dialog):
    """A producer whose transaction stays open until `commit`."""

    def __init__(self, folder: Path, servers: str) -> None:
        jars = f"{KAFKA_4_3}/*"
        subprocess.run(["javac", "-d", folder, "-cp", jars, HERE / "Transaction.java"], check=True)
        command = ("java", "-Xmx128m", "-cp", f"{folder}:{jars}", "Transaction", servers, OPEN)
        super().__init__("the producer", folder / "transaction.log", *command)
        self.start()
        self.begun = self._said()

    def _said(self) -> str:
        line = self.line(PRODUCER_S).strip()
        assert line, self.said()[-3000:]
        return line

    def commit(self) -> str:
        """What a reader of committed records then finds."""
        self.tell("")
        return self._said()


def configure(state: State) -> None:
    """Settings of a topic and of all brokers, a quota, and a SCRAM user."""
    credentials = "SCRAM-SHA-512=[iterations=4096,password=secret]"
    for entity, setting in (
        (("topics", "--entity-name", MOVED), "retention.ms=3600000"),
        (("brokers", "--entity-default"), "log.cleaner.threads=2"),
        (("users", "--entity-name", "alice"), "producer_byte_rate=1048576"),
        (("users", "--entity-name", "alice"), credentials),
    ):
        state.config("--alter", "--add-config", setting, "--entity-type", *entity)


def is_reassigned_to(state: State, broker_id: int) -> bool:
    described = state.tool(TOPICS, "--describe", "--topic", MOVED)
    return re.search(rf"Replicas: {broker_id}\tIsr: {broker_id}\b", described) is not None


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


@pytest.mark.timeout(900)
def test_what_is_in_progress_survives(operator: Operator, tmp_path: Path) -> None:
    cluster = operator.cluster
    level = LEVELS["static" if cluster.static else "dynamic"][1]
    state = State(cluster)
    clients = Clients(cluster)
    clients.create(MOVED)
    clients.write()
    cluster.topics("--create", "--topic", OPEN)
    configure(state)
    joining = second_broker(cluster, tmp_path)
    # Before the second broker starts: the transaction's coordinator must be on the first one.
    transaction = OpenTransaction(tmp_path, cluster.broker_address)
    try:
        assert transaction.begun == "open: []"
        joining.start()
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
        assert image(log_between, tmp_path) == image_before
        operator.follow(rest)
        assert state.shown() == before
        assert state.level() == level
        assert transaction.commit() == "committed: [begun, continued]"
        joining.start()
        until("the reassignment is complete", lambda: is_reassigned_to(state, SECOND_BROKER), 60)
        clients.write()
        clients.check()
    finally:
        transaction.kill()
        joining.kill()
    cluster.stop_controllers()
    assert committed_log(cluster).startswith(log_between)
