"""Tunes the garbage collector so that it does not delay commits.

Rules:
1. The collector is paused while very many long-lived objects are created. With a million new
   objects, none of them garbage, scanning takes longer than creating them. Pauses may overlap, also
   across threads: the end of the last pause enables the collector again, if it was enabled before.
2. Objects that exist when a process begins to serve are never scanned again. Objects created later
   are scanned often, so that each scan is short: a hundred parked calls are some thousands of
   objects, and with Python's default thresholds one scan of them takes 10 ms.
3. Only a node's own process freezes objects. A program that embeds a node has garbage of its own.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

THRESHOLDS = (250, 2, 300)
"""The thresholds of `gc.set_threshold`.

The first is the number of new objects per scan of the young generation, the second the number of
those scans per scan of the middle generation, the third the number of those per full scan.
Reference counting frees nearly everything, so a full scan per quarter of a million is enough.
"""


class _Pauses:
    """The number of pauses, and whether the collector was enabled before the first."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.ran_before = False
        self.may_freeze = False

    def begin(self) -> None:
        with self.lock:
            if self.count == 0:
                self.ran_before = gc.isenabled()
                gc.disable()
            self.count += 1

    def end(self, *, freeze: bool) -> None:
        with self.lock:
            if freeze and self.may_freeze:
                # Before enabling: the next scan would visit all of the new objects at once.
                gc.freeze()
            self.count -= 1
            if self.count == 0 and self.ran_before:
                gc.enable()


_PAUSES = _Pauses()


@contextmanager
def collection_paused(*, freeze: bool = False) -> Iterator[None]:
    """Disable automatic collection within the block, also if it raises.

    freeze: after a block that did not raise, all existing objects are never scanned again, if
    `allow_freezing` was called.
    """
    _PAUSES.begin()
    succeeded = False
    try:
        yield
        succeeded = True
    finally:
        _PAUSES.end(freeze=freeze and succeeded)


def allow_freezing() -> None:
    """Let `collection_paused` freeze objects (rule 3)."""
    _PAUSES.may_freeze = True


def collect_briefly() -> None:
    """Freeze the existing objects, and scan new ones in small steps (rule 2)."""
    gc.collect()
    gc.freeze()
    if sys.version_info < (3, 14):  # later versions collect incrementally
        gc.set_threshold(*THRESHOLDS)
