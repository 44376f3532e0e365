"""Authentication of a connection with SASL: the states, and the session that results.

Rules:
1. Before authentication only ApiVersions, SaslHandshake and SaslAuthenticate are decoded: at most
   one successful ApiVersions, then a SaslHandshake, then SaslAuthenticate until the mechanism is
   complete. After version 0 of SaslHandshake the mechanism's messages are whole frames, without
   headers, and so are the responses.
2. Anything else ends the connection. A failed mechanism is answered with
   SASL_AUTHENTICATION_FAILED, an unknown one with UNSUPPORTED_SASL_MECHANISM and the enabled ones;
   `FailedError` carries the response, which the server delays.
3. A session lasts until the credential expires, and at most connections.max.reauth.ms. That limit,
   if it is set, also makes an expired session end the connection, and allows the client to
   authenticate again in time, with the same mechanism and the same principal.

Source: Kafka's SaslServerAuthenticator; KIP-43, KIP-152, KIP-368 (re-authentication).
"""

from __future__ import annotations

import datetime
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from quorate.bridge.authentication.mechanisms import (
    FindCredential,
    Mechanism,
    OAuthBearer,
    Plain,
    SaslError,
    SaslIdentity,
    Scram,
    Validate,
)
from quorate.bridge.authentication.sasl_config import OAUTHBEARER, PLAIN, SaslConfig
from quorate.bridge.messages import schemas as s
from quorate.common.error_codes import ErrorCode

REAUTH_INTERVAL_S = 1.0
"""The shortest interval between the starts of two authentications of one connection, seconds."""
MESSAGES_MAX = 8
"""The most messages of one exchange; no mechanism has more than two."""

USER: Final = "User:"


class FailedError(Exception):
    """Authentication failed. The text is for the log. response: the last frame, None for none."""

    def __init__(self, text: str, response: bytes | None = None) -> None:
        super().__init__(text)
        self.response = response


@dataclass(frozen=True, slots=True)
class Session:
    """A completed authentication."""

    mechanism: str
    identity: SaslIdentity
    began_s: float
    """When the authentication began, on the monotonic clock."""
    ends_s: float = math.inf
    """When the session ends, on the monotonic clock; infinite without a limit."""

    @property
    def principal(self) -> str:
        return f"{USER}{self.identity.user}"


class _State(Enum):
    INITIAL = auto()
    """ApiVersions or SaslHandshake."""
    HANDSHAKE = auto()
    """SaslHandshake only."""
    AUTHENTICATE = auto()


class SaslAuthenticator:
    """What all connections share. find: the SCRAM credentials. validate: bearer tokens.
    wall_ms: returns milliseconds since 1970. now_s: a monotonic clock, seconds.
    """

    def __init__(
        self,
        config: SaslConfig,
        find: FindCredential,
        validate: Validate | None = None,
        *,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config
        self._find = find
        self._validate = validate
        self.wall_ms = wall_ms
        self.now_s = now_s

    def mechanism(self, name: str) -> Mechanism:
        """Begin an exchange of an enabled mechanism."""
        if name == PLAIN:
            return Plain(self.config.users)
        if name == OAUTHBEARER:
            assert self._validate is not None, "OAUTHBEARER is enabled with its validator only"
            return OAuthBearer(self._validate)
        return Scram(name, self._find)

    def may_repeat(self, session: Session) -> bool:
        """Whether a SaslHandshake on an authenticated connection begins a new authentication."""
        limited = bool(self.config.reauth_ms.get(session.mechanism))
        return limited and self.now_s() - session.began_s >= REAUTH_INTERVAL_S

    def has_ended(self, session: Session) -> bool:
        """Whether requests of this session are no longer accepted (rule 3)."""
        return self.now_s() > session.ends_s


class Authentication:
    """One authentication of a connection. before: the session that it renews. session: None until
    it is complete. api_versions: answers ApiVersions.
    """

    def __init__(
        self,
        authenticator: SaslAuthenticator,
        api_versions: Callable[[s.Call], Any],
        before: Session | None = None,
    ) -> None:
        self.session: Session | None = None
        self._authenticator = authenticator
        self._api_versions = api_versions
        self._before = before
        self._began_s = authenticator.now_s()
        self._state = _State.INITIAL if before is None else _State.HANDSHAKE
        self._name = ""
        self._mechanism: Mechanism | None = None
        self._has_headers = True
        self._left = MESSAGES_MAX

    def check_start(self, start: bytes) -> None:
        """Check the first bytes of a long frame. Raises BadMessageError, FailedError."""
        if self._has_headers:
            self._head(start)
            s.check_start(start)

    async def respond(self, frame: bytes) -> bytes | None:
        """The frame that answers this one; None for none. Raises FailedError, BadMessageError."""
        if not self._has_headers:
            return await self._bare(frame)
        head = self._head(frame)
        call = s.read_call(frame)
        if head.api_key == s.API_VERSIONS:
            response = self._api_versions(call)
            if int(response.error_code) == ErrorCode.NONE:
                self._state = _State.HANDSHAKE
            return s.write_response(head.correlation_id, response)
        if head.api_key == s.SASL_HANDSHAKE:
            return self._handshake(call)
        return await self._authenticate(call)

    def _head(self, frame: bytes) -> s.Call:
        """Check the header before anything else is decoded (rule 1)."""
        head = s.read_head(frame)
        expected = {
            _State.INITIAL: (s.API_VERSIONS, s.SASL_HANDSHAKE),
            _State.HANDSHAKE: (s.SASL_HANDSHAKE,),
            _State.AUTHENTICATE: (s.SASL_AUTHENTICATE,),
        }[self._state]
        if head.api_key not in expected:
            raise FailedError(f"API {head.api_key} before authentication is complete")
        return head

    def _handshake(self, call: s.Call) -> bytes:
        config = self._authenticator.config
        name = call.body.mechanism
        is_enabled = name in config.mechanisms
        error = ErrorCode.NONE if is_enabled else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        response = s.write_response(
            call.correlation_id,
            s.response_type(s.SASL_HANDSHAKE, call.version)(
                error_code=s.error_field(error), mechanisms=config.mechanisms
            ),
        )
        if not is_enabled:
            raise FailedError("the requested SASL mechanism is not enabled", response)
        if self._before is not None and self._before.mechanism != name:
            raise FailedError("another mechanism than before, for re-authentication")
        self._name = name
        self._mechanism = self._authenticator.mechanism(name)
        self._has_headers = call.version > 0
        self._state = _State.AUTHENTICATE
        return response

    async def _authenticate(self, call: s.Call) -> bytes:
        try:
            token = await self._evaluate(bytes(call.body.auth_bytes))
        except SaslError as error:
            what = "authentication" if self._before is None else "re-authentication"
            text = f"Authentication failed during {what} due to invalid credentials with SASL "
            response = self._answer(
                call, ErrorCode.SASL_AUTHENTICATION_FAILED, f"{text}mechanism {self._name}"
            )
            raise FailedError(f"{self._name}: {error}", response) from None
        return self._answer(call, ErrorCode.NONE, "", token)

    async def _bare(self, frame: bytes) -> bytes:
        try:
            return await self._evaluate(frame)
        except SaslError as error:
            raise FailedError(f"{self._name}: {error}") from None

    async def _evaluate(self, token: bytes) -> bytes:
        """Pass a message to the mechanism, and complete the session if it is complete."""
        mechanism = self._mechanism
        assert mechanism is not None, "the handshake chose it"
        self._left -= 1
        if self._left < 0:
            raise SaslError("too many messages")
        response = await mechanism.respond(token)
        if mechanism.identity is not None:
            session = self._completed(mechanism.identity)
            if self._before is not None and self._before.principal != session.principal:
                raise SaslError("another principal than before, for re-authentication")
            self.session = session
        return response

    def _completed(self, identity: SaslIdentity) -> Session:
        authenticator = self._authenticator
        limit_ms = authenticator.config.reauth_ms.get(self._name, 0)
        ends_s = math.inf
        if limit_ms:
            ends_s = authenticator.now_s() + self._lifetime_ms(identity) / 1000
        return Session(self._name, identity, self._began_s, ends_s)

    def _lifetime_ms(self, identity: SaslIdentity) -> int:
        """How long the session may last; 0 for no limit or no time at all, as in Kafka."""
        limit_ms = self._authenticator.config.reauth_ms.get(self._name, 0)
        if identity.expires_ms is None:
            return limit_ms
        left_ms = max(0, identity.expires_ms - self._authenticator.wall_ms())
        return min(left_ms, limit_ms) if limit_ms else left_ms

    def _answer(
        self, call: s.Call, error: ErrorCode, message: str = "", token: bytes = b""
    ) -> bytes:
        lifetime_ms = 0 if self.session is None else self._lifetime_ms(self.session.identity)
        body = s.make(
            s.response_type(s.SASL_AUTHENTICATE, call.version),
            **s.error_fields(error, message),
            auth_bytes=token,
            session_lifetime=datetime.timedelta(milliseconds=lifetime_ms),
        )
        return s.write_response(call.correlation_id, body)
