"""Records of the cluster: configuration, features, producer ids, transactions, the migration.

Source: KIP-631, KIP-584 (features), KIP-835 (no-op), KIP-866 (ZooKeeper), KIP-868 (transactions).
"""

from __future__ import annotations

from enum import IntEnum

from quorate.records.metadata.schema import (
    Int8,
    Int16,
    Int32,
    Int64,
    MetadataRecord,
    String,
    record,
    wire,
)


class ZkMigrationState(IntEnum):
    """The numbers as 3.5 fixed them; 3.4 wrote only NONE and never the two that were swapped."""

    NONE = 0
    MIGRATION = 1
    PRE_MIGRATION = 2
    POST_MIGRATION = 3


@record(api_key=4, versions=(0, 0))
class ConfigRecord(MetadataRecord):
    """One configuration value."""

    resource_type: Int8 = 0
    """2 is a topic, 4 a broker, 16 client metrics, 32 a group."""
    resource_name: String = ""
    name: String = ""
    value: String | None = ""
    """None deletes the configuration."""


@record(api_key=12, versions=(0, 0))
class FeatureLevelRecord(MetadataRecord):
    """The finalized level of a feature, 0 for none. Logs begin with metadata.version's."""

    name: String = ""
    feature_level: Int16 = 0


@record(api_key=15, versions=(0, 0))
class ProducerIdsRecord(MetadataRecord):
    """A block of producer ids is taken; `next_producer_id` begins the next one."""

    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    next_producer_id: Int64 = 0


@record(api_key=20, versions=(0, 0))
class NoOpRecord(MetadataRecord):
    """Nothing: the leader writes it so that offsets advance (KIP-835)."""


KAFKA_NODES_TAG = 10_000
"""The tagged field of a NoOpRecord that says that Kafka's nodes use the quorum. It is not declared,
since it is not Kafka's: Kafka skips it, and dumps the record as any other NoOpRecord (KIP-482)."""

KAFKA_NODES = NoOpRecord(unknown_tags=((KAFKA_NODES_TAG, b"\x01"),), version=0)
"""The record that makes a quorum one of Kafka's nodes."""


def marks_kafka_nodes(record: NoOpRecord) -> bool:
    """Whether the record says that Kafka's nodes use this quorum."""
    return any(tag == KAFKA_NODES_TAG for tag, _ in record.unknown_tags)


@record(api_key=21, versions=(0, 0))
class ZkMigrationStateRecord(MetadataRecord):
    """How far the migration from ZooKeeper is (see ZkMigrationState)."""

    zk_migration_state: Int8 = 0


@record(api_key=23, versions=(0, 0))
class BeginTransactionRecord(MetadataRecord):
    """What follows takes effect with EndTransactionRecord or not at all."""

    name: String | None = wire(default=None, tag=0)


@record(api_key=24, versions=(0, 0))
class EndTransactionRecord(MetadataRecord):
    """The transaction takes effect."""


@record(api_key=25, versions=(0, 0))
class AbortTransactionRecord(MetadataRecord):
    """The transaction is void."""

    reason: String | None = wire(default=None, tag=0)
