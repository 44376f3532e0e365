"""AlterPartition: a leader proposes a new ISR.

Steps, in this order; the first that applies determines the response:

1.  the broker epoch does not match           STALE_BROKER_EPOCH (whole request)
2.  unknown topic or partition                UNKNOWN_TOPIC_ID or UNKNOWN_TOPIC_OR_PARTITION
3.  leader or partition epoch ahead of the controller's             NOT_CONTROLLER
4.  stale leader epoch                                              FENCED_LEADER_EPOCH
5.  the sender is not the leader                                    INVALID_REQUEST
6.  stale partition epoch                                           INVALID_UPDATE_VERSION
7.  the ISR is empty, has a duplicate, or a broker that is not a replica    INVALID_REQUEST
8.  the leader is not in the ISR                                    INVALID_REQUEST
9.  an unknown recovery state, RECOVERING with more than the leader in the ISR, or RECOVERING
    although the leader has recovered                               INVALID_REQUEST
10. a member is unregistered, fenced or shutting down, or its broker epoch differs from that of
    its fetches (version 3)                   INELIGIBLE_REPLICA, before version 2
                                              OPERATION_NOT_ATTEMPTED
11. the change is applied; if the sender leads no more, because a reassignment has ended or its
    directory has failed                      NEW_LEADER_ELECTED, before version 2
                                              FENCED_LEADER_EPOCH

A request may name a known partition once: after step 2 a second proposal is rejected with
INVALID_REQUEST, whatever the result of the first.

Source: KIP-497, KIP-704 (9), KIP-841 (10, 11), KIP-903 (version 3).
"""

from __future__ import annotations

from quorate.common.error_codes import ErrorCode
from quorate.metadata.image.partitions import (
    NO_LEADER_CHANGE,
    RECOVERED,
    RECOVERING,
    Partition,
    merged,
)
from quorate.metadata.managers.controller_context import ControllerContext, RefusedError, note_once
from quorate.metadata.managers.partition_change import Change, allowed_election
from quorate.metadata.requests import (
    NO_EPOCH,
    AlteredPartition,
    AlteredTopic,
    AlterPartition,
    AlterPartitionResponse,
    IsrMember,
    PartitionProposal,
    TopicProposals,
)
from quorate.records.metadata import MetadataRecord

LATEST_VERSION = 3
TOPIC_IDS = 2
KIP_841 = 2
BROKER_EPOCHS = 3
LEADER_RECOVERY = 1


def alter_partition(
    context: ControllerContext, request: AlterPartition
) -> tuple[list[MetadataRecord], AlterPartitionResponse]:
    """The records of the accepted proposals, and a result for each proposal."""
    if not 0 <= request.version <= LATEST_VERSION:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_VERSION, f"AlterPartition has versions 0 to {LATEST_VERSION}"
        )
    context.check_broker_epoch(request.broker_id, request.broker_epoch)
    records: list[MetadataRecord] = []
    seen: set[tuple[str, int]] = set()
    topics = []
    for topic in request.topics:
        topic_id = _topic_id(context, request, topic)
        answers = []
        for proposal in topic.partitions:
            key = (topic_id, proposal.partition)
            try:
                partition = _partition(context, request, topic_id, proposal)
                # NEW_LEADER_ELECTED is an error, but its change is made: count the partition first.
                note_once(seen, key)
                answers.append(_altered(context, request, partition, proposal, records))
            except RefusedError as refused:
                answers.append(AlteredPartition(proposal.partition, refused.error))
        topics.append(AlteredTopic(tuple(answers), topic.topic_id, topic.topic_name))
    return records, AlterPartitionResponse(tuple(topics))


def _topic_id(context: ControllerContext, request: AlterPartition, topic: TopicProposals) -> str:
    if request.version >= TOPIC_IDS:
        return topic.topic_id
    return context.image.topics.ids.get(topic.topic_name, "")


def _partition(
    context: ControllerContext,
    request: AlterPartition,
    topic_id: str,
    proposal: PartitionProposal,
) -> Partition:
    """Step 2."""
    partition = context.image.topics.partition(topic_id, proposal.partition)
    if partition is None:
        if topic_id not in context.image.topics.names and request.version >= TOPIC_IDS:
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_ID, "No such topic id.")
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such topic or partition.")
    return partition


def _altered(
    context: ControllerContext,
    request: AlterPartition,
    partition: Partition,
    proposal: PartitionProposal,
    records: list[MetadataRecord],
) -> AlteredPartition:
    """Steps 3 to 11."""
    isr = _checked(context, request, partition, proposal)
    # The leader and its ISR may be unable to lead, such as with failed directories.
    election = allowed_election(context, partition.topic_id)
    change = Change.of(context, partition, election=election)
    change.isr = isr
    if request.version >= LEADER_RECOVERY:
        change.recovery = proposal.leader_recovery_state
    record = change.build()
    if record is not None:
        records.append(record)
        partition = merged(partition, record)
        if record.leader not in (request.broker_id, NO_LEADER_CHANGE):
            raise RefusedError(
                ErrorCode.NEW_LEADER_ELECTED
                if request.version >= KIP_841
                else ErrorCode.FENCED_LEADER_EPOCH,
                "The sender leads no more.",
            )
    return AlteredPartition(
        proposal.partition,
        ErrorCode.NONE,
        partition.leader,
        partition.leader_epoch,
        partition.isr,
        partition.partition_epoch,
        partition.leader_recovery_state,
    )


def _checked(
    context: ControllerContext,
    request: AlterPartition,
    partition: Partition,
    proposal: PartitionProposal,
) -> tuple[int, ...]:
    """Steps 3 to 10: the accepted ISR."""
    if (
        proposal.leader_epoch > partition.leader_epoch
        or proposal.partition_epoch > partition.partition_epoch
    ):
        raise RefusedError(
            ErrorCode.NOT_CONTROLLER,
            "The sender's leader or partition epoch is ahead of the controller's.",
        )
    if proposal.leader_epoch < partition.leader_epoch:
        raise RefusedError(ErrorCode.FENCED_LEADER_EPOCH, "The leader epoch is stale.")
    if request.broker_id != partition.leader:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST,
            f"The sender is not the leader: broker {partition.leader} leads.",
        )
    if proposal.partition_epoch < partition.partition_epoch:
        raise RefusedError(ErrorCode.INVALID_UPDATE_VERSION, "The partition epoch is stale.")
    isr = tuple(member.id for member in proposal.isr)
    if not isr or len(set(isr)) < len(isr) or not set(isr) <= set(partition.replicas):
        raise RefusedError(ErrorCode.INVALID_REQUEST, "The ISR is malformed.")
    if partition.leader not in isr:
        raise RefusedError(ErrorCode.INVALID_REQUEST, "The leader is not in the ISR.")
    if request.version >= LEADER_RECOVERY:
        _check_recovery(partition, proposal, isr)
    if context.enforce_eligibility:
        for member in proposal.isr:
            reason = _ineligible(context, member, request.version)
            if reason:
                raise RefusedError(
                    ErrorCode.INELIGIBLE_REPLICA
                    if request.version >= KIP_841
                    else ErrorCode.OPERATION_NOT_ATTEMPTED,
                    f"{member.id} {reason}",
                )
    return isr


def _check_recovery(
    partition: Partition, proposal: PartitionProposal, isr: tuple[int, ...]
) -> None:
    state = proposal.leader_recovery_state
    if state not in (RECOVERED, RECOVERING):
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"Invalid leader recovery state {state}.")
    if state == RECOVERING and len(isr) > 1:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST, "A recovering leader must be the only member of the ISR."
        )
    if state == RECOVERING and partition.leader_recovery_state == RECOVERED:
        raise RefusedError(ErrorCode.INVALID_REQUEST, "The leader has already recovered.")


def _ineligible(context: ControllerContext, member: IsrMember, version: int) -> str:
    """Why a broker cannot be in an ISR, empty if it can."""
    broker = context.image.cluster.brokers.get(member.id)
    if broker is None:
        return "is not registered"
    if broker.in_controlled_shutdown:
        return "is shutting down"
    if broker.fenced:
        return "is fenced"
    if version >= BROKER_EPOCHS and member.broker_epoch not in (NO_EPOCH, broker.broker_epoch):
        return f"has epoch {broker.broker_epoch}, not {member.broker_epoch}"
    return ""
