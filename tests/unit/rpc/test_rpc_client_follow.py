"""Reads that follow the log through the client library: what they survive, and what ends them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from typing import Any

import pytest
from quorate.common.error_codes import ErrorCode
from quorate.raft.messages import CurrentLeader
from quorate.raft.types import OffsetAndEpoch
from quorate.records.batch import Record
from quorate.rpc.client import following
from quorate.rpc.client.following import StreamBackoff
from quorate.rpc.client.quorum_client import (
    AdminError,
    NoLeaderError,
    OffsetCompactedError,
    QuorumClient,
    UnreachableError,
)
from quorate.rpc.server.grpc_server import start_server
from quorate.rpc.server.handler import SharedChunk, WatchStream
from quorate.rpc.wire.values import ReadChunk, ReadRequest

from tests.processes import free_ports
from tests.unit.rpc.rpc_support import HOST, NO_HANG_S, Node, Pair, address_of, serving


async def take(records: AsyncIterator[Record], count: int) -> list[int]:
    async with asyncio.timeout(NO_HANG_S):
        return [(await anext(records)).offset or 0 for _ in range(count)]


class Ending(Node):
    """A node whose streams end with these chunks, one for each stream, after what is stored.

    taken: set by the test once its client has what is stored. None ends before: cancelled during a
    write, gRPC would end the call without the rest and without the chunk.
    """

    def __init__(self, id: int = 1, endings: tuple[ReadChunk | None, ...] = ()) -> None:  # noqa: A002
        super().__init__(id=id)
        self.endings = list(endings)
        self.begins: list[int] = []
        self.taken = asyncio.Event()

    async def follow(self, request: ReadRequest, stream: WatchStream) -> None:
        self.begins.append(request.from_offset)
        if not self.endings:
            await super().follow(request, stream)
        ending = self.endings.pop(0)
        follows = asyncio.create_task(super().follow(request, stream))
        await self.taken.wait()
        await asyncio.sleep(0.05)
        follows.cancel()
        await asyncio.gather(follows, return_exceptions=True)
        if ending is not None:
            await stream.send(SharedChunk(ending))


def ending(error: ErrorCode, **fields: Any) -> ReadChunk:
    return ReadChunk(error, Node().leader, last=True, **fields)


STOPPING = ending(ErrorCode.NOT_LEADER_OR_FOLLOWER, message="stopping")


@pytest.mark.parametrize(
    "endings",
    [
        (None, None),
        (STOPPING, STOPPING),
        (ending(ErrorCode.KAFKA_STORAGE_ERROR), ending(ErrorCode.THROTTLING_QUOTA_EXCEEDED)),
    ],
    ids=["broken", "stopping", "failing"],
)
async def test_a_read_continues_where_its_stream_ended(
    endings: tuple[ReadChunk | None, ...],
) -> None:
    node = Ending(endings=endings)
    for number in range(5):
        node.store([(b"", b"%d" % number), (b"", b"")])
    async with serving(node) as server, QuorumClient([address_of(server)]) as client:
        async with aclosing(client.read(3, follow=True)) as records:
            assert await take(records, 7) == list(range(3, 10))
            node.taken.set()
            while node.endings:
                pending = asyncio.create_task(take(records, 1))
                await asyncio.sleep(0.2)
                node.store([(b"", b"more")])
                await pending
            node.store([(b"", b"last")])
            assert await take(records, 1) == [node.end_offset - 1]
        assert node.begins[0] == 3
        assert min(node.begins[1:]) >= 10


async def test_a_read_continues_at_the_leader_that_a_node_has_named(pair: Pair) -> None:
    """It has fewer records than the client has seen: they are not returned again."""
    first, second = pair.nodes
    for node, count in ((first, 4), (second, 2)):
        for number in range(count):
            node.store([(b"", b"%d" % number)])
    async with (
        QuorumClient(pair.addresses[:1]) as client,
        aclosing(client.read(follow=True)) as records,
    ):
        assert await take(records, 4) == [0, 1, 2, 3]
        await pair.servers[0].stop(0)
        pending = asyncio.create_task(take(records, 2))
        for number in range(2, 6):
            await asyncio.sleep(0.05)
            second.store([(b"", b"%d" % number)])
        assert await pending == [4, 5]


async def test_watchers_spread_over_the_nodes(pair: Pair) -> None:
    async with AsyncExitStack() as stack:
        for node in pair.nodes:
            node.store([(b"", b"value")])
        for _ in range(24):
            client = await stack.enter_async_context(QuorumClient(pair.addresses))
            records = await stack.enter_async_context(aclosing(client.read(follow=True)))
            await take(records, 1)
        assert all(len(node.asked) > 2 for node in pair.nodes)


async def test_a_linearizable_read_goes_to_the_leader_and_moves_with_it(pair: Pair) -> None:
    for node in pair.nodes:
        node.store([(b"", b"value")])
    async with (
        QuorumClient(pair.addresses) as client,
        aclosing(client.read(follow=True, linearizable=True)) as records,
    ):
        assert await take(records, 1) == [0]
        pair.lead(0, 4)
        await pair.servers[1].stop(0)
        pair.nodes[0].store([(b"", b"next")])
        assert await take(records, 1) == [1]


async def test_an_offset_that_one_node_has_is_read_there(pair: Pair) -> None:
    for node in pair.nodes:
        node.store([(b"", b"value")])
    gone = ending(
        ErrorCode.OFFSET_OUT_OF_RANGE, snapshot=OffsetAndEpoch(90, 2), log_start_offset=70
    )
    pair.nodes[0].chunks = [gone]
    async with QuorumClient(pair.addresses) as client:
        async with aclosing(client.read(follow=True)) as records:
            assert await take(records, 1) == [0]
        pair.nodes[1].chunks = [replace(gone, log_start_offset=50, snapshot=OffsetAndEpoch(60, 1))]
        with pytest.raises(OffsetCompactedError, match="offset 7 was compacted away") as caught:
            await anext(client.read(7, follow=True))
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert (caught.value.snapshot, caught.value.log_start_offset) == (OffsetAndEpoch(60, 1), 50)


class Earlier(Node):
    """A node of an earlier version: it does not know `follow`, and ends where its log ends."""

    async def follow(self, request: ReadRequest, stream: WatchStream) -> None:
        async def nothing() -> None:
            return None

        async for chunk in self.read(request, nothing):
            await stream.send(SharedChunk(chunk))


async def test_nodes_of_earlier_versions_are_read_again_and_again() -> None:
    node = Earlier()
    node.store([(b"", b"0"), (b"", b"1")])
    async with serving(node) as server, QuorumClient([address_of(server)]) as client:
        async with aclosing(client.read(follow=True)) as records:
            assert await take(records, 2) == [0, 1]
            pending = asyncio.create_task(take(records, 2))
            node.store([(b"", b"2"), (b"", b"3")])
            assert await pending == [2, 3]
        node.chunks = [
            ReadChunk(
                ErrorCode.NONE, node.leader, snapshot=OffsetAndEpoch(9, 1), log_start_offset=9
            )
        ]
        with pytest.raises(OffsetCompactedError, match="snapshot 9@1"):
            await anext(client.read(follow=True))


@pytest.mark.parametrize(
    "error", [ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_REQUEST]
)
async def test_errors_that_no_other_node_avoids_are_raised(error: ErrorCode) -> None:
    node = Ending(endings=(ending(error, message="no"),))
    node.store([(b"", b"value")])
    async with serving(node) as server, QuorumClient([address_of(server)]) as client:
        records = client.read(follow=True)
        assert await take(records, 1) == [0]
        node.taken.set()
        with pytest.raises(AdminError, match=f"{error.name}: no"):
            await take(records, 1)


async def test_the_first_stream_must_open_in_time() -> None:
    busy = Node(chunks=[ending(ErrorCode.THROTTLING_QUOTA_EXCEEDED, message="4096 watchers")])
    async with (
        serving(Node(leader=CurrentLeader(3))) as leaderless,
        serving(busy) as throttling,
        QuorumClient([address_of(leaderless)]) as first,
        QuorumClient([address_of(throttling)]) as second,
        QuorumClient(["127.0.0.1:1"]) as third,
    ):
        reads = (
            first.read(follow=True, linearizable=True, timeout_ms=2_000),
            second.read(follow=True, timeout_ms=2_000),
            third.read(follow=True, timeout_ms=300),
        )
        errors = await asyncio.gather(*map(anext, reads), return_exceptions=True)
    assert [type(error) for error in errors] == [NoLeaderError, AdminError, UnreachableError]
    assert "THROTTLING_QUOTA_EXCEEDED: 4096 watchers" in str(errors[1])


async def test_errors_of_nodes_are_kept_if_the_time_ends_in_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def late(_: StreamBackoff) -> float:
        asyncio.get_running_loop().call_soon(time.sleep, 0.6)
        return 0.05

    monkeypatch.setattr(StreamBackoff, "next_s", late)
    node = Node(leader=CurrentLeader(3))
    async with serving(node) as server, QuorumClient([address_of(server)]) as client:
        with pytest.raises(NoLeaderError, match="NOT_LEADER_OR_FOLLOWER"):
            await anext(client.read(follow=True, linearizable=True, timeout_ms=500))


async def test_an_outage_of_all_nodes_is_survived() -> None:
    node = Node()
    node.store([(b"", b"0")])
    server = await start_server([f"{HOST}:{free_ports(1)[0]}"], node)
    async with (
        QuorumClient([address_of(server)]) as client,
        aclosing(client.read(follow=True, timeout_ms=500)) as records,
    ):
        assert await take(records, 1) == [0]
        pending = asyncio.create_task(take(records, 1))
        await server.stop(0)
        await asyncio.sleep(1.0)
        node.store([(b"", b"1")])
        async with serving(node, port=server.ports[0]):
            assert await pending == [1]


async def test_a_closed_client_ends_its_reads() -> None:
    node = Node()
    node.store([(b"", b"0")])
    async with serving(node) as server:
        client = QuorumClient([address_of(server)])
        records = client.read(follow=True)
        assert await take(records, 1) == [0]
        pending = asyncio.create_task(take(records, 1))
        await asyncio.sleep(0.05)
        await client.close()
        with pytest.raises(UnreachableError, match="the client is closed"):
            await pending


async def test_a_silent_node_is_left(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "SILENCE_S", 0.2)
    for node in pair.nodes:
        node.store([(b"", b"value")])
    async with (
        QuorumClient(pair.addresses) as client,
        aclosing(client.read(follow=True)) as records,
    ):
        assert await take(records, 1) == [0]
        pending = asyncio.create_task(take(records, 1))
        async with asyncio.timeout(NO_HANG_S):
            while not all(node.asked for node in pair.nodes):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        pending.cancel()
        await asyncio.gather(pending, return_exceptions=True)
