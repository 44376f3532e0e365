"""Appends in frames: a connection without gRPC, which takes the place of an append stream's call.

gRPC takes a third of the CPU time that a single commit costs a client, and most of its context
switches. A client opens its stream over gRPC, and learns from NodeStatus whether the node takes
frames (`rpc.wire.frames`). Rules:

1. Opening never delays an append: it happens in the background, and the stream changes over between
   two messages (`ClientStream.offer`).
2. What cannot be opened is tried again, after `RETRY_S` and up to `RETRY_MAX_S`, as long as the
   stream is open; after a timeout, as behind a firewall, only then. So is a connection that did not
   last for `RETRY_MAX_S`: a listener with too many connections closes the idlest. Where the caller
   may not append, or another node or cluster listens, it is not tried again.
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
_FINAL = (TransportKind.UNAUTHENTICATED, TransportKind.OTHER_CLUSTER)
"""Errors after which an address is not tried again."""


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
                return self._decode(bytes(frame))
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
    """What is known of the frames of one address. Times are of the loop's clock, in seconds."""

    pause_s: float = RETRY_S
    """How long to wait after the next attempt that fails or does not last."""
    next_s: float = 0.0
    """When to try again at the earliest."""
    opened_s: float = math.inf
    """When the last connection was opened."""
    is_barred: bool = False

    def begin(self, now_s: float) -> float:
        """How long to wait before the next attempt."""
        if now_s - self.opened_s >= RETRY_MAX_S:
            self.pause_s, self.next_s = RETRY_S, 0.0
        self.opened_s = math.inf
        return max(0.0, self.next_s - now_s)

    def note_attempt(self, now_s: float) -> None:
        """The next attempt, if it must be, is not before the pause."""
        self.next_s = now_s + self.pause_s * random.uniform(0.5, 1.0)  # noqa: S311
        self.pause_s = min(2 * self.pause_s, RETRY_MAX_S)

    def note_failure(self, kind: TransportKind) -> None:
        self.is_barred = kind in _FINAL
        if kind is TransportKind.TIMEOUT:
            self.next_s += RETRY_MAX_S


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
            await asyncio.sleep(place.begin(loop.time()))
            place.note_attempt(loop.time())
            try:
                opened = await self._open(link)
            except TransportError as error:
                LOGGER.debug("no appends in frames: %s", error)
                place.note_failure(error.kind)
                continue
            if opened is not None:
                place.opened_s = loop.time()
                stream.offer(FramedCall(opened, link.address, kind))
                return

    async def _open(self, link: Link) -> FrameStream | None:
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
            _check(opened, address, status.node_id)
        except TimeoutError:
            stream.abort()
            text = f"no connection within {timeout_ms} ms"
            raise TransportError(TransportKind.TIMEOUT, address, text) from None
        except (OSError, BadMessageError, ViolationError) as error:
            stream.abort()
            raise TransportError(TransportKind.FAILED, address, str(error)) from None
        except BaseException:
            stream.abort()
            raise
        return stream

    @staticmethod
    async def _opened(stream: FrameStream, link: Link) -> FramesOpened:
        cluster = link.cluster
        await stream.send(encode_opening("" if cluster is None else cluster.id))
        answer = await stream.frame()
        if answer is None:
            raise BadMessageError("the node closed the connection")
        opened = decode_opened(bytes(answer))
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


def _check(opened: FramesOpened, address: str, node_id: int) -> None:
    """Raise TransportError unless the node accepts appends. node_id: the one that was asked."""
    if opened.error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        raise TransportError(TransportKind.UNAUTHENTICATED, address, opened.message)
    if opened.error is ErrorCode.INCONSISTENT_CLUSTER_ID:
        raise TransportError(TransportKind.OTHER_CLUSTER, address, opened.message)
    if opened.error is not ErrorCode.NONE:
        text = f"{opened.error.name} {opened.message}".rstrip()
        raise TransportError(TransportKind.FAILED, address, text)
    if opened.node_id != node_id:
        text = f"node {opened.node_id} listens there, and not node {node_id}"
        raise TransportError(TransportKind.OTHER_CLUSTER, address, text)
