"""Clients of SASL mechanisms, and a listener that authenticates them."""

from __future__ import annotations

import asyncio
import base64
import ssl
from typing import Any

from quorate.bridge.authentication.mechanisms import ScramCredential, Validate
from quorate.bridge.authentication.sasl import SaslAuthenticator
from quorate.bridge.authentication.sasl_config import SaslConfig
from quorate.bridge.framing.frames import Decoder
from quorate.bridge.listener.connections import Connections
from quorate.bridge.listener.server import BridgeServer
from quorate.bridge.messages import schemas as s
from quorate.common.scram import MECHANISM_NUMBERS
from quorate.rpc.errors import BadMessageError
from scramp import ScramClient, ScramMechanism

from tests.unit.bridge.client_frames import read_frame, write_frame
from tests.unit.bridge.test_server import HOST, Busy, heartbeat

PASSWORD = "alice's password"
USERS = {"alice": PASSWORD, "bob": "bob's password"}
CONFIG = SaslConfig(("PLAIN", *MECHANISM_NUMBERS), USERS, failure_delay_ms=1)


def credential(mechanism: int, user: str, password: str = PASSWORD, **fields: Any) -> Any:
    """By another implementation of RFC 5802."""
    name = next(name for name, number in MECHANISM_NUMBERS.items() if number == mechanism)
    salt, stored, server, iterations = ScramMechanism(name).make_auth_info(password)
    return ScramCredential(user, salt, stored, server, iterations, **fields)


def find(name: str, mechanism: int, is_token: bool) -> ScramCredential | None:
    if is_token:
        return credential(mechanism, "alice", "secret", expires_ms=5_000) if name == "id" else None
    return credential(mechanism, name, USERS[name]) if name in USERS else None


def plain(user: str, password: str = PASSWORD, authorization_id: str = "") -> bytes:
    return f"{authorization_id}\0{user}\0{password}".encode()


class FailureError(Exception):
    """What the server answered."""

    def __init__(self, error: int, message: str | None = None) -> None:
        super().__init__(error, message)
        self.error = error
        self.message = message


class Client:
    """One connection."""

    def __init__(self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
        self.reader, self.writer = streams
        self.lifetime_ms = 0

    async def raw(self, frame: bytes) -> bytes | None:
        """The answer; None where the connection is closed."""
        try:
            write_frame(self.writer, frame)
            async with asyncio.timeout(10):
                return await read_frame(self.reader)
        except (OSError, BadMessageError):
            return None

    async def ask(self, api_key: int, version: int, **fields: Any) -> Any:
        body = s.make(s.request_type(api_key, version), **fields)
        frame = await self.raw(s.write_header(api_key, version, 7, "c") + s.write(body))
        return None if frame is None else s.read_response(api_key, version, frame)[1]

    async def versions(self) -> Any:
        names = {"client_software_name": "x", "client_software_version": "1"}
        return await self.ask(s.API_VERSIONS, 4, **names)

    async def handshake(self, mechanism: str, version: int = 1) -> Any:
        return await self.ask(s.SASL_HANDSHAKE, version, mechanism=mechanism)

    async def token(self, token: bytes, version: int = 2) -> bytes | None:
        """The server's token. Raises FailureError."""
        answer = await self.ask(s.SASL_AUTHENTICATE, version, auth_bytes=token)
        if answer is None:
            return None
        if int(answer.error_code):
            raise FailureError(int(answer.error_code), answer.error_message)
        self.lifetime_ms = getattr(answer, "session_lifetime", s.milliseconds()) // s.milliseconds(
            1
        )
        return bytes(answer.auth_bytes)

    async def scram(self, mechanism: str, user: str, password: str = PASSWORD) -> None:
        """Raises FailureError, ScramException."""
        client = ScramClient([mechanism], user, password)
        first = await self.token(client.get_client_first().encode())
        assert first is not None
        client.set_server_first(first.decode())
        final = await self.token(client.get_client_final().encode())
        assert final is not None
        client.set_server_final(final.decode())

    async def works(self) -> bool:
        """Whether a request is answered."""
        return await self.raw(heartbeat()) is not None

    async def is_closed(self) -> bool:
        async with asyncio.timeout(10):
            try:
                return await self.reader.read() == b""
            except OSError:
                return True

    def close(self) -> None:
        self.writer.close()


class Noting(Busy):
    """Notes who is heard."""

    def __init__(self) -> None:
        self.callers: list[Any] = []

    async def answer(self, call: s.Call, connection: Any) -> Any:
        self.callers.append(connection.caller)
        return await super().answer(call, connection)


class SaslLab:
    """A listener with SASL."""

    def __init__(
        self, config: SaslConfig = CONFIG, validate: Validate | None = None, **options: Any
    ) -> None:
        self.now_s = 0.0
        self.wall_ms = 1_000
        self.heard = Noting()
        self.connections: Connections = options.pop("connections", Connections())
        self.authenticator = SaslAuthenticator(
            config, find, validate, wall_ms=lambda: self.wall_ms, now_s=lambda: self.now_s
        )
        self.server = BridgeServer(
            self.heard,
            Decoder(),
            connections=self.connections,
            sasl=self.authenticator,
            **options,
        )
        self.clients: list[Client] = []

    async def __aenter__(self) -> SaslLab:
        await self.server.start(HOST, 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in self.clients:
            each.close()
        await self.server.stop()

    async def dial(self, host: str = HOST, context: ssl.SSLContext | None = None) -> Client:
        streams = await asyncio.open_connection(
            *self.server.addresses[0], local_addr=(host, 0), ssl=context
        )
        self.clients.append(Client(streams))
        return self.clients[-1]


def base64_text(data: bytes) -> str:
    return base64.b64encode(data).decode()
