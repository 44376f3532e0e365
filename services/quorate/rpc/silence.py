"""Noticing a node that takes calls and answers none: its loop stands still.

gRPC answers pings and accepts calls in threads of its own, so keepalive does not see this.

1. While somebody waits and nothing was heard for a quarter of the allowed silence, the node is
   asked for its status, which a running one answers at once whatever the others wait for. Any
   answer counts, a refusal too.
2. If none comes for the rest of it, everybody who waits is told to give up.

So a node that takes its time over one request is left alone. A client whose own loop stood still
blames nobody: the time for the answer begins when it asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

ASK_AFTER_SHARE = 0.25

Probe = Callable[[float], Awaitable[bool]]
"""Whether the node answers within so many milliseconds."""


class Waiter:
    """Somebody who waits for an answer. `is_told` once the node is silent."""

    __slots__ = ("_give_up", "is_told")

    def __init__(self, give_up: Callable[[], object]) -> None:
        self._give_up = give_up
        self.is_told = False

    def tell(self) -> None:
        self.is_told = True
        self._give_up()


class SilenceWatch:
    """Of one node. silence_ms: how long it may be silent while somebody waits."""

    def __init__(self, probe: Probe, silence_ms: int) -> None:
        self.silence_ms = silence_ms
        self._probe = probe
        self._ask_after_s = silence_ms * ASK_AFTER_SHARE / 1000
        self._waiters: set[Waiter] = set()
        self._heard_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._asking: asyncio.Task[None] | None = None

    def begin(self, give_up: Callable[[], object]) -> Waiter:
        """Somebody waits from now on, until `end`. give_up: called once, where the node is
        silent.
        """
        waiter = Waiter(give_up)
        self._waiters.add(waiter)
        if self._timer is None and self._asking is None:
            loop = asyncio.get_running_loop()
            self._heard_s = loop.time()
            self._timer = loop.call_later(self._ask_after_s, self._look)
        return waiter

    def end(self, waiter: Waiter) -> None:
        self._waiters.discard(waiter)

    def heard(self) -> None:
        """The node has answered something."""
        self._heard_s = asyncio.get_running_loop().time()

    def close(self) -> None:
        """Nobody waits any more."""
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
            self.heard()
            self._look()
            return
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            waiter.tell()
