"""Delays repeated attempts that fail: per target, exponentially, and with jitter.

Without a delay, a spec that the API server rejects would cost requests without end. Without jitter,
the Quorums of one operator would repeat their attempts at the same time after an outage.

An attempt also fails if it succeeds but does not last: an admission webhook or another program
undoes it. Once may be anybody's doing and is repaired at once. What is undone again within LASTS_S
counts as failed, and so the rest of the plan goes on.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from quorate_operator.planning.values import ActionFailure

FIRST_S = 2.0
"""The longest delay after the first failure; each further failure doubles it."""
LONGEST_S = 120.0
LASTS_S = 300.0
"""What was done so long ago, and is to be done again, was not undone in a row."""


def delay_s(failures: int, longest_s: float = LONGEST_S) -> float:
    """The delay after a number of failures in a row: between half of the full delay and all."""
    exponent = min(failures - 1, 16)
    return min(longest_s, FIRST_S * 2.0**exponent) * random.uniform(0.5, 1.0)  # noqa: S311


@dataclass(slots=True)
class _Failed:
    """A target whose last attempt failed."""

    text: str
    count: int
    """How many attempts failed in a row."""
    due_at: float
    """When the next attempt is due, on the clock."""
    is_undone: bool = False
    """Whether it succeeded, but did not last."""


@dataclass(slots=True)
class _Done:
    """The last successful attempt of a target."""

    stamp: str
    """What was done. Something else that is to be done was not undone."""
    at: float
    undone: int
    """How often in a row it was undone."""
    is_checked: bool = False
    """Whether it was counted that this attempt was undone."""


@dataclass(slots=True)
class Backoff:
    """The failed attempts of one Quorum, by target (`values.targets`)."""

    clock: Callable[[], float] = time.monotonic
    _failed: dict[str, _Failed] = field(default_factory=dict)
    _done: dict[str, _Done] = field(default_factory=dict)

    def failed(self, target: str, text: str, longest_s: float = LONGEST_S) -> None:
        """Note that an attempt failed now."""
        earlier = self._failed.get(target)
        count = 1 + (earlier.count if earlier else 0)
        self._failed[target] = _Failed(text, count, self.clock() + delay_s(count, longest_s))

    def succeeded(self, target: str, stamp: str) -> None:
        """Note that an attempt succeeded now. stamp: what it did; the same for the same."""
        self._failed.pop(target, None)
        now, earlier = self.clock(), self._done.get(target)
        is_same = earlier is not None and earlier.stamp == stamp and now - earlier.at <= LASTS_S
        undone = earlier.undone if earlier is not None and is_same else 0
        self._done[target] = _Done(stamp, now, undone)

    def is_undone(self, target: str, stamp: str) -> bool:
        """Count that an attempt is to be repeated. Return whether it failed by that.

        If so, the caller says why with `undone`.
        """
        now, done = self.clock(), self._done.get(target)
        if done is None or done.is_checked or done.stamp != stamp or now - done.at > LASTS_S:
            return False
        done.is_checked = True
        done.undone += 1
        return done.undone > 1

    def undone(self, target: str, text: str, longest_s: float = LONGEST_S) -> None:
        """Note that the last attempt did not last. text: what is known about the reason."""
        count = max(1, self._done[target].undone - 1)
        due_at = self.clock() + delay_s(count, longest_s)
        self._failed[target] = _Failed(text, count, due_at, is_undone=True)

    def supersede(self, target: str, stamp: str) -> None:
        """Let an attempt be due if what was undone is not wanted any more."""
        failed, done = self._failed.get(target), self._done.get(target)
        if failed is not None and failed.is_undone and done is not None and done.stamp != stamp:
            del self._failed[target], self._done[target]

    def forget(self) -> None:
        """Let every attempt be due, such as after a change of the spec."""
        self._failed.clear()
        self._done.clear()

    def has_failed(self, targets: Iterable[str]) -> bool:
        """Whether the last attempt of one of these targets failed."""
        return any(target in self._failed for target in targets)

    def have_been_undone(self, targets: Iterable[str]) -> bool:
        """Whether the last attempt of one of these targets did not last."""
        return any(self._failed[each].is_undone for each in targets if each in self._failed)

    @property
    def failures(self) -> tuple[ActionFailure, ...]:
        """The failures whose next attempt is not due."""
        now = self.clock()
        waiting = {name: each for name, each in self._failed.items() if each.due_at > now}
        return tuple(
            ActionFailure(name, each.text, each.is_undone) for name, each in sorted(waiting.items())
        )

    @property
    def due_in_s(self) -> float | None:
        """The time until the first of these attempts is due; None without one."""
        now = self.clock()
        left = [each.due_at - now for each in self._failed.values() if each.due_at > now]
        return min(left, default=None)
