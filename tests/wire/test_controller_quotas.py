"""Controller quotas (KIP-599): Quorate's controllers limit clients like Kafka 4.3's.

The rates are so low that the results do not depend on how fast the test runs, only the times that
clients have to wait.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from quorate.bridge.messages import schemas as s

from tests.integration.bridge_support import KafkaQuorum
from tests.integration.support import CLUSTER, HOST, free_ports, until
from tests.kafka import KAFKA_4_3, KafkaNode, fetch
from tests.migration.client import KafkaClient
from tests.wire.kafka_nodes import start_controller

RELEASE: Final = "4.3-IV0"
START_S = 120.0
RATE: Final = 0.1
BURST: Final = 11 * RATE
LIMITED, FREE, FAST = "limited", "free", "fast"
NONE, THROTTLED = 0, 89


class Cluster:
    """A controller, of Quorate or of Kafka, and a broker of Kafka."""

    def __init__(self, folder: Path, stack: ExitStack, *, quorates: bool) -> None:
        self.name = "Quorate" if quorates else "Kafka"
        if quorates:
            quorum = KafkaQuorum(folder / "quorate", (1,))
            stack.callback(lambda: [node.kill() for node in quorum.nodes.values()])
            quorum.format_and_start(RELEASE)
            self.controller = f"{HOST}:{quorum.ports[1]}"
        else:
            self.controller = start_controller(folder / "controller", stack, RELEASE, {})
        (port,) = free_ports(1)
        self.broker = f"{HOST}:{port}"
        node = KafkaNode(
            folder / f"{self.name}-broker",
            KAFKA_4_3,
            {
                "process.roles": "broker",
                "node.id": 101,
                "listeners": f"PLAINTEXT://{self.broker}",
                "controller.listener.names": "KAFKA",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,KAFKA:PLAINTEXT",
                "controller.quorum.bootstrap.servers": self.controller,
                "log.dirs": folder / f"{self.name}-broker/data",
            },
        )
        stack.callback(node.kill)
        node.format(CLUSTER)
        node.start()
        node.wait_listening(port, timeout_s=START_S)
        self.client = KafkaClient([self.broker])

    def limit(self, client_id: str, rate: float) -> None:
        module = s.request_module(s.ALTER_CLIENT_QUOTAS, 1)
        entry = module.EntryData(
            entity=(module.EntityData(entity_type="client-id", entity_name=client_id),),
            ops=(module.OpData(key="controller_mutation_rate", value=rate, remove=False),),
        )
        body = module.AlterClientQuotasRequest(entries=(entry,), validate_only=False)
        answer = self.client.call(self.broker, s.ALTER_CLIENT_QUOTAS, body, 1)
        assert int(answer.entries[0].error_code) == NONE, answer

    def create(
        self, version: int, name: str, partitions: int, client_id: str = LIMITED, to: str = ""
    ) -> tuple[int, float]:
        """The error's number, and the time to wait in seconds. to: the broker if empty."""
        module = s.request_module(s.CREATE_TOPICS, version)
        topic = module.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            assignments=(),
            configs=(),
        )
        body = module.CreateTopicsRequest(topics=(topic,), timeout=s.milliseconds(20_000))
        answer = self.client.call(to or self.broker, s.CREATE_TOPICS, body, version, client_id)
        return int(answer.topics[0].error_code), answer.throttle_time.total_seconds()

    def grow(self, version: int, name: str, count: int) -> tuple[int, float]:
        module = s.request_module(s.CREATE_PARTITIONS, version)
        topic = module.CreatePartitionsTopic(name=name, count=count, assignments=None)
        body = module.CreatePartitionsRequest(
            topics=(topic,), timeout=s.milliseconds(20_000), validate_only=False
        )
        answer = self.client.call(self.broker, s.CREATE_PARTITIONS, body, version, LIMITED)
        return int(answer.results[0].error_code), answer.throttle_time.total_seconds()

    def delete(self, version: int, name: str) -> tuple[int, float]:
        module = s.request_module(s.DELETE_TOPICS, version)
        named: dict[str, Any] = {"topic_names": (name,)}
        if version >= 6:
            state = module.DeleteTopicState(name=name, topic_id=uuid.UUID(int=0))
            named = {"topics": (state,)}
        body = module.DeleteTopicsRequest(timeout=s.milliseconds(20_000), **named)
        answer = self.client.call(self.broker, s.DELETE_TOPICS, body, version, LIMITED)
        return int(answer.responses[0].error_code), answer.throttle_time.total_seconds()


@pytest.fixture(params=["Quorate", "Kafka"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    fetch(KAFKA_4_3)
    with ExitStack() as stack:
        yield Cluster(tmp_path, stack, quorates=request.param == "Quorate")


@pytest.mark.timeout(300)
def test_clients_beyond_their_quota_wait_or_fail(cluster: Cluster) -> None:
    cluster.limit(LIMITED, RATE)
    cluster.limit(FAST, 1_000.0)
    begun = 0.0

    def is_made() -> bool:
        nonlocal begun
        # The tokens return from when the controller takes them, so before the answer.
        begun = time.monotonic()
        return cluster.create(7, "first", 5) == (NONE, 0.0)

    until("the quota is known", is_made, 20)
    missing = 5 - BURST

    def waits(found: tuple[int, float], error: int) -> None:
        """Whether the time to wait is that of `missing` tokens, of which some are back already."""
        passed_s = time.monotonic() - begun
        assert found[0] == error, found
        assert missing / RATE - passed_s - 0.5 < found[1] <= missing / RATE, (found, passed_s)

    # New versions report the error, and take no tokens then.
    for _ in range(2):
        waits(cluster.create(7, "second", 1), THROTTLED)
    waits(cluster.create(6, "second", 1, to=cluster.controller), THROTTLED)
    waits(cluster.grow(3, "first", 6), THROTTLED)
    waits(cluster.delete(6, "first"), THROTTLED)
    waits(cluster.delete(5, "first"), THROTTLED)
    # Requests that fail for another reason take none.
    assert cluster.create(7, "first", 1)[0] == 36
    # Old versions succeed, and only have to wait.
    missing += 2
    waits(cluster.create(5, "second", 2), NONE)
    missing += 3
    waits(cluster.create(5, "third", 3, to=cluster.controller), NONE)
    missing += 4
    waits(cluster.grow(2, "second", 6), NONE)
    missing += 5
    waits(cluster.delete(4, "first"), NONE)
    # Other clients have other buckets, and a raised rate fills the bucket.
    assert cluster.create(7, "fourth", 20, FREE) == (NONE, 0.0)
    assert cluster.create(7, "fifth", 20, FAST) == (NONE, 0.0)
    cluster.limit(LIMITED, 1_000.0)
    until("the bucket is full", lambda: cluster.create(7, "sixth", 1) == (NONE, 0.0), 20)
