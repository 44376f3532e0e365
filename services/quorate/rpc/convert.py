"""The requests and responses of `raft.messages` as messages of proto/quorate/v1, both ways.

Rules: `encode_*` takes what this process made, `decode_*` what another one did, and checks it (see
`fields`). A request with fields that its service does not have in the proto has none of its own
there: UpdateKRaftVersion arrives as UpdateFeatures, and ReadIndex is what a Read needs inside the
leader. `max_bytes` in a FetchResponse or a FetchSnapshotResponse is a note from the protocol's core
to the owner of the files: it never leaves the node.

Source: KIP-853, "RPCs"; proto/quorate/v1/raft.proto and quorum.proto.
"""

from __future__ import annotations

from collections.abc import Sequence

from quorate.raft.errors import ErrorCode, ViolationError
from quorate.raft.messages import (
    AdminResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    UpdateVoterRequest,
    VoteRequest,
    VoteResponse,
)
from quorate.raft.types import NO_NODE, ReplicaKey, VersionRange
from quorate.records.batch import parse_batches
from quorate.records.errors import RecordsError
from quorate.rpc import fields as f
from quorate.rpc.values import Buffer, ChecksumLogRequest, ChecksumLogResponse
from quorate.telemetry.context import TRACE_PARENT_CHARS
from quorate.v1 import raft_pb2

ADMIN_TIMEOUT_MS = 30_000
FETCH_MAX_WAIT_MS = 500
FETCH_BYTES_MAX = 8 * 1024 * 1024
SNAPSHOT_BYTES_MAX = 1024 * 1024
TRACES_MAX = 1024


def _epoch(value: int) -> int:
    return f.natural(value, "the epoch")


# --- elections ------------------------------------------------------------------------------------


def encode_vote_request(request: VoteRequest) -> raft_pb2.VoteRequest:
    return raft_pb2.VoteRequest(
        cluster_id=request.cluster_id,
        epoch=request.epoch,
        candidate=f.key_to_wire(request.candidate),
        voter=f.key_to_wire(request.voter),
        last_epoch=request.last_epoch,
        last_offset=request.last_offset,
        pre_vote=request.pre_vote,
    )


def decode_vote_request(message: raft_pb2.VoteRequest) -> VoteRequest:
    f.required(message, "candidate")
    f.required(message, "voter")
    return VoteRequest(
        message.cluster_id,
        _epoch(message.epoch),
        f.key_from_wire(message.candidate),
        f.key_from_wire(message.voter),
        f.natural(message.last_epoch, "the last epoch"),
        f.natural(message.last_offset, "the last offset"),
        message.pre_vote,
    )


def encode_vote_response(response: VoteResponse) -> raft_pb2.VoteResponse:
    return raft_pb2.VoteResponse(
        error_code=f.error_to_wire(response.error),
        error_message=response.message,
        current_leader=f.leader_to_wire(response.leader),
        vote_granted=response.granted,
        granted_if_all=response.granted_if_all,
    )


def decode_vote_response(message: raft_pb2.VoteResponse) -> VoteResponse:
    error, leader, text = f.answer_from_wire(message)
    return VoteResponse(error, leader, message.vote_granted, text, message.granted_if_all)


def encode_begin_request(request: BeginQuorumEpochRequest) -> raft_pb2.BeginQuorumEpochRequest:
    return raft_pb2.BeginQuorumEpochRequest(
        cluster_id=request.cluster_id,
        epoch=request.epoch,
        leader=f.key_to_wire(request.leader),
        leader_endpoints=f.endpoints_to_wire(request.leader_endpoints),
        voter=f.key_to_wire(request.voter),
    )


def decode_begin_request(message: raft_pb2.BeginQuorumEpochRequest) -> BeginQuorumEpochRequest:
    f.required(message, "leader")
    f.required(message, "voter")
    return BeginQuorumEpochRequest(
        message.cluster_id,
        _epoch(message.epoch),
        f.key_from_wire(message.leader),
        f.endpoints_from_wire(message.leader_endpoints),
        f.key_from_wire(message.voter),
    )


def encode_begin_response(response: BeginQuorumEpochResponse) -> raft_pb2.BeginQuorumEpochResponse:
    return raft_pb2.BeginQuorumEpochResponse(
        error_code=f.error_to_wire(response.error),
        error_message=response.message,
        current_leader=f.leader_to_wire(response.leader),
    )


def decode_begin_response(message: raft_pb2.BeginQuorumEpochResponse) -> BeginQuorumEpochResponse:
    return BeginQuorumEpochResponse(*f.answer_from_wire(message))


def encode_end_request(request: EndQuorumEpochRequest) -> raft_pb2.EndQuorumEpochRequest:
    return raft_pb2.EndQuorumEpochRequest(
        cluster_id=request.cluster_id,
        epoch=request.epoch,
        leader=f.key_to_wire(request.leader),
        preferred_candidates=[f.key_to_wire(key) for key in request.preferred_candidates],
        leader_endpoints=f.endpoints_to_wire(request.leader_endpoints),
    )


def decode_end_request(message: raft_pb2.EndQuorumEpochRequest) -> EndQuorumEpochRequest:
    f.required(message, "leader")
    if len(message.preferred_candidates) > f.VOTERS_MAX:
        raise ViolationError(f"{len(message.preferred_candidates)} preferred candidates")
    return EndQuorumEpochRequest(
        message.cluster_id,
        _epoch(message.epoch),
        f.key_from_wire(message.leader),
        tuple(f.key_from_wire(key) for key in message.preferred_candidates),
        f.endpoints_from_wire(message.leader_endpoints),
    )


def encode_end_response(response: EndQuorumEpochResponse) -> raft_pb2.EndQuorumEpochResponse:
    return raft_pb2.EndQuorumEpochResponse(
        error_code=f.error_to_wire(response.error),
        error_message=response.message,
        current_leader=f.leader_to_wire(response.leader),
    )


def decode_end_response(message: raft_pb2.EndQuorumEpochResponse) -> EndQuorumEpochResponse:
    return EndQuorumEpochResponse(*f.answer_from_wire(message))


# --- replication ----------------------------------------------------------------------------------


def encode_fetch_request(request: FetchRequest) -> raft_pb2.FetchRequest:
    return raft_pb2.FetchRequest(
        cluster_id=request.cluster_id,
        replica=f.key_to_wire(request.replica),
        epoch=request.epoch,
        offset=request.offset,
        last_epoch=request.last_epoch,
        high_watermark=f.known(request.high_watermark),
        max_wait_ms=request.max_wait_ms,
        max_bytes=request.max_bytes,
        read_round=request.read_round,
        endpoints=f.endpoints_to_wire(request.endpoints),
        incarnation=request.incarnation,
    )


def decode_fetch_request(message: raft_pb2.FetchRequest) -> FetchRequest:
    f.required(message, "replica")
    return FetchRequest(
        cluster_id=message.cluster_id,
        replica=f.key_from_wire(message.replica),
        epoch=_epoch(message.epoch),
        offset=f.natural(message.offset, "the fetch offset"),
        last_epoch=f.natural(message.last_epoch, "the last fetched epoch"),
        high_watermark=max(-1, message.high_watermark)
        if message.HasField("high_watermark")
        else -1,
        max_wait_ms=message.max_wait_ms if message.HasField("max_wait_ms") else FETCH_MAX_WAIT_MS,
        max_bytes=message.max_bytes if message.HasField("max_bytes") else FETCH_BYTES_MAX,
        read_round=message.read_round,
        endpoints=f.endpoints_from_wire(message.endpoints),
        incarnation=message.incarnation,
    )


def encode_fetch_response(
    response: FetchResponse, records: Sequence[Buffer] = ()
) -> raft_pb2.FetchResponse:
    """`records` are encoded batches, in order; `response.batches` is what the receiver will make
    of them.
    """
    return raft_pb2.FetchResponse(
        error_code=f.error_to_wire(response.error),
        error_message=response.message,
        current_leader=f.leader_to_wire(response.leader),
        high_watermark=f.known(response.high_watermark),
        log_start_offset=response.log_start_offset,
        diverging=f.position_to_wire(response.diverging),
        snapshot_id=f.position_to_wire(response.snapshot),
        records_from=response.records_from,
        read_round=response.read_round,
        records=b"".join(records),
        traces=[raft_pb2.RecordTrace(offset=o, trace_parent=p) for o, p in response.traces],
        acknowledged=f.position_to_wire(response.acknowledged),
    )


def decode_fetch_response(message: raft_pb2.FetchResponse) -> FetchResponse:
    """With the records parsed, their checksums verified: what follows may trust the batches'
    headers.
    """
    error, leader, text = f.answer_from_wire(message)
    try:
        batches = parse_batches(message.records)
    except RecordsError as corrupt:
        raise ViolationError(f"records of a fetch: {corrupt}") from corrupt
    records_from = None
    if message.HasField("records_from"):
        records_from = f.natural(message.records_from, "the offset of the records")
    return FetchResponse(
        error=error,
        leader=leader,
        high_watermark=max(-1, message.high_watermark)
        if message.HasField("high_watermark")
        else -1,
        log_start_offset=f.natural(message.log_start_offset, "the log start offset"),
        diverging=f.position_from_wire(message.diverging, "the divergence")
        if message.HasField("diverging")
        else None,
        snapshot=f.position_from_wire(message.snapshot_id, "the snapshot")
        if message.HasField("snapshot_id")
        else None,
        records_from=records_from,
        read_round=message.read_round,
        batches=batches,
        message=text,
        traces=_traces(message) if message.traces else (),
        acknowledged=f.position_from_wire(message.acknowledged, "the acknowledged end")
        if message.HasField("acknowledged")
        else None,
    )


def _traces(message: raft_pb2.FetchResponse) -> tuple[tuple[int, str], ...]:
    """As many as are reasonable: they are of use, and nothing depends on them."""
    return tuple(
        (trace.offset, trace.trace_parent)
        for trace in message.traces[:TRACES_MAX]
        if len(trace.trace_parent) == TRACE_PARENT_CHARS
    )


def encode_snapshot_request(request: FetchSnapshotRequest) -> raft_pb2.FetchSnapshotRequest:
    return raft_pb2.FetchSnapshotRequest(
        cluster_id=request.cluster_id,
        replica=f.key_to_wire(request.replica),
        epoch=request.epoch,
        snapshot_id=f.position_to_wire(request.snapshot),
        position=request.position,
        max_bytes=request.max_bytes,
    )


def decode_snapshot_request(message: raft_pb2.FetchSnapshotRequest) -> FetchSnapshotRequest:
    f.required(message, "replica")
    f.required(message, "snapshot_id")
    return FetchSnapshotRequest(
        message.cluster_id,
        f.key_from_wire(message.replica),
        _epoch(message.epoch),
        f.position_from_wire(message.snapshot_id, "the snapshot"),
        f.natural(message.position, "the position"),
        message.max_bytes if message.HasField("max_bytes") else SNAPSHOT_BYTES_MAX,
    )


def encode_snapshot_response(response: FetchSnapshotResponse) -> raft_pb2.FetchSnapshotResponse:
    return raft_pb2.FetchSnapshotResponse(
        error_code=f.error_to_wire(response.error),
        error_message=response.message,
        current_leader=f.leader_to_wire(response.leader),
        snapshot_id=f.position_to_wire(response.snapshot),
        size=response.size,
        position=response.position,
        data=bytes(response.data),
    )


def decode_snapshot_response(message: raft_pb2.FetchSnapshotResponse) -> FetchSnapshotResponse:
    error, leader, text = f.answer_from_wire(message)
    return FetchSnapshotResponse(
        error=error,
        leader=leader,
        snapshot=f.position_from_wire(message.snapshot_id, "the snapshot")
        if message.HasField("snapshot_id")
        else None,
        size=f.natural(message.size, "the size of the snapshot"),
        position=f.natural(message.position, "the position"),
        data=message.data,
        message=text,
    )


def decode_update_voter_request(message: raft_pb2.UpdateVoterRequest) -> UpdateVoterRequest:
    f.required(message, "voter")
    return UpdateVoterRequest(
        message.cluster_id, _epoch(message.epoch), f.voter_from_wire(message.voter)
    )


def encode_update_voter_request(request: UpdateVoterRequest) -> raft_pb2.UpdateVoterRequest:
    return raft_pb2.UpdateVoterRequest(
        cluster_id=request.cluster_id, epoch=request.epoch, voter=f.voter_to_wire(request.voter)
    )


def encode_update_voter_response(response: AdminResponse) -> raft_pb2.UpdateVoterResponse:
    return raft_pb2.UpdateVoterResponse(
        error_code=f.error_to_wire(response.error),
        error_message=response.message,
        current_leader=f.leader_to_wire(response.leader),
    )


def encode_api_versions_request(request: ApiVersionsRequest) -> raft_pb2.ApiVersionsRequest:
    return raft_pb2.ApiVersionsRequest(cluster_id=request.cluster_id)


def decode_api_versions_request(message: raft_pb2.ApiVersionsRequest) -> ApiVersionsRequest:
    return ApiVersionsRequest(message.cluster_id)


def encode_api_versions_response(response: ApiVersionsResponse) -> raft_pb2.ApiVersionsResponse:
    replica = None if response.replica.id < 0 else f.key_to_wire(response.replica)
    return raft_pb2.ApiVersionsResponse(
        error_code=f.error_to_wire(response.error),
        error_message=response.message,
        replica=replica,
        kraft_version=f.range_to_wire(response.kraft_version),
    )


def decode_api_versions_response(message: raft_pb2.ApiVersionsResponse) -> ApiVersionsResponse:
    error = f.error_from_wire(message.error_code)
    versions = f.range_from_wire(message.kraft_version)
    replica = ReplicaKey(NO_NODE)
    if error is ErrorCode.NONE or message.HasField("replica"):
        f.required(message, "replica")
        replica = f.key_from_wire(message.replica)
    return ApiVersionsResponse(error, replica, versions, message.error_message)


def encode_checksum_request(request: ChecksumLogRequest) -> raft_pb2.ChecksumLogRequest:
    return raft_pb2.ChecksumLogRequest(
        cluster_id=request.cluster_id,
        replica=f.key_to_wire(request.replica),
        voter=f.key_to_wire(request.voter),
        start_offset=request.start_offset,
        end_offset=request.end_offset,
    )


def decode_checksum_request(message: raft_pb2.ChecksumLogRequest) -> ChecksumLogRequest:
    f.required(message, "replica")
    f.required(message, "voter")
    return ChecksumLogRequest(
        message.cluster_id,
        f.key_from_wire(message.replica),
        f.key_from_wire(message.voter),
        f.natural(message.start_offset, "start_offset"),
        f.natural(message.end_offset, "end_offset"),
    )


def encode_checksum_response(response: ChecksumLogResponse) -> raft_pb2.ChecksumLogResponse:
    return raft_pb2.ChecksumLogResponse(
        error_code=f.error_to_wire(response.error),
        error_message=response.message,
        crc=response.crc,
        size=response.size,
    )


def decode_checksum_response(message: raft_pb2.ChecksumLogResponse) -> ChecksumLogResponse:
    error = f.error_from_wire(message.error_code)
    size = f.natural(message.size, "size")
    return ChecksumLogResponse(error, message.crc, size, message.error_message)


NO_VERSIONS = VersionRange(0, 0)
