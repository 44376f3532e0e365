"""A partition as a value, and the application of a change to it.

A partition is stored as a PartitionRecord: neither replaying such a record nor writing a snapshot
needs a conversion. None represents both forms of "no eligible leader replicas" (null and empty).

Source: KIP-631 (PartitionChangeRecord), KIP-966; Kafka's PartitionRegistration.
"""

from __future__ import annotations

from dataclasses import replace

from quorate.records.metadata import PartitionChangeRecord, PartitionRecord
from quorate.records.metadata.partitions import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    NO_RECOVERY_CHANGE,
    RECOVERED,
    RECOVERING,
)

__all__ = [
    "NO_LEADER",
    "NO_LEADER_CHANGE",
    "NO_RECOVERY_CHANGE",
    "RECOVERED",
    "RECOVERING",
    "Partition",
    "PartitionKey",
    "is_reassigning",
    "merged",
    "normalized",
]

Partition = PartitionRecord
PartitionKey = tuple[str, int]
"""(topic id, partition)"""


def normalized(record: PartitionRecord) -> Partition:
    """The record with empty ELR lists replaced by None, so that equal partitions compare equal."""
    return replace(
        record,
        eligible_leader_replicas=record.eligible_leader_replicas or None,
        last_known_elr=record.last_known_elr or None,
    )


def merged(old: Partition, change: PartitionChangeRecord) -> Partition:
    """The partition after a change.

    Every change increments the partition epoch. A change that names a leader, even the same one,
    increments the leader epoch.
    """
    names_leader = change.leader != NO_LEADER_CHANGE
    replicas = old.replicas if change.replicas is None else change.replicas
    elr = (
        old.eligible_leader_replicas
        if change.eligible_leader_replicas is None
        else change.eligible_leader_replicas
    )
    last_known = old.last_known_elr if change.last_known_elr is None else change.last_known_elr
    return PartitionRecord(
        old.partition_id,
        old.topic_id,
        replicas,
        old.isr if change.isr is None else change.isr,
        old.removing_replicas if change.removing_replicas is None else change.removing_replicas,
        old.adding_replicas if change.adding_replicas is None else change.adding_replicas,
        change.leader if names_leader else old.leader,
        (
            old.leader_recovery_state
            if change.leader_recovery_state == NO_RECOVERY_CHANGE
            else change.leader_recovery_state
        ),
        old.leader_epoch + 1 if names_leader else old.leader_epoch,
        old.partition_epoch + 1,
        _directories(old, change, replicas),
        elr or None,
        last_known or None,
        unknown_tags=old.unknown_tags,
        version=old.version,
    )


def _directories(
    old: Partition, change: PartitionChangeRecord, replicas: tuple[int, ...]
) -> tuple[str, ...]:
    if change.directories is not None:
        return change.directories
    if len(old.directories) == len(replicas) or not old.directories:
        return old.directories
    return ()


def is_reassigning(partition: Partition) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)
