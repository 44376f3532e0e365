"""Linearizable reads and leadership transfer: both wait for the voters' next Fetch.

ReadIndex (Ongaro's dissertation, section 6.4), steps at the leader:
1. Wait until a record of this epoch is committed: before that the high watermark may be older than
   what is committed.
2. The high watermark of the moment of the request is the read's offset.
3. Begin a new round; every Fetch answer carries the round, every Fetch the last round its sender
   saw. What is parked is answered now: a parked Fetch proves nothing about now.
4. When a majority of the voters (the leader among them if it is one) has echoed the round, nobody
   else can have led at the moment of the request: answer.

Leadership transfer (section 3.10), steps at the leader:
1. Refuse it unless the target has caught up within the fetch timeout. A voter that has not fetched
   yet from a leader elected within that time may do so in step 2.
2. Begin a read round, and wait until the target's Fetch echoes it: it is there now. Appends are
   accepted meanwhile.
3. Refuse appends, wait until the target holds everything, resign in its favour.
4. If steps 2 and 3 take longer than an election timeout, or than the request's own, the transfer
   ends: appends are accepted again, and the answer is REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from collections import deque

from quorate.common.error_codes import ErrorCode
from quorate.raft import preconditions, processes, replication
from quorate.raft.core import Core
from quorate.raft.messages import (
    AdminResponse,
    ReadIndexRequest,
    ReadIndexResponse,
    TransferLeadershipRequest,
)
from quorate.raft.roles import STILL_LEADS, Leader, PendingRead, Transfer
from quorate.raft.types import ReplicaKey, Voter


def handle_read_index(core: Core, request_id: int, request: ReadIndexRequest) -> None:
    leader = core.role
    error = None
    if request.cluster_id and request.cluster_id != core.config.cluster_id:
        error = ErrorCode.INCONSISTENT_CLUSTER_ID
    elif not isinstance(leader, Leader):
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    elif len(leader.reads) >= core.config.pending_reads_max:
        error = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    if error is not None or not isinstance(leader, Leader):
        code = error or ErrorCode.NOT_LEADER_OR_FOLLOWER
        text = core.why_no_leader()
        core.respond(request_id, ReadIndexResponse(code, core.current_leader, message=text))
        return
    deadline = core.now_ms + request.timeout_ms
    core.due(deadline)
    if core.high_watermark <= leader.epoch_start_offset:
        leader.reads.append(PendingRead(request_id, deadline, -1, -1))
        return
    _begin_round(core, leader, [(request_id, deadline)])


def _begin_round(core: Core, leader: Leader, requests: list[tuple[int, int]]) -> None:
    leader.read_round += 1
    for request_id, deadline in requests:
        leader.reads.append(
            PendingRead(request_id, deadline, core.high_watermark, leader.read_round)
        )
    replication.answer_parked_voters(core, leader)
    advance(core, leader)


def advance(core: Core, leader: Leader) -> None:
    """Answer the reads whose round is confirmed; begin the round of those that waited for the epoch
    to commit.
    """
    if not leader.reads:
        return
    if core.high_watermark > leader.epoch_start_offset and leader.reads[0].offset < 0:
        early = [(r.request_id, r.deadline_ms) for r in leader.reads if r.offset < 0]
        leader.reads.clear()
        _begin_round(core, leader, early)
        return
    confirmed = _confirmed_round(core, leader)
    while leader.reads and 0 <= leader.reads[0].round <= confirmed:
        read = leader.reads.popleft()
        core.respond(
            read.request_id, ReadIndexResponse(ErrorCode.NONE, core.current_leader, read.offset)
        )


def _confirmed_round(core: Core, leader: Leader) -> int:
    rounds = [progress.read_round for progress in replication.tracked(core, leader)]
    if core.is_voter:
        rounds.append(leader.read_round)
    return replication.reached_by_majority(core, rounds)


def handle_transfer(core: Core, request_id: int, request: TransferLeadershipRequest) -> None:
    leader = core.role
    target = _named_voter(core, request.target)
    code, text = ErrorCode.NONE, ""
    if request.cluster_id and request.cluster_id != core.config.cluster_id:
        code = ErrorCode.INCONSISTENT_CLUSTER_ID
    elif not isinstance(leader, Leader):
        code, text = ErrorCode.NOT_LEADER_OR_FOLLOWER, core.why_no_leader()
    elif target is None:
        code, text = ErrorCode.VOTER_NOT_FOUND, f"{request.target} is not in {core.voters}"
    elif leader.transfer is not None:
        code = ErrorCode.REQUEST_TIMED_OUT
        text = f"leadership is being transferred to {leader.transfer.target} already"
    elif target.id != core.local.id:
        code, text = _not_ready(core, leader, target)
        if code is ErrorCode.NONE:
            _begin_transfer(
                core,
                leader,
                Transfer(
                    request_id,
                    target.key,
                    deadline_ms=core.now_ms + request.timeout_ms,
                    resume_ms=core.now_ms
                    + min(request.timeout_ms, core.config.election_timeout_ms),
                    round=leader.read_round + 1,
                ),
            )
            return
    core.respond(request_id, AdminResponse(code, core.current_leader, text))


def _named_voter(core: Core, target: ReplicaKey) -> Voter | None:
    """The voter that is meant: without a directory id the voter of that id, whatever its directory.

    It is looked up once: a voter that is replaced while the leader waits is not the one meant.
    """
    if target.directory_id is None:
        return core.voters.get(target.id)
    return core.voters.find(target)


def _not_ready(core: Core, leader: Leader, target: Voter) -> tuple[ErrorCode, str]:
    """Why leadership cannot be transferred to this voter now; NONE if it can."""
    code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    progress = replication.progress_of(leader, target)
    limit_ms = core.config.fetch_timeout_ms
    if progress is None and core.now_ms - leader.since_ms <= limit_ms:
        return ErrorCode.NONE, ""
    if progress is not None and progress.is_copied:
        return code, processes.two_processes(progress)
    if not preconditions.is_alive(core, leader, target):
        text = f"{target.key} did not fetch within {limit_ms} ms: start it or name another voter"
        return code, text
    if not preconditions.is_caught_up(core, progress):
        text = f"{target.key} was not caught up within {limit_ms} ms: wait or name another voter"
        return code, text
    return ErrorCode.NONE, ""


def _begin_transfer(core: Core, leader: Leader, transfer: Transfer) -> None:
    leader.transfer = transfer
    leader.read_round = transfer.round
    replication.answer_parked_voters(core, leader)


def advance_transfer(core: Core, leader: Leader) -> None:
    """Resign in favour of the target once it has fetched again and holds the whole log; the request
    is answered when someone leads.
    """
    transfer = leader.transfer
    if transfer is None:
        return
    voter = core.voters.find(transfer.target)
    if voter is None:
        leader.transfer = None
        text = f"{transfer.target} was removed from the voters"
        response = AdminResponse(ErrorCode.VOTER_NOT_FOUND, core.current_leader, text)
        core.respond(transfer.request_id, response)
        return
    progress = replication.progress_of(leader, voter)
    if progress is None or progress.read_round < transfer.round:
        return
    transfer.is_confirmed = True
    if progress.end_offset == core.log.end_offset:
        core.transfer = transfer
        leader.transfer = None
        replication.resign(core, f"leadership is transferred to {voter.key}", first=voter.key)


def cancel(leader: Leader, request_id: int) -> None:
    """Cancel the read or the transfer of this request; it gets no response."""
    if any(read.request_id == request_id for read in leader.reads):
        leader.reads = deque(read for read in leader.reads if read.request_id != request_id)
    if leader.transfer is not None and leader.transfer.request_id == request_id:
        leader.transfer = None


def tick(core: Core, leader: Leader) -> None:
    expired = [read for read in leader.reads if read.deadline_ms <= core.now_ms]
    for read in expired:
        leader.reads.remove(read)
        text = "no majority confirmed this leader in time"
        core.respond(
            read.request_id,
            ReadIndexResponse(ErrorCode.REQUEST_TIMED_OUT, core.current_leader, message=text),
        )
    transfer = leader.transfer
    if transfer is not None and transfer.resume_ms <= core.now_ms:
        leader.transfer = None
        what = "did not catch up in time" if transfer.is_confirmed else "fetched nothing meanwhile"
        text = f"{transfer.target} {what}; {core.local.id} {STILL_LEADS}"
        response = AdminResponse(ErrorCode.REQUEST_TIMED_OUT, core.current_leader, text)
        core.respond(transfer.request_id, response)


def tick_transferred(core: Core) -> None:
    """Time out a transfer after which no leader became known."""
    transfer = core.transfer
    if transfer is not None and transfer.deadline_ms <= core.now_ms:
        core.transfer = None
        text = "the leader resigned, but no new leader is known yet: describe the quorum"
        response = AdminResponse(ErrorCode.REQUEST_TIMED_OUT, core.current_leader, text)
        core.respond(transfer.request_id, response)
