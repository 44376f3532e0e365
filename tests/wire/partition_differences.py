"""Where Quorate deliberately changes partitions differently from Kafka, and how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from quorate.metadata.image.partitions import NO_LEADER, NO_LEADER_CHANGE
from quorate.metadata.managers.partition_change import PartitionElection
from quorate.records.metadata import PartitionChangeRecord

from tests.wire.partition_states import Brokers, State

REJECTED: Final = "rejected"
Written = PartitionChangeRecord | str | None
"""What a controller writes: a record, None if nothing changes, or REJECTED."""


@dataclass(frozen=True, slots=True)
class Deliberate:
    """text: why the controllers differ. start: from a state, the one in which Kafka writes what
    Quorate writes. correct: from a state and what Kafka writes, what Quorate writes instead. Where
    the reason does not apply, both return their last argument.
    """

    text: str
    start: Callable[[State], State] = lambda state: state
    correct: Callable[[State, Written], Written] = lambda _state, written: written


# --- states ---------------------------------------------------------------------------------------


def _kept(state: State) -> Brokers:
    """The replicas that remain if the reassignment is cancelled."""
    old = state.partition
    return tuple(each for each in old.replicas if each not in old.adding_replicas)


def _loses_isr(state: State) -> bool:
    old = state.partition
    return state.cancelled and set(old.isr) <= set(old.adding_replicas)


def _elect_unclean(state: State) -> State:
    if not _loses_isr(state):
        return state
    old, kept = state.partition, _kept(state)
    # Kafka would take the replicas that leave for eligible ones.
    eligible = tuple(each for each in old.eligible_leader_replicas or () if each in kept)
    return replace(
        state,
        partition=replace(old, isr=(), eligible_leader_replicas=eligible or None),
        active=tuple(each for each in state.active if each in kept),
        cancelled=False,
        election=PartitionElection.UNCLEAN,
        isr=(),
        replicas=kept,
        removing=(),
        adding=(),
    )


def _is_leader_absent(state: State) -> bool:
    """Whether the last known leader is a broker that will not be a replica."""
    replicas = _kept(state) if _loses_isr(state) else state.replicas or state.partition.replicas
    present = {*replicas, *(state.reassigned or ()), NO_LEADER}
    return not set(state.partition.last_known_elr or ()) <= present


def _without_absent_leader(state: State) -> State:
    if not _is_leader_absent(state):
        return state
    return replace(state, partition=replace(state.partition, last_known_elr=None))


# --- records --------------------------------------------------------------------------------------


def _corrected(state: State, record: PartitionChangeRecord, **lists: Brokers) -> Written:
    """The record with other lists, None if it then changes nothing."""
    old = state.partition
    changed: dict[str, Any] = {
        name: None if value == (getattr(old, name) or ()) else value
        for name, value in lists.items()
    }
    found = replace(record, **changed)
    nothing = PartitionChangeRecord(old.partition_id, old.topic_id, version=record.version)
    return None if found == nothing else found


def _reject(state: State, written: Written) -> Written:
    if _loses_isr(state) and not set(_kept(state)) & set(state.active):
        return REJECTED
    return written


def _forget_absent_leader(state: State, written: Written) -> Written:
    """Once another leads; Kafka writes that only if it starts with a last known leader."""
    if not isinstance(written, PartitionChangeRecord) or not state.elr:
        return written
    if not _is_leader_absent(state) or written.leader in (NO_LEADER, NO_LEADER_CHANGE):
        return written
    return _corrected(state, written, last_known_elr=())


def _omit_no_leader(state: State, written: Written) -> Written:
    if not isinstance(written, PartitionChangeRecord) or written.last_known_elr != (NO_LEADER,):
        return written
    return _corrected(state, written, last_known_elr=state.partition.last_known_elr or ())


def _replace_leader(state: State, written: Written) -> Written:
    old = state.partition
    if not isinstance(written, PartitionChangeRecord) or not (state.elr and old.last_known_elr):
        return written
    if written.leader != NO_LEADER or old.leader == NO_LEADER:
        return written
    return _corrected(state, written, last_known_elr=(old.leader,))


def _is_leader_added(state: State) -> bool:
    """Whether the last known leader is no replica, and is added again."""
    added = {*(state.replicas or ()), *(state.reassigned or ())} - set(state.partition.replicas)
    return not _loses_isr(state) and not added.isdisjoint(state.partition.last_known_elr or ())


def _without_added_leader(state: State) -> State:
    if not _is_leader_added(state):
        return state
    return replace(state, partition=replace(state.partition, last_known_elr=None))


def _forget_moved(state: State, written: Written) -> Written:
    if not isinstance(written, PartitionChangeRecord) or written.replicas is None:
        return written
    old = state.partition
    known = written.last_known_elr
    if known is None:
        known = old.last_known_elr or ()
    moved = set(written.replicas) ^ set(old.replicas)
    kept = tuple(each for each in known if each not in moved)
    return written if kept == known else _corrected(state, written, last_known_elr=kept)


def _drop_removed(state: State, written: Written) -> Written:
    if not isinstance(written, PartitionChangeRecord) or written.replicas is None:
        return written
    eligible = written.eligible_leader_replicas
    if eligible is None:
        eligible = state.partition.eligible_leader_replicas or ()
    kept = tuple(each for each in eligible if each in written.replicas)
    if kept == eligible:
        return written
    return _corrected(state, written, eligible_leader_replicas=kept)


def _keep_order(state: State, written: Written) -> Written:
    if not isinstance(written, PartitionChangeRecord):
        return written
    eligible = written.eligible_leader_replicas
    if eligible is None:
        return written
    order = (*(state.partition.eligible_leader_replicas or ()), *state.partition.isr)
    ordered = tuple(sorted(eligible, key=order.index))
    return _corrected(state, written, eligible_leader_replicas=ordered)


DELIBERATE: Final = (
    Deliberate(
        "if only added replicas are in sync, a cancelled reassignment of Kafka makes the first "
        "remaining replica the ISR, active or not, and its leader does not recover; Quorate elects "
        "as in each unclean election",
        start=_elect_unclean,
    ),
    Deliberate(
        "if only added replicas are in sync and no other is active, Quorate rejects the "
        "cancellation: no replica could lead",
        correct=_reject,
    ),
    Deliberate(
        "Kafka elects a last known leader even if it is not a replica any more (its controller "
        "fails where it looks for the directory of the replica); in Quorate only replicas lead",
        start=_without_absent_leader,
        correct=_forget_absent_leader,
    ),
    Deliberate(
        "Kafka writes -1 as the last known leader of a leaderless partition whose leader epoch "
        "grows; Quorate records only brokers",
        correct=_omit_no_leader,
    ),
    Deliberate(
        "Kafka keeps a last known leader from before another one led while eligible leader "
        "replicas were disabled; Quorate records the last one, which has the newest records",
        correct=_replace_leader,
    ),
    Deliberate(
        "Kafka keeps a last known leader that leaves the replicas, and elects it when it is added "
        "again, without records; Quorate forgets it",
        start=_without_added_leader,
        correct=_forget_moved,
    ),
    Deliberate(
        "Kafka keeps replicas in the ELR that the same change removes from the partition; a broker "
        "that deletes its replica has no committed records",
        correct=_drop_removed,
    ),
    Deliberate(
        "Kafka writes the ELR in the order of a hash table, even if nothing else changes; Quorate "
        "keeps the order of the ELR and the ISR",
        correct=_keep_order,
    ),
)
