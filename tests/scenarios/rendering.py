"""How transcripts spell values: one line each, stable, short.

Replicas are `1A` (id and directory), offsets with their epoch `5@2`, ranges of offsets `3..5@2`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.raft.batches import Batch, ControlRecord, KRaftVersion, LeaderChange, VotersRecord
from quorate.raft.messages import (
    AddVoterRequest,
    AdminResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    CurrentLeader,
    DescribeQuorumResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    ReadIndexResponse,
    RemoveVoterRequest,
    ReplicaStatus,
    UpdateVoterRequest,
    VoteRequest,
    VoteResponse,
)
from quorate.raft.outputs import (
    AppendBatches,
    HighWatermarkAdvanced,
    InstallSnapshot,
    LeadershipAcquired,
    LeadershipLost,
    Notice,
    Output,
    PersistElection,
    PersistRequiredEnd,
    RoleChanged,
    TruncateLog,
    VotersChanged,
)
from quorate.raft.types import SUPPORTED_KRAFT_VERSION, ElectionState, ReplicaKey, Voter, VoterSet

from tests.scenarios.arguments import LISTENER


def key(replica: ReplicaKey) -> str:
    return f"{replica.id}{replica.directory_id or ''}"


def keys(replicas: Iterable[ReplicaKey]) -> str:
    return ",".join(key(replica) for replica in replicas) or "-"


def endpoint(value: Endpoint) -> str:
    address = f"{value.host}:{value.port}"
    return address if value.name == LISTENER else f"{value.name}:{address}"


def voter(value: Voter) -> str:
    """The key alone where the rest is as the harness configures it by itself."""
    text = key(value.key)
    usual = tuple(endpoint(e) for e in value.endpoints) == (f"n{value.id}:9093",)
    if not usual:
        text += "(" + (",".join(endpoint(e) for e in value.endpoints) or "no endpoint") + ")"
    if value.kraft_version != SUPPORTED_KRAFT_VERSION:
        text += f"[{value.kraft_version}]"
    return text


def voters(value: VoterSet) -> str:
    return "{" + ",".join(voter(v) for v in value) + "}"


def leader(value: CurrentLeader) -> str:
    return f"epoch={value.epoch} leader={'-' if value.id is None else value.id}"


def election(state: ElectionState) -> str:
    led_by = "-" if state.leader_id is None else state.leader_id
    voted = "-" if state.voted is None else key(state.voted)
    return f"epoch={state.epoch} leader={led_by} voted={voted}"


def control(record: ControlRecord) -> str:
    match record:
        case LeaderChange():
            return f"LeaderChange({record.leader_id} by {keys(record.granting)})"
        case KRaftVersion():
            return f"KRaftVersion({record.level})"
        case VotersRecord():
            return f"Voters{voters(record.voters)}"
        case _:
            return type(record).__name__


def batch(value: Batch) -> str:
    offsets = str(value.base_offset)
    if value.last_offset > value.base_offset:
        offsets += f"..{value.last_offset}"
    content = " ".join(control(record) for record in value.control) or str(value.data)
    return f"{offsets}@{value.epoch} {content}"


def spans(batches: Iterable[Batch]) -> str:
    """Offsets and epochs of batches, those of one epoch together."""
    merged: list[tuple[int, int, int]] = []
    for value in batches:
        if merged and merged[-1][2] == value.epoch and merged[-1][1] + 1 == value.base_offset:
            merged[-1] = (merged[-1][0], value.last_offset, value.epoch)
        else:
            merged.append((value.base_offset, value.last_offset, value.epoch))
    return ",".join(
        f"{first}@{epoch}" if first == last else f"{first}..{last}@{epoch}"
        for first, last, epoch in merged
    )


def request(value: object, sender: ReplicaKey, receiver: ReplicaKey | None) -> str:
    """A request; sender and receiver as it names them are left out where they are who they are."""
    match value:
        case VoteRequest():
            kind = "PreVote" if value.pre_vote else "Vote"
            text = f"{kind} epoch={value.epoch} last={value.last_offset}@{value.last_epoch}"
            text += _unless("candidate", value.candidate, sender)
            return text + _unless("voter", value.voter, receiver)
        case BeginQuorumEpochRequest():
            text = f"BeginQuorumEpoch epoch={value.epoch}"
            text += _unless("leader", value.leader, sender)
            return text + _unless("voter", value.voter, receiver)
        case EndQuorumEpochRequest():
            preferred = keys(value.preferred_candidates)
            return f"EndQuorumEpoch epoch={value.epoch} preferred={preferred}"
        case FetchRequest():
            text = f"Fetch {value.offset}@{value.last_epoch} epoch={value.epoch}"
            text += f" hw={value.high_watermark}"
            text += f" round={value.read_round}" if value.read_round else ""
            return text + (" wait=0" if value.max_wait_ms == 0 else "")
        case FetchSnapshotRequest():
            return f"FetchSnapshot {value.snapshot} epoch={value.epoch} position={value.position}"
        case UpdateVoterRequest():
            return f"UpdateVoter {voter(value.voter)} epoch={value.epoch}"
        case ApiVersionsRequest():
            return "ApiVersions"
        case AddVoterRequest():
            acked = "commit" if value.ack_when_committed else "append"
            return f"AddVoter {key(value.voter)} timeout={value.timeout_ms} ack={acked}"
        case RemoveVoterRequest():
            return f"RemoveVoter {key(value.voter)} timeout={value.timeout_ms}"
        case _:
            return type(value).__name__


def _unless(name: str, claimed: ReplicaKey, known: ReplicaKey | None) -> str:
    return f" {name}={key(claimed)}" if claimed != known else ""


def output(replica: ReplicaKey, value: Output) -> Iterator[tuple[str, str]]:
    """What an output says, less messages, as (under which name a transcript hides it, text)."""
    match value:
        case PersistElection():
            yield "persist", f"quorum-state {election(value.state)}"
        case PersistRequiredEnd():
            yield (
                "persist",
                f"required end {(value.required_end and value.required_end.end) or '-'}",
            )
        case AppendBatches():
            for appended in value.batches:
                yield "append", f"appends {batch(appended)}"
        case TruncateLog():
            yield "append", f"truncates to {value.end_offset}"
        case HighWatermarkAdvanced():
            yield "hw", f"high watermark {value.offset}"
        case LeadershipAcquired():
            yield "lead", f"leads epoch {value.epoch} from {value.start_offset}"
        case LeadershipLost():
            yield "lead", f"leads epoch {value.epoch} no more"
        case RoleChanged():
            of = "" if value.leader_id in (None, replica.id) else f" of {value.leader_id}"
            yield "role", f"is {value.role}{of} in epoch {value.epoch}: {value.reason}"
        case VotersChanged():
            own = "a voter" if value.is_voter else "no voter"
            own += ", removed" if value.removed_self else ""
            yield "voters", f"voters {voters(value.voters)} from {value.offset} ({own})"
        case Notice():
            yield "notice", f"{'!' if value.warning else '*'} {value.text}"
        case InstallSnapshot():
            yield "snapshot", f"has all bytes of snapshot {value.snapshot}"


def response(value: object) -> str:
    """A response's verdict; `epoch=` and `leader=` are the answering replica's."""
    match value:
        case VoteResponse():
            verdict = "granted" if value.granted else "not granted"
            verdict = "granted if all vote" if value.granted_if_all else verdict
            return _verdict("Vote", value.error, verdict, value.leader, value.message)
        case BeginQuorumEpochResponse():
            return _verdict("BeginQuorumEpoch", value.error, "ok", value.leader, value.message)
        case EndQuorumEpochResponse():
            return _verdict("EndQuorumEpoch", value.error, "ok", value.leader, value.message)
        case FetchResponse():
            return _verdict("Fetch", value.error, _fetched(value), value.leader, value.message)
        case FetchSnapshotResponse():
            end = value.position + len(value.data)
            verdict = f"{value.snapshot} bytes {value.position}..{end} of {value.size}"
            return _verdict("FetchSnapshot", value.error, verdict, value.leader, value.message)
        case ApiVersionsResponse():
            verdict = "ok" if value.error is ErrorCode.NONE else value.error.name
            name = "?" if value.replica is None else key(value.replica)
            return f"ApiVersions {verdict} {name} kraft.version {value.kraft_version}"
        case AdminResponse():
            return _verdict("", value.error, "NONE", value.leader, value.message)
        case ReadIndexResponse():
            verdict = f"offset {value.offset}"
            return _verdict("", value.error, verdict, value.leader, value.message)
        case DescribeQuorumResponse():
            return describe(value)
        case _:
            return type(value).__name__


def _verdict(kind: str, error: ErrorCode, good: str, known: CurrentLeader, message: str) -> str:
    verdict = good if error is ErrorCode.NONE else error.name
    text = f"{kind} {verdict} {leader(known)}".lstrip()
    return text + (f" ({message})" if message else "")


def _fetched(value: FetchResponse) -> str:
    what = "nothing"
    if value.diverging is not None:
        what = f"diverging {value.diverging}"
    elif value.snapshot is not None:
        what = f"snapshot {value.snapshot}"
    elif value.batches:
        what = f"records {spans(value.batches)}"
    text = f"{what} hw={value.high_watermark}"
    text += f" acknowledged={value.acknowledged}" if value.acknowledged is not None else ""
    return text + (f" round={value.read_round}" if value.read_round else "")


def describe(value: DescribeQuorumResponse) -> str:
    status = f"hw={value.high_watermark} kraft.version={value.kraft_version}"
    lines = [f"{value.error.name} {leader(value.leader)} {status} voters={voters(value.voter_set)}"]
    if value.committed_voters != value.voter_set:
        lines[0] += f" committed={voters(value.committed_voters)}"
    lines[0] += f" ({value.message})" if value.message else ""
    lines += [f"  voter {_status(status)}" for status in value.voters]
    lines += [f"  observer {_status(status)}" for status in value.observers]
    return "\n".join(lines)


def _status(status: ReplicaStatus) -> str:
    where = ",".join(endpoint(e) for e in status.endpoints) or "-"
    end = status.log_end_offset
    return (
        f"{key(status.replica)} end={end} fetched={status.last_fetch_ms} "
        f"caught-up={status.last_caught_up_ms} at {where}"
    )
