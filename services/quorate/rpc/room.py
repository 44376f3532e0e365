"""What the large answers of a server may hold, together, until their askers have taken them.

gRPC keeps an answer until the other side has room for it, and a connection carries a thousand calls
whose answers nobody takes. Rules:

1. Who reads records or a snapshot for an answer reserves room first, for as much as there may be.
   Once the answer is there, what it does not take is given back; up to `SMALL_BYTES` it takes none.
2. Where there is no room it is waited for. The next to get it is of the connection that holds the
   least, and of those the oldest: who was closed and comes again waits behind the others.
3. While somebody waits, the connection whose answer has been waiting to be taken for longest is
   closed, once that is `STALLED_S`. So a slow reader is served as long as there is room.
4. At most one connection is closed in `CLOSE_INTERVAL_S`. Closing it and making the next large
   answer stop the event loop for up to 20 ms each, and whoever never takes an answer can repeat
   both at will.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable

from quorate.rpc.limits import BATCH_BYTES_MAX

ROOM_BYTES = 3 * BATCH_BYTES_MAX
"""Each byte of an answer that waits is there about three times: as it was read, encoded, and in
gRPC.
"""
SMALL_BYTES = 64 * 1024
STALLED_S = 0.5
LOOK_S = 0.25
"""How often it is looked who has stalled, while somebody waits."""
CLOSE_INTERVAL_S = 1.0

PEERS_MAX = 8_192
"""Connections whose order is remembered: as many as may be open, and more."""

EndConnection = Callable[[str, str], None]
"""Closes the connection with gRPC's name of a peer, for a reason."""


class Held:
    """The room of one answer; released at the end of the block. size: bytes. made_at_s: when its
    answer was there, None before.
    """

    __slots__ = ("made_at_s", "peer", "room", "size")

    def __init__(self, room: AnswerRoom, peer: str) -> None:
        self.room = room
        self.peer = peer
        self.size = 0
        self.made_at_s: float | None = None

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    async def reserve(self, size: int = BATCH_BYTES_MAX) -> None:
        """For an answer of up to `size` bytes, which is about to be made; the one before was
        taken.
        """
        self.release()
        self.made_at_s = None
        await self.room.grant(self, size)

    async def settle(self, size: int) -> None:
        """The answer is there, and has this size in bytes."""
        wanted = size if size > SMALL_BYTES else 0
        if wanted > self.size:
            await self.room.grant(self, wanted)
        self.room.resize(self, wanted)
        self.made_at_s = time.monotonic()

    def release(self) -> None:
        self.room.resize(self, 0)


class AnswerRoom:
    """The room of one server. `end` closes connections; without it nothing is bounded here."""

    def __init__(self, bytes_max: int = ROOM_BYTES) -> None:
        self._max = bytes_max
        self.end: EndConnection | None = None
        self.bytes = 0
        self._held: set[Held] = set()
        self._of_peer: Counter[str] = Counter()
        self._waiting: dict[Held, tuple[int, asyncio.Future[None]]] = {}
        """In the order in which they came."""
        self._peers: dict[str, int] = {}
        """Their order, the oldest first."""
        self._numbers = itertools.count()
        self._ended: set[str] = set()
        """Closed, and still with room."""
        self._look: asyncio.TimerHandle | None = None

    def hold(self, peer: str) -> Held:
        """For an answer to be made; it holds nothing yet."""
        if peer not in self._peers:
            if len(self._peers) >= PEERS_MAX:
                self._peers.popitem()
            self._peers[peer] = next(self._numbers)
        return Held(self, peer)

    async def grant(self, held: Held, size: int) -> None:
        """See `Held.reserve`."""
        if not self._waiting and self._fits(held, size):
            self.resize(held, size)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[held] = size, turn
        if self._look is None:
            self._end_stalled()
        try:
            await turn
        finally:
            self._waiting.pop(held, None)

    def resize(self, held: Held, size: int) -> None:
        more = size - held.size
        if more == 0:
            return
        held.size = size
        self.bytes += more
        self._of_peer[held.peer] += more
        if size:
            self._held.add(held)
        else:
            self._held.discard(held)
        if not self._of_peer[held.peer]:
            del self._of_peer[held.peer]
            self._ended.discard(held.peer)
        if more < 0:
            self._admit()

    def _fits(self, held: Held, size: int) -> bool:
        """One answer fits however large it is."""
        return self.end is None or self.bytes - held.size + size <= max(self._max, size)

    def _admit(self) -> None:
        """Rule 2. Who is admitted has its room before it runs; where its call has ended meanwhile,
        it gives it back.
        """
        while self._waiting:
            held = min(self._waiting, key=self._rank)
            size, turn = self._waiting[held]
            if not self._fits(held, size):
                return
            del self._waiting[held]
            if not turn.done():
                self.resize(held, size)
                turn.set_result(None)

    def _rank(self, held: Held) -> tuple[int, float]:
        return self._of_peer[held.peer], self._peers.get(held.peer, math.inf)

    def _end_stalled(self) -> None:
        """Rules 3 and 4."""
        self._look = None
        if not self._waiting or self.end is None:
            return
        now_s = time.monotonic()
        made = [
            (each.made_at_s, each.peer)
            for each in self._held
            if each.made_at_s is not None and each.peer not in self._ended
        ]
        look_s = LOOK_S
        since_s, peer = min(made, default=(now_s, ""))
        if peer and now_s - since_s >= STALLED_S:
            self._ended.add(peer)
            self._peers.pop(peer, None)
            self.end(peer, "it does not take its answers, and others need their room")
            look_s = CLOSE_INTERVAL_S
        self._look = asyncio.get_running_loop().call_later(look_s, self._end_stalled)
