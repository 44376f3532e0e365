"""Client quotas, as part of the image.

An entity is a user, a client id, a user's client id, or an address; a name of None is the default
of its type. Entities are stored as (type, name) pairs sorted by type.

Source: KIP-546, KIP-612 (addresses), KIP-599 (controller mutations).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from quorate.metadata.image.delta import MetadataDelta
from quorate.metadata.requests import QuotaEntityKey
from quorate.records.metadata import ClientQuotaRecord, MetadataRecord, QuotaEntity

USER, CLIENT_ID, IP = "user", "client-id", "ip"

CLIENT_KEYS: Final = (
    "consumer_byte_rate",
    "controller_mutation_rate",
    "producer_byte_rate",
    "request_percentage",
)
IP_KEYS: Final = ("connection_creation_rate",)


def entity_key(parts: Iterable[tuple[str, str | None]]) -> QuotaEntityKey:
    """The parts of an entity, sorted by type."""
    return tuple(sorted(parts, key=lambda part: part[0]))


@dataclass(slots=True, repr=False)
class QuotasImage:
    """The client quotas."""

    entities: dict[QuotaEntityKey, Mapping[str, float]] = field(default_factory=dict)
    """Quota keys and values by entity, never empty. Inner mappings are frozen."""

    def copy(self) -> QuotasImage:
        return QuotasImage(self.entities.copy())

    def records(self) -> Iterator[MetadataRecord]:
        for entity, quotas in self.entities.items():
            parts = tuple(QuotaEntity(kind, name) for kind, name in entity)
            for key, value in quotas.items():
                yield ClientQuotaRecord(parts, key, value, version=0)

    def apply(self, record: ClientQuotaRecord, delta: MetadataDelta) -> None:
        entity = entity_key((part.entity_type, part.entity_name) for part in record.entity)
        quotas = dict(self.entities.get(entity, {}))
        if record.remove:
            quotas.pop(record.key, None)
        else:
            quotas[record.key] = record.value
        if quotas:
            self.entities[entity] = quotas
        else:
            self.entities.pop(entity, None)
        delta.quotas = True
