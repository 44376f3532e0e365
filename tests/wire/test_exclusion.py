"""Kafka 4.3 and application records: a quorum has one or the other, and Kafka reads the record that
says which.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from quorate.common.error_codes import ErrorCode
from quorate.rpc.client.quorum_client import QuorumClient
from quorate.rpc.errors import AdminError

from tests.integration.bridge_support import KafkaQuorum
from tests.integration.support import HOST, here
from tests.wire.test_brokers import START_S, KafkaBroker, running

REJECTED = "bridge: Fetch of Kafka node 1 at 127.0.0.1 is rejected: the log has records of applic"


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[KafkaQuorum]:
    """One controller, whose log soon begins with a snapshot."""
    settings: dict[str, object] = {
        "metadata.log.max.snapshot.interval.ms": 1_000,
        "internal.metadata.log.segment.bytes": 8 * 1024,
        "metadata.max.retention.bytes": 8 * 1024,
    }
    made = KafkaQuorum(tmp_path, (3001,), **settings)
    (node,) = made.nodes.values()
    node.format("--standalone")
    node.start()
    node.wait_said("leads epoch 1")
    made.has_migrated()
    yield made
    made.kill()


def settings_of(quorum: KafkaQuorum) -> dict[str, object]:
    (port,) = quorum.ports.values()
    return {
        "controller.quorum.bootstrap.servers": f"{HOST}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,KAFKA:PLAINTEXT",
    }


async def append(address: str) -> int:
    async with QuorumClient([address], request_timeout_ms=20_000) as client:
        return await client.append_value(b"by an application")


@pytest.mark.timeout(400)
def test_where_a_broker_serves_applications_are_refused(
    quorum: KafkaQuorum, kafka_tool: Callable[..., str], tmp_path: Path
) -> None:
    (node,) = quorum.nodes.values()
    directory = node.data / "__cluster_metadata-0"
    with running(tmp_path, 1, settings_of(quorum)) as broker:
        with pytest.raises(AdminError, match="Kafka's nodes use this quorum") as refused:
            asyncio.run(append(node.address))
        assert refused.value.code is ErrorCode.INVALID_REQUEST
        for number in range(3):
            kafka_tool(
                "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", broker, "--create",
                "--topic", f"made-{number}", "--partitions", "90", "--replication-factor", "1",
            )  # fmt: skip
        node.wait_said("the log starts at ")
    (tmp_path / "second").mkdir()
    with running(tmp_path / "second", 2, settings_of(quorum)):
        log = (tmp_path / "second/kafka/server.log").read_text()
        assert "Got key" not in log
        assert "fault" not in log.lower().replace("default", ""), log
    assert node.stop() == 0
    newest = max(directory.glob("*.checkpoint"))
    tool, decoder = "org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder"
    for path in (newest, *sorted(directory.glob("*.log"))):
        dumped = kafka_tool(tool, decoder, "--files", str(path))
        assert "Skipping" not in dumped, "it would skip what it cannot decode"
        assert dumped == here("dump-log", decoder, "--files", str(path)).out
    assert '{"type":"NO_OP_RECORD","version":0,"data":{}}' in kafka_tool(
        tool, decoder, "--files", str(newest)
    )
    assert here("metadata-shell", "--snapshot", newest, "cat", "/image/kafkaNodes").out == "true\n"

    # It is in the log for good.
    node.start()
    with pytest.raises(AdminError, match="Kafka's nodes use this quorum"):
        asyncio.run(append(node.address))


@pytest.mark.timeout(240)
def test_where_an_application_has_appended_a_broker_is_rejected(
    quorum: KafkaQuorum, kafka_tool: Callable[..., str], tmp_path: Path
) -> None:
    (node,) = quorum.nodes.values()
    asyncio.run(append(node.address))
    with KafkaBroker(tmp_path / "kafka", 1, settings_of(quorum)) as broker:
        broker.start()
        broker.wait_said("Unexpected error POLICY_VIOLATION in FETCH response", START_S)
        assert broker.is_alive, "it tries again"
        assert "Got key in the record" not in broker.said()
        lines = [line for line in node.said().splitlines() if "is rejected" in line]
        assert sum(REJECTED in line for line in lines) == 1, lines
    asyncio.run(append(node.address))
