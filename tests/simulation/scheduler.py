"""One event queue and one time for the whole cluster.

Time is an integer of microseconds since the start. Events at the same microsecond run in the order
in which they were scheduled, so that a seed gives one trace only.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from tests.simulation.errors import InvariantError

Event = tuple[int, int, Callable[..., None], tuple[Any, ...]]

MS = 1_000
SECOND = 1_000_000

EVENTS_MAX = 500_000
"""No run needs more: a cluster that does is spinning."""


class Scheduler:
    """A queue of (time, number, function, arguments)."""

    __slots__ = ("events", "heap", "now", "number")

    def __init__(self) -> None:
        self.heap: list[Event] = []
        self.now = 0
        self.number = 0
        self.events = 0

    def after(self, delay_us: int, function: Callable[..., None], *args: Any) -> None:
        """Run `function(*args)` when this many microseconds have passed."""
        self.number = number = self.number + 1
        heappush(self.heap, (self.now + delay_us, number, function, args))

    def at(self, time_us: int, function: Callable[..., None], *args: Any) -> None:
        """Run `function(*args)` at that time, which is not in the past."""
        self.number += 1
        heappush(self.heap, (max(time_us, self.now), self.number, function, args))

    def run_until(self, time_us: int) -> None:
        """Run everything that is due before or at that time. Raise if that never ends."""
        heap, count, limit = self.heap, 0, EVENTS_MAX
        try:
            while heap and count <= limit:
                event = heappop(heap)
                now, _, function, args = event
                if now > time_us:
                    heappush(heap, event)
                    break
                self.now = now
                count += 1
                function(*args)
        finally:
            self.events += count
        if self.events > EVENTS_MAX:
            text = f"{self.events} events in {self.now / SECOND:.1f} simulated seconds"
            raise InvariantError("Livelock", text)
        self.now = max(self.now, time_us)
