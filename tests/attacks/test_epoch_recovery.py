"""`quorate recover epochs` brings a quorum back whose epochs were used up, with its records."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from quorate.rpc.client.quorum_client import QuorumClient

from tests.integration.support import PARTITION, Quorum, assert_error, quorate, until

LAST = 2**31 - 1


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[Quorum]:
    quorum = Quorum(tmp_path, (1, 2, 3))
    try:
        for node in quorum.nodes.values():
            node.format("--standalone" if node.id == 1 else "--no-initial-controllers")
            if node.id != 1:
                node.configure({"controller.quorum.auto.join.enable": "true"})
            node.start()
        quorum.until_voters(1, 2, 3)
        yield quorum
    finally:
        for node in quorum.nodes.values():
            node.kill()


def append(quorum: Quorum, value: bytes) -> int:
    async def ask() -> int:
        async with QuorumClient(quorum.addresses.split(","), request_timeout_ms=30_000) as client:
            return await client.append_value(value)

    return asyncio.run(ask())


def read(quorum: Quorum) -> list[bytes]:
    async def ask() -> list[bytes]:
        async with QuorumClient(quorum.addresses.split(","), request_timeout_ms=30_000) as client:
            return [record.value or b"" async for record in client.read(0)]

    return asyncio.run(ask())


def test_used_up_epochs_are_lowered_for_all_voters_together(quorum: Quorum) -> None:
    append(quorum, b"before")
    nodes = list(quorum.nodes.values())
    directories = [node.data for node in nodes]
    assert_error(quorate("recover", "epochs", *directories), "is in use")
    for node in nodes:
        node.kill()
    states = [node.data / PARTITION / "quorum-state" for node in nodes]
    for state, epoch in zip(states, (LAST, LAST + 1, LAST - 1), strict=True):
        fields = json.loads(state.read_text())
        fields.update(leaderEpoch=epoch, leaderId=-1, votedId=-1)
        state.write_text(json.dumps(fields))
    assert_error(quorate("recover", "epochs", *directories[:2]), "are missing")
    planned = quorate("recover", "epochs", *directories)
    assert planned.status == 0, planned
    assert "DRY RUN" in planned.out
    assert {json.loads(state.read_text())["leaderEpoch"] for state in states} == {
        *(LAST - 1, LAST, LAST + 1)
    }
    ran = quorate("recover", "epochs", *directories, "--yes", "--json")
    assert ran.status == 0, ran
    epoch = json.loads(ran.out)["epoch"]
    assert [json.loads(state.read_text())["leaderEpoch"] for state in states] == [epoch] * 3
    assert epoch < 1_000
    for node in nodes:
        node.start()
    append(quorum, b"after")
    until("both are there", lambda: [v for v in read(quorum) if v] == [b"before", b"after"])
