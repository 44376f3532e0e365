"""A bidirectional call whose pending writes fail when it ends.

In gRPC for Python a write waits until the call's metadata is sent, and never returns if the call
ends before that: a leader that dies while a stream is being opened would block the client forever.
"""

from __future__ import annotations

import asyncio
from typing import Any, Generic, TypeVar

import grpc
from google.protobuf.message import Message

M = TypeVar("M", bound=Message)


class StreamCall(Generic[M]):
    """One call in progress; `M` is the class of the messages read from it."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_connected = False
        call.add_done_callback(self._end)

    def _end(self, _call: Any) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    async def write(self, message: Message) -> None:
        """Send a message.

        If the call has ended, raises asyncio.InvalidStateError, and nothing was sent; or
        AioRpcError or CancelledError, and the message may have been sent.
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

    async def initial_metadata(self) -> Any:
        """What the server sent before its first message."""
        return await self._call.initial_metadata()

    def cancel(self) -> None:
        """End the call."""
        self._call.cancel()

    async def code(self) -> grpc.StatusCode:
        """The call's status; waits for the end of the call."""
        status: grpc.StatusCode = await self._call.code()
        return status

    async def details(self) -> str:
        """The text of the call's status; waits for the end of the call."""
        return await self._call.details() or ""
