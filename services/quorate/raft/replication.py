"""What the parts of leadership share: who fetched how far, commit, parked fetches, telling voters,
resigning.

The high watermark is the largest offset that a majority of the voter set in force holds durably, if
a record of this epoch lies before it. The leader counts itself only if it is a voter, and only up
to its own durable end (KIP-595 "High watermark", KIP-853 "High watermark").
"""

from __future__ import annotations

from quorate.common.error_codes import ErrorCode
from quorate.raft.core import Core
from quorate.raft.epochs import Origin
from quorate.raft.messages import (
    BeginQuorumEpochRequest,
    CurrentLeader,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
)
from quorate.raft.outputs import Respond
from quorate.raft.roles import Leader, ParkedFetch, ReplicaProgress, Resigned, Unattached
from quorate.raft.types import OffsetAndEpoch, ReplicaKey, Voter

OBSERVER_PERIODS = 10
"""How many times as seldom a leader steps down for an observer as for a voter."""

_NONE = ErrorCode.NONE
"""Looked up once: members of an enumeration are found slowly, and every Fetch has an answer."""


def check_leader(core: Core, epoch: int) -> ErrorCode | None:
    """Whether this replica leads exactly `epoch`."""
    if epoch < core.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > core.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return None if isinstance(core.role, Leader) else ErrorCode.NOT_LEADER_OR_FOLLOWER


def note_fetch(
    core: Core, leader: Leader, key: ReplicaKey, request: FetchRequest | FetchSnapshotRequest
) -> ReplicaProgress:
    """Remember that this replica is alive and follows this epoch."""
    progress = leader.replicas.get(key)
    if progress is None:
        _make_room(core, leader, key)
        progress = leader.replicas[key] = ReplicaProgress(key)
        leader.tracked_set = None
    if isinstance(request, FetchRequest):
        progress.endpoints = request.endpoints or progress.endpoints
        if request.read_round > progress.read_round:  # noqa: PLR1730 - once a Fetch: a call costs more
            progress.read_round = request.read_round
    if key.id in leader.fetched_voters:
        return progress
    if progress.voter_in is not core.voters and key.id != core.local.id and key in core.voters:
        progress.voter_in = core.voters
    if progress.voter_in is core.voters:
        leader.fetched_voters.add(key.id)
        others_needed = core.voters.majority - (1 if core.is_voter else 0)
        if len(leader.fetched_voters) >= others_needed:
            leader.fetched_voters.clear()
            leader.check_quorum_deadline_ms = core.now_ms + core.config.check_quorum_timeout_ms
    return progress


def _make_room(core: Core, leader: Leader, key: ReplicaKey) -> None:
    """Make room for a new replica.

    Forget observers with its id, whose directory the new one replaces, and the longest silent
    observer if there are too many: any caller may invent directory ids. Voters stay.
    """
    kept = {p.key for voter in core.voters if (p := progress_of(leader, voter)) is not None}
    replaced = [each for each in leader.replicas if each.id == key.id and each not in kept]
    for each in replaced:
        del leader.replicas[each]
    observers = [p for each, p in leader.replicas.items() if each not in kept]
    if len(observers) >= core.config.observers_max:
        silent = min(observers, key=lambda progress: progress.last_fetch_ms)
        del leader.replicas[silent.key]


# --- commit ---------------------------------------------------------------------------------------


def progress_of(leader: Leader, voter: Voter) -> ReplicaProgress | None:
    """What is known of a voter. Without a directory id (kraft.version 0) the last to fetch under
    its id counts.
    """
    if voter.key.directory_id is not None:
        return leader.replicas.get(voter.key)
    same_id = [p for key, p in leader.replicas.items() if key.id == voter.id]
    return max(same_id, key=lambda progress: progress.last_fetch_ms, default=None)


def acknowledged(core: Core, leader: Leader, voter: Voter) -> int:
    """The offset up to which this voter holds the log durably; -1 if unknown."""
    if voter.id == core.local.id:
        return core.log.durable_end if core.local in core.voters else -1
    progress = progress_of(leader, voter)
    return progress.end_offset if progress is not None and not progress.is_copied else -1


def commit(core: Core, leader: Leader) -> bool:
    """Advance the high watermark as far as a majority allows; return whether it moved."""
    voters = core.voters
    if core.high_watermark >= core.log.end_offset or not voters.voters:
        return False
    held = []
    for progress in tracked(core, leader):
        held.append(progress.end_offset)  # noqa: PERF401 - a comprehension is a call
    if core.is_voter:
        held.append(core.log.durable_end)
    offset = reached_by_majority(core, held)
    return offset > leader.epoch_start_offset and core.advance_high_watermark(offset)


def reached_by_majority(core: Core, values: list[int]) -> int:
    """The largest value that a majority of the voters has; -1 if too few have any."""
    missing = len(values) - core.voters.majority
    if missing < 0:
        return -1
    values.sort()
    return values[missing]


def tracked(core: Core, leader: Leader) -> list[ReplicaProgress]:
    """The progress of the voters that ever fetched, without the leader's own and without voters
    that two processes run as.

    It is found once for each voter set, and again when someone new fetches. Without directory ids
    (kraft.version 0) it depends on who fetched last, so it is not kept.
    """
    if leader.tracked_set is core.voters:
        return leader.tracked
    others = [voter for voter in core.voters if voter.id != core.local.id]
    found = [progress_of(leader, voter) for voter in others]
    leader.tracked = [p for p in found if p is not None and not p.is_copied]
    known = all(voter.key.directory_id is not None for voter in others)
    leader.tracked_set = core.voters if known else None
    return leader.tracked


# --- answers --------------------------------------------------------------------------------------


def answer_fetch(
    core: Core,
    leader: Leader,
    request_id: int,
    offset: int,
    max_bytes: int,
    *,
    acknowledged: OffsetAndEpoch | None = None,
) -> None:
    """Answer with what there is from `offset` on, if only the high watermark."""
    log = core.log
    response = FetchResponse(
        _NONE,
        core.own_leadership or core.current_leader,
        core.high_watermark,
        log.start.offset,
        None,
        None,
        offset if offset < log.end_offset else None,
        max_bytes,
        leader.read_round,
        acknowledged=acknowledged,
    )
    core.outputs.append(Respond(request_id, response))


def answer_waiting(core: Core, leader: Leader, fetch: ParkedFetch) -> None:
    """Answer a parked Fetch, which is parked no longer."""
    answer_fetch(core, leader, fetch.request_id, fetch.offset, fetch.max_bytes)


def fetch_deadline(core: Core, high_watermark: int, deadline_ms: int) -> int:
    """When to answer a Fetch at the latest: soon, if the asker's high watermark is stale."""
    if high_watermark >= core.high_watermark:
        return deadline_ms
    soon_ms = core.now_ms + core.config.high_watermark_linger_ms
    return soon_ms if soon_ms < deadline_ms else deadline_ms  # noqa: FURB136 - a call costs more


def answer_parked(core: Core) -> None:
    """Answer every parked Fetch for which there is news.

    News are a longer log and a higher high watermark; without one of them nothing is looked at.
    What has waited long enough is answered by `leader.tick`.
    """
    leader = core.role
    if not isinstance(leader, Leader):
        return
    sent = (core.log.end_offset, core.high_watermark)
    if sent == leader.last_sent:
        return
    leader.last_sent = sent
    if not leader.parked:
        return
    end_offset, now = sent[0], core.now_ms
    for fetch in list(leader.parked.values()):
        deadline = fetch_deadline(core, fetch.high_watermark, fetch.deadline_ms)
        if fetch.offset < end_offset or deadline <= now:
            del leader.parked[fetch.request_id]
            answer_waiting(core, leader, fetch)
        elif deadline != fetch.deadline_ms:
            fetch.deadline_ms = deadline
            core.due(deadline)


def answer_parked_voters(core: Core, leader: Leader) -> None:
    """Answer what voters have parked, news or not: their next Fetch is what is wanted."""
    for fetch in list(leader.parked.values()):
        if fetch.key in core.voters:
            del leader.parked[fetch.request_id]
            answer_waiting(core, leader, fetch)


# --- the voters -----------------------------------------------------------------------------------


def is_alone(core: Core) -> bool:
    """Whether the leader is the only voter: it cannot lose its majority (KAFKA-16144)."""
    return core.voters.is_only(core.local) and core.is_voter


def send_begin_epoch(core: Core, leader: Leader) -> None:
    """Tell the voters that do not fetch who leads (KIP-853 "Leader election")."""
    period = core.config.begin_quorum_epoch_period_ms
    leader.begin_at_ms = core.now_ms + period
    waiting = {
        entry.replica_id
        for entry in core.inflight.values()
        if isinstance(entry.request, BeginQuorumEpochRequest)
    }
    for voter in core.voters:
        if voter.id == core.local.id or voter.id in waiting or not voter.endpoints:
            continue
        progress = progress_of(leader, voter)
        if progress is not None and core.now_ms - progress.last_fetch_ms < period:
            continue
        request = BeginQuorumEpochRequest(
            core.config.cluster_id, leader.epoch, core.local, core.config.endpoints, voter.key
        )
        core.send(core.config.peer_endpoint(voter.endpoints), request, voter.id)


def step_down_for(core: Core, replica_id: int | None, known: CurrentLeader, origin: Origin) -> None:
    """A replica in a higher epoch cannot follow this leader, and its votes are ignored: step down
    once, so that an election in a later epoch brings it back.

    The period limits what a replica can do that comes with higher epochs again and again.
    """
    is_voter = replica_id is not None and core.voters.get(replica_id) is not None
    periods = 1 if is_voter else OBSERVER_PERIODS
    again_ms = core.stepped_down_ms + periods * core.config.step_down_period_ms
    if known.epoch <= core.epoch or core.now_ms < again_ms:
        return
    if core.maybe_adopt(known.epoch, known.id, known.endpoints, replica_id, origin):
        core.stepped_down_ms = core.now_ms
        role = core.role
        if isinstance(role, Unattached) and core.is_voter and core.may_elect:
            # Nobody else has a reason to stand. What the voters have parked tells them the epoch.
            wait_ms = core.random.randint(1, max(1, core.config.lost_connection_wait_max_ms))
            role.election_deadline_ms = min(role.election_deadline_ms, core.now_ms + wait_ms)
            core.due(role.election_deadline_ms)


def resign(core: Core, reason: str, *, first: ReplicaKey | None = None) -> None:
    """Stop leading; ask the voters to elect, the most caught-up first (or `first` before all)."""
    leader = core.role_as(Leader)
    others = [voter for voter in core.voters if voter.id != core.local.id]
    others.sort(key=lambda voter: -acknowledged(core, leader, voter))
    preferred = [voter.key for voter in others]
    if first is not None and first in preferred:
        preferred.remove(first)
        preferred.insert(0, first)
    # An only voter waits as well, or a reason to resign that stays would spin through the epochs.
    deadline = max(core.election_deadline(), core.now_ms + core.config.election_timeout_ms)
    resigned = Resigned(leader.epoch, deadline, tuple(preferred))
    resigned.unacknowledged = {voter.id: core.now_ms for voter in others}
    core.become(resigned, reason)
