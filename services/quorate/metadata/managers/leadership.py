"""Leadership changes after the state of a broker changed, and elections.

A broker that leaves is removed from each ISR that it is in, and an active broker (or one that is
just becoming active) takes over its partitions. The cost depends on the broker's partitions, not on
the cluster's. Changes that do not fit one batch go into further batches (`ElectionTask`); the
broker's own registration change is in the first.

Source: KIP-841, KIP-460 (ElectLeaders), KIP-704; Kafka's ReplicationControlManager.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from quorate.common.error_codes import ErrorCode
from quorate.metadata.image.partitions import NO_LEADER, Partition, PartitionKey
from quorate.metadata.managers.controller_context import (
    NOBODY,
    TOO_MANY,
    ControllerContext,
    ElectionTask,
    RefusedError,
)
from quorate.metadata.managers.partition_change import Change, PartitionElection, allowed_election
from quorate.metadata.requests import ElectLeaders, ElectLeadersResponse, PartitionOutcome
from quorate.records.metadata import MetadataRecord, PartitionChangeRecord

PREFERRED, UNCLEAN = 0, 1


def _is_moot(context: ControllerContext, task: ElectionTask) -> bool:
    """Whether the broker's state has changed back since the task began."""
    is_active = context.image.cluster.is_active(task.broker_id)
    return is_active if task.removed != NOBODY else task.added != NOBODY and not is_active


def _slice(context: ControllerContext, task: ElectionTask) -> list[MetadataRecord]:
    """The next partition changes of a task, at most one batch."""
    is_active = context.image.cluster.is_active
    removed, added, unclean = task.removed, task.added, task.unclean

    def is_acceptable(broker: int) -> bool:
        return broker not in (removed, unclean) and (broker == added or is_active(broker))

    records: list[MetadataRecord] = []
    while not task.is_done and len(records) < context.settings.records_per_batch_max:
        key = task.keys[task.position]
        task.position += 1
        partition = context.image.topics.partition(*key)
        if partition is None:
            continue  # its topic was deleted between two slices
        election = allowed_election(context, key[0])
        change = Change.of(context, partition, is_acceptable, election)
        change.isr = tuple(b for b in partition.isr if b not in (removed, unclean))
        change.unclean_shutdown = () if unclean == NOBODY else (unclean,)
        record = change.build()
        if record is not None:
            records.append(record)
    return records


def _begin(context: ControllerContext, task: ElectionTask) -> list[MetadataRecord]:
    """The first slice of a task; `proceed` returns the others as the controller ticks."""
    records = _slice(context, task)
    if not task.is_done:
        context.election_tasks.append(task)
    return records


def proceed(context: ControllerContext) -> tuple[list[MetadataRecord], int]:
    """The next slice of the pending tasks, and the task's broker (NOBODY without records)."""
    while context.election_tasks:
        task = context.election_tasks[0]
        records = [] if _is_moot(context, task) else _slice(context, task)
        if not records or task.is_done:
            context.election_tasks.popleft()
        if records:
            return records, task.broker_id
    return [], NOBODY


def broker_leaves(
    context: ControllerContext, broker_id: int, *, is_gone: bool = False
) -> list[MetadataRecord]:
    """Remove a broker that is fenced, shutting down or unregistered from its ISRs.

    is_gone: unregistered. The partitions for which it is eligible may then be changed, too.
    """
    keys = list(context.index.in_isr.get(broker_id, ()))
    if is_gone:
        keys += context.index.in_elr.get(broker_id, ())
    return _begin(context, ElectionTask(broker_id, keys, removed=broker_id))


def broker_joins(context: ControllerContext, broker_id: int) -> list[MetadataRecord]:
    """Elect leaders for leaderless partitions when a broker is unfenced.

    As in Kafka, these are not the broker's only: another active broker may lead since a directory
    of its failed, or a config allows it now. Partitions without an active replica are left out,
    unless they are being reassigned, which may end now: after a cold start, each of the cluster's
    brokers joins while these are most partitions.
    """
    waiting_for = context.index.waiting_for
    keys = dict.fromkeys(waiting_for.get(broker_id, ()))
    for other, waiting in waiting_for.items():
        if other != broker_id and context.image.cluster.is_active(other):
            keys |= dict.fromkeys(waiting)
    keys |= {key: None for key in context.index.reassigning if key in context.index.leaderless}
    if not context.elr_enabled:
        # Partitions that still have eligible replicas lose them.
        for eligible in context.index.in_elr.values():
            keys |= {key: None for key in eligible if context.partition(key).leader == NO_LEADER}
    return _begin(context, ElectionTask(broker_id, list(keys), added=broker_id))


def broker_restarted(
    context: ControllerContext, broker_id: int, *, was_clean: bool
) -> list[MetadataRecord]:
    """Remove a broker from its ISRs when a new process of it registers.

    After an unclean stop the broker may have lost records: with eligible leader replicas enabled it
    also stops being eligible (KIP-966).
    """
    keys = dict.fromkeys(context.index.in_isr.get(broker_id, ()))
    if was_clean or not context.elr_enabled:
        return _begin(context, ElectionTask(broker_id, list(keys), removed=broker_id))
    keys |= dict.fromkeys(context.index.in_elr.get(broker_id, ()))
    return _begin(context, ElectionTask(broker_id, list(keys), unclean=broker_id))


def clean_up(context: ControllerContext) -> None:
    """Finish the tasks of the previous active controller: inactive brokers leave their ISRs."""
    for broker_id, keys in context.index.in_isr.items():
        if not context.image.cluster.is_active(broker_id) and _leads_or_is_joined(
            context, broker_id
        ):
            context.election_tasks.append(ElectionTask(broker_id, list(keys), removed=broker_id))


def _leads_or_is_joined(context: ControllerContext, broker_id: int) -> bool:
    """Whether the broker leads, or shares an ISR; a leaderless partition keeps its last member."""
    return context.index.leads_any(broker_id) or any(
        len(context.partition(key).isr) > 1 for key in context.index.in_isr.get(broker_id, ())
    )


# --- requested elections --------------------------------------------------------------------------


def elect_leaders(
    context: ControllerContext, request: ElectLeaders
) -> tuple[list[MetadataRecord], ElectLeadersResponse]:
    """Run requested elections. An unclean one ignores unclean.leader.election.enable."""
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise RefusedError(
            ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}"
        )
    is_unclean = request.election_type == UNCLEAN
    records: list[MetadataRecord] = []
    outcomes = []
    if request.partitions is None:
        keys = context.index.leaderless if is_unclean else context.index.off_preferred
        wanted: Iterable[tuple[str, int]] = [
            (context.image.topics.names[topic_id], index) for topic_id, index in keys
        ]
    else:
        wanted = dict.fromkeys(request.partitions)
    for topic, index in wanted:
        try:
            if len(records) >= context.settings.records_per_batch_max:
                raise RefusedError(ErrorCode.POLICY_VIOLATION, TOO_MANY)
            records.append(_elected(context, context.find(topic, index), is_unclean=is_unclean))
            outcomes.append(PartitionOutcome(topic, index))
        except RefusedError as refused:
            if request.partitions is None and refused.error is ErrorCode.ELECTION_NOT_NEEDED:
                continue
            outcomes.append(
                PartitionOutcome(topic, index, error=refused.error, message=refused.message)
            )
    return records, ElectLeadersResponse(tuple(outcomes))


_NOT_NEEDED: Final = "Leader election not needed for topic partition."


def _elected(
    context: ControllerContext, partition: Partition, *, is_unclean: bool
) -> PartitionChangeRecord:
    preferred = partition.replicas[0]
    if is_unclean and partition.leader != NO_LEADER:
        raise RefusedError(ErrorCode.ELECTION_NOT_NEEDED, _NOT_NEEDED)
    if not is_unclean and partition.leader == preferred:
        raise RefusedError(ErrorCode.ELECTION_NOT_NEEDED, _NOT_NEEDED)
    election = PartitionElection.UNCLEAN if is_unclean else PartitionElection.PREFERRED
    change = Change.of(context, partition, election=election)
    record = change.build()
    if record is None:
        if is_unclean:
            raise RefusedError(
                ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
                "Eligible topic partition leaders are not available.",
            )
        raise RefusedError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            "The preferred leader was not available.",
        )
    return record


# --- periodic elections ---------------------------------------------------------------------------


def rebalance(context: ControllerContext) -> list[MetadataRecord]:
    """Move leadership to preferred leaders where possible (auto.leader.rebalance.enable)."""
    return _changes(context, context.index.off_preferred, PartitionElection.PREFERRED)


def elect_unclean(context: ControllerContext) -> list[MetadataRecord]:
    """Elect out-of-sync leaders for the leaderless partitions of topics that allow it."""
    keys = (key for key in context.index.leaderless if context.allows_unclean(key[0]))
    return _changes(context, keys, PartitionElection.UNCLEAN)


def _changes(
    context: ControllerContext, keys: Iterable[PartitionKey], election: PartitionElection
) -> list[MetadataRecord]:
    records: list[MetadataRecord] = []
    for key in keys:
        record = Change.of(context, context.partition(key), election=election).build()
        if record is not None:
            records.append(record)
            if len(records) >= context.settings.records_per_batch_max:
                break
    return records
