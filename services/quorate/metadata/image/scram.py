"""SCRAM credentials, as part of the image. Source: KIP-554, KIP-900."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from quorate.metadata.image.delta import MetadataDelta
from quorate.metadata.metadata_version import SCRAM
from quorate.records.metadata import (
    MetadataRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)

HASHES: Final = {1: "sha256", 2: "sha512"}
MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16384


@dataclass(slots=True, repr=False)
class ScramImage:
    """The SCRAM credentials."""

    credentials: dict[tuple[str, int], UserScramCredentialRecord] = field(default_factory=dict)
    """The credential records by (user, mechanism)."""

    def copy(self) -> ScramImage:
        return ScramImage(self.credentials.copy())

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
