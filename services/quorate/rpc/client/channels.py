"""Channels to other nodes: one per address, opened on first use, closed after a long idle time.

Owns the channel cache, and translates gRPC's errors into `TransportError`.

Rules:
1. A channel in use is never closed. A channel is closed once it was unused for `channel_idle_ms`. A
   channel that could not connect is closed as soon as it has no users: gRPC would wait before its
   next attempt and meanwhile fail calls with the last attempt's error, although the peer may be
   back. The callers decide how often to retry.
2. `connected` distinguishes "never reached" from "lost on the way": a call that fails after it may
   have been executed; before it, certainly not. It fails as fast as the peer's machine refuses the
   connection.
3. A client's calls name its cluster (see `cluster`). Replicas name it in their requests instead.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from quorate.rpc.client.cluster import Cluster
from quorate.rpc.client.handshake_faults import handshake_fault
from quorate.rpc.client.silence import SilenceWatch
from quorate.rpc.client.stream_call import StreamCall
from quorate.rpc.errors import TransportError, TransportKind
from quorate.rpc.tls import ClientCredentials, TlsConfig
from quorate.rpc.wire.cluster_id import Metadata, is_foreign_text
from quorate.rpc.wire.limits import ChannelLimits, format_address
from quorate.rpc.wire.methods import RPC_METHODS
from quorate.telemetry.context import TRACE_PARENT, TRACE_PARENT_KEY
from quorate.v1 import quorum_pb2

M = TypeVar("M", bound=Message)
T = TypeVar("T")

EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs lack it
"""The result of a read at the end of a stream."""

NODE_STATUS = RPC_METHODS["NodeStatus"].path

_REFUSED = re.compile(r"connection refused", re.IGNORECASE)
_NEVER_REACHED = re.compile(
    r"failed to connect|dns resolution|errors resolving|lookup failed|resolver", re.IGNORECASE
)
_RESET = re.compile(
    r"reset by peer|socket closed|connection reset|broken pipe|goaway|recvmsg|"
    r"transport (is )?clos|endpoint closing|stream removed",
    re.IGNORECASE,
)
_HANDSHAKE = re.compile(r"handshak|ssl|certificate|peer name", re.IGNORECASE)
_TOO_LARGE = re.compile(r"larger than max", re.IGNORECASE)
_PREFIX = re.compile(
    r"^(failed to connect to all addresses; last error: (UNKNOWN|UNAVAILABLE): )?"
    r"ipv[46]:\S+: (Failed to connect to remote host: )?"
)
_NO_NAME = re.compile(r"(?:address lookup failed for|errors? resolving) [^]]*?: ([^:\][]+)\]?$")

_KINDS = {
    grpc.StatusCode.UNAUTHENTICATED: TransportKind.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED: TransportKind.UNAUTHENTICATED,
    grpc.StatusCode.UNIMPLEMENTED: TransportKind.NOT_SERVED,
    grpc.StatusCode.FAILED_PRECONDITION: TransportKind.NOT_SERVED,
    grpc.StatusCode.CANCELLED: TransportKind.BROKEN,
}


def status_error(address: str, code: grpc.StatusCode, details: str) -> TransportError:
    """Translate the status of a failed call.

    REFUSED and UNREACHABLE guarantee that nothing was sent, so only texts that say so map to them.
    """
    text = _plain(details) or code.name
    if code is grpc.StatusCode.UNAVAILABLE:
        kind = _unavailable(details)
    elif code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        is_size = _TOO_LARGE.search(text)
        kind = TransportKind.TOO_LARGE if is_size else TransportKind.OVERLOADED
    elif code is grpc.StatusCode.FAILED_PRECONDITION and is_foreign_text(text):
        kind = TransportKind.OTHER_CLUSTER
    elif code is grpc.StatusCode.OK:
        kind, text = TransportKind.BROKEN, "the peer ended the stream"
    elif code is grpc.StatusCode.DEADLINE_EXCEEDED:
        kind, text = TransportKind.TIMEOUT, "no answer in time"
    else:
        kind = _KINDS.get(code, TransportKind.FAILED)
    return TransportError(kind, address, text)


def _plain(details: str) -> str:
    """The error text of gRPC in plain words, without the parts that repeat the address."""
    if fault := handshake_fault(details or ""):
        return fault
    text = _PREFIX.sub("", details or "")
    no_name = _NO_NAME.search(text)
    return f"the host name does not resolve: {no_name[1]}" if no_name else text


def _unavailable(details: str) -> TransportKind:
    if _REFUSED.search(details):
        return TransportKind.REFUSED
    if _NEVER_REACHED.search(details):
        is_tls = _HANDSHAKE.search(details)
        return TransportKind.UNAUTHENTICATED if is_tls else TransportKind.UNREACHABLE
    return TransportKind.BROKEN if _RESET.search(details) else TransportKind.FAILED


def call_error(address: str, error: grpc.aio.AioRpcError) -> TransportError:
    # grpc-stubs lacks the methods that AioRpcError inherits from grpc.Call.
    status: Any = error
    return status_error(address, status.code(), status.details() or "")


@dataclass(slots=True)
class Link:
    """One channel and the number of its users."""

    key: tuple[str, int]
    address: str
    channel: grpc.aio.Channel
    users: int = 0
    last_used: float = 0.0
    """The time of the last use, by the loop's clock, in seconds."""
    calls: dict[str, Any] = field(default_factory=dict)
    watch: SilenceWatch | None = None
    """Detects a silent node; None if that does not matter."""
    cluster: Cluster | None = None
    """The cluster that calls name; None if they name none."""

    @property
    def metadata(self) -> Metadata:
        """The metadata of each call."""
        return () if self.cluster is None else self.cluster.metadata

    def unchecked(self) -> Cluster | None:
        """The cluster if a call that is sent now must be checked by `Cluster.check`."""
        return None if self.cluster is None or self.cluster.id else self.cluster

    def unary(self, path: str, reply: type[M]) -> Any:
        """The multi-callable of a unary method."""
        call = self.calls.get(path)
        if call is None:
            call = self.calls[path] = self.channel.unary_unary(
                path, request_serializer=_serialize, response_deserializer=reply.FromString
            )
        return call

    def server_stream(
        self, path: str, reply: type[M], message: Message, timeout_s: float | None = None
    ) -> Any:
        """Start a call with a stream of responses."""
        begin: Any = self.channel.unary_stream(
            path, request_serializer=_serialize, response_deserializer=reply.FromString
        )
        return begin(message, timeout=timeout_s, metadata=self.metadata)

    def stream(self, path: str, reply: type[M]) -> StreamCall[M]:
        """Start a bidirectional call."""
        begin: Any = self.channel.stream_stream(
            path, request_serializer=_serialize, response_deserializer=reply.FromString
        )
        return StreamCall(begin(metadata=self.metadata))

    async def ended(self, call: Any) -> TransportError:
        """The status of a call; waits for the end of the call."""
        return status_error(self.address, await call.code(), await call.details() or "")

    def silent(self) -> TransportError:
        """The error of calls to a silent node, which may have executed them."""
        assert self.watch is not None
        text = f"no response for {self.watch.silence_ms} ms"
        return TransportError(TransportKind.TIMEOUT, self.address, text)

    def closed(self) -> TransportError:
        """The error of calls that this client ended; the node may have executed them."""
        return TransportError(TransportKind.BROKEN, self.address, "the client closed the call")

    async def answered(self, call: Any, answer: Awaitable[T]) -> T:
        """Wait for an awaitable of a call; cancels the call if the node is silent.

        Raises TransportError, also if the client is closed meanwhile.
        """
        if self.watch is None:
            return await answer
        waiter = self.watch.begin(call.cancel)
        try:
            found = await answer
        except asyncio.CancelledError:
            # gRPC reports the end of a call that this process has ended this way too.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise (self.silent() if waiter.is_notified else self.closed()) from None
        finally:
            self.watch.end(waiter)
        if waiter.is_notified:
            raise self.silent()
        self.watch.received()
        return found


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()


class Channels:
    """The channels of one process to others.

    identity: sent as the user agent. notices_silence: end calls to a node that answers nothing (see
    `silence`), regardless of their timeout. cluster: the one that calls name.
    """

    def __init__(
        self,
        tls: TlsConfig | None,
        limits: ChannelLimits,
        identity: str,
        *,
        notices_silence: bool = False,
        cluster: Cluster | None = None,
    ) -> None:
        self._cluster = cluster
        self._notices_silence = notices_silence
        self._credentials = None if tls is None else ClientCredentials(tls)
        self._limits = limits
        self._options: list[tuple[str, Any]] = [
            *limits.options(),
            ("grpc.primary_user_agent", identity),
        ]
        self._links: dict[tuple[str, int], Link] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @contextmanager
    def use(self, host: str, port: int) -> Iterator[Link]:
        """The channel to an address, kept open within the block. TlsError for unusable files."""
        link = self.acquire(host, port)
        try:
            yield link
        finally:
            self.release(link)

    def acquire(self, host: str, port: int) -> Link:
        """Like `use`; the caller returns the link with `release`."""
        if self._is_closed:
            raise _closed(format_address(host, port))
        link = self._links.get((host, port))
        if link is None:
            link = self._links[host, port] = self._dial(host, port)
            self._schedule_sweep()
        link.users += 1
        return link

    async def connect(self, host: str, port: int, timeout_ms: float) -> Link:
        """Like `acquire`, but the channel has a connection. Raises as `connected`."""
        link = self.acquire(host, port)
        try:
            await self.connected(link, timeout_ms)
        except BaseException:
            self.release(link)
            raise
        return link

    def release(self, link: Link) -> None:
        link.users -= 1
        link.last_used = asyncio.get_running_loop().time()
        if link.users or self._links.get(link.key) is not link:
            return
        if link.channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
            self._drop(link)

    def _dial(self, host: str, port: int) -> Link:
        address = format_address(host, port)
        if self._credentials is None:
            channel = grpc.aio.insecure_channel(address, options=self._options)
        else:
            credentials = self._credentials.current()
            channel = grpc.aio.secure_channel(address, credentials, options=self._options)
        link = Link((host, port), address, channel, cluster=self._cluster)
        if self._notices_silence:
            link.watch = SilenceWatch(partial(self._is_answering, link), self._limits.silence_ms)
        return link

    @staticmethod
    async def _is_answering(link: Link, timeout_ms: float) -> bool:
        """Whether the node answers in time, even with an error.

        A broken connection also counts, since it ends the calls on it by itself.
        """
        call = link.unary(NODE_STATUS, quorum_pb2.NodeStatusResponse)
        try:
            await call(_STATUS, timeout=timeout_ms / 1000)
        except grpc.aio.AioRpcError as error:
            return call_error(link.address, error).kind is not TransportKind.TIMEOUT
        return True

    def _schedule_sweep(self) -> None:
        if self._sweep is None and self._links:
            delay_s = self._limits.channel_idle_ms / 1000 / 2
            self._sweep = asyncio.get_running_loop().call_later(delay_s, self._close_unused)

    def _close_unused(self) -> None:
        self._sweep = None
        now = asyncio.get_running_loop().time()
        idle_s = self._limits.channel_idle_ms / 1000
        for link in list(self._links.values()):
            if link.users == 0 and now - link.last_used >= idle_s:
                self._drop(link)
        self._schedule_sweep()

    def _drop(self, link: Link) -> None:
        """Forget a channel and close it."""
        del self._links[link.key]
        if link.watch is not None:
            link.watch.close()
        task = asyncio.create_task(link.channel.close(None))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def connected(self, link: Link, timeout_ms: float) -> None:
        """Wait until the channel has a connection, for the time of one attempt at most.

        Raises TransportError (REFUSED, UNREACHABLE, UNAUTHENTICATED) as soon as an attempt has
        failed, or when the timeout has passed; CLOSED if the client is closed meanwhile.
        """
        channel = link.channel
        timeout_ms = min(timeout_ms, self._limits.connect_timeout_ms)
        try:
            state = channel.get_state(try_to_connect=True)
            if state is grpc.ChannelConnectivity.READY:
                return
            async with asyncio.timeout(timeout_ms / 1000):
                while state not in (
                    grpc.ChannelConnectivity.READY,
                    grpc.ChannelConnectivity.TRANSIENT_FAILURE,
                ):
                    await channel.wait_for_state_change(state)
                    state = channel.get_state(try_to_connect=True)
        except TimeoutError:
            text = f"no connection within {timeout_ms:.0f} ms"
            raise TransportError(TransportKind.UNREACHABLE, link.address, text) from None
        except grpc.aio.UsageError:
            raise _closed(link.address) from None
        if state is grpc.ChannelConnectivity.READY:
            return
        # The state carries no reason: a read-only call fails with it.
        try:
            await self.unary(link, NODE_STATUS, _STATUS, quorum_pb2.NodeStatusResponse, timeout_ms)
        except TransportError as error:
            if error.nothing_done:
                raise
            # That call may have been executed, but the caller's was never sent.
            raise TransportError(TransportKind.UNREACHABLE, link.address, error.text) from None

    async def unary(
        self, link: Link, path: str, message: Message, reply: type[M], timeout_ms: float
    ) -> M:
        """Make one unary call with this task's traceparent. Raises TransportError."""
        parent = TRACE_PARENT.get()
        metadata = link.metadata + (((TRACE_PARENT_KEY, parent),) if parent else ())
        unchecked = link.unchecked()
        call = link.unary(path, reply)
        try:
            begun = call(message, timeout=max(0.0, timeout_ms) / 1000, metadata=metadata)
            answer: M = await link.answered(begun, begun)
            if unchecked is not None:
                await unchecked.check(link.address, begun)
        except grpc.aio.AioRpcError as error:
            raise call_error(link.address, error) from None
        return answer

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def addresses(self) -> list[str]:
        """The addresses of the open channels."""
        return [link.address for link in self._links.values()]

    async def close(self) -> None:
        """Close all channels permanently; pending calls end."""
        self._is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        links, self._links = list(self._links.values()), {}
        for link in links:
            if link.watch is not None:
                link.watch.close()
        await asyncio.gather(*(link.channel.close(None) for link in links), *self._closing)


def _closed(address: str) -> TransportError:
    return TransportError(TransportKind.CLOSED, address, "the client is closed")


_STATUS = quorum_pb2.NodeStatusRequest()
