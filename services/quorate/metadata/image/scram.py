"""SCRAM credentials, as part of the image. Source: KIP-554, KIP-900."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from quorate.metadata.image.delta import MetadataDelta
from quorate.metadata.metadata_version import SCRAM
from quorate.records.metadata import (
    MetadataRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)

MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
HASHES: Final = {1: "sha256", 2: "sha512"}
MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16384


class ScramImage:
    """credentials: the credential records by (user, mechanism)."""

    __slots__ = ("credentials",)

    def __init__(self) -> None:
        self.credentials: dict[tuple[str, int], UserScramCredentialRecord] = {}

    def copy(self) -> ScramImage:
        made = ScramImage()
        made.credentials = self.credentials.copy()
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ScramImage) and self.credentials == other.credentials

    __hash__ = None  # type: ignore[assignment]

    def records(self, level: int) -> Iterator[MetadataRecord]:
        if level >= SCRAM:
            for credential in self.credentials.values():
                yield credential if credential.version == 0 else replace(credential, version=0)

    def apply(self, record: UserScramCredentialRecord, delta: MetadataDelta) -> None:
        self.credentials[record.name, record.mechanism] = record
        delta.scram_users.add(record.name)

    def apply_remove(self, record: RemoveUserScramCredentialRecord, delta: MetadataDelta) -> None:
        self.credentials.pop((record.name, record.mechanism), None)
        delta.scram_users.add(record.name)
