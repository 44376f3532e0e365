"""Delegation tokens, as part of the image, and their secrets. Source: KIP-48, KIP-900."""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from quorate.metadata.image.delta import MetadataDelta
from quorate.metadata.metadata_version import DELEGATION_TOKENS
from quorate.records.metadata import (
    DelegationTokenRecord,
    MetadataRecord,
    RemoveDelegationTokenRecord,
)


@dataclass(slots=True, repr=False)
class TokensImage:
    """The delegation tokens."""

    tokens: dict[str, DelegationTokenRecord] = field(default_factory=dict)
    """The token records by token id."""

    def copy(self) -> TokensImage:
        return TokensImage(self.tokens.copy())

    def records(self, level: int) -> Iterator[MetadataRecord]:
        if level >= DELEGATION_TOKENS:
            for token in self.tokens.values():
                yield token if token.version == 0 else replace(token, version=0)

    def apply(self, record: DelegationTokenRecord, delta: MetadataDelta) -> None:
        self.tokens[record.token_id] = record
        delta.delegation_tokens = True

    def apply_remove(self, record: RemoveDelegationTokenRecord, delta: MetadataDelta) -> None:
        self.tokens.pop(record.token_id, None)
        delta.delegation_tokens = True


def is_expired(token: DelegationTokenRecord, now_ms: int) -> bool:
    """Whether a token has expired. now_ms: milliseconds since 1970."""
    return min(token.max_timestamp, token.expiration_timestamp) < now_ms


class TokenSecrets:
    """The secrets of tokens: HMAC-SHA-512 of the token's id under `delegation.token.secret.key`.

    key: empty disables delegation tokens.
    """

    def __init__(self, key: str = "") -> None:
        self._key = key.encode()
        self._ids: dict[bytes, str] = {}
        """Token ids by secret."""
        self._known: set[str] = set()

    @property
    def is_enabled(self) -> bool:
        return bool(self._key)

    def secret(self, token_id: str) -> bytes:
        return hmac.digest(self._key, token_id.encode(), "sha512")

    def find(
        self, secret: bytes, tokens: Mapping[str, DelegationTokenRecord]
    ) -> DelegationTokenRecord | None:
        """The token with this secret."""
        if self._known != tokens.keys():
            self._ids = {self.secret(token_id): token_id for token_id in tokens}
            self._known = set(tokens)
        token_id = self._ids.get(secret)
        return None if token_id is None else tokens[token_id]
