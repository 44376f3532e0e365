"""What a leader does: replicate, commit, keep its majority, describe the quorum, resign.

Fetch at the leader (KIP-595, KIP-853 "Fetch"; the numbers are the order of the checks):
1. The cluster must match and the request make sense.
2. The epoch must be this leader's: below is FENCED_LEADER_EPOCH, above UNKNOWN_LEADER_EPOCH; for
   the latter the leader steps down now and then (`replication.step_down_for`).
3. A position that is not in this log is answered with the divergence, one before its start with a
   snapshot.
4. Else the position acknowledges everything before it, for this (id, directory id) and no other.
5. Records, a newer high watermark or a new read round are answered at once; else the request is
   parked.
"""

from __future__ import annotations

from quorate.common.error_codes import ErrorCode
from quorate.raft import membership, processes, reads, replication
from quorate.raft.batches import ControlRecord, KRaftVersion, LeaderChange, VotersRecord
from quorate.raft.core import NOT_LOOKED_FOR, Core
from quorate.raft.epochs import Origin
from quorate.raft.logstate import VALID, BehindSnapshot, Diverging
from quorate.raft.messages import (
    CurrentLeader,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    ReplicaStatus,
)
from quorate.raft.outputs import LeadershipAcquired
from quorate.raft.roles import Ballot, Candidate, Leader, ParkedFetch, ReplicaProgress
from quorate.raft.types import Voter

# --- beginning and end ----------------------------------------------------------------------------


def become_leader(core: Core, ballot: Ballot) -> None:
    """Lead the candidate's epoch: write LeaderChange (and the bootstrap's records), tell the
    voters.
    """
    core.role_as(Candidate)
    start = core.log.end_offset
    deadline_ms = core.now_ms + core.config.check_quorum_timeout_ms
    leader = Leader(core.epoch, start, deadline_ms, since_ms=core.now_ms)
    core.become(leader, "elected by a majority")
    core.finish_transfer(core.local.id)
    # Version 0 at every kraft.version: Kafka 4.3 reads this record as version 0 whatever it says of
    # itself, and fails on the KIP's version 1.
    records: list[ControlRecord] = [
        LeaderChange(
            core.local.id,
            tuple(voter.key for voter in ballot.voters),
            ballot.granting(),
        )
    ]
    if core.history.kraft_version >= 1 and core.history.voters_offset < 0:
        # The voter set of the bootstrap checkpoint is not replicated until a first leader writes it
        # to the log.
        records += [KRaftVersion(core.history.kraft_version), VotersRecord(core.voters)]
    core.emit(LeadershipAcquired(core.epoch, start))
    core.append_control(tuple(records))
    replication.send_begin_epoch(core, leader)
    membership.leader_updates_itself(core, leader)
    settle(core)


def settle(core: Core) -> None:
    """What an acknowledgement, an append or a durable offset sets in motion, until nothing moves.

    A commit may finish a change of the voters, a finished change may let the next one append, an
    append may commit at once in a quorum of one; at the end those who wait are answered.
    """
    leader = core.role
    if not isinstance(leader, Leader):
        return
    if leader.changes or leader.transfer is not None:
        core.due_ms = NOT_LOOKED_FOR
    while core.role is leader:
        moved = core.high_watermark < core.log.end_offset and replication.commit(core, leader)
        if not (leader.changes and membership.advance(core)) and not moved:
            break
    if core.role is leader and not core.is_voter and membership.is_removed(core, leader):
        replication.resign(core, "this leader is not one of the committed voters")
    if core.role is leader:
        if leader.reads:
            reads.advance(core, leader)
        replication.answer_parked(core)
        if leader.transfer is not None:
            reads.advance_transfer(core, leader)


# --- fetch ----------------------------------------------------------------------------------------


def handle_fetch(core: Core, request_id: int, request: FetchRequest) -> None:
    """Answer or park a Fetch (see the module's steps)."""
    error = _check_fetch(core, request)
    if error is not None:
        if error is ErrorCode.UNKNOWN_LEADER_EPOCH and isinstance(core.role, Leader):
            known = CurrentLeader(request.epoch)
            replication.step_down_for(core, request.replica.id, known, Origin.MESSAGE)
        core.respond(request_id, FetchResponse(error, core.current_leader))
        return
    leader = core.role
    assert isinstance(leader, Leader)
    progress = replication.note_fetch(core, leader, request.replica, request)
    if request.incarnation != progress.incarnation or len(progress.processes) > 1:
        processes.note_process(core, leader, progress, request)
    lost = None
    if request.offset < progress.promised:
        lost = processes.promise(core, progress, request)
    position = core.log.validate(request.offset, request.last_epoch)
    if position is not VALID:
        _note_alive(core, progress)
        diverging = position.end if isinstance(position, Diverging) else None
        snapshot = position.snapshot if isinstance(position, BehindSnapshot) else None
        response = FetchResponse(
            ErrorCode.NONE,
            core.current_leader,
            core.high_watermark,
            core.log.start.offset,
            diverging,
            snapshot,
            read_round=leader.read_round,
            acknowledged=lost,
        )
        core.respond(request_id, response)
        settle(core)
        return
    _acknowledge(core, leader, progress, request)
    if core.role is not leader:
        # The acknowledgement committed the leader's own removal, or a transfer: it resigned.
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        core.respond(request_id, FetchResponse(error, core.current_leader))
        return
    if lost is not None:
        # It is below the log's end, so it is answered at once.
        max_bytes = min(request.max_bytes, core.config.fetch_bytes_max)
        replication.answer_fetch(
            core, leader, request_id, request.offset, max_bytes, acknowledged=lost
        )
        return
    _answer_or_park(core, leader, progress, request_id, request)


def _check_fetch(core: Core, request: FetchRequest) -> ErrorCode | None:
    if request.cluster_id != core.config.cluster_id:
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    sound = (
        0 <= request.last_epoch <= request.epoch
        and request.offset >= 0
        and request.max_wait_ms >= 0
        and request.replica.id >= 0
    )
    if not sound:
        return ErrorCode.INVALID_REQUEST
    return replication.check_leader(core, request.epoch)


def _acknowledge(
    core: Core, leader: Leader, progress: ReplicaProgress, request: FetchRequest
) -> None:
    """Everything before the fetch offset is durable at that replica."""
    offset, end_offset = request.offset, core.log.end_offset
    if offset >= end_offset:
        progress.last_caught_up_ms = core.now_ms
    elif 0 <= progress.leader_end_at_last_fetch <= offset:
        # It holds all that the leader had when it asked last: as far as can be under constant load.
        progress.last_caught_up_ms = max(progress.last_caught_up_ms, progress.last_fetch_ms)
    progress.leader_end_at_last_fetch = end_offset
    progress.last_fetch_ms = core.now_ms
    progress.end_offset = offset
    if offset > progress.reached:  # noqa: PLR1730 - once a Fetch: a call costs more
        progress.reached = offset
    if offset > core.high_watermark or leader.reads or leader.changes or leader.transfer:
        settle(core)  # else nobody waits for this replica to have come that far


def _note_alive(core: Core, progress: ReplicaProgress) -> None:
    """Note a request that acknowledges nothing: how much of the log the replica has is unknown."""
    progress.last_fetch_ms = core.now_ms
    progress.leader_end_at_last_fetch = -1


def _answer_or_park(
    core: Core, leader: Leader, progress: ReplicaProgress, request_id: int, request: FetchRequest
) -> None:
    config, now = core.config, core.now_ms
    max_bytes, wait_ms = request.max_bytes, request.max_wait_ms
    if max_bytes > config.fetch_bytes_max:  # noqa: PLR1730 - once a message: a call costs more
        max_bytes = config.fetch_bytes_max
    if request.offset < core.log.end_offset:
        replication.answer_fetch(core, leader, request_id, request.offset, max_bytes)
        return
    if wait_ms > config.fetch_timeout_ms:  # noqa: PLR1730 - once a message: a call costs more
        wait_ms = config.fetch_timeout_ms
    deadline = replication.fetch_deadline(core, request.high_watermark, now + wait_ms)
    is_awaited = request.read_round < leader.read_round and (leader.reads or leader.transfer)
    has_news = deadline <= now or is_awaited
    if has_news or len(leader.parked) >= config.parked_fetches_max:
        replication.answer_fetch(core, leader, request_id, request.offset, max_bytes)
        return
    older = leader.parked.pop(progress.parked_id, None)
    if older is not None:
        replication.answer_waiting(core, leader, older)
    progress.parked_id = request_id
    leader.parked[request_id] = ParkedFetch(
        request_id, request.replica, request.offset, request.high_watermark, max_bytes, deadline
    )
    if deadline < core.due_ms:  # noqa: PLR1730 - once a message: a call costs more
        core.due_ms = deadline


# --- snapshots ------------------------------------------------------------------------------------


def handle_fetch_snapshot(core: Core, request_id: int, request: FetchSnapshotRequest) -> None:
    """Check a FetchSnapshot (KIP-630); the bytes, and errors about them, come from the owner of the
    files.
    """
    error: ErrorCode | None
    if request.cluster_id != core.config.cluster_id:
        error = ErrorCode.INCONSISTENT_CLUSTER_ID
    elif request.position < 0 or request.max_bytes <= 0:
        error = ErrorCode.INVALID_REQUEST
    else:
        error = replication.check_leader(core, request.epoch)
        if error is None and request.snapshot.offset <= 0:
            error = ErrorCode.SNAPSHOT_NOT_FOUND  # a bootstrap checkpoint is never replicated
    if error is not None:
        core.respond(request_id, FetchSnapshotResponse(error, core.current_leader))
        return
    leader = core.role_as(Leader)
    progress = replication.note_fetch(core, leader, request.replica, request)
    _note_alive(core, progress)
    core.respond(
        request_id,
        FetchSnapshotResponse(
            ErrorCode.NONE,
            core.current_leader,
            request.snapshot,
            position=request.position,
            max_bytes=min(request.max_bytes, core.config.fetch_bytes_max),
        ),
    )


# --- describe -------------------------------------------------------------------------------------


def handle_describe(core: Core, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """The leader's view of the quorum; another replica answers what it knows itself, with an error
    that says so.
    """
    if request.cluster_id and request.cluster_id != core.config.cluster_id:
        return DescribeQuorumResponse(ErrorCode.INCONSISTENT_CLUSTER_ID, core.current_leader)
    committed = core.history.voters_at(core.high_watermark)
    leader = core.role
    if not isinstance(leader, Leader):
        return DescribeQuorumResponse(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            core.current_leader,
            core.high_watermark,
            core.history.kraft_version,
            voters=tuple(ReplicaStatus(v.key, -1, -1, -1, v.endpoints) for v in core.voters),
            voter_set=core.voters,
            committed_voters=committed,
            message=core.why_no_leader(),
        )
    voters = tuple(_voter_status(core, leader, voter) for voter in core.voters)
    voter_keys = {status.replica for status in voters}
    observers = tuple(
        ReplicaStatus(p.key, p.end_offset, p.last_fetch_ms, p.last_caught_up_ms, p.endpoints)
        for p in sorted(leader.replicas.values(), key=lambda progress: progress.key.id)
        if p.key not in voter_keys and p.key not in core.voters
    )
    if not core.is_voter:
        observers = (_own_status(core), *observers)
    return DescribeQuorumResponse(
        ErrorCode.NONE,
        core.current_leader,
        core.high_watermark,
        core.history.kraft_version,
        voters,
        observers,
        core.voters,
        committed,
        "; ".join(processes.reported(leader)),
    )


def _own_status(core: Core) -> ReplicaStatus:
    now = core.now_ms
    return ReplicaStatus(core.local, core.log.end_offset, now, now, core.config.endpoints)


def _voter_status(core: Core, leader: Leader, voter: Voter) -> ReplicaStatus:
    if voter.id == core.local.id and core.is_voter:
        own = _own_status(core)
        key = voter.key if voter.key.directory_id is not None else core.local
        return ReplicaStatus(
            key, own.log_end_offset, own.last_fetch_ms, own.last_caught_up_ms, voter.endpoints
        )
    progress = replication.progress_of(leader, voter)
    if progress is None:
        return ReplicaStatus(voter.key, -1, -1, -1, voter.endpoints)
    return ReplicaStatus(
        progress.key,
        progress.end_offset,
        progress.last_fetch_ms,
        progress.last_caught_up_ms,
        voter.endpoints,
    )


# --- time -----------------------------------------------------------------------------------------


def tick(core: Core) -> None:
    leader = core.role_as(Leader)
    now = core.now_ms
    if not replication.is_alone(core) and now >= leader.check_quorum_deadline_ms:
        replication.resign(core, "no majority of the voters fetched in time")
        return
    for fetch in list(leader.parked.values()):
        if fetch.deadline_ms <= now:
            del leader.parked[fetch.request_id]
            replication.answer_waiting(core, leader, fetch)
    if now >= leader.begin_at_ms:
        replication.send_begin_epoch(core, leader)
        _forget_silent_observers(core, leader)
        membership.leader_updates_itself(core, leader)
    membership.tick(core)
    reads.tick(core, leader)
    settle(core)


def next_deadline_ms(core: Core, leader: Leader) -> int:
    earliest = leader.begin_at_ms
    if leader.check_quorum_deadline_ms < earliest and not replication.is_alone(core):
        earliest = leader.check_quorum_deadline_ms
    for fetch in leader.parked.values():
        if fetch.deadline_ms < earliest:  # noqa: PLR1730 - once a message: a call costs more
            earliest = fetch.deadline_ms
    for read in leader.reads:
        if read.deadline_ms < earliest:  # noqa: PLR1730 - as above
            earliest = read.deadline_ms
    if leader.changes:
        attempts = [membership.next_attempt_ms(core, change) for change in leader.changes]
        earliest = min(earliest, *attempts)
    if leader.transfer is not None:
        earliest = min(earliest, leader.transfer.resume_ms)
    return earliest


def _forget_silent_observers(core: Core, leader: Leader) -> None:
    oldest = core.now_ms - core.config.observer_expiry_ms
    for key, progress in list(leader.replicas.items()):
        if key not in core.voters and progress.last_fetch_ms < oldest:
            del leader.replicas[key]
