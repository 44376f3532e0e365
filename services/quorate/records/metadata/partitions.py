"""Records of topics and partitions (KIP-631, KIP-858, KIP-966)."""

from __future__ import annotations

from quorate.common.identifiers import ZERO_UUID
from quorate.records.metadata.schema import (
    Int8,
    Int32,
    MetadataRecord,
    String,
    Uuid,
    record,
    wire,
)

NO_LEADER = -1
NO_LEADER_CHANGE = -2
"""In a PartitionChangeRecord only."""
RECOVERED = 0
RECOVERING = 1
NO_RECOVERY_CHANGE = -1
"""In a PartitionChangeRecord only."""


@record(api_key=2, versions=(0, 0))
class TopicRecord(MetadataRecord):
    """A topic exists; its partitions follow as records of their own."""

    name: String = ""
    topic_id: Uuid = ZERO_UUID


@record(api_key=3, versions=(0, 2))
class PartitionRecord(MetadataRecord):
    """The whole state of a partition. Version 1: KIP-858's directories; 2: KIP-966's replicas.

    `directories` runs parallel to `replicas`.
    """

    partition_id: Int32 = -1
    topic_id: Uuid = ZERO_UUID
    replicas: tuple[Int32, ...] = ()
    isr: tuple[Int32, ...] = ()
    removing_replicas: tuple[Int32, ...] = ()
    adding_replicas: tuple[Int32, ...] = ()
    leader: Int32 = NO_LEADER
    leader_recovery_state: Int8 = wire(default=RECOVERED, tag=0)
    leader_epoch: Int32 = -1
    partition_epoch: Int32 = -1
    directories: tuple[Uuid, ...] = wire(default=(), since=1)
    eligible_leader_replicas: tuple[Int32, ...] | None = wire(default=None, since=2, tag=1)
    last_known_elr: tuple[Int32, ...] | None = wire(default=None, since=2, tag=2)


@record(api_key=5, versions=(0, 2))
class PartitionChangeRecord(MetadataRecord):
    """What changed in a partition; None (or the named constant) says that it did not."""

    partition_id: Int32 = -1
    topic_id: Uuid = ZERO_UUID
    isr: tuple[Int32, ...] | None = wire(default=None, tag=0)
    leader: Int32 = wire(default=NO_LEADER_CHANGE, tag=1)
    replicas: tuple[Int32, ...] | None = wire(default=None, tag=2)
    removing_replicas: tuple[Int32, ...] | None = wire(default=None, tag=3)
    adding_replicas: tuple[Int32, ...] | None = wire(default=None, tag=4)
    leader_recovery_state: Int8 = wire(default=NO_RECOVERY_CHANGE, tag=5)
    directories: tuple[Uuid, ...] | None = wire(default=None, since=1, tag=8)
    eligible_leader_replicas: tuple[Int32, ...] | None = wire(default=None, since=2, tag=6)
    last_known_elr: tuple[Int32, ...] | None = wire(default=None, since=2, tag=7)


@record(api_key=9, versions=(0, 0))
class RemoveTopicRecord(MetadataRecord):
    """A topic is gone, and all of its partitions."""

    topic_id: Uuid = ZERO_UUID


@record(api_key=28, versions=(0, 0))
class ClearElrRecord(MetadataRecord):
    """Forget the eligible leader replicas of one topic, or of all when the name is empty."""

    topic_name: String = ""
