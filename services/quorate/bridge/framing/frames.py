"""Limits on the frames of Kafka's protocol that have not arrived as a whole; their decoding.

Rules:
1. The bytes of a frame are counted when they arrive, not when its length is announced: announcing a
   large frame without sending it takes no memory from others.
2. All unfinished frames together hold at most `bytes_max`. Beyond that the oldest one is dropped
   and its connection closed: a frame that is sent without delay is younger than a slow one.
3. A message of more than `INLINE_BYTES` is decoded in a thread, one at a time, so that it delays
   neither the event loop nor the small messages of other connections.
4. After its first chunk a frame waits for its turn. One chunk of `CHUNK_BYTES` is read every
   `PACE_S`, 64 MB/s over all frames. Large frames are rare, and without this limit a client that
   sends them keeps the event loop busy at little cost to itself.
5. The first `INLINE_BYTES` of a request are checked before the rest is read: an array that is too
   long says so at its beginning.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from quorate.bridge.messages import schemas as s
from quorate.rpc.framing.frame_stream import INLINE_BYTES

UNFINISHED_BYTES_MAX = 64 * 1024 * 1024
PACE_S = 0.001


class Unfinished:
    """The bytes that unfinished frames hold (rules 1 and 2)."""

    def __init__(self, bytes_max: int = UNFINISHED_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._frames: dict[Receipt, None] = {}
        """Oldest first."""
        self.bytes = 0
        self._turns = asyncio.Lock()

    def begin(self, give_up: Callable[[], None]) -> Receipt:
        """Register a new frame. give_up: closes its connection."""
        receipt = Receipt(self, give_up)
        self._frames[receipt] = None
        return receipt

    def add(self, receipt: Receipt, size: int) -> None:
        receipt.size += size
        self.bytes += size
        while self.bytes > self._bytes_max:
            oldest = next(iter(self._frames))
            self.end(oldest)
            oldest.give_up()

    async def turn(self) -> None:
        """Wait for this frame's turn: one frame proceeds every `PACE_S`, in the order of calls."""
        async with self._turns:
            await asyncio.sleep(PACE_S)

    def end(self, receipt: Receipt) -> None:
        """Remove a frame that is complete or abandoned. Idempotent."""
        if receipt in self._frames:
            del self._frames[receipt]
            self.bytes -= receipt.size


class Receipt:
    """One unfinished frame. size: the bytes received so far."""

    __slots__ = ("_owner", "give_up", "size")

    def __init__(self, owner: Unfinished, give_up: Callable[[], None]) -> None:
        self._owner = owner
        self.give_up = give_up
        self.size = 0

    def add(self, size: int) -> None:
        self._owner.add(self, size)

    async def turn(self) -> None:
        """Wait before reading the next chunk (rule 4)."""
        await self._owner.turn()

    def end(self) -> None:
        self._owner.end(self)


class Decoder:
    """Decodes requests, large ones in a thread (rule 3). served: the served APIs."""

    def __init__(self, served: s.Served = s.SERVED) -> None:
        self._served = served
        self._thread = ThreadPoolExecutor(1, "bridge-decode")

    async def call(self, frame: bytes) -> s.Call:
        """Decode the request in a frame. Raises BadMessageError."""
        if len(frame) <= INLINE_BYTES:
            return s.read_call(frame, self._served)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, s.read_call, frame, self._served)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
