"""Keeps the memory of a long-lived process flat: settings of glibc's allocator.

Large buffers. Once one has been freed, glibc allocates later ones, of up to 32 MiB, on the heap.
They then lie between small objects that stay alive, and the memory of a process grows by a step
each time it handles some.

Arenas. By default glibc creates up to eight per processor, one for each thread that finds the
others in use, and returns only the free memory at an arena's end. A process that gRPC's threads
make hold 32 MiB for a moment, each in turn, thus keeps them several times.

Source: mallopt(3), M_MMAP_THRESHOLD, M_ARENA_MAX.
"""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
M_ARENA_MAX = -8

LARGE_BYTES = 2 * 1024 * 1024
"""More than a chunk of a snapshot with its message, and less than what is seldom needed. Buffers up
to this size stay on the heap: the kernel takes several times as long to map and clear fresh pages
as it takes to receive what fills them.
"""
KEPT_BYTES = 16 * 1024 * 1024
"""Free memory at the end of the heap that is kept for later allocations."""
ARENAS_MAX = 2
"""One that the event loop's thread uses, and one for the other threads."""


def tune_malloc() -> None:
    """Return large buffers when they are freed, and share few arenas between all threads.

    Has no effect on other allocators than glibc's.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(M_ARENA_MAX, ARENAS_MAX)
