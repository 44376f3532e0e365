"""The listener on which Kafka's brokers find their controller: frames, and who answers.

A frame is four bytes of length and a request; requests of a connection are answered one after the
other, as Kafka's own server does it, so a Fetch that waits holds up its own connection alone.

Rules:
1. A frame longer than `FRAME_BYTES_MAX`, or one that is no request of those served, closes the
   connection with one line in the log, and nothing is answered.
2. At most `CONNECTIONS_MAX` connections; one that says nothing for `IDLE_S`, does not send the rest
   of a frame within `FRAME_S` or does not take its answer in that time, is closed.
3. Who answers must not raise: if it does, the connection closes with the traceback in the log.

Source: Kafka's protocol guide ("Network"); KIP-511 (a version of ApiVersions that is not known is
answered in version 0).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from quorate.bridge import schemas as s
from quorate.raft.errors import ErrorCode
from quorate.telemetry.limited_log import LimitedLog

LOGGER = logging.getLogger(__name__)

FRAME_BYTES_MAX = 8 * 1024 * 1024
CONNECTIONS_MAX = 1_024
IDLE_S = 600.0
FRAME_S = 30.0
LOG_INTERVAL_S = 10.0
"""How often refused connections of one host are logged, seconds."""


@dataclass(slots=True)
class Connection:
    """One broker's connection. told: the high watermark that it heard last, -1 for none."""

    host: str
    told: int = field(default=-1)


Answer = Callable[[s.Call, Connection], Awaitable[Any]]
"""Gets a request, and returns the response of its version."""


async def read_frame(reader: asyncio.StreamReader, idle_s: float = IDLE_S) -> bytes | None:
    """The next frame; None where the other side has closed. BadMessageError, TimeoutError."""
    try:
        async with asyncio.timeout(idle_s):
            length = int.from_bytes(await reader.readexactly(4), "big", signed=True)
        if not 0 <= length <= FRAME_BYTES_MAX:
            raise s.BadMessageError(f"a frame of {length} bytes; at most {FRAME_BYTES_MAX}")
        async with asyncio.timeout(FRAME_S):
            return await reader.readexactly(length)
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise s.BadMessageError("the connection ended within a frame") from None
        return None


def write_frame(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.writelines((len(data).to_bytes(4, "big"), data))


class BridgeServer:
    """Listens where it is told, and lets `answer` answer."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._closed = LimitedLog(LOGGER, interval_s=LOG_INTERVAL_S)

    async def start(self, host: str, port: int) -> None:
        """host: empty for every address. OSError."""
        self._server = await asyncio.start_server(self._accept, host or None, port)

    @property
    def addresses(self) -> Sequence[tuple[str, int]]:
        """Where it listens."""
        sockets = () if self._server is None else self._server.sockets
        return [each.getsockname()[:2] for each in sockets]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "asyncio calls this in a task"
        peer = writer.get_extra_info("peername")
        connection = Connection(peer[0] if peer else "?")
        self._connections.add(task)
        try:
            if len(self._connections) > CONNECTIONS_MAX:
                raise s.BadMessageError(f"more than {CONNECTIONS_MAX} connections")
            await self._serve(reader, writer, connection)
        except s.BadMessageError as error:
            self._closed.warning(
                connection.host,
                "bridge: the connection of %s is closed: %s",
                connection.host,
                error,
            )
        except (ConnectionError, TimeoutError):
            pass
        except asyncio.CancelledError:
            # The server stops. Raised on, asyncio would log it as an error of this callback.
            pass
        except Exception:
            LOGGER.exception("bridge: a request from %s failed", connection.host)
        finally:
            self._connections.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: Connection
    ) -> None:
        while (frame := await read_frame(reader)) is not None:
            call = s.read_call(frame)
            if call.api_key == s.API_VERSIONS:
                response = api_versions(call)
            else:
                response = await self._answer(call, connection)
            write_frame(writer, s.write_response(call.correlation_id, response))
            async with asyncio.timeout(FRAME_S):
                await writer.drain()


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
