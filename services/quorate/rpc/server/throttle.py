"""Divides a busy server fairly: heavy callers wait; light callers do not.

A call costs a controller a fraction of a millisecond of its single thread. When more calls arrive
than it can serve at once, a few callers in tight loops would delay all others. Rules:

1. Every connection has its own clock. A call advances it by 1/`calls_per_second`, times the number
   of busy connections. The response advances it again for each unit of its size (`FIELDS_BYTES` or
   `RECORDS_BYTES`), and the connection's next calls are expected to cost as much.
2. A call is served when the time has reached its connection's clock, or `BURST_MS` earlier. All
   connections together thus get `calls_per_second`, in equal shares. A connection that stays below
   its share never waits, and its unused share goes to the others as soon as it is idle.
3. A lone connection never waits, and what it got while it was alone does not count against it when
   others become busy, except that its burst is used up. Calls of it that still wait when the others
   are idle again are served then.
4. A share is randomly up to half larger or smaller than its exact value, so that waiting callers do
   not all come back at once.
5. A call that would put its connection's clock more than `AHEAD_MAX_MS` ahead waits one to two
   times as long and then ends with RESOURCE_EXHAUSTED: an immediate rejection would only be
   followed by the next call. The same applies to calls beyond `waiting_max` waiting calls, or
   beyond `waiting_per_connection_max` of one connection. A rejection costs as much as a call: the
   more calls wait to be rejected, the longer each waits, so that about `REFUSALS_PER_SECOND` are.
   At most `refused_max` wait to be rejected; further ones are rejected at once.

6. The size of a request counts too: each `REQUEST_BYTES` of it count as a call.
7. Messages on open streams are not calls and never wait. While there are any, they take a share as
   one more busy connection.

Elections never wait: Vote, BeginQuorumEpoch and EndQuorumEpoch bypass the throttle.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import grpc

from quorate.rpc.server.authorizer import Context

BUSY = "the server is busy, and this connection has used its share; slow down"

BURST_MS = 100
"""The burst that a connection may send at once, as milliseconds of its share."""

AHEAD_MAX_MS = 2_000
"""How far ahead a connection's clock may run, and so how long a call may wait to be served."""

LOOK_MS = 0.05
"""Interval of the check for idle connections, per busy connection.

The check takes less than a hundredth of it. It runs this often so that connections with a single
call do not count as busy for long.
"""

REFUSALS_PER_SECOND = 50
PUT_OFF_MAX_MS = 10_000
"""Upper bound of `Throttle.put_off_ms`, however many calls wait to be rejected."""

LEFT_SHARES = (0.8, 0.95)
"""When to reject a call at the latest, as shares of its caller's remaining time.

The share is random in this range, like all waits.
"""

RELEASE_MS = 20
"""How often to check whether all waiting calls belong to the only busy connection."""

COSTS_KEPT = 4_096
"""Above this number of connections, the response costs of idle ones are forgotten."""

FIELDS_BYTES = 1024
"""Response fields of this size cost about as much as a call."""

RECORDS_BYTES = 16 * 1024
"""Records of this size, which are sent as they are in the log, cost about as much as a call."""


REQUEST_BYTES = 64 * 1024
"""A request of this size costs about as much as a call before it is handled."""

STREAMS = "streams"
"""Stands for all streams in place of a connection's peer name."""
STREAMED_MS = BURST_MS / 2
"""How long streams count as busy after a message."""


def _for_ever() -> None:
    return None


@dataclass(slots=True)
class Throttle:
    """The shares of one server. Callers use `is_refused`."""

    calls_per_second: int
    """The limit for all connections together."""
    waiting_max: int = 1_024
    waiting_per_connection_max: int = 64
    refused_max: int = 4_096
    _clocks: dict[str, float] = field(default_factory=dict)
    _costs: dict[str, float] = field(default_factory=dict)
    _looked_ms: float = 0.0
    _waiting: int = 0
    _waiting_of: dict[str, set[asyncio.Future[None]]] = field(default_factory=dict)
    _refused: int = 0
    _release: asyncio.TimerHandle | None = None

    async def is_refused(self, peer: str, left_s: Callable[[], float | None] = _for_ever) -> bool:
        """Wait for the call's turn; returns whether it must end with RESOURCE_EXHAUSTED.

        left_s: returns how many seconds remain of the caller's timeout; None without a timeout.
        """
        delay_ms = self.delay_ms(peer, time.monotonic() * 1_000)
        if not delay_ms:
            return False
        if (
            delay_ms >= AHEAD_MAX_MS
            or self._waiting >= self.waiting_max
            or len(self._waiting_of.get(peer, ())) >= self.waiting_per_connection_max
        ):
            await self._put_off(left_s())
            return True
        await self._wait(peer, delay_ms)
        return False

    async def _wait(self, peer: str, delay_ms: float) -> None:
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(delay_ms / 1_000, _come, turn)
        if self._release is None:
            self._release = loop.call_later(RELEASE_MS / 1_000, self._release_lone)
        waiting = self._waiting_of.setdefault(peer, set())
        waiting.add(turn)
        self._waiting += 1
        try:
            await turn
        finally:
            timer.cancel()
            self._waiting -= 1
            waiting.remove(turn)
            if not waiting:
                del self._waiting_of[peer]

    def _release_lone(self) -> None:
        """While calls wait, serve them all if they belong to the only busy connection."""
        self._release = None
        if not self._waiting:
            return
        self._forget_idle(time.monotonic() * 1_000)
        if len(self._waiting_of) == 1 and self._clocks.keys() <= self._waiting_of.keys():
            for turn in next(iter(self._waiting_of.values())):
                _come(turn)
            return
        loop = asyncio.get_running_loop()
        self._release = loop.call_later(RELEASE_MS / 1_000, self._release_lone)

    async def _put_off(self, left_s: float | None) -> None:
        if self._refused >= self.refused_max:
            return
        delay_s = self.put_off_ms() * random.uniform(1.0, 2.0) / 1_000  # noqa: S311
        if left_s is not None:
            # A caller that receives the error learns more than one that times out.
            delay_s = min(delay_s, left_s * random.uniform(*LEFT_SHARES))  # noqa: S311
        self._refused += 1
        try:
            await asyncio.sleep(delay_s)
        finally:
            self._refused -= 1

    def put_off_ms(self) -> float:
        """The minimum delay of the next rejection; the maximum is twice as long."""
        paced_ms = self._refused * 1_000 / REFUSALS_PER_SECOND
        return min(max(paced_ms, AHEAD_MAX_MS), PUT_OFF_MAX_MS)

    def delay_ms(self, peer: str, now_ms: float) -> float:
        """Count a call and return how long it must wait, 0 for not at all (rules 1 and 2).

        AHEAD_MAX_MS means that the call is rejected, and not counted (rule 5). now_ms: of a
        monotonic clock.
        """
        self._forget_idle(now_ms)
        ahead = self._clocks.setdefault(peer, 0.0) - now_ms
        calls = 1 + self._costs.get(peer, 0.0)
        if len(self._clocks) == 1:
            self._advance(peer, calls, now_ms, BURST_MS)
            return 0.0
        if ahead <= BURST_MS:
            self._advance(peer, calls, now_ms)
            return 0.0
        if ahead + calls * self._share_ms() > AHEAD_MAX_MS:
            return AHEAD_MAX_MS
        self._advance(peer, calls, now_ms)
        return ahead

    def charge(self, peer: str, calls: int, now_ms: float | None = None) -> None:
        """Count a response that cost as much as `calls` further calls (rule 1)."""
        expected = self._costs.get(peer, 0.0)
        if calls or expected:
            self._costs[peer] = (expected + calls) / 2
            now_ms = time.monotonic() * 1_000 if now_ms is None else now_ms
            ahead_max_ms = BURST_MS if self._clocks.keys() <= {peer} else AHEAD_MAX_MS
            self._advance(peer, max(0.0, calls - expected), now_ms, ahead_max_ms)

    def note_streamed(self) -> None:
        """Record that a message arrived on a stream (rule 7)."""
        until_ms = time.monotonic() * 1_000 + STREAMED_MS
        self._clocks[STREAMS] = max(self._clocks.get(STREAMS, 0.0), until_ms)

    def _forget_idle(self, now_ms: float) -> None:
        if now_ms - self._looked_ms < LOOK_MS * len(self._clocks):
            return
        self._looked_ms = now_ms
        self._clocks = {key: clock for key, clock in self._clocks.items() if clock > now_ms}
        if len(self._costs) > COSTS_KEPT:
            self._costs = {key: self._costs[key] for key in self._clocks if key in self._costs}

    def _share_ms(self) -> float:
        return len(self._clocks) * 1_000 / self.calls_per_second

    def _advance(
        self, peer: str, calls: float, now_ms: float, ahead_max_ms: float = AHEAD_MAX_MS
    ) -> None:
        clock = max(self._clocks.setdefault(peer, 0.0), now_ms)
        clock += calls * self._share_ms() * random.uniform(0.5, 1.5)  # noqa: S311
        self._clocks[peer] = min(clock, now_ms + ahead_max_ms)


def _come(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


class RequestThrottle:
    """The throttle of all services of one server; without one, no call waits."""

    def __init__(self, throttle: Throttle | None = None) -> None:
        self._throttle = throttle

    async def wait(self, context: Context) -> None:
        """Wait for the call's turn, or end the call."""
        throttle = self._throttle
        if throttle is not None and await throttle.is_refused(
            context.peer(), context.time_remaining
        ):
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, BUSY)

    def charge(
        self,
        context: Context,
        answer_bytes: int,
        call_bytes: int = FIELDS_BYTES,
        asked_bytes: int = 0,
    ) -> None:
        """Count the sizes of response and request, in bytes.

        call_bytes: how many bytes of the response cost as much as a call.
        """
        if self._throttle is not None:
            calls = answer_bytes // call_bytes + asked_bytes // REQUEST_BYTES
            self._throttle.charge(context.peer(), calls)

    def note_streamed(self) -> None:
        """Record that a message arrived on a stream."""
        if self._throttle is not None:
            self._throttle.note_streamed()
