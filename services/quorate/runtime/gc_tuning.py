"""The garbage collector: how it is kept from making commits wait.

Rules:
1. While very many objects are made that stay, it is paused. A million new objects, none of them
   garbage: looking for some takes longer than making them. Pauses may overlap, in whatever threads:
   the last to end lets the collector run again, if it ran before.
2. What is loaded when a process begins to serve is never looked at again, and what is made from
   then on often, so that there is little to look at: a hundred calls that are parked are some
   thousands of objects, and Python's own thresholds gather them until one look takes 10 ms.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

THRESHOLDS = (250, 2, 300)
"""New objects until the young are looked at, how often that until the next generation is, and how
often that until all are: every quarter of a million, where nearly everything is freed by its count.
"""


class _Pauses:
    """How many there are, and whether the collector ran before the first."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.ran_before = False

    def begin(self) -> None:
        with self.lock:
            if self.count == 0:
                self.ran_before = gc.isenabled()
                gc.disable()
            self.count += 1

    def end(self, *, freeze: bool) -> None:
        with self.lock:
            if freeze:
                # First: what was made is young, and the collector would look at all of it at once.
                gc.freeze()
            self.count -= 1
            if self.count == 0 and self.ran_before:
                gc.enable()


_PAUSES = _Pauses()


@contextmanager
def collection_paused(*, freeze: bool = False) -> Iterator[None]:
    """No automatic collection until the block is left, by whatever way.

    freeze: what there is after a block that did not fail is never looked at again.
    """
    _PAUSES.begin()
    succeeded = False
    try:
        yield
        succeeded = True
    finally:
        _PAUSES.end(freeze=freeze and succeeded)


def collect_briefly() -> None:
    """Let what there is be, and look at what comes in small steps (rule 2)."""
    gc.collect()
    gc.freeze()
    if sys.version_info < (3, 14):  # from then on it takes small steps by itself
        gc.set_threshold(*THRESHOLDS)
