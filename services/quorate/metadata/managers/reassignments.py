"""Partition reassignments and their cancellation.

A reassignment puts the target replicas first, and keeps the replicas that leave after them until
all added replicas are in sync, or all of a target with fewer replicas; `Change` then completes it.
A second reassignment replaces the target: replicas that the first one was adding leave, unless the
new target has them too.

Source: KIP-455, KIP-860 (factor), KIP-841.
"""

from __future__ import annotations

from quorate.common.error_codes import ErrorCode
from quorate.metadata.image.partitions import Partition, is_reassigning
from quorate.metadata.managers.controller_context import (
    TOO_MANY,
    ControllerContext,
    RefusedError,
    note_once,
)
from quorate.metadata.managers.partition_change import Change, allowed_election
from quorate.metadata.managers.topic_manager import check_replicas
from quorate.metadata.requests import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsResponse,
    PartitionOutcome,
    Reassignment,
)
from quorate.records.metadata import MetadataRecord, PartitionChangeRecord


def alter_reassignments(
    context: ControllerContext, request: AlterPartitionReassignments
) -> tuple[list[MetadataRecord], AlterPartitionReassignmentsResponse]:
    records: list[MetadataRecord] = []
    seen: set[tuple[str, int]] = set()
    outcomes = []
    for wanted in request.reassignments:
        key = (wanted.topic, wanted.partition)
        try:
            note_once(seen, key)
            if len(records) >= context.settings.records_per_batch_max:
                raise RefusedError(ErrorCode.POLICY_VIOLATION, TOO_MANY)
            partition = _found(context, *key)
            if wanted.replicas is None:
                record = _cancelled(context, partition)
            else:
                allow_change = request.allow_replication_factor_change
                record = _reassigned(context, partition, wanted, allow_change=allow_change)
            if record is not None:
                records.append(record)
            outcomes.append(PartitionOutcome(*key))
        except RefusedError as refused:
            outcomes.append(PartitionOutcome(*key, error=refused.error, message=refused.message))
    return records, AlterPartitionReassignmentsResponse(
        tuple(outcomes), request.allow_replication_factor_change
    )


def _found(context: ControllerContext, topic: str, index: int) -> Partition:
    if topic not in context.image.topics.ids:
        raise RefusedError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {topic}."
        )
    found = context.image.topics.partition(context.image.topics.ids[topic], index)
    if found is None:
        raise RefusedError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {topic}:{index}."
        )
    return found


def _cancelled(context: ControllerContext, partition: Partition) -> PartitionChangeRecord | None:
    if not is_reassigning(partition):
        raise RefusedError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "")
    topic = context.image.topics.names[partition.topic_id]
    replicas = tuple(b for b in partition.replicas if b not in partition.adding_replicas)
    isr = tuple(b for b in partition.isr if b not in partition.adding_replicas)
    if not replicas:
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Invalid replica assignment: addingReplicas contains all replicas.",
        )
    if not isr:
        # Only the replicas to be dropped are in sync: the cancellation may lose records.
        if not context.allows_unclean(partition.topic_id):
            raise RefusedError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {topic}:{partition.partition_id} "
                "because it would require an unclean leader election.",
            )
        if not any(map(context.image.cluster.is_active, replicas)):
            raise RefusedError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "Unable to revert partition assignment because no remaining replica is active.",
            )
    change = Change.of(context, partition, election=allowed_election(context, partition.topic_id))
    change.isr, change.replicas, change.adding, change.removing = isr, replicas, (), ()
    return change.build()


def _reassigned(
    context: ControllerContext, partition: Partition, wanted: Reassignment, *, allow_change: bool
) -> PartitionChangeRecord | None:
    target = wanted.replicas
    assert target is not None, "cancellations do not get here"
    before = tuple(b for b in partition.replicas if b not in partition.adding_replicas)
    check_replicas(context, target, None)
    if not allow_change:
        kept = [b for b in partition.replicas if b not in partition.removing_replicas]
        if len(target) != len(kept):
            raise RefusedError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The replication factor is changed from {len(kept)} to {len(target)}",
            )
    change = Change.of(context, partition)
    change.removing = tuple(sorted(b for b in partition.replicas if b not in target))
    change.adding = tuple(sorted(b for b in target if b not in before))
    change.replicas = (*target, *change.removing)
    return change.build()
