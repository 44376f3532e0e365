"""The directories that Kafka 4.3 wrote are taken over, and given back, with brokers that run.

`full-history`: the whole log of a quorum whose voters changed. `compacted`: checkpoints, several
segments, a log that starts above 0, and a voter less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from quorate.log.meta_properties import MetaProperties

from tests.kafka import copy_writable
from tests.processes import HOST, free_ports, until
from tests.wire.kafka_nodes import ClusterNode, KafkaCluster
from tests.wire.metadata_support import check_free, golden_ports
from tests.wire.takeover_state import TOPICS, State, committed_log, image
from tests.wire.takeover_support import PORT_OFFSET, Clients, Operator, runbook

VOTERS = {"full-history": (1, 2, 3), "compacted": (1, 2)}
BROKERS = (101, 102, 103)
OBSERVER = 101
"""The broker whose directory is there too."""


class GoldenCluster(KafkaCluster):
    """The controllers of one stage at the endpoints in its log, and its three brokers."""

    def __init__(
        self, golden: Path, stage: str, folder: Path, kafka_tool: Callable[..., str]
    ) -> None:
        known = golden_ports(golden)
        ports = {node_id: known[node_id] for node_id in VOTERS[stage]}
        check_free(*ports.values(), *(port + PORT_OFFSET for port in ports.values()))
        super().__init__(folder, kafka_tool, static=False, ports=ports)
        for node in self.controllers.values():
            # The test must not depend on the age of the directories.
            node.settings["metadata.max.retention.ms"] = -1
            node.settings["metadata.log.max.snapshot.interval.ms"] = 0
            # Nor on how long it takes.
            node.settings["auto.leader.rebalance.enable"] = "false"
            # Two of the brokers have new disks: some partitions are on no other.
            node.settings["unclean.leader.election.enable"] = "true"
            node.settings["unclean.leader.election.interval.ms"] = 5_000
            copy_writable(golden / stage / f"controller-{node.id}", node.folder / "data")
        copy_writable(golden / stage / f"broker-{OBSERVER}", self.broker.folder / "data")
        cluster_id = MetaProperties.read(self.broker.folder / "data").cluster_id
        self.brokers = [self.broker]
        for broker_id, port in zip(BROKERS[1:], free_ports(2), strict=True):
            own = {
                "process.roles": "broker",
                "listeners": f"PLAINTEXT://{HOST}:{port}",
                "offsets.topic.replication.factor": 1,
            }
            node = ClusterNode(folder / f"b{broker_id}", broker_id, {**self.settings, **own})
            node.format(cluster_id)
            self.brokers.append(node)

    def start(self) -> None:
        self.start_controllers()
        for node in self.brokers:
            node.start()
        for node in self.brokers:
            node.wait_started()

    def kill(self) -> None:
        super().kill()
        for node in self.brokers:
            node.kill()


@pytest.fixture(params=VOTERS)
def operator(
    request: pytest.FixtureRequest, golden: Path, kafka_tool: Callable[..., str], tmp_path: Path
) -> Iterator[Operator]:
    cluster = GoldenCluster(golden, request.param, tmp_path, kafka_tool)
    made = Operator(cluster, tmp_path)
    try:
        cluster.start()
        yield made
    finally:
        made.kill()
        cluster.kill()


@pytest.mark.timeout(900)
def test_golden_directories_are_taken_over_and_given_back(
    operator: Operator, tmp_path: Path
) -> None:
    cluster = operator.cluster
    assert isinstance(cluster, GoldenCluster)
    state = State(cluster)
    lagging = ("--describe", "--under-replicated-partitions")
    until("all replicas are in sync", lambda: not state.tool(TOPICS, *lagging).strip(), 300)
    before = state.shown()
    assert "orders" in before["topics"]

    check, stop, *rest = runbook(0)
    operator.follow([check, stop])
    log_before = committed_log(cluster)
    image_before = image(log_before, tmp_path)
    assert "StandardAcl" in image_before["acls"]
    operator.follow(rest)
    assert state.shown() == before

    stop, *rest = runbook(1)
    operator.follow([stop])
    log_between = committed_log(cluster)
    assert log_between.startswith(log_before)
    assert len(log_between) > len(log_before)
    assert image(log_between, tmp_path) == image_before
    operator.follow(rest)
    assert state.shown() == before
    clients = Clients(cluster)
    clients.create("after")
    clients.write()
    clients.check()
    for node in cluster.brokers:
        assert node.is_alive, node.recently()[-3000:]
