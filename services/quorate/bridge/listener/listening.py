"""A listener for Kafka's protocol: the server with its limits and its authentication.

It listens from `open` to `close`, and passes requests to an `Answerer`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from quorate.bridge.authentication import tokens
from quorate.bridge.authentication.sasl import SaslAuthenticator
from quorate.bridge.authentication.sasl_config import SaslConfig
from quorate.bridge.framing.frames import Decoder
from quorate.bridge.listener.connections import Connections
from quorate.bridge.listener.handshakes import Handshakes
from quorate.bridge.listener.server import Answerer, BridgeServer
from quorate.bridge.messages import schemas as s
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.metadata.image.tokens import TokenSecrets
from quorate.rpc.principals import PrincipalMapping
from quorate.rpc.server.framed_appends import FramedAppends
from quorate.rpc.tls import TlsConfig

if TYPE_CHECKING:
    from quorate.bridge.authentication.oauth import TokenValidator

LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """The configuration of one listener."""

    name: str
    """The name of the listener, and of the controllers' endpoints for it."""
    host: str
    port: int
    """The address of the listener is `host` and `port`."""
    tls: TlsConfig | None = None
    """The TLS files of the listener, None for an unencrypted one."""
    mapping: PrincipalMapping = field(default_factory=PrincipalMapping)
    connections_max: int = 1_024
    connections_per_address_max: int = 256
    client_auth: str = "required"
    """Whether clients present a certificate with TLS: required, requested or none."""
    sasl: SaslConfig | None = None
    """The SASL configuration, None without SASL."""
    token_secret_key: str = field(default="", repr=False)
    """The secret key of delegation tokens; empty to disable them."""


class Listening:
    """The listener of one controller.

    answerer: answers the requests. clients: who connects, for the log. image: returns the committed
    image, with the SCRAM credentials and the delegation tokens. served: the served APIs. appends:
    serves appends in frames, None if they are not served.
    """

    def __init__(
        self,
        settings: ListenerSettings,
        answerer: Answerer,
        clients: str,
        image: Callable[[], MetadataImage],
        served: s.Served = s.SERVED,
        *,
        appends: FramedAppends | None = None,
    ) -> None:
        self._settings = settings
        self._appends = appends
        self._answerer = answerer
        self._clients = clients
        self._image = image
        self._served = served
        self.connections = Connections(
            settings.connections_max, settings.connections_per_address_max
        )
        self._handshakes = Handshakes()
        self.decoder = Decoder(served)
        self.token_secrets = TokenSecrets(settings.token_secret_key)
        self._validator = _validator(settings.sasl)
        self._sasl = self._authenticator(settings.sasl)
        self._server: BridgeServer | None = None

    @property
    def addresses(self) -> Sequence[tuple[str, int]]:
        """The addresses of the listening sockets; none while it is closed."""
        return () if self._server is None else self._server.addresses

    @property
    def connection_count(self) -> int:
        return len(self.connections)

    @property
    def handshake_count(self) -> int:
        """TLS handshakes under way, which also count as connections."""
        return len(self._handshakes)

    @property
    def closed_count(self) -> int:
        """Connections rejected or evicted since the start."""
        return self.connections.closed_count + self._handshakes.closed_count

    async def open(self) -> None:
        """Start listening. Idempotent. Raises OSError, TlsError."""
        if self._server is not None:
            return
        settings = self._settings
        # `close` has ended the previous decoder, which cannot start again.
        self.decoder = Decoder(self._served)
        server = BridgeServer(
            self._answerer,
            self.decoder,
            connections=self.connections,
            handshakes=self._handshakes,
            tls=_server_tls(settings),
            requests_certificate=settings.client_auth == "requested",
            mapping=settings.mapping,
            sasl=self._sasl,
            served=self._served,
            appends=self._appends,
        )
        await server.start(settings.host, settings.port)
        self._server = server
        if self._validator is not None:
            self._validator.start()
        LOGGER.info(
            "%s: listening for %s on %s:%d",
            settings.name,
            self._clients,
            settings.host or "*",
            settings.port,
        )

    async def close(self) -> None:
        """Stop listening, and end the decoder's thread. Idempotent."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop()
        if self._validator is not None:
            await self._validator.close()
        self.decoder.close()

    def _authenticator(self, config: SaslConfig | None) -> SaslAuthenticator | None:
        if config is None:
            return None
        credentials = tokens.ScramCredentials(self._image, self.token_secrets, wall_ms)
        validate = None if self._validator is None else self._validator.validate
        return SaslAuthenticator(config, credentials.find, validate, wall_ms=wall_ms)


def wall_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def _server_tls(settings: ListenerSettings) -> TlsConfig | None:
    if settings.tls is None:
        return None
    is_required = settings.client_auth == "required"
    return replace(settings.tls, require_client_certificate=is_required)


def _validator(config: SaslConfig | None) -> TokenValidator | None:
    if config is None or config.oauth is None:
        return None
    from quorate.bridge.authentication.oauth import TokenValidator  # noqa: PLC0415 - needs the extra

    return TokenValidator(config.oauth)
