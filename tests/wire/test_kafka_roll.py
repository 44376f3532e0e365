"""A quorum rolls from three controllers of Kafka to three of Quorate, and back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from quorate.common.endpoints import Endpoint
from quorate.log.meta_properties import random_uuid
from quorate.raft.types import ReplicaKey
from quorate.rpc.client.quorum_client import QuorumClient
from quorate.rpc.errors import AdminError
from rich.progress import Progress

from tests.integration.support import HOST
from tests.kafka import KAFKA_4_3
from tests.kafka_roll.__main__ import Roll, catch_up_and_stop
from tests.kafka_roll.accounts import judge
from tests.kafka_roll.controllers import KAFKAS, QUORATES, MixedControllers


@pytest.fixture
def controllers(kafka_tool: Callable[..., str], tmp_path: Path) -> Iterator[MixedControllers]:
    made = MixedControllers(tmp_path, KAFKA_4_3)
    made.start("4.3")
    try:
        yield made
    finally:
        made.kill()


@pytest.mark.timeout(600)
def test_there_and_back(controllers: MixedControllers) -> None:
    with Progress(disable=True) as progress:
        roll = Roll(controllers, random.Random(1), progress)
        for old, new in zip(KAFKAS, QUORATES, strict=True):
            roll.replace(old, new)
        assert controllers.leader() in QUORATES
        assert "metadata.version" in controllers.features()
        asyncio.run(another_replica_is_not_added(controllers, KAFKAS[0]))
        for old, new in zip(QUORATES, KAFKAS, strict=True):
            roll.replace(old, new)
    assert controllers.leader() in KAFKAS
    findings = judge(controllers, roll.kills, roll.changes, catch_up_and_stop(controllers))
    assert not findings.faults, findings
    assert findings.figures["batches in several logs"] > 100
    assert findings.figures["changes of the voters"] == 2 * len(controllers.ids)
    assert {each["implementation"] for each in findings.terms} == {"Kafka", "Quorate"}
    assert len(roll.kills) > 0
    for node in KAFKAS:
        said = controllers.process(node).log_file.read_text()
        assert "fault handler" not in said, "Kafka replays what Quorate has written"


async def another_replica_is_not_added(controllers: MixedControllers, node: int) -> None:
    """Kafka's node accepts BeginQuorumEpoch only for its own directory."""
    process = controllers.process(node)
    process.start()
    controllers.wait(node)
    key = ReplicaKey(node, random_uuid())
    endpoint = Endpoint(controllers.listener, HOST, controllers.ports[node])
    addresses = [made.address for made in controllers.quorates.values()]
    async with QuorumClient(addresses, request_timeout_ms=30_000) as client:
        with pytest.raises(AdminError, match=f"is not {key}"):
            await client.add_voter(key, (endpoint,))
    process.stop(60)
