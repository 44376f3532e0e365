"""Which TLS handshakes give way to others, and in which order they begin."""

from __future__ import annotations

import asyncio

import pytest
from quorate.bridge.listener.connections import KafkaConnection
from quorate.bridge.listener.handshakes import Handshakes


class Lab:
    """Handshakes that note which of them were ended. The clock stands still."""

    def __init__(self, under_way_max: int = 10, per_address_max: int = 4, burst: int = 1) -> None:
        self.now_s = 0.0
        self.under_way = Handshakes(
            under_way_max, per_address_max, rate=1_000, burst=burst, now_s=lambda: self.now_s
        )
        self.ended: list[KafkaConnection] = []

    def enter(self, host: str) -> KafkaConnection:
        made = KafkaConnection(host)
        made.end = lambda _reason: self.ended.append(made)
        self.under_way.enter(made)
        return made


def test_an_address_with_too_many_gives_up_its_oldest() -> None:
    lab = Lab()
    other = lab.enter("b")
    first, *_ = [lab.enter("a") for _ in range(5)]
    assert lab.ended == [first]
    assert (len(lab.under_way), lab.under_way.closed_count) == (5, 1)
    lab.under_way.leave(other)
    lab.under_way.leave(first)
    assert len(lab.under_way) == 4


def test_where_all_are_too_many_who_has_most_gives_way() -> None:
    lab = Lab(under_way_max=5)
    few = lab.enter("few")
    first, *_ = [lab.enter("many") for _ in range(4)]
    lab.enter("new")
    assert lab.ended == [first]
    assert few not in lab.ended
    assert len(lab.under_way) == 5


def test_one_that_is_over_makes_room() -> None:
    lab = Lab(per_address_max=1)
    for _ in range(100):
        lab.under_way.leave(lab.enter("a"))
    assert not lab.ended
    assert len(lab.under_way) == 0


async def test_addresses_take_turns() -> None:
    lab = Lab(per_address_max=100)
    begun: list[str] = []

    async def begin(host: str) -> None:
        await lab.under_way.turn(lab.enter(host))
        begun.append(host)

    hosts = ["a"] * 6 + ["b"] * 2 + ["c"]
    tasks = [asyncio.create_task(begin(host)) for host in hosts]
    await asyncio.sleep(0.05)
    assert begun == ["a"], "the clock stands still"
    for count in range(2, len(hosts) + 1):
        lab.now_s += 0.001
        async with asyncio.timeout(10):
            while len(begun) < count:  # noqa: ASYNC110 - a timer of the event loop brings it
                await asyncio.sleep(0.001)
        assert len(begun) == count
    assert begun == ["a", "a", "b", "c", "a", "b", "a", "a", "a"]
    await asyncio.gather(*tasks)


async def test_one_that_is_ended_while_it_waits_takes_no_turn() -> None:
    lab = Lab(per_address_max=100)
    await lab.under_way.turn(lab.enter("a"))
    waiting = [asyncio.create_task(lab.under_way.turn(lab.enter("a"))) for _ in range(3)]
    await asyncio.sleep(0)
    for each in waiting[:2]:
        each.cancel()
    await asyncio.sleep(0)
    lab.now_s += 0.001
    await asyncio.wait_for(waiting[2], 10)
    for each in waiting[:2]:
        with pytest.raises(asyncio.CancelledError):
            await each


async def test_no_more_than_the_burst_begin_after_a_pause() -> None:
    lab = Lab(per_address_max=100, burst=3)
    lab.now_s += 1_000.0
    for _ in range(3):
        await lab.under_way.turn(lab.enter("a"))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(lab.under_way.turn(lab.enter("a")), 0.05)
