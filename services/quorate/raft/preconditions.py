"""What a change of the voters or of kraft.version must meet, by the voter set in force.

Nothing here changes the queue of changes: `membership` asks, and asks again before it appends.
Source: KIP-853 "AddVoter", "RemoveVoter", "UpdateVoter", "UpdateFeatures".
"""

from __future__ import annotations

from quorate.common.error_codes import ErrorCode
from quorate.raft import replication
from quorate.raft.core import Core
from quorate.raft.messages import (
    AddVoterRequest,
    RemoveVoterRequest,
    UpdateKRaftVersionRequest,
    UpdateVoterRequest,
)
from quorate.raft.roles import Leader, PendingChange, ReplicaProgress
from quorate.raft.types import SUPPORTED_KRAFT_VERSION, Voter

Decision = tuple[ErrorCode, str]
"""The answer to a change that appends nothing: an error, or NONE where nothing is to be done."""

DONE: Decision = (ErrorCode.NONE, "")


def decide(core: Core, leader: Leader, change: PendingChange) -> Decision | None:
    """The answer to a change that is not to be appended, by the voter set in force; else None."""
    request = change.request
    match request:
        case AddVoterRequest():
            return _decide_add(core, change, request)
        case RemoveVoterRequest():
            return _decide_remove(core, request)
        case UpdateVoterRequest():
            return _decide_update(core, leader, request)
        case UpdateKRaftVersionRequest():
            return _decide_upgrade(core, leader, request)


def _decide_add(core: Core, change: PendingChange, request: AddVoterRequest) -> Decision | None:
    if core.history.kraft_version < 1:
        text = "voters can be added at kraft.version 1 and above: upgrade the feature first"
        return ErrorCode.UNSUPPORTED_VERSION, text
    if request.voter.id < 0 or request.voter.directory_id is None or not request.endpoints:
        return ErrorCode.INVALID_REQUEST, "a voter needs an id, a directory id and an endpoint"
    known = core.voters.get(request.voter.id)
    if known is not None:
        text = f"{known.key} is a voter already"
        if known.key != request.voter:
            text = f"{known.key} is the voter of that id: remove it first"
        return ErrorCode.DUPLICATE_VOTER, text
    level, supported = core.history.kraft_version, change.kraft_version
    if supported is not None and level not in supported:
        text = f"{request.voter} supports kraft.version {supported}, not {level}"
        return ErrorCode.INVALID_REQUEST, text
    return None


def is_caught_up(core: Core, progress: ReplicaProgress | None) -> bool:
    """Whether this replica lately held all that the leader had (KIP-853 "AddVoter")."""
    if progress is None or progress.last_caught_up_ms < 0 or progress.is_copied:
        return False
    return core.now_ms - progress.last_caught_up_ms <= core.config.fetch_timeout_ms


def _decide_remove(core: Core, request: RemoveVoterRequest) -> Decision | None:
    if core.history.kraft_version < 1:
        text = "voters can be removed at kraft.version 1 and above: upgrade the feature first"
        return ErrorCode.UNSUPPORTED_VERSION, text
    if core.voters.find(request.voter) is None:
        text = f"{request.voter} is not in {core.voters}"
        return ErrorCode.VOTER_NOT_FOUND, text
    if len(core.voters) == 1:
        text = f"{request.voter} is the last voter: without it nobody could commit"
        return ErrorCode.INVALID_REQUEST, text
    return None


def is_alive(core: Core, leader: Leader, voter: Voter) -> bool:
    """Whether the voter is this leader, or fetched from it lately as a single process."""
    if voter.id == core.local.id:
        return True
    progress = replication.progress_of(leader, voter)
    if progress is None or progress.last_fetch_ms < 0 or progress.is_copied:
        return False
    return core.now_ms - progress.last_fetch_ms <= core.config.fetch_timeout_ms


def _decide_update(core: Core, leader: Leader, request: UpdateVoterRequest) -> Decision | None:
    entry = core.voters.find(request.voter.key)
    level = core.history.kraft_version
    if entry is None:
        return ErrorCode.VOTER_NOT_FOUND, f"{request.voter.key} is not in {core.voters}"
    if level not in request.voter.kraft_version:
        text = f"kraft.version {level} is outside of {request.voter.kraft_version}"
        return ErrorCode.INVALID_UPDATE_VERSION, text
    if request.voter.key.directory_id is None or not request.voter.endpoints:
        return ErrorCode.INVALID_REQUEST, "a voter needs a directory id and an endpoint"
    if level < 1:
        leader.reported[request.voter.id] = request.voter
        return DONE
    return DONE if entry == request.voter else None


def reported(core: Core, leader: Leader) -> dict[int, Voter]:
    """The voters whose directory and versions are known at kraft.version 0, by id."""
    reported = dict(leader.reported)
    if core.is_voter:
        reported[core.local.id] = core.config.voter
    return reported


def _decide_upgrade(
    core: Core, leader: Leader, request: UpdateKRaftVersionRequest
) -> Decision | None:
    level = core.history.kraft_version
    if request.level == level:
        return DONE
    if request.level < level:
        text = f"kraft.version cannot be lowered from {level} to {request.level}"
        return ErrorCode.INVALID_UPDATE_VERSION, text
    if request.level not in SUPPORTED_KRAFT_VERSION:
        text = f"kraft.version {request.level} is not supported, only {SUPPORTED_KRAFT_VERSION}"
        return ErrorCode.INVALID_UPDATE_VERSION, text
    known = reported(core, leader)
    if any(voter.id not in known for voter in core.voters):
        return None
    too_old = [v.id for v in core.voters if request.level not in known[v.id].kraft_version]
    if too_old:
        text = f"voters {too_old} do not support kraft.version {request.level}"
        return ErrorCode.INVALID_UPDATE_VERSION, text
    too_old = sorted(n for n, has in core.observer_versions.items() if request.level not in has)
    if too_old:
        text = f"brokers {too_old} do not support kraft.version {request.level}"
        return ErrorCode.INVALID_UPDATE_VERSION, text
    return DONE if request.validate_only else None
