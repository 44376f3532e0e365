"""One event queue and one time for the whole cluster.

Time is an integer of microseconds since the start. Events at the same microsecond run in the order
in which they were scheduled, so that a seed gives one trace only.

The queue is a sorted list, not a heap: some dozens of events wait at a time, and bisecting them
takes fewer comparisons than a heap does for a push and a pop.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from typing import Any

from tests.replica.errors import InvariantError

Event = tuple[int, int, Callable[..., None], tuple[Any, ...]]

MS = 1_000
SECOND = 1_000_000

EVENTS_MAX = 500_000
"""No run needs more: a cluster that does is spinning."""


class Scheduler:
    """A queue of (time, number, function, arguments), the next one first."""

    __slots__ = ("events", "now", "number", "queue")

    def __init__(self) -> None:
        self.queue: list[Event] = []
        self.now = 0
        self.number = 0
        self.events = 0

    def after(self, delay_us: int, function: Callable[..., None], *args: Any) -> None:
        """Run `function(*args)` when this many microseconds have passed."""
        self.number = number = self.number + 1
        insort(self.queue, (self.now + delay_us, number, function, args))

    def at(self, time_us: int, function: Callable[..., None], *args: Any) -> None:
        """Run `function(*args)` at that time, which is not in the past."""
        self.number += 1
        insort(self.queue, (max(time_us, self.now), self.number, function, args))

    def run_until(self, time_us: int) -> None:
        """Run everything that is due before or at that time. Raise if that never ends."""
        queue, count, limit = self.queue, 0, EVENTS_MAX
        try:
            while queue and count <= limit:
                now, _, function, args = queue[0]
                if now > time_us:
                    break
                del queue[0]
                self.now = now
                count += 1
                function(*args)
        finally:
            self.events += count
        if self.events > EVENTS_MAX:
            text = f"{self.events} events in {self.now / SECOND:.1f} simulated seconds"
            raise InvariantError("Livelock", text)
        self.now = max(self.now, time_us)
