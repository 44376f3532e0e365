"""A listener for Kafka's protocol: accepts connections and passes requests to an `Answerer`.

A frame is four bytes of length and a request. Requests of a connection are processed in order, one
at a time, as in Kafka's server, so a Fetch that waits blocks only its own connection.

Rules:
1. A frame above the sender's size limit, or one that is not a served request, closes the connection
   without a response and with one line in the log.
2. With TLS every client must present a certificate of our authorities, unless `tls` says otherwise;
   its principal holds for the lifetime of the connection. A connection counts from before its
   handshake. `handshakes` limits the concurrency and rate of handshakes.
3. A connection is closed if it is idle for `KafkaConnection.idle_s`, does not finish its handshake
   within `HANDSHAKE_S` or its authentication within `AUTHENTICATION_S`, or does not send the rest
   of a frame or read its response within `FRAME_S`.
   `connections` limits their number and evicts them; `frames` limits the memory of their frames,
   and `rpc.server.response_memory` that of their responses.
4. A request is decoded only if `Answerer.refuse` does not reject it by its header.
5. With SASL, requests are passed on only once the client has authenticated (`sasl`). The response
   to a failed authentication is delayed, and ends the connection.
6. An `Answerer` must not raise. If it does, the connection closes with the traceback in the log.
7. After a frame that opens it for appends (`rpc.wire.frames`), a connection belongs to `appends`.
   With SASL there is none: nothing would end with the session.

Source: Kafka's protocol guide ("Network"); KIP-511 (an unknown version of ApiVersions is answered
in version 0).
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

from quorate.bridge.authentication.sasl import (
    Authentication,
    FailedError,
    SaslAuthenticator,
    Session,
)
from quorate.bridge.framing.frames import Decoder, Receipt, Unfinished
from quorate.bridge.listener.connections import Connections, KafkaConnection
from quorate.bridge.listener.handshakes import Handshakes, handshake_fault
from quorate.bridge.messages import schemas as s
from quorate.common.error_codes import ErrorCode
from quorate.metadata import requests as r
from quorate.rpc.cancellation import cancel_tasks
from quorate.rpc.errors import BadMessageError, TlsError
from quorate.rpc.framing.frame_stream import FrameStream
from quorate.rpc.principals import Caller, PrincipalMapping, caller_of_certificate
from quorate.rpc.server.framed_appends import APPENDING, FrameConnection, FramedAppends
from quorate.rpc.server.response_memory import NoRoomError, ResponseMemory
from quorate.rpc.tls import ServerContext, TlsConfig
from quorate.rpc.wire.frames import is_opening
from quorate.telemetry.limited_log import LimitedLog

LOGGER = logging.getLogger(__name__)

HANDSHAKE_S = 5.0
"""Measured from the start of the handshake, without its wait in `handshakes`. The gRPC listeners
have the same limit (`ServerLimits.handshake_timeout_ms`).
"""
AUTHENTICATION_S = 10.0
"""For a whole SASL authentication, after the TLS handshake."""
BACKLOG = 4_096
"""All brokers of a cluster connect to a new leader at once; the kernel drops what exceeds this, and
the client's kernel tries again after a second. net.core.somaxconn limits it as well.
"""
ACCEPTS_MAX = 16
"""Connections accepted in one turn of the event loop: a turn is long while many brokers connect."""
ACCEPT_PAUSE_S = 0.1
TOPICS_INLINE_MAX = 100
"""A response about more topics is encoded in a thread: with all configs of each topic, 5,000 topics
take more than half a second.
"""
FEATURES_SINCE, LEVEL_0_SINCE = 3, 4
"""The versions of ApiVersions that list features, and features that support level 0 (KIP-1022)."""
LOG_INTERVAL_S = 10.0
"""The shortest interval between log lines about closed connections of one host, seconds."""


NO_RESPONSE: Final = object()
"""What an `Answerer` returns if the client expects no response. Source: Produce with acks=0."""


class Answerer(Protocol):
    """Limits, authorizes and answers requests."""

    def frame_bytes_max(self, connection: KafkaConnection) -> int:
        """The longest frame that this connection may send."""
        ...

    def refuse(self, head: s.Call, connection: KafkaConnection) -> Any:
        """The response that rejects a request by its header alone; None to decode it."""
        ...

    async def answer(self, call: s.Call, connection: KafkaConnection) -> Any:
        """The response to a request, in the request's version; NO_RESPONSE for none."""
        ...


class BridgeServer:
    """Listens for clients and passes their requests to `answerer`. tls: None without TLS.

    requests_certificate: see `ServerContext`. sasl: None without SASL. served: the served APIs.
    appends: serves appends in frames, None if they are not served (rule 7).
    """

    def __init__(
        self,
        answerer: Answerer,
        decoder: Decoder,
        *,
        connections: Connections | None = None,
        unfinished: Unfinished | None = None,
        handshakes: Handshakes | None = None,
        tls: TlsConfig | None = None,
        requests_certificate: bool = False,
        mapping: PrincipalMapping | None = None,
        sasl: SaslAuthenticator | None = None,
        served: s.Served = s.SERVED,
        appends: FramedAppends | None = None,
    ) -> None:
        assert sasl is None or appends is None, "rule 7"
        self._appends = appends
        self._answerer = answerer
        self._served = served
        self._decoder = decoder
        self._connections = Connections() if connections is None else connections
        self._unfinished = Unfinished() if unfinished is None else unfinished
        self._handshakes = Handshakes() if handshakes is None else handshakes
        self._tls = tls
        self._requests_certificate = requests_certificate
        self._sasl = sasl
        self._responses = ResponseMemory()
        self._responses.end = lambda connection, reason: connection.end(reason)
        self._context: ServerContext | None = None
        self._mapping = mapping or PrincipalMapping()
        self._sockets: list[socket.socket] = []
        self._serving: set[asyncio.Task[None]] = set()
        self._closed = LimitedLog(LOGGER, interval_s=LOG_INTERVAL_S)

    async def start(self, host: str, port: int) -> None:
        """Listen. host: empty for all addresses. Raises OSError; TlsError for unusable files."""
        if self._tls is not None:
            self._context = ServerContext(
                self._tls, requests_certificate=self._requests_certificate
            )
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        try:
            for family, kind, protocol, _, address in dict.fromkeys(found):
                self._sockets.append(_listening_socket(family, kind, protocol, address))
        except OSError:
            self._close_sockets()
            raise
        for each in self._sockets:
            self._listen(each)

    @property
    def addresses(self) -> Sequence[tuple[str, int]]:
        """The addresses of the listening sockets."""
        return [each.getsockname()[:2] for each in self._sockets]

    async def stop(self) -> None:
        self._close_sockets()
        if self._appends is not None:
            await self._appends.drain()
        await cancel_tasks(*self._serving)

    def _close_sockets(self) -> None:
        loop = asyncio.get_running_loop()
        for each in self._sockets:
            loop.remove_reader(each)
            each.close()
        self._sockets.clear()

    # --- connections ------------------------------------------------------------------------------

    def _listen(self, listening: socket.socket) -> None:
        """Accept from now on, unless the server has stopped.

        A callback takes half the time of `loop.sock_accept`, which registers anew for each one.
        """
        if listening in self._sockets:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        """Accept a few connections. The event loop calls this again while others wait."""
        for _ in range(ACCEPTS_MAX):
            try:
                accepted, address = listening.accept()
            except ConnectionAbortedError:
                continue  # its client has closed it
            except BlockingIOError:
                return
            except OSError as error:
                self._closed.warning("", "bridge: cannot accept connections: %s", error)
                self._connections.make_room()
                loop = asyncio.get_running_loop()
                loop.remove_reader(listening)
                loop.call_later(ACCEPT_PAUSE_S, self._listen, listening)
                return
            self._admit(accepted, address)

    def _admit(self, accepted: socket.socket, address: Any) -> None:
        """Serve an accepted connection, or close it if there are too many."""
        connection = KafkaConnection(address[0].removeprefix("::ffff:"))
        if reason := self._connections.admit(connection):
            self._note(connection, reason)
            accepted.close()
            return
        task = asyncio.create_task(self._keep(accepted, connection), name="bridge-connection")
        connection.end = functools.partial(self._end, connection, task)
        connection.room = self._responses.hold(connection)
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _keep(self, accepted: socket.socket, connection: KafkaConnection) -> None:
        """Serve one connection until it ends."""
        stream: FrameStream | None = None
        is_over = False
        try:
            stream = await self._open(accepted, connection)
            await self._serve(stream, connection)
            is_over = True
        except BadMessageError as error:
            self._note(connection, str(error))
        except (OSError, TimeoutError, TlsError, asyncio.CancelledError) as error:
            # A failed handshake is logged already. Cancelled: the connection was evicted, or the
            # server stops.
            if stream is not None and isinstance(error, ssl.SSLError):
                self._note(connection, f"TLS: {error.reason or error}")
        except Exception:
            LOGGER.exception("bridge: a request from %s failed", connection.host)
        finally:
            try:
                if stream is None:
                    accepted.close()
                elif is_over:
                    await stream.close()
                else:
                    stream.abort()
            finally:
                self._connections.leave(connection)
                self._responses.forget(connection)

    async def _open(self, accepted: socket.socket, connection: KafkaConnection) -> FrameStream:
        """Do the TLS handshake, if any (rule 2). Raises ssl.SSLError, OSError, TimeoutError."""
        loop = asyncio.get_running_loop()
        stream = FrameStream()
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._context is None:
            await loop.connect_accepted_socket(lambda: stream, accepted)
        else:
            self._handshakes.enter(connection)
            try:
                await self._handshakes.turn(connection)
                async with asyncio.timeout(HANDSHAKE_S):
                    await loop.connect_accepted_socket(
                        lambda: stream, accepted, ssl=self._context.current()
                    )
            except (OSError, TlsError) as error:
                self._note_handshake(connection, error)
                raise
            finally:
                self._handshakes.leave(connection)
        session = stream.transport.get_extra_info("ssl_object")
        connection.caller = caller_of_certificate(
            None if session is None else session.getpeercert(), connection.host, self._mapping
        )
        return stream

    def _note_handshake(self, connection: KafkaConnection, error: Exception) -> None:
        """Log why a handshake failed. A client that only closes its connection may be a probe."""
        fault = handshake_fault(error)
        if fault:
            self._closed.warning(
                (connection.host, fault),
                "bridge: TLS handshake with %s failed: %s",
                connection.host,
                fault,
            )

    def _note(self, connection: KafkaConnection, reason: str, kind: str = "") -> None:
        """Log why a connection is closed. kind: each one is rate limited separately per host."""
        self._closed.warning(
            (connection.host, kind),
            "bridge: the connection of %s is closed: %s",
            connection.host,
            reason,
        )

    def _end(self, connection: KafkaConnection, task: asyncio.Task[None], reason: str) -> None:
        """Close a connection from outside its task."""
        self._note(connection, reason, kind=reason)
        self._connections.leave(connection)
        task.cancel()

    # --- requests ---------------------------------------------------------------------------------

    async def _serve(self, stream: FrameStream, connection: KafkaConnection) -> None:
        sasl = self._sasl
        if sasl is not None and not await self._authenticated(sasl, stream, connection):
            return
        while (frame := await self._frame(stream, connection)) is not None:
            if sasl is not None and (session := connection.session) is not None:
                is_handshake = frame[:2] == _SASL_HANDSHAKE
                if is_handshake and sasl.may_repeat(session):
                    if not await self._authenticated(sasl, stream, connection, frame):
                        return
                    continue
                if sasl.has_ended(session):
                    raise BadMessageError("its SASL session has ended")
            if self._appends is not None and is_opening(frame):
                await self._serve_appends(self._appends, frame, stream, connection)
                return
            connection.is_busy = True
            request = self._read(frame, connection)
            del frame  # it may be large, and its connection may wait
            with connection.room:
                response = await self._answered(await request, connection)
                if response is not None:
                    await stream.send(response)
            self._connections.rest(connection)
            if connection.throttled_s:
                await asyncio.sleep(connection.throttled_s)
                connection.throttled_s = 0.0

    async def _serve_appends(
        self, appends: FramedAppends, first: bytes, stream: FrameStream, connection: KafkaConnection
    ) -> None:
        """Serve a connection that its first frame opens for appends (rule 7).

        Raises BadMessageError, OSError, TimeoutError.
        """

        async def read() -> bytes | None:
            length = await stream.length(connection.idle_s, bytes_max=APPENDING.bytes_max)
            if length is None:
                return None
            frame = stream.take(length)
            if frame is not None:
                return frame
            with self._receipt(connection) as receipt:
                return bytes(await stream.whole(length, receipt))

        def note(is_busy: bool) -> None:
            connection.is_busy = is_busy
            if not is_busy:
                self._connections.rest(connection)

        await appends.serve(first, FrameConnection(stream, connection.caller, read, note))

    @contextmanager
    def _receipt(self, connection: KafkaConnection) -> Iterator[Receipt]:
        """The account of a frame that has not arrived as a whole."""
        receipt = self._unfinished.begin(
            lambda: connection.end(
                "unfinished frames hold too much memory, and this one is the oldest"
            )
        )
        try:
            yield receipt
        finally:
            receipt.end()

    async def _authenticated(
        self,
        sasl: SaslAuthenticator,
        stream: FrameStream,
        connection: KafkaConnection,
        first: bytes | None = None,
    ) -> bool:
        """Authenticate (rule 5); False if the peer has closed the connection.

        first: the SaslHandshake of a re-authentication. Raises BadMessageError.
        """
        versions = functools.partial(api_versions, served=self._served)
        exchange = Authentication(sasl, versions, connection.session)
        try:
            async with asyncio.timeout(AUTHENTICATION_S) as limit:
                while exchange.session is None:
                    frame = first or await self._frame(stream, connection, exchange)
                    if frame is None:
                        return False
                    first = None
                    response = await exchange.respond(frame)
                    if response is not None:
                        await stream.send(response)
        except FailedError as error:
            connection.broker_at_s = -math.inf
            await asyncio.sleep(sasl.config.failure_delay_ms / 1000)
            if error.response is not None:
                await stream.send(error.response)
                await stream.close()
            raise BadMessageError(f"SASL: {error}") from None
        except TimeoutError:
            if not limit.expired():
                raise
            text = f"SASL: authentication took more than {AUTHENTICATION_S:g} s"
            raise BadMessageError(text) from None
        connection.session = exchange.session
        connection.caller = _caller(exchange.session, connection.host)
        self._connections.rest(connection)
        return True

    async def _frame(
        self,
        stream: FrameStream,
        connection: KafkaConnection,
        exchange: Authentication | None = None,
    ) -> bytes | None:
        """Read a frame. exchange: the authentication under way, if any."""
        length = await stream.length(connection.idle_s)
        if length is None:
            return None
        longest = self._answerer.frame_bytes_max(connection)
        check: Callable[[bytes], None] = functools.partial(s.check_start, apis=self._served)
        if exchange is not None:
            assert self._sasl is not None, "it authenticates"
            check = exchange.check_start
            if length > self._sasl.config.receive_bytes_max:
                raise BadMessageError(
                    f"a frame of {length} bytes before authentication is complete; at most "
                    f"{self._sasl.config.receive_bytes_max} (sasl.server.max.receive.size)"
                )
        if length > longest:
            raise BadMessageError(
                f"a frame of {length} bytes; at most {longest} from a caller without the right "
                "to send longer ones"
            )
        if (frame := stream.take(length)) is not None:
            return frame
        with self._receipt(connection) as receipt:
            return await stream.rest(length, receipt, check)

    async def _read(self, frame: bytes, connection: KafkaConnection) -> tuple[s.Call, Any]:
        """The request in a frame, and the response if it is rejected by its header, else None."""
        head = s.read_head(frame, self._served)
        response = self._answerer.refuse(head, connection)
        return head if response is not None else await self._decoder.call(frame), response

    async def _answered(
        self, request: tuple[s.Call, Any], connection: KafkaConnection
    ) -> bytes | None:
        """The encoded response to what `_read` has returned; None if the client expects none.

        Raises BadMessageError.
        """
        call, response = request
        if response is None and call.api_key in (s.SASL_HANDSHAKE, s.SASL_AUTHENTICATE):
            response = _illegal_sasl_state(call)
        elif response is None:
            response = await self._answerer.answer(call, connection)
        if response is NO_RESPONSE:
            return None
        data = await _written(call.correlation_id, response)
        if not connection.room.size:  # else it was reserved
            try:
                await connection.room.settle(len(data), is_owned=True)
            except NoRoomError as error:
                raise BadMessageError(str(error)) from None
        return data


async def _written(correlation_id: int, response: Any) -> bytes:
    if len(getattr(response, "topics", None) or ()) > TOPICS_INLINE_MAX:
        return await asyncio.to_thread(s.write_response, correlation_id, response)
    return s.write_response(correlation_id, response)


def _listening_socket(family: int, kind: int, protocol: int, address: Any) -> socket.socket:
    """Bind a listening socket. Raises OSError."""
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
        made.listen(BACKLOG)
        made.setblocking(False)
    except OSError:
        made.close()
        raise
    return made


_SASL_HANDSHAKE = s.SASL_HANDSHAKE.to_bytes(2, "big")


def _caller(session: Session, host: str) -> Caller:
    used_token = session.identity.used_token
    return Caller(session.principal, host, used_sasl=True, used_token=used_token)


def _illegal_sasl_state(call: s.Call) -> Any:
    """The response to requests of SASL outside an authentication."""
    kind = s.response_type(call.api_key, call.version)
    error = s.error_field(ErrorCode.ILLEGAL_SASL_STATE)
    if call.api_key == s.SASL_HANDSHAKE:
        return kind(error_code=error, mechanisms=())
    text = "SaslAuthenticate request received after successful authentication"
    return s.make(
        kind,
        error_code=error,
        error_message=text,
        auth_bytes=b"",
        session_lifetime=s.milliseconds(),
    )


def api_versions(
    call: s.Call,
    features: Sequence[r.FeatureDescription] = (),
    features_epoch: int = -1,
    *,
    serves_voters: bool = False,
    served: s.Served = s.SERVED,
) -> Any:
    """The ApiVersions response; in version 0 with an error for an unknown version (KIP-511).

    Versions below 4 cannot contain features that support level 0. serves_voters: whether the APIs
    for voters are served. served: the served APIs.
    """
    is_known = call.body is not None
    version = call.version if is_known else 0
    module = s.response_module(s.API_VERSIONS, version)
    return s.answer(
        module,
        error_code=s.error_field(ErrorCode.NONE if is_known else ErrorCode.UNSUPPORTED_VERSION),
        api_keys=tuple(
            module.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in served.items()
            if serves_voters or key not in s.VOTERS_APIS
        ),
        zk_migration_ready=True,
        **_features(module, version, features, features_epoch),
    )


def _features(
    module: Any, version: int, features: Sequence[r.FeatureDescription], epoch: int
) -> dict[str, Any]:
    if version < FEATURES_SINCE:
        return {}
    finalized = [feature for feature in features if feature.finalized_level > 0]
    return {
        "supported_features": tuple(
            module.SupportedFeatureKey(
                name=feature.name,
                min_version=feature.supported.min,
                max_version=feature.supported.max,
            )
            for feature in features
            if feature.supported.min > 0 or version >= LEVEL_0_SINCE
        ),
        "finalized_features_epoch": epoch,
        "finalized_features": tuple(
            module.FinalizedFeatureKey(
                name=feature.name,
                max_version_level=feature.finalized_level,
                min_version_level=feature.finalized_level,
            )
            for feature in finalized
        ),
    }
