"""The roles of a partition's replica, one class each, with the fields of that role only.

    Idle      no leader is known, or this broker is not (or no longer) a replica of it
    Follower  fetches from `leader_id`
    Leader    takes records, serves fetches, proposes the ISR

Every transition is in `TRANSITIONS`; the metadata log alone causes them. A leader's own state
changes on fetches, answers of the controller, and time.

The ISR as the leader sees it has a committed part, which the controller has confirmed, and perhaps
a proposal under way. A change that would let the high watermark move sooner counts only once it is
committed: the offsets that count are those of the maximal ISR, the union of both (KIP-497).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from quorate.broker.values import NO_BROKER_EPOCH, NO_EPOCH

NOT_FETCHED = -1


@dataclass(slots=True)
class Progress:
    """How far a follower is, as its fetches told.

    broker_epoch: of the process that fetched; another process's offsets say nothing of this one's.
    caught_up_ms: when it last had all that the leader had. fetched_end, fetched_ms: the leader's
    end at its last fetch, and when that was: a follower that has reached that end by its next fetch
    was caught up then, even if the log has grown meanwhile.
    """

    caught_up_ms: int
    broker_epoch: int = NO_BROKER_EPOCH
    end_offset: int = NOT_FETCHED
    fetched_end: int = NOT_FETCHED
    fetched_ms: int = 0

    def fetched(self, offset: int, broker_epoch: int, leader_end: int, now_ms: int) -> None:
        """It asks for what follows `offset`."""
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif broker_epoch == self.broker_epoch and offset >= self.fetched_end >= 0:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.broker_epoch = broker_epoch
        self.end_offset = offset
        self.fetched_end = leader_end
        self.fetched_ms = now_ms


@dataclass(frozen=True, slots=True)
class Proposal:
    """An ISR that the controller was asked for, based on `partition_epoch`."""

    isr: frozenset[int]
    partition_epoch: int


@dataclass(slots=True)
class Idle:
    """Nobody leads."""

    name = "idle"
    epoch: int = NO_EPOCH


@dataclass(slots=True)
class Follower:
    """Follows `leader_id` in `epoch`."""

    epoch: int
    leader_id: int
    name = "follower"


@dataclass(slots=True)
class Leader:
    """Leads `epoch`, whose first record is at `epoch_start` or later.

    retry_at_ms: no proposal before that, since the controller refused one.
    """

    epoch: int
    epoch_start: int
    isr: frozenset[int]
    followers: dict[int, Progress] = field(default_factory=dict)
    proposal: Proposal | None = None
    retry_at_ms: int = 0
    name = "leader"

    @property
    def maximal_isr(self) -> frozenset[int]:
        return self.isr if self.proposal is None else self.isr | self.proposal.isr


Role = Idle | Follower | Leader

TRANSITIONS: dict[type[Role], tuple[type[Role], ...]] = {
    Idle: (Idle, Follower, Leader),
    Follower: (Idle, Follower, Leader),
    Leader: (Idle, Follower, Leader),
}
"""From which role to which. A new leader epoch makes a new role, of the same class perhaps."""
