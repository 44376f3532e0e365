"""The server side of the SASL mechanisms PLAIN, SCRAM and OAUTHBEARER, without I/O.

Rules:
1. A mechanism raises `SaslError` to fail. Its text is for this node's log and never contains
   credentials, nor whether the user exists. The client gets no reason.
2. The authorization id, if the client names one, must be the user itself.
3. SCRAM continues with invented credentials for an unknown user, so that the exchange fails at the
   same point as with a wrong password.
4. SCRAM credentials with fewer than 4,096 iterations are not accepted.

SCRAM's server is written here, on `hmac` and `hashlib`: `scramp` rejects Kafka's extension
`tokenauth`, authorization ids, and salts of fewer than 12 bytes, which Kafka accepts.

Source: RFC 4616 (PLAIN), RFC 5802 and 7677 (SCRAM), RFC 7628 (OAUTHBEARER); Kafka's
PlainSaslServer, ScramSaslServer, OAuthBearerSaslServer; KIP-48 (tokenauth).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from quorate.common.scram import MECHANISM_NUMBERS
from quorate.metadata.image.scram import HASHES, MIN_ITERATIONS


class SaslError(Exception):
    """Authentication failed (rule 1)."""


@dataclass(frozen=True, slots=True)
class SaslIdentity:
    """The authenticated principal."""

    user: str
    used_token: bool = False
    expires_ms: int | None = None
    """When the credential expires, milliseconds since 1970."""


class Mechanism(Protocol):
    """One exchange."""

    identity: SaslIdentity | None
    """Who has authenticated, None until the exchange is complete."""

    async def respond(self, token: bytes) -> bytes:
        """The response to the client's next message. Raises SaslError."""
        ...


def _text(token: bytes) -> str:
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise SaslError("the message is not UTF-8") from None


# --- PLAIN ----------------------------------------------------------------------------------------


class Plain:
    """The server side of PLAIN. users: passwords by user."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self.identity: SaslIdentity | None = None
        self._users = users

    async def respond(self, token: bytes) -> bytes:
        parts = _text(token).split("\0")
        if len(parts) != 3:
            raise SaslError("the message is not [authorization id] NUL user NUL password")
        authorization_id, user, password = parts
        if not user or not password:
            raise SaslError("no user or no password is given")
        expected = self._users.get(user)
        is_right = hmac.compare_digest((expected or "").encode(), password.encode())
        if expected is None or not is_right:
            raise SaslError("invalid credentials")
        if authorization_id not in ("", user):
            raise SaslError("the authorization id is not the user")
        self.identity = SaslIdentity(user)
        return b""


# --- SCRAM ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a server needs to authenticate a user by SCRAM."""

    owner: str
    """The user to authenticate."""
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int
    expires_ms: int | None = None
    """When the delegation token expires, milliseconds since 1970; None for other credentials."""


FindCredential = Callable[[str, int, bool], ScramCredential | None]
"""The credential of a user, or of a delegation token: (user or token id, mechanism, is a token)."""

_NAME = r"(?:[^,=\0]|=2C|=3D)+"
_EXTENSIONS = r"(?:,[A-Za-z]+=[^,\0]+)*"
_CLIENT_FIRST = re.compile(
    rf"(?P<gs2>[ny],(?:a=(?P<authzid>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>[!-+\--~]+)(?P<extensions>{_EXTENSIONS}))"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<without_proof>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[!-+\--~]+){_EXTENSIONS})"
    r",p=(?P<proof>[A-Za-z0-9+/=]+)"
)
_UNKNOWN_USERS_KEY: Final = secrets.token_bytes(32)
_NONCE_BYTES = 24


class Scram:
    """The server side of SCRAM. mechanism: a key of `scram.MECHANISM_NUMBERS`."""

    def __init__(self, mechanism: str, find: FindCredential) -> None:
        self.identity: SaslIdentity | None = None
        self._number = MECHANISM_NUMBERS[mechanism]
        self._hash = HASHES[self._number]
        self._find = find
        self._credential: ScramCredential | None = None
        self._is_known = self._is_token = False
        self._gs2 = self._nonce = self._signed = ""

    async def respond(self, token: bytes) -> bytes:
        text = _text(token)
        return (self._first(text) if self._credential is None else self._final(text)).encode()

    def _first(self, text: str) -> str:
        found = _CLIENT_FIRST.fullmatch(text)
        if found is None:
            raise SaslError("the client's first message is malformed, or wants channel binding")
        name, authorization_id = _sasl_name(found["name"]), _sasl_name(found["authzid"] or "")
        extensions = [each.split("=", 1) for each in found["extensions"].split(",")[1:]]
        if len({key for key, _ in extensions}) < len(extensions) or any(
            key in "mnrcpsive" for key, _ in extensions
        ):
            raise SaslError("an extension is given twice, or is not supported")
        self._is_token = dict(extensions).get("tokenauth", "").lower() == "true"
        if authorization_id not in ("", name):
            raise SaslError("the authorization id is not the user")
        credential = self._find(name, self._number, self._is_token)
        self._is_known = credential is not None
        credential = credential or self._invented(name)
        if credential.iterations < MIN_ITERATIONS:
            raise SaslError("the credential has too few iterations")
        self._credential = credential
        self._gs2 = found["gs2"]
        self._nonce = found["nonce"] + secrets.token_urlsafe(_NONCE_BYTES)
        salt = base64.b64encode(credential.salt).decode()
        response = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._signed = f"{found['bare']},{response}"
        return response

    def _final(self, text: str) -> str:
        credential = self._credential
        assert credential is not None, "the first message was processed"
        found = _CLIENT_FINAL.fullmatch(text)
        if found is None:
            raise SaslError("the client's final message is malformed")
        if not hmac.compare_digest(found["nonce"], self._nonce):
            raise SaslError("the nonce is not the one of this exchange")
        if _base64(found["binding"]) != self._gs2.encode():
            raise SaslError("the channel binding differs from the first message")
        message = f"{self._signed},{found['without_proof']}".encode()
        signature = hmac.digest(credential.stored_key, message, self._hash)
        proof = _base64(found["proof"])
        if len(proof) != len(signature):
            raise SaslError("invalid credentials")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        stored_key = hashlib.new(self._hash, client_key).digest()
        is_right = hmac.compare_digest(stored_key, credential.stored_key)
        if not (is_right and self._is_known):
            raise SaslError("invalid credentials")
        self.identity = SaslIdentity(credential.owner, self._is_token, credential.expires_ms)
        verifier = hmac.digest(credential.server_key, message, self._hash)
        return f"v={base64.b64encode(verifier).decode()}"

    def _invented(self, name: str) -> ScramCredential:
        """A credential of an unknown user, always the same one (rule 3)."""
        seed = hmac.digest(_UNKNOWN_USERS_KEY, f"{self._number},{name}".encode(), "sha512")
        key = hashlib.new(self._hash, seed).digest()
        return ScramCredential(name, seed[:20], key, key, MIN_ITERATIONS)


def _sasl_name(text: str) -> str:
    return text.replace("=2C", ",").replace("=3D", "=")


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise SaslError("the message is malformed") from None


# --- OAUTHBEARER ----------------------------------------------------------------------------------

Validate = Callable[[str], Awaitable[SaslIdentity]]
"""Validates a bearer token. Raises SaslError."""

_OAUTH = re.compile(
    rf"n,(?:a=(?P<authzid>{_NAME}))?,\x01"
    r"(?P<pairs>(?:[A-Za-z]+=[!-~ \t\r\n]*\x01)*)\x01"
)
_BEARER = re.compile(r"[Bb]earer +(?P<token>[-_.~+/A-Za-z0-9]+=*)")
_ABORT = b"\x01"


class OAuthBearer:
    """A rejected token gets a challenge with the error, which the client acknowledges."""

    def __init__(self, validate: Validate) -> None:
        self.identity: SaslIdentity | None = None
        self._validate = validate
        self._failed: SaslError | None = None

    async def respond(self, token: bytes) -> bytes:
        if self._failed is not None:
            raise self._failed if token == _ABORT else SaslError("the message is malformed")
        found = _OAUTH.fullmatch(_text(token))
        if found is None:
            raise SaslError("the message is malformed")
        pairs = [each.split("=", 1) for each in found["pairs"].split("\x01")[:-1]]
        bearers = [_BEARER.fullmatch(value) for key, value in pairs if key.lower() == "auth"]
        if len(bearers) != 1 or bearers[0] is None:
            raise SaslError("the message has no bearer token")
        try:
            identity = await self._validate(bearers[0]["token"])
        except SaslError as error:
            self._failed = error
            return json.dumps({"status": "invalid_token"}).encode()
        if _sasl_name(found["authzid"] or "") not in ("", identity.user):
            raise SaslError("the authorization id is not the user")
        self.identity = identity
        return b""
