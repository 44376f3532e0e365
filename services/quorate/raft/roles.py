"""One class per role, with the fields that this role alone has. Transitions between them:
`transitions.py`.

Source: KIP-595 "State machine", KIP-996 (prospective), KIP-853.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from quorate.common.endpoints import Endpoint
from quorate.common.features import VersionRange
from quorate.common.value import value
from quorate.raft.messages import (
    AddVoterRequest,
    RemoveVoterRequest,
    UpdateKRaftVersionRequest,
    UpdateVoterRequest,
)
from quorate.raft.outputs import RoleName
from quorate.raft.types import OffsetAndEpoch, ReplicaKey, Voter, VoterSet

NEVER = 1 << 62
"""A deadline that does not come."""


@dataclass(slots=True)
class Unattached:
    """Knows an epoch, perhaps its leader's id, but has no leader to fetch from."""

    name: ClassVar[RoleName] = RoleName.UNATTACHED
    epoch: int
    leader_id: int | None = None
    voted: ReplicaKey | None = None
    election_deadline_ms: int = NEVER


class Ballot:
    """The votes of one election, counted against one voter set.

    granted_if_all: who votes for this candidate only if all voters do. needed: how many votes
    without this condition win: a majority, or all if the candidate itself may not win with fewer.
    refused: whose process is not there (the connection was refused). It may come back and vote, but
    nobody should wait for that.
    """

    def __init__(self, voters: VoterSet, local: ReplicaKey, *, needs_all: bool = False) -> None:
        self.voters = voters
        self.needed = max(len(voters), voters.majority) if needs_all else voters.majority
        self.granted: set[int] = {local.id} if local in voters else set()
        self.granted_if_all: set[int] = set()
        self.rejected: set[int] = set()
        self.refused: set[int] = set()
        self.retry_at_ms: dict[int, int] = {}

    def grant(self, voter_id: int) -> None:
        self.granted.add(voter_id)
        self.granted_if_all.discard(voter_id)
        self.rejected.discard(voter_id)
        self.refused.discard(voter_id)

    def grant_if_all(self, voter_id: int) -> None:
        self.refused.discard(voter_id)
        if voter_id not in self.granted:
            self.granted_if_all.add(voter_id)
            self.rejected.discard(voter_id)

    def reject(self, voter_id: int) -> None:
        self.refused.discard(voter_id)
        if voter_id not in self.granted:
            self.granted_if_all.discard(voter_id)
            self.rejected.add(voter_id)

    @property
    def is_won(self) -> bool:
        if len(self.granted) >= self.needed:
            return True
        of_all = len(self.granted) + len(self.granted_if_all)
        return bool(self.granted_if_all) and of_all == len(self.voters)

    @property
    def is_lost(self) -> bool:
        return self._cannot_win(self.rejected)

    @property
    def is_hopeless(self) -> bool:
        """Whether this election is lost unless a voter returns or changes its vote."""
        return self._cannot_win(self.rejected | self.refused)

    def _cannot_win(self, against: set[int]) -> bool:
        """Whether neither enough votes without a condition nor the votes of all can come in."""
        unconditional = len(self.voters) - len(against | self.granted_if_all)
        return bool(against) and unconditional < self.needed

    def undecided(self) -> list[Voter]:
        decided = self.granted | self.granted_if_all | self.rejected
        return [voter for voter in self.voters.voters if voter.key.id not in decided]

    def granting(self) -> tuple[ReplicaKey, ...]:
        votes = self.granted | self.granted_if_all
        return tuple(voter.key for voter in self.voters if voter.id in votes)


@dataclass(slots=True)
class Prospective:
    """Asks whether it could win, without touching anyone's epoch (KIP-996)."""

    name: ClassVar[RoleName] = RoleName.PROSPECTIVE
    epoch: int
    ballot: Ballot
    election_deadline_ms: int
    leader_id: int | None = None
    leader_endpoints: tuple[Endpoint, ...] = ()
    voted: ReplicaKey | None = None
    retries: int = 0
    leader_answered: bool = False
    """As in `Follower`; only such a leader is followed again."""


@dataclass(slots=True)
class Candidate:
    """Asks for votes in an epoch that it began."""

    name: ClassVar[RoleName] = RoleName.CANDIDATE
    epoch: int
    ballot: Ballot
    election_deadline_ms: int
    retries: int = 0
    backoff_deadline_ms: int = NEVER
    """Set if the election is lost: the candidate waits until then before it tries again."""


@dataclass(slots=True)
class Follower:
    """Fetches from a known leader."""

    name: ClassVar[RoleName] = RoleName.FOLLOWER
    epoch: int
    leader_id: int
    leader_endpoints: tuple[Endpoint, ...]
    fetch_deadline_ms: int
    voted: ReplicaKey | None = None
    has_fetched: bool = False
    """Whether a fetch in this epoch succeeded and the leader has not been suspected since; such a
    follower grants no pre-vote.
    """
    leader_answered: bool = False
    """Whether a fetch succeeded since this replica began to follow."""
    read_round: int = 0
    snapshot: OffsetAndEpoch | None = None
    """The snapshot that this replica receives."""
    snapshot_position: int = -1
    """The number of bytes of `snapshot` that this replica has received."""
    update_voter_at_ms: int = NEVER
    update_voter_acked: Voter | None = None
    join_at_ms: int = NEVER


@dataclass(slots=True)
class Resigned:
    """Led this epoch and does so no more. Grants nothing in it; tells the voters until they know or
    time is up.
    """

    name: ClassVar[RoleName] = RoleName.RESIGNED
    epoch: int
    election_deadline_ms: int
    preferred: tuple[ReplicaKey, ...] = ()
    unacknowledged: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class ReplicaProcess:
    """What the leader knows of one process of a replica."""

    first_end: int
    """Where the leader's log ended when the process first fetched."""
    reached: int = -1
    """The largest offset up to which the process holds this epoch's log."""


@dataclass(slots=True)
class ReplicaProgress:
    """What the leader knows of a replica that fetches from it.

    Times are in ms of the leader's clock, -1 for never.
    """

    key: ReplicaKey
    end_offset: int = -1
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    leader_end_at_last_fetch: int = -1
    read_round: int = 0
    endpoints: tuple[Endpoint, ...] = ()
    parked_id: int = -1
    """The last Fetch that was parked, and may be still."""
    voter_in: VoterSet | None = None
    """The voter set in which the replica was found to be a voter beside the leader."""
    incarnation: int = 0
    """The number of the replica's process."""
    processes: dict[int, ReplicaProcess] = field(default_factory=dict)
    """The latest processes of the replica by their numbers, oldest first."""
    is_copied: bool = False
    """Whether two processes run as this replica, so that it does not count (see `processes.py`)."""
    reported_ms: int = -1
    """When it was last reported that two processes run as this replica."""
    reached: int = -1
    """The highest offset that the replica acknowledged in this epoch."""
    promised: int = -1
    """What earlier processes acknowledged in this epoch."""
    reported_promise: int = -1
    """The last value of `promised` for which a lower Fetch was reported."""


@dataclass(slots=True)
class ParkedFetch:
    """A Fetch that waits for records, a higher high watermark, a read round, or its deadline, which
    a higher high watermark brings near.
    """

    request_id: int
    key: ReplicaKey
    offset: int
    high_watermark: int
    max_bytes: int
    deadline_ms: int


@value
class PendingRead:
    """A ReadIndex that waits for a majority to confirm `round`; offset -1 until this epoch has
    committed.
    """

    request_id: int
    deadline_ms: int
    offset: int
    round: int


class ChangeStage(StrEnum):
    """How far a pending change has come; the steps are those of `membership.py`."""

    WAITING = "waiting"
    PROBING = "probing"
    CATCHING_UP = "catching_up"
    COMMITTING = "committing"

    @property
    def text(self) -> str:
        """What the change waits for, as error messages show it."""
        return _STAGE_TEXTS[self]


_STAGE_TEXTS = {
    ChangeStage.WAITING: "waiting for earlier changes and for this epoch to commit",
    ChangeStage.PROBING: "waiting for the voter to answer on its endpoint",
    ChangeStage.CATCHING_UP: "waiting for the voter to catch up",
    ChangeStage.COMMITTING: "waiting for the change to commit",
}


CANNOT_COMMIT = "could not commit"
"""Why a removal is refused: nothing is appended."""

STILL_LEADS = "still leads"
"""What ended a transfer before the leader resigned: nothing was changed."""


@dataclass(slots=True, eq=False)
class PendingChange:
    """A change of the voters or of kraft.version."""

    request: AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest | UpdateKRaftVersionRequest
    request_id: int | None
    """The request to answer; None for the leader's own change, after the answer, or if nobody waits
    for it.
    """
    deadline_ms: int
    stage: ChangeStage = ChangeStage.WAITING
    probe_id: int | None = None
    """The request of the probe that is under way."""
    retry_at_ms: int = 0
    """When to probe again; for a removal, how long the leader waits for silent voters."""
    waits_for: str = ""
    """What is missing, for the answer."""
    kraft_version: VersionRange | None = None
    """The range of kraft.version that the probe found."""
    seen_at: tuple[Endpoint, ...] = ()
    """The endpoints with which the replica fetched at the time of the probe."""
    offset: int = -1


@dataclass(slots=True)
class Transfer:
    """A leadership transfer that waits for its target to hold the whole log."""

    request_id: int
    target: ReplicaKey
    deadline_ms: int
    """The deadline of the request."""
    resume_ms: int
    """When the leader gives up."""
    round: int
    """The read round that the target's next Fetch echoes."""
    is_confirmed: bool = False
    """Whether the target's Fetch echoed `round`; appends are refused from then on."""


@dataclass(slots=True)
class Leader:
    """Leads an epoch. Its own records begin at `epoch_start_offset` (the LeaderChange record)."""

    name: ClassVar[RoleName] = RoleName.LEADER
    epoch: int
    epoch_start_offset: int
    check_quorum_deadline_ms: int
    begin_at_ms: int = 0
    replicas: dict[ReplicaKey, ReplicaProgress] = field(default_factory=dict)
    """All replicas that fetch, voters and observers, by key."""
    tracked: list[ReplicaProgress] = field(default_factory=list)
    """The replicas that are voters of `tracked_set` (see `replication.tracked`)."""
    tracked_set: VoterSet | None = None
    last_sent: tuple[int, int] = (-1, -1)
    """The log's end and the high watermark when parked fetches were last checked."""
    fetched_voters: set[int] = field(default_factory=set)
    """The voters that fetched since the check-quorum timer was last reset."""
    parked: dict[int, ParkedFetch] = field(default_factory=dict)
    """The parked fetches by request id, at most one of each replica."""
    reads: deque[PendingRead] = field(default_factory=deque)
    read_round: int = 0
    changes: deque[PendingChange] = field(default_factory=deque)
    reported: dict[int, Voter] = field(default_factory=dict)
    """What voters reported by UpdateVoter at kraft.version 0, by id."""
    transfer: Transfer | None = None
    since_ms: int = 0
    """When the leader was elected."""

    @property
    def refuses_appends(self) -> bool:
        """Whether leadership is being handed over to a voter that is there."""
        return self.transfer is not None and self.transfer.is_confirmed


Role = Unattached | Prospective | Candidate | Leader | Follower | Resigned
