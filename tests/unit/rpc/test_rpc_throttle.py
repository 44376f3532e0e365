"""Fair shares: who asks little never waits, and what waits is bounded."""

from __future__ import annotations

import asyncio
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from quorate.rpc.throttle import Throttle


def test_a_lone_caller_never_waits() -> None:
    throttle = Throttle(calls_max=5)
    assert not any(throttle.must_wait("a", 1_000) for _ in range(100))


def test_while_there_is_room_nobody_waits() -> None:
    throttle = Throttle(calls_max=10)
    assert not any(throttle.must_wait(peer, 1_000) for peer in "ababababab")


def test_beyond_it_who_had_its_share_waits_and_a_newcomer_does_not() -> None:
    throttle = Throttle(calls_max=10)
    for _ in range(10):
        throttle.must_wait("greedy", 1_000)
    assert not throttle.must_wait("modest", 1_010)
    assert throttle.must_wait("greedy", 1_020)
    assert not throttle.must_wait("greedy", 1_060), "the next window has room again"


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 20)), max_size=300))
def test_the_first_call_of_a_connection_in_a_window_never_waits(
    calls: list[tuple[str, int]],
) -> None:
    throttle = Throttle(calls_max=4)
    now_ms = 0
    seen: Counter[tuple[str, int]] = Counter()
    for peer, pause_ms in calls:
        now_ms += pause_ms
        window = now_ms // throttle.window_ms
        waits = throttle.must_wait(peer, now_ms)
        assert not (waits and seen[peer, window] == 0)
        seen[peer, window] += 1


async def test_what_waits_is_bounded_and_the_rest_is_refused() -> None:
    throttle = Throttle(
        calls_max=1,
        window_ms=1_000_000,
        delay_max_ms=50,
        waiting_max=6,
        waiting_per_connection_max=4,
        refused_max=3,
    )
    throttle.must_wait("a", 0)
    asked = [throttle.is_refused(peer) for peer in "ab" * 20]
    refused = await asyncio.gather(*asked)
    assert sum(refused) >= 40 - 6 - 3
    assert throttle._waiting == 0
    assert throttle._refused == 0
    assert not throttle._waiting_of
