"""Detects a node that accepts calls and answers none, because its event loop is blocked.

gRPC answers pings and accepts calls on its own threads, so keepalive does not detect this.

1. If a call waits and nothing was received for a quarter of the allowed silence, the client
   requests the node's status, which a running node answers at once whatever the other calls wait
   for. Any response counts, also an error.
2. If none arrives in the rest of that time, all waiting calls are abandoned.

A node that takes long for a single request is thus left alone. A client whose own loop was blocked
does not blame the node: the time for the response starts with the status request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

ASK_AFTER_SHARE = 0.25

Probe = Callable[[float], Awaitable[bool]]
"""Whether the node answers within this many milliseconds."""


class Waiter:
    """A call that waits for a response. `is_notified` is set once the node is silent."""

    __slots__ = ("_give_up", "is_notified")

    def __init__(self, give_up: Callable[[], object]) -> None:
        self._give_up = give_up
        self.is_notified = False

    def tell(self) -> None:
        self.is_notified = True
        self._give_up()


class SilenceWatch:
    """The watch of one node. silence_ms: how long it may be silent while a call waits."""

    def __init__(self, probe: Probe, silence_ms: int) -> None:
        self.silence_ms = silence_ms
        self._probe = probe
        self._ask_after_s = silence_ms * ASK_AFTER_SHARE / 1000
        self._waiters: set[Waiter] = set()
        self._heard_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._asking: asyncio.Task[None] | None = None

    def begin(self, give_up: Callable[[], object]) -> Waiter:
        """Register a call that waits until `end`. give_up: called once if the node is silent."""
        waiter = Waiter(give_up)
        self._waiters.add(waiter)
        if self._timer is None and self._asking is None:
            loop = asyncio.get_running_loop()
            self._heard_s = loop.time()
            self._timer = loop.call_later(self._ask_after_s, self._look)
        return waiter

    def end(self, waiter: Waiter) -> None:
        self._waiters.discard(waiter)

    def received(self) -> None:
        """Note that the node has answered."""
        self._heard_s = asyncio.get_running_loop().time()

    def close(self) -> None:
        """Stop the watch and drop all waiters."""
        self._waiters.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._asking is not None:
            self._asking.cancel()

    def _look(self) -> None:
        self._timer = None
        if not self._waiters:
            return
        loop = asyncio.get_running_loop()
        left_s = self._heard_s + self._ask_after_s - loop.time()
        if left_s > 0:
            self._timer = loop.call_later(left_s, self._look)
        else:
            self._asking = asyncio.create_task(self._ask())

    async def _ask(self) -> None:
        asked_s = asyncio.get_running_loop().time()
        try:
            answers = await self._probe(self.silence_ms * (1 - ASK_AFTER_SHARE))
        finally:
            self._asking = None
        if answers or self._heard_s > asked_s:
            self.received()
            self._look()
            return
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            waiter.tell()
