"""Fair shares of a busy server: who asks much waits, who asks little does not.

A call costs a controller a fraction of a millisecond of its one thread. When more arrive than it
can serve at once, a few callers in tight loops would make everybody wait. Rules:

1. Every connection has a clock of its own. A call moves it 1/`calls_per_second` on, times the
   connections that are busy. An answer does so again for each so many bytes in it, and the calls
   after it are expected to cost as much.
2. A call is served when the time has come to its connection's clock, or `BURST_MS` before. So all
   connections together get `calls_per_second`, each the same; who asks for less than its share
   never waits, and what one does not use is there for the others as soon as it is not busy.
3. A lone connection never waits, and what it got while nobody else asked is not held against it
   when somebody does: it has used its burst up, and no more. Its calls that wait when the others
   have gone are served then.
4. A share is up to half larger or smaller than it should be, at random: what waits does not come
   back all at once.
5. A call whose connection's clock would get further ahead than `AHEAD_MAX_MS` waits once or twice
   as long and then ends with RESOURCE_EXHAUSTED: a refusal at once would only be followed by the
   next call. So does what is beyond `waiting_max` waiting calls, or `waiting_per_connection_max`
   of one connection. A refusal costs what a call does: the more wait for theirs, the longer, so
   that there are about `REFUSALS_PER_SECOND`. No more than `refused_max` wait to be refused; the
   ones beyond are refused at once.

6. A request counts by its size too: each so many bytes of it as a call.
7. Messages on streams that are open are no calls, and never wait. While there are any, those who
   call share with them as with one more connection.

Elections never wait: Vote, BeginQuorumEpoch and EndQuorumEpoch do not come here.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import grpc

from quorate.rpc.gate import Context

BUSY = "the server is busy, and this connection has had its share; slow down"

BURST_MS = 100
"""What a connection may ask for at once, as milliseconds of its share."""

AHEAD_MAX_MS = 2_000
"""How far ahead a connection's clock gets at most, and so how long a call waits."""

LOOK_MS = 0.05
"""How often it is looked who is not busy any more, for each connection that was. It takes less than
a hundredth of that: so those that asked once do not count as busy for long.
"""

REFUSALS_PER_SECOND = 50
PUT_OFF_MAX_MS = 10_000
"""However many wait to be refused."""

LEFT_SHARES = (0.8, 0.95)
"""Of the time that the caller of a refused call has left: at random, as all that waits."""

RELEASE_MS = 20
"""How often it is looked whether those that wait are the only ones left."""

COSTS_KEPT = 4_096
"""Connections whose last answers' sizes are remembered although they are not busy."""

FIELDS_BYTES = 1024
"""Fields of that size cost about what a call does."""

RECORDS_BYTES = 16 * 1024
"""Records of that size, which are sent as they lie in the log, do."""


REQUEST_BYTES = 64 * 1024
"""A request of that size costs about what a call does before anything is done with it."""

STREAMS = "streams"
"""Stands for all streams, where a connection is meant."""
STREAMED_MS = BURST_MS / 2
"""How long after a message streams are busy."""


def _for_ever() -> None:
    return None


@dataclass(slots=True)
class Throttle:
    """calls_per_second: of all connections together. `is_refused` is what callers ask."""

    calls_per_second: int
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
        """Wait for one's turn; whether the call must end with RESOURCE_EXHAUSTED.

        left_s: how long its caller waits for that, seconds; None for as long as it takes.
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
        """While calls wait: serve them all if they are of one connection, and no other is busy."""
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
            # Who hears the reason knows more than who gives up.
            delay_s = min(delay_s, left_s * random.uniform(*LEFT_SHARES))  # noqa: S311
        self._refused += 1
        try:
            await asyncio.sleep(delay_s)
        finally:
            self._refused -= 1

    def put_off_ms(self) -> float:
        """How long the next refusal waits at least; twice that is the most."""
        paced_ms = self._refused * 1_000 / REFUSALS_PER_SECOND
        return min(max(paced_ms, AHEAD_MAX_MS), PUT_OFF_MAX_MS)

    def delay_ms(self, peer: str, now_ms: float) -> float:
        """Count a call and say how long it has to wait, 0 for not at all (rules 1 and 2).

        AHEAD_MAX_MS is for a call that will not be served, and is not counted (rule 5). now_ms: of
        a clock that never goes back.
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
        """Count an answer that cost as much as so many calls more than a call does (rule 1)."""
        expected = self._costs.get(peer, 0.0)
        if calls or expected:
            self._costs[peer] = (expected + calls) / 2
            now_ms = time.monotonic() * 1_000 if now_ms is None else now_ms
            ahead_max_ms = BURST_MS if self._clocks.keys() <= {peer} else AHEAD_MAX_MS
            self._advance(peer, max(0.0, calls - expected), now_ms, ahead_max_ms)

    def note_streamed(self) -> None:
        """A message came on a stream (rule 7)."""
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


class Turns:
    """The shares of one server, for all of its services; without a throttle nobody waits."""

    def __init__(self, throttle: Throttle | None = None) -> None:
        self._throttle = throttle

    async def wait(self, context: Context) -> None:
        """Wait for one's turn, or end the call."""
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
        """Count the sizes of answer and request, in bytes; `call_bytes` of the answer cost as much
        as a call.
        """
        if self._throttle is not None:
            calls = answer_bytes // call_bytes + asked_bytes // REQUEST_BYTES
            self._throttle.charge(context.peer(), calls)

    def note_streamed(self) -> None:
        """A message came on a stream."""
        if self._throttle is not None:
            self._throttle.note_streamed()
