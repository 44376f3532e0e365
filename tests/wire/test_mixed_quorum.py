"""Two controllers of Kafka 4.3 and one of Quorate in one quorum: Quorate follows and votes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.support import CLUSTER, HOST, PARTITION, Node, free_ports, until
from tests.kafka import KAFKA_4_3, KafkaNode
from tests.wire.test_controller_tools import QUORUM, run

KAFKAS, OURS = (1, 2), 3
LISTENER = "MIXED"


class MixedQuorum:
    """Kafka's controllers 1 and 2, and Quorate's 3, which speaks gRPC on another listener."""

    def __init__(self, folder: Path) -> None:
        grpc, *kafka = free_ports(4)
        self.ports = dict(zip((*KAFKAS, OURS), kafka, strict=True))
        self.addresses = ",".join(f"{HOST}:{self.ports[node]}" for node in KAFKAS)
        self.kafkas = {
            node: KafkaNode(
                folder / f"kafka-{node}",
                KAFKA_4_3,
                {
                    "process.roles": "controller",
                    "node.id": node,
                    "controller.listener.names": LISTENER,
                    "listeners": f"{LISTENER}://{HOST}:{self.ports[node]}",
                    "listener.security.protocol.map": f"{LISTENER}:PLAINTEXT",
                    "controller.quorum.bootstrap.servers": self.addresses,
                    "log.dirs": folder / f"data-{node}",
                },
            )
            for node in KAFKAS
        }
        self.data = {node: folder / f"data-{node}" / PARTITION for node in KAFKAS}
        self.ours = Node(
            folder,
            OURS,
            grpc,
            **{
                "controller.listener.names": f"CONTROLLER,{LISTENER}",
                "listeners": (
                    f"CONTROLLER://{HOST}:{grpc},{LISTENER}://{HOST}:{self.ports[OURS]}"
                ),
                "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,{LISTENER}:PLAINTEXT",
                "quorate.kafka.listener.name": LISTENER,
                "quorate.peer.protocol": "kafka",
                "controller.quorum.bootstrap.servers": self.addresses,
                "controller.quorum.auto.join.enable": "true",
            },
        )
        self.data[OURS] = self.ours.data / PARTITION

    def format_and_start(self) -> None:
        initial = ",".join(
            f"{node}@{HOST}:{self.ports[node]}:{'A' * 20}{node}A" for node in KAFKAS
        )
        for node in self.kafkas.values():
            node.format(CLUSTER, "--release-version", "4.1-IV1", "--initial-controllers", initial)
            node.start()
        self.ours.format("--no-initial-controllers")
        self.ours.start()

    def describe(self, *arguments: str) -> str:
        where = ("--bootstrap-controller", self.addresses)
        return run(QUORUM, *where, "describe", *arguments)

    def leader(self) -> int:
        found = re.search(r"LeaderId:\s+(\d+)", self.describe("--status"))
        return int(found[1]) if found else -1

    def is_voter(self, node: int) -> bool:
        lines = self.describe("--replication").splitlines()
        return any(re.match(rf"{node}\s.*(Leader|Follower)\s*$", line) for line in lines)

    def kill(self) -> None:
        for node in (*self.kafkas.values(), self.ours):
            node.kill()


def common_bytes(*partitions: Path) -> bytes:
    """The first segments as far as all have them, which must be equal."""
    logs = [(each / f"{0:020}.log").read_bytes().rstrip(b"\0") for each in partitions]
    size = min(map(len, logs))
    digests = {hashlib.sha256(log[:size]).hexdigest() for log in logs}
    assert len(digests) == 1, [len(log) for log in logs]
    return logs[0][:size]


@pytest.mark.timeout(400)
def test_quorate_joins_kafkas_quorum_follows_and_votes(
    kafka_tool: Callable[..., str], tmp_path: Path
) -> None:
    quorum = MixedQuorum(tmp_path)
    quorum.format_and_start()
    try:
        until("Kafka leads", lambda: quorum.leader() in KAFKAS, 90.0)
        until("Quorate is a voter", lambda: quorum.is_voter(OURS), 90.0)
        first = quorum.leader()
        assert first in KAFKAS
        other = next(node for node in KAFKAS if node != first)
        quorum.kafkas[first].kill()
        # Two of three are left: Quorate's vote decides.
        until("another leads", lambda: quorum.leader() not in (-1, first), 90.0)
        print("leader after the kill:", quorum.leader())
        quorum.kafkas[first].start()
        quorum.kafkas[first].wait_said("Kafka Server started", 90.0)
        found = common_bytes(*quorum.data.values())
        assert len(found) > 1000
        print(other, quorum.describe("--replication"))
    finally:
        print(quorum.ours.said())
        quorum.kill()
