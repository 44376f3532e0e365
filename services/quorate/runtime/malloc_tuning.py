"""Returns large buffers to the system as soon as they are freed.

Once a large buffer has been freed, glibc allocates later ones, of up to 32 MiB, on the heap. Chunks
of snapshots then lie between small objects that stay alive, and the memory of a process grows by a
step each time it brings a replica up to date. Source: mallopt(3), M_MMAP_THRESHOLD.
"""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3

LARGE_BYTES = 512 * 1024
"""More than a commit needs: its buffers stay on the heap, where they are cheaper."""
KEPT_BYTES = 16 * 1024 * 1024
"""Free memory at the end of the heap that is kept for later allocations."""


def return_large_buffers() -> None:
    """Fix the thresholds that glibc would adapt. Has no effect on other allocators."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
