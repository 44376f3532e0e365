"""The serving side of a stream whose messages are answered as each is done, many under way at once.

Rules:
1. At most `append_messages_in_flight_max` messages and `append_bytes_in_flight_max` bytes of a
   stream are under way; the next message is read when there is room (one message may exceed the
   bytes).
2. Work that has begun is never cancelled, whatever becomes of the call or the stream it came by:
   its answer is dropped if nobody is there to take it.
3. A stream that its client has ended is answered to the last message, then closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import grpc.aio
from google.protobuf.message import DecodeError, Message

from quorate.rpc.channels import EOF
from quorate.rpc.limits import ServerLimits

LOGGER = logging.getLogger(__name__)

T = TypeVar("T")

Context = grpc.aio.ServicerContext[Any, Any]
Running = set[asyncio.Task[Any]]
"""The work under way of all calls and streams of a server: it outlives what it came by."""

Begin = Callable[[Any], Awaitable[tuple[int, Coroutine[Any, Any, Message]]]]
"""Of a message: its size in bytes, and what makes its answer, which raises nothing. The next
message is read after it; DecodeError ends the stream.
"""


def begun(running: Running, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Work in a task of its own, which continues when its caller is cancelled (rule 2)."""
    task = asyncio.create_task(work)
    running.add(task)
    task.add_done_callback(running.discard)
    return task


class AnsweredStream:
    """One stream."""

    def __init__(
        self, context: Context, limits: ServerLimits, running: Running, begin: Begin
    ) -> None:
        self._context = context
        self._limits = limits
        self._running = running
        self._begin = begin
        self._is_open = True
        self._messages = 0
        self._bytes = 0
        self._changed = asyncio.Event()
        self._write_lock = asyncio.Lock()

    async def serve(self) -> None:
        """Read until the client ends the stream, then wait for what is under way."""
        try:
            while (message := await self._context.read()) is not EOF:
                size, work = await self._begin(message)
                self._messages += 1
                self._bytes += size
                begun(self._running, self._answer(work, size))
                await self._until(self._has_room)
            await self._until(self._is_drained)
        except DecodeError:
            # What came before it is answered first: gRPC cannot send an answer and the end at once.
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
            # gRPC raises many things where the client is gone.
            LOGGER.debug("an answer could not be sent: %s", error)
        finally:
            self._messages -= 1
            self._bytes -= size
            self._changed.set()
