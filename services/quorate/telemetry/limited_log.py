"""A log that strangers cannot fill: lines about what somebody does wrong again and again.

Rules:
1. There is a line for each event while they are few: `burst` at once, and one in `interval_s` in
   the long run, for each key apart. Whoever causes thousands a second must not fill the disk.
2. What is left out is counted, and the next line about the same key tells how many.
3. At most `keys_max` keys are told apart, since strangers choose them. A new one takes the place of
   one that has been quiet; while none has, all new ones share a key.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

KEYS_MAX = 1_024


@dataclass(slots=True)
class _Bucket:
    """What is left of one key's lines. at_s: as of then."""

    lines: float
    at_s: float
    untold: int = 0


class LimitedLog:
    """Writes warnings to a logger within these limits. clock: seconds that never decrease."""

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
        """The key that had a line the longest time ago is the first."""

    def warning(self, key: Hashable, text: str, *args: object) -> None:
        """A line about `key`, or one more that is left out."""
        bucket = self._bucket(key)
        if bucket.lines < 1:
            bucket.untold += 1
            return
        bucket.lines -= 1
        if key in self._buckets:
            self._buckets[key] = self._buckets.pop(key)
        if bucket.untold:
            text, args = f"{text} (%d more before it were left out)", (*args, bucket.untold)
            bucket.untold = 0
        self._logger.warning(text, *args, stacklevel=2)

    def _bucket(self, key: Hashable) -> _Bucket:
        """The key's, or the one that it shares (rule 3), as of now."""
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
        """Whether there is room for another key now. What was left out of it is told by others."""
        quiet, bucket = next(iter(self._buckets.items()))
        if self._refilled(bucket, now_s).lines < self._burst:
            return False
        del self._buckets[quiet]
        self._shared.untold += bucket.untold
        return True
