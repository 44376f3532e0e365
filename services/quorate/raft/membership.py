"""Changes of the voter set and of kraft.version at the leader.

The steps of a change (KIP-853 "AddVoter", "RemoveVoter", "UpdateVoter", "UpdateFeatures"); each
waits until it can be taken, and the request's timeout ends the wait:
1. PROBING (AddVoter, UpdateVoter): the voter answers ApiVersions on its first endpoint, with its
   own key and a range that holds the finalized kraft.version. Nothing unreachable is ever written.
   Kafka's ApiVersions names no replica: there, BeginQuorumEpoch follows, which only the replica
   that it names accepts.
2. CATCHING_UP (AddVoter): the new voter has fetched up to the end of the log.
3. WAITING: a record of this epoch is committed and no earlier change is uncommitted. Else two
   leaders could each append a set that differs by one from the same old set, and the two sets would
   have majorities that do not meet (Ongaro's bug in single-server membership changes).
4. The append, or the refusal. Every precondition is checked now against the voter set in force,
   steps 1 and 2 included. A removal after which the voters that fetch would be no majority is
   refused unless it is forced: it could not commit, nor could anything after it.
5. COMMITTING: the record is in force at once, and committed by a majority of the new set: the
   answer.

Order: steps 1 and 2 of several changes go on side by side, so that a voter that does not answer or
never catches up delays its own request only. Steps 4 and 5 take one change at a time. Of the
changes that are ready for step 4 the one that arrived first goes first; a change that is not ready
lets later ones pass.

The outcome of a change that timed out while COMMITTING is open: describe the quorum and ask again,
which is idempotent. A change whose sender gave up is dropped until step 4, and completed after it.
"""

from __future__ import annotations

from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.raft import replication
from quorate.raft.batches import KRaftVersion, VotersRecord
from quorate.raft.core import Core
from quorate.raft.messages import (
    AddVoterRequest,
    AdminResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    RemoveVoterRequest,
    UpdateKRaftVersionRequest,
    UpdateVoterRequest,
)
from quorate.raft.preconditions import (
    decide,
    is_alive,
    is_caught_up,
    reported,
)
from quorate.raft.roles import (
    CANNOT_COMMIT,
    ChangeStage,
    Leader,
    PendingChange,
)
from quorate.raft.types import ReplicaKey, Voter, VoterSet

ChangeRequest = (
    AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest | UpdateKRaftVersionRequest
)


# --- the door -------------------------------------------------------------------------------------


def handle(core: Core, request_id: int, request: ChangeRequest) -> None:
    """Take a change into the queue, or refuse it at once."""
    error, text = _refuse(core, request)
    if error is not None:
        core.respond(request_id, AdminResponse(error, core.current_leader, text))
        return
    leader = core.role_as(Leader)
    timeout_ms = core.config.request_timeout_ms
    if not isinstance(request, UpdateVoterRequest):
        timeout_ms = max(0, request.timeout_ms)
    change = PendingChange(request, request_id, core.now_ms + timeout_ms)
    if isinstance(request, UpdateVoterRequest) and _supersedes(core, leader, change, request):
        return
    leader.changes.append(change)


def _refuse(core: Core, request: ChangeRequest) -> tuple[ErrorCode | None, str]:
    if request.cluster_id and request.cluster_id != core.config.cluster_id:
        text = f"this is cluster {core.config.cluster_id}, not {request.cluster_id}"
        return ErrorCode.INCONSISTENT_CLUSTER_ID, text
    leader = core.role
    if isinstance(request, UpdateVoterRequest):
        error = replication.check_leader(core, request.epoch)
        if error is not None:
            return error, ""
    if not isinstance(leader, Leader):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER, core.why_no_leader()
    if len(leader.changes) >= core.config.pending_changes_max:
        text = f"{len(leader.changes)} changes are pending already"
        return ErrorCode.THROTTLING_QUOTA_EXCEEDED, text
    if isinstance(request, AddVoterRequest):
        waiting = sum(1 for change in leader.changes if _adds_later(change))
        if waiting >= core.config.pending_adds_max:
            text = f"{waiting} AddVoter requests are pending already"
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED, text
    return None, ""


def _adds_later(change: PendingChange) -> bool:
    is_appended = change.stage is ChangeStage.COMMITTING
    return isinstance(change.request, AddVoterRequest) and not is_appended


def _supersedes(
    core: Core, leader: Leader, change: PendingChange, request: UpdateVoterRequest
) -> bool:
    """A voter's latest UpdateVoter counts: an older one must not be appended after it. Return
    whether one that says the same goes on in its place.
    """
    for older in tuple(leader.changes):
        same = older.request
        if not isinstance(same, UpdateVoterRequest) or older.stage is ChangeStage.COMMITTING:
            continue
        if same.voter.key != request.voter.key:
            continue
        text = f"{request.voter.key} sent a later UpdateVoter"
        if same != request:
            _finish(core, leader, older, ErrorCode.REQUEST_TIMED_OUT, text)
            continue
        if older.request_id is not None:
            response = AdminResponse(ErrorCode.REQUEST_TIMED_OUT, core.current_leader, text)
            core.respond(older.request_id, response)
        older.request_id, older.deadline_ms = change.request_id, change.deadline_ms
        return True
    return False


def cancel(leader: Leader, request_id: int) -> None:
    """Drop the response to this request. A change that is already appended still commits."""
    for change in leader.changes:
        if change.request_id == request_id:
            change.request_id = None
            if change.stage is not ChangeStage.COMMITTING:
                leader.changes.remove(change)
            return


def leader_updates_itself(core: Core, leader: Leader) -> None:
    """Queue the update of the leader's own entry in the voter set, if it is out of date (KIP-853).

    Called when it is elected and at every round of BeginQuorumEpoch: the update may have timed out
    behind another change.
    """
    if core.history.kraft_version < 1 or not core.is_voter:
        return
    mine = core.config.voter
    if not mine.endpoints or core.voters.get(core.local.id) == mine:
        return
    if any(
        isinstance(change.request, UpdateVoterRequest) and change.request.voter.id == core.local.id
        for change in leader.changes
    ):
        return
    request = UpdateVoterRequest(core.config.cluster_id, leader.epoch, mine)
    deadline = core.now_ms + core.config.request_timeout_ms
    leader.changes.append(PendingChange(request, None, deadline))


# --- the queue ------------------------------------------------------------------------------------


def advance(core: Core) -> bool:
    """Take the steps that can be taken now, in the order of arrival; return whether one that may
    let others follow was taken.
    """
    leader = core.role_as(Leader)
    moved = False
    for change in tuple(leader.changes):
        moved = _step(core, leader, change) or moved
        if core.role is not leader:
            break
    return moved


def _step(core: Core, leader: Leader, change: PendingChange) -> bool:
    """One step of a change. Return whether others may follow at once."""
    if change.stage is ChangeStage.COMMITTING:
        if core.high_watermark <= change.offset:
            return False
        _finish(core, leader, change, ErrorCode.NONE)
        if not core.is_voter:
            replication.resign(core, "the record that removes this leader is committed")
        return True
    decision = decide(core, leader, change)
    if decision is None and not _is_prepared(core, leader, change):
        return False
    change.stage = ChangeStage.WAITING
    if not _is_quiet(core, leader) or is_removed(core, leader):
        return False
    if decision is not None:
        _finish(core, leader, change, *decision)
        return True
    return _append(core, leader, change)


def _is_quiet(core: Core, leader: Leader) -> bool:
    """Whether this epoch has committed a record and every earlier change is committed."""
    epoch_committed = core.high_watermark > leader.epoch_start_offset
    return epoch_committed and core.history.last_change_offset < core.high_watermark


def is_removed(core: Core, leader: Leader) -> bool:
    """Whether this leader is out of the voters for good. It may have been elected so: when the
    record was in its log, but not known to be committed (see `Core.is_electable`).
    """
    return not core.is_voter and _is_quiet(core, leader)


def _finish(
    core: Core, leader: Leader, change: PendingChange, error: ErrorCode, text: str = ""
) -> None:
    """Answer a change and take it out of the queue."""
    leader.changes.remove(change)
    if change.request_id is not None:
        core.respond(change.request_id, AdminResponse(error, core.current_leader, text))
    elif error is not ErrorCode.NONE and isinstance(change.request, UpdateVoterRequest):
        core.notice(f"updating the own voter entry: {error.name} {text}".rstrip(), warning=True)


def _is_prepared(core: Core, leader: Leader, change: PendingChange) -> bool:
    """Whether steps 1 and 2 are done, and hold now. Begins what is missing."""
    request = change.request
    match request:
        case AddVoterRequest():
            if not _is_probed(core, leader, change, request.voter, request.endpoints):
                return False
            change.stage = ChangeStage.CATCHING_UP
            return is_caught_up(core, leader.replicas.get(request.voter))
        case UpdateVoterRequest(voter=voter):
            return voter.id == core.local.id or _is_probed(
                core, leader, change, voter.key, voter.endpoints
            )
        case UpdateKRaftVersionRequest():
            silent = [voter.id for voter in core.voters if voter.id not in reported(core, leader)]
            if silent:
                change.waits_for = (
                    f"voters {silent} have not reported their directory ids and versions"
                )
            return not silent
        case RemoveVoterRequest():
            return True


def _append(core: Core, leader: Leader, change: PendingChange) -> bool:
    """Step 4, for a change that is ready. Return whether it was taken."""
    request = change.request
    match request:
        case AddVoterRequest():
            assert change.kraft_version is not None
            voter = Voter(request.voter, request.endpoints, change.kraft_version)
            _append_voters(core, change, core.voters.adding(voter))
            if not request.ack_when_committed:
                _answer_early(core, change)
        case UpdateVoterRequest():
            _append_voters(core, change, core.voters.updating(request.voter))
        case UpdateKRaftVersionRequest():
            _append_upgrade(core, leader, change, request)
        case RemoveVoterRequest():
            if not request.force and not _could_commit(core, leader, change, request.voter):
                return False
            _append_voters(core, change, core.voters.removing(request.voter))
    return True


def _append_voters(core: Core, change: PendingChange, voters: VoterSet) -> None:
    """Append the new set: in force from here on."""
    assert core.voters.has_overlapping_majority(voters), (
        f"{core.voters} to {voters} does not add or remove a single voter"
    )
    change.stage = ChangeStage.COMMITTING
    change.offset = core.append_control((VotersRecord(voters),))


def _answer_early(core: Core, change: PendingChange) -> None:
    if change.request_id is not None:
        core.respond(change.request_id, AdminResponse(ErrorCode.NONE, core.current_leader))
        change.request_id = None


# --- remove ---------------------------------------------------------------------------------------


def _could_commit(core: Core, leader: Leader, change: PendingChange, removed: ReplicaKey) -> bool:
    """Whether the voters that a removal leaves could commit it; else wait, then refuse the change.

    The removal would be in force as soon as it is appended and could never be taken back. A voter
    that a new leader has not heard of yet gets the request timeout to show up.
    """
    remaining = core.voters.removing(removed)
    silent = [voter.key for voter in remaining if not is_alive(core, leader, voter)]
    if len(remaining) - len(silent) >= remaining.majority:
        return True
    names = ", ".join(map(str, silent))
    change.waits_for = (
        f"removing {removed} would leave {remaining}, of which {names} "
        f"{'is' if len(silent) == 1 else 'are'} offline: the new quorum {CANNOT_COMMIT}"
    )
    if change.retry_at_ms == 0:
        change.retry_at_ms = core.now_ms + core.config.request_timeout_ms
    if core.now_ms >= change.retry_at_ms:
        _finish(core, leader, change, ErrorCode.REQUEST_TIMED_OUT, change.waits_for)
    return False


# --- kraft.version --------------------------------------------------------------------------------


def _append_upgrade(
    core: Core, leader: Leader, change: PendingChange, request: UpdateKRaftVersionRequest
) -> None:
    """Append KRaftVersion and VotersRecord in one batch, with the directory id that each voter has
    reported, and its versions.
    """
    known = reported(core, leader)
    voters = VoterSet.of(known[voter.id] for voter in core.voters)
    assert core.voters.has_overlapping_majority(voters)
    change.stage = ChangeStage.COMMITTING
    change.offset = core.append_control((KRaftVersion(request.level), VotersRecord(voters)))


# --- probing --------------------------------------------------------------------------------------


def _is_probed(
    core: Core,
    leader: Leader,
    change: PendingChange,
    key: ReplicaKey,
    endpoints: tuple[Endpoint, ...],
) -> bool:
    """Whether this replica answered on its endpoint (step 1); asks it if not.

    One that fetches with other endpoints than when it answered has moved: it is asked again.
    """
    if change.stage is ChangeStage.PROBING:
        return False
    progress = leader.replicas.get(key)
    seen = progress.endpoints if progress is not None else ()
    has_moved = bool(change.seen_at) and seen != change.seen_at
    if change.kraft_version is None or has_moved:
        change.seen_at = seen
        _probe(core, change, endpoints[0], key.id)
        return False
    change.seen_at = seen
    return True


def _probe(core: Core, change: PendingChange, endpoint: Endpoint, voter_id: int) -> None:
    change.stage = ChangeStage.PROBING
    change.kraft_version = None
    request = ApiVersionsRequest(core.config.cluster_id)
    change.probe_id = core.send(endpoint, request, voter_id)


def handle_probe_response(core: Core, request_id: int, response: ApiVersionsResponse) -> None:
    found = _probed(core, request_id)
    if found is None:
        return
    leader, change = found
    key, endpoint = _new_voter(change)
    level = core.history.kraft_version
    is_other = response.replica is not None and response.replica != key
    if response.error is not ErrorCode.NONE or is_other:
        text = f"the node that answers there is {response.replica}, not {key}"
        if response.error is not ErrorCode.NONE:
            text = f"{key} answered {response.error.name} {response.message}".rstrip()
        _finish(core, leader, change, ErrorCode.INVALID_REQUEST, text)
    elif level not in response.kraft_version:
        text = f"{key} supports kraft.version {response.kraft_version}, not {level}"
        _finish(core, leader, change, ErrorCode.INVALID_REQUEST, text)
    elif response.replica is None:
        change.kraft_version = response.kraft_version
        begin = BeginQuorumEpochRequest(
            core.config.cluster_id, leader.epoch, core.local, core.config.endpoints, key
        )
        change.probe_id = core.send(endpoint, begin, key.id)
    else:
        change.kraft_version = response.kraft_version
        _probe_succeeded(change)


def handle_begin_response(core: Core, request_id: int, response: BeginQuorumEpochResponse) -> None:
    """The second answer to a probe, of a replica that ApiVersions did not name."""
    found = _probed(core, request_id)
    if found is None:
        return
    leader, change = found
    key, endpoint = _new_voter(change)
    if response.error is ErrorCode.NONE:
        _probe_succeeded(change)
    elif response.error is ErrorCode.INVALID_VOTER_KEY:
        text = f"the node that answers on {endpoint} is not {key}"
        _finish(core, leader, change, ErrorCode.INVALID_REQUEST, text)
    else:
        text = f"{key} answered {response.error.name} {response.message}".rstrip()
        handle_probe_failure(core, request_id, text)


def _probe_succeeded(change: PendingChange) -> None:
    change.waits_for = ""
    change.stage = ChangeStage.WAITING


def _new_voter(change: PendingChange) -> tuple[ReplicaKey, Endpoint]:
    """The replica that is probed, and its endpoint."""
    request = change.request
    assert isinstance(request, AddVoterRequest | UpdateVoterRequest)
    if isinstance(request, AddVoterRequest):
        return request.voter, request.endpoints[0]
    return request.voter.key, request.voter.endpoints[0]


def handle_probe_failure(core: Core, request_id: int, reason: str) -> None:
    found = _probed(core, request_id)
    if found is None:
        return
    leader, change = found
    request = change.request
    if isinstance(request, UpdateVoterRequest):
        endpoint = request.voter.endpoints[0]
        text = f"no answer on the new endpoint {endpoint}: {reason}"
        _finish(core, leader, change, ErrorCode.INVALID_REQUEST, text)
        return
    change.probe_id = None
    change.waits_for = reason
    change.retry_at_ms = core.now_ms + core.config.retry_backoff_ms


def _probed(core: Core, request_id: int) -> tuple[Leader, PendingChange] | None:
    leader = core.role
    if not isinstance(leader, Leader):
        return None
    for change in leader.changes:
        if change.stage is ChangeStage.PROBING and change.probe_id == request_id:
            return leader, change
    return None


# --- time -----------------------------------------------------------------------------------------


def tick(core: Core) -> None:
    """End the changes whose time is up; probe again what did not answer."""
    leader = core.role_as(Leader)
    for change in tuple(leader.changes):
        request = change.request
        waits = change.stage is ChangeStage.PROBING and change.probe_id is None
        if change.deadline_ms <= core.now_ms:
            _expire(core, leader, change)
        elif waits and change.retry_at_ms <= core.now_ms and isinstance(request, AddVoterRequest):
            _probe(core, change, request.endpoints[0], request.voter.id)


def _expire(core: Core, leader: Leader, change: PendingChange) -> None:
    if change.stage is not ChangeStage.COMMITTING:
        text = _why_late(core, leader, change)
        _finish(core, leader, change, ErrorCode.REQUEST_TIMED_OUT, text)
        return
    if change.request_id is not None:
        text = f"timed out while {change.stage.text}: it may still commit, "
        text += "describe the quorum before asking again"
        response = AdminResponse(ErrorCode.REQUEST_TIMED_OUT, core.current_leader, text)
        core.respond(change.request_id, response)
        change.request_id = None
    # The record is in the log: the change stays in the queue until it commits.
    change.deadline_ms = core.now_ms + core.config.request_timeout_ms


def _why_late(core: Core, leader: Leader, change: PendingChange) -> str:
    """What a change that is not appended waits for."""
    text = f"timed out while {change.stage.text}"
    if change.waits_for and change.stage is ChangeStage.PROBING:
        text += f" ({change.waits_for})"
    elif change.waits_for and change.stage is ChangeStage.WAITING and _is_quiet(core, leader):
        text = f"timed out: {change.waits_for}"
    return text


def next_attempt_ms(core: Core, change: PendingChange) -> int:
    """When the clock alone moves a change on."""
    waits = change.stage is ChangeStage.PROBING and change.probe_id is None
    if waits or (change.stage is ChangeStage.WAITING and change.retry_at_ms > core.now_ms):
        return min(max(change.retry_at_ms, core.now_ms + 1), change.deadline_ms)
    return change.deadline_ms
