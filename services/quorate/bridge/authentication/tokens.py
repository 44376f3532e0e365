"""Delegation tokens at the listener for Kafka's brokers: requests, descriptions, and logins.

Rules:
1. Only an authenticated principal may use these requests, and not if it authenticated with a
   delegation token itself: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
2. A token for another owner requires CREATE_TOKENS on that user. Owners and renewers see their
   tokens; others need DESCRIBE on the token or DESCRIBE_TOKENS on its owner.
3. Descriptions and logins use this node's committed image, as Kafka's brokers use theirs.
4. To log in with a token, its id is the user and its secret in Base64 the password. An expired
   token is not accepted, whether or not it has been removed.

Source: KIP-48, KIP-373 (tokens for other owners); Kafka's ControllerApis, KafkaApis,
DelegationTokenManager and DelegationTokenCache.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable
from typing import Any

from quorate.bridge.authentication.mechanisms import ScramCredential
from quorate.bridge.messages import schemas as s
from quorate.common.error_codes import ErrorCode
from quorate.metadata import requests as r
from quorate.metadata.authorizer import Operation, Resource, ResourceType
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.metadata.image.scram import HASHES, MIN_ITERATIONS
from quorate.metadata.image.tokens import TokenSecrets, is_expired
from quorate.records.metadata import DelegationTokenRecord
from quorate.rpc.principals import Caller

SALT_BYTES = 20
USER = "User:"

Allows = Callable[[Operation, Resource], bool]
"""Whether the caller may perform an operation on a resource."""


# --- conversions ----------------------------------------------------------------------------------


def decode_create_token(body: Any) -> r.CreateDelegationToken:
    owner = getattr(body, "owner_principal_name", None)
    return r.CreateDelegationToken(
        f"{body.owner_principal_type or ''}:{owner}" if owner else "",
        tuple(f"{each.principal_type}:{each.principal_name}" for each in body.renewers),
        body.max_lifetime // s.milliseconds(1),
    )


def encode_create_token_response(module: Any, response: r.CreateDelegationTokenResponse) -> Any:
    owner_type, owner = _parts(response.owner)
    requester_type, requester = _parts(response.requester)
    return s.answer(
        module,
        error_code=s.error_field(response.error),
        principal_type=owner_type,
        principal_name=owner,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester,
        issue_timestamp=s.moment(response.issue_timestamp_ms),
        expiry_timestamp=s.moment(response.expiry_timestamp_ms),
        max_timestamp=s.moment(response.max_timestamp_ms),
        token_id=response.token_id,
        hmac=response.hmac,
    )


def decode_renew_token(body: Any) -> r.RenewDelegationToken:
    return r.RenewDelegationToken(bytes(body.hmac), body.renew_period // s.milliseconds(1))


def decode_expire_token(body: Any) -> r.ExpireDelegationToken:
    return r.ExpireDelegationToken(bytes(body.hmac), body.expiry_time_period // s.milliseconds(1))


def encode_token_expiry_response(module: Any, response: r.DelegationTokenExpiry) -> Any:
    return s.answer(
        module,
        error_code=s.error_field(response.error),
        expiry_timestamp=s.moment(response.expiry_timestamp_ms),
    )


def _parts(principal: str) -> tuple[str, str]:
    kind, _, name = principal.partition(":")
    return kind, name


# --- authorization --------------------------------------------------------------------------------


def refusal(request: r.TokenRequest, caller: Caller, allows: Allows) -> ErrorCode:
    """Why the request of this caller is rejected, NONE if it is not (rules 1 and 2).

    caller: for a forwarded request the client in the envelope.
    """
    if not may_request(caller):
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    if isinstance(request, r.CreateDelegationToken) and request.owner not in ("", caller.principal):
        owner = Resource(ResourceType.USER, request.owner)
        if not allows(Operation.CREATE_TOKENS, owner):
            return ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def may_request(caller: Caller) -> bool:
    return caller.is_authenticated and not caller.used_token


# --- descriptions ---------------------------------------------------------------------------------


def describe(
    call: s.Call, caller: Caller, image: MetadataImage, keys: TokenSecrets, allows: Allows
) -> Any:
    """The response to DescribeDelegationToken."""
    module = s.response_module(s.DESCRIBE_DELEGATION_TOKEN, call.version)
    error, tokens = ErrorCode.NONE, ()
    if not may_request(caller):
        error = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    elif not keys.is_enabled:
        error = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    else:
        owners = None
        if call.body.owners is not None:
            owners = {f"{each.principal_type}:{each.principal_name}" for each in call.body.owners}
        tokens = tuple(
            _described(module, token, keys.secret(token.token_id))
            for token in image.tokens.tokens.values()
            if _is_visible(token, owners, caller, allows)
        )
    return s.answer(module, error_code=s.error_field(error), tokens=tokens)


def _is_visible(
    token: DelegationTokenRecord, owners: set[str] | None, caller: Caller, allows: Allows
) -> bool:
    own = {token.owner, *token.renewers}
    if owners is not None and owners.isdisjoint(own):
        return False
    return (
        caller.principal in own
        or allows(Operation.DESCRIBE, Resource(ResourceType.DELEGATION_TOKEN, token.token_id))
        or allows(Operation.DESCRIBE_TOKENS, Resource(ResourceType.USER, token.owner))
    )


def _described(module: Any, token: DelegationTokenRecord, secret: bytes) -> Any:
    owner_type, owner = _parts(token.owner)
    requester_type, requester = _parts(token.requester)
    renewers = (_parts(each) for each in token.renewers)
    return s.make(
        module.DescribedDelegationToken,
        principal_type=owner_type,
        principal_name=owner,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=secret,
        renewers=tuple(
            module.DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
            for kind, name in renewers
        ),
    )


# --- logins ---------------------------------------------------------------------------------------


class ScramCredentials:
    """The SCRAM credentials of users and of delegation tokens.

    image: returns the committed image. keys: of delegation tokens. wall_ms: returns milliseconds
    since 1970.
    """

    def __init__(
        self,
        image: Callable[[], MetadataImage],
        keys: TokenSecrets,
        wall_ms: Callable[[], int],
    ) -> None:
        self._image = image
        self._keys = keys
        self._wall_ms = wall_ms
        self._derived: dict[tuple[str, int], tuple[bytes, bytes, bytes]] = {}
        """Salt, stored key and server key by token id and mechanism."""

    def find(self, name: str, mechanism: int, is_token: bool) -> ScramCredential | None:
        """See `mechanisms.FindCredential`."""
        image = self._image()
        if is_token:
            token = image.tokens.tokens.get(name)
            return None if token is None else self._of_token(image, token, mechanism)
        found = image.scram.credentials.get((name, mechanism))
        if found is None:
            return None
        return ScramCredential(
            name, found.salt, found.stored_key, found.server_key, found.iterations
        )

    def _of_token(
        self, image: MetadataImage, token: DelegationTokenRecord, mechanism: int
    ) -> ScramCredential | None:
        if (
            not self._keys.is_enabled
            or is_expired(token, self._wall_ms())
            or not token.owner.startswith(USER)
        ):
            return None
        key = (token.token_id, mechanism)
        if key not in self._derived:
            for stale in [each for each in self._derived if each[0] not in image.tokens.tokens]:
                del self._derived[stale]
            self._derived[key] = _derive(self._keys.secret(token.token_id), HASHES[mechanism])
        expires_ms = min(token.max_timestamp, token.expiration_timestamp)
        owner = token.owner.removeprefix(USER)
        return ScramCredential(owner, *self._derived[key], MIN_ITERATIONS, expires_ms)


def _derive(secret: bytes, hashed: str) -> tuple[bytes, bytes, bytes]:
    """Salt, stored key and server key of a token's secret (RFC 5802)."""
    salt = secrets.token_bytes(SALT_BYTES)
    password = base64.b64encode(secret)
    salted = hashlib.pbkdf2_hmac(hashed, password, salt, MIN_ITERATIONS)
    stored_key = hashlib.new(hashed, hmac.digest(salted, b"Client Key", hashed)).digest()
    return salt, stored_key, hmac.digest(salted, b"Server Key", hashed)
