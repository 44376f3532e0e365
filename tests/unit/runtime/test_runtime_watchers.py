"""Reads that follow the log, from the replica to a client over gRPC."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from quorate.common.error_codes import ErrorCode
from quorate.log.config import LogConfig
from quorate.raft.types import OffsetAndEpoch
from quorate.records.batch import Record
from quorate.rpc.client.quorum_client import AdminError, OffsetCompactedError, QuorumClient
from quorate.rpc.server.handler import SharedChunk
from quorate.rpc.server.response_memory import SMALL_BYTES, ResponseMemory
from quorate.rpc.wire.limits import ServerLimits
from quorate.rpc.wire.values import ReadChunk, ReadRequest
from quorate.runtime import watchers
from quorate.runtime.watchers import WatchHub, WatchLimits

from tests.unit.runtime.replicas import SOON_S, alone, leader_of, trio, until
from tests.unit.runtime.watch_support import Served, served, service_of

SMALL_SEGMENTS = LogConfig(
    segment_bytes_max=300, tail_cache_bytes=0, preallocate_bytes=0, retention_bytes=1
)
FILES = LogConfig(tail_cache_bytes=0)


class Sink:
    """A `WatchStream` that keeps what it gets; `go` lets it take the next response.

    order: shared by several, the next offset of each response with records.
    """

    def __init__(self, peer: str = "ipv4:127.0.0.1:1", *, order: list[int] | None = None) -> None:
        self.order = [] if order is None else order
        self.peer = peer
        self.address = peer.rpartition(":")[0]
        self.writing_since_s: float | None = None
        self.chunks: list[ReadChunk] = []
        self.shared: list[SharedChunk] = []
        self.go = asyncio.Event()
        self.go.set()
        self.aborted = ""

    def try_reserve(self, size: int) -> bool:
        return True

    async def reserve(self, size: int) -> None:
        return None

    async def send(self, shared: SharedChunk) -> int:
        self.writing_since_s = asyncio.get_running_loop().time()
        await self.go.wait()
        self.writing_since_s = None
        self.shared.append(shared)
        self.chunks.append(shared.chunk)
        if shared.chunk.records:
            self.order.append(shared.chunk.next_offset)
        return len(shared.chunk.records)

    def abort(self, reason: str) -> None:
        self.aborted = reason
        self.go.set()

    @property
    def records_sent(self) -> list[SharedChunk]:
        return [each for each in self.shared if each.chunk.records]


class BoundedSink(Sink):
    """One whose large chunks need room, and that keeps only their offsets."""

    def __init__(self, memory: ResponseMemory, peer: str) -> None:
        super().__init__(peer)
        self.taken: list[int] = []
        self.is_busy = False
        self._held = memory.hold(peer)

    def try_reserve(self, size: int) -> bool:
        return self._held.try_reserve(size)

    async def reserve(self, size: int) -> None:
        await self._held.reserve(size)

    async def send(self, shared: SharedChunk) -> int:
        size = len(shared.chunk.records)
        assert size <= max(self._held.size, SMALL_BYTES)
        await self._held.settle(size)
        if size:
            self.is_busy = True
            await self.go.wait()
            self.is_busy = False
            self.go.clear()
        self._held.release()
        self.taken.append(shared.chunk.next_offset)
        return size


def follow(offset: int = 0, **fields: Any) -> ReadRequest:
    return ReadRequest(offset, follow=True, **{"linearizable": False, **fields})


async def take(records: AsyncIterator[Record], count: int) -> list[tuple[int | None, bytes]]:
    async with asyncio.timeout(SOON_S):
        return [
            (record.offset, record.value or b"")
            for record in [await anext(records) for _ in range(count)]
        ]


async def append(client: QuorumClient, first: int, count: int) -> list[tuple[int, bytes]]:
    """Append numbered records, each a batch; returns (offset, value) of each."""
    values = [b"%d" % number for number in range(first, first + count)]
    return [(await client.append_value(value), value) for value in values]


@pytest.mark.parametrize("config", [None, FILES], ids=["from memory", "from files"])
@pytest.mark.parametrize("linearizable", [False, True])
async def test_history_comes_first_and_then_what_commits(
    tmp_path: Path, config: LogConfig | None, linearizable: bool
) -> None:
    async with served(tmp_path / "a", log_config=config) as node, node.client() as client:
        before = await append(client, 0, 5)
        async with aclosing(client.read(follow=True, linearizable=linearizable)) as records:
            assert await take(records, 5) == before
            after = await append(client, 5, 5)
            assert await take(records, 5) == after
            async with aclosing(client.read(after[2][0], follow=True)) as others:
                assert await take(others, 3) == after[2:]
            assert node.hub.count >= 1
        await until("the watchers are gone", lambda: node.hub.count == 0)
        assert node.hub.sent_bytes > 0


async def test_a_read_from_within_a_batch_begins_there(tmp_path: Path) -> None:
    async with served(tmp_path / "a") as node, node.client() as client:
        base = (await client.append([(b"", b"%d" % n) for n in range(6)])).base_offset
        async with aclosing(client.read(base + 4, follow=True)) as records:
            assert await take(records, 2) == [(base + 4, b"4"), (base + 5, b"5")]


async def test_a_read_ends_after_as_many_records_as_were_asked_for(tmp_path: Path) -> None:
    async with served(tmp_path / "a") as node, node.client() as client:
        records = client.read(follow=True, max_records=3)
        task = asyncio.create_task(take(records, 3))
        appended = await append(client, 0, 4)
        assert await task == appended[:3]
        with pytest.raises(StopAsyncIteration):
            await anext(records)
        await until("the watcher is gone", lambda: node.hub.count == 0)


async def test_records_that_are_not_committed_are_not_sent(tmp_path: Path) -> None:
    async with served(tmp_path / "a") as node:
        replica, sink = node.replica, Sink()
        begin = replica.log.end_offset
        watching = asyncio.create_task(node.hub.serve(follow(begin), sink))
        await until("it waits", lambda: sink.chunks)
        replica.disk.go.clear()
        appended = asyncio.create_task(replica.append())
        await until("it is in the log", lambda: replica.log.end_offset == begin + 1)
        late = Sink("ipv4:10.0.0.1:1")
        others = asyncio.create_task(node.hub.serve(follow(begin), late))
        await asyncio.sleep(0.1)
        assert max(sent_to(sink), sent_to(late)) <= begin
        replica.disk.go.set()
        await appended
        await until("it is sent", lambda: sent_to(sink) == sent_to(late) == begin + 1)
        for task in (watching, others):
            task.cancel()


async def test_an_offset_that_is_not_known_yet_is_awaited(tmp_path: Path) -> None:
    async with served(tmp_path / "a") as node, node.client() as client:
        begin = node.replica.log.end_offset + 3
        task = asyncio.create_task(take(client.read(begin, follow=True), 2))
        await until("it waits", lambda: node.hub.count == 1)
        appended = await append(client, 0, 5)
        assert await task == appended[3:]


async def test_an_offset_that_was_compacted_away_is_an_error(tmp_path: Path) -> None:
    async with served(tmp_path / "a", log_config=SMALL_SEGMENTS) as node, node.client() as client:
        appended = await append(client, 0, 40)
        await node.replica.snapshotter.write()
        start = node.replica.log.start_offset
        assert start > 20
        with pytest.raises(OffsetCompactedError, match="offset 3 was compacted away") as caught:
            await take(client.read(3, follow=True), 1)
        error = caught.value
        assert isinstance(error.snapshot, OffsetAndEpoch)
        assert error.snapshot.offset >= error.log_start_offset == start
        # How an application continues: the snapshot, then the log.
        state = [(record.offset, record.value) async for record in client.read(3)]
        assert state == [each for each in appended if each[0] >= 3]
        more = await append(client, 40, 1)
        async with aclosing(client.read((state[-1][0] or 0) + 1, follow=True)) as records:
            assert await take(records, 1) == more


async def test_watchers_at_one_position_share_each_response(tmp_path: Path) -> None:
    async with served(tmp_path / "a", keepalive_s=600.0) as node:
        sinks = [Sink(f"ipv4:10.0.0.1:{port}") for port in range(50)]
        end = node.replica.log.end_offset
        tasks = [asyncio.create_task(node.hub.serve(follow(end), sink)) for sink in sinks]
        await until("all wait", lambda: all(sink.chunks for sink in sinks))
        for _ in range(3):
            await node.replica.commit()
        await until("all have it", lambda: all(sent_to(sink) == end + 3 for sink in sinks))
        chunks = {id(each) for sink in sinks for each in sink.records_sent}
        assert len(chunks) <= 6, "two for each commit, if it comes in the middle of a round"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert node.hub.count == 0


def sent_to(sink: Sink) -> int:
    return max((chunk.next_offset for chunk in sink.chunks), default=-1)


async def test_a_slow_watcher_delays_nobody_and_holds_one_chunk(tmp_path: Path) -> None:
    async with served(tmp_path / "a") as node:
        slow, quick = Sink("ipv4:10.0.0.1:1"), Sink("ipv4:10.0.0.2:1")
        begin = node.replica.log.end_offset
        tasks = [asyncio.create_task(node.hub.serve(follow(begin), each)) for each in (slow, quick)]
        await until("both wait", lambda: slow.chunks and quick.chunks)
        slow.go.clear()
        for _ in range(100):
            end = await node.replica.commit(size=1_000) + 1
        await until("the quick one has all", lambda: sent_to(quick) == end)
        assert len(slow.chunks) == 1, "it took its first, empty chunk only"
        slow.go.set()
        await until("the slow one has all", lambda: sent_to(slow) == end)
        # It gets what it missed in chunks of the usual size, not one for each commit.
        assert len(slow.records_sent) < 15
        sizes = [len(each.chunk.records) for each in slow.records_sent]
        assert max(sizes) <= watchers.CHUNK_BYTES
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def busy(sinks: list[BoundedSink]) -> list[BoundedSink]:
    """Those that are being sent a chunk."""
    return [sink for sink in sinks if sink.is_busy]


def large_chunks() -> int:
    """How many chunks of more than `SMALL_BYTES` are in memory."""
    return sum(
        isinstance(each, SharedChunk) and len(each.chunk.records) > SMALL_BYTES
        for each in gc.get_objects()
    )


@pytest.mark.slow
@pytest.mark.parametrize("config", [None, FILES], ids=["from memory", "from files"])
async def test_a_watcher_that_waits_holds_no_large_chunk(
    tmp_path: Path, config: LogConfig | None
) -> None:
    """Watchers that do not read in step share no chunk: each would have one of its own."""
    size = 2 * SMALL_BYTES
    gc.collect()
    async with served(tmp_path / "a", keepalive_s=600.0, log_config=config) as node:
        memory = ResponseMemory(5 * size // 2)  # two chunks
        memory.end = lambda _peer, _reason: None
        sinks = [BoundedSink(memory, f"ipv4:10.0.0.1:{port}") for port in range(20)]
        begin = node.replica.log.end_offset
        tasks = [asyncio.create_task(node.hub.serve(follow(begin), sink)) for sink in sinks]
        await until("all wait", lambda: all(sink.taken for sink in sinks))
        for sink in sinks:
            sink.go.clear()
        ends = [await node.replica.commit(size=size) + 1 for _ in range(3)]
        while waiting := [sink for sink in sinks if sink.taken[-1] < ends[-1]]:
            most = min(2, len(waiting))
            await until("as many as fit are served", lambda n=most: len(busy(sinks)) == n)
            assert large_chunks() <= 3
            taken = busy(sinks)[0]
            taken.go.set()
            await until("it has the chunk", lambda sink=taken: not sink.go.is_set())
        assert all(sink.taken == [begin, *ends] for sink in sinks)
        await until("all room is free", lambda: memory.bytes == 0)
        await until("only the dispatcher's last is left", lambda: large_chunks() <= 1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_commits_are_not_delayed_by_one_round_of_many_watchers(tmp_path: Path) -> None:
    """Between two slices of a round, the event loop runs whatever else is ready."""
    async with served(tmp_path / "a") as node:
        sinks = [Sink(f"ipv4:10.0.0.1:{port}") for port in range(400)]
        end = node.replica.log.end_offset
        tasks = [asyncio.create_task(node.hub.serve(follow(end), sink)) for sink in sinks]
        await until("all wait", lambda: all(sink.chunks for sink in sinks))
        turns = 0
        served_before: list[int] = []

        async def other_work() -> None:
            nonlocal turns
            while True:
                served_before.append(sum(sent_to(sink) > end for sink in sinks))
                turns += 1
                await asyncio.sleep(0)

        await node.replica.commit()
        other = asyncio.create_task(other_work())
        await until("all have it", lambda: all(sent_to(sink) > end for sink in sinks))
        other.cancel()
        steps = [b - a for a, b in itertools.pairwise(served_before)]
        assert max(steps) <= 2 * watchers.SLICE
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_history_and_tail_are_served_side_by_side(tmp_path: Path) -> None:
    async with served(tmp_path / "a", log_config=LogConfig(tail_cache_bytes=40_000)) as node:
        for _ in range(60):
            await node.replica.commit(size=20_000)
        end = node.replica.log.end_offset
        tail, readers = [Sink(f"ipv4:10.0.0.1:{n}") for n in range(30)], []
        tasks = [asyncio.create_task(node.hub.serve(follow(end), sink)) for sink in tail]
        await until("all wait", lambda: all(sink.chunks for sink in tail))
        for number in range(40):
            readers.append(Sink(f"ipv4:10.0.0.2:{number}"))
            tasks.append(asyncio.create_task(node.hub.serve(follow(0), readers[-1])))
        await until("some read", lambda: any(sent_to(sink) > 3 for sink in readers))
        await node.replica.commit()
        await until("the tail has it", lambda: all(sent_to(sink) == end + 1 for sink in tail))
        await until("all have it", lambda: all(sent_to(sink) == end + 1 for sink in readers))
        for sink in readers:
            offsets = [each.chunk.next_offset for each in sink.records_sent]
            assert offsets == sorted(set(offsets))
            assert sum(each.count for each in sink.records_sent) == 61
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_who_reads_history_gets_every_fourth_turn(tmp_path: Path) -> None:
    async with alone(tmp_path / "a", log_config=LogConfig(tail_cache_bytes=40_000)) as replica:
        for _ in range(30):
            await replica.commit(size=20_000)
        hub = WatchHub(replica.driver, lambda: replica.node.current_leader)
        order: list[int] = []
        tasks = []
        for begin in [0] * 40 + [replica.log.end_offset - 1] * 40:
            sink = Sink(order=order)
            tasks.append(asyncio.create_task(hub.serve(follow(begin), sink)))
        # All of them are ready before the first is served.
        await until("all are open", lambda: hub.sent_bytes == 0 and hub.count == 80)
        await until("all are ready", lambda: (len(hub._prepared), len(hub._ready)) == (40, 40))
        hub.start(replica.failures.append)
        await until("some are served", lambda: len(order) >= 50)
        from_history = sum(offset < replica.log.end_offset for offset in order[:40])
        assert 8 <= from_history <= 12
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await hub.stop()


async def test_an_idle_watcher_gets_empty_responses(tmp_path: Path) -> None:
    async with served(tmp_path / "a", keepalive_s=0.05, tick_s=0.01) as node:
        sink = Sink()
        task = asyncio.create_task(node.hub.serve(follow(0), sink))
        await until("some came", lambda: len(sink.chunks) > 4)
        last = sink.chunks[-1]
        # Its log has control batches only: the client learns that there is nothing before its end.
        assert (last.records, last.next_offset) == (b"", node.replica.node.high_watermark)
        task.cancel()


async def test_a_watcher_that_takes_nothing_is_ended(tmp_path: Path) -> None:
    async with served(tmp_path / "a", stalled_s=0.1, tick_s=0.02) as node:
        sink = Sink()
        sink.go.clear()
        task = asyncio.create_task(node.hub.serve(follow(0), sink))
        await until("it is ended", lambda: sink.aborted)
        assert "has not taken a response" in sink.aborted
        task.cancel()


async def test_watchers_are_limited(tmp_path: Path) -> None:
    async with served(tmp_path / "a", WatchLimits(4, 3, 2)) as node:
        tasks: list[asyncio.Task[None]] = []

        async def serve(peer: str) -> Sink:
            sink = Sink(peer)
            tasks.append(asyncio.create_task(node.hub.serve(follow(0), sink)))
            await until("it is answered", lambda: sink.chunks)
            return sink

        peers = ["ipv4:10.0.0.1:1", "ipv4:10.0.0.1:1", "ipv4:10.0.0.1:2", "ipv4:10.0.0.2:1"]
        for peer in peers[:2]:
            assert (await serve(peer)).chunks[0].error is ErrorCode.NONE
        refused = (await serve(peers[0])).chunks
        assert "this connection has 2" in refused[0].message
        assert (await serve(peers[2])).chunks[0].error is ErrorCode.NONE
        for peer, whose in (("ipv4:10.0.0.1:9", "address"), (peers[0], "address")):
            refused = (await serve(peer)).chunks
            assert refused[0].error is ErrorCode.THROTTLING_QUOTA_EXCEEDED
            assert refused[0].last
            assert f"this {whose} has" in refused[0].message
        assert (await serve(peers[3])).chunks[0].error is ErrorCode.NONE
        assert "this node has 4" in (await serve("ipv4:10.0.0.3:1")).chunks[0].message
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (await serve(peers[0])).chunks[0].error is ErrorCode.NONE
        tasks[-1].cancel()


def test_the_limits_leave_room_for_other_calls() -> None:
    assert WatchLimits.of(4_096, ServerLimits()) == WatchLimits()
    few = ServerLimits(concurrent_rpcs_max=1_000, streams_per_connection_max=20)
    assert WatchLimits.of(4_096, few) == WatchLimits(500, 250, 10)
    assert WatchLimits.of(8, ServerLimits()) == WatchLimits(8, 4, 1)


async def test_a_node_that_stops_sends_its_watchers_away(tmp_path: Path) -> None:
    async with served(tmp_path / "a") as node:
        sinks = [Sink(f"ipv4:10.0.0.1:{port}") for port in range(20)]
        tasks = [asyncio.create_task(node.hub.serve(follow(0), sink)) for sink in sinks]
        await until("all wait", lambda: all(sink.chunks for sink in sinks))
        await node.hub.stop()
        await asyncio.wait_for(asyncio.gather(*tasks), SOON_S)
        for sink in sinks:
            assert sink.chunks[-1].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert sink.chunks[-1].last
        late = Sink()
        await node.hub.serve(follow(0), late)
        assert late.chunks[-1].message == "this node is stopping"


async def test_followers_serve_and_a_change_of_leader_ends_linearizable_reads(
    tmp_path: Path,
) -> None:
    async with trio(tmp_path, fetch_timeout_ms=8_000) as replicas:
        leader = await leader_of(replicas)
        follower = next(each for each in replicas.values() if each is not leader)
        async with service_of(leader) as first, service_of(follower) as second:
            any_node, leaders = Sink("ipv4:10.0.0.1:1"), Sink("ipv4:10.0.0.1:2")
            at_follower, refused = Sink("ipv4:10.0.0.1:3"), Sink("ipv4:10.0.0.1:4")
            tasks = [
                asyncio.create_task(served.service.follow(request, sink))
                for served, request, sink in (
                    (first, follow(0), any_node),
                    (first, follow(0, linearizable=True), leaders),
                    (second, follow(0), at_follower),
                    (second, follow(0, linearizable=True, timeout_ms=500), refused),
                )
            ]
            await until("the follower answers", lambda: refused.chunks)
            assert refused.chunks[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
            end = await leader.commit() + 1
            for sink in (any_node, leaders, at_follower):
                await until("it has the record", lambda sink=sink: sent_to(sink) >= end)
                assert all(chunk.next_offset <= chunk.high_watermark for chunk in sink.chunks)
            leader.driver.resign("a test wants it")
            await until("the linearizable one ends", lambda: leaders.chunks[-1].last)
            assert leaders.chunks[-1].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
            new = await leader_of(replicas)
            end = await new.commit() + 1
            for sink in (any_node, at_follower):
                await until("it goes on", lambda sink=sink: sent_to(sink) >= end)
            for task in tasks:
                task.cancel()


async def test_a_node_without_a_leader_sends_its_watchers_away(tmp_path: Path) -> None:
    async with trio(tmp_path, fetch_timeout_ms=300) as replicas:
        leader = await leader_of(replicas)
        follower = next(each for each in replicas.values() if each is not leader)
        async with service_of(follower, detached_s=0.5, tick_s=0.05) as node:
            sink = Sink()
            await until("it follows", lambda: follower.node.is_attached)
            task = asyncio.create_task(node.hub.serve(follow(0), sink))
            await until("it is served", lambda: sink.chunks)
            leader.network.cut.add(follower.id)
            await until("it is sent away", task.done)
            assert sink.chunks[-1].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert sink.chunks[-1].message == "this node has no contact with a leader"


async def test_the_clients_of_a_node_that_stops_continue_at_another(tmp_path: Path) -> None:
    async with trio(tmp_path) as replicas:
        leader = await leader_of(replicas)
        follower = next(each for each in replicas.values() if each is not leader)
        async with service_of(leader) as first:
            async with service_of(follower) as second, first.client() as writer:
                client = QuorumClient([second.address])
                records = client.read(follow=True)
                appended = await append(writer, 0, 3)
                assert await take(records, 3) == appended
                client._route.learn_nodes(leader.node.current_leader.endpoints[:0])
                client._route.learn_nodes([_endpoint(first)])
            async with first.client() as writer:
                more = await append(writer, 3, 3)
            assert await take(records, 3) == more
            await client.close()


def _endpoint(node: Served) -> Any:
    from quorate.common.endpoints import Endpoint

    host, _, port = node.address.rpartition(":")
    return Endpoint("CONTROLLER", host, int(port))


async def test_a_plain_error_ends_the_read(tmp_path: Path) -> None:
    async with served(tmp_path / "a") as node, node.client() as client:

        async def refuse(request: ReadRequest, stream: Any) -> None:
            chunk = ReadChunk(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED, node.service.current_leader, last=True
            )
            await stream.send(SharedChunk(chunk))

        node.service.follow = refuse  # type: ignore[method-assign]
        with pytest.raises(AdminError, match="CLUSTER_AUTHORIZATION_FAILED"):
            await anext(client.read(follow=True))
