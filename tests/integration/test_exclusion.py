"""Applications and Kafka's nodes at real controllers: a quorum serves only the first of the two."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from quorate.bridge.messages import schemas as s
from quorate.common.error_codes import ErrorCode
from quorate.rpc.client.quorum_client import QuorumClient
from quorate.rpc.errors import AdminError

from tests.attacks.test_kafka_listener import registration
from tests.integration.bridge_support import KafkaQuorum, listens
from tests.integration.support import CLUSTER, assert_error, here, until
from tests.integration.test_bridge import Asker

IDS = (3001, 3002, 3003)
NO_APPLICATIONS = "Kafka's nodes use this quorum"
NO_KAFKA_NODES = "the log has records of applications"


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[KafkaQuorum]:
    made = KafkaQuorum(tmp_path, IDS)
    made.format_and_start()
    made.has_migrated()
    yield made
    made.kill()


def leader_of(quorum: KafkaQuorum) -> int:
    found: int = quorum.until("one leads", lambda status: status["leaderId"] > 0)["leaderId"]
    return found


def fetch_at_leader(quorum: KafkaQuorum) -> Any:
    """A Fetch that a leader answers, whichever it is."""
    found: list[Any] = []

    def is_answered() -> bool:
        for port in quorum.ports.values():
            if not listens(port):
                continue
            asker = Asker(port)
            answer = asker.fetch()
            asker.close()
            error = int(answer.error_code)
            if error not in (ErrorCode.NONE, ErrorCode.BROKER_NOT_AVAILABLE):
                found.append(error)
            for topic in answer.responses:
                (partition,) = topic.partitions
                if int(partition.error_code) in (ErrorCode.NONE, ErrorCode.UNKNOWN_LEADER_EPOCH):
                    found.append(0)
                # A Fetch in an older epoch: the leader tells its own.
                if int(partition.error_code) == ErrorCode.FENCED_LEADER_EPOCH:
                    epoch = partition.current_leader.leader_epoch
                    asker = Asker(port)
                    again = asker.fetch(0, epoch)
                    asker.close()
                    if again.responses and int(again.responses[0].partitions[0].error_code) == 0:
                        found.append(0)
        return bool(found)

    until("a leader answers", is_answered)
    return found[0]


async def append(quorum: KafkaQuorum) -> int:
    async with QuorumClient(quorum.addresses.split(","), request_timeout_ms=20_000) as client:
        return await client.append_value(b"by an application")


def test_where_kafkas_nodes_are_no_application_appends(quorum: KafkaQuorum) -> None:
    assert fetch_at_leader(quorum) == 0
    with pytest.raises(AdminError, match=NO_APPLICATIONS):
        asyncio.run(append(quorum))
    leader = quorum.nodes[leader_of(quorum)]
    assert leader.stop() == 0
    with pytest.raises(AdminError, match=NO_APPLICATIONS):
        asyncio.run(append(quorum))
    assert fetch_at_leader(quorum) == 0
    ran = here("bench", "W1", "--bootstrap-controller", quorum.addresses, "--commits", "1")
    assert_error(ran, NO_APPLICATIONS)


def test_where_applications_append_kafkas_nodes_are_rejected(quorum: KafkaQuorum) -> None:
    asyncio.run(append(quorum))
    leader = leader_of(quorum)
    asker = Asker(quorum.ports[leader])
    for _ in range(3):
        assert int(asker.fetch().error_code) == ErrorCode.POLICY_VIOLATION
    registered = asker.ask(s.BROKER_REGISTRATION, registration())
    assert int(registered.error_code) == ErrorCode.POLICY_VIOLATION
    # A request for another cluster is rejected before it decides anything.
    wrong = asker.fetch(cluster_id="x" * 22)
    assert int(wrong.error_code) == ErrorCode.INCONSISTENT_CLUSTER_ID
    asker.close()
    said = [line for line in quorum.nodes[leader].said().splitlines() if NO_KAFKA_NODES in line]
    assert any("Fetch of Kafka node 1 at 127.0.0.1 is rejected" in line for line in said)
    assert len(said) <= 2, "a line for each node and minute"

    assert quorum.nodes[leader].stop() == 0
    asyncio.run(append(quorum))
    assert fetch_at_leader(quorum) == ErrorCode.POLICY_VIOLATION


def test_a_stranger_decides_nothing(quorum: KafkaQuorum) -> None:
    asker = Asker(quorum.ports[leader_of(quorum)])
    wrong = asker.fetch(cluster_id="x" * 22)
    assert int(wrong.error_code) == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert int(asker.fetch(replica=-1).error_code) == ErrorCode.INVALID_REQUEST
    other = replace(registration(), cluster_id=CLUSTER[::-1])
    refused = asker.ask(s.BROKER_REGISTRATION, other)
    assert int(refused.error_code) == ErrorCode.INCONSISTENT_CLUSTER_ID
    asker.close()
    assert asyncio.run(append(quorum)) > 0
