"""Validation of bearer tokens: signed JSON Web Tokens, and the keys that sign them.

Rules:
1. A token must be signed with an asymmetric algorithm by a key of the configured JSON Web Key Set,
   which it names (`kid`) unless the set has only one key. A key that names its algorithm is used
   with that one only.
2. It must have an expiry, an issue time and a subject, and the expected audience and issuer.
3. The keys are read again every `refresh_ms`. If that fails, the old ones remain in use, and
   attempts are repeated with an exponential backoff. A token with an unknown `kid` is rejected, and
   the keys are read again soon, at most once in `UNKNOWN_KEY_S`.

Source: RFC 7515, 7517, 7519; KIP-768; Kafka's BrokerJwtValidator and RefreshingHttpsJwks.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, Final

import jwt

from quorate.bridge.authentication.mechanisms import SaslError, SaslIdentity
from quorate.bridge.authentication.sasl_config import OAuthConfig
from quorate.rpc.cancellation import cancel_tasks

LOGGER = logging.getLogger(__name__)

ALGORITHMS: Final[Mapping[str, tuple[str, ...]]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""The accepted algorithms by type of key."""
KEYS_BYTES_MAX = 1024 * 1024
READ_S = 10.0
UNKNOWN_KEY_S = 10.0
TOKEN_CHARACTERS_MAX = 64 * 1024

_Key = tuple[Any, tuple[str, ...]]
"""A public key, and the algorithms that it may be used with."""


def parse_keys(text: bytes) -> dict[str, _Key]:
    """The usable keys of a JSON Web Key Set by `kid`, "" for one without. Raises ValueError."""
    try:
        found = jwt.PyJWKSet.from_json(text.decode())
    except (jwt.PyJWTError, ValueError, KeyError, TypeError, AttributeError):
        raise ValueError("it is not a JSON Web Key Set with a usable key") from None
    keys: dict[str, _Key] = {}
    for each in found.keys:
        allowed = ALGORITHMS.get(each.key_type or "", ())
        if (named := each._jwk_data.get("alg")) is not None:
            allowed = tuple(algorithm for algorithm in allowed if algorithm == named)
        if allowed and each.public_key_use in (None, "sig"):
            keys[each.key_id or ""] = (each.key, allowed)
    if not keys:
        raise ValueError("it has no public key for signatures")
    return keys


def read_keys(url: str) -> dict[str, _Key]:
    """Read a JSON Web Key Set; this blocks. Raises OSError, ValueError."""
    with urllib.request.urlopen(url, timeout=READ_S) as response:  # noqa: S310 - checked at start
        text = response.read(KEYS_BYTES_MAX + 1)
    if len(text) > KEYS_BYTES_MAX:
        raise ValueError(f"it has more than {KEYS_BYTES_MAX} bytes")
    return parse_keys(text)


class TokenValidator:
    """Validates tokens from `start` to `close`. read: reads the keys, in a thread."""

    def __init__(
        self, config: OAuthConfig, read: Callable[[str], dict[str, _Key]] = read_keys
    ) -> None:
        self._config = config
        self._read = read
        self._keys: dict[str, _Key] = {}
        self._read_at_s = float("-inf")
        self._is_wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._refresh(), name="bridge-jwks")

    async def close(self) -> None:
        await cancel_tasks(self._task)

    async def _refresh(self) -> None:
        """Read the keys, again and again (rule 3)."""
        config = self._config
        failures = 0
        while True:
            self._is_wanted.clear()
            self._read_at_s = time.monotonic()
            try:
                self._keys = await asyncio.to_thread(self._read, config.jwks_url)
                failures = 0
                delay_ms = config.refresh_ms
            except Exception as error:  # of urllib, http.client, or the contents
                if failures == 0:
                    LOGGER.warning(
                        "the keys at sasl.oauthbearer.jwks.endpoint.url cannot be read: %s", error
                    )
                delay_ms = min(
                    config.retry_backoff_ms * 2 ** min(failures, 30), config.retry_backoff_max_ms
                )
                failures += 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay_ms / 1000):
                    await self._is_wanted.wait()

    async def validate(self, token: str) -> SaslIdentity:
        """See `mechanisms.Validate`."""
        config = self._config
        if len(token) > TOKEN_CHARACTERS_MAX:
            raise SaslError("the token is too long")
        key, algorithms = self._key(token)
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=list(algorithms),
                audience=list(config.audiences) or None,
                issuer=config.issuer,
                leeway=config.clock_skew_s,
                options={
                    "require": ["exp", "iat", config.subject_claim],
                    "verify_aud": bool(config.audiences),
                },
            )
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError) as error:
            # The messages of some errors quote claims.
            raise SaslError(f"the token is rejected: {type(error).__name__}") from None
        subject = claims[config.subject_claim]
        if not isinstance(subject, str) or not subject.strip():
            raise SaslError("the token names no subject")
        return SaslIdentity(subject, expires_ms=int(claims["exp"]) * 1000)

    def _key(self, token: str) -> _Key:
        """The key that a token names (rule 1)."""
        try:
            key_id = jwt.get_unverified_header(token).get("kid")
        except (jwt.PyJWTError, ValueError, TypeError):
            raise SaslError("the token is malformed") from None
        if key_id is None and len(self._keys) == 1:
            (only,) = self._keys.values()
            return only
        found = self._keys.get(key_id) if isinstance(key_id, str) else None
        if found is None:
            if time.monotonic() - self._read_at_s >= UNKNOWN_KEY_S:
                self._is_wanted.set()
            raise SaslError("the token's key is unknown")
        return found
