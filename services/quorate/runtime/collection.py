"""The garbage collector, paused while very many objects are made that stay.

A million new objects, none of them garbage: looking for some takes longer than making them. Pauses
may overlap, in whatever threads: the last to end lets the collector run again, if it ran before.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager


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
