"""A client for a few requests to Kafka's own nodes, on one connection, one request at a time.

It asks in the highest version that both sides know (KIP-511). Nothing is retried here.
"""

from __future__ import annotations

import asyncio
import itertools
from types import TracebackType
from typing import Any

from quorate.bridge.messages import schemas as s
from quorate.rpc.errors import BadMessageError
from quorate.rpc.framing.frame_stream import FrameStream, connect
from quorate.rpc.tls import TlsConfig, client_context
from quorate.rpc.wire.limits import format_address
from quorate.version import __version__

API_VERSIONS_VERSION = 3
"""Since Kafka 2.4; the first with feature levels."""
CLIENT_ID = "quorate"


class KafkaClientError(Exception):
    """A node does not answer as Kafka does. The text is one line for the user."""


class KafkaClient:
    """A connection to one of Kafka's nodes.

    versions: what the node serves, by API key. api_versions: its response to ApiVersions.
    """

    def __init__(self, address: tuple[str, int], tls: TlsConfig | None, timeout_s: float) -> None:
        self._place = address
        self._address = format_address(*address)
        self._tls = tls
        self._timeout_s = timeout_s
        self._correlation = itertools.count(1)
        self.versions: dict[int, tuple[int, int]] = {}
        self.api_versions: Any = None

    async def __aenter__(self) -> KafkaClient:
        """Connect, and ask for the versions. Raises KafkaClientError."""
        try:
            async with asyncio.timeout(self._timeout_s):
                context = None if self._tls is None else client_context(self._tls)
                self._stream = await connect(FrameStream(), *self._place, context)
        except (OSError, TimeoutError) as error:
            raise self._failure(error) from None
        try:
            found = await self._call(
                s.API_VERSIONS,
                API_VERSIONS_VERSION,
                client_software_name="quorate",
                client_software_version=__version__,
            )
        except BaseException:
            self._stream.abort()
            raise
        self.api_versions = found
        self.versions = {e.api_key: (e.min_version, e.max_version) for e in found.api_keys}
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stream.close()

    async def ask(self, api_key: int, version_max: int, **fields: Any) -> Any:
        """The response to a request, in version_max or the highest that the node serves.

        Raises KafkaClientError.
        """
        low, high = self.versions.get(api_key, (0, -1))
        version = min(high, version_max)
        if version < low:
            raise KafkaClientError(f"{self._address} does not serve API {api_key}")
        return await self._call(api_key, version, **fields)

    async def _call(self, api_key: int, version: int, **fields: Any) -> Any:
        body = s.make(s.request_type(api_key, version), **fields)
        return await self.ask_encoded(api_key, version, s.write(body))

    async def ask_encoded(self, api_key: int, version: int, body: bytes) -> Any:
        """The response to a request whose body is encoded already. Raises KafkaClientError."""
        correlation_id = next(self._correlation)
        header = s.write_header(api_key, version, correlation_id, CLIENT_ID)
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._stream.send(header + body)
                frame = await self._stream.frame(self._timeout_s)
            if frame is None:
                raise ConnectionResetError("it closed the connection")
            found, response = s.read_response(api_key, version, bytes(frame))
        except (OSError, TimeoutError, BadMessageError) as error:
            raise self._failure(error) from None
        if found != correlation_id:
            raise KafkaClientError(f"{self._address} answered another request")
        return response

    def _failure(self, error: Exception) -> KafkaClientError:
        reason = "no answer in time" if isinstance(error, TimeoutError) else str(error)
        hint = (
            "; does this listener use TLS?"
            if self._tls is None and isinstance(error, ConnectionResetError | BadMessageError)
            else ""
        )
        return KafkaClientError(f"{self._address}: {reason}{hint}")
