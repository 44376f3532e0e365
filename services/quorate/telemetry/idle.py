"""How much of its time an event loop waits: poll-idle-ratio.

A loop that is always busy delays everything it does; this is the first number to look at when
commits are slow and the disk is not. Source: KIP-595, "Metrics".
"""

from __future__ import annotations

import asyncio
import selectors
import time


class IdleSelector(selectors.DefaultSelector):
    """A selector that adds up the seconds it spent waiting. Costs two readings of a clock a turn of
    the loop.
    """

    def __init__(self) -> None:
        super().__init__()
        self.idle_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        began = time.perf_counter()
        try:
            return super().select(timeout)
        finally:
            self.idle_s += time.perf_counter() - began


class MeasuredLoop(asyncio.SelectorEventLoop):
    """An event loop that knows how long it has waited so far, in seconds."""

    def __init__(self) -> None:
        self.selector = IdleSelector()
        super().__init__(self.selector)

    @property
    def idle_s(self) -> float:
        return self.selector.idle_s


def idle_seconds(loop: asyncio.AbstractEventLoop) -> float | None:
    """What a `MeasuredLoop` has waited; None for any other loop."""
    return loop.idle_s if isinstance(loop, MeasuredLoop) else None


__all__ = ["IdleSelector", "MeasuredLoop", "idle_seconds"]
