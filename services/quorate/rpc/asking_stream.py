"""The asking side of a stream whose messages are answered as each is done, many under way at once
(`answered_stream` is the other).

Rules:
1. A message and its answer have the same correlation id; answers come in any order.
2. When the stream ends, every pending call fails with the reason and whether nothing was done.
3. A node that is silent while somebody waits ends the stream (see `silence`): what was sent may
   have been done.
4. A caller may be cancelled at any time. This ends the stream only while its message is being
   written: gRPC ends a call whose write is cancelled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import grpc.aio
from google.protobuf.message import Message

from quorate.raft.errors import ViolationError
from quorate.rpc.channels import EOF, Channels, Link, call_error, status_error
from quorate.rpc.errors import TransportError, TransportKind
from quorate.rpc.stream_call import StreamCall

LOGGER = logging.getLogger(__name__)

A = TypeVar("A")


class AskingStream(Generic[A]):
    """One call to one node, over a link that is connected and given back at the end.

    kind: of the messages that come; decode: makes an answer of one, or raises ViolationError.
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
        self._call: StreamCall[Any] = link.stream(path, kind)
        self._pending: dict[int, asyncio.Future[A]] = {}
        self._last_id = 0
        self._has_answered = False
        self._reason = "the stream ended"
        self._writing = asyncio.Lock()
        self.is_open = True
        self._reader = asyncio.create_task(self._read())

    @property
    def is_idle(self) -> bool:
        return not self._pending and not self._writing.locked()

    async def _ask(self, encode: Callable[[int], Message], timeout_ms: float) -> A:
        """Send the message with a correlation id and wait for its answer. TransportError, whose
        `nothing_done` can be relied on.
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
                    if not self.is_open:
                        raise self._not_sent()
                    self._pending[correlation_id] = future
                    is_sent = True
                    await self._write(encode(correlation_id))
                return await future
        except TimeoutError:
            if not is_sent:
                raise self._not_sent("others took all the time") from None
            text = f"no answer within {timeout_ms:.0f} ms"
            raise TransportError(TransportKind.TIMEOUT, self._link.address, text) from None
        finally:
            if watch is not None and waiter is not None:
                watch.end(waiter)
            self._pending.pop(correlation_id, None)
            if future.done() and not future.cancelled():
                future.exception()  # where it was not sent, nobody fetches it

    async def _write(self, message: Message) -> None:
        try:
            await self._call.write(message)
        except asyncio.InvalidStateError:
            # The reader learns the reason.
            await asyncio.wait([self._reader])
            raise self._not_sent() from None
        except grpc.aio.AioRpcError:
            # The reader learns the reason and tells everybody.
            pass
        except asyncio.CancelledError:
            # So gRPC calls the end of a stream, too; then the reader has told everybody.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise

    def _not_sent(self, why: str = "") -> TransportError:
        text = f"{why or self._reason} before this was sent"
        return TransportError(TransportKind.UNREACHABLE, self._link.address, text)

    def _on_silence(self) -> None:
        self._end(self._link.silent())

    def _closed(self) -> TransportError:
        return TransportError(TransportKind.BROKEN, self._link.address, "the client closed it")

    async def _read(self) -> None:
        error = TransportError(TransportKind.FAILED, self._link.address, "reading answers failed")
        try:
            while (message := await self._call.read()) is not EOF:
                self._has_answered = True
                if self._link.watch is not None:
                    self._link.watch.heard()
                answer = self._decode(message)
                future = self._pending.pop(message.correlation_id, None)
                if future is not None and not future.done():
                    future.set_result(answer)
            code, details = await self._call.code(), await self._call.details()
            error = status_error(self._link.address, code, details)
        except grpc.aio.AioRpcError as broken:
            error = call_error(self._link.address, broken)
        except ViolationError as violation:
            error = TransportError(TransportKind.FAILED, self._link.address, str(violation))
        except asyncio.CancelledError:
            # So gRPC calls a call that this process ended.
            error = self._closed()
        except Exception as broken:
            LOGGER.error("reading answers of %s failed: %r", self._link.address, broken)
        finally:
            self._end(error)

    def _end(self, error: TransportError) -> None:
        if not self.is_open:
            return
        self.is_open = False
        self._reason = f"the stream ended ({error.text})"
        self._call.cancel()
        self._channels.release(self._link)
        kind = self._kind(error)
        for future in self._pending.values():
            if not future.done():
                future.set_exception(TransportError(kind, error.address, error.text))
        self._pending.clear()

    def _kind(self, error: TransportError) -> TransportKind:
        """What those who wait are told. A node that serves no such stream, or not now, did
        nothing. Of others, nobody knows; and of several messages nobody knows which was too large.
        """
        is_untouched = error.kind in (TransportKind.NOT_SERVED, TransportKind.OVERLOADED)
        is_alone = error.kind is TransportKind.TOO_LARGE and len(self._pending) == 1
        if is_alone or (is_untouched and not self._has_answered):
            return error.kind
        return TransportKind.BROKEN

    async def close(self) -> None:
        """End the stream; who waits is told."""
        # Here and not in the reader, which may not have begun.
        self._end(self._closed())
        self._reader.cancel()
        await asyncio.wait([self._reader])
