"""The listener on which Kafka's brokers find their controller: connections, and who answers.

A frame is four bytes of length and a request; requests of a connection are answered one after the
other, as Kafka's own server does it, so a Fetch that waits holds up its own connection alone.

Rules:
1. A frame longer than its sender may send, or one that is no request of those served, closes the
   connection with one line in the log, and nothing is answered.
2. With TLS everybody shows a certificate of our authorities, and the principal is the certificate's
   for as long as the connection lasts. A connection counts from before its handshake; how many of
   those are under way, and when they begin, `handshakes` says.
3. One that says nothing for `IDLE_S`, does not finish its handshake within `HANDSHAKE_S`, does not
   send the rest of a frame within `FRAME_S` or does not take its answer in that time, is closed.
   How many there may be, and which give way, `connections` says; what their frames hold, `frames`.
4. A request is decoded after `Answerer.refuse` had no objection to its head.
5. Who answers must not raise: if it does, the connection closes with the traceback in the log.

Source: Kafka's protocol guide ("Network"); KIP-511 (a version of ApiVersions that is not known is
answered in version 0).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import socket
import ssl
from collections.abc import Sequence
from typing import Any, Protocol

from quorate.bridge import schemas as s
from quorate.bridge.connections import Connection, Connections
from quorate.bridge.frames import (
    FRAME_S,
    Decoder,
    Unfinished,
    read_length,
    read_rest,
    write_frame,
)
from quorate.bridge.handshakes import Handshakes
from quorate.raft.errors import ErrorCode
from quorate.rpc.errors import TlsError
from quorate.rpc.principals import PrincipalMapping, caller_of_certificate
from quorate.rpc.tls import ServerContext, TlsConfig
from quorate.runtime.tasks import supervise
from quorate.telemetry.limited_log import LimitedLog

LOGGER = logging.getLogger(__name__)

HANDSHAKE_S = 5.0
"""From its turn on, as at the listeners for gRPC (`ServerLimits.handshake_timeout_ms`)."""
BUFFER_BYTES = 16 * 1024
"""What is read ahead of a connection whose request is being answered; twice that at most."""
BACKLOG = 256
ACCEPT_PAUSE_S = 0.1
LOG_INTERVAL_S = 10.0
"""How often closed connections of one host are logged, seconds."""


class Answerer(Protocol):
    """What is done with requests."""

    def frame_bytes_max(self, connection: Connection) -> int:
        """How long a frame of this connection may be."""
        ...

    def refuse(self, head: s.Call, connection: Connection) -> Any:
        """The response that refuses a request by its head alone; None to have it decoded."""
        ...

    async def answer(self, call: s.Call, connection: Connection) -> Any:
        """The response, of the request's version."""
        ...


class BridgeServer:
    """Listens where it is told, and lets `answerer` answer. tls: None without TLS."""

    def __init__(
        self,
        answerer: Answerer,
        decoder: Decoder,
        *,
        connections: Connections | None = None,
        unfinished: Unfinished | None = None,
        handshakes: Handshakes | None = None,
        tls: TlsConfig | None = None,
        mapping: PrincipalMapping | None = None,
    ) -> None:
        self._answerer = answerer
        self._decoder = decoder
        self._connections = Connections() if connections is None else connections
        self._unfinished = Unfinished() if unfinished is None else unfinished
        self._handshakes = Handshakes() if handshakes is None else handshakes
        self._tls = tls
        self._context: ServerContext | None = None
        self._mapping = mapping or PrincipalMapping()
        self._sockets: list[socket.socket] = []
        self._listening: list[asyncio.Task[None]] = []
        self._serving: set[asyncio.Task[None]] = set()
        self._closed = LimitedLog(LOGGER, interval_s=LOG_INTERVAL_S)

    async def start(self, host: str, port: int) -> None:
        """host: empty for every address. OSError; TlsError where the files cannot be used."""
        if self._tls is not None:
            self._context = ServerContext(self._tls)
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
            name = f"bridge-accept-{each.getsockname()[1]}"
            self._listening.append(supervise(self._accept(each), name, self._failed))

    @property
    def addresses(self) -> Sequence[tuple[str, int]]:
        """Where it listens."""
        return [each.getsockname()[:2] for each in self._sockets]

    async def stop(self) -> None:
        tasks = (*self._listening, *self._serving)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._close_sockets()

    def _close_sockets(self) -> None:
        for each in self._sockets:
            each.close()
        self._sockets.clear()

    def _failed(self, error: BaseException) -> None:
        LOGGER.error("bridge: %s: no new connection is taken", error)

    # --- connections ------------------------------------------------------------------------------

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError as error:
                self._closed.warning("", "bridge: no connection can be taken: %s", error)
                self._connections.make_room()
                await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            connection = Connection(address[0].removeprefix("::ffff:"))
            if reason := self._connections.admit(connection):
                self._note(connection, reason)
                accepted.close()
                continue
            task = asyncio.create_task(self._keep(accepted, connection), name="bridge-connection")
            connection.end = functools.partial(self._end, connection, task)
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)

    async def _keep(self, accepted: socket.socket, connection: Connection) -> None:
        """One connection from its beginning to its end."""
        writer: asyncio.StreamWriter | None = None
        is_over = False
        try:
            reader, writer = await self._open(accepted, connection)
            await self._serve(reader, writer, connection)
            is_over = True
        except s.BadMessageError as error:
            self._note(connection, str(error))
        except (ssl.SSLError, TlsError) as error:
            self._note(connection, f"TLS: {getattr(error, 'reason', None) or error}")
        except (OSError, TimeoutError, asyncio.CancelledError):
            # Cancelled: it gives way, or the server stops.
            pass
        except Exception:
            LOGGER.exception("bridge: a request from %s failed", connection.host)
        finally:
            self._connections.leave(connection)
            if writer is None:
                accepted.close()
            elif is_over:
                writer.close()
                with contextlib.suppress(OSError, TimeoutError, asyncio.CancelledError):
                    await writer.wait_closed()
            else:
                writer.transport.abort()

    async def _open(
        self, accepted: socket.socket, connection: Connection
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Rule 2. ssl.SSLError, OSError, TimeoutError."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=BUFFER_BYTES, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._context is None:
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, accepted)
        else:
            self._handshakes.enter(connection)
            try:
                await self._handshakes.turn(connection)
                async with asyncio.timeout(HANDSHAKE_S):
                    transport, _ = await loop.connect_accepted_socket(
                        lambda: protocol, accepted, ssl=self._context.current()
                    )
            finally:
                self._handshakes.leave(connection)
        session = transport.get_extra_info("ssl_object")
        connection.caller = caller_of_certificate(
            None if session is None else session.getpeercert(), connection.host, self._mapping
        )
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    def _note(self, connection: Connection, reason: str, kind: str = "") -> None:
        """kind: of closed connections, each of which is told of one host apart."""
        self._closed.warning(
            (connection.host, kind),
            "bridge: the connection of %s is closed: %s",
            connection.host,
            reason,
        )

    def _end(self, connection: Connection, task: asyncio.Task[None], reason: str) -> None:
        """From outside its task."""
        self._note(connection, reason, kind=reason)
        self._connections.leave(connection)
        task.cancel()

    # --- requests ---------------------------------------------------------------------------------

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: Connection
    ) -> None:
        while (frame := await self._frame(reader, connection)) is not None:
            connection.is_busy = True
            write_frame(writer, await self._answered(frame, connection))
            async with asyncio.timeout(FRAME_S):
                await writer.drain()
            connection.is_busy = False
            connection.idle_since_s = self._connections.now_s()

    async def _frame(self, reader: asyncio.StreamReader, connection: Connection) -> bytes | None:
        length = await read_length(reader)
        if length is None:
            return None
        longest = self._answerer.frame_bytes_max(connection)
        if length > longest:
            raise s.BadMessageError(
                f"a frame of {length} bytes; at most {longest} from a caller that is not "
                "authenticated or has no CLUSTER_ACTION"
            )
        receipt = self._unfinished.begin(
            lambda: connection.end("unfinished frames hold too much, and its own began first")
        )
        try:
            return await read_rest(reader, length, receipt)
        finally:
            receipt.end()

    async def _answered(self, frame: bytes, connection: Connection) -> bytes:
        head = s.read_head(frame)
        response = self._answerer.refuse(head, connection)
        if response is None:
            call = await self._decoder.call(frame)
            if call.api_key == s.API_VERSIONS:
                response = api_versions(call)
            else:
                response = await self._answerer.answer(call, connection)
        return s.write_response(head.correlation_id, response)


def _listening_socket(family: int, kind: int, protocol: int, address: Any) -> socket.socket:
    """OSError."""
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


def api_versions(call: s.Call) -> Any:
    """What is served; a version that is not known hears so in version 0 (KIP-511)."""
    is_known = call.body is not None
    version = call.version if is_known else 0
    module = s.response_module(s.API_VERSIONS, version)
    return s.answer(
        module,
        error_code=s.error_field(ErrorCode.NONE if is_known else ErrorCode.UNSUPPORTED_VERSION),
        api_keys=tuple(
            module.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in s.SERVED.items()
        ),
        zk_migration_ready=True,
    )
