"""Reads through the client library: where they begin, what they survive, what ends them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from quorate.raft.errors import ErrorCode
from quorate.raft.messages import CurrentLeader
from quorate.raft.types import OffsetAndEpoch
from quorate.records.batch import build_data_batch, stamp
from quorate.rpc.client import AdminError, QuorumClient, ReadBrokenError
from quorate.rpc.values import ReadChunk, ReadRequest

from tests.unit.rpc.rpc_support import NO_HANG_S, Node, Pair, address_of, serving


async def values_of(client: QuorumClient, *args: Any, **options: Any) -> list[tuple[int, bytes]]:
    return [(record.offset, record.value or b"") async for record in client.read(*args, **options)]


async def test_what_is_written_is_read_in_order_from_any_offset(pair: Pair) -> None:
    async with QuorumClient(pair.addresses) as client:
        for number in range(4):
            await client.append([(b"", b"%d" % number), (b"", b"%d'" % number)])
        everything = await values_of(client)
        assert everything[:3] == [(0, b"0"), (1, b"0'"), (2, b"1")]
        assert len(everything) == 8
        assert await values_of(client, 3) == everything[3:]
        assert await values_of(client, 3, max_records=2) == everything[3:5]
        assert await values_of(client, max_records=0) == []
        assert await values_of(client, 8) == []


async def test_a_read_that_need_not_be_linearizable_is_served_by_any_node(pair: Pair) -> None:
    pair.lead(None, 4)
    pair.nodes[0].store([(b"", b"here")])
    async with QuorumClient(pair.addresses[:1]) as client:
        assert await values_of(client, linearizable=False) == [(0, b"here")]


async def test_a_refused_read_is_an_error(pair: Pair) -> None:
    leader = pair.nodes[1].leader
    pair.nodes[1].chunks = [
        ReadChunk(ErrorCode.OFFSET_OUT_OF_RANGE, leader, last=True, message="the log ends at 0")
    ]
    async with QuorumClient(pair.addresses) as client:
        with pytest.raises(AdminError, match="the log ends at 0"):
            await values_of(client, 99)


class Breaking(Node):
    """A node whose read streams end without a last chunk after as many chunks as `breaks` says."""

    def __init__(self, breaks: list[int]) -> None:
        super().__init__()
        self.breaks = breaks

    async def read(self, request: ReadRequest) -> AsyncIterator[ReadChunk]:
        left = self.breaks.pop(0) if self.breaks else 1 << 30
        async for chunk in super().read(request):
            if left == 0:
                return
            left -= 1
            yield chunk


async def test_a_read_goes_on_where_its_stream_broke() -> None:
    node = Breaking([2, 1, 0, 2])
    for number in range(8):
        node.store([(b"", b"%d" % number), (b"", b"")])
    async with serving(node) as server, QuorumClient([address_of(server)]) as client:
        offsets = [offset for offset, _ in await values_of(client)]
        assert offsets == list(range(16))
        node.breaks = [1, 1]
        assert [o for o, _ in await values_of(client, 1, max_records=7)] == list(range(1, 8))


def snapshot_chunks(leader: CurrentLeader) -> list[ReadChunk]:
    snapshot = OffsetAndEpoch(100, 2)
    inside, after = build_data_batch([(b"", b"state")], 1), build_data_batch([(b"", b"next")], 1)
    stamp(after, 100, 3)
    return [
        ReadChunk(ErrorCode.NONE, leader, snapshot=snapshot, records=inside),
        ReadChunk(ErrorCode.NONE, leader, records=after),
        ReadChunk(ErrorCode.NONE, leader, last=True),
    ]


async def test_a_snapshot_comes_before_the_log(pair: Pair) -> None:
    pair.nodes[1].chunks = snapshot_chunks(pair.nodes[1].leader)
    async with QuorumClient(pair.addresses) as client:
        assert await values_of(client, 5) == [(0, b"state"), (100, b"next")]


async def test_a_read_that_breaks_within_a_snapshot_is_an_error() -> None:
    node = Breaking([1])
    node.chunks = snapshot_chunks(node.leader)
    async with serving(node) as server, QuorumClient([address_of(server)]) as client:
        with pytest.raises(ReadBrokenError, match="within a snapshot"):
            await values_of(client)


async def test_a_read_whose_time_is_up_says_so() -> None:
    async with (
        serving(Node(delay_s=NO_HANG_S)) as server,
        QuorumClient([address_of(server)]) as client,
    ):
        with pytest.raises(AdminError, match="REQUEST_TIMED_OUT: no answer within 300 ms"):
            await anext(client.read(0, timeout_ms=300))


@pytest.mark.parametrize(
    "spoil",
    [lambda batch: batch[:-1], lambda batch: batch[:-2] + b"??"],
    ids=["cut off", "flipped"],
)
async def test_bytes_that_are_no_records_are_an_error(
    pair: Pair, spoil: Callable[[bytes], bytes]
) -> None:
    leader = pair.nodes[1]
    records = spoil(bytes(build_data_batch([(b"", b"value")], 1)))
    leader.chunks = [ReadChunk(ErrorCode.NONE, leader.leader, records=records, last=True)]
    async with QuorumClient(pair.addresses) as client:
        with pytest.raises(ReadBrokenError):
            await values_of(client)
