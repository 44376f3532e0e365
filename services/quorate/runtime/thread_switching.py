"""Lets the log's writer thread acquire the interpreter lock in time.

The thread needs the lock twice per group commit: to take the queued batches, and to report the
sync. Each time, a busy event loop keeps the lock for a full switch interval. Python's default
interval is 5 ms, longer than the sync itself.
"""

from __future__ import annotations

import sys

SWITCH_INTERVAL_S = 0.0005


def switch_soon() -> None:
    """Make a thread yield the interpreter lock after half a millisecond if others wait for it."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
