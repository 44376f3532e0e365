"""The image: the cluster's metadata that results from replaying the log up to an offset.

It owns one part for each domain. Only replayed records change it, in the same way on leaders,
followers and observers. Containers are mutable, the values in them are frozen.

Rules:
1. `copy` shares frozen values: its cost grows with topics, brokers and configs, not partitions.
2. Records of a metadata transaction are held back until the transaction ends, and dropped when it
   aborts (KIP-868). A copy holds them back too. NoOpRecords belong to no transaction.
3. A record that cannot be replayed raises ReplayError with its offset; the image must not be used
   after that. Records of undeclared types are kept unchanged, in order.
4. `records` returns the image's records in the order of Kafka's snapshots and in the versions that
   the finalized metadata.version allows. Replaying them produces an equal image.

Source: KIP-631, KIP-630, KIP-868; Kafka's MetadataImage and MetadataDelta.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from quorate.metadata.acls import AclsImage
from quorate.metadata.image.cluster import ClusterImage
from quorate.metadata.image.configs import ConfigsImage
from quorate.metadata.image.delta import LazyDelta, MetadataDelta
from quorate.metadata.image.features import FeaturesImage
from quorate.metadata.image.producer_ids import ProducerIdsImage
from quorate.metadata.image.quotas import QuotasImage
from quorate.metadata.image.scram import ScramImage
from quorate.metadata.image.tokens import TokensImage
from quorate.metadata.image.topics import TopicsImage
from quorate.metadata.metadata_version import LATEST_LEVEL
from quorate.records import metadata as rec
from quorate.records.metadata import RECORD_TYPES, MetadataRecord, UnknownRecord, type_name

__all__ = ["AnyRecord", "MetadataImage", "ReplayError", "type_of"]

AnyRecord = MetadataRecord | UnknownRecord


class ReplayError(Exception):
    """A metadata record cannot be replayed. The node must not continue without it."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(
            f"the metadata record at offset {offset} cannot be replayed: {reason}. No record was "
            "skipped; a later release may support this one"
        )
        self.offset = offset
        self.reason = reason


@dataclass(slots=True, repr=False)
class MetadataImage:
    """The cluster's metadata.

    Images are equal if their state is, regardless of the log that produced it.
    """

    offset: int = field(default=-1, compare=False)
    """The offset of the last applied record, -1 before the first."""
    epoch: int = field(default=-1, compare=False)
    """The epoch of the last applied record, -1 before the first."""
    timestamp_ms: int = field(default=-1, compare=False)
    """The timestamp of the last applied record, -1 before the first."""
    features: FeaturesImage = field(default_factory=FeaturesImage)
    cluster: ClusterImage = field(default_factory=ClusterImage)
    topics: TopicsImage = field(default_factory=TopicsImage)
    configs: ConfigsImage = field(default_factory=ConfigsImage)
    quotas: QuotasImage = field(default_factory=QuotasImage)
    producer_ids: ProducerIdsImage = field(default_factory=ProducerIdsImage)
    acls: AclsImage = field(default_factory=AclsImage)
    scram: ScramImage = field(default_factory=ScramImage)
    tokens: TokensImage = field(default_factory=TokensImage)
    unknown: list[UnknownRecord] = field(default_factory=list)
    _held_back: list[tuple[int, AnyRecord]] | None = None

    def copy(self) -> MetadataImage:
        """An independent copy (rule 1)."""
        return MetadataImage(
            self.offset,
            self.epoch,
            self.timestamp_ms,
            self.features.copy(),
            self.cluster.copy(),
            self.topics.copy(),
            self.configs.copy(),
            self.quotas.copy(),
            self.producer_ids.copy(),
            self.acls.copy(),
            self.scram.copy(),
            self.tokens.copy(),
            self.unknown.copy(),
            None if self._held_back is None else self._held_back.copy(),
        )

    @property
    def in_transaction(self) -> bool:
        """Whether records are held back."""
        return self._held_back is not None

    @property
    def level(self) -> int:
        """The finalized metadata.version, or the latest level if none is finalized."""
        return self.features.metadata_version or LATEST_LEVEL

    def records(self, level: int | None = None) -> Iterator[AnyRecord]:
        """The image as records, each with its `version`, without held-back transaction records.

        level: the metadata.version to write them at, the image's own if None.
        """
        level = self.level if level is None else level
        yield from self.features.records()
        yield from self.cluster.records(level)
        yield from self.topics.records(level)
        yield from self.configs.records()
        yield from self.quotas.records()
        yield from self.producer_ids.records()
        yield from self.acls.records()
        yield from self.scram.records(level)
        yield from self.tokens.records(level)
        yield from self.unknown

    def as_delta(self) -> MetadataDelta:
        """The whole image as a delta from an empty one.

        Partitions are gathered on first use: read them before the image changes.
        """
        return LazyDelta(
            self.topics.keys,
            topics_created=set(self.topics.names),
            brokers=set(self.cluster.brokers),
            controllers=set(self.cluster.controllers),
            configs=set(self.configs.resources),
            features=set(self.features.levels),
            quotas=True,
            scram_users={name for name, _ in self.scram.credentials},
            acls=True,
            producer_ids=True,
            delegation_tokens=True,
            zk_migration=True,
        )

    # --- replay -----------------------------------------------------------------------------------

    def apply(self, record: AnyRecord, offset: int) -> MetadataDelta:
        """Replay one record."""
        return self.apply_batch((record,), offset, self.epoch, self.timestamp_ms)

    def apply_batch(
        self, records: Iterable[AnyRecord], base_offset: int, epoch: int, timestamp_ms: int
    ) -> MetadataDelta:
        """Replay records at consecutive offsets from `base_offset` on."""
        delta = MetadataDelta()
        self._replay(records, base_offset, delta, self.topics.apply_partition)
        self.epoch, self.timestamp_ms = epoch, timestamp_ms
        return delta

    def load_batch(
        self, records: Iterable[AnyRecord], base_offset: int, epoch: int, timestamp_ms: int
    ) -> None:
        """Replay records like `apply_batch`, without a delta: for images that have no listeners."""
        self._replay(records, base_offset, MetadataDelta(), self.topics.load_partition)
        self.epoch, self.timestamp_ms = epoch, timestamp_ms

    def _replay(
        self,
        records: Iterable[AnyRecord],
        base_offset: int,
        delta: MetadataDelta,
        apply_partition: Callable[[rec.PartitionRecord, MetadataDelta], None],
    ) -> None:
        offset = base_offset - 1
        partition_record = rec.PartitionRecord
        try:
            for offset, record in enumerate(records, base_offset):
                # Fast path: the most frequent type in snapshots and when topics are created.
                if type(record) is partition_record and self._held_back is None:
                    apply_partition(record, delta)
                else:
                    self._apply(record, offset, delta)
        except ValueError as error:
            raise ReplayError(offset, f"{type_of(record)}: {error}") from error
        self.offset = max(self.offset, offset)

    def _apply(self, record: AnyRecord, offset: int, delta: MetadataDelta) -> None:
        kind = type(record)
        if self._held_back is not None and kind not in _NEVER_HELD_BACK:
            self._held_back.append((offset, record))
            return
        if isinstance(record, UnknownRecord):
            self._keep(record)
            return
        replay = _REPLAY.get(kind)
        if replay is None:
            raise ValueError("no part of the image handles this record type")
        replay(self, record, delta)

    def _keep(self, record: UnknownRecord) -> None:
        if record == rec.HAS_STATE:
            return
        if record.api_key in RECORD_TYPES:
            raise ValueError(f"version {record.version} is unknown")
        self.unknown.append(record)

    def _begin(self, _record: rec.BeginTransactionRecord, _delta: MetadataDelta) -> None:
        if self._held_back is not None:
            raise ValueError("a transaction is under way")
        self._held_back = []

    def _end(self, _record: rec.EndTransactionRecord, delta: MetadataDelta) -> None:
        held_back = self._taken()
        for offset, record in held_back:
            try:
                self._apply(record, offset, delta)
            except ValueError as error:
                raise ReplayError(offset, f"{type_of(record)}: {error}") from error

    def _abort(self, _record: rec.AbortTransactionRecord, _delta: MetadataDelta) -> None:
        self._taken()

    def _taken(self) -> list[tuple[int, AnyRecord]]:
        held_back, self._held_back = self._held_back, None
        if held_back is None:
            raise ValueError("no transaction is under way")
        return held_back

    def _remove_topic(self, record: rec.RemoveTopicRecord, delta: MetadataDelta) -> None:
        self.configs.forget_topic(self.topics.apply_remove(record, delta), delta)

    def _no_op(self, record: rec.NoOpRecord, _delta: MetadataDelta) -> None:
        self.features.apply_no_op(record)


_NEVER_HELD_BACK: Final = frozenset(
    {
        rec.BeginTransactionRecord,
        rec.EndTransactionRecord,
        rec.AbortTransactionRecord,
        rec.NoOpRecord,
    }
)

_REPLAY: Final[dict[type[Any], Callable[[MetadataImage, Any, MetadataDelta], None]]] = {
    rec.RegisterBrokerRecord: lambda image, r, c: image.cluster.apply_register(r, c),
    rec.UnregisterBrokerRecord: lambda image, r, c: image.cluster.apply_unregister(r, c),
    rec.TopicRecord: lambda image, r, c: image.topics.apply_topic(r, c),
    rec.PartitionRecord: lambda image, r, c: image.topics.apply_partition(r, c),
    rec.ConfigRecord: lambda image, r, c: image.configs.apply(r, c),
    rec.PartitionChangeRecord: lambda image, r, c: image.topics.apply_change(r, c),
    rec.FenceBrokerRecord: lambda image, r, c: image.cluster.apply_fence(r, c),
    rec.UnfenceBrokerRecord: lambda image, r, c: image.cluster.apply_fence(r, c),
    rec.RemoveTopicRecord: MetadataImage._remove_topic,
    rec.DelegationTokenRecord: lambda image, r, c: image.tokens.apply(r, c),
    rec.UserScramCredentialRecord: lambda image, r, c: image.scram.apply(r, c),
    rec.FeatureLevelRecord: lambda image, r, c: image.features.apply(r, c),
    rec.ClientQuotaRecord: lambda image, r, c: image.quotas.apply(r, c),
    rec.ProducerIdsRecord: lambda image, r, c: image.producer_ids.apply(r, c),
    rec.BrokerRegistrationChangeRecord: lambda image, r, c: image.cluster.apply_change(r, c),
    rec.AccessControlEntryRecord: lambda image, r, c: image.acls.apply(r, c),
    rec.RemoveAccessControlEntryRecord: lambda image, r, c: image.acls.apply_remove(r, c),
    rec.NoOpRecord: MetadataImage._no_op,
    rec.ZkMigrationStateRecord: lambda image, r, c: image.features.apply_migration(r, c),
    rec.RemoveUserScramCredentialRecord: lambda image, r, c: image.scram.apply_remove(r, c),
    rec.BeginTransactionRecord: MetadataImage._begin,
    rec.EndTransactionRecord: MetadataImage._end,
    rec.AbortTransactionRecord: MetadataImage._abort,
    rec.RemoveDelegationTokenRecord: lambda image, r, c: image.tokens.apply_remove(r, c),
    rec.RegisterControllerRecord: lambda image, r, c: image.cluster.apply_controller(r, c),
    rec.ClearElrRecord: lambda image, r, c: image.topics.apply_clear_elr(r, c),
}
"""The replay function of each declared record type."""


def type_of(record: AnyRecord) -> str:
    """Kafka's name of the record's type."""
    return type_name(record.api_key if isinstance(record, UnknownRecord) else record.API_KEY)
