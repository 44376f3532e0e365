"""Delegation tokens, as part of the image: stored and displayed only. Source: KIP-48, KIP-900."""

from __future__ import annotations

from collections.abc import Iterator
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
    """tokens: the token records by token id."""

    tokens: dict[str, DelegationTokenRecord] = field(default_factory=dict)

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
