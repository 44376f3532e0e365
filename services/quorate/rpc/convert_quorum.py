"""The administrators' and applications' requests and responses, as messages and as values.

`encode_*` takes what this process made, `decode_*` what another one did, and checks it.

Source: KIP-853 (AddVoter, RemoveVoter, DescribeQuorum), KIP-584; proto/quorate/v1/quorum.proto.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from quorate.raft.errors import ViolationError
from quorate.raft.messages import (
    AddVoterRequest,
    AdminResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RemoveVoterRequest,
    ReplicaStatus,
    TransferLeadershipRequest,
)
from quorate.rpc import fields as f
from quorate.rpc.limits import ASK_TIMEOUT_MS_MAX, CHANGE_TIMEOUT_MS_MAX
from quorate.rpc.values import (
    DescribeFeaturesResponse,
    Feature,
    FormatMode,
    FormatRequest,
    FormatResponse,
    NodeStatus,
    ReadChunk,
    ReadRequest,
    UpdateFeaturesRequest,
    UpgradeType,
)
from quorate.v1 import quorum_pb2

ADMIN_TIMEOUT_MS = 30_000

# --- administration -------------------------------------------------------------------------------


class _Timed(Protocol):
    @property
    def timeout_ms(self) -> int: ...
    def HasField(self, field_name: str) -> bool: ...  # noqa: N802 - protobuf's name


def timeout_of(message: _Timed, limit_ms: int) -> int:
    """How long the sender waits, at most `limit_ms`, milliseconds."""
    if not message.HasField("timeout_ms"):
        return min(ADMIN_TIMEOUT_MS, limit_ms)
    if message.timeout_ms <= 0:
        raise ViolationError(f"timeout_ms is {message.timeout_ms}")
    return min(message.timeout_ms, limit_ms)


def encode_add_voter_request(request: AddVoterRequest) -> quorum_pb2.AddVoterRequest:
    return quorum_pb2.AddVoterRequest(
        cluster_id=request.cluster_id,
        voter=f.key_to_wire(request.voter),
        endpoints=f.endpoints_to_wire(request.endpoints),
        timeout_ms=request.timeout_ms,
        ack_when_committed=request.ack_when_committed,
    )


def decode_add_voter_request(message: quorum_pb2.AddVoterRequest) -> AddVoterRequest:
    f.required(message, "voter")
    return AddVoterRequest(
        message.cluster_id,
        f.key_from_wire(message.voter),
        f.endpoints_from_wire(message.endpoints),
        timeout_of(message, CHANGE_TIMEOUT_MS_MAX),
        message.ack_when_committed if message.HasField("ack_when_committed") else True,
    )


def encode_remove_voter_request(request: RemoveVoterRequest) -> quorum_pb2.RemoveVoterRequest:
    return quorum_pb2.RemoveVoterRequest(
        cluster_id=request.cluster_id,
        voter=f.key_to_wire(request.voter),
        timeout_ms=request.timeout_ms,
        force=request.force or None,
    )


def decode_remove_voter_request(message: quorum_pb2.RemoveVoterRequest) -> RemoveVoterRequest:
    f.required(message, "voter")
    return RemoveVoterRequest(
        message.cluster_id,
        f.key_from_wire(message.voter),
        timeout_of(message, CHANGE_TIMEOUT_MS_MAX),
        message.force,
    )


def encode_transfer_request(
    request: TransferLeadershipRequest,
) -> quorum_pb2.TransferLeadershipRequest:
    return quorum_pb2.TransferLeadershipRequest(
        cluster_id=request.cluster_id,
        target=f.key_to_wire(request.target),
        timeout_ms=request.timeout_ms,
    )


def decode_transfer_request(
    message: quorum_pb2.TransferLeadershipRequest,
) -> TransferLeadershipRequest:
    f.required(message, "target")
    return TransferLeadershipRequest(
        message.cluster_id,
        f.key_from_wire(message.target),
        timeout_of(message, ASK_TIMEOUT_MS_MAX),
    )


def encode_add_voter_response(response: AdminResponse) -> quorum_pb2.AddVoterResponse:
    return quorum_pb2.AddVoterResponse(
        error_code=f.error_to_wire(response.error),
        error_message=response.message,
        current_leader=f.leader_to_wire(response.leader),
    )


def encode_remove_voter_response(response: AdminResponse) -> quorum_pb2.RemoveVoterResponse:
    return quorum_pb2.RemoveVoterResponse(
        error_code=f.error_to_wire(response.error),
        error_message=response.message,
        current_leader=f.leader_to_wire(response.leader),
    )


def encode_transfer_response(response: AdminResponse) -> quorum_pb2.TransferLeadershipResponse:
    return quorum_pb2.TransferLeadershipResponse(
        error_code=f.error_to_wire(response.error),
        error_message=response.message,
        current_leader=f.leader_to_wire(response.leader),
    )


def decode_admin_response(message: f.Answer) -> AdminResponse:
    """The answer to AddVoter, RemoveVoter, UpdateVoter, TransferLeadership or UpdateFeatures."""
    return AdminResponse(*f.answer_from_wire(message))


def encode_describe_request(request: DescribeQuorumRequest) -> quorum_pb2.DescribeQuorumRequest:
    return quorum_pb2.DescribeQuorumRequest(cluster_id=request.cluster_id)


def decode_describe_request(message: quorum_pb2.DescribeQuorumRequest) -> DescribeQuorumRequest:
    return DescribeQuorumRequest(message.cluster_id)


def _encode_status(status: ReplicaStatus) -> quorum_pb2.ReplicaState:
    return quorum_pb2.ReplicaState(
        replica=f.key_to_wire(status.replica),
        log_end_offset=f.known(status.log_end_offset),
        last_fetch_timestamp_ms=f.known(status.last_fetch_ms),
        last_caught_up_timestamp_ms=f.known(status.last_caught_up_ms),
        endpoints=f.endpoints_to_wire(status.endpoints),
    )


def _decode_statuses(messages: Iterable[quorum_pb2.ReplicaState]) -> tuple[ReplicaStatus, ...]:
    def known(message: quorum_pb2.ReplicaState, field: str, value: int) -> int:
        return f.natural(value, field) if message.HasField(field) else -1

    return tuple(
        ReplicaStatus(
            f.key_from_wire(m.replica),
            known(m, "log_end_offset", m.log_end_offset),
            known(m, "last_fetch_timestamp_ms", m.last_fetch_timestamp_ms),
            known(m, "last_caught_up_timestamp_ms", m.last_caught_up_timestamp_ms),
            f.endpoints_from_wire(m.endpoints),
        )
        for m in messages
    )


def encode_describe_response(
    response: DescribeQuorumResponse,
) -> quorum_pb2.DescribeQuorumResponse:
    return quorum_pb2.DescribeQuorumResponse(
        error_code=f.error_to_wire(response.error),
        error_message=response.message,
        current_leader=f.leader_to_wire(response.leader),
        high_watermark=f.known(response.high_watermark),
        kraft_version=response.kraft_version,
        voters=[_encode_status(status) for status in response.voters],
        observers=[_encode_status(status) for status in response.observers],
        voter_set=[f.voter_to_wire(voter) for voter in response.voter_set],
        committed_voters=[f.voter_to_wire(voter) for voter in response.committed_voters],
    )


def decode_describe_response(message: quorum_pb2.DescribeQuorumResponse) -> DescribeQuorumResponse:
    error, leader, text = f.answer_from_wire(message)
    return DescribeQuorumResponse(
        error=error,
        leader=leader,
        high_watermark=max(-1, message.high_watermark)
        if message.HasField("high_watermark")
        else -1,
        kraft_version=f.natural(message.kraft_version, "kraft.version"),
        voters=_decode_statuses(message.voters),
        observers=_decode_statuses(message.observers),
        voter_set=f.voter_set_from_wire(message.voter_set),
        committed_voters=f.voter_set_from_wire(message.committed_voters),
        message=text,
    )


# --- features and one node ------------------------------------------------------------------------


def encode_features_response(
    response: DescribeFeaturesResponse,
) -> quorum_pb2.DescribeFeaturesResponse:
    return quorum_pb2.DescribeFeaturesResponse(
        error_code=f.error_to_wire(response.error),
        error_message=response.message,
        current_leader=f.leader_to_wire(response.leader),
        features=[
            quorum_pb2.Feature(
                name=feature.name,
                supported=f.range_to_wire(feature.supported),
                finalized_level=feature.finalized_level,
            )
            for feature in response.features
        ],
        finalized_features_epoch=f.known(response.epoch),
    )


def decode_features_response(
    message: quorum_pb2.DescribeFeaturesResponse,
) -> DescribeFeaturesResponse:
    error, leader, text = f.answer_from_wire(message)
    features = tuple(
        Feature(
            m.name,
            f.range_from_wire(m.supported),
            f.natural(m.finalized_level, "a finalized level")
            if m.HasField("finalized_level")
            else None,
        )
        for m in message.features
    )
    epoch = -1
    if message.HasField("finalized_features_epoch"):
        epoch = f.natural(message.finalized_features_epoch, "the epoch of the features")
    return DescribeFeaturesResponse(error, leader, features, epoch, text)


def encode_update_features_request(
    request: UpdateFeaturesRequest,
) -> quorum_pb2.UpdateFeaturesRequest:
    return quorum_pb2.UpdateFeaturesRequest(
        cluster_id=request.cluster_id,
        feature=request.feature,
        level=request.level,
        upgrade_type=quorum_pb2.UpgradeType.Name(int(request.upgrade_type)),
        validate_only=request.validate_only,
        timeout_ms=request.timeout_ms,
    )


def decode_update_features_request(
    message: quorum_pb2.UpdateFeaturesRequest,
) -> UpdateFeaturesRequest:
    if not message.feature:
        raise ViolationError("UpdateFeaturesRequest.feature is empty")
    try:
        upgrade_type = UpgradeType(message.upgrade_type or UpgradeType.UPGRADE)
    except ValueError:
        raise ViolationError(f"no upgrade type: {message.upgrade_type}") from None
    return UpdateFeaturesRequest(
        message.cluster_id,
        message.feature,
        f.natural(message.level, "the level"),
        upgrade_type,
        message.validate_only,
        timeout_of(message, CHANGE_TIMEOUT_MS_MAX),
    )


def encode_update_features_response(response: AdminResponse) -> quorum_pb2.UpdateFeaturesResponse:
    return quorum_pb2.UpdateFeaturesResponse(
        error_code=f.error_to_wire(response.error),
        error_message=response.message,
        current_leader=f.leader_to_wire(response.leader),
    )


_MODES_TO_WIRE = {
    FormatMode.STANDALONE: quorum_pb2.STANDALONE,
    FormatMode.INITIAL_CONTROLLERS: quorum_pb2.INITIAL_CONTROLLERS,
    FormatMode.NO_INITIAL_CONTROLLERS: quorum_pb2.NO_INITIAL_CONTROLLERS,
}
_MODES_FROM_WIRE = {int(number): mode for mode, number in _MODES_TO_WIRE.items()}


def encode_format_request(request: FormatRequest) -> quorum_pb2.FormatRequest:
    return quorum_pb2.FormatRequest(
        cluster_id=request.cluster_id,
        mode=_MODES_TO_WIRE[request.mode],
        initial_controllers=[f.voter_to_wire(voter) for voter in request.initial_controllers],
        directory_id=f.directory_to_wire(request.directory_id),
    )


def decode_format_request(message: quorum_pb2.FormatRequest) -> FormatRequest:
    mode = _MODES_FROM_WIRE.get(int(message.mode))
    if mode is None:
        raise ViolationError(f"no format mode: {message.mode}")
    if not message.cluster_id:
        raise ViolationError("FormatRequest.cluster_id is empty")
    controllers = f.voters_from_wire(message.initial_controllers)
    if len({voter.id for voter in controllers}) != len(controllers):
        raise ViolationError("an id appears twice among the initial controllers")
    if bool(controllers) != (mode is FormatMode.INITIAL_CONTROLLERS):
        raise ViolationError(f"{len(controllers)} initial controllers with --{mode.value}")
    return FormatRequest(
        message.cluster_id, mode, controllers, f.directory_from_wire(message.directory_id)
    )


def encode_format_response(response: FormatResponse) -> quorum_pb2.FormatResponse:
    return quorum_pb2.FormatResponse(
        error_code=f.error_to_wire(response.error),
        error_message=response.message,
        cluster_id=response.cluster_id,
        directory_id=f.directory_to_wire(response.directory_id),
    )


def decode_format_response(message: quorum_pb2.FormatResponse) -> FormatResponse:
    return FormatResponse(
        f.error_from_wire(message.error_code),
        message.cluster_id,
        f.directory_from_wire(message.directory_id),
        message.error_message,
    )


def encode_node_status(status: NodeStatus) -> quorum_pb2.NodeStatusResponse:
    return quorum_pb2.NodeStatusResponse(
        node_id=status.node_id,
        cluster_id=status.cluster_id,
        directory_id=f.directory_to_wire(status.directory_id),
        formatted=status.formatted,
        state=status.state,
        epoch=status.epoch,
        leader_id=status.leader_id,
        high_watermark=f.known(status.high_watermark),
        log_end_offset=status.log_end_offset,
        log_start_offset=status.log_start_offset,
        is_voter=status.is_voter,
        ready=status.ready,
        version=status.version,
        pid=status.pid,
    )


def decode_node_status(message: quorum_pb2.NodeStatusResponse) -> NodeStatus:
    return NodeStatus(
        node_id=f.natural(message.node_id, "the node id"),
        formatted=message.formatted,
        cluster_id=message.cluster_id,
        directory_id=f.directory_from_wire(message.directory_id),
        state=message.state,
        epoch=f.natural(message.epoch, "the epoch"),
        leader_id=f.natural(message.leader_id, "the leader id")
        if message.HasField("leader_id")
        else None,
        high_watermark=f.high_watermark_from_wire(message),
        log_end_offset=f.natural(message.log_end_offset, "the log end offset"),
        log_start_offset=f.natural(message.log_start_offset, "the log start offset"),
        is_voter=message.is_voter,
        ready=message.ready,
        version=message.version,
        pid=message.pid,
    )


# --- the log --------------------------------------------------------------------------------------


def encode_read_request(request: ReadRequest) -> quorum_pb2.ReadRequest:
    return quorum_pb2.ReadRequest(
        from_offset=request.from_offset,
        max_records=request.max_records,
        linearizable=request.linearizable,
        include_control=request.include_control,
        timeout_ms=request.timeout_ms,
    )


def decode_read_request(message: quorum_pb2.ReadRequest) -> ReadRequest:
    return ReadRequest(
        f.natural(message.from_offset, "the offset to read from"),
        message.max_records if message.HasField("max_records") else None,
        message.linearizable if message.HasField("linearizable") else True,
        message.include_control,
        timeout_of(message, ASK_TIMEOUT_MS_MAX),
    )


def encode_read_chunk(chunk: ReadChunk) -> quorum_pb2.ReadResponse:
    return quorum_pb2.ReadResponse(
        error_code=f.error_to_wire(chunk.error),
        error_message=chunk.message,
        current_leader=f.leader_to_wire(chunk.leader),
        high_watermark=f.known(chunk.high_watermark),
        read_offset=f.known(chunk.read_offset),
        log_start_offset=chunk.log_start_offset,
        snapshot_id=f.position_to_wire(chunk.snapshot),
        records=bytes(chunk.records),
        last=chunk.last,
    )


def decode_read_chunk(message: quorum_pb2.ReadResponse) -> ReadChunk:
    error, leader, text = f.answer_from_wire(message)
    return ReadChunk(
        error=error,
        leader=leader,
        high_watermark=f.high_watermark_from_wire(message),
        read_offset=f.natural(message.read_offset, "the read offset")
        if message.HasField("read_offset")
        else -1,
        log_start_offset=f.natural(message.log_start_offset, "the log start offset"),
        snapshot=f.position_from_wire(message.snapshot_id, "the snapshot")
        if message.HasField("snapshot_id")
        else None,
        records=message.records,
        last=message.last,
        message=text,
    )
