"""A replica's calls to its peers over Kafka's protocol, in place of `rpc.client.PeerTransport`.

Rules:
1. A peer is dialled on its endpoint of the listener for Kafka's protocol. A connection carries one
   request at a time, because a server answers the requests of a connection in order: one connection
   carries the Fetches from the leader, and each other request takes an idle one or opens another.
2. A connection begins with ApiVersions. A peer that does not serve voters there, cannot be reached
   there, or has no such endpoint, is called over gRPC, so controllers can change
   `quorate.peer.protocol` one by one.
   ApiVersions (the probe of AddVoter) goes to the endpoint that it names. Kafka's response does not
   say which replica answers.
3. A failed connection is reported like one of gRPC: refused, unreachable, broken, or no response in
   time. A connection that ends by itself is the fastest sign of a dead leader. After a request that
   failed, was cancelled or timed out, its connection is closed: the response would be taken for
   that of the next request.
4. With TLS the peer must present a certificate for the name that was dialled. A failed TLS
   connection never falls back to plaintext, nor vice versa.

Source: KIP-595, KIP-853; KIP-511 (ApiVersions).
"""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

from quorate.bridge.messages import schemas as s
from quorate.bridge.messages.peer_messages import (
    API_KEYS,
    PeerRequest,
    ResponseReader,
    alone,
    can_send,
    known_endpoints,
    read_response,
    unsupported,
    write_request,
)
from quorate.bridge.requests.raft_requests import level_range
from quorate.bridge.requests.replication import PEER_CLIENT_ID, bridge_endpoint
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.features import KRAFT_VERSION, VersionRange
from quorate.raft.errors import MisuseError, ViolationError
from quorate.raft.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchRequest,
    FetchResponse,
    Response,
)
from quorate.raft.types import VoterSet
from quorate.rpc.client.transport import FETCH_TIMEOUT_MS, Peers, PeerStream
from quorate.rpc.errors import BadMessageError, TransportError, TransportKind
from quorate.rpc.framing.frame_stream import FrameStream, connect
from quorate.rpc.tls import TlsConfig, client_context
from quorate.rpc.wire.limits import MESSAGE_BYTES_MAX, ChannelLimits, format_address
from quorate.rpc.wire.values import ChecksumLogRequest, ChecksumLogResponse
from quorate.version import __version__

BUFFER_BYTES: Final = 1024 * 1024
IDLE_S: Final = 10.0
"""A connection that was idle for longer is not used again: the peer may have closed it or moved,
and a vote must not wait to find out.
"""
_NOTHING_SENT: Final = frozenset(
    {TransportKind.NOT_SERVED, TransportKind.REFUSED, TransportKind.UNREACHABLE}
)
"""Errors after which a request goes over gRPC. A controller that serves its peers there only opens
the listener for Kafka's brokers once it knows the committed metadata, so once there is a leader.
"""
FETCH_SINCE: Final = 17
"""The first Fetch that names the directory of its sender."""
FEATURES_SINCE: Final = 4
"""The first ApiVersions whose response can contain features that support level 0 (KIP-1022)."""

NO_KRAFT_VERSION: Final = VersionRange(0, 0)
"""The levels of a peer that does not name the feature."""


class KafkaPeers:
    """Implements `rpc.client.transport.Peers`.

    grpc: for what is not sent over Kafka's protocol. listener: the name of the endpoints that speak
    it. tls: of connections to them, None without. voters: returns the current voters.
    """

    def __init__(
        self,
        grpc: Peers,
        *,
        listener: str,
        tls: TlsConfig | None,
        voters: Callable[[], VoterSet],
        connect_timeout_ms: int = ChannelLimits().connect_timeout_ms,
    ) -> None:
        self._grpc = grpc
        self._listener = listener
        self._tls = tls
        self._voters = voters
        self._connect_timeout_s = connect_timeout_ms / 1000
        self._responses = ResponseReader(
            listener, lambda replica_id, named: known_endpoints(voters(), replica_id, named)
        )
        self._idle: dict[Endpoint, list[PeerConnection]] = defaultdict(list)
        self._open: set[PeerConnection] = set()

    async def call(self, endpoint: Endpoint, request: PeerRequest, timeout_ms: int) -> Response:
        """Send one request and return its response.

        Raises TransportError; ViolationError for an invalid response.
        """
        target = self._target(endpoint)
        if isinstance(request, ApiVersionsRequest):
            if endpoint.name != self._listener:
                return await self._grpc.call(endpoint, request, timeout_ms)
            return await self._versions(endpoint, timeout_ms)
        if target is not None:
            try:
                return await self._call(target, request, timeout_ms)
            except TransportError as error:
                if error.kind not in _NOTHING_SENT or target == endpoint:
                    raise
        return await self._grpc.call(endpoint, request, timeout_ms)

    async def checksum_log(
        self, endpoint: Endpoint, request: ChecksumLogRequest, timeout_ms: int
    ) -> ChecksumLogResponse:
        """The checksum of a range of that replica's log, over gRPC.

        Raises TransportError, of the kind NOT_SERVED for a replica that does not speak gRPC;
        ViolationError.
        """
        if endpoint.name == self._listener:
            text = "Kafka's protocol has no checksums of the log"
            raise TransportError(TransportKind.NOT_SERVED, _address(endpoint), text)
        return await self._grpc.checksum_log(endpoint, request, timeout_ms)

    async def open_fetch_stream(
        self, endpoint: Endpoint, on_broken: Callable[[str], None]
    ) -> PeerStream:
        """Connect to a leader for Fetches. Raises TransportError.

        on_broken is called once, with the reason, when the connection ends by itself: not after
        `close` or an abandoned fetch.
        """
        target = self._target(endpoint)
        if target is not None:
            try:
                connection = await self._connect(target)
            except TransportError as error:
                if error.kind not in _NOTHING_SENT or target == endpoint:
                    raise
            else:
                return KafkaFetchStream(connection, self._responses, on_broken, self._close)
        stream = await self._grpc.open_fetch_stream(endpoint, on_broken)
        return _GrpcStream(stream, lambda: self._target(endpoint) != target)

    async def close(self) -> None:
        """Close all connections. Pending calls end with TransportError."""
        for connection in tuple(self._open):
            self._close(connection)
        await self._grpc.close()

    # --- endpoints --------------------------------------------------------------------------------

    def _target(self, endpoint: Endpoint) -> Endpoint | None:
        """The endpoint for Kafka's protocol of the peer that has this one (rule 1)."""
        if endpoint.name == self._listener:
            return endpoint
        for voter in self._voters():
            if endpoint in voter.endpoints:
                return bridge_endpoint(voter.endpoints, self._listener)
        return None

    # --- connections ------------------------------------------------------------------------------

    async def _call(self, endpoint: Endpoint, request: PeerRequest, timeout_ms: int) -> Response:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                connection = self._take_idle(endpoint) or await self._connect(endpoint)
                try:
                    body = await connection.ask(alone(request))
                except BaseException:
                    self._close(connection)
                    raise
        except TimeoutError:
            raise _too_late(endpoint, timeout_ms) from None
        self._keep(endpoint, connection)
        if body is None:
            return unsupported(request, f"{_address(endpoint)} is too old for this request")
        return self._responses.read(request, body)

    async def _versions(self, endpoint: Endpoint, timeout_ms: int) -> ApiVersionsResponse:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                connection = await self._connect(endpoint)
        except TimeoutError:
            raise _too_late(endpoint, timeout_ms) from None
        self._keep(endpoint, connection)
        return ApiVersionsResponse(ErrorCode.NONE, None, connection.kraft_version)

    def _take_idle(self, endpoint: Endpoint) -> PeerConnection | None:
        now_s = asyncio.get_running_loop().time()
        idle = self._idle[endpoint]
        while idle:
            found = idle.pop()
            if found.is_open and now_s - found.used_at_s < IDLE_S:
                return found
            self._close(found)
        return None

    def _keep(self, endpoint: Endpoint, connection: PeerConnection) -> None:
        """Keep one idle connection for the next call."""
        if connection.is_open and connection in self._open and not self._idle[endpoint]:
            self._idle[endpoint].append(connection)
        else:
            self._close(connection)

    def _close(self, connection: PeerConnection) -> None:
        self._open.discard(connection)
        connection.close()

    async def _connect(self, endpoint: Endpoint) -> PeerConnection:
        """Open a connection to a peer that serves voters (rule 2). Raises TransportError."""
        connection = PeerConnection(_address(endpoint))
        self._open.add(connection)
        try:
            async with asyncio.timeout(self._connect_timeout_s) as limit:
                await connection.open(endpoint, self._tls)
        except TimeoutError:
            self._close(connection)
            if not limit.expired():
                raise
            text = f"no connection within {self._connect_timeout_s:g} s"
            kind = TransportKind.UNREACHABLE
            raise TransportError(kind, connection.address, text) from None
        except BaseException:
            self._close(connection)
            raise
        return connection


class _GrpcStream:
    """A stream over gRPC, used until the peer's endpoint for Kafka's protocol changes.

    is_outdated: whether it has.
    """

    def __init__(self, stream: PeerStream, is_outdated: Callable[[], bool]) -> None:
        self._stream = stream
        self._is_outdated = is_outdated
        self.close = stream.close
        self.fetch = stream.fetch

    @property
    def is_open(self) -> bool:
        return self._stream.is_open and not self._is_outdated()


class PeerConnection:
    """A connection to a peer. address: for messages. used_at_s: the loop's time of the last
    response. on_lost: called when the connection ends by itself, with the reason. kraft_version:
    the levels that the peer supports.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.used_at_s = 0.0
        self.on_lost: Callable[[str], None] = lambda _reason: None
        self.is_open = False
        self.kraft_version = NO_KRAFT_VERSION
        self._is_connected = False
        self._correlation = itertools.count(1)
        self._versions: dict[int, tuple[int, int]] = {}
        self._stream: FrameStream | None = None

    async def open(self, endpoint: Endpoint, tls: TlsConfig | None) -> None:
        """Connect, and ask for the versions that the peer serves. Raises TransportError."""
        try:
            context = None if tls is None else client_context(tls)
        except OSError as error:
            text = f"the files for TLS cannot be used: {error}"
            raise TransportError(TransportKind.UNAUTHENTICATED, self.address, text) from None
        try:
            stream = FrameStream(BUFFER_BYTES, self._lost)
            self._stream = await connect(stream, endpoint.host, endpoint.port, context)
        except TimeoutError:
            raise
        except OSError as error:
            raise self._failure(error) from None
        self.is_open = self._is_connected = True
        found = await self._ask(
            s.API_VERSIONS,
            FEATURES_SINCE,
            s.make(
                s.request_type(s.API_VERSIONS, FEATURES_SINCE),
                client_software_name="quorate",
                client_software_version=__version__,
            ),
        )
        self._versions = {e.api_key: (e.min_version, e.max_version) for e in found.api_keys}
        self.kraft_version = _kraft_version(found)
        if s.VOTE not in self._versions:
            text = "it does not serve voters there (quorate.peer.protocol)"
            raise TransportError(TransportKind.NOT_SERVED, self.address, text)

    async def ask(self, request: PeerRequest) -> Any:
        """The body of the response; None if the peer's versions cannot express the request.

        Raises TransportError; ViolationError for a response that cannot be decoded.
        """
        api_key = API_KEYS.get(type(request))
        if api_key is None:
            raise MisuseError(f"{type(request).__name__} is not sent to peers")
        version = self._version(api_key)
        if not can_send(request, version):
            return None
        return await self._ask(api_key, version, write_request(request, version))

    def close(self) -> None:
        """Close the connection. A pending request ends with TransportError. Idempotent."""
        self.is_open = False
        if self._stream is not None:
            self._stream.abort()

    def _version(self, api_key: int) -> int:
        """The highest version that both sides know. Raises TransportError if there is none."""
        ours_low, ours_high = s.SERVED[api_key]
        if api_key == s.FETCH:
            ours_low = FETCH_SINCE
        low, high = self._versions.get(api_key, (0, -1))
        version = min(high, ours_high)
        if version < max(low, ours_low):
            text = f"it does not serve API {api_key} in versions {ours_low} to {ours_high}"
            raise TransportError(TransportKind.NOT_SERVED, self.address, text)
        return version

    async def _ask(self, api_key: int, version: int, body: Any) -> Any:
        assert self._stream is not None, "open() comes first"
        correlation_id = next(self._correlation)
        header = s.write_header(api_key, version, correlation_id, PEER_CLIENT_ID)
        try:
            await self._stream.send(header + s.write(body))
            frame = await self._stream.frame(bytes_max=MESSAGE_BYTES_MAX)
            if frame is None:
                raise ConnectionResetError("the connection was closed")
            found, response = read_response(api_key, version, frame)
        except TimeoutError:
            raise
        except OSError as error:
            raise self._failure(error) from None
        except BadMessageError as error:
            if not self.is_open:
                raise self._failure(ConnectionResetError(str(error))) from None
            raise ViolationError(f"{self.address}: {error}") from None
        if found != correlation_id:
            raise ViolationError(f"{self.address} answered another request")
        self.used_at_s = asyncio.get_running_loop().time()
        return response

    def _lost(self, error: Exception | None) -> None:
        if self.is_open:
            self.is_open = False
            reason = str(error) if error is not None else "the peer closed the connection"
            self.on_lost(f"{reason} (Kafka's protocol at {self.address})")

    def _failure(self, error: OSError) -> TransportError:
        kind = TransportKind.BROKEN if self._is_connected else TransportKind.UNREACHABLE
        if isinstance(error, ConnectionRefusedError):
            kind = TransportKind.REFUSED
        elif isinstance(error, ssl.SSLError):
            kind = TransportKind.UNAUTHENTICATED
        return TransportError(kind, self.address, str(error) or type(error).__name__)


class KafkaFetchStream:
    """The Fetches from one leader; see `KafkaPeers.open_fetch_stream`. close: closes a connection
    of its owner.
    """

    def __init__(
        self,
        connection: PeerConnection,
        responses: ResponseReader,
        on_broken: Callable[[str], None],
        close: Callable[[PeerConnection], None],
    ) -> None:
        self._connection = connection
        self._responses = responses
        self._close = close
        self._is_busy = False
        connection.on_lost = on_broken

    @property
    def is_open(self) -> bool:
        """False once it was closed or broke, or a fetch on it was abandoned."""
        return self._connection.is_open

    async def fetch(self, request: FetchRequest, timeout_ms: int | None = None) -> FetchResponse:
        """Send one request and wait for its response; one at a time.

        timeout_ms: `max_wait_ms` plus two seconds by default. Raises TransportError; ViolationError
        for an invalid response.
        """
        address = self._connection.address
        if self._is_busy:
            raise MisuseError("a fetch is already in progress on this stream")
        if not self.is_open:
            raise TransportError(TransportKind.BROKEN, address, "the stream is closed")
        if timeout_ms is None:
            timeout_ms = request.max_wait_ms + FETCH_TIMEOUT_MS
        self._is_busy = True
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                body = await self._connection.ask(request)
        except TimeoutError:
            self._close(self._connection)
            text = f"no answer to a fetch within {timeout_ms} ms"
            raise TransportError(TransportKind.TIMEOUT, address, text) from None
        except BaseException:
            self._close(self._connection)
            raise
        finally:
            self._is_busy = False
        response = self._responses.read(request, body)
        assert isinstance(response, FetchResponse), type(response)
        return response

    async def close(self) -> None:
        """End the stream. A pending fetch fails; on_broken is not called."""
        self._close(self._connection)


def _kraft_version(found: Any) -> VersionRange:
    """The levels of kraft.version in a response to ApiVersions. Raises ViolationError."""
    for each in found.supported_features:
        if each.name == KRAFT_VERSION:
            return level_range(each.min_version, each.max_version)
    return NO_KRAFT_VERSION


def _too_late(endpoint: Endpoint, timeout_ms: int) -> TransportError:
    text = f"no response within {timeout_ms} ms"
    return TransportError(TransportKind.TIMEOUT, _address(endpoint), text)


def _address(endpoint: Endpoint) -> str:
    return format_address(endpoint.host, endpoint.port)
