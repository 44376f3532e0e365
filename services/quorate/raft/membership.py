"""Changes of the voter set and of kraft.version, one at a time, at the leader.

The steps of a change (KIP-853 "AddVoter", "RemoveVoter", "UpdateVoter", "UpdateFeatures"); each
waits until it can be taken, and the request's timeout ends the wait:
1. WAITING: a record of this epoch is committed and no earlier change is uncommitted. Else two
   leaders could each append a set that differs by one from the same old set, and the two sets would
   have majorities that do not meet (Ongaro's bug in single-server membership changes).
2. The request is checked against the voter set in force. A removal after which the voters that
   fetch would be no majority is refused: it could not commit, and nothing after it.
3. PROBING (AddVoter, UpdateVoter): the voter answers ApiVersions on its first endpoint, with its
   own key and a range that holds the finalized kraft.version. Nothing unreachable is ever written.
4. CATCHING_UP (AddVoter): the new voter has fetched up to the end of the log.
5. COMMITTING: the record is appended, in force at once, and committed by a majority of the new set:
   the answer.

The outcome of a change that timed out while COMMITTING is open: describe the quorum and ask again,
which is idempotent.
"""

from __future__ import annotations

from quorate.raft import replication
from quorate.raft.batches import KRaftVersion, Voters
from quorate.raft.core import Core
from quorate.raft.errors import ErrorCode
from quorate.raft.messages import (
    AddVoterRequest,
    AdminResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
    RemoveVoterRequest,
    UpdateKRaftVersionRequest,
    UpdateVoterRequest,
)
from quorate.raft.roles import ChangeStage, Leader, PendingChange
from quorate.raft.types import (
    SUPPORTED_KRAFT_VERSION,
    Endpoint,
    ReplicaKey,
    Voter,
    VoterSet,
)

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
    leader.changes.append(change)
    if isinstance(request, UpdateVoterRequest) and core.history.kraft_version < 1:
        # It is kept in memory, so there is nothing to wait for; and the upgrade to kraft.version 1
        # may be first in the queue, waiting for just this.
        _check_update(core, leader, change, request)


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
        return ErrorCode.REQUEST_TIMED_OUT, f"{len(leader.changes)} changes are pending already"
    return None, ""


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
    """Take every step that can be taken now; return whether one was taken."""
    moved = False
    while isinstance(core.role, Leader) and core.role.changes:
        leader = core.role
        if not _step(core, leader, leader.changes[0]):
            break
        moved = True
    return moved


def _step(core: Core, leader: Leader, change: PendingChange) -> bool:
    """One step of the first change in the queue. Return whether another may follow at once."""
    match change.stage:
        case ChangeStage.WAITING:
            if not _is_quiet(core, leader) or is_removed(core, leader):
                return False
            return _check(core, leader, change)
        case ChangeStage.PROBING:
            return False  # the answer to the probe moves it on
        case ChangeStage.CATCHING_UP:
            assert isinstance(change.request, AddVoterRequest)
            if not _is_caught_up(core, leader, change.request.voter):
                return False
            assert change.kraft_version is not None
            voter = Voter(change.request.voter, change.request.endpoints, change.kraft_version)
            _append_voters(core, change, core.voters.adding(voter))
            return True
        case ChangeStage.COMMITTING:
            if core.high_watermark <= change.offset:
                return False
            _finish(core, leader, change, ErrorCode.NONE)
            if not core.is_voter:
                replication.resign(core, "the record that removes this leader is committed")
            return True


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
) -> bool:
    """Answer a change and take it out of the queue."""
    leader.changes.remove(change)
    if change.request_id is not None:
        core.respond(change.request_id, AdminResponse(error, core.current_leader, text))
    elif error is not ErrorCode.NONE and isinstance(change.request, UpdateVoterRequest):
        core.notice(f"updating the own voter entry: {error.name} {text}".rstrip(), warning=True)
    return True


def _check(core: Core, leader: Leader, change: PendingChange) -> bool:
    request = change.request
    match request:
        case AddVoterRequest():
            return _check_add(core, leader, change, request)
        case RemoveVoterRequest():
            return _check_remove(core, leader, change, request)
        case UpdateVoterRequest():
            return _check_update(core, leader, change, request)
        case UpdateKRaftVersionRequest():
            return _check_upgrade(core, leader, change, request)


def _append_voters(core: Core, change: PendingChange, voters: VoterSet) -> None:
    """Append the new set: in force from here on."""
    assert core.voters.has_overlapping_majority(voters), (
        f"{core.voters} to {voters} is no single change"
    )
    change.stage = ChangeStage.COMMITTING
    change.offset = core.append_control((Voters(voters),))
    request = change.request
    if isinstance(request, AddVoterRequest) and not request.ack_when_committed:
        _answer_early(core, change)


def _answer_early(core: Core, change: PendingChange) -> None:
    if change.request_id is not None:
        core.respond(change.request_id, AdminResponse(ErrorCode.NONE, core.current_leader))
        change.request_id = None


# --- add ------------------------------------------------------------------------------------------


def _check_add(core: Core, leader: Leader, change: PendingChange, request: AddVoterRequest) -> bool:
    if core.history.kraft_version < 1:
        text = "voters can be added at kraft.version 1 and above: upgrade the feature first"
        return _finish(core, leader, change, ErrorCode.UNSUPPORTED_VERSION, text)
    if request.voter.id < 0 or request.voter.directory_id is None or not request.endpoints:
        text = "a voter needs an id, a directory id and an endpoint"
        return _finish(core, leader, change, ErrorCode.INVALID_REQUEST, text)
    known = core.voters.get(request.voter.id)
    if known is not None:
        text = f"{known.key} is a voter already"
        if known.key != request.voter:
            text = f"{known.key} is the voter of that id: remove it first"
        return _finish(core, leader, change, ErrorCode.DUPLICATE_VOTER, text)
    _probe(core, change, request.endpoints[0], request.voter.id)
    return False


def _is_caught_up(core: Core, leader: Leader, key: ReplicaKey) -> bool:
    progress = leader.replicas.get(key)
    if progress is None or progress.last_caught_up_ms < 0:
        return False
    return core.now_ms - progress.last_caught_up_ms <= core.config.fetch_timeout_ms


# --- remove ---------------------------------------------------------------------------------------


def _check_remove(
    core: Core, leader: Leader, change: PendingChange, request: RemoveVoterRequest
) -> bool:
    if core.history.kraft_version < 1:
        text = "voters can be removed at kraft.version 1 and above: upgrade the feature first"
        return _finish(core, leader, change, ErrorCode.UNSUPPORTED_VERSION, text)
    if core.voters.find(request.voter) is None:
        text = f"{request.voter} is not in {core.voters}"
        return _finish(core, leader, change, ErrorCode.VOTER_NOT_FOUND, text)
    if len(core.voters) == 1:
        text = f"{request.voter} is the last voter: without it nobody could commit"
        return _finish(core, leader, change, ErrorCode.INVALID_REQUEST, text)
    remaining = core.voters.removing(request.voter)
    silent = [v.key for v in remaining if not _is_alive(core, leader, v)]
    if len(remaining) - len(silent) < remaining.majority:
        return _wait_for_life(core, leader, change, remaining, silent)
    _append_voters(core, change, remaining)
    return True


def _is_alive(core: Core, leader: Leader, voter: Voter) -> bool:
    """Whether the voter is this leader, or fetched from it lately."""
    if voter.id == core.local.id:
        return True
    progress = replication.progress_of(leader, voter)
    if progress is None or progress.last_fetch_ms < 0:
        return False
    return core.now_ms - progress.last_fetch_ms <= core.config.fetch_timeout_ms


def _wait_for_life(
    core: Core,
    leader: Leader,
    change: PendingChange,
    remaining: VoterSet,
    silent: list[ReplicaKey],
) -> bool:
    """Refuse a removal after which nothing could commit, not even the removal itself.

    It would be in force as soon as it is appended and could never be taken back. A voter that a new
    leader has not heard of yet gets the request timeout to show up.
    """
    if change.probe_at_ms == 0:
        change.probe_at_ms = core.now_ms + core.config.request_timeout_ms
    if core.now_ms < min(change.probe_at_ms, change.deadline_ms):
        return False
    names = ", ".join(map(str, silent))
    text = f"of {remaining}, which would be left, {names} fetch nothing: it could not commit"
    return _finish(core, leader, change, ErrorCode.INVALID_REQUEST, text)


# --- update ---------------------------------------------------------------------------------------


def _check_update(
    core: Core, leader: Leader, change: PendingChange, request: UpdateVoterRequest
) -> bool:
    entry = core.voters.find(request.voter.key)
    level = core.history.kraft_version
    if entry is None:
        text = f"{request.voter.key} is not in {core.voters}"
        return _finish(core, leader, change, ErrorCode.VOTER_NOT_FOUND, text)
    if level not in request.voter.kraft_version:
        text = f"kraft.version {level} is outside of {request.voter.kraft_version}"
        return _finish(core, leader, change, ErrorCode.INVALID_UPDATE_VERSION, text)
    if request.voter.key.directory_id is None or not request.voter.endpoints:
        text = "a voter needs a directory id and an endpoint"
        return _finish(core, leader, change, ErrorCode.INVALID_REQUEST, text)
    if level < 1:
        leader.reported[request.voter.id] = request.voter
        return _finish(core, leader, change, ErrorCode.NONE)
    if entry == request.voter:
        return _finish(core, leader, change, ErrorCode.NONE)
    if request.voter.id == core.local.id:
        _append_voters(core, change, core.voters.updating(request.voter))
        return True
    change.kraft_version = request.voter.kraft_version
    _probe(core, change, request.voter.endpoints[0], request.voter.id)
    return False


# --- kraft.version --------------------------------------------------------------------------------


def _check_upgrade(
    core: Core, leader: Leader, change: PendingChange, request: UpdateKRaftVersionRequest
) -> bool:
    """KRaftVersion and Voters in one batch, once every voter has told its directory and its
    versions, if those and the registered brokers' hold the level.
    """
    level = core.history.kraft_version
    if request.level == level:
        return _finish(core, leader, change, ErrorCode.NONE)
    if request.level < level:
        text = f"kraft.version cannot be lowered from {level} to {request.level}"
        return _finish(core, leader, change, ErrorCode.INVALID_UPDATE_VERSION, text)
    if request.level not in SUPPORTED_KRAFT_VERSION:
        text = f"kraft.version {request.level} is not supported, only {SUPPORTED_KRAFT_VERSION}"
        return _finish(core, leader, change, ErrorCode.INVALID_UPDATE_VERSION, text)
    reported = dict(leader.reported)
    if core.is_voter:
        reported[core.local.id] = core.config.voter
    silent = [voter.id for voter in core.voters if voter.id not in reported]
    if silent:
        change.probe_error = f"voters {silent} have not told their directory ids and versions"
        return False
    too_old = [v.id for v in core.voters if request.level not in reported[v.id].kraft_version]
    if too_old:
        text = f"voters {too_old} do not support kraft.version {request.level}"
        return _finish(core, leader, change, ErrorCode.INVALID_UPDATE_VERSION, text)
    too_old = sorted(n for n, has in core.observer_versions.items() if request.level not in has)
    if too_old:
        text = f"brokers {too_old} do not support kraft.version {request.level}"
        return _finish(core, leader, change, ErrorCode.INVALID_UPDATE_VERSION, text)
    if request.validate_only:
        return _finish(core, leader, change, ErrorCode.NONE)
    voters = VoterSet.of(reported[voter.id] for voter in core.voters)
    assert core.voters.has_overlapping_majority(voters)
    change.stage = ChangeStage.COMMITTING
    change.offset = core.append_control((KRaftVersion(request.level), Voters(voters)))
    return True


# --- probing --------------------------------------------------------------------------------------


def _probe(core: Core, change: PendingChange, endpoint: Endpoint, voter_id: int) -> None:
    change.stage = ChangeStage.PROBING
    request = ApiVersionsRequest(core.config.cluster_id)
    change.probe_id = core.send(endpoint, request, voter_id)


def handle_probe_response(core: Core, request_id: int, response: ApiVersionsResponse) -> None:
    found = _probed(core, request_id)
    if found is None:
        return
    leader, change = found
    request = change.request
    assert isinstance(request, AddVoterRequest | UpdateVoterRequest)
    key = request.voter if isinstance(request, AddVoterRequest) else request.voter.key
    level = core.history.kraft_version
    if response.error is not ErrorCode.NONE or response.replica != key:
        text = f"the node that answers there is {response.replica}, not {key}"
        if response.error is not ErrorCode.NONE:
            text = f"{key} answered {response.error.name} {response.message}".rstrip()
        _finish(core, leader, change, ErrorCode.INVALID_REQUEST, text)
    elif level not in response.kraft_version:
        text = f"{key} supports kraft.version {response.kraft_version}, not {level}"
        _finish(core, leader, change, ErrorCode.INVALID_REQUEST, text)
    elif isinstance(request, UpdateVoterRequest):
        _append_voters(core, change, core.voters.updating(request.voter))
    else:
        change.kraft_version = response.kraft_version
        change.stage = ChangeStage.CATCHING_UP


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
    change.probe_error = reason
    change.probe_at_ms = core.now_ms + core.config.retry_backoff_ms


def _probed(core: Core, request_id: int) -> tuple[Leader, PendingChange] | None:
    leader = core.role
    if not isinstance(leader, Leader) or not leader.changes:
        return None
    change = leader.changes[0]
    is_current = change.stage is ChangeStage.PROBING and change.probe_id == request_id
    return (leader, change) if is_current else None


# --- time -----------------------------------------------------------------------------------------


def tick(core: Core) -> None:
    """End the changes whose time is up; probe again what did not answer."""
    leader = core.role_as(Leader)
    if not leader.changes:
        return
    for change in [c for c in leader.changes if c.deadline_ms <= core.now_ms]:
        _expire(core, leader, change)
    if leader.changes:
        change = leader.changes[0]
        request = change.request
        due = change.stage is ChangeStage.PROBING and change.probe_id is None
        if due and change.probe_at_ms <= core.now_ms and isinstance(request, AddVoterRequest):
            _probe(core, change, request.endpoints[0], request.voter.id)


def _expire(core: Core, leader: Leader, change: PendingChange) -> None:
    text = f"timed out while {change.stage}"
    if change.probe_error and change.stage is ChangeStage.PROBING:
        text += f" ({change.probe_error})"
    elif change.probe_error and change.stage is ChangeStage.WAITING:
        text = f"timed out: {change.probe_error}"
    if change.stage is ChangeStage.COMMITTING:
        text += ": it may still commit, describe the quorum before asking again"
        if change.request_id is None:
            change.deadline_ms = core.now_ms + core.config.request_timeout_ms
            return
        core.respond(
            change.request_id,
            AdminResponse(ErrorCode.REQUEST_TIMED_OUT, core.current_leader, text),
        )
        # The record is in the log: the change stays at the head of the queue until it commits.
        change.request_id = None
        change.deadline_ms = core.now_ms + core.config.request_timeout_ms
        return
    _finish(core, leader, change, ErrorCode.REQUEST_TIMED_OUT, text)


def next_attempt_ms(core: Core, change: PendingChange) -> int:
    """When the clock alone moves the first change on."""
    if change.stage is ChangeStage.PROBING and change.probe_id is None:
        return max(change.probe_at_ms, core.now_ms + 1)
    if change.stage is ChangeStage.WAITING and change.probe_at_ms > core.now_ms:
        return min(change.probe_at_ms, change.deadline_ms)
    return change.deadline_ms
