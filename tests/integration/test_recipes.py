"""The recipes on three nodes, while leadership moves: linearizable, and one holder per token."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import quorate
from quorate.linearizability import HistoryChecker
from quorate.recipes import Counter, Election, KeyValue, Lock, LockLostError

from tests.integration.embedded_support import Trio, until

UNKNOWN = (quorate.OutcomeUnknownError,)


@asynccontextmanager
async def quorum(folder: Path) -> AsyncIterator[Trio]:
    trio = Trio(folder)
    async with trio.running():
        await trio.leader()
        await trio.nodes[0].client.finalize_application_version()
        yield trio


async def move_leadership(trio: Trio) -> None:
    """Again and again; half of the leaders resign without a successor."""
    source = random.Random(3)
    while True:
        await asyncio.sleep(0.3)
        leader = trio.nodes[0].leader.id
        if leader is None:
            continue
        if source.random() < 0.5:
            node = trio.nodes[leader - 1]
            components, _ = node._parts
            components.driver.resign("a test")
        else:
            target = source.choice([each for each in (1, 2, 3) if each != leader])
            with suppress(quorate.ClientError):
                await trio.nodes[0].client.transfer_leadership(
                    quorate.ReplicaKey(target), timeout_ms=2_000
                )


@asynccontextmanager
async def moving(trio: Trio) -> AsyncIterator[None]:
    task = asyncio.create_task(move_leadership(trio))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def clients(trio: Trio, count: int) -> AsyncIterator[list[quorate.Client]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(quorate.Client(trio.addresses)) for _ in range(count)
        ]


async def log_of(client: quorate.Client, key: bytes) -> list[tuple[int, bytes | None]]:
    found = []
    async for record in client.read():
        if record.key == key:
            assert record.offset is not None
            found.append((record.offset, record.value))
    return found


async def test_every_node_appends_on_conditions(tmp_path: Path) -> None:
    async with quorum(tmp_path) as trio:
        version = -1
        for node in trio.nodes:
            result = await node.append([(b"k", b"v")], if_key_offsets={b"k": version})
            with pytest.raises(quorate.ConditionFailedError) as failed:
                await node.append([(b"k", b"no")], if_key_offsets={b"k": version}, if_last_offset=1)
            version = result.base_offset
            assert failed.value.key_offsets == {b"k": version}
            assert failed.value.last_offset == version
        removed = await trio.nodes[0].append([(b"k", None)], if_last_offset=version)
        for node, machine in zip(trio.nodes, trio.machines, strict=True):
            await node.applied(removed.base_offset)
            assert machine.values == {b"k": None}


# --- the key-value store --------------------------------------------------------------------------


@dataclass
class Operation:
    """began, ended: positions in the history. version: that was read, or written."""

    began: int
    ended: int
    is_write: bool
    value: bytes | None
    version: int


async def store_client(
    store: KeyValue, number: int, clock: itertools.count[int], checker: HistoryChecker[bytes]
) -> list[Operation]:
    source = random.Random(number)
    done: list[Operation] = []
    version = -1
    for attempt in range(30):
        began = next(clock)
        value = b"%d-%d" % (number, attempt)
        kind = source.choice(("get", "get", "put", "change", "delete"))
        try:
            if kind == "get":
                found = await store.entry(b"k")
                version = found.version
                done.append(Operation(began, next(clock), False, found.value, version))
                continue
            if kind == "delete":
                await store.delete(b"k")
                continue
            checker.begin(value)
            if kind == "put":
                version = await store.put(b"k", value)
            else:
                version = await store.compare_and_set(b"k", value, version)
        except quorate.ConditionFailedError as failed:
            checker.refused(value)
            version = failed.key_offsets[b"p/k"]
            done.append(Operation(began, next(clock), False, None, version))
        except UNKNOWN:
            if kind != "delete":
                checker.unknown(value)
        else:
            checker.acknowledged(value, version)
            done.append(Operation(began, next(clock), True, value, version))
    return done


def check_reads(operations: list[Operation], log: list[tuple[int, bytes | None]]) -> None:
    """Every read shows a state of the log that is not older than what ended before it began."""
    states = [(-1, None), *log]
    placed: list[tuple[int, int]] = []
    for each in sorted(operations, key=lambda operation: operation.began):
        least = max((state for ended, state in placed if ended < each.began), default=0)
        shown = [
            number
            for number, (offset, value) in enumerate(states)
            if (-1 if value is None else offset) == each.version
        ]
        later = [number for number in shown if number >= least]
        assert later, f"{each} shows a state that is older than number {least} of {states}"
        placed.append((each.ended, later[0]))
        assert not each.is_write or states[later[0]] == (each.version, each.value)


async def test_the_store_is_linearizable(tmp_path: Path) -> None:
    checker: HistoryChecker[bytes] = HistoryChecker()
    clock = itertools.count()
    async with quorum(tmp_path) as trio, clients(trio, 4) as each:
        async with moving(trio):
            histories = await asyncio.gather(
                *(
                    store_client(KeyValue(client, b"p/"), number, clock, checker)
                    for number, client in enumerate(each)
                )
            )
        log = await log_of(each[0], b"p/k")
        last = log[-1][1]
        expected = {} if last is None else {b"k": last}
        assert await KeyValue(each[1], b"p/").items() == expected
    assert checker.verify((offset, value) for offset, value in log if value is not None) == []
    check_reads(list(itertools.chain(*histories)), log)


async def test_a_store_survives_a_snapshot_that_replaces_what_it_read(tmp_path: Path) -> None:
    async with quorum(tmp_path) as trio, clients(trio, 2) as (one, two):
        store, other = KeyValue(one, b"p/"), KeyValue(two, b"p/")
        await store.put(b"a", b"1")
        await store.put(b"b", b"1")
        assert await other.items() == {b"a": b"1", b"b": b"1"}
        await store.delete(b"a")
        version = await store.put(b"b", b"2")
        for node in trio.nodes:
            components, _ = node._parts
            await components.loader.reached(version + 1)
        # Whatever the position of the view, it reads from the beginning if a snapshot comes.
        other._view.position = 1
        assert await other.items() == {b"b": b"2"}
        assert (await other.entry(b"b")).version == version
        with pytest.raises(quorate.MisuseError):
            await KeyValue(one).get(b"")


# --- the counter ----------------------------------------------------------------------------------


async def test_no_increment_is_lost_or_doubled(tmp_path: Path) -> None:
    unknown = 0

    async def add(client: quorate.Client) -> list[int]:
        nonlocal unknown
        totals = []
        counter = Counter(client, b"visits")
        for _ in range(15):
            try:
                totals.append(await counter.add())
            except UNKNOWN:
                unknown += 1
        assert totals == sorted(totals)
        return totals

    async with quorum(tmp_path) as trio, clients(trio, 3) as each:
        async with moving(trio):
            totals = list(itertools.chain(*await asyncio.gather(*map(add, each))))
        value = await Counter(each[0], b"visits").value()
        log = await log_of(each[0], b"visits")
    assert [int(text or b"") for _, text in log] == list(range(1, value + 1))
    assert len(totals) == len(set(totals))
    assert len(totals) <= value <= len(totals) + unknown


# --- the lock -------------------------------------------------------------------------------------


@dataclass
class Resource:
    """Rejects a token that is smaller than one it has seen."""

    largest: int = -1
    inside: int = 0

    async def use(self, token: int) -> None:
        assert token > self.largest
        self.largest = token
        self.inside += 1
        assert self.inside == 1, "two hold the lock at once"
        await asyncio.sleep(0.02)
        self.inside -= 1


async def test_one_holder_at_a_time_with_growing_tokens(tmp_path: Path) -> None:
    resource = Resource()

    async def work(client: quorate.Client, number: int) -> int:
        lock = Lock(client, b"printer", owner=f"worker-{number}", ttl_s=20)
        for _ in range(5):
            async with lock as token:
                assert token == lock.token
                await resource.use(token)
        return 5

    async with quorum(tmp_path) as trio, clients(trio, 4) as each:
        async with moving(trio), asyncio.timeout(90):
            done = await asyncio.gather(*(work(c, n) for n, c in enumerate(each)))
        assert sum(done) == 20
        assert await Lock(each[0], b"printer").holder() is None


async def test_a_lock_whose_holder_is_silent_is_taken_over(tmp_path: Path) -> None:
    async with quorum(tmp_path) as trio, clients(trio, 2) as (one, two):
        silent = Lock(one, b"printer", owner="silent", ttl_s=6)
        first = await silent.acquire()
        assert await Lock(two, b"printer").holder() == ("silent", first)
        with pytest.raises(quorate.MisuseError):
            await silent.acquire()
        other = Lock(two, b"printer", owner="other", ttl_s=20)
        taking = asyncio.create_task(other.acquire())
        await asyncio.sleep(7)  # more than the time to live: without a renewal it would expire
        assert not taking.done(), "it renews the lock"
        assert await other.holder() == ("silent", first), "a renewal keeps the token"
        assert silent._renewing is not None
        silent._renewing.cancel()
        second = await asyncio.wait_for(taking, 20)
        assert second > first
        await silent.release()
        assert await other.holder() == ("other", second), "it is not the silent one's to release"
        await other.release()
        assert await other.holder() is None


async def test_a_holder_notices_that_it_lost_the_lock(tmp_path: Path) -> None:
    async def hold(lock: Lock, client: quorate.Client) -> None:
        async with lock:
            await client.append([(b"printer", None)])
            await asyncio.wait_for(lock.is_lost.wait(), 10)
            assert lock.token is None

    async with quorum(tmp_path) as trio, clients(trio, 1) as (client,):
        lock = Lock(client, b"printer", ttl_s=1)
        with pytest.raises(LockLostError):
            await hold(lock, client)
        assert await lock.acquire() > 0, "it can be acquired again"
        assert not lock.is_lost.is_set()


async def test_without_a_quorum_a_lock_is_lost_in_time(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        async with quorum(tmp_path) as trio:
            client = await stack.enter_async_context(quorate.Client(trio.addresses))
            lock = Lock(client, b"printer", ttl_s=1)
            await lock.acquire()
        await asyncio.wait_for(lock.is_lost.wait(), 5)
        assert lock.token is None
        await lock.release()


async def test_elections(tmp_path: Path) -> None:
    async with quorum(tmp_path) as trio, clients(trio, 2) as (one, two):
        first, second = Election(one, b"boss", "one"), Election(two, b"boss", "two")
        assert await second.leader() is None
        term = await first.campaign()
        assert await second.leader() == ("one", term)
        campaigning = asyncio.create_task(second.campaign())
        await asyncio.sleep(0.3)
        assert not campaigning.done()
        await first.resign()
        later = await asyncio.wait_for(campaigning, 20)
        assert later > term
        assert await first.leader() == ("two", later)
        assert not second.is_over.is_set()
        await second.resign()
        await until("nobody leads", lambda: not second.is_over.is_set())
        assert await first.leader() is None
