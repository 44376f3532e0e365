"""A bidirectional call whose writes end when it ends.

gRPC for Python lets a write wait until the call's metadata are sent, and forgets it where the call
ends before: a leader that dies as a stream is opened would stop its client for good.
"""

from __future__ import annotations

import asyncio
from typing import Any, Generic, TypeVar

import grpc
from google.protobuf.message import Message

M = TypeVar("M", bound=Message)


class StreamCall(Generic[M]):
    """One call, begun; `M` is what is read from it."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_connected = False
        call.add_done_callback(self._end)

    def _end(self, _call: Any) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    async def write(self, message: Message) -> None:
        """Send a message. Where the call has ended: asyncio.InvalidStateError, and nothing was
        sent; AioRpcError or CancelledError, and it may have been.
        """
        if not self._is_connected:
            await self._connect()
        await self._call.write(message)

    async def _connect(self) -> None:
        connecting = asyncio.ensure_future(self._call.wait_for_connection())
        try:
            await asyncio.wait((connecting, self._ended), return_when=asyncio.FIRST_COMPLETED)
        finally:
            connecting.cancel()
        if self._ended.done():
            raise asyncio.InvalidStateError("the call ended before its first message")
        self._is_connected = True

    async def read(self) -> M:
        """The next message, or `channels.EOF`."""
        message: M = await self._call.read()
        return message

    def cancel(self) -> None:
        """End the call."""
        self._call.cancel()

    async def code(self) -> grpc.StatusCode:
        """Its status, when it has ended."""
        status: grpc.StatusCode = await self._call.code()
        return status

    async def details(self) -> str:
        """The text of its status, when it has ended."""
        return await self._call.details() or ""
