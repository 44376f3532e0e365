"""The offsets that `append` returned, read back from snapshots at every node, from anywhere."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from quorate.rpc.client.quorum_client import QuorumClient

from tests.integration.support import PARTITION, Node, Quorum, assert_clean, succeed, until

VALUE_BYTES = 100
SMALL = {
    "internal.metadata.log.segment.bytes": 8 * 1024,
    "metadata.log.max.record.bytes.between.snapshots": 16 * 1024,
    "metadata.log.max.snapshot.interval.ms": 1_000,
    "metadata.max.retention.bytes": 8 * 1024,
}

Appended = list[tuple[int, bytes]]


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[Quorum]:
    quorum = Quorum(tmp_path, (1, 2, 3), **SMALL)
    try:
        quorum.form()
        yield quorum
    finally:
        quorum.kill()


async def append(addresses: str, count: int, appended: Appended) -> None:
    """Batches of several sizes; each record with its offset goes to `appended`."""
    async with QuorumClient(addresses.split(",")) as client:
        begin = len(appended)
        while len(appended) < begin + count:
            size = 1 + len(appended) % 3
            values = [
                b"%06d".ljust(VALUE_BYTES, b".") % number
                for number in range(len(appended), len(appended) + size)
            ]
            result = await client.append([(b"", value) for value in values])
            appended += enumerate(values, result.base_offset)


async def read(
    address: str, begin: int = 0, *, linearizable: bool = False
) -> list[tuple[int | None, bytes]]:
    async with QuorumClient([address]) as client:
        return [
            (record.offset, bytes(record.value or b""))
            async for record in client.read(begin, linearizable=linearizable)
            if record.key is not None
        ]


def is_cleaned(node: Node) -> bool:
    """Whether the first segment is gone, and with it the log's beginning."""
    partition = node.data / PARTITION
    return partition.exists() and not (partition / f"{0:020}.log").exists()


def check(node: Node, appended: Appended) -> None:
    """The node has every record at its offset, and goes on behind any of them."""
    until(f"{node.id} has everything", lambda: asyncio.run(read(node.address)) == appended)
    rng = random.Random(len(appended))
    for at in {0, 1, len(appended) - 2, *(rng.randrange(len(appended)) for _ in range(6))}:
        after = asyncio.run(read(node.address, appended[at][0] + 1))
        assert after == appended[at + 1 :], (node.id, appended[at][0])


def test_records_keep_their_offsets_in_snapshots(quorum: Quorum) -> None:
    appended: Appended = []
    asyncio.run(append(quorum.addresses, 300, appended))
    for node in quorum.nodes.values():
        until(f"{node.id} has cleaned its log", lambda node=node: is_cleaned(node))
    # Snapshots of snapshots, across a leader's change.
    quorum.transfer(2)
    asyncio.run(append(quorum.addresses, 300, appended))
    assert asyncio.run(read(quorum.addresses.split(",")[1], linearizable=True)) == appended
    for node in quorum.nodes.values():
        check(node, appended)

    # A voter whose disk is replaced gets the snapshot of another.
    lost = quorum.nodes[3]
    old = lost.key
    lost.kill()
    lost.lose_disk()
    lost.format("--no-initial-controllers")
    lost.start()
    lost.wait_said("installed snapshot")
    succeed(*quorum.ask, "remove-controller", "-i", 3, "-d", old.split("-", 1)[1])
    succeed(*quorum.ask, "add-controller", "-c", lost.properties)
    quorum.until_voters(1, 2, 3)
    asyncio.run(append(quorum.addresses, 60, appended))
    check(lost, appended)

    for node in quorum.nodes.values():
        assert node.stop() == 0
        assert_clean(node.said())
        node.start()
    for node in quorum.nodes.values():
        check(node, appended)
