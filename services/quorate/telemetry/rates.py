"""Averages per second over a sliding window, computed from a total that the caller counts.

The total is sampled periodically, so that counting costs only an addition. Source: KIP-595,
"Metrics": Kafka's rates are averages over its metrics' window of 30 seconds.
"""

from __future__ import annotations

from collections import deque

WINDOW_S = 30.0


class Rate:
    """The average growth of a total in the last `window_s` seconds."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._samples: deque[tuple[float, float]] = deque()

    def sample(self, now_s: float, total: float) -> None:
        """Record the total at `now_s`. Call it about once a second, with non-decreasing times."""
        samples = self._samples
        samples.append((now_s, total))
        while len(samples) > 2 and samples[1][0] <= now_s - self._window_s:
            samples.popleft()

    def per_second(self) -> float:
        """The average rate; 0 until there are two samples."""
        if len(self._samples) < 2:
            return 0.0
        (first_s, first), (last_s, last) = self._samples[0], self._samples[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else 0.0
