"""Appends that wait for their commit, and the results that they get."""

from __future__ import annotations

import asyncio

from quorate.runtime.pending_appends import CommitOutcome, CommitQueue, PendingAppend
from quorate.telemetry.histogram import Histogram


def pending(base: int, count: int = 1, deadline_ms: int = 100) -> PendingAppend:
    future = asyncio.get_running_loop().create_future()
    return PendingAppend(count, bytearray(10), deadline_ms, future, base)


def ended(each: PendingAppend) -> object:
    return each.future.result() if each.future.done() else None


async def test_a_commit_answers_what_lies_wholly_before_the_high_watermark() -> None:
    queue = CommitQueue(Histogram())
    appends = [pending(5), pending(6, count=3), pending(9)]
    for each in appends:
        queue.add(each)
    assert queue.pending_bytes == 30
    queue.committed(8)
    assert [ended(each) for each in appends] == [(5, CommitOutcome.COMMITTED), None, None]
    assert (queue.pending_bytes, len(queue)) == (20, 2)
    queue.committed(9)
    assert [ended(each) for each in appends[1:]] == [(6, CommitOutcome.COMMITTED), None]
    queue.committed(10)
    assert queue.pending_bytes == 0


async def test_a_lost_leadership_answers_everybody_once() -> None:
    queue = CommitQueue(Histogram())
    appends = [pending(base) for base in range(3)]
    for each in appends:
        queue.add(each)
    queue.leadership_lost()
    assert [ended(each) for each in appends] == [
        (n, CommitOutcome.LEADERSHIP_LOST) for n in range(3)
    ]
    assert (queue.pending_bytes, len(queue)) == (0, 0)
    queue.committed(10)


async def test_who_is_too_late_keeps_its_place() -> None:
    queue = CommitQueue(Histogram())
    early, late = pending(0, deadline_ms=50), pending(1, deadline_ms=200)
    queue.add(early)
    queue.add(late)
    queue.expire(49)
    assert ended(early) is None
    queue.expire(50)
    assert [ended(early), ended(late)] == [(0, CommitOutcome.TIMED_OUT), None]
    assert queue.pending_bytes == 20
    queue.committed(2)
    assert ended(early) == (0, CommitOutcome.TIMED_OUT)
    assert ended(late) == (1, CommitOutcome.COMMITTED)
