"""A node's clock: it may run fast or slow, jump, or be set back; what it shows never decreases.

A clock that is set back stands still until it catches up: that is what the driver owes the protocol
(`now_ms` never decreases).
"""

from __future__ import annotations

from tests.simulation.scheduler import MS

TRUE_RATE = 1_000
"""Thousandths of a local microsecond per true microsecond."""


class Clock:
    """Local milliseconds as a function of true microseconds: `_start_ms`, and what has passed here
    since. While the rate is the true one, that is `_ahead_us` more than the true time.
    """

    __slots__ = (
        "_ahead_us", "_anchor_local_us", "_anchor_true_us", "_last_ms", "_start_ms", "rate",
        "was_changed",
    )  # fmt: skip

    def __init__(self, start_ms: int) -> None:
        self._start_ms = start_ms
        self._anchor_true_us = 0
        self._anchor_local_us = 0
        self._ahead_us = 0
        self.rate = TRUE_RATE
        self.was_changed = False
        self._last_ms = start_ms

    def now_ms(self, true_us: int) -> int:
        if self.rate == TRUE_RATE:
            now = self._start_ms + (true_us + self._ahead_us) // MS
        else:
            elapsed = (true_us - self._anchor_true_us) * self.rate // TRUE_RATE
            now = self._start_ms + (self._anchor_local_us + elapsed) // MS
        if now > self._last_ms:  # noqa: PLR1730 - once an event: a call costs more
            self._last_ms = now
        return self._last_ms

    def when_us(self, local_ms: int) -> int:
        """The true time at which this clock shows `local_ms`."""
        left_us = (local_ms - self._start_ms) * MS - self._anchor_local_us
        return self._anchor_true_us - (-left_us * TRUE_RATE // self.rate)

    def change(self, true_us: int, *, rate: int | None = None, jump_us: int = 0) -> None:
        """From now on, run at `rate`; `jump_us` (may be negative) is added at once."""
        elapsed = (true_us - self._anchor_true_us) * self.rate // TRUE_RATE
        self._anchor_local_us += elapsed + jump_us
        self._anchor_true_us = true_us
        self._ahead_us = self._anchor_local_us - true_us
        self.was_changed = True
        if rate is not None:
            self.rate = rate
