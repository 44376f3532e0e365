"""What becomes of a broker's partitions, and elections.

Steps of `broker_changed`: of each partition given, take the broker that leaves out of the ISR, and
let whoever is active (or just becomes it) lead. Costs what that broker has, not what the cluster
has.

Source: KIP-841, KIP-460 (ElectLeaders), KIP-704; Kafka's ReplicationControlManager.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from quorate.metadata.partition_change import Change, Election
from quorate.metadata.partitions import NO_LEADER, Partition, PartitionKey
from quorate.metadata.requests import ElectLeaders, ElectLeadersResponse, PartitionOutcome
from quorate.metadata.work import RefusedError, Work
from quorate.raft.errors import ErrorCode
from quorate.records.metadata import MetadataRecord, PartitionChangeRecord

PREFERRED, UNCLEAN = 0, 1
NOBODY = -1


def broker_changed(
    work: Work,
    keys: Iterable[PartitionKey],
    *,
    removed: int = NOBODY,
    added: int = NOBODY,
    unclean: int = NOBODY,
) -> list[MetadataRecord]:
    """Partition changes as `removed` leaves (or `unclean` comes back without its last records), or
    `added` becomes active.
    """
    is_active = work.image.cluster.is_active

    def is_acceptable(broker: int) -> bool:
        return broker not in (removed, unclean) and (broker == added or is_active(broker))

    records: list[MetadataRecord] = []
    for key in keys:
        partition = work.partition(key)
        election = Election.UNCLEAN if work.allows_unclean(key[0]) else Election.ONLINE
        change = Change.of(work, partition, is_acceptable, election)
        change.isr = tuple(b for b in partition.isr if b not in (removed, unclean))
        change.unclean_shutdown = () if unclean == NOBODY else (unclean,)
        record = change.build()
        if record is not None:
            records.append(record)
    return records


def broker_leaves(work: Work, broker_id: int) -> list[MetadataRecord]:
    """It is fenced, shuts down, or is forgotten."""
    return broker_changed(work, list(work.index.in_isr.get(broker_id, ())), removed=broker_id)


def broker_joins(work: Work, broker_id: int) -> list[MetadataRecord]:
    """It is unfenced: only partitions without a leader are elected for."""
    return broker_changed(work, list(work.index.leaderless()), added=broker_id)


def broker_restarted(work: Work, broker_id: int, *, was_clean: bool) -> list[MetadataRecord]:
    """Another process of it registers. One that did not stop cleanly may have lost records: with
    eligible leader replicas it is in no ISR and not eligible any more (KIP-966).
    """
    keys = dict.fromkeys(work.index.in_isr.get(broker_id, ()))
    if was_clean or not work.elr_enabled:
        return broker_changed(work, keys, removed=broker_id)
    keys |= dict.fromkeys(work.index.in_elr.get(broker_id, ()))
    return broker_changed(work, keys, unclean=broker_id)


# --- elections that somebody asks for -------------------------------------------------------------


def elect_leaders(
    work: Work, request: ElectLeaders
) -> tuple[list[MetadataRecord], ElectLeadersResponse]:
    """An unclean election is what is asked for: the topic's setting does not matter."""
    if request.election_type not in (PREFERRED, UNCLEAN):
        message = f"Unknown election type {request.election_type}"
        return [], ElectLeadersResponse((), ErrorCode.INVALID_REQUEST, message)
    is_unclean = request.election_type == UNCLEAN
    records: list[MetadataRecord] = []
    outcomes = []
    if request.partitions is None:
        keys = work.index.leaderless() if is_unclean else iter(work.index.off_preferred)
        wanted: Iterable[tuple[str, int]] = [
            (work.image.topics.names[topic_id], index) for topic_id, index in keys
        ]
    else:
        wanted = dict.fromkeys(request.partitions)
    for topic, index in wanted:
        try:
            records.append(_elected(work, work.find(topic, index), is_unclean=is_unclean))
            outcomes.append(PartitionOutcome(topic, index))
        except RefusedError as refused:
            if request.partitions is None and refused.error in _NOT_OF_INTEREST:
                continue
            outcomes.append(PartitionOutcome(topic, index, refused.error, refused.message))
    return records, ElectLeadersResponse(tuple(outcomes))


_NOT_OF_INTEREST = frozenset({ErrorCode.ELECTION_NOT_NEEDED})


def _elected(work: Work, partition: Partition, *, is_unclean: bool) -> PartitionChangeRecord:
    preferred = partition.replicas[0]
    if is_unclean and partition.leader != NO_LEADER:
        raise RefusedError(ErrorCode.ELECTION_NOT_NEEDED, "The partition has a leader.")
    if not is_unclean and partition.leader == preferred:
        raise RefusedError(ErrorCode.ELECTION_NOT_NEEDED, "The preferred replica leads.")
    election = Election.UNCLEAN if is_unclean else Election.PREFERRED
    change = Change.of(work, partition, election=election)
    record = change.build()
    if record is None or record.leader < 0 or (not is_unclean and record.leader != preferred):
        if is_unclean:
            raise RefusedError(
                ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
                "No replica is active, in sync or not.",
            )
        raise RefusedError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"The preferred leader {preferred} is not in sync, or not active.",
        )
    return record


# --- elections as time goes by --------------------------------------------------------------------


def rebalance(work: Work) -> list[MetadataRecord]:
    """Let preferred leaders lead where they can (auto.leader.rebalance.enable)."""
    return _changes(work, work.index.off_preferred, Election.PREFERRED)


def elect_unclean(work: Work) -> list[MetadataRecord]:
    """Let leaderless partitions of topics that allow it have a leader that is not in sync."""
    keys = (key for key in work.index.leaderless() if work.allows_unclean(key[0]))
    return _changes(work, keys, Election.UNCLEAN)


def _changes(work: Work, keys: Iterable[PartitionKey], election: Election) -> list[MetadataRecord]:
    records: list[MetadataRecord] = []
    for partition in _partitions(work, keys):
        record = Change.of(work, partition, election=election).build()
        if record is not None:
            records.append(record)
            if len(records) >= work.settings.records_per_batch_max:
                break
    return records


def _partitions(work: Work, keys: Iterable[PartitionKey]) -> Iterator[Partition]:
    for key in keys:
        yield work.partition(key)
