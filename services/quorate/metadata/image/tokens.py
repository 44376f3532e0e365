"""Delegation tokens, as part of the image: stored and displayed only. Source: KIP-48, KIP-900."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from quorate.metadata.image.delta import MetadataDelta
from quorate.metadata.metadata_version import DELEGATION_TOKENS
from quorate.records.metadata import (
    DelegationTokenRecord,
    MetadataRecord,
    RemoveDelegationTokenRecord,
)


class TokensImage:
    """tokens: the token records by token id."""

    __slots__ = ("tokens",)

    def __init__(self) -> None:
        self.tokens: dict[str, DelegationTokenRecord] = {}

    def copy(self) -> TokensImage:
        made = TokensImage()
        made.tokens = self.tokens.copy()
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokensImage) and self.tokens == other.tokens

    __hash__ = None  # type: ignore[assignment]

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
