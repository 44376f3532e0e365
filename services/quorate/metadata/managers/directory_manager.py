"""AssignReplicasToDirs: a broker reports the directories of its replicas.

Steps, in this order; the first that applies determines the response:

1. metadata.version is below 3.7-IV2                    UNSUPPORTED_VERSION (whole request)
2. the broker epoch does not match                      STALE_BROKER_EPOCH (whole request)
3. unknown topic or partition                           UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION
4. the broker is not a replica of the partition         NOT_LEADER_OR_FOLLOWER
5. a partition is named twice                           INVALID_REQUEST
6. the directory is recorded. If it is not one of the broker's online directories, the replica
   leaves the ISR and loses leadership, in a second record. The partition epoch grows with each.
   While a migration from ZooKeeper is under way, the leader epoch grows too: without that, a leader
   in ZooKeeper mode would keep using the old partition epoch

Source: KIP-858 "AssignReplicasToDirs".
"""

from __future__ import annotations

from dataclasses import replace

from quorate.common.error_codes import ErrorCode
from quorate.metadata.image.partitions import NO_LEADER_CHANGE, Partition, merged
from quorate.metadata.managers.controller_context import ControllerContext, RefusedError, note_once
from quorate.metadata.managers.partition_change import Change, is_migrating
from quorate.metadata.metadata_version import DIRECTORIES
from quorate.metadata.requests import (
    AssignedReplica,
    AssignReplicasToDirs,
    AssignReplicasToDirsResponse,
    ReplicaAssignment,
)
from quorate.records.metadata import MetadataRecord, PartitionChangeRecord


def assign_replicas(
    context: ControllerContext, request: AssignReplicasToDirs
) -> tuple[list[MetadataRecord], AssignReplicasToDirsResponse]:
    """The records of the accepted assignments, and a result for each replica."""
    if context.image.level < DIRECTORIES:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet."
        )
    context.check_broker_epoch(request.broker_id, request.broker_epoch)
    assigned: list[MetadataRecord] = []
    removed: list[MetadataRecord] = []
    answers = []
    seen: set[tuple[str, int]] = set()
    for wanted in request.replicas:
        error = ErrorCode.NONE
        try:
            partition = _partition(context, request.broker_id, wanted)
            note_once(seen, (wanted.topic_id, wanted.partition))
            directory, removal = _assigned(
                context, partition, request.broker_id, wanted.directory_id
            )
            assigned += directory
            removed += removal
        except RefusedError as refused:
            error = refused.error
        answers.append(
            AssignedReplica(wanted.directory_id, wanted.topic_id, wanted.partition, error)
        )
    return [*assigned, *removed], AssignReplicasToDirsResponse(tuple(answers))


def _partition(context: ControllerContext, broker_id: int, wanted: ReplicaAssignment) -> Partition:
    """Steps 3 and 4."""
    if wanted.topic_id not in context.image.topics.names:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_ID, "")
    partition = context.image.topics.partition(wanted.topic_id, wanted.partition)
    if partition is None:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    if broker_id not in partition.replicas:
        raise RefusedError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "")
    return partition


def _assigned(
    context: ControllerContext, partition: Partition, broker_id: int, directory_id: str
) -> tuple[list[MetadataRecord], list[MetadataRecord]]:
    """Step 6: the record of the directory, and that of the removal; each only if it is needed."""
    change = Change.of(context, partition)
    change.assigned = {broker_id: directory_id}
    # A leaderless partition may get a leader, and a reassignment may end, whatever its directories.
    record = change.build()
    removal: PartitionChangeRecord | None = None
    if not context.is_online(broker_id, directory_id):
        after = partition if record is None else merged(partition, record)
        removal = Change.without(context, after, broker_id).build()
    removed: list[MetadataRecord] = [] if removal is None else [removal]
    if record is None:
        return [], removed
    keeps_leader = removal is None or removal.leader == NO_LEADER_CHANGE
    if is_migrating(context) and keeps_leader and record.leader == NO_LEADER_CHANGE:
        record = replace(record, leader=partition.leader)
    return [record], removed
