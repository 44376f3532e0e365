"""Bounds the memory that a server's large responses hold until clients have read them.

gRPC keeps a response until the peer has room for it, and one connection can carry a thousand calls
whose responses the client never reads. Rules:

1. A call that reads records or a snapshot reserves room first, for the largest possible response.
   Once the response exists, the call returns the unused room. A response of up to `SMALL_BYTES`
   takes none.
2. A call waits if there is not enough room. Room goes to the waiting call whose connection holds
   the least, and among those to the oldest connection: a client that reconnects after its
   connection was closed waits behind the others.
3. While a call waits, the server closes the connection whose response has been pending longest,
   once that time reaches `STALLED_S`. A slow reader is thus served as long as there is room.
4. At most one connection is closed per `CLOSE_INTERVAL_S`. Closing it and building the next large
   response each block the event loop for up to 20 ms, and a client that never takes a response can
   cause both repeatedly.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable

from quorate.rpc.wire.limits import BATCH_BYTES_MAX

ROOM_BYTES = 3 * BATCH_BYTES_MAX
"""Each byte of a pending response is in memory about three times: as read, encoded, and in gRPC."""
SMALL_BYTES = 64 * 1024
STALLED_S = 0.5
LOOK_S = 0.25
"""How often to check for stalled connections while a call waits."""
CLOSE_INTERVAL_S = 1.0

PEERS_MAX = 8_192
"""Connections whose order is remembered: more than may be open."""

EndConnection = Callable[[str, str], None]
"""Closes a connection, given gRPC's name of the peer and the reason."""


class MemoryReservation:
    """The room of one response, released at the end of the `with` block.

    size: bytes. made_at_s: when the response was complete, None before.
    """

    __slots__ = ("made_at_s", "memory", "peer", "size")

    def __init__(self, memory: ResponseMemory, peer: str) -> None:
        self.memory = memory
        self.peer = peer
        self.size = 0
        self.made_at_s: float | None = None

    def __enter__(self) -> MemoryReservation:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    async def reserve(self, size: int = BATCH_BYTES_MAX) -> None:
        """Reserve room for the next response, of up to `size` bytes.

        Releases the room of the previous response, which the client has taken.
        """
        self.release()
        self.made_at_s = None
        await self.memory.grant(self, size)

    async def settle(self, size: int) -> None:
        """Set the room to the complete response's size in bytes; waits if it needs more."""
        wanted = size if size > SMALL_BYTES else 0
        if wanted > self.size:
            await self.memory.grant(self, wanted)
        self.memory.resize(self, wanted)
        self.made_at_s = time.monotonic()

    def release(self) -> None:
        self.memory.resize(self, 0)


class ResponseMemory:
    """The room of one server. `end` closes connections; while it is None, nothing is bounded."""

    def __init__(self, bytes_max: int = ROOM_BYTES) -> None:
        self._max = bytes_max
        self.end: EndConnection | None = None
        self.bytes = 0
        self._held: set[MemoryReservation] = set()
        self._of_peer: Counter[str] = Counter()
        self._waiting: dict[MemoryReservation, tuple[int, asyncio.Future[None]]] = {}
        """In the order of arrival."""
        self._peers: dict[str, int] = {}
        """The order of connections, the oldest first."""
        self._numbers = itertools.count()
        self._ended: set[str] = set()
        """Peers whose connection was closed and that still hold room."""
        self._look: asyncio.TimerHandle | None = None

    def hold(self, peer: str) -> MemoryReservation:
        """The room of a future response, empty at first."""
        if peer not in self._peers:
            if len(self._peers) >= PEERS_MAX:
                self._peers.popitem()
            self._peers[peer] = next(self._numbers)
        return MemoryReservation(self, peer)

    async def grant(self, held: MemoryReservation, size: int) -> None:
        """See `MemoryReservation.reserve`."""
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

    def resize(self, held: MemoryReservation, size: int) -> None:
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

    def _fits(self, held: MemoryReservation, size: int) -> bool:
        """A response of any size fits if no other holds room."""
        return self.end is None or self.bytes - held.size + size <= max(self._max, size)

    def _admit(self) -> None:
        """Give room to waiting calls (rule 2).

        A call holds its room before it resumes; if it has ended meanwhile, it releases the room.
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

    def _rank(self, held: MemoryReservation) -> tuple[int, float]:
        return self._of_peer[held.peer], self._peers.get(held.peer, math.inf)

    def _end_stalled(self) -> None:
        """Close the connection that has stalled longest (rules 3 and 4)."""
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
            self.end(peer, "it does not read its responses, and others need the memory")
            look_s = CLOSE_INTERVAL_S
        self._look = asyncio.get_running_loop().call_later(look_s, self._end_stalled)
