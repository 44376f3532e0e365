"""A replica's calls to its peers: unary calls, and a stream to its leader.

Owns the channels to peers. A `PartitionFetchStream` carries one Fetch at a time. A broken stream is
the fastest sign of a dead leader, because a process that dies resets its connections at once.

Source: KIP-595, KIP-853.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import grpc
import grpc.aio

from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.raft.errors import MisuseError, ViolationError
from quorate.raft.messages import (
    AddVoterRequest,
    ApiVersionsRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    PeerRequest,
    RemoveVoterRequest,
    Response,
    UpdateVoterRequest,
    VoteRequest,
)
from quorate.rpc.client.channels import EOF, Channels, Link, call_error
from quorate.rpc.errors import TransportError, TransportKind
from quorate.rpc.tls import TlsConfig
from quorate.rpc.wire import convert
from quorate.rpc.wire.codecs import CODEC_OF
from quorate.rpc.wire.limits import ChannelLimits, format_address
from quorate.rpc.wire.methods import RPC_METHODS
from quorate.rpc.wire.values import ChecksumLogRequest, ChecksumLogResponse
from quorate.v1 import raft_pb2

__all__ = [
    "FetchStream",
    "PeerStream",
    "PeerTransport",
    "Peers",
    "TransportError",
    "TransportKind",
]

LOCALLY_CANCELLED = "Locally cancelled by application!"
"""What gRPC reports for a call that this process cancelled."""

FETCH_TIMEOUT_MS = 2_000
"""How long a Fetch may take beyond `max_wait_ms`, for which it may be parked."""


_SENT = frozenset(
    {
        VoteRequest,
        BeginQuorumEpochRequest,
        EndQuorumEpochRequest,
        FetchRequest,
        UpdateVoterRequest,
        ApiVersionsRequest,
        # A controller that joins automatically sends these to its leader.
        AddVoterRequest,
        RemoveVoterRequest,
    }
)
"""The requests that `PeerTransport.call` sends as unary calls."""


class PeerStream(Protocol):
    """One stream to a leader; `FetchStream` documents it."""

    @property
    def is_open(self) -> bool: ...

    async def fetch(
        self, request: FetchRequest, timeout_ms: int | None = None
    ) -> FetchResponse: ...

    async def close(self) -> None: ...


class Peers(Protocol):
    """The calls to peers, over gRPC or over Kafka's protocol; `PeerTransport` documents them."""

    async def call(
        self,
        endpoint: Endpoint,
        request: PeerRequest | AddVoterRequest | RemoveVoterRequest,
        timeout_ms: int,
    ) -> Response: ...

    async def checksum_log(
        self, endpoint: Endpoint, request: ChecksumLogRequest, timeout_ms: int
    ) -> ChecksumLogResponse: ...

    async def open_fetch_stream(
        self, endpoint: Endpoint, on_broken: Callable[[str], None]
    ) -> PeerStream: ...

    async def close(self) -> None: ...


class PeerTransport:
    """Calls to peers of one cluster.

    cluster_id: for the peers' logs, since every request already names its cluster. is_encrypted:
    whether the listener of this name uses TLS; by default all do if `tls` is given. A failed TLS
    connection never falls back to plaintext, nor vice versa. resolve: where a peer with this
    endpoint serves gRPC; by default there.
    """

    def __init__(
        self,
        cluster_id: str,
        tls: TlsConfig | None = None,
        limits: ChannelLimits | None = None,
        *,
        is_encrypted: Callable[[str], bool] | None = None,
        resolve: Callable[[Endpoint], Endpoint] | None = None,
    ) -> None:
        limits = limits or ChannelLimits()
        identity = f"quorate-peer/{cluster_id}"
        self._clear = Channels(None, limits, identity)
        self._secure = Channels(tls, limits, identity)
        self._is_encrypted = is_encrypted or (lambda _: tls is not None)
        self._has_tls = tls is not None
        self._resolve = resolve or (lambda endpoint: endpoint)

    def _channels(self, endpoint: Endpoint) -> Channels:
        if not self._is_encrypted(endpoint.name):
            return self._clear
        if not self._has_tls:
            text = f"listener {endpoint.name} uses TLS, but this node has no certificate"
            address = format_address(endpoint.host, endpoint.port)
            raise TransportError(TransportKind.UNAUTHENTICATED, address, text)
        return self._secure

    async def call(
        self,
        endpoint: Endpoint,
        request: PeerRequest | AddVoterRequest | RemoveVoterRequest,
        timeout_ms: int,
    ) -> Response:
        """Send one request and return its response.

        Raises TransportError; ViolationError for an invalid response.
        """
        endpoint = self._resolve(endpoint)
        channels = self._channels(endpoint)
        with channels.use(endpoint.host, endpoint.port) as link:
            if isinstance(request, FetchSnapshotRequest):
                return await _fetch_snapshot(link, request, timeout_ms)
            if type(request) not in _SENT:
                raise MisuseError(f"{type(request).__name__} is not sent to peers")
            response: Response = await _call(channels, link, request, timeout_ms)
            return response

    async def checksum_log(
        self, endpoint: Endpoint, request: ChecksumLogRequest, timeout_ms: int
    ) -> ChecksumLogResponse:
        """The checksum of a range of that replica's log.

        Raises TransportError, of the kind NOT_SERVED from a version that lacks the method;
        ViolationError.
        """
        endpoint = self._resolve(endpoint)
        channels = self._channels(endpoint)
        with channels.use(endpoint.host, endpoint.port) as link:
            response: ChecksumLogResponse = await _call(channels, link, request, timeout_ms)
            return response

    async def open_fetch_stream(
        self, endpoint: Endpoint, on_broken: Callable[[str], None]
    ) -> FetchStream:
        """Open a stream for fetches from a leader.

        It connects at once; the first fetch reports a failure. on_broken is called once, with the
        reason, when the stream ends by itself: not after `close` or an abandoned fetch.
        """
        endpoint = self._resolve(endpoint)
        channels = self._channels(endpoint)
        link = channels.acquire(endpoint.host, endpoint.port)
        return FetchStream(link, channels, on_broken)

    @property
    def addresses(self) -> list[str]:
        """The addresses of the open channels."""
        return self._clear.addresses + self._secure.addresses

    async def close(self) -> None:
        """Close all channels. Streams end without on_broken, pending calls with TransportError."""
        await self._clear.close()
        await self._secure.close()


async def _call(channels: Channels, link: Link, request: Any, timeout_ms: int) -> Any:
    codec = CODEC_OF[type(request)]
    method, message = codec.method, codec.encode_request(request)
    answer = await channels.unary(link, method.path, message, method.response, timeout_ms)
    return codec.decode_response(answer)


async def _fetch_snapshot(
    link: Link, request: FetchSnapshotRequest, timeout_ms: int
) -> FetchSnapshotResponse:
    """Fetch the pieces of one byte range and join them.

    If the stream breaks, the pieces that have arrived are returned.
    """
    codec = CODEC_OF[FetchSnapshotRequest]
    method, message = codec.method, codec.encode_request(request)
    call = link.server_stream(method.path, method.response, message, timeout_ms / 1000)
    first: FetchSnapshotResponse | None = None
    pieces: list[bytes] = []
    received = 0
    try:
        async for message in call:
            piece = codec.decode_response(message)
            if first is None:
                first = piece
            if piece.error is not ErrorCode.NONE:
                first = piece if received == 0 else first
                break
            if piece.position != first.position + received or piece.snapshot != first.snapshot:
                raise ViolationError(
                    f"a piece of snapshot {piece.snapshot} at {piece.position} follows "
                    f"{received} bytes of {first.snapshot} at {first.position}"
                )
            received += len(piece.data)
            if received > request.max_bytes:
                raise ViolationError(f"more than the {request.max_bytes} requested bytes")
            pieces.append(piece.data)
    except grpc.aio.AioRpcError as error:
        if received == 0:
            raise call_error(link.address, error) from None
    finally:
        call.cancel()
    if first is None:
        raise ViolationError(f"{link.address} sent an empty response to FetchSnapshot")
    return replace(first, data=pieces[0] if len(pieces) == 1 else b"".join(pieces))


class FetchStream:
    """One stream to a leader; see `PeerTransport.open_fetch_stream`."""

    def __init__(self, link: Link, channels: Channels, on_broken: Callable[[str], None]) -> None:
        self._link = link
        self._channels = channels
        self._on_broken = on_broken
        self._call = link.stream(RPC_METHODS["FetchStream"].path, raft_pb2.FetchResponse)
        self._is_open = True
        self._is_busy = False
        self._watcher = asyncio.create_task(self._watch())

    @property
    def is_open(self) -> bool:
        """False once the stream was closed or broke, or a fetch on it was abandoned."""
        return self._is_open

    async def fetch(self, request: FetchRequest, timeout_ms: int | None = None) -> FetchResponse:
        """Send one request and wait for its response; one at a time.

        timeout_ms: `max_wait_ms` plus two seconds by default. A fetch that times out or is
        cancelled ends the stream: its response would be taken for the next one's. Raises
        TransportError; ViolationError for an invalid response.
        """
        if self._is_busy:
            raise MisuseError("a fetch is already in progress on this stream")
        if not self._is_open:
            raise TransportError(TransportKind.BROKEN, self._link.address, "the stream is closed")
        if timeout_ms is None:
            timeout_ms = request.max_wait_ms + FETCH_TIMEOUT_MS
        self._is_busy = True
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._call.write(convert.encode_fetch_request(request))
                message = await self._call.read()
        except TimeoutError:
            self._end()
            text = f"no answer to a fetch within {timeout_ms} ms"
            raise TransportError(TransportKind.TIMEOUT, self._link.address, text) from None
        except grpc.aio.AioRpcError as error:
            raise call_error(self._link.address, error) from None
        except asyncio.InvalidStateError:
            # The call ended before the write: its status gives the reason.
            raise await self._why() from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                self._end()
                raise
            # gRPC reports this way that the call was cancelled, here by `close`.
            raise self._closed() from None
        finally:
            self._is_busy = False
        if message is EOF:
            raise await self._why()
        return convert.decode_fetch_response(message)

    async def close(self) -> None:
        """End the stream. A pending fetch fails; on_broken is not called."""
        self._end()

    def _closed(self) -> TransportError:
        return TransportError(TransportKind.BROKEN, self._link.address, "the stream was closed")

    async def _why(self) -> TransportError:
        error = await self._link.ended(self._call)
        return self._closed() if error.text == LOCALLY_CANCELLED else error

    async def _watch(self) -> None:
        """Wait for the call's status, which arrives as soon as the connection is reset."""
        try:
            error = await self._link.ended(self._call)
        except Exception as broken:
            text = f"the stream's status cannot be read: {broken!r}"
            error = TransportError(TransportKind.BROKEN, self._link.address, text)
        if self._is_open:
            self._end()
            # gRPC cancels a call if the task that reads from it is cancelled: the peer is fine.
            if error.text != LOCALLY_CANCELLED:
                self._on_broken(error.text)

    def _end(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        self._call.cancel()
        self._channels.release(self._link)
