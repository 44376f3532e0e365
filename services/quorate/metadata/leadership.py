"""What becomes of a broker's partitions, and elections.

A broker that leaves is taken out of the ISR of each partition that it is in, and whoever is active
(or just becomes it) leads. That costs what the broker has, not what the cluster has; what does not
fit a batch is done in further ones (`Job`), the broker's own registration in the first.

Source: KIP-841, KIP-460 (ElectLeaders), KIP-704; Kafka's ReplicationControlManager.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from quorate.metadata.partition_change import Change, Election
from quorate.metadata.partitions import NO_LEADER, Partition, PartitionKey
from quorate.metadata.requests import ElectLeaders, ElectLeadersResponse, PartitionOutcome
from quorate.metadata.work import TOO_MANY, RefusedError, Work
from quorate.raft.errors import ErrorCode
from quorate.records.metadata import MetadataRecord, PartitionChangeRecord

PREFERRED, UNCLEAN = 0, 1
NOBODY = -1


@dataclass(slots=True)
class Job:
    """What becomes of a broker's partitions, done in slices that fit a batch.

    removed: it leaves; added: it became active; unclean: it may have lost records. One of them is
    the broker.
    """

    broker_id: int
    keys: list[PartitionKey]
    removed: int = NOBODY
    added: int = NOBODY
    unclean: int = NOBODY
    position: int = 0

    def is_moot(self, work: Work) -> bool:
        """Whether the broker's state has changed again meanwhile."""
        is_active = work.image.cluster.is_active(self.broker_id)
        return is_active if self.removed != NOBODY else self.added != NOBODY and not is_active

    def slice(self, work: Work) -> list[MetadataRecord]:
        """The next partition changes, a batch of them at most."""
        is_active = work.image.cluster.is_active
        removed, added, unclean = self.removed, self.added, self.unclean

        def is_acceptable(broker: int) -> bool:
            return broker not in (removed, unclean) and (broker == added or is_active(broker))

        records: list[MetadataRecord] = []
        while self.position < len(self.keys):
            if len(records) >= work.settings.records_per_batch_max:
                break
            key = self.keys[self.position]
            self.position += 1
            partition = work.image.topics.partition(*key)
            if partition is None:
                continue  # its topic was deleted between two slices
            election = Election.UNCLEAN if work.allows_unclean(key[0]) else Election.ONLINE
            change = Change.of(work, partition, is_acceptable, election)
            change.isr = tuple(b for b in partition.isr if b not in (removed, unclean))
            change.unclean_shutdown = () if unclean == NOBODY else (unclean,)
            record = change.build()
            if record is not None:
                records.append(record)
        return records


def _begun(work: Work, job: Job) -> list[MetadataRecord]:
    """The first slice; the rest is done as the controller ticks."""
    records = job.slice(work)
    if job.position < len(job.keys):
        work.jobs.append(job)
    return records


def proceed(work: Work) -> tuple[list[MetadataRecord], int]:
    """The next slice of what was begun, and whose it is."""
    while work.jobs:
        job = work.jobs[0]
        records = [] if job.is_moot(work) else job.slice(work)
        if not records or job.position >= len(job.keys):
            work.jobs.popleft()
        if records:
            return records, job.broker_id
    return [], NOBODY


def broker_leaves(work: Work, broker_id: int) -> list[MetadataRecord]:
    """It is fenced, shuts down, or is forgotten."""
    keys = list(work.index.in_isr.get(broker_id, ()))
    return _begun(work, Job(broker_id, keys, removed=broker_id))


def broker_joins(work: Work, broker_id: int) -> list[MetadataRecord]:
    """It is unfenced: only partitions without a leader are elected for."""
    return _begun(work, Job(broker_id, list(work.index.leaderless), added=broker_id))


def broker_restarted(work: Work, broker_id: int, *, was_clean: bool) -> list[MetadataRecord]:
    """Another process of it registers. One that did not stop cleanly may have lost records: with
    eligible leader replicas it is in no ISR and not eligible any more (KIP-966).
    """
    keys = dict.fromkeys(work.index.in_isr.get(broker_id, ()))
    if was_clean or not work.elr_enabled:
        return _begun(work, Job(broker_id, list(keys), removed=broker_id))
    keys |= dict.fromkeys(work.index.in_elr.get(broker_id, ()))
    return _begun(work, Job(broker_id, list(keys), unclean=broker_id))


def clean_up(work: Work) -> None:
    """Have done what the last active controller had begun: brokers that are not active leave."""
    for broker_id, keys in work.index.in_isr.items():
        if not work.image.cluster.is_active(broker_id) and _leads_or_is_joined(work, broker_id):
            work.jobs.append(Job(broker_id, list(keys), removed=broker_id))


def _leads_or_is_joined(work: Work, broker_id: int) -> bool:
    """Whether there is something to do: being alone in an ISR, leaderless, is as it should be."""
    return work.index.leads_any(broker_id) or any(
        len(work.partition(key).isr) > 1 for key in work.index.in_isr.get(broker_id, ())
    )


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
        keys = work.index.leaderless if is_unclean else work.index.off_preferred
        wanted: Iterable[tuple[str, int]] = [
            (work.image.topics.names[topic_id], index) for topic_id, index in keys
        ]
    else:
        wanted = dict.fromkeys(request.partitions)
    for topic, index in wanted:
        try:
            if len(records) >= work.settings.records_per_batch_max:
                raise RefusedError(ErrorCode.POLICY_VIOLATION, TOO_MANY)
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
    keys = (key for key in work.index.leaderless if work.allows_unclean(key[0]))
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
