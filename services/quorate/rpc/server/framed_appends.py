"""The server side of appends in frames: what `AppendStream` is over gRPC (`rpc.wire.frames`).

gRPC takes most of the context switches that a single commit costs a leader, and a fifth of its CPU
time. The owner of the listening sockets reads a connection's first frame, and passes the connection
to `serve`. Rules:

1. A connection belongs to the caller that it has authenticated as. The caller's right to append is
   checked when it opens the connection, and for each message, as over gRPC.
2. The limits of messages in flight, their order and what happens to them when the connection ends
   are those of `server_stream`.
3. Bytes that are not an AppendRequest end the connection, after the responses to what came before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError, Message

from quorate.common.error_codes import ErrorCode
from quorate.raft.errors import ViolationError
from quorate.rpc.client.channels import EOF
from quorate.rpc.errors import BadMessageError
from quorate.rpc.framing.frame_stream import FrameStream
from quorate.rpc.principals import Caller
from quorate.rpc.server.append_handler import AppendHandler
from quorate.rpc.server.authorizer import CallAuthorizer, RequestContext
from quorate.rpc.server.handler import RaftHandler
from quorate.rpc.server.server_stream import Running, ServerStream
from quorate.rpc.wire.cluster_id import foreign_text
from quorate.rpc.wire.frames import FramesOpened, decode_opening, encode_opened
from quorate.rpc.wire.limits import ServerLimits
from quorate.rpc.wire.methods import RPC_METHODS

APPENDING = RPC_METHODS["AppendStream"]
STOP_GRACE_S = 0.1
"""How long to wait for appends in flight before their connections are closed, seconds."""


@dataclass(frozen=True, slots=True)
class FrameConnection:
    """An accepted connection; it takes the place of a call's context in gRPC.

    read_frame: returns the next frame, None at the end. Raises BadMessageError, OSError,
    TimeoutError. on_busy: called with whether messages are in flight, when that changes.
    """

    stream: FrameStream
    caller: Caller
    read_frame: Callable[[], Awaitable[bytes | None]]
    on_busy: Callable[[bool], None]

    def peer(self) -> str:
        """Who it is, for the log."""
        return self.caller.host

    async def read(self) -> Any:
        """The next frame, or `channels.EOF`."""
        frame = await self.read_frame()
        return EOF if frame is None else frame

    async def write(self, message: Message) -> None:
        """Send a message. Raises ConnectionResetError; TimeoutError, which ends the connection."""
        try:
            await self.stream.send(message.SerializeToString())
        except TimeoutError:
            # Its appends in flight would keep a client that reads nothing from being evicted.
            self.stream.abort()
            raise


class FramedAppends:
    """Serves the connections of the node `node_id`. note_message: called for each message.

    running: the appends in flight, which outlive their connections.
    """

    def __init__(
        self,
        node_id: int,
        handler: RaftHandler,
        limits: ServerLimits,
        authorizer: CallAuthorizer | None,
        note_message: Callable[[], None],
    ) -> None:
        self._node_id = node_id
        self._handler = handler
        self._limits = limits
        self._authorizer = authorizer
        self._note_message = note_message
        self.running: Running = set()

    async def serve(self, first: bytes, connection: FrameConnection) -> None:
        """Serve a connection until its end. first: its first frame.

        Raises BadMessageError; OSError and TimeoutError if the connection fails.
        """
        context = None
        if self._authorizer is not None:
            context = RequestContext(self._authorizer, connection.caller)
        opened = self._opened(first, context)
        await connection.stream.send(encode_opened(opened))
        if opened.error is not ErrorCode.NONE:
            await connection.stream.close()
            raise BadMessageError(f"no appends: {opened.error.name} {opened.message}".rstrip())
        appends = AppendHandler(
            self._handler, connection, APPENDING, self._limits.batch_bytes_max, context
        )

        async def begin(data: bytes) -> tuple[int, Coroutine[Any, Any, Message]]:
            self._note_message()
            return await appends.begin(data)

        stream = ServerStream(
            connection, self._limits, self.running, begin, on_busy=connection.on_busy
        )
        try:
            await stream.serve()
        except DecodeError as error:
            raise BadMessageError(f"not an AppendRequest: {error}") from None

    def _opened(self, first: bytes, context: RequestContext | None) -> FramesOpened:
        own = self._handler.cluster_id
        error, text = ErrorCode.NONE, ""
        try:
            wanted = decode_opening(first)
        except ViolationError as violation:
            error, text = ErrorCode.INVALID_REQUEST, str(violation)
        else:
            if wanted not in ("", own):
                error, text = ErrorCode.INCONSISTENT_CLUSTER_ID, foreign_text(own, wanted)
            elif context is not None and (denied := context.refusal(APPENDING.name)) is not None:
                error, text = denied
        return FramesOpened(error, text, own, self._node_id)

    async def drain(self) -> None:
        """Wait a while for the appends in flight, before their connections are closed."""
        if self.running:
            await asyncio.wait(self.running, timeout=STOP_GRACE_S)
