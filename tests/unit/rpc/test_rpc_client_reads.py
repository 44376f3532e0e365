"""Reads through the client library: where they begin, what they survive, what ends them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from quorate.common.error_codes import ErrorCode
from quorate.raft.messages import CurrentLeader
from quorate.raft.types import OffsetAndEpoch
from quorate.records.batch import build_data_batch, keep_base_offset, stamp
from quorate.rpc.client.quorum_client import AdminError, QuorumClient, ReadBrokenError
from quorate.rpc.wire.values import ReadChunk, ReadRequest

from tests.unit.rpc.rpc_support import NO_HANG_S, Node, Pair, address_of, serving


async def values_of(
    client: QuorumClient, *args: Any, **options: Any
) -> list[tuple[int | None, bytes]]:
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

    async def read(
        self, request: ReadRequest, before: Callable[[], Awaitable[None]]
    ) -> AsyncIterator[ReadChunk]:
        left = self.breaks.pop(0) if self.breaks else 1 << 30
        async for chunk in super().read(request, before):
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
        assert await values_of(client, 5) == [(None, b"state"), (100, b"next")]


async def test_a_read_that_breaks_behind_records_without_offsets_is_an_error() -> None:
    node = Breaking([1])
    node.chunks = snapshot_chunks(node.leader)
    async with serving(node) as server, QuorumClient([address_of(server)]) as client:
        with pytest.raises(ReadBrokenError, match="within a snapshot, after records without"):
            await values_of(client)


KEYED, METADATA = b"", None
SNAPSHOT = OffsetAndEpoch(100, 2)


def piece(leader: CurrentLeader, place: int, base: int | None, *values: bytes) -> ReadChunk:
    """A batch of a snapshot at the offset `place` in its file, at `base` in the log."""
    batch = build_data_batch([(KEYED, value) for value in values], 1)
    if base is not None:
        keep_base_offset(batch, base)
    stamp(batch, place, SNAPSHOT.epoch)
    return ReadChunk(ErrorCode.NONE, leader, snapshot=SNAPSHOT, records=batch)


def image(leader: CurrentLeader) -> ReadChunk:
    batch = build_data_batch([(METADATA, b"image")], 1)
    stamp(batch, 3, SNAPSHOT.epoch)
    return ReadChunk(ErrorCode.NONE, leader, snapshot=SNAPSHOT, records=batch)


def log_piece(leader: CurrentLeader, base: int, key: bytes | None, value: bytes) -> ReadChunk:
    batch = build_data_batch([(key, value)], 1)
    stamp(batch, base, 3)
    return ReadChunk(ErrorCode.NONE, leader, records=batch)


def end(leader: CurrentLeader) -> ReadChunk:
    return ReadChunk(ErrorCode.NONE, leader, last=True)


def known_chunks(leader: CurrentLeader) -> list[ReadChunk]:
    return [
        piece(leader, 3, 7, b"7", b"8"),
        piece(leader, 5, 40, b"40", b"41", b"42"),
        log_piece(leader, 100, KEYED, b"100"),
        end(leader),
    ]


KNOWN = [(o, b"%d" % o) for o in (7, 8, 40, 41, 42, 100)]


@pytest.mark.parametrize("begin", [0, 7, 8, 9, 40, 42, 43, 99, 100, 101])
async def test_records_of_a_snapshot_have_the_offsets_of_the_log(pair: Pair, begin: int) -> None:
    leader = pair.nodes[1]
    leader.chunks = [image(leader.leader), *known_chunks(leader.leader)]
    wanted = [(None, b"image"), *(each for each in KNOWN if each[0] >= begin)]
    async with QuorumClient(pair.addresses) as client:
        assert await values_of(client, begin) == wanted
        assert await values_of(client, begin, max_records=3) == wanted[:3]


@pytest.mark.parametrize("breaks", [[1], [2], [1, 2], [3], [2, 0, 1, 3]])
async def test_a_read_goes_on_within_a_snapshot(breaks: list[int]) -> None:
    node = Breaking(breaks)
    node.chunks = known_chunks(node.leader)
    async with serving(node) as server, QuorumClient([address_of(server)]) as client:
        assert await values_of(client) == KNOWN
        assert not node.breaks


async def test_records_that_may_come_again_end_a_read_that_was_opened_again() -> None:
    node = Breaking([1])
    node.chunks = [
        piece(node.leader, 3, 7, b"7"),
        piece(node.leader, 4, None, b"written by an earlier version"),
        end(node.leader),
    ]
    async with serving(node) as server, QuorumClient([address_of(server)]) as client:
        with pytest.raises(ReadBrokenError, match="read again from offset 8"):
            await values_of(client)
        assert [o for o, _ in await values_of(client)] == [7, None]


@pytest.mark.parametrize("key", [KEYED, METADATA], ids=["application", "metadata"])
async def test_a_state_of_the_metadata_comes_before_all_metadata(key: bytes | None) -> None:
    node = Breaking([1])
    first = log_piece(node.leader, 5, key, b"5")
    node.chunks = [first, image(node.leader), piece(node.leader, 4, 7, b"7"), end(node.leader)]
    async with serving(node) as server, QuorumClient([address_of(server)]) as client:
        if key is METADATA:
            with pytest.raises(ReadBrokenError, match="read again from offset 6"):
                await values_of(client)
        else:
            assert await values_of(client) == [(5, b"5"), (None, b"image"), (7, b"7")]


async def test_a_read_without_metadata_goes_on_after_all_metadata() -> None:
    node = Breaking([2, 1, 1])
    node.chunks = [
        log_piece(node.leader, 5, METADATA, b"5"),
        log_piece(node.leader, 6, KEYED, b"6"),
        image(node.leader),
        piece(node.leader, 4, 7, b"7"),
        end(node.leader),
    ]
    async with serving(node) as server, QuorumClient([address_of(server)]) as client:
        assert await values_of(client, metadata=False) == [(6, b"6"), (7, b"7")]
        assert not node.breaks
        assert await values_of(client, metadata=False, max_records=1) == [(6, b"6")]


class Moving(Node):
    """A node whose log's start passes its read streams, once after each list of chunks."""

    def __init__(self) -> None:
        super().__init__()
        self.streams: list[list[ReadChunk]] = []

    async def read(
        self, request: ReadRequest, before: Callable[[], Awaitable[None]]
    ) -> AsyncIterator[ReadChunk]:
        for chunk in self.streams.pop(0):
            yield chunk


async def test_a_read_goes_on_when_the_start_of_the_log_passes_it() -> None:
    node = Moving()
    leader = node.leader
    moved = ReadChunk(ErrorCode.OFFSET_OUT_OF_RANGE, leader, last=True, message="moved")
    again = known_chunks(leader)
    node.streams = [[log_piece(leader, 7, KEYED, b"7"), moved], [again[1], moved], again]
    async with serving(node) as server, QuorumClient([address_of(server)]) as client:
        assert await values_of(client) == [each for each in KNOWN if each[0] != 8]
        node.streams = [[image(leader), moved]]
        with pytest.raises(AdminError, match="moved"):
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
