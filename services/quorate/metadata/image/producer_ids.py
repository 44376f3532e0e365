"""Producer ids, as part of the image: the start of the next block. Source: KIP-730."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from quorate.metadata.image.delta import MetadataDelta
from quorate.records.metadata import MetadataRecord, ProducerIdsRecord

BLOCK_SIZE = 1000
"""The number of ids in a block that a broker gets."""


@dataclass(slots=True, eq=False, repr=False)
class ProducerIdsImage:
    """The last allocated block of producer ids."""

    last: ProducerIdsRecord | None = None
    """The record of the last block, None before the first. It names the block's broker as long as
    that is known. Kafka's snapshots hold only the next id, so equality ignores the broker.
    """

    def copy(self) -> ProducerIdsImage:
        return ProducerIdsImage(self.last)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ProducerIdsImage) and self.next_producer_id == other.next_producer_id
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def next_producer_id(self) -> int:
        return 0 if self.last is None else self.last.next_producer_id

    def records(self) -> Iterator[MetadataRecord]:
        if self.last is not None:
            yield replace(self.last, version=0)

    def apply(self, record: ProducerIdsRecord, delta: MetadataDelta) -> None:
        if record.next_producer_id <= self.next_producer_id:
            raise ValueError(
                f"next producer id {record.next_producer_id} is not above {self.next_producer_id}"
            )
        self.last = record
        delta.producer_ids = True
