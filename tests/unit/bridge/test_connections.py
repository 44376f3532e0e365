"""Which connections give way to others, and what unfinished frames may hold."""

from __future__ import annotations

import asyncio

import pytest
from quorate.bridge.framing import frames
from quorate.bridge.framing.frames import Receipt, Unfinished
from quorate.bridge.listener.connections import BROKER_S, Connections, KafkaConnection
from quorate.rpc.framing.frame_stream import CHUNK_BYTES, FrameStream

PACE_S = 0.05


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Room:
    """Connections that note which of them were ended."""

    def __init__(self, connections_max: int, per_address_max: int) -> None:
        self.clock = Clock()
        self.open = Connections(connections_max, per_address_max, self.clock)
        self.ended: list[KafkaConnection] = []

    def dial(self, host: str = "a") -> tuple[KafkaConnection, str]:
        self.clock.now_s += 1
        made = KafkaConnection(host)
        made.end = lambda _reason: self.ended.append(made)
        return made, self.open.admit(made)


def test_the_one_that_is_idle_for_longest_gives_way() -> None:
    room = Room(3, 100)
    first, second, _ = (room.dial(f"{host}")[0] for host in range(3))
    room.open.rest(first)  # it was answered just now
    _, refused = room.dial()
    assert not refused
    assert room.ended == [second]
    assert len(room.open) == 3


def test_an_address_with_too_many_gives_up_one_of_its_own() -> None:
    room = Room(100, 2)
    other, _ = room.dial("b")
    first, _ = room.dial("a")
    room.dial("a")
    _, refused = room.dial("a")
    assert not refused
    assert room.ended == [first]
    assert other not in room.ended


def test_an_eviction_searches_no_more_than_one_connection() -> None:
    room = Room(200, 100)
    for host in ("a", "b"):
        for _ in range(100):
            room.dial(host)
    asked = 0

    def clock() -> float:
        nonlocal asked
        asked += 1
        return room.clock.now_s

    room.open.now_s = clock
    for host in ("a", "b", "c"):
        before = asked
        _, refused = room.dial(host)
        assert not refused
        assert asked - before <= 1
    assert len(room.ended) == 3


def test_who_left_before_its_answer_stays_away() -> None:
    room = Room(1, 1)
    made, _ = room.dial()
    made.is_busy = True
    room.open.leave(made)
    room.open.rest(made)
    assert len(room.open) == 0


def test_brokers_and_requests_under_way_stay() -> None:
    room = Room(2, 100)
    broker, _ = room.dial()
    room.open.note_broker(broker, 0)
    busy, _ = room.dial()
    busy.is_busy = True
    _, refused = room.dial()
    assert "max.connections" in refused
    assert not room.ended
    room.clock.now_s += BROKER_S
    _, refused = room.dial()
    assert not refused
    assert room.ended == [broker], "it has been silent for long"


@pytest.mark.parametrize("error", [31, 77])
def test_a_broker_that_is_refused_is_none(error: int) -> None:
    room = Room(1, 1)
    stranger, _ = room.dial()
    room.open.note_broker(stranger, error)
    _, refused = room.dial()
    assert not refused
    assert room.ended == [stranger]


def test_who_left_is_not_counted() -> None:
    room = Room(1, 1)
    for _ in range(5):
        made, refused = room.dial()
        assert not refused
        room.open.leave(made)
        room.open.leave(made)
    assert len(room.open) == 0
    assert not room.ended


def test_the_frame_that_began_first_is_given_up() -> None:
    given_up: list[int] = []
    unfinished = Unfinished(100)
    receipts: list[Receipt] = []
    for index in range(3):
        receipts.append(unfinished.begin(lambda index=index: given_up.append(index)))  # type: ignore[misc]
        receipts[-1].add(30)
    assert (unfinished.bytes, given_up) == (90, [])
    receipts[2].add(20)
    assert (unfinished.bytes, given_up) == (80, [0])
    receipts[1].end()
    receipts[1].end()
    assert unfinished.bytes == 50
    receipts[2].add(60)
    assert (unfinished.bytes, given_up) == (0, [0, 2]), "even the only one"


async def test_a_turn_of_the_loop_takes_one_piece_of_all_frames() -> None:
    """However many connections have sent a part of theirs."""
    unfinished = Unfinished()
    taken = 0

    class Counting(Receipt):
        def add(self, size: int) -> None:
            nonlocal taken
            taken += 1
            super().add(size)

    async def read() -> bytes:
        size = 4 * CHUNK_BYTES
        return await filled(size).rest(size, Counting(unfinished, lambda: None))

    reads = [asyncio.create_task(read()) for _ in range(20)]
    await asyncio.sleep(0)
    begun, most, before = taken, 0, taken
    while not all(each.done() for each in reads):
        await asyncio.sleep(0)
        most, before = max(most, taken - before), taken
    assert begun == len(reads)
    assert taken == 4 * len(reads)
    assert most <= 2
    assert {len(await each) for each in reads} == {4 * CHUNK_BYTES}


class Silent(asyncio.Transport):
    """A transport without a socket."""

    def pause_reading(self) -> None:
        pass


def filled(size: int) -> FrameStream:
    stream = FrameStream()
    stream.connection_made(Silent())
    stream.data_received(bytes(size))
    return stream


async def test_one_chunk_is_read_at_a_time_over_all_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "PACE_S", PACE_S)
    unfinished, clock = Unfinished(), asyncio.get_running_loop()
    began_s = clock.time()

    async def receive(size: int) -> float:
        receipt = unfinished.begin(lambda: None)
        assert len(await filled(size).rest(size, receipt)) == size
        receipt.end()
        return clock.time() - began_s

    large, other, small = await asyncio.gather(
        receive(3 * CHUNK_BYTES), receive(3 * CHUNK_BYTES), receive(CHUNK_BYTES)
    )
    assert small < large < other
    assert other >= 4 * PACE_S
    assert unfinished.bytes == 0
