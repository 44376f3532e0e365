"""Fair shares of a busy server: who asks much waits, who asks little does not.

A call costs a controller a fraction of a millisecond of its one thread. When more arrive than it
can serve at once, a few callers in tight loops would make everybody wait. Rules:

1. Time is cut into short windows. A window has room for `calls_max` calls; a connection's share is
   that, divided by the connections that called in it or in the one before. As long as there is
   room nobody waits; beyond, a connection that has had its share does.
2. Who waits is put off by a random time up to `delay_max_ms`, so that what was put off does not
   come back all at once, and is then served.
3. At most `waiting_max` calls wait, and `waiting_per_connection_max` of one connection. The ones
   beyond wait as long, then end with RESOURCE_EXHAUSTED: a refusal at once would only be followed
   by the next call. No more than `refused_max` do; the ones beyond are refused at once.

Elections never wait: Vote, BeginQuorumEpoch and EndQuorumEpoch do not come here, and messages on a
stream that is open are no calls.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field

WINDOW_MS = 50


@dataclass(slots=True)
class Throttle:
    """window_ms, delay_max_ms: milliseconds. `is_refused` is what callers ask."""

    calls_max: int = 60
    window_ms: int = WINDOW_MS
    delay_max_ms: int = 2_000
    waiting_max: int = 1_024
    waiting_per_connection_max: int = 64
    refused_max: int = 4_096
    _window: int = 0
    _calls: int = 0
    _of: Counter[str] = field(default_factory=Counter)
    _before: frozenset[str] = frozenset()
    _waiting: int = 0
    _waiting_of: Counter[str] = field(default_factory=Counter)
    _refused: int = 0

    async def is_refused(self, peer: str) -> bool:
        """Wait for one's turn; whether the call must end with RESOURCE_EXHAUSTED."""
        if not self.must_wait(peer, time.monotonic_ns() // 1_000_000):
            return False
        delay_s = random.uniform(0.1, 1.0) * self.delay_max_ms / 1000  # noqa: S311
        if (
            self._waiting >= self.waiting_max
            or self._waiting_of[peer] >= self.waiting_per_connection_max
        ):
            await self._put_off(delay_s)
            return True
        self._waiting += 1
        self._waiting_of[peer] += 1
        try:
            await asyncio.sleep(delay_s)
        finally:
            self._waiting -= 1
            self._waiting_of[peer] -= 1
            if not self._waiting_of[peer]:
                del self._waiting_of[peer]
        return False

    async def _put_off(self, delay_s: float) -> None:
        if self._refused >= self.refused_max:
            return
        self._refused += 1
        try:
            await asyncio.sleep(delay_s)
        finally:
            self._refused -= 1

    def must_wait(self, peer: str, now_ms: int) -> bool:
        """Count a call and say whether its connection has had its share (rule 1)."""
        window = now_ms // self.window_ms
        if window != self._window:
            self._before = frozenset(self._of) if window == self._window + 1 else frozenset()
            self._window, self._calls = window, 0
            self._of.clear()
        self._of[peer] += 1
        if self._calls < self.calls_max:
            self._calls += 1
            return False
        others = len(self._before | self._of.keys())
        if others == 1:
            return False
        return self._of[peer] > max(1, self.calls_max // others)
