"""Bounds the memory that a server's large responses hold until clients have read them.

gRPC keeps a response until the peer has room for it, and one connection can carry a thousand calls
whose responses the client never reads. Rules:

1. A call that reads records or a snapshot reserves room first, for the largest possible response.
   Once the response exists, the call returns the unused room. Responses of up to `SMALL_BYTES`
   have a room of their own, so that they never wait for large ones; `UNCOUNTED_BYTES` take none.
2. A call waits if there is not enough room. Room goes to the waiting call whose connection holds
   the least, and among those to the oldest connection: a client that reconnects after its
   connection was closed waits behind the others.
3. While a call waits, the server closes the connection whose response has been pending longest,
   once that time reaches `STALLED_S`. A slow reader is thus served as long as there is room.
4. Other responses wait once they exist. Those that wait hold at most as much as fits the room:
   beyond that, the last call of the connection that holds the most, and among those of the newest
   one, ends with `NoRoomError`.
5. At most one connection is closed per `CLOSE_INTERVAL_S`. Closing it and building the next large
   response each block the event loop for up to 20 ms, and a client that never takes a response can
   cause both repeatedly.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any

from quorate.rpc.wire.limits import BATCH_BYTES_MAX

ROOM_BYTES = 3 * BATCH_BYTES_MAX
"""Each byte of a pending response is in memory about three times: as read, encoded, and in gRPC."""
SMALL_BYTES = 64 * 1024
SMALL_ROOM_BYTES = 16 * 1024 * 1024
UNCOUNTED_BYTES = 4 * 1024
"""About as much as gRPC holds for any call, which the limit of concurrent calls bounds."""
STALLED_S = 0.5
LOOK_S = 0.25
"""How often to check for stalled connections while a call waits."""
CLOSE_INTERVAL_S = 1.0

PEERS_MAX = 8_192
"""Connections whose order is remembered: more than may be open."""

EndConnection = Callable[[Any, str], None]
"""Closes a connection, given its name (with gRPC, that of the peer) and the reason."""


class NoRoomError(Exception):
    """Too many responses wait for room."""

    def __init__(self) -> None:
        super().__init__("too many responses wait for clients that do not read; try later")


class MemoryReservation:
    """The room of one response at a time, released at the end of the `with` block.

    size: bytes. made_at_s: when the response was complete, None before.
    """

    __slots__ = ("_small", "made_at_s", "memory", "peer", "size")

    def __init__(self, memory: ResponseMemory, peer: Hashable) -> None:
        self.memory = memory
        self.peer = peer
        self.size = 0
        self.made_at_s: float | None = None
        self._small: MemoryReservation | None = None

    def __enter__(self) -> MemoryReservation:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    async def reserve(self, size: int = BATCH_BYTES_MAX) -> None:
        """Reserve room for the next response, of up to `size` bytes.

        Releases the room of the previous response, which the client has taken.
        """
        self.release()
        await self.memory.grant(self, size)

    def try_reserve(self, size: int) -> bool:
        """Reserve room for a response of `size` bytes if no call has to wait for that.

        True if it holds as much already.
        """
        if size <= self.size:
            return True
        return self.memory.grant_now(self, size)

    async def settle(self, size: int, *, is_owned: bool = False) -> None:
        """Set the room to the complete response's size in bytes; waits if it needs more.

        is_owned: whether the response exists in this call only, see rule 4. Raises NoRoomError.
        """
        if size <= UNCOUNTED_BYTES:
            self.release()
            return
        self._release_small()
        if size <= SMALL_BYTES:
            await self._settle_small(size, is_owned=is_owned)
            self.memory.resize(self, 0)
            return
        if size > self.size:
            await self.memory.grant(self, size, is_owned=is_owned)
        self.memory.resize(self, size)
        self.made_at_s = time.monotonic()

    async def _settle_small(self, size: int, *, is_owned: bool) -> None:
        small = self.memory.small
        if small is None:
            return
        # Kept meanwhile, which bounds how many responses wait. No small one waits for a large one.
        self.memory.resize(self, min(self.size, size))
        self._small = small.hold(self.peer)
        await small.grant(self._small, size, is_owned=is_owned)
        self._small.made_at_s = time.monotonic()

    def release(self) -> None:
        self.made_at_s = None
        if self.size:
            self.memory.resize(self, 0)
        if self._small is not None:
            self._release_small()

    def _release_small(self) -> None:
        if self._small is not None:
            self._small.release()
            self._small = None


class ResponseMemory:
    """The room of one server. `end` closes connections; while it is None, nothing is bounded.

    small_bytes_max: the room of small responses; 0 if something else bounds them.
    """

    def __init__(
        self,
        bytes_max: int = ROOM_BYTES,
        *,
        small_bytes_max: int = 0,
        stalled_s: float | None = None,
    ) -> None:
        self._max = bytes_max
        self._stalled_s = stalled_s
        self.small = ResponseMemory(small_bytes_max) if small_bytes_max else None
        self._end: EndConnection | None = None
        self.bytes = 0
        self._held: set[MemoryReservation] = set()
        self._of_peer: Counter[Hashable] = Counter()
        self._waiting: dict[MemoryReservation, tuple[int, asyncio.Future[None]]] = {}
        """In the order of arrival."""
        self._owned: dict[MemoryReservation, int] = {}
        """The sizes of the responses that wait and exist (rule 4)."""
        self._owned_bytes = 0
        self._peers: dict[Hashable, int] = {}
        """The order of connections, the oldest first."""
        self._numbers = itertools.count()
        self._ended: set[Hashable] = set()
        """Peers whose connection was closed and that still hold room."""
        self._look: asyncio.TimerHandle | None = None

    @property
    def end(self) -> EndConnection | None:
        return self._end

    @end.setter
    def end(self, end: EndConnection | None) -> None:
        self._end = end
        if self.small is not None:
            self.small.end = end

    def hold(self, peer: Hashable) -> MemoryReservation:
        """The room of a future response, empty at first."""
        if peer not in self._peers:
            if len(self._peers) >= PEERS_MAX:
                self._peers.popitem()
            self._peers[peer] = next(self._numbers)
        return MemoryReservation(self, peer)

    def forget(self, peer: Hashable) -> None:
        """Forget the order of a connection that has ended."""
        self._peers.pop(peer, None)
        if self.small is not None:
            self.small.forget(peer)

    async def grant(self, held: MemoryReservation, size: int, *, is_owned: bool = False) -> None:
        """See `MemoryReservation.reserve` and `settle`."""
        if self.grant_now(held, size):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[held] = size, turn
        if is_owned:
            self._owned[held] = size
            self._owned_bytes += size
            self._reject_excess()
        if self._look is None:
            self._end_stalled()
        try:
            await turn
        finally:
            self._dequeue(held)

    def _dequeue(self, held: MemoryReservation) -> None:
        self._waiting.pop(held, None)
        self._owned_bytes -= self._owned.pop(held, 0)

    def _reject_excess(self) -> None:
        """See rule 4."""
        while self._owned_bytes > self._max and len(self._owned) > 1:
            of_peer = Counter(self._of_peer)
            for held, size in self._owned.items():
                of_peer[held.peer] += size
            ranks = {
                held: (of_peer[held.peer], self._peers.get(held.peer, math.inf))
                for held in reversed(self._owned)
            }
            worst = max(ranks, key=ranks.__getitem__)
            _, turn = self._waiting[worst]
            self._dequeue(worst)
            if not turn.done():
                turn.set_exception(NoRoomError())

    def grant_now(self, held: MemoryReservation, size: int) -> bool:
        """See `MemoryReservation.try_reserve`."""
        if self._waiting or not self._fits(held, size):
            return False
        self.resize(held, size)
        return True

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
            self._dequeue(held)
            if not turn.done():
                self.resize(held, size)
                turn.set_result(None)

    def _rank(self, held: MemoryReservation) -> tuple[int, float]:
        return self._of_peer[held.peer], self._peers.get(held.peer, math.inf)

    def _end_stalled(self) -> None:
        """Close the connection that has stalled longest (rules 3 and 5)."""
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
        stalled_s = STALLED_S if self._stalled_s is None else self._stalled_s
        since_s, peer = min(made, key=lambda each: each[0], default=(now_s, None))
        if peer is not None and now_s - since_s >= stalled_s:
            self._ended.add(peer)
            self._peers.pop(peer, None)
            self.end(peer, "it does not read its responses, and others need the memory")
            look_s = CLOSE_INTERVAL_S
        self._look = asyncio.get_running_loop().call_later(look_s, self._end_stalled)
