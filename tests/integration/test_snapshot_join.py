"""A log whose beginning is gone: a new controller gets it as a snapshot, and holds every record."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from quorate.rpc.client.quorum_client import QuorumClient

from tests.integration.support import PARTITION, Quorum, assert_clean, succeed, until

RECORDS = 200
VALUE_BYTES = 200
SMALL = {
    "internal.metadata.log.segment.bytes": 8 * 1024,
    "metadata.log.max.record.bytes.between.snapshots": 16 * 1024,
    "metadata.max.retention.bytes": 8 * 1024,
}


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[Quorum]:
    quorum = Quorum(tmp_path, (1, 2), **SMALL)
    quorum.nodes[1].format("--standalone")
    quorum.nodes[2].format("--no-initial-controllers")
    try:
        yield quorum
    finally:
        quorum.kill()


def join_by_snapshot(quorum: Quorum, values: list[str]) -> None:
    """Let the second of two formatted controllers join when the beginning of the log is gone."""
    first, second = quorum.nodes.values()
    first.start()
    first.wait_said("leads epoch 1")
    asyncio.run(append(first.address, values))
    first.wait_said("the log starts at ")
    oldest = first.data / PARTITION / f"{0:020}.log"
    until("the log's beginning is deleted", lambda: not oldest.exists())
    second.start()
    second.wait_said("installed snapshot")
    succeed(*quorum.ask, "add-controller", "-c", second.properties)
    quorum.until_voters(1, 2)


def test_a_new_controller_joins_by_snapshot(quorum: Quorum) -> None:
    first, second = quorum.nodes.values()
    wanted = [f"{number:06d}".ljust(VALUE_BYTES, ".") for number in range(RECORDS)]
    join_by_snapshot(quorum, wanted[:-20])
    asyncio.run(append(first.address, wanted[-20:]))
    quorum.transfer(2)
    assert asyncio.run(read(second.address)) == wanted
    assert "receiving snapshot" in second.said()

    # It reads the same from its own disk.
    assert second.stop() == 0
    second.start()
    own = partial(read, second.address, linearizable=False)
    until("it knows what is committed", lambda: asyncio.run(own()) == wanted)
    for node in (first, second):
        assert node.stop() == 0
        assert_clean(node.said())


async def append(address: str, values: list[str]) -> None:
    async with QuorumClient([address]) as client:
        for value in values:
            await client.append_value(value.encode())


async def read(address: str, *, linearizable: bool = True) -> list[str]:
    """All values: from the leader, or what the node at that address takes for committed."""
    async with QuorumClient([address]) as client:
        return [
            bytes(record.value or b"").decode()
            async for record in client.read(0, linearizable=linearizable)
            if record.key is not None
        ]
