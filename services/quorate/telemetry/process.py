"""The operating system's metrics of this process and its disk (Linux: /proc/self)."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

from quorate.telemetry.samples import Sample

_STARTED_S = time.time()


def process_samples(directory: Path) -> Iterator[Sample]:
    """`catalogue.PROCESS_METRICS`, except `formatted` and the metrics of connections.

    directory: any directory on the disk to measure; it need not exist yet.
    """
    yield Sample("start-time", _STARTED_S)
    yield Sample("cpu-time", time.process_time())
    yield Sample("resident-memory", _resident_bytes())
    yield Sample("open-files", len(list(Path("/proc/self/fd").iterdir())))
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield Sample("open-files-limit", limit)
    while not directory.exists() and directory != directory.parent:
        directory = directory.parent
    disk = os.statvfs(directory)
    yield Sample("disk-free", disk.f_bavail * disk.f_frsize)
    yield Sample("disk-size", disk.f_blocks * disk.f_frsize)


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
