"""The metrics of the migration (`telemetry.catalogue`), which only the leader exports.

State numbers are those in the log, as Kafka reports them; the text of KIP-866 swaps 1 and 2.
Without a migration the counts are 0.

Source: KIP-866, "Metrics".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from quorate.metadata.image.metadata_image import MetadataImage
from quorate.records.metadata import ZkMigrationState
from quorate.telemetry.samples import Sample


class MetadataType(IntEnum):
    """Where the authoritative metadata of the cluster is kept."""

    ZOOKEEPER = 1
    KRAFT = 2
    DUAL = 3


_TYPES = {
    ZkMigrationState.PRE_MIGRATION: MetadataType.ZOOKEEPER,
    ZkMigrationState.MIGRATION: MetadataType.DUAL,
}


@dataclass(slots=True)
class MigrationMetrics:
    """How long the last synchronization and the last dual write took."""

    snapshot_ms: float = 0.0
    delta_ms: float = 0.0


def migration_samples(
    image: MetadataImage, metrics: MigrationMetrics, lag: int
) -> Iterator[Sample]:
    """The current metrics of the migration. lag: in records."""
    state = ZkMigrationState(image.features.zk_migration)
    brokers = image.cluster.brokers.values()
    yield Sample("ZkMigrationState", state)
    yield Sample("MetadataType", _TYPES.get(state, MetadataType.KRAFT))
    yield Sample("MigratingZkBrokerCount", sum(each.is_migrating_zk_broker for each in brokers))
    yield Sample("ZkWriteBehindLag", lag)
    yield Sample("ZkWriteSnapshotTimeMs", metrics.snapshot_ms)
    yield Sample("ZkWriteDeltaTimeMs", metrics.delta_ms)
