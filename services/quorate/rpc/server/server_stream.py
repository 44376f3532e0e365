"""The server side of a pipelined request/response stream (`client_stream` is the client side).

Many messages are in flight at once, and each is answered as soon as it is done. Rules:
1. At most `append_messages_in_flight_max` messages and `append_bytes_in_flight_max` bytes of a
   stream are in flight; the server reads the next message when there is room (one message may
   exceed the byte limit).
2. Work in flight is never cancelled, even if its call or stream ends: its response is dropped if
   the client is gone.
3. A stream that its client has ended is closed after the response to its last message. So is each
   stream of a server that stops: clients leave theirs open.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from google.protobuf.message import DecodeError, Message

from quorate.rpc.client.channels import EOF
from quorate.rpc.wire.limits import ServerLimits

LOGGER = logging.getLogger(__name__)

LATE_S = 0.1
"""How long a server that stops still answers what was sent before clients learned of it: a message
without an answer may or may not have been executed.
"""

T = TypeVar("T")

Running = set[asyncio.Task[Any]]
"""The work in flight of all calls and streams of a server, which it outlives."""

Begin = Callable[[Any], Awaitable[tuple[int, Coroutine[Any, Any, Message]]]]
"""Starts a message: returns its size in bytes and a coroutine for its response.

The coroutine never raises. The next message is read after this returns; DecodeError ends the
stream.
"""


class MessageContext(Protocol):
    """The connection of a stream: gRPC's context of a call, or one without gRPC."""

    def peer(self) -> str:
        """Who it is, for the log."""

    async def read(self) -> Any:
        """The bytes of the next message, or `channels.EOF`."""

    async def write(self, message: Any, /) -> None:
        """Send a message. Raises if the client is gone."""


def _ignores(_is_busy: bool) -> None:
    """Do nothing when messages are in flight: the default."""


def begun(running: Running, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Run work in a task of its own, which continues when its caller is cancelled (rule 2)."""
    task = asyncio.create_task(work)
    running.add(task)
    task.add_done_callback(running.discard)
    return task


class StreamReads:
    """The reads of a server's gRPC streams."""

    def __init__(self) -> None:
        self._reading: set[asyncio.Task[Any]] = set()
        self._has_ended = False

    async def next(self, context: MessageContext) -> Any:
        """The bytes of the next message of a stream; `channels.EOF` after the last, or `end`."""
        if self._has_ended:
            return EOF
        task = asyncio.current_task()
        assert task is not None
        self._reading.add(task)
        try:
            return await context.read()
        except asyncio.CancelledError:
            if not self._has_ended:
                raise
            task.uncancel()
            return EOF
        finally:
            self._reading.discard(task)

    async def end(self, grace_s: float = LATE_S) -> None:
        """Wait for late messages, then let every read return EOF, also those that wait (rule 3)."""
        if self._reading:
            await asyncio.sleep(min(LATE_S, grace_s))
        self._has_ended = True
        for task in self._reading:
            task.cancel()


class ServerStream:
    """One stream. read: reads the next message, `context.read` by default. on_busy: called with
    whether messages are in flight, when that changes.
    """

    def __init__(
        self,
        context: MessageContext,
        limits: ServerLimits,
        running: Running,
        begin: Begin,
        *,
        read: Callable[[], Awaitable[Any]] | None = None,
        on_busy: Callable[[bool], None] = _ignores,
    ) -> None:
        self._context = context
        self._read = context.read if read is None else read
        self._limits = limits
        self._running = running
        self._begin = begin
        self._on_busy = on_busy
        self._is_open = True
        self._messages = 0
        self._bytes = 0
        self._changed = asyncio.Event()
        self._write_lock = asyncio.Lock()

    async def serve(self) -> None:
        """Read until the stream ends, then wait for the work in flight."""
        try:
            while (message := await self._read()) is not EOF:
                size, work = await self._begin(message)
                if not self._messages:
                    self._on_busy(True)
                self._messages += 1
                self._bytes += size
                begun(self._running, self._answer(work, size))
                await self._until(self._has_room)
            await self._until(self._is_drained)
        except DecodeError:
            # Answer earlier messages first: gRPC cannot send a response and the end concurrently.
            await self._until(self._is_drained)
            raise
        finally:
            self._is_open = False

    def _has_room(self) -> bool:
        return (
            self._messages < self._limits.append_messages_in_flight_max
            and self._bytes < self._limits.append_bytes_in_flight_max
        )

    def _is_drained(self) -> bool:
        return self._messages == 0

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def _answer(self, work: Coroutine[Any, Any, Message], size: int) -> None:
        try:
            answer = await work
            if self._is_open:
                async with self._write_lock:
                    await self._context.write(answer)
        except Exception as error:
            # gRPC raises various exceptions if the client is gone.
            LOGGER.debug("could not send a response: %s", error)
        finally:
            self._messages -= 1
            self._bytes -= size
            if not self._messages:
                self._on_busy(False)
            self._changed.set()
