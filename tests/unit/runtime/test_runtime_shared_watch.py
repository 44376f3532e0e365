"""Watchers of one client share a stream of a real replica, which reads history from files."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from quorate.common.endpoints import Endpoint
from quorate.log.config import LogConfig
from quorate.rpc.client import shared_stream
from quorate.rpc.client.quorum_client import OffsetCompactedError, QuorumClient

from tests.unit.runtime.replicas import leader_of, trio, until
from tests.unit.runtime.test_runtime_watchers import SMALL_SEGMENTS
from tests.unit.runtime.watch_support import served, service_of

FILES = LogConfig(tail_cache_bytes=2_000)


async def collect(client: QuorumClient, begin: int, into: list[int], pause_s: float = 0.0) -> None:
    async for record in client.read(begin, follow=True):
        into.append(record.offset or 0)
        if pause_s:
            await asyncio.sleep(pause_s)


async def write(client: QuorumClient, offsets: list[int], count: int) -> None:
    for number in range(count):
        result = await client.append([(b"key", b"%d" % number), (b"", bytes(50))])
        offsets += [result.base_offset, result.base_offset + 1]


async def cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("window_bytes", [2_000, 1 << 20])
async def test_watchers_join_while_the_log_grows(
    tmp_path: Path, window_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However small the window is, and however far the stream gets while they read history."""
    monkeypatch.setattr(shared_stream, "WINDOW_BYTES", window_bytes)
    rng = random.Random(window_bytes)
    async with served(tmp_path / "a", log_config=FILES) as node, AsyncExitStack() as stack:
        writer, client = [await stack.enter_async_context(node.client()) for _ in "ab"]
        offsets: list[int] = []
        await write(writer, offsets, 60)
        found: list[tuple[int, list[int]]] = []
        tasks = []
        writing = asyncio.create_task(write(writer, offsets, 120))
        for _ in range(40):
            begin = rng.choice([0, offsets[-1] + 1, rng.randrange(offsets[-1])])
            got: list[int] = []
            found.append((begin, got))
            pause_s = rng.choice([0.0, 0.0, 0.001])
            tasks.append(asyncio.create_task(collect(client, begin, got, pause_s)))
            await asyncio.sleep(rng.choice([0.0, 0.01, 0.05]))
        await writing
        early = [got for begin, got in found if begin <= offsets[-1]]
        await until("all are there", lambda: all(got[-1:] == offsets[-1:] for got in early))
        await write(writer, offsets, 1)
        await until("all go on", lambda: all(got[-1:] == offsets[-1:] for _, got in found))
        for begin, got in found:
            assert got == [offset for offset in offsets if offset >= begin]
        await until("they share a stream", lambda: node.hub.count == 1)
        await cancel(tasks)
        await until("the stream is closed", lambda: node.hub.count == 0)


async def test_an_offset_that_is_too_low_ends_one_watcher(tmp_path: Path) -> None:
    async with served(tmp_path / "a", log_config=SMALL_SEGMENTS) as node, AsyncExitStack() as stack:
        writer, client = [await stack.enter_async_context(node.client()) for _ in "ab"]
        offsets: list[int] = []
        await write(writer, offsets, 20)
        got: list[int] = []
        task = asyncio.create_task(collect(client, offsets[-1], got))
        await until("it reads", lambda: got)
        await node.replica.snapshotter.write()
        assert node.replica.log.start_offset > 10
        with pytest.raises(OffsetCompactedError, match="offset 3 was compacted away"):
            await collect(client, 3, [])
        await write(writer, offsets, 1)
        await until("the other one goes on", lambda: got == offsets[-3:])
        await cancel([task])


async def test_watchers_move_to_another_node_together(tmp_path: Path) -> None:
    async with trio(tmp_path) as replicas, AsyncExitStack() as stack:
        leader = await leader_of(replicas)
        follower = next(each for each in replicas.values() if each is not leader)
        first = await stack.enter_async_context(service_of(leader))
        writer = await stack.enter_async_context(first.client())
        offsets: list[int] = []
        await write(writer, offsets, 5)
        found: list[tuple[int, list[int]]] = []
        async with service_of(follower) as second:
            client = await stack.enter_async_context(QuorumClient([second.address]))
            tasks = []
            for begin in (0, 0, offsets[3], offsets[-1] + 1, offsets[-1] + 3):
                found.append((begin, []))
                tasks.append(asyncio.create_task(collect(client, *found[-1])))
            await until("they read", lambda: len(found[0][1]) == 10)
            # The client learns the other address while the first one is still served.
            client._route.learn_nodes([_endpoint(first.address)])
        await write(writer, offsets, 5)
        await until("all go on", lambda: all(got[-1:] == offsets[-1:] for _, got in found))
        for begin, got in found:
            assert got == [offset for offset in offsets if offset >= begin]
        await until("they share a stream", lambda: first.hub.count == 1)
        await cancel(tasks)


def _endpoint(address: str) -> Endpoint:
    host, _, port = address.rpartition(":")
    return Endpoint("CONTROLLER", host, int(port))


async def test_a_leader_serves_one_stream_of_a_client_for_each_kind(tmp_path: Path) -> None:
    async with served(tmp_path / "a") as node, node.client() as client:
        offsets: list[int] = []
        await write(client, offsets, 3)
        found: list[list[int]] = [[] for _ in range(20)]

        async def follow(number: int) -> None:
            records = client.read(0, follow=True, linearizable=number % 2 == 0)
            async for record in records:
                found[number].append(record.offset or 0)

        tasks = [asyncio.create_task(follow(number)) for number in range(20)]
        await until("all read", lambda: all(got == offsets for got in found))
        assert node.hub.count == 2
        await cancel(tasks)
