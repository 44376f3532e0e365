"""Elections: pre-vote, vote, the beginning and the end of an epoch.

Vote (KIP-853 "Vote", KIP-996), the receiver's steps:
1. The cluster must match (INCONSISTENT_CLUSTER_ID) and the request make sense (INVALID_REQUEST).
2. An epoch below ours is fenced (FENCED_LEADER_EPOCH).
3. The request must be meant for this id and directory (INVALID_VOTER_KEY). If this replica knows no
   voters, the request must name the directory.
4. A higher epoch is ignored, vote and all, by a follower that hears its leader and by a leader that
   hears a majority (Ongaro's dissertation, 4.2.3): one voter must not depose a leader that works.
5. Any other higher epoch is adopted, within limits (`epochs`), from any sender: neither side checks
   membership. One that is refused gets no vote.
6. The vote is granted if the role allows it and the candidate's log is at least as long as ours; a
   granted vote (not a pre-vote) is durable before the answer leaves. A replica that may have lost
   records votes as `required_end` says.

A replica that is not a voter in its own log starts one election, after an election timeout, if a
Vote names it by its exact key, was denied only because this replica's log is newer, and it hears no
leader. The candidate's voter set contains this replica, so the candidate may be unable to win
without its vote: a leader may append AddVoter and die, and the next one may overwrite that record
and die after only this replica fetched from it. If every voter set keeps a majority, the replica
with the newest log among the voters of all sets wins by its own set, so it must be able to stand.
This is as safe as any election: Raft's proofs count the votes of the candidate's set and do not
need the candidate to be in it (Ongaro's dissertation, 4.2.2). The replica counts only the voters'
votes, and hands leadership over once its epoch is committed, like a leader that was removed.

An error in the answer, UNSUPPORTED_VERSION among them, is no vote: the voter is asked again. Only a
voter whose ApiVersions lack Vote 2 cannot answer a pre-vote, and every gRPC peer can.
"""

from __future__ import annotations

from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.raft import leader as leading
from quorate.raft import replication, required_end
from quorate.raft.core import Core
from quorate.raft.epochs import EPOCH_MAX, Origin
from quorate.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    VoteRequest,
    VoteResponse,
)
from quorate.raft.roles import (
    NEVER,
    Ballot,
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Unattached,
)
from quorate.raft.types import ReplicaKey, same_replica

ELECTION_BACKOFF_BASE_MS = 50

# --- starting an election -------------------------------------------------------------------------


def start_pre_vote(core: Core, reason: str, *, retries: int = 0, elect_now: bool = False) -> None:
    """Become prospective and ask all voters, or go straight on to candidate.

    elect_now: the leader itself asked for this election (EndQuorumEpoch), so there is no leader to
    protect.
    """
    old = core.role
    leader_id: int | None = None
    endpoints: tuple[Endpoint, ...] = ()
    voted: ReplicaKey | None = None
    answered = False
    if isinstance(old, Follower | Prospective):
        leader_id, endpoints, voted = old.leader_id, old.leader_endpoints, old.voted
        answered = old.leader_answered
    elif isinstance(old, Unattached):
        leader_id, voted = old.leader_id, old.voted
    elif isinstance(old, Candidate):
        voted = core.local
    ballot = required_end.new_ballot(core)
    role = Prospective(
        core.epoch, ballot, core.election_deadline(), leader_id, endpoints, voted, retries, answered
    )
    core.become(role, reason)
    if elect_now or ballot.is_won:
        become_candidate(core, role)
    else:
        _ask_voters(core, ballot)


def become_candidate(core: Core, prospective: Prospective) -> None:
    """Begin the next epoch, vote for oneself durably, and ask for votes."""
    if core.epoch >= EPOCH_MAX:
        core.become_unattached(core.epoch, "there is no next epoch", voted=prospective.voted)
        return
    ballot = required_end.new_ballot(core)
    deadline = core.election_deadline()
    core.become(
        Candidate(core.epoch + 1, ballot, deadline, prospective.retries), "the pre-vote was won"
    )
    if ballot.is_won:
        leading.become_leader(core, ballot)
    else:
        _ask_voters(core, ballot)


def _ask_voters(core: Core, ballot: Ballot) -> None:
    """Send a vote or pre-vote request to every voter that has not answered one and has none under
    way.
    """
    pre_vote = isinstance(core.role, Prospective)
    waiting = {
        entry.replica_id
        for entry in core.inflight.values()
        if isinstance(entry.request, VoteRequest) and entry.request.pre_vote == pre_vote
    }
    for voter in ballot.undecided():
        voter_id = voter.key.id
        ready = ballot.retry_at_ms.get(voter_id, 0) <= core.now_ms
        if voter_id == core.local.id or voter_id in waiting or not ready or not voter.endpoints:
            continue
        request = VoteRequest(
            core.config.cluster_id,
            core.epoch,
            core.local,
            voter.key,
            core.log.last_epoch,
            core.log.end_offset,
            pre_vote,
        )
        core.send(core.config.peer_endpoint(voter.endpoints), request, voter.id)


# --- answering ------------------------------------------------------------------------------------


def handle_vote(core: Core, request: VoteRequest) -> VoteResponse:
    """Answer a Vote or a pre-vote (see the module's steps)."""
    error = _check_vote(core, request)
    if error is not None:
        return VoteResponse(error, core.current_leader)
    if not _is_for_me(core, request.voter) or _may_replace_voter(core, request.voter):
        return VoteResponse(
            ErrorCode.INVALID_VOTER_KEY,
            core.current_leader,
            message=f"this replica is {core.local}, not {request.voter}",
        )
    if request.epoch > core.epoch and _has_leader(core):
        text = f"epoch {request.epoch} is ignored: the leader of epoch {core.epoch} is alive"
        return VoteResponse(ErrorCode.NONE, core.current_leader, message=text)
    core.maybe_adopt(request.epoch, None, (), request.candidate.id)
    if request.epoch > core.epoch:
        return VoteResponse(ErrorCode.NONE, core.current_leader, message=_refusal(request.epoch))
    up_to_date = (request.last_epoch, request.last_offset) >= (
        core.log.last_epoch,
        core.log.end_offset,
    )
    granted = core.config.can_vote and _can_grant(core, request, up_to_date)
    # A Vote that arrives late is granted again, though the log has grown since.
    if not (up_to_date or granted):
        _note_asked(core, request)
    only_if_all = required_end.restricts_vote(core, request)
    if only_if_all and core.required_end is not None:
        granted = granted and core.required_end.may_stand
    if granted and not request.pre_vote:
        _record_vote(core, request.candidate)
    return VoteResponse(
        ErrorCode.NONE,
        core.current_leader,
        granted and not only_if_all,
        granted_if_all=granted and only_if_all,
    )


def _check_vote(core: Core, request: VoteRequest) -> ErrorCode | None:
    if request.cluster_id != core.config.cluster_id:
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    # A candidate bumped its epoch, so its log ends in an earlier one; a pre-voter has not.
    last_epoch_max = request.epoch if request.pre_vote else request.epoch - 1
    sound = 0 <= request.last_epoch <= last_epoch_max and request.last_offset >= 0
    if request.epoch < core.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if not sound or request.candidate.id < 0:
        return ErrorCode.INVALID_REQUEST
    return None


def _is_for_me(core: Core, addressed: ReplicaKey) -> bool:
    """A request without a directory id comes from kraft.version 0, where ids alone name voters."""
    if addressed.id != core.local.id:
        return False
    return addressed.directory_id is None or addressed.directory_id == core.local.directory_id


def _may_replace_voter(core: Core, addressed: ReplicaKey) -> bool:
    """Whether this replica's disk may have replaced that of the voter the candidate addresses.

    Without a directory id, as at kraft.version 0, a candidate cannot tell a new disk from one that
    acknowledged records. A replica that knows no voters may have a new disk: at kraft.version 0 the
    voters are configured, so a voter knows them even if its log is empty.
    """
    return addressed.directory_id is None and not len(core.voters)


def _has_leader(core: Core) -> bool:
    """Whether this replica hears its leader, or is a leader that hears a majority of the voters.

    A broken connection, a refused Fetch and EndQuorumEpoch end it for a follower at once. A new
    leader has just heard the majority that elected it.
    """
    role = core.role
    if isinstance(role, Leader):
        # The timer of check quorum is reset whenever a majority has fetched.
        heard_ms = role.check_quorum_deadline_ms - core.config.check_quorum_timeout_ms
        in_time = core.now_ms < heard_ms + core.config.fetch_timeout_ms
        return in_time or replication.is_alone(core)
    return isinstance(role, Follower) and _hears_leader(core, role)


def _hears_leader(core: Core, role: Follower) -> bool:
    """A leader that has been silent for the fetch timeout is not protected any more. A voter would
    elect by itself then; an observer may be a voter that does not know it yet.
    """
    return role.has_fetched and core.now_ms < role.fetch_deadline_ms


def _refusal(epoch: int) -> str:
    return f"epoch {epoch} is refused: it is too far above this replica's"


def _can_grant(core: Core, request: VoteRequest, up_to_date: bool) -> bool:
    role = core.role
    if isinstance(role, Leader):
        return False
    if request.pre_vote:
        if isinstance(role, Follower):
            return up_to_date and not _hears_leader(core, role)
        return up_to_date
    if isinstance(role, Candidate | Resigned):
        return False
    if role.voted is not None:
        return same_replica(role.voted, request.candidate)
    if role.leader_id is not None:
        return False
    return up_to_date


def _note_asked(core: Core, request: VoteRequest) -> None:
    """Plan an election: this replica's log is newer than the candidate's (see the module).

    The election timeout lets the voters elect a leader first, and this replica find it.
    """
    if core.is_electable or not core.config.can_vote or request.voter != core.local:
        return
    if not isinstance(core.role, Unattached | Follower) or core.stand_at_ms != NEVER:
        return
    if _can_grant(core, request, up_to_date=True):
        core.stand_at_ms = core.election_deadline()
        core.due(core.stand_at_ms)


def _stand_if_asked(core: Core) -> None:
    if core.now_ms < core.stand_at_ms:
        return
    core.stand_at_ms = NEVER
    if core.may_stand and not _has_leader(core):
        start_pre_vote(core, "asked for its vote by a candidate with an older log")


def _record_vote(core: Core, candidate: ReplicaKey) -> None:
    role = core.role
    if isinstance(role, Unattached | Prospective) and role.voted is None:
        core.become_unattached(core.epoch, f"voted for {candidate}", voted=candidate)


def _check_leader(
    core: Core, request: BeginQuorumEpochRequest | EndQuorumEpochRequest
) -> tuple[ErrorCode, str]:
    """NONE, or the error of a message whose sender cannot lead its epoch, and the text."""
    if request.cluster_id != core.config.cluster_id:
        return ErrorCode.INCONSISTENT_CLUSTER_ID, ""
    if request.epoch < core.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH, ""
    known = core.leader_id if request.epoch == core.epoch else None
    if request.leader.id < 0 or (known is not None and known != request.leader.id):
        text = f"epoch {request.epoch} is led by {known}, not by {request.leader}"
        return ErrorCode.INVALID_REQUEST, text
    return ErrorCode.NONE, ""


def handle_begin(core: Core, request: BeginQuorumEpochRequest) -> BeginQuorumEpochResponse:
    """A leader says that it leads `epoch`. Membership is not checked: this replica's log may be
    behind.
    """
    error, text = _check_leader(core, request)
    if error is not ErrorCode.NONE:
        return BeginQuorumEpochResponse(error, core.current_leader, text)
    if not _is_for_me(core, request.voter):
        return BeginQuorumEpochResponse(
            ErrorCode.INVALID_VOTER_KEY,
            core.current_leader,
            f"this replica is {core.local}, not {request.voter}",
        )
    core.maybe_adopt(request.epoch, request.leader.id, request.leader_endpoints, request.leader.id)
    if request.epoch > core.epoch:
        text = _refusal(request.epoch)
        return BeginQuorumEpochResponse(ErrorCode.INVALID_REQUEST, core.current_leader, text)
    role = core.role
    if isinstance(role, Prospective) and role.leader_id == request.leader.id:
        role.leader_answered = True
        _give_up_pre_vote(core, role, "the leader is alive")
    return BeginQuorumEpochResponse(ErrorCode.NONE, core.current_leader)


def handle_end(core: Core, request: EndQuorumEpochRequest) -> EndQuorumEpochResponse:
    """The leader of this epoch resigned: the first preferred candidate elects at once, the others
    later in order.
    """
    error, text = _check_leader(core, request)
    if error is not ErrorCode.NONE:
        return EndQuorumEpochResponse(error, core.current_leader, text)
    core.maybe_adopt(request.epoch, request.leader.id, request.leader_endpoints, request.leader.id)
    if request.epoch > core.epoch:
        text = _refusal(request.epoch)
        return EndQuorumEpochResponse(ErrorCode.INVALID_REQUEST, core.current_leader, text)
    role = core.role
    if isinstance(role, Follower) and role.leader_id == request.leader.id:
        role.has_fetched = False
        position = _position(core.local, request.preferred_candidates)
        if position == 0 and core.may_elect:
            start_pre_vote(core, "preferred successor of the leader that resigned", elect_now=True)
        elif core.is_electable:
            role.fetch_deadline_ms = core.now_ms + _end_epoch_backoff_ms(core, position)
            core.due(role.fetch_deadline_ms)
    return EndQuorumEpochResponse(ErrorCode.NONE, core.current_leader)


def _position(local: ReplicaKey, preferred: tuple[ReplicaKey, ...]) -> int:
    for index, key in enumerate(preferred):
        if key.id == local.id and key.directory_id in (None, local.directory_id):
            return index
    return max(1, len(preferred))  # whom no list names never elects at once


def _end_epoch_backoff_ms(core: Core, position: int) -> int:
    """Later candidates wait longer, so that an earlier one has time to win."""
    base = ELECTION_BACKOFF_BASE_MS * (1 << min(position, 10))
    return min(base + core.random.randint(0, base), core.config.election_backoff_max_ms)


# --- counting -------------------------------------------------------------------------------------


def handle_vote_response(core: Core, request: VoteRequest, response: VoteResponse) -> None:
    leader = response.leader
    if core.maybe_adopt(leader.epoch, leader.id, leader.endpoints, request.voter.id):
        return
    role = core.role
    pre_vote_now = isinstance(role, Prospective)
    if not isinstance(role, Prospective | Candidate) or request.epoch != role.epoch:
        return
    if request.pre_vote != pre_vote_now:
        return
    if response.error not in (ErrorCode.NONE, ErrorCode.INVALID_VOTER_KEY):
        role.ballot.retry_at_ms[request.voter.id] = core.now_ms + core.config.retry_backoff_ms
        core.notice(f"vote request to {request.voter} failed: {response.error.name}", warning=True)
        return
    _note_replaced(core, request.voter, response)
    if response.granted:
        role.ballot.grant(request.voter.id)
    elif response.granted_if_all:
        role.ballot.grant_if_all(request.voter.id)
    else:
        role.ballot.reject(request.voter.id)
    _count(core)
    granted = response.granted or response.granted_if_all
    ignored = not granted and leader.epoch < request.epoch
    if ignored and isinstance(role, Candidate) and core.role is role:
        _ask_ignoring_voter_again(core, role, request.voter.id)


def _ask_ignoring_voter_again(core: Core, role: Candidate, voter_id: int) -> None:
    """A voter still takes the old leader for alive: it may notice soon that it resigned or died."""
    if role.backoff_deadline_ms == NEVER:
        role.ballot.rejected.discard(voter_id)
        role.ballot.retry_at_ms[voter_id] = core.now_ms + core.config.retry_backoff_ms


def handle_begin_response(
    core: Core, voter_id: int | None, response: BeginQuorumEpochResponse
) -> None:
    """A voter that answers from a higher epoch has not followed."""
    leader = response.leader
    if isinstance(core.role, Leader):
        replication.step_down_for(core, voter_id, leader, Origin.BEGIN_ANSWER)
    else:
        core.maybe_adopt(leader.epoch, leader.id, leader.endpoints, voter_id, Origin.BEGIN_ANSWER)


def _note_replaced(core: Core, voter: ReplicaKey, response: VoteResponse) -> None:
    """Remember the replica that answered at a voter's address: the voter may have lost its disk."""
    if response.error is not ErrorCode.INVALID_VOTER_KEY:
        core.replaced.pop(voter.id, None)
    elif voter.id not in core.replaced:
        why = response.message or response.error.name
        core.replaced[voter.id] = f"the vote of {voter} cannot be had: {why}"
        core.notice(core.replaced[voter.id], warning=True)


def _count(core: Core) -> None:
    role = core.role
    if isinstance(role, Prospective):
        if role.ballot.is_won:
            become_candidate(core, role)
        elif role.ballot.is_lost:
            _give_up_pre_vote(core, role, "the pre-vote was lost")
        elif role.ballot.is_hopeless:
            _ask_again(core, role)
    elif isinstance(role, Candidate):
        if role.ballot.is_won:
            leading.become_leader(core, role.ballot)
        elif role.ballot.is_hopeless and role.backoff_deadline_ms == NEVER:
            role.backoff_deadline_ms = core.now_ms + _lost_election_backoff_ms(core, role.retries)


def _ask_again(core: Core, role: Prospective) -> None:
    """Ask those that rejected once more, a little later.

    When a leader dies, its followers notice one after the other. A voter that rejected may not have
    noticed yet, and waiting for the dead voter would take the whole election timeout.
    """
    if not role.ballot.rejected:
        return
    role.retries += 1
    at_ms = core.now_ms + _lost_election_backoff_ms(core, role.retries)
    for voter in role.ballot.voters:
        if voter.id in role.ballot.rejected:
            role.ballot.retry_at_ms[voter.id] = at_ms
    role.ballot.rejected.clear()


def _lost_election_backoff_ms(core: Core, retries: int) -> int:
    """Binary exponential backoff, so that rivals do not meet again and again (KIP-595)."""
    ceiling = min(core.config.election_backoff_max_ms, ELECTION_BACKOFF_BASE_MS << min(retries, 10))
    return core.random.randint(min(ELECTION_BACKOFF_BASE_MS // 2, ceiling), ceiling)


def _give_up_pre_vote(core: Core, role: Prospective, reason: str) -> None:
    """Follow the leader again if it answered before. Otherwise there may be no such leader in this
    epoch, and an unattached replica asks all others who leads.
    """
    if role.leader_id is not None and role.leader_endpoints and role.leader_answered:
        core.become_follower(role.epoch, role.leader_id, role.leader_endpoints, reason)
    else:
        core.become_unattached(role.epoch, reason, leader_id=role.leader_id, voted=role.voted)


def handle_vote_failure(core: Core, request: VoteRequest, *, refused: bool) -> None:
    """The voter did not answer: ask again a little later, as long as the election lasts."""
    role = core.role
    if isinstance(role, Prospective | Candidate) and request.epoch == role.epoch:
        role.ballot.retry_at_ms[request.voter.id] = core.now_ms + core.config.retry_backoff_ms
        if refused:
            role.ballot.refused.add(request.voter.id)
            _count(core)


# --- time -----------------------------------------------------------------------------------------


def tick(core: Core) -> None:
    _stand_if_asked(core)
    role = core.role
    if isinstance(role, Unattached):
        if core.may_elect and core.now_ms >= role.election_deadline_ms:
            start_pre_vote(core, "the election timeout passed")
    elif isinstance(role, Prospective):
        if core.log_is_stalled:
            _give_up_pre_vote(core, role, "the disk syncs nothing")
        elif core.now_ms >= role.election_deadline_ms:
            _give_up_pre_vote(core, role, "the pre-vote timed out")
        else:
            _ask_voters(core, role.ballot)
    elif isinstance(role, Candidate):
        if core.now_ms >= min(role.election_deadline_ms, role.backoff_deadline_ms):
            start_pre_vote(core, "the election was not won", retries=role.retries + 1)
        elif role.backoff_deadline_ms == NEVER:
            _ask_voters(core, role.ballot)
    elif isinstance(role, Resigned):
        _tick_resigned(core, role)


def next_deadline_ms(core: Core, role: Prospective | Candidate | Resigned) -> int:
    """The next moment that the clock alone brings."""
    earliest = role.election_deadline_ms
    if isinstance(role, Candidate):
        earliest = min(earliest, role.backoff_deadline_ms)
    again = role.unacknowledged if isinstance(role, Resigned) else role.ballot.retry_at_ms
    for at_ms in again.values():
        if core.now_ms < at_ms < earliest:
            earliest = at_ms
    return earliest


def _tick_resigned(core: Core, role: Resigned) -> None:
    if core.now_ms < role.election_deadline_ms:
        send_end_epoch(core, role)
    elif core.shutting_down:
        role.election_deadline_ms = NEVER
    elif core.epoch >= EPOCH_MAX:
        role.election_deadline_ms = NEVER  # there is no epoch to leave for
    elif core.is_electable:
        core.become_unattached(role.epoch + 1, "resigned and the election timeout passed")
    else:
        core.become_unattached(
            role.epoch, "resigned as a leader that was removed", voted=core.local
        )


def send_end_epoch(core: Core, role: Resigned) -> None:
    """Tell every voter that has not acknowledged it yet."""
    for voter in core.voters:
        due_ms = role.unacknowledged.get(voter.id)
        if due_ms is None or due_ms > core.now_ms or not voter.endpoints:
            continue
        role.unacknowledged[voter.id] = NEVER
        request = EndQuorumEpochRequest(
            core.config.cluster_id, role.epoch, core.local, role.preferred, core.config.endpoints
        )
        core.send(core.config.peer_endpoint(voter.endpoints), request, voter.id)


def handle_end_response(core: Core, voter_id: int, response: EndQuorumEpochResponse) -> None:
    if isinstance(core.role, Resigned):
        core.role.unacknowledged.pop(voter_id, None)
    leader = response.leader
    core.maybe_adopt(leader.epoch, leader.id, leader.endpoints, voter_id)


def handle_end_failure(core: Core, voter_id: int, *, refused: bool) -> None:
    """EndQuorumEpoch did not reach the voter: send it again later.

    A process that shuts down does not retry if the connection was refused.
    """
    role = core.role
    if not isinstance(role, Resigned) or voter_id not in role.unacknowledged:
        return
    if refused and core.shutting_down:
        del role.unacknowledged[voter_id]
    else:
        role.unacknowledged[voter_id] = core.now_ms + core.config.retry_backoff_ms
