"""The image's finalized feature levels, state of the migration, and whether it has Kafka's nodes.

Source: KIP-584, KIP-778, KIP-866.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from quorate.common.features import METADATA_VERSION
from quorate.metadata.image.delta import MetadataDelta
from quorate.metadata.metadata_version import APPLICATION_VERSION, LATEST_LEVEL
from quorate.records.metadata import (
    KAFKA_NODES,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    ZkMigrationState,
    ZkMigrationStateRecord,
    marks_kafka_nodes,
)


@dataclass(slots=True, repr=False)
class FeaturesImage:
    """The finalized features."""

    levels: dict[str, int] = field(default_factory=dict)
    """The levels by feature name, without level 0."""
    zk_migration: int = ZkMigrationState.NONE
    """The state of the migration from ZooKeeper: see ZkMigrationState."""
    kafka_nodes: bool = False
    """Whether Kafka's nodes use this quorum, which excludes application records for good."""

    def copy(self) -> FeaturesImage:
        return FeaturesImage(self.levels.copy(), self.zk_migration, self.kafka_nodes)

    @property
    def metadata_version(self) -> int:
        """The finalized level of metadata.version, 0 if none is finalized."""
        return self.levels.get(METADATA_VERSION, 0)

    @property
    def application_version(self) -> int:
        """The finalized level of application.version, 0 if none is finalized."""
        return self.levels.get(APPLICATION_VERSION, 0)

    @property
    def migration_is_under_way(self) -> bool:
        """Whether a migration from ZooKeeper has begun and not ended."""
        return self.zk_migration in (ZkMigrationState.PRE_MIGRATION, ZkMigrationState.MIGRATION)

    def records(self) -> Iterator[MetadataRecord]:
        """The records of the levels, metadata.version first: readers need it for the others."""
        for name in sorted(self.levels, key=lambda name: (name != METADATA_VERSION, name)):
            yield FeatureLevelRecord(name, self.levels[name], version=0)
        if self.zk_migration != ZkMigrationState.NONE:
            yield ZkMigrationStateRecord(self.zk_migration, version=0)
        if self.kafka_nodes:
            yield KAFKA_NODES

    def apply(self, record: FeatureLevelRecord, delta: MetadataDelta) -> None:
        if record.feature_level < 0:
            raise ValueError(f"invalid level {record.feature_level} of {record.name}")
        if record.name == METADATA_VERSION and record.feature_level > LATEST_LEVEL:
            raise ValueError(
                f"metadata.version {record.feature_level} is above {LATEST_LEVEL}, the latest that "
                "this release knows"
            )
        if record.feature_level:
            self.levels[record.name] = record.feature_level
        else:
            self.levels.pop(record.name, None)
        delta.features.add(record.name)

    def apply_migration(self, record: ZkMigrationStateRecord, delta: MetadataDelta) -> None:
        self.zk_migration = record.zk_migration_state
        delta.zk_migration = True

    def apply_no_op(self, record: NoOpRecord) -> None:
        """Changes only `kafka_nodes`, irreversibly."""
        if record.unknown_tags and marks_kafka_nodes(record):
            self.kafka_nodes = True
