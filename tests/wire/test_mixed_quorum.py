"""Two controllers of Kafka 4.3 and one of Quorate in one quorum: Quorate follows and votes."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from quorate.rpc.client.quorum_client import QuorumClient
from quorate.rpc.errors import AdminError

from tests.integration.support import CLUSTER, HOST, PARTITION, Node, free_ports, until
from tests.kafka import KAFKA_4_3, KafkaNode
from tests.wire.tool_runner import run_tool

KAFKAS, OURS = (1, 2), 3
LISTENER = "MIXED"
START_S = 90.0
LATE_S = 3.0
PATIENT = {"controller.quorum.fetch.timeout.ms": 6_000}
"""Longer than the tools' processes of Java keep a controller from running on a busy machine."""


class MixedQuorum:
    """Kafka's controllers 1 and 2, and Quorate's 3, which speaks gRPC on another listener.

    tool_options: further ones of Kafka's tools.
    """

    def __init__(self, folder: Path) -> None:
        self.tool_options: tuple[object, ...] = ()
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
                    **PATIENT,
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
                "listeners": (f"CONTROLLER://{HOST}:{grpc},{LISTENER}://{HOST}:{self.ports[OURS]}"),
                "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,{LISTENER}:PLAINTEXT",
                "quorate.kafka.listener.name": LISTENER,
                "quorate.peer.protocol": "kafka",
                "controller.quorum.bootstrap.servers": self.addresses,
                **PATIENT,
                "controller.quorum.auto.join.enable": "true",
            },
        )
        self.data[OURS] = self.ours.data / PARTITION

    @staticmethod
    def directory_id(node: int) -> str:
        """That of one of Kafka's controllers."""
        return f"{'A' * 20}{node}A"

    def format_and_start_kafkas(self) -> None:
        initial = ",".join(
            f"{node}@{HOST}:{self.ports[node]}:{self.directory_id(node)}" for node in KAFKAS
        )
        for node in self.kafkas.values():
            node.format(CLUSTER, "--release-version", "4.1-IV1", "--initial-controllers", initial)
            node.start()

    def format_and_start(self) -> None:
        self.format_and_start_kafkas()
        self.ours.format("--no-initial-controllers")
        self.ours.start()

    def until_joined(self) -> None:
        """Wait until Kafka leads, and Quorate's controller is a registered voter."""
        until("Kafka leads", lambda: self.leader() in KAFKAS, START_S)
        until("Quorate is a voter", lambda: self.is_voter(OURS), START_S)
        self.ours.wait_said("registered the features that this controller supports", START_S)

    def describe(self, *arguments: str) -> str:
        where = ("--bootstrap-controller", self.addresses, *self.tool_options)
        return run_tool("kafka-metadata-quorum", *where, "describe", *arguments)

    def leader(self) -> int:
        """Wait until a leader is known: on a busy machine the tool may get no answer in time."""

        def known() -> re.Match[str] | None:
            return re.search(r"LeaderId:\s+(\d+)", self.describe("--status"))

        return int(until("a leader is known", known, START_S)[1])

    def is_voter(self, node: int) -> bool:
        lines = self.describe("--replication").splitlines()
        return any(re.match(rf"{node}\s.*(Leader|Follower)\s*$", line) for line in lines)

    def until_caught_up(self) -> None:
        """Wait until every voter lags by a few records at most, and all of them are there."""

        def lags() -> list[int]:
            text = self.describe("--replication")
            rows = re.findall(r"^(\d)\s+\S+\s+\d+\s+(\d+)", text, re.MULTILINE)
            return [int(lag) for _, lag in rows]

        until("all caught up", lambda: len(found := lags()) == 3 and max(found) < 5, START_S)

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


Quorum = TypeVar("Quorum", bound=MixedQuorum)


@contextlib.contextmanager
def running(quorum: Quorum) -> Iterator[Quorum]:
    """Format and start a quorum, wait until Quorate has joined, and kill it at the end."""
    quorum.format_and_start()
    try:
        quorum.until_joined()
        yield quorum
    finally:
        quorum.kill()


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[MixedQuorum]:
    with running(MixedQuorum(tmp_path)) as made:
        yield made


@pytest.mark.timeout(400)
def test_quorate_joins_follows_and_votes(
    kafka_tool: Callable[..., str], quorum: MixedQuorum
) -> None:
    first = quorum.leader()
    assert first in KAFKAS
    quorum.kafkas[first].kill()
    # Two of three are left: the vote of each decides.
    until("another leads", lambda: quorum.leader() != first, START_S)
    quorum.kafkas[first].start()
    quorum.kafkas[first].wait_said("Kafka Server started", START_S)
    quorum.until_caught_up()
    assert len(common_bytes(*quorum.data.values())) > 1000


@pytest.mark.timeout(400)
def test_quorate_leads_when_no_other_voter_can_win(
    kafka_tool: Callable[..., str], quorum: MixedQuorum
) -> None:
    first = quorum.leader()
    late = next(node for node in KAFKAS if node != first)
    quorum.kafkas[late].send(signal.SIGSTOP)
    time.sleep(LATE_S)  # the other two commit records that it lacks
    quorum.kafkas[first].kill()
    quorum.kafkas[late].send(signal.SIGCONT)
    until("Quorate leads", lambda: quorum.leader() == OURS, START_S)
    upgraded = run_tool(
        *("kafka-features", "--bootstrap-controller", quorum.addresses),
        *("upgrade", "--feature", "metadata.version=28"),
    )
    assert "metadata.version was upgraded to 28" in upgraded
    asyncio.run(no_application_and_reads(quorum.ours.address))
    quorum.kafkas[first].start()
    quorum.kafkas[first].wait_said("Kafka Server started", START_S)
    quorum.until_caught_up()
    assert len(common_bytes(*quorum.data.values())) > 1000
    assert quorum.leader() == OURS
    for node in quorum.kafkas.values():
        assert "fault handler" not in node.said(), "it replays what Quorate has written"


async def no_application_and_reads(address: str) -> None:
    """Kafka's controllers fail on records of applications; their Fetches confirm the leader."""
    async with QuorumClient([address], request_timeout_ms=30_000) as client:
        with pytest.raises(AdminError, match="Kafka's nodes use this quorum"):
            await client.append_value(b"an application's")
        assert [record async for record in client.read(0, linearizable=True)]
