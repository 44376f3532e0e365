"""Lets all threads allocate from few arenas.

By default glibc creates up to eight arenas per processor, one for each thread that finds the others
in use, and returns only the free memory at an arena's end. A process that gRPC's threads make hold
32 MiB for a moment, each in turn, thus keeps them several times. Source: mallopt(3), M_ARENA_MAX.
"""

from __future__ import annotations

import ctypes

M_ARENA_MAX = -8

ARENAS_MAX = 2
"""One that the event loop's thread uses, and one for the other threads."""


def limit_arenas() -> None:
    """Limit the arenas of this process. Has no effect on other allocators than glibc's."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, ARENAS_MAX)
