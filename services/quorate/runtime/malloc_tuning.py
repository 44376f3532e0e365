"""Large buffers go back to the system as soon as they are done with.

glibc learns from the first large buffer that is freed to take the next ones, up to 32 MiB, from the
heap. Pieces of snapshots then lie between small things that stay, and what a process holds grows by
a step each time it leads a replica back. Source: mallopt(3), M_MMAP_THRESHOLD.
"""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3

LARGE_BYTES = 512 * 1024
"""More than a commit takes: its buffers stay in the heap, where they cost less."""
KEPT_BYTES = 16 * 1024 * 1024
"""Free memory at the heap's end that is kept for what comes next."""


def return_large_buffers() -> None:
    """Fix the limits that glibc would move. Another allocator is left as it is."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
