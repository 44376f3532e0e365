"""Delays repeated attempts that fail: per target, exponentially, and with jitter.

Without a delay, a spec that the API server rejects would cost requests without end. Without jitter,
the Quorums of one operator would repeat their attempts at the same time after an outage.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from quorate_operator.values import ActionFailure

FIRST_S = 2.0
"""The longest delay after the first failure; each further failure doubles it."""
LONGEST_S = 120.0


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


@dataclass(slots=True)
class Backoff:
    """The failed attempts of one Quorum, by target (`values.targets`)."""

    clock: Callable[[], float] = time.monotonic
    _failed: dict[str, _Failed] = field(default_factory=dict)

    def failed(self, target: str, text: str, longest_s: float = LONGEST_S) -> None:
        """Note that an attempt failed now."""
        earlier = self._failed.get(target)
        count = 1 + (earlier.count if earlier else 0)
        self._failed[target] = _Failed(text, count, self.clock() + delay_s(count, longest_s))

    def succeeded(self, targets: Iterable[str]) -> None:
        for target in targets:
            self._failed.pop(target, None)

    def forget(self) -> None:
        """Let every attempt be due, such as after a change of the spec."""
        self._failed.clear()

    def has_failed(self, targets: Iterable[str]) -> bool:
        """Whether the last attempt of one of these targets failed."""
        return any(target in self._failed for target in targets)

    @property
    def failures(self) -> tuple[ActionFailure, ...]:
        """The failures whose next attempt is not due."""
        now = self.clock()
        waiting = {name: each for name, each in self._failed.items() if each.due_at > now}
        return tuple(ActionFailure(name, each.text) for name, each in sorted(waiting.items()))

    @property
    def due_in_s(self) -> float | None:
        """The time until the first of these attempts is due; None without one."""
        now = self.clock()
        left = [each.due_at - now for each in self._failed.values() if each.due_at > now]
        return min(left, default=None)
