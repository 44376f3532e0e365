"""The interpreter's lock: how the thread that writes the log gets it in time.

It needs the lock twice a group, to take what is queued and to report what is synced; each time a
loop that is busy keeps it for as long as the interpreter lets it. By Python's own measure that is
5 ms, longer than the sync.
"""

from __future__ import annotations

import sys

SWITCH_INTERVAL_S = 0.0005


def switch_soon() -> None:
    """Let threads that wait for the interpreter have it after half a millisecond."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
