"""Appends in frames: a connection without gRPC, which takes the place of an append stream's call.

For one commit, gRPC costs more than everything else that a client does. A client opens its stream
over gRPC, and learns from NodeStatus whether the node takes frames (`rpc.wire.frames`). Rules:

1. Opening never delays an append: it happens in the background, and the stream changes over between
   two messages (`ClientStream.offer`).
2. What cannot be opened is tried again, after `RETRY_S` and up to `RETRY_MAX_S`, as long as the
   stream is open. An address at which the first attempt timed out, as behind a firewall, is not
   tried again, and neither is one where the caller may not append or ask for the node's status.
3. TLS, the caller and the check of the cluster are those of gRPC. The kernel closes the connection
   to a machine that is gone, as fast as gRPC would.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import socket
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from google.protobuf.message import DecodeError, Message

from quorate.common.error_codes import ErrorCode
from quorate.raft.errors import ViolationError
from quorate.rpc.client.channels import NODE_STATUS, Channels, Link
from quorate.rpc.client.client_stream import ClientStream
from quorate.rpc.errors import BadMessageError, TransportError, TransportKind
from quorate.rpc.framing.frame_stream import FrameStream, connect
from quorate.rpc.tls import TlsConfig, client_context
from quorate.rpc.wire.frames import FramesOpened, decode_opened, encode_opening
from quorate.rpc.wire.limits import ChannelLimits, format_address
from quorate.v1 import quorum_pb2

LOGGER = logging.getLogger(__name__)

M = TypeVar("M", bound=Message)

BUFFER_BYTES = 256 * 1024
RETRY_S = 0.5
RETRY_MAX_S = 60.0
_REJECTED = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INCONSISTENT_CLUSTER_ID)


class FramedCall(Generic[M]):
    """An open connection, with the interface of `stream_call.StreamCall`. kind: of responses."""

    def __init__(self, stream: FrameStream, address: str, kind: type[M]) -> None:
        self._stream = stream
        self._address = address
        self._decode = kind.FromString

    async def write(self, message: Message) -> None:
        """Send a message. asyncio.InvalidStateError: the connection has ended; nothing was sent."""
        try:
            await self._stream.send(message.SerializeToString())
        except ConnectionResetError as error:
            raise asyncio.InvalidStateError(str(error)) from None
        except (OSError, TimeoutError):
            # It may have been sent. The reader reports the end.
            self._stream.abort()

    async def read(self) -> M:
        """The next message. Raises TransportError at the end of the connection."""
        try:
            frame = await self._stream.frame(math.inf)
            if frame is not None:
                return self._decode(frame)
            text = "the node closed the connection"
            raise TransportError(TransportKind.BROKEN, self._address, text)
        except (OSError, TimeoutError) as error:
            text = f"the connection broke: {error or type(error).__name__}"
            raise TransportError(TransportKind.BROKEN, self._address, text) from None
        except (BadMessageError, DecodeError) as error:
            text = f"not a response: {error}"
            raise TransportError(TransportKind.FAILED, self._address, text) from None

    def cancel(self) -> None:
        """Close the connection."""
        self._stream.abort()


@dataclass(slots=True)
class _Place:
    """What is known of the frames of one address."""

    pause_s: float = RETRY_S
    next_s: float = 0.0
    """The time of the next attempt, by the loop's clock."""
    has_worked: bool = False
    is_barred: bool = False


class FramedCalls:
    """Opens the connections of one client, and offers them to its streams. tls: as for gRPC."""

    def __init__(
        self, channels: Channels, tls: TlsConfig | None, limits: ChannelLimits | None = None
    ) -> None:
        self._channels = channels
        self._tls = tls
        self._limits = limits or ChannelLimits()
        self._places: dict[tuple[str, int], _Place] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def serve(self, stream: ClientStream[Any], link: Link, kind: type[Message]) -> None:
        """Try in the background to open a connection for a new stream (rules 1 and 2).

        kind: of the responses. The link is that of the stream.
        """
        place = self._places.setdefault(link.key, _Place())
        if place.is_barred:
            return
        task = asyncio.create_task(self._keep_trying(place, stream, link, kind))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        stream.on_end = task.cancel

    async def _keep_trying(
        self, place: _Place, stream: ClientStream[Any], link: Link, kind: type[Message]
    ) -> None:
        loop = asyncio.get_running_loop()
        while not place.is_barred:
            await asyncio.sleep(max(0.0, place.next_s - loop.time()))
            # At once if the node takes frames. If they fail again and again, less often.
            place.next_s = loop.time() + place.pause_s * random.uniform(0.5, 1.0)  # noqa: S311
            place.pause_s = min(2 * place.pause_s, RETRY_MAX_S)
            try:
                opened = await self._open(place, link)
            except TransportError as error:
                LOGGER.debug("no appends in frames: %s", error)
                if error.kind is TransportKind.UNAUTHENTICATED:
                    place.is_barred = True  # the caller may not ask for the node's status
                continue
            if opened is not None:
                place.has_worked = True
                call = FramedCall(opened, link.address, kind)
                stream.offer(call, partial(self._note_answer, place))
                return

    @staticmethod
    def _note_answer(place: _Place) -> None:
        place.pause_s, place.next_s = RETRY_S, 0.0

    async def _open(self, place: _Place, link: Link) -> FrameStream | None:
        """A connection that the node has accepted; None if it takes no frames now.

        Raises TransportError.
        """
        timeout_ms = self._limits.connect_timeout_ms
        status = await self._channels.unary(
            link,
            NODE_STATUS,
            quorum_pb2.NodeStatusRequest(),
            quorum_pb2.NodeStatusResponse,
            timeout_ms,
        )
        if not status.frames_port:
            return None
        host, _ = link.key
        address = format_address(host, status.frames_port)
        stream = FrameStream(BUFFER_BYTES)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                context = None if self._tls is None else client_context(self._tls)
                await connect(stream, host, status.frames_port, context)
                self._watch(stream)
                opened = await self._opened(stream, link)
        except TimeoutError:
            stream.abort()
            place.is_barred = not place.has_worked
            text = f"no connection within {timeout_ms} ms"
            raise TransportError(TransportKind.UNREACHABLE, address, text) from None
        except (OSError, BadMessageError, ViolationError) as error:
            stream.abort()
            raise TransportError(TransportKind.FAILED, address, str(error)) from None
        except BaseException:
            stream.abort()
            raise
        if opened.error is not ErrorCode.NONE:
            stream.abort()
            place.is_barred = opened.error in _REJECTED
            text = f"{opened.error.name} {opened.message}".rstrip()
            raise TransportError(TransportKind.FAILED, address, text)
        return stream

    async def _opened(self, stream: FrameStream, link: Link) -> FramesOpened:
        cluster = link.cluster
        await stream.send(encode_opening("" if cluster is None else cluster.id))
        answer = await stream.frame()
        if answer is None:
            raise BadMessageError("the node closed the connection")
        opened = decode_opened(answer)
        if cluster is not None:
            cluster.learn(link.address, opened.cluster_id)
        return opened

    def _watch(self, stream: FrameStream) -> None:
        """Let the kernel notice a peer that is gone (rule 3)."""
        sock: socket.socket | None = stream.transport.get_extra_info("socket")
        if sock is None or not hasattr(socket, "TCP_USER_TIMEOUT"):
            return
        limits = self._limits
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        idle_s = max(1, limits.keepalive_ms // 1000)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, idle_s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limits.keepalive_timeout_ms)

    async def close(self) -> None:
        """End all attempts."""
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))
