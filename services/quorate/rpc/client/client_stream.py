"""The client side of a pipelined request/response stream (`server_stream` is the server side).

Rules:
1. A message and its response have the same correlation id; responses arrive in any order.
2. When the stream ends, every pending call fails with the reason, and with whether the node
   certainly did nothing.
3. If the node is silent while a call waits (see `silence`), the stream ends: messages that were
   sent may have been executed.
4. A caller may be cancelled at any time. This ends the stream only while its message is being
   written: gRPC ends a call whose write is cancelled.
5. Another call that is offered takes the place of the first one once no message is in flight, so
   that messages never overtake each other. If some are, the next message waits for them, up to
   `CHANGE_S`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import grpc.aio
from google.protobuf.message import Message

from quorate.raft.errors import ViolationError
from quorate.rpc.client.channels import EOF, Channels, Link, call_error
from quorate.rpc.errors import TransportError, TransportKind

LOGGER = logging.getLogger(__name__)

A = TypeVar("A")

CHANGE_S = 0.05

_UNTOUCHED = (TransportKind.NOT_SERVED, TransportKind.OVERLOADED, TransportKind.OTHER_CLUSTER)


def _nothing() -> object:
    """Do nothing at the end of a stream: the default."""
    return None


class MessageCall(Protocol):
    """What carries the messages; `stream_call.StreamCall` documents it."""

    async def write(self, message: Message) -> None: ...

    async def read(self) -> Any: ...

    def cancel(self) -> None: ...


class ClientStream(Generic[A]):
    """One call to one node, over a connected link that it releases at its end.

    kind: the class of received messages. decode: converts one, or raises ViolationError. on_end:
    called once, when the stream is over.
    """

    def __init__(
        self,
        link: Link,
        channels: Channels,
        path: str,
        kind: type[Message],
        decode: Callable[[Any], A],
    ) -> None:
        self._link = link
        self._channels = channels
        self._decode = decode
        self._unchecked = link.unchecked()
        self._call: MessageCall = link.stream(path, kind)
        self._offered: MessageCall | None = None
        self._drained: asyncio.Future[None] | None = None
        self._pending: dict[int, asyncio.Future[A]] = {}
        self._last_id = 0
        self._has_answered = False
        self._reason = "the stream ended"
        self._writing = asyncio.Lock()
        self.is_open = True
        self.on_end: Callable[[], object] = _nothing
        self._readers: set[asyncio.Task[None]] = set()
        """Kept until they have ended, because the event loop holds tasks weakly."""
        self._reader = self._reading()

    def offer(self, call: MessageCall) -> None:
        """Let another call to the same node take the place of this one (rule 5)."""
        if not self.is_open:
            call.cancel()
            return
        self._offered = call
        if self.is_idle:
            self._change()

    def _change(self) -> None:
        """Use the offered call. No message is in flight."""
        assert self._offered is not None
        replaced, self._call, self._offered = self._call, self._offered, None
        # Whoever opened the call has checked the cluster.
        self._unchecked = None
        self._reader = self._reading()
        replaced.cancel()

    def _reading(self) -> asyncio.Task[None]:
        """Read from the call in a task of its own."""
        reader = asyncio.create_task(self._read(self._call))
        self._readers.add(reader)
        reader.add_done_callback(self._readers.discard)
        return reader

    async def _change_soon(self) -> None:
        """Wait until no message is in flight, then use the offered call (rule 5)."""
        if self._pending:
            self._drained = drained = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(CHANGE_S):
                    await drained
            except TimeoutError:
                return
            finally:
                self._drained = None
        if self._offered is not None and not self._pending:
            self._change()

    def _forget(self, correlation_id: int) -> asyncio.Future[A] | None:
        """Remove a message that is no longer in flight."""
        future = self._pending.pop(correlation_id, None)
        if self._offered is not None and self.is_idle:
            self._change()
        elif self._drained is not None and not self._pending and not self._drained.done():
            self._drained.set_result(None)
        return future

    @property
    def is_idle(self) -> bool:
        return not self._pending and not self._writing.locked()

    async def _ask(self, encode: Callable[[int], Message], timeout_ms: float) -> A:
        """Send a message with a correlation id and wait for its response.

        Raises TransportError, whose `nothing_done` is reliable.
        """
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._last_id += 1
        correlation_id = self._last_id
        is_sent = False
        watch = self._link.watch
        waiter = None if watch is None else watch.begin(self._on_silence)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                async with self._writing:
                    if self._offered is not None:
                        await self._change_soon()
                    if not self.is_open:
                        raise self._not_sent()
                    self._pending[correlation_id] = future
                    is_sent = True
                    await self._write(encode(correlation_id))
                return await future
        except TimeoutError:
            if not is_sent:
                raise self._not_sent("the timeout passed") from None
            text = f"no answer within {timeout_ms:.0f} ms"
            raise TransportError(TransportKind.TIMEOUT, self._link.address, text) from None
        finally:
            if watch is not None and waiter is not None:
                watch.end(waiter)
            self._forget(correlation_id)
            if future.done() and not future.cancelled():
                future.exception()  # marks it retrieved: after a failed write nothing awaits it

    async def _write(self, message: Message) -> None:
        try:
            await self._call.write(message)
        except asyncio.InvalidStateError:
            # The reader task gets the reason.
            await asyncio.wait([self._reader])
            raise self._not_sent() from None
        except grpc.aio.AioRpcError:
            # The reader task gets the reason and fails all pending calls.
            pass
        except asyncio.CancelledError:
            # gRPC also reports the end of a stream this way; the reader task fails pending calls.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise

    def _not_sent(self, why: str = "") -> TransportError:
        text = f"{why or self._reason} before this was sent"
        return TransportError(TransportKind.UNREACHABLE, self._link.address, text)

    def _on_silence(self) -> None:
        self._end(self._link.silent())

    def _closed(self) -> TransportError:
        return TransportError(
            TransportKind.BROKEN, self._link.address, "the client closed the stream"
        )

    async def _read(self, call: MessageCall) -> None:
        error = TransportError(TransportKind.FAILED, self._link.address, "reading responses failed")
        try:
            while (message := await call.read()) is not EOF:
                if not self._has_answered and self._unchecked is not None:
                    await self._unchecked.check(self._link.address, call)
                self._has_answered = True
                if self._link.watch is not None:
                    self._link.watch.received()
                answer = self._decode(message)
                future = self._forget(message.correlation_id)
                if future is not None and not future.done():
                    future.set_result(answer)
            error = await self._link.ended(call)
        except grpc.aio.AioRpcError as broken:
            error = call_error(self._link.address, broken)
        except TransportError as foreign:
            error = foreign
        except ViolationError as violation:
            error = TransportError(TransportKind.FAILED, self._link.address, str(violation))
        except asyncio.CancelledError:
            # gRPC reports this way that this process ended the call.
            error = self._closed()
        except Exception as broken:
            LOGGER.error("reading responses from %s failed: %r", self._link.address, broken)
        finally:
            if call is self._call:
                self._end(error)

    def _end(self, error: TransportError) -> None:
        if not self.is_open:
            return
        self.is_open = False
        self._reason = f"the stream ended ({error.text})"
        self._call.cancel()
        if self._offered is not None:
            self._offered.cancel()
            self._offered = None
        self._channels.release(self._link)
        self.on_end()
        kind = self._kind(error)
        for future in self._pending.values():
            if not future.done():
                future.set_exception(TransportError(kind, error.address, error.text))
        self._pending.clear()
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def _kind(self, error: TransportError) -> TransportKind:
        """The error kind for pending calls.

        A node that does not serve the stream, or not at present, did nothing. After other errors
        the outcome is unknown, also if one of several messages was too large.
        """
        is_untouched = error.kind in _UNTOUCHED
        is_alone = error.kind is TransportKind.TOO_LARGE and len(self._pending) == 1
        if is_alone or (is_untouched and not self._has_answered):
            return error.kind
        return TransportKind.BROKEN

    async def close(self) -> None:
        """End the stream; pending calls fail."""
        # Here and not in the reader task, which may not have started.
        self._end(self._closed())
        self._reader.cancel()
        await asyncio.wait([self._reader])
