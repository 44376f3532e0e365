"""Memory and open files of processes over time, and whether they are flat.

A life is one process. What it does while it warms up (its first seconds; until the log's tail cache
is full) is growth by design, so the samples before that are left out. Of the rest, the median of
the last third is held against that of the first: medians, since a snapshot that is being written
or a client that comes and goes is no leak.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

from quorate.cli.bench.workloads import resident_mib
from quorate.cli.output import CommandError

WARM_UP_S = 20.0
WARM_UP_BYTES = 24 << 20
"""More than the tail cache (16 MiB) holds."""

SAMPLES_MIN = 12
"""A life with fewer samples after its warm-up says nothing."""

GROWTH_MIB_MAX = 8.0
GROWTH_PART_MAX = 0.10
"""Memory is flat if it grew by less than the larger of the two."""

FDS_GROWTH_MAX = 4
"""Connections of clients and peers come and go."""


@dataclass(frozen=True, slots=True)
class Sample:
    at_s: float
    written_bytes: int
    rss_mib: float
    fds: int


@dataclass(slots=True)
class Life:
    """One process. written_bytes of a sample: of the whole quorum, since the run began."""

    node_id: int
    pid: int
    samples: list[Sample] = field(default_factory=list)

    def sample(self, written_bytes: int) -> None:
        """Look at the process; nothing if it is gone."""
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, CommandError):
            rss_mib = resident_mib(self.pid)
            fds = sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())
            self.samples.append(Sample(time.monotonic(), written_bytes, rss_mib, fds))

    @property
    def warm(self) -> list[Sample]:
        """The samples after the warm-up."""
        if not self.samples:
            return []
        first = self.samples[0]
        return [
            each
            for each in self.samples
            if each.at_s - first.at_s >= WARM_UP_S
            and each.written_bytes - first.written_bytes >= WARM_UP_BYTES
        ]

    @property
    def trend(self) -> Trend | None:
        """None if the life was too short."""
        warm = self.warm
        if len(warm) < SAMPLES_MIN:
            return None
        third = len(warm) // 3
        first, last = warm[:third], warm[-third:]
        return Trend(
            self.node_id,
            self.pid,
            len(warm),
            round(warm[-1].at_s - warm[0].at_s, 1),
            round(statistics.median(each.rss_mib for each in first), 1),
            round(statistics.median(each.rss_mib for each in last), 1),
            round(max(each.rss_mib for each in warm), 1),
            statistics.median(each.fds for each in first),
            statistics.median(each.fds for each in last),
            max(each.fds for each in warm),
        )


@dataclass(frozen=True, slots=True)
class Trend:
    """Medians of the first and the last third of a life after its warm-up; MiB, seconds."""

    node_id: int
    pid: int
    samples: int
    seconds: float
    rss_first_mib: float
    rss_last_mib: float
    rss_max_mib: float
    fds_first: float
    fds_last: float
    fds_max: int

    @property
    def is_flat(self) -> bool:
        grown = self.rss_last_mib - self.rss_first_mib
        return (
            grown <= max(GROWTH_MIB_MAX, self.rss_first_mib * GROWTH_PART_MAX)
            and self.fds_last - self.fds_first <= FDS_GROWTH_MAX
        )
