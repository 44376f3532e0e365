"""Watchers of one client share a stream: each gets its records once, in order, whatever happens."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from quorate.common.error_codes import ErrorCode
from quorate.raft.types import OffsetAndEpoch
from quorate.records.batch import Record
from quorate.rpc.client import reading, shared_stream
from quorate.rpc.client.following import DecodedChunk
from quorate.rpc.client.quorum_client import (
    AdminError,
    OffsetCompactedError,
    QuorumClient,
    ReadBrokenError,
    UnreachableError,
)
from quorate.rpc.server.grpc_server import start_server
from quorate.rpc.server.handler import SharedChunk, WatchStream
from quorate.rpc.wire.values import ReadChunk, ReadRequest
from quorate.sync import Client

from tests.processes import free_ports
from tests.unit.rpc.rpc_support import HOST, NO_HANG_S, Node, Pair, address_of, serving


class Counting(Node):
    """A node that knows which streams are open: `open` are the offsets at which they began."""

    def __init__(self, id: int = 1) -> None:  # noqa: A002
        super().__init__(id=id)
        self.open: list[int] = []
        self.opened = 0

    async def follow(self, request: ReadRequest, stream: WatchStream) -> None:
        self.open.append(request.from_offset)
        self.opened += 1
        try:
            await self.serve(request, stream)
        finally:
            self.open.remove(request.from_offset)

    async def serve(self, request: ReadRequest, stream: WatchStream) -> None:
        await super().follow(request, stream)

    def fill(self, count: int) -> None:
        """Store so many records, two in a batch; the first of these has no key."""
        for number in range(0, count, 2):
            self.store([(None, b"\x01\x02"), (b"k", b"%d" % number)])


class Watcher:
    """A task that reads; `offsets` are those it got, `error` what ended it."""

    def __init__(self, client: QuorumClient, begin: int, **options: Any) -> None:
        self.begin = begin
        self.metadata = options.get("metadata", True)
        self.offsets: list[int] = []
        self.error: BaseException | None = None
        self.go = asyncio.Event()
        self.go.set()
        self.pause_s: float | None = None
        self._records = client.read(begin, follow=True, **options)
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            async with aclosing(self._records) as records:
                async for record in records:
                    self.offsets.append(record.offset or 0)
                    await self.go.wait()
                    if self.pause_s is not None:
                        await asyncio.sleep(self.pause_s)
        except Exception as error:
            self.error = error

    def wanted(self, end: int) -> list[int]:
        """What it gets of a log that `fill` has filled up to `end`."""
        return [n for n in range(self.begin, end) if self.metadata or n % 2 == 1]

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def until(what: str, condition: Any) -> None:
    try:
        async with asyncio.timeout(NO_HANG_S):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"not within {NO_HANG_S} s: {what}") from None


async def until_all_have(watchers: list[Watcher], end: int) -> None:
    await until("all have all", lambda: all(w.offsets[-1:] == w.wanted(end)[-1:] for w in watchers))
    for each in watchers:
        assert each.offsets == each.wanted(end)


@asynccontextmanager
async def client_of(*addresses: str) -> AsyncIterator[QuorumClient]:
    """A client of which nothing is left at the end: no task, and no error that nobody has got."""
    unexpected: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unexpected.append(context))
    async with QuorumClient(addresses) as client:
        yield client
    gc.collect()
    await until("its tasks have ended", lambda: not own_tasks())
    assert not unexpected


def own_tasks() -> list[Any]:
    names = [task.get_coro().__qualname__ for task in asyncio.all_tasks()]  # type: ignore[union-attr]
    return [name for name in names if name.startswith(("SharedStream", "Watcher"))]


# --- one stream -----------------------------------------------------------------------------------


async def test_watchers_that_begin_together_open_one_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked = 0
    verify = reading.verify_crc

    def counted(*arguments: Any) -> bool:
        nonlocal checked
        checked += 1
        return verify(*arguments)

    monkeypatch.setattr(reading, "verify_crc", counted)
    node = Counting()
    node.fill(10)
    async with serving(node) as server, client_of(address_of(server)) as client:
        watchers = [Watcher(client, 4) for _ in range(100)]
        await until_all_have(watchers, 10)
        node.fill(2)
        await until_all_have(watchers, 12)
        assert (node.opened, node.open) == (1, [4])
        assert checked == 4, "each batch is checked once"
        for each in watchers:
            await each.end()
        await until("the stream is closed", lambda: not node.open)


async def test_watchers_of_different_offsets_come_together_at_the_end() -> None:
    node = Counting()
    node.fill(60)
    async with serving(node) as server, client_of(address_of(server)) as client:
        watchers = [Watcher(client, begin, metadata=begin % 3 > 0) for begin in range(0, 70, 2)]
        await until_all_have(watchers[:30], 60)
        await until("one stream", lambda: len(node.open) == 1)
        # Those that wait for later offsets are among its watchers.
        node.fill(20)
        await until_all_have(watchers, 80)
        assert len(node.open) == 1
        opened = node.opened
        watchers += [Watcher(client, begin) for begin in (78, 80, 82, 10_000)]
        node.fill(6)
        await until_all_have(watchers[:-1], 86)
        assert watchers[-1].offsets == []
        assert node.opened == opened, "they join at once: its window reaches back to their offsets"
        leaders = [Watcher(client, 0, linearizable=True) for _ in range(5)]
        await until_all_have(leaders, 86)
        assert len(node.open) == 2
        for each in watchers + leaders:
            await each.end()
        await until("both streams are closed", lambda: not node.open)


async def test_a_watcher_that_ends_leaves_the_others_alone() -> None:
    node = Counting()
    async with serving(node) as server, client_of(address_of(server)) as client:
        watchers = [Watcher(client, 0, max_records=6 if n < 5 else None) for n in range(40)]
        ended = []
        for end in range(2, 42, 2):
            node.fill(2)
            await until_all_have(watchers[5:], end)
            # The first of all opened the stream.
            ended.append(watchers.pop(5))
            await ended[-1].end()
        assert [each.offsets for each in watchers[:5]] == [list(range(6))] * 5
        assert all(each.task.done() and each.error is None for each in watchers[:5])
        assert [len(each.offsets) for each in ended] == list(range(2, 42, 2))
        assert node.opened == 1
        for each in watchers:
            await each.end()
        await until("the stream is closed", lambda: not node.open)


async def test_cancelling_whoever_opens_a_stream_does_not_stop_those_that_wait_for_it() -> None:
    node = Counting()
    node.fill(4)
    node.delay_s = 0.2
    async with serving(node) as server, client_of(address_of(server)) as client:
        watchers = [Watcher(client, 0) for _ in range(10)]
        await until("the first asks", lambda: node.open)
        await watchers[0].end()
        await until_all_have(watchers[1:], 4)
        for each in watchers:
            await each.end()


async def test_a_closed_client_ends_all_its_watchers() -> None:
    node = Counting()
    node.fill(4)
    async with serving(node) as server:
        async with client_of(address_of(server)) as client:
            watchers = [Watcher(client, begin) for begin in (0, 2, 4, 90)]
            await until_all_have(watchers[:3], 4)
            await client.close()
            await until("all end", lambda: all(each.task.done() for each in watchers))
            errors = [each.error for each in watchers]
            assert all("the client is closed" in str(error) for error in errors)
            assert len({id(error) for error in errors}) == 4
        await until("no stream is left", lambda: not node.open)


def test_threads_share_a_stream() -> None:
    async def run() -> None:
        node = Counting()
        node.fill(10)
        async with serving(node) as server:
            client = await asyncio.to_thread(Client, [address_of(server)])

            def read(begin: int) -> list[int | None]:
                return [r.offset for r in client.read(begin, follow=True, max_records=8)]

            found = [asyncio.create_task(asyncio.to_thread(read, n)) for n in (8, 9, 10, 11)]
            await until("they read", lambda: node.open)
            for _ in range(10):
                await asyncio.sleep(0.02)
                node.fill(2)
            expected = [list(range(begin, begin + 8)) for begin in (8, 9, 10, 11)]
            assert await asyncio.gather(*found) == expected
            await until("no stream is left", lambda: not node.open)
            await asyncio.to_thread(client.close)

    asyncio.run(run())


# --- slow watchers --------------------------------------------------------------------------------


async def test_a_slow_watcher_stalls_nobody_and_takes_little_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_stream, "WINDOW_BYTES", 20_000)
    node = Counting()
    node.fill(2)
    async with serving(node) as server, client_of(address_of(server)) as client:
        slow, *quick = [Watcher(client, 0) for _ in range(10)]
        await until_all_have([slow, *quick], 2)
        slow.go.clear()
        for _ in range(60):
            node.store([(None, bytes(1_000)), (b"", bytes(1_000))])
        await until_all_have(quick, 122)
        assert len(slow.offsets) < 4
        # The window, the one that the slow watcher is in, and the newest of its streams.
        assert chunks_in_memory() < 12
        assert len(node.open) == 1, "it holds no stream while it takes nothing"
        slow.go.set()
        await until_all_have([slow], 122)
        node.fill(2)
        await until_all_have([slow, *quick], 124)
        await until("it is back", lambda: len(node.open) == 1)
        for each in (slow, *quick):
            await each.end()


def chunks_in_memory() -> int:
    gc.collect()
    return sum(isinstance(each, DecodedChunk) for each in gc.get_objects())


async def test_a_watcher_that_is_alone_is_never_left_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its stream waits for it, and gRPC's windows keep the node from sending more."""
    monkeypatch.setattr(shared_stream, "WINDOW_BYTES", 1_000)
    node = Counting()
    node.fill(2)
    async with serving(node) as server, client_of(address_of(server)) as client:
        watcher = Watcher(client, 0)
        watcher.pause_s = 0.002
        for _ in range(50):
            node.store([(None, bytes(1_000)), (b"", bytes(1_000))])
        await until_all_have([watcher], 102)
        assert node.opened == 1
        await watcher.end()


async def test_watchers_of_different_speeds_get_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_stream, "WINDOW_BYTES", 5_000)
    node = Counting()
    async with serving(node) as server, client_of(address_of(server)) as client:
        watchers = [Watcher(client, number % 7) for number in range(30)]
        for number, each in enumerate(watchers):
            each.pause_s = (None, 0, 0.001, 0.003)[number % 4]
        for _ in range(100):
            node.fill(4)
            await asyncio.sleep(0.001)
        await until_all_have(watchers, 400)
        assert node.opened > 5, "the slow ones were left behind"
        node.fill(2)
        await until_all_have(watchers, 402)
        await until("one stream is left", lambda: len(node.open) == 1)
        for each in watchers:
            await each.end()


# --- failures -------------------------------------------------------------------------------------


class Breaking(Counting):
    """Its streams end after some chunks, in different ways; `fails` says how often."""

    def __init__(self, id: int, rng: random.Random) -> None:  # noqa: A002
        super().__init__(id)
        self.rng = rng
        self.fails = 0.9

    async def serve(self, request: ReadRequest, stream: WatchStream) -> None:
        if self.rng.random() > self.fails:
            await super().serve(request, stream)
            return
        error = self.rng.choice(
            [None, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR]
        )
        limited = Limited(stream, self.rng.choice([0, 1, 1, 2, 3, 8]))
        serving_it = asyncio.create_task(super().serve(request, limited))
        ended = asyncio.create_task(limited.ended.wait())
        try:
            await asyncio.wait((serving_it, ended), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (serving_it, ended):
                task.cancel()
            await asyncio.gather(serving_it, ended, return_exceptions=True)
        if error is not None:
            await stream.send(SharedChunk(ReadChunk(error, self.leader, last=True)))


class Limited:
    """A stream that takes so many chunks; `ended` is set by the next one."""

    def __init__(self, stream: WatchStream, most: int) -> None:
        self.ended = asyncio.Event()
        self._stream = stream
        self._left = most

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def send(self, shared: SharedChunk) -> int:
        if self._left == 0:
            self.ended.set()
            await asyncio.Event().wait()
        self._left -= 1
        return await self._stream.send(shared)


@pytest.mark.parametrize("seed", range(3))
async def test_each_watcher_gets_its_records_whatever_breaks(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two nodes, of which one lags behind, and watchers that come, pause and go at any time."""
    monkeypatch.setattr("quorate.rpc.client.following.BACKOFF_MAX_S", 0.05)
    monkeypatch.setattr(shared_stream, "WINDOW_BYTES", 10_000)
    rng = random.Random(seed)
    nodes = [Breaking(1, rng), Breaking(2, rng)]
    async with serving(nodes[0]) as first, serving(nodes[1]) as second:
        pair = Pair(list(nodes), [first, second])
        pair.lead(0, 3)
        async with client_of(*pair.addresses) as client:
            watchers: list[Watcher] = []
            ended: list[Watcher] = []
            end = 0
            for step in range(60):
                if step < 30 or rng.random() < 0.1:
                    begin = rng.choice([0, rng.randrange(end + 1), end, end + rng.randrange(9)])
                    options: dict[str, Any] = {"metadata": rng.random() < 0.7}
                    watchers.append(Watcher(client, begin, **options))
                    watchers[-1].pause_s = rng.choice([None, None, 0, 0.005])
                if rng.random() < 0.15 and len(watchers) > 5:
                    ended.append(watchers.pop(rng.randrange(len(watchers))))
                    await ended[-1].end()
                for _ in range(rng.randrange(3)):
                    nodes[0].fill(4)
                    end += 4
                while nodes[1].end_offset < end and rng.random() < 0.7:
                    nodes[1].fill(4)
                await asyncio.sleep(rng.choice([0, 0.002, 0.01]))
            while nodes[1].end_offset < end:
                nodes[1].fill(4)
            for node in nodes:
                node.fails = 0.0
            await until_all_have(watchers, end)
            for node in nodes:
                node.fill(12)
            await until_all_have(watchers, end + 12)
            for each in ended:
                assert each.error is None
                assert each.offsets == each.wanted(end)[: len(each.offsets)]
            for each in watchers:
                await each.end()
        await until("no stream is left", lambda: not nodes[0].open + nodes[1].open)


async def test_watchers_that_come_during_an_outage(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    node = Counting()
    node.fill(4)
    port = free_ports(1)[0]
    server = await start_server([f"{HOST}:{port}"], node)
    async with client_of(address_of(server)) as client:
        watchers = [Watcher(client, begin) for begin in (0, 2, 4)]
        await until_all_have(watchers, 4)
        await server.stop(0)
        await until("the client notices", lambda: "continues at offset 4" in caplog.text)
        impatient = [Watcher(client, begin, timeout_ms=300) for begin in (4, 4, 0)]
        await until("their time is over", lambda: all(each.task.done() for each in impatient))
        assert all(isinstance(each.error, UnreachableError) for each in impatient)
        watchers += [Watcher(client, begin) for begin in (0, 4, 4, 6)]
        await asyncio.sleep(0.1)
        node.fill(4)
        async with serving(node, port=port):
            await until_all_have(watchers, 8)
            node.fill(2)
            await until_all_have(watchers, 10)
            node.fill(2)
            await until_all_have(watchers, 12)
            await until("one stream is left", lambda: len(node.open) == 1)
            for each in watchers:
                await each.end()


class AheadFirst(Counting):
    """A node that serves the streams from the end of its log on only after one beyond it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_ahead = asyncio.Event()

    async def serve(self, request: ReadRequest, stream: WatchStream) -> None:
        if request.from_offset <= self.end_offset:
            await self.is_ahead.wait()
        await super().serve(request, stream)


async def test_a_watcher_beyond_the_end_does_not_keep_the_others_apart() -> None:
    node = AheadFirst()
    node.fill(4)
    async with serving(node) as server, client_of(address_of(server)) as client:
        watchers = [Watcher(client, begin) for begin in (0, 2, 4, 8)]
        await until("all are open", lambda: len(node.open) == 4)
        await asyncio.sleep(0.05)  # the client gets the first chunk of the one at 8
        node.is_ahead.set()
        await until_all_have(watchers, 4)
        await until("the others share one", lambda: len(node.open) == 2)
        assert node.opened == 4, "none was opened again after a silence"
        node.fill(6)
        await until_all_have(watchers, 10)
        await until("all share one", lambda: len(node.open) == 1)
        for each in watchers:
            await each.end()


class Compacted(Counting):
    """A node whose log begins at `log_start`."""

    def __init__(self) -> None:
        super().__init__()
        self._cut = asyncio.Event()

    def cut_streams(self) -> None:
        """End the streams that are open."""
        self._cut.set()
        self._cut.clear()

    async def serve(self, request: ReadRequest, stream: WatchStream) -> None:
        if request.from_offset < self.log_start:
            gone = ReadChunk(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                self.leader,
                snapshot=OffsetAndEpoch(self.log_start, 3),
                log_start_offset=self.log_start,
                last=True,
            )
            await stream.send(SharedChunk(gone))
            return
        serving_it = asyncio.create_task(super().serve(request, stream))
        cut = asyncio.create_task(self._cut.wait())
        try:
            await asyncio.wait((serving_it, cut), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (serving_it, cut):
                task.cancel()
            await asyncio.gather(serving_it, cut, return_exceptions=True)


async def test_compaction_ends_the_watchers_that_it_concerns() -> None:
    node = Compacted()
    node.fill(20)
    async with serving(node) as server, client_of(address_of(server)) as client:
        watchers = [Watcher(client, begin) for begin in (10, 12, 20)]
        await until_all_have(watchers, 20)
        node.log_start = 10
        early = Watcher(client, 4)
        await until("it ends", early.task.done)
        assert isinstance(early.error, OffsetCompactedError)
        assert early.offsets == []
        later = Watcher(client, 40)
        node.fill(2)
        await until_all_have(watchers, 22)
        await until("all share one", lambda: len(node.open) == 1)
        # The log is compacted further while the stream is broken.
        node.log_start = 30
        node.cut_streams()
        await until("they end", lambda: all(each.task.done() for each in watchers))
        errors = [each.error for each in watchers]
        assert all(isinstance(error, OffsetCompactedError) for error in errors)
        assert all("offset 22 was compacted away" in str(error) for error in errors)
        assert len({id(error) for error in errors}) == 3, "each has a traceback of its own"
        node.fill(30)
        await until_all_have([later], 52)
        assert later.error is None
        await later.end()


@pytest.mark.parametrize("is_ahead", [False, True])
async def test_an_error_of_the_nodes_reaches_every_watcher_once(is_ahead: bool) -> None:
    node = Compacted()
    node.fill(4)
    async with serving(node) as server, client_of(address_of(server)) as client:
        begins = (0, 2, 4, 8) if is_ahead else (0, 2, 4)
        watchers = [Watcher(client, begin) for begin in begins]
        await until_all_have(watchers[:3], 4)
        # A stream beyond the end of the log stays apart if it opened first.
        await until("one stream", lambda: len(node.open) <= 1 + is_ahead)
        refusal = ReadChunk(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED, node.leader, last=True, message="no longer"
        )
        node.log_start, node.chunks = 0, [refusal]
        node.cut_streams()
        await until("they end", lambda: all(each.task.done() for each in watchers))
        for each in watchers:
            assert isinstance(each.error, AdminError)
            assert str(each.error) == "CLUSTER_AUTHORIZATION_FAILED: no longer"


async def test_what_precedes_a_corrupt_batch_is_read() -> None:
    node = Counting()
    node.fill(8)
    node.batches[2][-1] ^= 1
    whole = b"".join(bytes(batch) for batch in node.batches)
    node.chunks = [
        ReadChunk(ErrorCode.NONE, node.leader, next_offset=0),
        ReadChunk(ErrorCode.NONE, node.leader, records=whole, next_offset=8),
    ]
    async with serving(node) as server, client_of(address_of(server)) as client:
        watchers = [Watcher(client, begin) for begin in (0, 0, 3)]
        await until("they end", lambda: all(each.task.done() for each in watchers))
        assert [each.offsets for each in watchers] == [[0, 1, 2, 3], [0, 1, 2, 3], [3]]
        assert all(isinstance(each.error, ReadBrokenError) for each in watchers)
        assert all("offset 4 is corrupt" in str(each.error) for each in watchers)


class Earlier(Counting):
    """A node of an earlier version: it does not know `follow`, and ends where its log ends."""

    async def serve(self, request: ReadRequest, stream: WatchStream) -> None:
        async def nothing() -> None:
            return None

        async for chunk in self.read(request, nothing):
            await stream.send(SharedChunk(chunk))


async def test_watchers_share_the_polls_of_an_earlier_version() -> None:
    node = Earlier()
    node.fill(4)
    async with serving(node) as server, client_of(address_of(server)) as client:
        watchers = [Watcher(client, begin) for begin in (0, 0, 2, 3, 6)]
        for end in (6, 8, 10):
            node.fill(2)
            await until_all_have(watchers, end)
        opened = node.opened
        await asyncio.sleep(1.0)
        assert node.opened - opened <= 6, "one poll in 200 ms"
        for each in watchers:
            await each.end()


async def test_watchers_get_the_same_records() -> None:
    """They are decoded once, so nobody may change them."""
    node = Counting()
    node.fill(2)
    async with serving(node) as server, client_of(address_of(server)) as client:

        async def first() -> Record:
            async with aclosing(client.read(follow=True)) as records:
                return await anext(records)

        found = await asyncio.gather(*(first() for _ in range(5)))
        assert len({id(record) for record in found}) == 1
