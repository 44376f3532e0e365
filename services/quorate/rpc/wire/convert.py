"""Hand-written conversions; `codec` derives the others.

They are those of Fetch, whose messages are sent for every batch, and of the response to
ApiVersions, whose replica may be missing in an error.

Rules: `encode_*` takes values of this process; `decode_*` takes messages of another one and checks
them (see `fields`). `max_bytes` in a FetchResponse is a hint from the protocol's core to the owner
of the files: it never leaves the node.

Source: KIP-853, "RPCs"; proto/quorate/v1/raft.proto.
"""

from __future__ import annotations

from quorate.common.error_codes import ErrorCode
from quorate.raft.errors import ViolationError
from quorate.raft.messages import ApiVersionsResponse, FetchRequest, FetchResponse
from quorate.records.batch import parse_batches
from quorate.records.errors import RecordsError
from quorate.rpc import fields as f
from quorate.telemetry.context import TRACE_PARENT_CHARS
from quorate.v1 import raft_pb2

FETCH_MAX_WAIT_MS = 500
FETCH_BYTES_MAX = 8 * 1024 * 1024
TRACES_MAX = 1024


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
        epoch=f.natural(message.epoch, "the epoch"),
        offset=f.natural(message.offset, "the fetch offset"),
        last_epoch=f.natural(message.last_epoch, "the last fetched epoch"),
        high_watermark=f.high_watermark_from_wire(message),
        max_wait_ms=message.max_wait_ms if message.HasField("max_wait_ms") else FETCH_MAX_WAIT_MS,
        max_bytes=message.max_bytes if message.HasField("max_bytes") else FETCH_BYTES_MAX,
        read_round=message.read_round,
        endpoints=f.endpoints_from_wire(message.endpoints),
        incarnation=message.incarnation,
    )


def encode_fetch_response(response: FetchResponse) -> raft_pb2.FetchResponse:
    """Encode a response without its records, which `records_answer` adds."""
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
        traces=[raft_pb2.RecordTrace(offset=o, trace_parent=p) for o, p in response.traces],
        acknowledged=f.position_to_wire(response.acknowledged),
    )


def decode_fetch_response(message: raft_pb2.FetchResponse) -> FetchResponse:
    """Decode a response; parses its records and verifies their checksums.

    Later code may therefore trust the batches' headers.
    """
    error, leader, text = f.answer_from_wire(message)
    try:
        batches = parse_batches(message.records)
    except RecordsError as corrupt:
        raise ViolationError(f"records of a fetch: {corrupt}") from corrupt
    return FetchResponse(
        error=error,
        leader=leader,
        high_watermark=f.high_watermark_from_wire(message),
        log_start_offset=f.natural(message.log_start_offset, "the log start offset"),
        diverging=f.position_from_wire(message.diverging, "the divergence")
        if message.HasField("diverging")
        else None,
        snapshot=f.position_from_wire(message.snapshot_id, "the snapshot")
        if message.HasField("snapshot_id")
        else None,
        records_from=f.natural(message.records_from, "the offset of the records")
        if message.HasField("records_from")
        else None,
        read_round=message.read_round,
        batches=batches,
        message=text,
        traces=_traces(message) if message.traces else (),
        acknowledged=f.position_from_wire(message.acknowledged, "the acknowledged end")
        if message.HasField("acknowledged")
        else None,
    )


def _traces(message: raft_pb2.FetchResponse) -> tuple[tuple[int, str], ...]:
    """At most `TRACES_MAX` traces: they are useful, but nothing depends on them."""
    return tuple(
        (trace.offset, trace.trace_parent)
        for trace in message.traces[:TRACES_MAX]
        if len(trace.trace_parent) == TRACE_PARENT_CHARS
    )


def encode_api_versions_response(response: ApiVersionsResponse) -> raft_pb2.ApiVersionsResponse:
    replica = None if response.replica is None else f.key_to_wire(response.replica)
    return raft_pb2.ApiVersionsResponse(
        error_code=f.error_to_wire(response.error),
        error_message=response.message,
        replica=replica,
        kraft_version=f.range_to_wire(response.kraft_version),
    )


def decode_api_versions_response(message: raft_pb2.ApiVersionsResponse) -> ApiVersionsResponse:
    error = f.error_from_wire(message.error_code)
    versions = f.range_from_wire(message.kraft_version)
    replica = None
    if error is ErrorCode.NONE or message.HasField("replica"):
        f.required(message, "replica")
        replica = f.key_from_wire(message.replica)
    return ApiVersionsResponse(error, replica, versions, message.error_message)
