"""Time for the protocol: milliseconds since 1970 that never go back, whatever the wall clock
does.
"""

from __future__ import annotations

import time


class Clock:
    """Wall-clock time at the start, advanced by the monotonic clock.

    DescribeQuorum reports these times to people, so they are near the wall clock; timers need them
    monotonic, so a step of the wall clock is not followed.
    """

    def __init__(self) -> None:
        self._base_ms = time.time_ns() // 1_000_000 - time.monotonic_ns() // 1_000_000

    def now_ms(self) -> int:
        return self._base_ms + time.monotonic_ns() // 1_000_000
