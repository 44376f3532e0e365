"""What large answers and unfinished messages may hold, and who gives way."""

from __future__ import annotations

import asyncio

import pytest
from quorate.rpc.server import response_memory as rooms
from quorate.rpc.server.arrivals import DECAY_BYTES, MESSAGE_BYTES, Arrivals, Flow
from quorate.rpc.server.response_memory import (
    SMALL_BYTES,
    UNCOUNTED_BYTES,
    MemoryReservation,
    NoRoomError,
    ResponseMemory,
)

MIB = 1 << 20
A, B = "ipv4:127.0.0.1:1", "ipv4:127.0.0.1:2"


class Memory(ResponseMemory):
    """Of 4 MiB; notes whom it ends."""

    def __init__(self, **fields: int) -> None:
        super().__init__(4 * MIB, **fields)
        self.ended: list[str] = []
        self.end = lambda peer, _reason: self.ended.append(peer)

    async def held(self, peer: str, size: int) -> MemoryReservation:
        held = self.hold(peer)
        await held.reserve(size)
        return held


async def test_who_finds_no_room_waits_for_it() -> None:
    memory = Memory()
    first = await memory.held(A, 3 * MIB)
    waiting = asyncio.create_task(memory.held(B, 2 * MIB))
    await asyncio.sleep(0)
    assert not waiting.done()
    await first.settle(MIB)
    await asyncio.wait_for(waiting, 1)
    assert memory.bytes == 3 * MIB
    first.release()
    waiting.result().release()
    assert memory.bytes == 0


async def test_small_answers_hold_nothing_and_one_fits_always() -> None:
    memory = Memory()
    with memory.hold(A) as held:
        await held.reserve(MIB)
        await held.settle(SMALL_BYTES)
        assert memory.bytes == 0
        await held.settle(100 * MIB)
        assert memory.bytes == 100 * MIB
    assert memory.bytes == 0


async def settled(memory: Memory, peer: str, size: int, *, is_owned: bool) -> MemoryReservation:
    held = memory.hold(peer)
    await held.settle(size, is_owned=is_owned)
    return held


async def test_small_answers_have_room_of_their_own_and_wait_for_it() -> None:
    memory = Memory(small_bytes_max=3 * SMALL_BYTES)
    assert memory.small is not None
    large = await memory.held(A, 4 * MIB)
    few = [await settled(memory, A, SMALL_BYTES, is_owned=True) for _ in range(3)]
    assert memory.small.bytes == 3 * SMALL_BYTES
    (await settled(memory, A, UNCOUNTED_BYTES, is_owned=True)).release()
    waiting = asyncio.create_task(settled(memory, B, SMALL_BYTES, is_owned=True))
    await asyncio.sleep(0)
    assert not waiting.done()
    few[0].release()
    few.append(await asyncio.wait_for(waiting, 1))
    # One that has reserved the room of a large answer keeps what it needs until it is its turn.
    large.release()
    reserved = await memory.held(B, 4 * MIB)
    waiting_too = asyncio.create_task(reserved.settle(SMALL_BYTES))
    await asyncio.sleep(0)
    assert memory.bytes == SMALL_BYTES
    few[1].release()
    await asyncio.wait_for(waiting_too, 1)
    assert memory.bytes == 0
    for each in (*few, reserved):
        each.release()
    assert memory.small.bytes == 0


@pytest.mark.parametrize("size", [SMALL_BYTES, MIB])
async def test_answers_that_exist_and_wait_are_bounded(size: int) -> None:
    """Of too many, those of the connection with the most are given up; replicas' are shared."""
    memory = Memory(small_bytes_max=4 * SMALL_BYTES)
    held = [await settled(memory, A, size, is_owned=True) for _ in range(4)]
    shared = asyncio.create_task(settled(memory, B, size, is_owned=False))
    other = asyncio.create_task(settled(memory, B, size, is_owned=True))
    greedy = [asyncio.create_task(settled(memory, A, size, is_owned=True)) for _ in range(20)]
    await asyncio.sleep(0.01)
    rejected = [each for each in greedy if each.done()]
    assert rejected == greedy[3:], "the last ones, beyond the size of the room"
    for each in rejected:
        with pytest.raises(NoRoomError):
            each.result()
    for each in held:
        each.release()
    async with asyncio.timeout(1):
        for each in await asyncio.gather(shared, other, *greedy[:2]):
            each.release()
        (await greedy[2]).release()
    assert memory.bytes == 0


async def test_who_holds_the_least_is_next_and_then_the_oldest() -> None:
    memory = Memory()
    first = await memory.held(A, 2 * MIB)
    second = await memory.held(A, 2 * MIB)
    again = asyncio.create_task(memory.held(A, 2 * MIB))
    await asyncio.sleep(0)
    other = asyncio.create_task(memory.held(B, 2 * MIB))
    await asyncio.sleep(0)
    first.release()
    await asyncio.sleep(0.01)
    assert other.done()
    assert not again.done()
    second.release()
    await asyncio.wait_for(again, 1)


async def test_a_stalled_answer_ends_its_connection_where_others_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rooms, "STALLED_S", 0.0)
    monkeypatch.setattr(rooms, "LOOK_S", 0.01)
    memory = Memory()
    made = await memory.held(A, 4 * MIB)
    await made.settle(4 * MIB)
    await asyncio.sleep(0.05)
    assert memory.ended == [], "nobody waits"
    waiting = asyncio.create_task(memory.held(B, MIB))
    await asyncio.sleep(0.1)
    assert memory.ended == [A], "once"
    made.release()
    await asyncio.wait_for(waiting, 1)


@pytest.mark.parametrize(("interval_s", "ended"), [(0.01, [A, B]), (3_600.0, [A])])
async def test_stalled_connections_are_closed_one_by_one(
    monkeypatch: pytest.MonkeyPatch, interval_s: float, ended: list[str]
) -> None:
    monkeypatch.setattr(rooms, "STALLED_S", 0.0)
    monkeypatch.setattr(rooms, "LOOK_S", 0.01)
    monkeypatch.setattr(rooms, "CLOSE_INTERVAL_S", interval_s)
    memory = Memory()
    for peer in (A, B):
        made = await memory.held(peer, 2 * MIB)
        await made.settle(2 * MIB)
    waiting = asyncio.create_task(memory.held("ipv4:127.0.0.1:3", 4 * MIB))
    await asyncio.sleep(0.5)
    assert memory.ended == ended
    waiting.cancel()


async def test_who_gives_up_waiting_holds_nothing() -> None:
    memory = Memory()
    first = await memory.held(A, 4 * MIB)

    async def ask() -> None:
        with memory.hold(B) as held:
            await held.reserve(MIB)

    waiting = asyncio.create_task(ask())
    await asyncio.sleep(0)
    first.release()
    waiting.cancel()
    await asyncio.wait([waiting])
    assert memory.bytes == 0


def test_what_is_no_whole_message_counts() -> None:
    arrivals = Arrivals(10 * MIB)
    one, two = ("127.0.0.1", 1), ("127.0.0.1", 2)
    arrivals.add(A, 8 * MIB)
    arrived = arrivals.look([Flow(one, 8 * MIB + 100, 0), Flow(two, 7 * MIB, 0)], 0.0)
    assert arrived == 15 * MIB + 100
    assert arrivals.unfinished == {two: 7 * MIB}
    assert list(arrivals.excess()) == []
    arrivals.look([Flow(one, 14 * MIB, 0), Flow(two, 7 * MIB, 0)], 1.0)
    assert [address for address, _ in arrivals.excess()] == [two]
    assert arrivals.unfinished[two] == 7 * MIB - DECAY_BYTES
    arrivals.add(B, 7 * MIB - MESSAGE_BYTES)
    arrivals.look([Flow(one, 14 * MIB, 0), Flow(two, 7 * MIB, 0)], 0.0)
    assert two not in arrivals.unfinished


def test_a_new_connection_from_the_same_port_begins_anew() -> None:
    arrivals = Arrivals(MIB)
    one = ("127.0.0.1", 1)
    arrivals.look([Flow(one, 9 * MIB, 0)], 0.0)
    assert [address for address, _ in arrivals.excess()] == [one]
    arrivals.look([], 0.0)
    arrivals.look([Flow(one, 100, 0)], 0.0)
    assert arrivals.unfinished == {one: 100}


def test_window_updates_are_no_messages() -> None:
    arrivals = Arrivals(MIB)
    one = ("127.0.0.1", 1)
    arrivals.look([Flow(one, 2 * MIB, 1 << 30)], 0.0)
    assert arrivals.unfinished == {}


def test_framing_of_large_messages_is_never_taken_for_unfinished_ones() -> None:
    arrivals = Arrivals(MIB)
    size = 8 * MIB
    framed = size + 31 * (size // (16 * 1024) + 1)
    for count in range(1, 2_000):
        arrivals.add(B, size)
        arrivals.look([Flow(("127.0.0.1", 2), count * framed, 0)], seconds=0.1)
    assert arrivals.unfinished == {}
