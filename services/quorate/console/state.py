"""The state that the console shows, derived from successive polls of the quorum. No I/O, no clock.

Times are milliseconds since 1970, offsets count records. The history is bounded: see `EVENTS_MAX`,
`POINTS_MAX`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from quorate.common.endpoints import Endpoint
from quorate.metadata.requests import ControllerDescription
from quorate.raft.messages import DescribeQuorumResponse, ReplicaStatus
from quorate.raft.types import ReplicaKey, Voter, VoterSet
from quorate.rpc.software import UNKNOWN, Software, software_of
from quorate.rpc.wire.limits import format_address
from quorate.rpc.wire.values import NodeStatus

EVENTS_MAX = 500
POINTS_MAX = 1_200
LAGS_MAX = 50
BROKER, OBSERVER = "broker", "observer"
LATE_AFTER_MS = 5_000
"""A voter that has not been caught up for longer than this is behind.

Kafka's replica.lag.time.max.ms is larger, but a metadata quorum does not need that tolerance.
"""
_REPLICA = re.compile(r"\b([0-9]+)-[A-Za-z0-9_-]{22}")
"""A replica as messages name it: the table has the directory ids."""
NO_CHANGES = "Voters cannot be changed while there is no leader: only a leader can commit a change."


class Health(StrEnum):
    """The health of the quorum, from best to worst."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    AT_RISK = "at risk"
    NO_LEADER = "no leader"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class QuorumSnapshot:
    """The result of one poll of the quorum."""

    at_ms: int
    view: DescribeQuorumResponse | None
    """The response of the leader, or of another node (`is_leaders_view` is False), or None if no
    node answered.
    """
    is_leaders_view: bool = False
    nodes: Mapping[str, NodeStatus] = field(default_factory=dict)
    """The status of each controller that answered, by address."""
    silent: Mapping[str, str] = field(default_factory=dict)
    """Why the other controllers did not answer, by address."""
    confirm_ms: float | None = None
    """The duration of a linearizable read."""
    controllers: tuple[ControllerDescription, ...] = ()
    """The controllers that have registered, as far as known."""
    brokers: frozenset[int] = frozenset()
    """The ids of registered brokers."""


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """One row of the table. Unknown numbers are None."""

    key: ReplicaKey
    role: str
    """Leader, voter, observer, or broker, which is an observer that must not become a voter."""
    endpoint: str
    end_offset: int | None
    lag: int | None
    """The lag in records."""
    late_ms: int | None
    fetched_ago_ms: int | None
    is_healthy: bool
    software: Software = UNKNOWN
    """What the replica runs."""


@dataclass(frozen=True, slots=True)
class Event:
    """A change of the quorum."""

    at_ms: int
    kind: str
    text: str


@dataclass(slots=True)
class LeaderTerm:
    """The term of one leader, or a time without one (leader None)."""

    leader: int | None
    epoch: int
    from_ms: int
    to_ms: int | None = None
    """The end of the term, None while it lasts."""


@dataclass(frozen=True, slots=True)
class Point:
    """One data point of the plots."""

    at_ms: int
    confirm_ms: float | None
    high_watermark: int | None
    lags: Mapping[int, int]
    """The lag in records by id, of each voter and of the `LAGS_MAX` observers that are the furthest
    behind.
    """


class QuorumState:
    """The state that the console shows. `apply` updates it."""

    def __init__(self) -> None:
        self.health = Health.UNREACHABLE
        self.verdict = "not polled yet"
        self.at_ms = 0
        self.leader: int | None = None
        self.epoch = -1
        self.high_watermark: int | None = None
        self.kraft_version: int | None = None
        self.voters = VoterSet()
        self.replicas: list[ReplicaRow] = []
        self.is_change_pending = False
        self.leader_terms: deque[LeaderTerm] = deque(maxlen=EVENTS_MAX)
        self.events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self.points: deque[Point] = deque(maxlen=POINTS_MAX)
        self._seen = False
        self._brokers: frozenset[int] = frozenset()
        self._software: dict[ReplicaKey, Software] = {}

    def name_of(self, node_id: int) -> str:
        """Return what to call a node, such as "broker 101"; also one that has left."""
        roles = {row.key.id: row.role for row in self.replicas}
        role = roles.get(node_id, BROKER if node_id in self._brokers else "controller")
        return f"{role if role in (BROKER, OBSERVER) else 'controller'} {node_id}"

    def apply(self, snapshot: QuorumSnapshot) -> None:
        """Apply the result of a poll. Differences from the previous one become events."""
        self.at_ms = snapshot.at_ms
        self._brokers |= snapshot.brokers
        view = snapshot.view
        if view is not None and len(view.voter_set):
            self._note_voters(snapshot.at_ms, view.voter_set)
        self._note_leader(snapshot)
        if view is None:
            self.replicas = [_unknown(voter) for voter in self.voters]
        else:
            self.kraft_version = view.kraft_version
            self.is_change_pending = view.voter_set != view.committed_voters
            self.high_watermark = view.high_watermark if view.high_watermark >= 0 else None
            self.replicas = _rows(snapshot, view, self._brokers)
        self._remember_software()
        before = self.health
        self.health, self.verdict = _judge(snapshot, self.replicas, self.voters)
        if self._seen and before is not self.health:
            self.events.append(Event(snapshot.at_ms, "health", f"{self.health}: {self.verdict}"))
        lags = _lags(self.replicas)
        self.points.append(Point(snapshot.at_ms, snapshot.confirm_ms, self.high_watermark, lags))
        self._seen = True

    def _remember_software(self) -> None:
        """Keep showing what a replica ran that does not answer at present."""
        known = {row.key: row.software for row in self.replicas if row.software != UNKNOWN}
        former = self._software
        self._software = {
            row.key: known.get(row.key) or former.get(row.key, UNKNOWN) for row in self.replicas
        }
        self.replicas = [replace(row, software=self._software[row.key]) for row in self.replicas]

    def _note_leader(self, snapshot: QuorumSnapshot) -> None:
        leader = (
            snapshot.view.leader.id
            if snapshot.view is not None and snapshot.is_leaders_view
            else None
        )
        epoch = snapshot.view.leader.epoch if snapshot.view is not None else self.epoch
        self.epoch = max(epoch, self.epoch)
        last = self.leader_terms[-1] if self.leader_terms else None
        if last is not None and (last.leader, last.epoch) == (leader, epoch):
            return
        if last is not None and leader is None and last.leader is None:
            return
        if last is not None:
            last.to_ms = snapshot.at_ms
        self.leader_terms.append(LeaderTerm(leader, epoch, snapshot.at_ms))
        if self._seen:
            led = f"controller {leader} leads epoch {epoch}"
            text = "there is no leader" if leader is None else led
            self.events.append(Event(snapshot.at_ms, "election", text))
        self.leader = leader

    def _note_voters(self, at_ms: int, voters: VoterSet) -> None:
        before, after = {v.key: v for v in self.voters}, {v.key: v for v in voters}

        def note(key: ReplicaKey, what: str) -> None:
            self.events.append(Event(at_ms, "voters", f"{replica_name(key)} {what}"))

        if self._seen and len(self.voters):
            for key in before.keys() - after.keys():
                note(key, "is no longer a voter")
            for key in after.keys() - before.keys():
                note(key, "is now a voter")
            for key in before.keys() & after.keys():
                if before[key].endpoints != after[key].endpoints:
                    note(key, "has new endpoints")
        self.voters = voters


def replica_name(key: ReplicaKey) -> str:
    """Return the name of a controller with its directory: on a new disk, it is a new replica."""
    return f"controller {key.id} (directory {key.directory_id})"


def _lags(rows: Sequence[ReplicaRow]) -> dict[int, int]:
    """Return the lags for a `Point`."""
    known = [(row.key.id, row.lag, row.role) for row in rows if row.lag is not None]
    others = sorted((-lag, node_id) for node_id, lag, role in known if role in (BROKER, OBSERVER))
    lags = {node_id: lag for node_id, lag, role in known if role not in (BROKER, OBSERVER)}
    return lags | {node_id: -behind for behind, node_id in others[:LAGS_MAX]}


def _rows(
    snapshot: QuorumSnapshot, view: DescribeQuorumResponse, brokers: frozenset[int]
) -> list[ReplicaRow]:
    ends = {status.replica: status.log_end_offset for status in view.voters}
    leader_end = max(ends.values(), default=-1)
    for status in view.voters:
        if status.replica.id == view.leader.id:
            leader_end = status.log_end_offset
    rows = [_row(snapshot, view, status, leader_end, is_voter=True) for status in view.voters]
    rows += [_row(snapshot, view, status, leader_end, is_voter=False) for status in view.observers]
    software = software_of(view, snapshot.nodes.values(), snapshot.controllers)
    return [
        replace(
            row,
            software=software[row.key.id],
            role=BROKER if row.role == OBSERVER and row.key.id in brokers else row.role,
        )
        for row in rows
    ]


def _row(
    snapshot: QuorumSnapshot,
    view: DescribeQuorumResponse,
    status: ReplicaStatus,
    leader_end: int,
    *,
    is_voter: bool,
) -> ReplicaRow:
    known = snapshot.is_leaders_view and status.log_end_offset >= 0
    role = "voter" if is_voter else OBSERVER
    if snapshot.is_leaders_view and status.replica.id == view.leader.id:
        role = "leader"
    late_ms = _ago(snapshot.at_ms, status.last_caught_up_ms) if known else None
    answers = any(node.node_id == status.replica.id for node in snapshot.nodes.values())
    return ReplicaRow(
        status.replica,
        role,
        place_of(status.endpoints),
        status.log_end_offset if known else None,
        max(0, leader_end - status.log_end_offset) if known else None,
        late_ms,
        _ago(snapshot.at_ms, status.last_fetch_ms) if known else None,
        (late_ms is not None and late_ms < LATE_AFTER_MS) if snapshot.is_leaders_view else answers,
    )


def place_of(endpoints: Sequence[Endpoint]) -> str:
    """Return the address of a controller; empty if unknown."""
    return format_address(endpoints[0].host, endpoints[0].port) if endpoints else ""


def _ago(now_ms: int, then_ms: int) -> int | None:
    return max(0, now_ms - then_ms) if then_ms >= 0 else None


def _unknown(voter: Voter) -> ReplicaRow:
    """Return the row of a voter whose status is unknown."""
    place = place_of(voter.endpoints)
    return ReplicaRow(voter.key, "voter", place, None, None, None, None, False)


def _judge(
    snapshot: QuorumSnapshot, rows: Sequence[ReplicaRow], voters: VoterSet
) -> tuple[Health, str]:
    """Return the quorum's health, and the reason in one sentence for the user."""
    if snapshot.view is None:
        return Health.UNREACHABLE, _why_unreachable(snapshot)
    if not snapshot.is_leaders_view:
        said = _REPLICA.sub(r"\1", snapshot.view.message) or _known_leader(snapshot.view)
        silent = ", ".join(sorted(snapshot.silent))
        return Health.NO_LEADER, (
            f"{said}; controllers that do not answer: {silent}" if silent else said
        )
    votes = rows[: len(snapshot.view.voters)]  # without a leader that is removing itself
    bad = [row for row in votes if not row.is_healthy]
    alive, needed = len(votes) - len(bad), voters.majority
    if not bad:
        every = f"all {len(votes)} voters have" if len(votes) > 1 else "the only voter has"
        return Health.HEALTHY, f"{every} caught up"
    text = (
        f"{alive} of {_voters(len(votes))} {_have(alive)} caught up, and {_named(bad)} "
        f"{_have(len(bad))} not"
    )
    if alive < needed:
        return Health.AT_RISK, f"{text}: commits wait for a majority of {needed}"
    if alive == needed:
        return Health.AT_RISK, f"{text}: one more failure stops all commits"
    return Health.DEGRADED, text


def _why_unreachable(snapshot: QuorumSnapshot) -> str:
    said = "no controller describes the quorum" if snapshot.nodes else "no controller answers"
    reasons = [f"{place}: {why}" for place, why in sorted(snapshot.silent.items())]
    reasons += [f"{place} answers other requests" for place in sorted(snapshot.nodes)]
    return f"{said} ({'; '.join(reasons)})" if reasons else said


def _known_leader(view: DescribeQuorumResponse) -> str:
    """What a replica says that follows a leader, or has forgotten it meanwhile."""
    if view.leader.id is None:
        return f"no leader is known in epoch {view.leader.epoch}"
    return f"controller {view.leader.id} leads epoch {view.leader.epoch}, but does not answer"


def _voters(count: int) -> str:
    return "1 voter" if count == 1 else f"{count} voters"


def _have(count: int) -> str:
    return "has" if count == 1 else "have"


def _named(rows: Sequence[ReplicaRow]) -> str:
    *others, last = (str(row.key.id) for row in rows)
    return f"voters {', '.join(others)} and {last}" if others else f"voter {last}"
