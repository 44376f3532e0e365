"""Fair shares: a light client never waits, and the queue is bounded."""

from __future__ import annotations

import asyncio
import math
import time

from hypothesis import given
from hypothesis import strategies as st
from quorate.rpc.server.throttle import (
    AHEAD_MAX_MS,
    BURST_MS,
    PUT_OFF_MAX_MS,
    REFUSALS_PER_SECOND,
    Throttle,
)


def test_a_lone_caller_never_waits() -> None:
    throttle = Throttle(calls_per_second=5)
    assert not any(throttle.delay_ms("a", 1_000.0) for _ in range(100))


def test_what_a_lone_caller_got_is_not_held_against_it() -> None:
    throttle = Throttle(calls_per_second=100)
    for _ in range(1_000):
        assert not throttle.delay_ms("fast", 1_000.0)
    assert not throttle.delay_ms("poller", 1_000.0)
    assert throttle.delay_ms("fast", 1_000.0) <= BURST_MS
    assert BURST_MS / 2 < throttle.delay_ms("fast", 1_000.0) < AHEAD_MAX_MS


def test_who_asked_once_does_not_count_as_busy_for_long() -> None:
    throttle = Throttle(calls_per_second=100)
    now_ms = 1_000.0
    waits = 0
    for call in range(10_000):
        if call % 1_000 == 0:
            assert not throttle.delay_ms("poller", now_ms)
        waits += throttle.delay_ms("fast", now_ms) > 0
        now_ms += 1.0
    # A poller's call is 10 to 30 ms of its share.
    assert waits <= 10 * 35


def test_a_burst_is_served_at_once() -> None:
    throttle = Throttle(calls_per_second=1_000)
    assert not any(throttle.delay_ms(peer, 1_000.0) for peer in "ababababab")


def test_beyond_it_who_had_its_share_waits_and_a_newcomer_does_not() -> None:
    throttle = Throttle(calls_per_second=200)
    throttle.delay_ms("other", 1_000.0)
    waits = [throttle.delay_ms("greedy", 1_000.0) for _ in range(30)]
    assert waits[0] == 0
    assert waits == sorted(waits)
    assert 60 < waits[-1] <= AHEAD_MAX_MS
    assert not throttle.delay_ms("modest", 1_000.0)
    assert not throttle.delay_ms("greedy", 1_000.0 + AHEAD_MAX_MS), "who stops asking is forgiven"


@given(
    st.integers(20, 2_000),
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 20)), max_size=300),
)
def test_who_asks_less_than_its_share_never_waits(rate: int, calls: list[tuple[str, int]]) -> None:
    """The modest one's share is the smallest: all nine connections busy, half less at random."""
    throttle = Throttle(calls_per_second=rate)
    now_ms, modest_ms = 0.0, 0.0
    for peer, pause_ms in calls:
        now_ms += pause_ms
        if now_ms >= modest_ms:
            assert not throttle.delay_ms("modest", now_ms)
            modest_ms = now_ms + 1.5 * 9 * 1_000 / rate
        throttle.delay_ms(peer, now_ms)


@given(st.integers(20, 2_000), st.integers(2, 50), st.integers(1, 10))
def test_what_is_served_is_bounded_however_many_ask(
    rate: int, connections: int, step_ms: int
) -> None:
    """Three seconds of callers that ask again as soon as they are served, two a connection."""
    throttle = Throttle(calls_per_second=rate)
    asks_ms = dict.fromkeys([(peer, call) for peer in range(connections) for call in "ab"], 0.0)
    served = 0
    for now_ms in range(0, 3_000, step_ms):
        for caller, at_ms in asks_ms.items():
            if at_ms <= now_ms:
                served += 1
                asks_ms[caller] = now_ms + throttle.delay_ms(str(caller[0]), float(now_ms))
    burst = connections * (2 + BURST_MS * rate / 1_000 / connections)
    # A clock that is capped lets a call of each connection through per cap.
    assert served <= 2 * (3 * rate + burst) + 4 * connections


def test_large_answers_count_as_the_calls_that_they_cost() -> None:
    throttle = Throttle(calls_per_second=1_000)
    throttle.delay_ms("other", 1_000.0)
    throttle.delay_ms("reader", 1_000.0)
    throttle.charge("reader", 400, 1_000.0)
    assert throttle.delay_ms("other", 1_050.0) == 0
    assert throttle.delay_ms("reader", 1_050.0) > BURST_MS
    assert throttle.delay_ms("reader", 1_000.0 + AHEAD_MAX_MS) == 0


def test_what_would_wait_too_long_is_refused_and_not_counted() -> None:
    throttle = Throttle(calls_per_second=2)
    throttle.delay_ms("other", 1_000.0)
    waits = [throttle.delay_ms("greedy", 1_000.0) for _ in range(20)]
    assert waits[-1] == AHEAD_MAX_MS
    assert throttle.delay_ms("greedy", 1_000.0 + AHEAD_MAX_MS) == 0


def test_the_more_are_refused_the_longer_each_waits_for_it() -> None:
    throttle = Throttle(calls_per_second=1)
    waits = []
    for refused in range(0, throttle.refused_max, 10):
        throttle._refused = refused
        waits.append(throttle.put_off_ms())
        a_second = 1_000 * refused / waits[-1]
        assert a_second <= REFUSALS_PER_SECOND or waits[-1] == PUT_OFF_MAX_MS
    assert waits == sorted(waits)
    assert waits[0] == AHEAD_MAX_MS


async def test_who_waits_for_so_long_only_is_refused_before_it_gives_up() -> None:
    throttle = Throttle(calls_per_second=1)
    throttle.delay_ms("other", time.monotonic() * 1_000)
    throttle.charge("greedy", 1_000)
    async with asyncio.timeout(AHEAD_MAX_MS / 1_000):
        assert await throttle.is_refused("greedy", lambda: 0.1)


async def test_who_waits_is_served_when_the_others_have_gone() -> None:
    throttle = Throttle(calls_per_second=10, refused_max=0)
    assert not await throttle.is_refused("poller")
    throttle._clocks["poller"] = math.inf  # busy until the test says otherwise
    calls = [asyncio.create_task(throttle.is_refused("fast")) for _ in range(5)]
    await asyncio.sleep(0)
    waiting = throttle._waiting
    assert waiting >= 3
    throttle._release_lone()
    await asyncio.sleep(0)
    assert throttle._waiting == waiting, "the poller is busy"
    del throttle._clocks["poller"]
    throttle._release_lone()
    assert not any(await asyncio.gather(*calls))
    assert throttle._waiting == 0
    assert not throttle._waiting_of


async def test_what_waits_is_bounded_and_the_rest_is_refused() -> None:
    throttle = Throttle(
        calls_per_second=1,
        waiting_max=6,
        waiting_per_connection_max=4,
        refused_max=3,
    )
    asked = [throttle.is_refused(peer) for peer in "ab" * 20]
    refused = await asyncio.gather(*asked)
    assert sum(refused) >= 40 - 6 - 3
    assert throttle._waiting == 0
    assert throttle._refused == 0
    assert not throttle._waiting_of
