"""The roles of a partition's replica, one class each, with the fields of that role only.

    Idle      no leader is known, or this broker is not a replica of the partition
    Follower  fetches from `leader_id`
    Leader    accepts records, serves fetches, proposes the ISR

`TRANSITIONS` lists every transition; only the metadata log causes them. A leader's own state
changes with fetches, controller responses and time.

The leader's view of the ISR has a committed part, which the controller has confirmed, and possibly
a proposal in flight. A change that would let the high watermark advance sooner takes effect only
when it is committed: the high watermark depends on the maximal ISR, the union of both (KIP-497).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from quorate.broker.values import NO_BROKER_EPOCH, NO_EPOCH

NOT_FETCHED = -1


@dataclass(slots=True)
class FollowerProgress:
    """A follower's replication progress, as its fetches report it.

    A follower that reaches `fetched_end` by its next fetch was caught up at `fetched_ms`, even if
    the log has grown since.
    """

    caught_up_ms: int
    """When the follower last had the leader's entire log."""
    broker_epoch: int = NO_BROKER_EPOCH
    """The epoch of the process that fetched; the offsets of another process do not apply to it."""
    end_offset: int = NOT_FETCHED
    fetched_end: int = NOT_FETCHED
    """The leader's log end offset at the last fetch."""
    fetched_ms: int = 0
    """The time of the last fetch."""

    def fetched(self, offset: int, broker_epoch: int, leader_end: int, now_ms: int) -> None:
        """Record a fetch at `offset`, when the leader's log ended at `leader_end`."""
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
    """An ISR proposed to the controller, based on `partition_epoch`."""

    isr: frozenset[int]
    partition_epoch: int


@dataclass(slots=True)
class Idle:
    """No leader is known, or this broker is not a replica."""

    name = "idle"
    epoch: int = NO_EPOCH


@dataclass(slots=True)
class FollowerRole:
    """Follows `leader_id` in `epoch`."""

    epoch: int
    leader_id: int
    name = "follower"


@dataclass(slots=True)
class LeaderRole:
    """Leads `epoch`, whose first record is at `epoch_start` or later."""

    epoch: int
    epoch_start: int
    isr: frozenset[int]
    followers: dict[int, FollowerProgress] = field(default_factory=dict)
    proposal: Proposal | None = None
    retry_at_ms: int = 0
    """The earliest time of the next proposal after the controller rejected one."""
    name = "leader"

    @property
    def maximal_isr(self) -> frozenset[int]:
        return self.isr if self.proposal is None else self.isr | self.proposal.isr


Role = Idle | FollowerRole | LeaderRole

TRANSITIONS: dict[type[Role], tuple[type[Role], ...]] = {
    Idle: (Idle, FollowerRole, LeaderRole),
    FollowerRole: (Idle, FollowerRole, LeaderRole),
    LeaderRole: (Idle, FollowerRole, LeaderRole),
}
"""The next roles of each role. A new leader epoch creates a new role, perhaps of the same class."""
