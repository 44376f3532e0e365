"""Compares what a Quorum's status said, second by second, with what its log acknowledged."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

SILENT_MAX_S = 15.0
"""A status may say Ready for so long while nothing commits."""


class Sample(NamedTuple):
    """A Quorum at one time.

    at: seconds since the epoch. ready, quorate: these conditions, "" if the API server did not
    answer. reason: of the condition Ready. has_operator: whether a ready pod of the operator held a
    lease that it had renewed lately.
    """

    at: float
    ready: str
    quorate: str
    reason: str
    has_operator: bool

    @property
    def is_answered(self) -> bool:
        return bool(self.ready)

    @property
    def can_change(self) -> bool:
        """Whether anybody could have updated the status."""
        return self.is_answered and self.has_operator


class Count(NamedTuple):
    """How many appends had been acknowledged at a time."""

    at: float
    acknowledged: int


class Period(NamedTuple):
    """From and until when, seconds since the epoch."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


def commits(counts: Sequence[Count]) -> list[float]:
    """The times after each of which something had been committed since the time before."""
    found, before = [], 0
    for each in counts:
        if each.acknowledged > before:
            found.append(each.at)
            before = each.acknowledged
    return found


def silences(counts: Sequence[Count], longer_than_s: float = SILENT_MAX_S) -> list[Period]:
    """When nothing committed for longer than this."""
    times = commits(counts)
    if counts:
        times.append(counts[-1].at)
    return [
        Period(before, after) for before, after in pairwise(times) if after - before > longer_than_s
    ]


def false_claims(samples: Sequence[Sample], counts: Sequence[Count]) -> list[Period]:
    """When the status said Ready for longer than SILENT_MAX_S while nothing was committed.

    A client needs a moment to notice that a quorum is ready again. A sample counts only if the
    operator and the API server were there: without them, nobody can update a status.
    """
    times = commits(counts)
    last = counts[-1].at if counts else 0.0
    found: list[Period] = []
    ready_since: float | None = None
    for sample in samples:
        if not sample.can_change or sample.ready != "True":
            ready_since = None
            continue
        if ready_since is None:
            ready_since = sample.at
        position = bisect_right(times, sample.at)
        # Before the first commit nothing is known, and after the last count neither.
        if position == 0 or sample.at > last:
            continue
        begin = max(times[position - 1], ready_since)
        if sample.at - begin > SILENT_MAX_S:
            if found and found[-1].begin == begin:
                found.pop()
            found.append(Period(begin, sample.at))
    return found
