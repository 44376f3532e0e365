"""The frames of one connection: four bytes of length and a message each.

Rules:
1. Bytes go from the transport's callback to one buffer, and from there to the frame. If the buffer
   holds more than twice `buffer_bytes`, nothing more is read until a reader waits again. `whole`
   lets the buffer take a whole frame, and hands it over if it holds nothing else, which saves the
   copies of a long one.
2. A frame that has arrived already is read in the next turn of the event loop: a client that does
   not wait for responses takes turns with the others.
3. A wait sets a deadline. One timer per connection is moved only if it is due after the deadline,
   so waits that end in time set no timers.
4. Frames are written at once; the writer waits only while the transport's buffer is full.

A message every few seconds from each of a thousand brokers is the common case: asyncio's streams
and a timeout for each wait take a third of the CPU time of such a request.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

from quorate.rpc.errors import BadMessageError

BUFFER_BYTES: Final = 16 * 1024
CHUNK_BYTES = 64 * 1024
INLINE_BYTES = 16 * 1024
"""Up to this size, length and frame are written as one."""
FRAME_BYTES_MAX = 8 * 1024 * 1024
IDLE_S = 600.0
FRAME_S = 30.0
"""For the rest of a frame, and for the peer to read what was written."""
_LENGTH_BYTES: Final = 4
_CUT_OFF: Final = "the connection ended within a frame"
_CLOSED: Final = "the connection was closed"


Frame = bytes | bytearray
"""A frame that belongs to its reader."""


class PartialFrame(Protocol):
    """The account of a frame that has not arrived as a whole."""

    def add(self, size: int) -> None:
        """So many more of its bytes have arrived."""

    async def turn(self) -> None:
        """Wait before more of it is read."""


class FrameStream(asyncio.Protocol):
    """buffer_bytes: see rule 1. on_lost: called once, as soon as the peer has closed the connection
    or it failed, with the error if any; the connection is then closed at once. Without it, a peer
    that only stops sending still gets its responses (not with TLS).
    """

    def __init__(
        self,
        buffer_bytes: int = BUFFER_BYTES,
        on_lost: Callable[[Exception | None], None] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._buffer_max = 2 * buffer_bytes
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._wanted = 0
        """The bytes that the buffer may hold in addition, for a frame."""
        self._is_paused = False
        self._has_ended = False
        self._error: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._may_write = True
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._deadline_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s = 0.0

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None, "it is connected first"
        return self._transport

    # --- reading ----------------------------------------------------------------------------------

    async def frame(
        self, idle_s: float = IDLE_S, *, bytes_max: int = FRAME_BYTES_MAX
    ) -> Frame | None:
        """The next frame; None if the peer has closed the connection. See `whole`.

        Raises BadMessageError, TimeoutError; OSError if the connection failed.
        """
        length = await self.length(idle_s, bytes_max=bytes_max)
        if length is None:
            return None
        frame = self.take(length)
        return await self.whole(length) if frame is None else frame

    async def length(self, idle_s: float, *, bytes_max: int = FRAME_BYTES_MAX) -> int | None:
        """The length of the next frame, bytes; None if the peer has closed the connection.

        Raises the same.
        """
        received = self._received
        if len(received) < _LENGTH_BYTES:
            deadline_s = self._loop.time() + idle_s
            while len(received) < _LENGTH_BYTES:
                if not await self._more(deadline_s):
                    if received:
                        raise BadMessageError(_CUT_OFF)
                    return None
        else:
            await asyncio.sleep(0)
            if self._error is not None:
                raise self._error
        length = int.from_bytes(received[:_LENGTH_BYTES], "big", signed=True)
        if not 0 <= length <= bytes_max:
            raise BadMessageError(f"a frame of {length} bytes; at most {bytes_max}")
        del received[:_LENGTH_BYTES]
        return length

    def take(self, length: int) -> bytes | None:
        """The frame of that length if it has arrived and is no longer than a chunk, else None."""
        received = self._received
        if length > len(received) or length > CHUNK_BYTES:
            return None
        frame = bytes(received[:length])
        del received[:length]
        return frame

    async def rest(
        self,
        length: int,
        receipt: PartialFrame | None = None,
        check: Callable[[bytes], None] | None = None,
    ) -> bytes:
        """The frame of that length. check: for the first bytes of a long one (`frames`, rule 5).

        Raises the same as `frame`.
        """
        data = bytearray()
        received = self._received
        deadline_s = self._loop.time() + FRAME_S
        while len(data) < length:
            if not received and not await self._more(deadline_s):
                raise BadMessageError(_CUT_OFF)
            size = min(CHUNK_BYTES, length - len(data), len(received))
            data += received[:size]
            del received[:size]
            if check is not None and INLINE_BYTES <= len(data) < length:
                check(bytes(data[:INLINE_BYTES]))
                check = None
            if receipt is not None:
                receipt.add(size)
                if len(data) < length:
                    async with asyncio.timeout_at(deadline_s):
                        await receipt.turn()
        return bytes(data)

    async def whole(self, length: int, receipt: PartialFrame | None = None) -> Frame:
        """Like `rest`, with the frame in the buffer until all of it has arrived (rule 1).

        A bytearray is the buffer itself, if it held nothing else.
        """
        received = self._received
        deadline_s = self._loop.time() + FRAME_S
        tracked = 0
        self._wanted = length
        try:
            while (available := len(received)) < length:
                if receipt is not None and available > tracked:
                    receipt.add(available - tracked)
                    tracked = available
                if not await self._more(deadline_s):
                    raise BadMessageError(_CUT_OFF)
                if self._has_ended and len(received) < length:
                    raise BadMessageError(_CUT_OFF)
        finally:
            self._wanted = 0
        if len(received) == length:
            self._received = bytearray()
            return received
        with memoryview(received) as view:
            frame = bytes(view[:length])
        del received[:length]
        return frame

    async def _more(self, deadline_s: float) -> bool:
        """Wait until more bytes have arrived; False at the end of the connection.

        Raises TimeoutError; OSError if the connection failed.
        """
        if self._error is not None:
            raise self._error
        if self._has_ended or self.transport.is_closing():
            return False
        if self._is_paused:
            self._is_paused = False
            self.transport.resume_reading()
        self._reader = waiter = self._loop.create_future()
        self._watch(deadline_s)
        try:
            await waiter
        finally:
            self._reader = None
        return not self._has_ended or bool(self._received)

    # --- deadlines --------------------------------------------------------------------------------

    def _watch(self, deadline_s: float) -> None:
        """End the wait of the reader then (rule 3). deadline_s: the loop's time; inf for never."""
        self._deadline_s = deadline_s
        if deadline_s == math.inf:
            return
        if self._timer is not None:
            if self._timer_at_s <= deadline_s:
                return
            self._timer.cancel()
        self._arm(deadline_s)

    def _arm(self, at_s: float) -> None:
        self._timer_at_s = at_s
        self._timer = self._loop.call_at(at_s, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._reader is None or self._reader.done():
            return
        if self._loop.time() >= self._deadline_s:
            self._reader.set_exception(TimeoutError())
        elif self._deadline_s != math.inf:
            self._arm(self._deadline_s)

    # --- writing ----------------------------------------------------------------------------------

    async def send(self, frame: bytes) -> None:
        """Write a frame, and wait until the transport takes more (rule 4).

        Raises TimeoutError if the peer does not read for `FRAME_S`; ConnectionResetError if the
        connection was closed.
        """
        if self.transport.is_closing():
            raise ConnectionResetError(_CLOSED)
        length = len(frame).to_bytes(_LENGTH_BYTES, "big")
        if len(frame) <= INLINE_BYTES:
            self.transport.write(length + frame)
        else:
            self.transport.writelines((length, frame))
        if self._may_write:
            return
        self._writer = self._loop.create_future()
        try:
            async with asyncio.timeout(FRAME_S):
                await self._writer
        finally:
            self._writer = None

    # --- the end ----------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close the connection once the peer has read what was written, or after `FRAME_S`."""
        self.transport.close()
        try:
            async with asyncio.timeout(FRAME_S):
                await asyncio.shield(self._closed)
        except TimeoutError:
            pass
        finally:
            self.abort()

    def abort(self) -> None:
        """Close the connection at once, if there is one. Idempotent."""
        if self._transport is not None and not self._closed.done():
            self._transport.abort()

    # --- asyncio.Protocol -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        reader = self._reader
        if reader is not None and not reader.done():
            reader.set_result(None)
        if len(self._received) > self._buffer_max + self._wanted and not self._is_paused:
            self.transport.pause_reading()
            self._is_paused = True

    def eof_received(self) -> bool:
        self._end(None)
        return self._on_lost is None and self.transport.get_extra_info("ssl_object") is None

    def pause_writing(self) -> None:
        self._may_write = False

    def resume_writing(self) -> None:
        self._may_write = True
        if self._writer is not None and not self._writer.done():
            self._writer.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._error = error
        self._end(error)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._writer is not None and not self._writer.done():
            self._writer.set_exception(error or ConnectionResetError(_CLOSED))
        if not self._closed.done():
            self._closed.set_result(None)

    def _end(self, error: Exception | None) -> None:
        # The owner learns of it before the reader does, whose request would close the connection.
        if not self._has_ended and self._on_lost is not None:
            self._on_lost(error)
        self._has_ended = True
        reader = self._reader
        if reader is None or reader.done():
            return
        if error is not None:
            reader.set_exception(error)
        else:
            reader.set_result(None)


async def connect(
    stream: FrameStream, host: str, port: int, context: ssl.SSLContext | None = None
) -> FrameStream:
    """Connect a stream. context: None without TLS. Raises OSError."""
    options: dict[str, Any] = {} if context is None else {"ssl": context}
    await asyncio.get_running_loop().create_connection(lambda: stream, host, port, **options)
    return stream
