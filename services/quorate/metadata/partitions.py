"""A partition as a value, how a change applies to it, and the index of partitions by broker.

A partition is the PartitionRecord that would write it: applying one costs nothing, and a snapshot
is what is there. Two forms of "no eligible leader replicas" (none and empty) are one here: None.

Source: KIP-631 (PartitionChangeRecord), KIP-966; Kafka's PartitionRegistration and BrokersToIsrs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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
    "PartitionIndex",
    "PartitionKey",
    "is_reassigning",
    "merged",
    "normalized",
]

Partition = PartitionRecord
PartitionKey = tuple[str, int]
"""(topic id, partition)"""


def normalized(record: PartitionRecord) -> Partition:
    """The record as a value: without two ways to say the same."""
    if record.eligible_leader_replicas == () or record.last_known_elr == ():
        return _with(record, record.isr)
    return record


def _with(old: Partition, isr: tuple[int, ...]) -> Partition:
    return PartitionRecord(
        old.partition_id,
        old.topic_id,
        old.replicas,
        isr,
        old.removing_replicas,
        old.adding_replicas,
        old.leader,
        old.leader_recovery_state,
        old.leader_epoch,
        old.partition_epoch,
        old.directories,
        old.eligible_leader_replicas or None,
        old.last_known_elr or None,
        unknown_tags=old.unknown_tags,
        version=old.version,
    )


def merged(old: Partition, change: PartitionChangeRecord) -> Partition:
    """The partition after a change. The partition epoch grows with every change, the leader epoch
    with one that names a leader, be it the same.
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


class PartitionIndex:
    """Which partitions a broker is in the ISR of, which it leads, and which nobody leads.

    Kept by the active controller, so that what becomes of one broker costs what that broker has.
    Dictionaries stand for ordered sets: records come out in the same order everywhere.
    """

    def __init__(self, partitions: Iterable[Partition] = ()) -> None:
        self.in_isr: dict[int, dict[PartitionKey, None]] = {}
        self.in_elr: dict[int, dict[PartitionKey, None]] = {}
        self.led_by: dict[int, dict[PartitionKey, None]] = {}
        self.reassigning: dict[PartitionKey, None] = {}
        self.off_preferred: dict[PartitionKey, None] = {}
        """Led by another broker than the preferred one, or by none."""
        for partition in partitions:
            self.replace(None, partition)

    def replace(self, old: Partition | None, new: Partition | None) -> None:
        """A partition changed from `old` (None: it is new) to `new` (None: it is gone)."""
        if old is not None:
            key = (old.topic_id, old.partition_id)
            if new is None or new.isr != old.isr:
                _remove(self.in_isr, old.isr, key)
            if new is None or new.leader != old.leader:
                _remove(self.led_by, (old.leader,), key)
            _remove(self.in_elr, old.eligible_leader_replicas or (), key)
            self.reassigning.pop(key, None)
            self.off_preferred.pop(key, None)
        if new is not None:
            key = (new.topic_id, new.partition_id)
            if old is None or new.isr != old.isr:
                _add(self.in_isr, new.isr, key)
            if old is None or new.leader != old.leader:
                _add(self.led_by, (new.leader,), key)
            if new.eligible_leader_replicas:
                _add(self.in_elr, new.eligible_leader_replicas, key)
            if is_reassigning(new):
                self.reassigning[key] = None
            if new.leader != new.replicas[0]:
                self.off_preferred[key] = None

    def leaderless(self) -> Iterator[PartitionKey]:
        return iter(self.led_by.get(NO_LEADER, ()))

    def leads_any(self, broker_id: int) -> bool:
        return bool(self.led_by.get(broker_id))


def _add(
    index: dict[int, dict[PartitionKey, None]], brokers: Iterable[int], key: PartitionKey
) -> None:
    for broker in brokers:
        found = index.get(broker)
        if found is None:
            index[broker] = {key: None}
        else:
            found[key] = None


def _remove(
    index: dict[int, dict[PartitionKey, None]], brokers: Iterable[int], key: PartitionKey
) -> None:
    for broker in brokers:
        found = index[broker]
        del found[key]
        if not found:
            del index[broker]
