"""A rate-limited log, for repeated lines that untrusted clients cause.

Rules:
1. Each key may log `burst` lines at once, and one per `interval_s` in the long run. A client that
   causes thousands of events a second must not fill the disk.
2. Suppressed lines are counted, and the next line of the same key reports their number.
3. At most `keys_max` keys are tracked, since untrusted clients choose them. A new key evicts the
   least recently logged one if that may log a full burst again. Otherwise all new keys share one
   limit.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

KEYS_MAX = 1_024


@dataclass(slots=True)
class _Bucket:
    """The lines that one key may still log, as of `at_s`."""

    lines: float
    at_s: float
    untold: int = 0
    """The number of suppressed lines."""


class LimitedLog:
    """Writes lines to a logger within these limits. clock: monotonic seconds."""

    def __init__(
        self,
        logger: logging.Logger,
        *,
        burst: int = 1,
        interval_s: float,
        keys_max: int = KEYS_MAX,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logger = logger
        self._burst = burst
        self._interval_s = interval_s
        self._keys_max = keys_max
        self._clock = clock
        self._shared = _Bucket(burst, clock())
        self._buckets: dict[Hashable, _Bucket] = {}
        """The least recently logged key comes first."""

    def warning(self, key: Hashable, text: str, *args: object) -> None:
        """Log a WARNING about `key`, or count it as suppressed."""
        self.log(logging.WARNING, key, text, *args)

    def log(self, level: int, key: Hashable, text: str, *args: object) -> None:
        """Log a line about `key` at `level`, or count it as suppressed."""
        bucket = self._bucket(key)
        if bucket.lines < 1:
            bucket.untold += 1
            return
        bucket.lines -= 1
        if key in self._buckets:
            self._buckets[key] = self._buckets.pop(key)
        if bucket.untold:
            text, args = f"{text} (%d earlier messages suppressed)", (*args, bucket.untold)
            bucket.untold = 0
        self._logger.log(level, text, *args, stacklevel=3)

    def _bucket(self, key: Hashable) -> _Bucket:
        """The refilled bucket of `key`, or the shared one (rule 3)."""
        now_s = self._clock()
        found = self._buckets.get(key)
        if found is None:
            if len(self._buckets) >= self._keys_max and not self._forget_one(now_s):
                return self._refilled(self._shared, now_s)
            found = self._buckets[key] = _Bucket(self._burst, now_s)
        return self._refilled(found, now_s)

    def _refilled(self, bucket: _Bucket, now_s: float) -> _Bucket:
        gained = (now_s - bucket.at_s) / self._interval_s
        bucket.lines = min(self._burst, bucket.lines + gained)
        bucket.at_s = now_s
        return bucket

    def _forget_one(self, now_s: float) -> bool:
        """Evict the first key if it may log a full burst. Returns whether it was evicted.

        The shared bucket takes over its count of suppressed lines.
        """
        quiet, bucket = next(iter(self._buckets.items()))
        if self._refilled(bucket, now_s).lines < self._burst:
            return False
        del self._buckets[quiet]
        self._shared.untold += bucket.untold
        return True
