"""Reads that follow the log, with real controllers: nothing is missed, nothing comes twice."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest
import quorate
from quorate.rpc.client.quorum_client import (
    ClientError,
    OffsetCompactedError,
    OutcomeUnknownError,
    QuorumClient,
)
from quorate.rpc.wire.codecs import CODECS
from quorate.rpc.wire.values import ReadRequest

from tests.integration.support import (
    QUORATE,
    Node,
    Process,
    Quorum,
    assert_error,
    free_ports,
    succeed,
)
from tests.integration.support import (
    quorate as run_command,
)
from tests.integration.test_snapshot_offsets import SMALL

WAIT_S = 60.0
READ = CODECS["Read"]
LOG_BYTES = 16 << 20
MEMORY_MIB = 80
"""The room for large responses, three times, and what malloc and the log's tail take."""


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Quorum]:
    """Three voters."""
    quorum = Quorum(tmp_path, (1, 2, 3))
    for node in quorum.nodes.values():
        node.format("--standalone" if node.id == 1 else "--no-initial-controllers")
        node.configure({"controller.quorum.auto.join.enable": "true"})
        node.start()
    try:
        quorum.until_voters(1, 2, 3)
        yield quorum
    finally:
        quorum.kill()


class Watcher:
    """One client that follows the log from the start; `offsets` are those it was given."""

    def __init__(self, addresses: str) -> None:
        self.offsets: list[int] = []
        self._addresses = addresses.split(",")
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with QuorumClient(self._addresses) as client:
            async for record in client.read(follow=True):
                if record.key is not None:
                    self.offsets.append(record.offset or 0)


@asynccontextmanager
async def watching(addresses: str, count: int) -> AsyncIterator[list[Watcher]]:
    watchers = [Watcher(addresses) for _ in range(count)]
    try:
        yield watchers
    finally:
        for watcher in watchers:
            watcher.task.cancel()
        await asyncio.gather(*(w.task for w in watchers), return_exceptions=True)


async def write(addresses: str, acknowledged: list[int], stop: asyncio.Event) -> None:
    """Append numbered records all the time, across failures."""
    async with QuorumClient(addresses.split(",")) as client:
        while not stop.is_set():
            try:
                acknowledged.append(await client.append_value(b"value", b"key"))
            except (OutcomeUnknownError, ClientError):
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.005)


async def eventually(what: str, condition: Callable[[], bool]) -> None:
    try:
        async with asyncio.timeout(WAIT_S):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"not within {WAIT_S} s: {what}") from None


async def committed(addresses: str) -> list[int]:
    """The offsets of the applications' records in the log."""
    async with QuorumClient(addresses.split(",")) as client:
        return [r.offset or 0 async for r in client.read() if r.key is not None]


async def kill_one_after_another(quorum: Quorum) -> None:
    acknowledged: list[int] = []
    stop = asyncio.Event()
    writer = asyncio.create_task(write(quorum.addresses, acknowledged, stop))
    async with watching(quorum.addresses, 9) as watchers:
        await eventually("records", lambda: all(len(w.offsets) > 20 for w in watchers))
        status = await asyncio.to_thread(quorum.status)
        assert status is not None
        leader = int(status["leaderId"])
        # The leader first, then a follower: with nine watchers, each serves some.
        for victim in (leader, leader % 3 + 1):
            quorum.nodes[victim].kill()
            before = len(acknowledged)
            await eventually("commits again", lambda n=before: len(acknowledged) > n + 30)
            quorum.nodes[victim].start()
            newest = acknowledged[-1]
            await eventually(
                "all follow", lambda n=newest: all(w.offsets[-1] >= n for w in watchers)
            )
            await asyncio.to_thread(quorum.until_voters, 1, 2, 3)
        stop.set()
        await writer
        wanted = await committed(quorum.addresses)
        assert set(acknowledged) <= set(wanted)
        await eventually("the end", lambda: all(len(w.offsets) >= len(wanted) for w in watchers))
        for watcher in watchers:
            assert watcher.offsets == wanted


@pytest.mark.timeout(240)
def test_nothing_is_missed_or_repeated_when_controllers_are_killed(trio: Quorum) -> None:
    asyncio.run(kill_one_after_another(trio))


async def follow_in_many(address: str, watchers: int, per_client: int, batches: int) -> None:
    async with AsyncExitStack() as stack:
        writer = await stack.enter_async_context(QuorumClient([address]))
        begin = await writer.append_value(b"first")
        clients = [
            await stack.enter_async_context(QuorumClient([address]))
            for _ in range(watchers // per_client)
        ]
        got: list[list[int]] = [[] for _ in range(watchers)]

        async def follow(number: int) -> None:
            client = clients[number % len(clients)]
            async for record in client.read(begin, follow=True, max_records=batches + 1):
                got[number].append(record.offset or 0)

        tasks = [asyncio.create_task(follow(number)) for number in range(watchers)]
        await eventually("all follow", lambda: all(map(bool, got)))
        appended = [await writer.append_value(b"value") for _ in range(batches)]
        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(*tasks)
        assert all(offsets == [begin, *appended] for offsets in got)


@pytest.mark.parametrize("per_client", [1, 50])
def test_500_watchers_of_one_controller_get_each_batch(lone_node: Node, per_client: int) -> None:
    """Those of one client share a stream."""
    asyncio.run(follow_in_many(lone_node.address, 500, per_client, 10))


def test_a_program_without_asyncio_follows_the_log(lone_node: Node) -> None:
    with quorate.sync.Client([lone_node.address]) as client:
        begin = client.append_value(b"one")
        records = client.read(begin, follow=True)
        assert next(records).value == b"one"
        client.append_value(b"two")
        assert next(records).value == b"two"
        records.close()  # type: ignore[attr-defined]
        client.append_value(b"three")
        assert len(list(client.read(begin, follow=True, max_records=3))) == 3
        assert len(list(client.read(max_records=3))) == 3
        for follow in (False, True):
            found = list(client.read(follow=follow, metadata=False, max_records=3))
            assert len(found) == 3
            assert all(record.key is not None for record in found)


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


async def stall(node: Node, connections: int, streams: int, batch_bytes: int) -> None:
    """Open streams that nobody reads, on a log that is larger than what they may hold."""
    async with AsyncExitStack() as stack:
        writer = await stack.enter_async_context(QuorumClient([node.address]))
        batch = [(b"", bytes(batch_bytes))]
        count = LOG_BYTES // batch_bytes
        begin = await writer.append_value(b"first")

        async def fill() -> None:
            for _ in range(count):
                await writer.append(batch)

        await fill()
        end = await writer.append_value(b"last")
        before = resident_mib(node.pid)
        reads = [
            READ.method.stub(
                await stack.enter_async_context(
                    grpc.aio.insecure_channel(
                        node.address, options=[("grpc.use_local_subchannel_pool", 1)]
                    )
                )
            )
            for _ in range(connections)
        ]
        # From the end: once responses wait for a client that reads nothing, it is disconnected.
        request = READ.encode_request(ReadRequest(end, linearizable=False, follow=True))
        calls = []
        for number in range(streams):  # in turns: beside the writer, a burst of calls is rejected
            calls.append(reads[number % connections](request))
            await calls[-1].read()
        quick, most = 0, before
        async with aclosing(writer.read(begin, follow=True)) as records:
            filling = asyncio.create_task(fill())
            async with asyncio.timeout(WAIT_S):
                async for _ in records:
                    quick += 1
                    most = max(most, resident_mib(node.pid))
                    if quick == 2 + 2 * count:
                        break
            await filling
        assert most - before < MEMORY_MIB
        for call in calls:
            call.cancel()


@pytest.mark.parametrize(
    ("connections", "streams", "batch_bytes"),
    [
        (1, 200, 2_000_000),
        pytest.param(8, 400, 2_000_000, marks=pytest.mark.slow),
        pytest.param(1, 200, 20_000, marks=pytest.mark.slow),
    ],
)
def test_watchers_that_read_nothing_take_little_memory(
    tmp_path: Path, connections: int, streams: int, batch_bytes: int
) -> None:
    """Each would hold the 16 MiB that are appended."""
    settings = {"metadata.max.retention.bytes": -1}
    node = Node(tmp_path, 1, free_ports(1)[0], **settings)
    node.format("--standalone")
    node.start()
    try:
        node.wait_said("leads epoch 1")
        asyncio.run(stall(node, connections, streams, batch_bytes))
        assert node.stop() == 0
    finally:
        node.kill()


def test_an_offset_that_was_compacted_away_names_the_snapshot(tmp_path: Path) -> None:
    quorum = Quorum(tmp_path, (1,), **SMALL)
    node = quorum.nodes[1]
    node.format("--standalone")
    node.start()
    try:
        node.wait_said("leads epoch 1")

        async def fill() -> None:
            async with QuorumClient([node.address]) as client:
                for _ in range(300):
                    await client.append_value(bytes(200))

        asyncio.run(fill())
        node.wait_said("the log starts at offset")

        async def follow() -> None:
            async with QuorumClient([node.address]) as client:
                with pytest.raises(OffsetCompactedError) as caught:
                    await anext(client.read(0, follow=True))
                snapshot = caught.value.snapshot
                assert snapshot is not None
                assert snapshot.offset >= caught.value.log_start_offset > 0
                # It is the one to load, and the log goes on behind it.
                state = [record.offset or 0 async for record in client.read(0)]
                assert len(state) == 300
                later = asyncio.create_task(anext(client.read(state[-1] + 1, follow=True)))
                await client.append_value(b"later")
                assert (await asyncio.wait_for(later, WAIT_S)).value == b"later"

        asyncio.run(follow())
        told = run_command("read", "--bootstrap-controller", node.address, "--follow")
        assert_error(told, "offset 0 was compacted away", "snapshot", "without --follow")
    finally:
        quorum.kill()


def test_the_command_prints_records_as_they_commit(trio: Quorum, tmp_path: Path) -> None:
    async def append(*values: bytes) -> None:
        async with QuorumClient(trio.addresses.split(",")) as client:
            for value in values:
                await client.append_value(value, b"key")

    asyncio.run(append(b"one", b"\xff two"))
    where = ("--bootstrap-controller", trio.addresses)
    lines = [line.split("\t")[1:] for line in succeed("read", *where).out.splitlines()]
    assert lines == [["key", "one"], ["key", "/yB0d28="]]
    out = tmp_path / "read.out"
    command = (sys.executable, *QUORATE, "read", *where, "--follow", "--json")
    with Process("read", out, *command) as reader:
        reader.start()
        reader.wait_until("history", lambda: len(reader.said().splitlines()) == 2)
        asyncio.run(append(b"three"))
        reader.wait_until("a new one", lambda: len(reader.said().splitlines()) == 3)
        status = trio.status()
        assert status is not None
        trio.nodes[int(status["leaderId"])].kill()
        asyncio.run(append(b"four"))
        reader.wait_until("the next", lambda: len(reader.said().splitlines()) == 4)
        reader.send(signal.SIGINT)
        assert reader.wait() == 130
    found = [json.loads(line) for line in reader.said().splitlines()]
    assert [each.get("value") for each in found] == ["one", None, "three", "four"]
    assert found[1]["valueBase64"] == "/yB0d28="
    assert all(each["offset"] > 0 and each["key"] == "key" for each in found)


@pytest.mark.timeout(240)
def test_a_controller_that_stops_ends_its_streams(trio: Quorum) -> None:
    """SIGTERM does not wait for open reads, and the watchers of all three go on."""

    async def follow() -> None:
        async with (
            watching(trio.addresses, 9) as watchers,
            QuorumClient(trio.addresses.split(",")) as client,
        ):
            await client.append_value(b"one")
            await eventually("all have it", lambda: all(bool(w.offsets) for w in watchers))
            for node in trio.nodes.values():
                assert await asyncio.to_thread(node.stop) == 0
                node.start()
                await asyncio.to_thread(trio.until_voters, 1, 2, 3)
            await client.append_value(b"two")
            await eventually("all go on", lambda: all(len(w.offsets) > 1 for w in watchers))
            assert all(len(w.offsets) == 2 for w in watchers)

    asyncio.run(follow())
    for node in trio.nodes.values():
        assert "Traceback" not in node.said()
