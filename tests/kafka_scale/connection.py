"""A connection to a controller over Kafka's protocol, cheap enough to have a thousand of them."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, cast

from quorate.bridge.messages import schemas as s

from tests.processes import HOST

CLIENT_ID = "scale"
API_VERSIONS_VERSION = 4
CONNECT_S = 10.0


def request_frame(api_key: int, version: int, body: Any) -> bytearray:
    """A request with its length and header."""
    data = s.write_header(api_key, version, 0, CLIENT_ID) + s.write(body)
    return bytearray(len(data).to_bytes(4, "big") + data)


class Connection(asyncio.Protocol):
    """Sends requests, and passes each response to its caller. api_versions: the first response."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._correlation = itertools.count(1)
        self.api_versions: Any = None

    @classmethod
    async def open(cls, port: int, source: str) -> Connection:
        """Connect and ask for the versions, as Kafka's client does. source: the own address.

        Raises OSError, TimeoutError.
        """
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_S):
            _, connection = await loop.create_connection(cls, HOST, port, local_addr=(source, 0))
            try:
                connection.api_versions = await connection.call(
                    s.API_VERSIONS,
                    API_VERSIONS_VERSION,
                    client_software_name="quorate",
                    client_software_version="1",
                )
            except BaseException:
                connection.close()
                raise
        return connection

    async def call(self, api_key: int, version: int, **fields: Any) -> Any:
        """The response to a request. Raises OSError."""
        return await self.send(api_key, version, s.make(s.request_type(api_key, version), **fields))

    async def send(self, api_key: int, version: int, body: Any) -> Any:
        """The response to a request that is already built. Raises OSError."""
        frame = request_frame(api_key, version, body)
        return s.read_response(api_key, version, await self.exchange(frame))[1]

    async def exchange(self, frame: bytearray) -> bytes:
        """The response to an encoded request, whose correlation id is set here. Raises OSError."""
        if not self.is_open:
            raise ConnectionResetError("the connection is closed")
        correlation_id = next(self._correlation)
        frame[8:12] = correlation_id.to_bytes(4, "big")
        future = self._waiting[correlation_id] = asyncio.get_running_loop().create_future()
        assert self._transport is not None, "an open connection has a transport"
        self._transport.write(bytes(frame))
        try:
            return await future
        finally:
            self._waiting.pop(correlation_id, None)

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio.Protocol -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        start = 0
        while len(received) - start >= 4:
            end = start + 4 + int.from_bytes(received[start : start + 4], "big")
            if len(received) < end:
                break
            frame = bytes(received[start + 4 : end])
            future = self._waiting.get(int.from_bytes(frame[:4], "big"))
            if future is not None and not future.done():
                future.set_result(frame)
            start = end
        del received[:start]

    def connection_lost(self, error: Exception | None) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionResetError("the controller closed the connection"))
