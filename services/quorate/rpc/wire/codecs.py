"""The codecs of the methods of Raft and Quorum: one entry for both ends.

The conversions are derived from the classes that `methods` names. This module adds the conversions
of the parts that all messages share, checks of values beyond their types, and the hand-written
conversions of `convert`. A stream's codec converts its single messages. The codecs of Metadata and
BrokerLifecycle are in `convert_metadata`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from google.protobuf.message import Message

from quorate.applications.sessions import EXPIRATION_MS_MAX, EXPIRATION_MS_MIN
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.features import VersionRange
from quorate.raft import messages as m
from quorate.raft.messages import CurrentLeader
from quorate.raft.types import OffsetAndEpoch, ReplicaKey, Voter, VoterSet
from quorate.rpc import fields as f
from quorate.rpc.wire import convert as c
from quorate.rpc.wire import values as v
from quorate.rpc.wire.codec import NO_LEADER, Codec, MessageCodec, Rules, TypeConversion
from quorate.rpc.wire.limits import ASK_TIMEOUT_MS_MAX, CHANGE_TIMEOUT_MS_MAX
from quorate.rpc.wire.methods import RPC_METHODS, RpcMethod
from quorate.v1 import quorum_pb2

# --- checks ---------------------------------------------------------------------------------------


def _limit_timeout(limit_ms: int) -> Callable[[Any], Any]:
    """A check that the sender's timeout is positive, which reduces it to `limit_ms`."""

    def check(request: Any) -> Any:
        if request.timeout_ms <= 0:
            raise ValueError(f"timeout_ms is {request.timeout_ms}")
        if request.timeout_ms <= limit_ms:
            return request
        return replace(request, timeout_ms=limit_ms)

    return check


def _check_end_quorum_epoch(request: m.EndQuorumEpochRequest) -> m.EndQuorumEpochRequest:
    if len(request.preferred_candidates) > f.VOTERS_MAX:
        raise ValueError(f"preferred_candidates: {len(request.preferred_candidates)} are too many")
    return request


def _check_update_features(request: v.UpdateFeaturesRequest) -> v.UpdateFeaturesRequest:
    if not request.feature:
        raise ValueError("feature is empty")
    limited: v.UpdateFeaturesRequest = _limit_timeout(CHANGE_TIMEOUT_MS_MAX)(request)
    return limited


def _check_open_producer(request: v.OpenProducerRequest) -> v.OpenProducerRequest:
    if request.expiration_ms < EXPIRATION_MS_MIN:
        raise ValueError(f"expiration_ms is {request.expiration_ms}")
    limited: v.OpenProducerRequest = _limit_timeout(ASK_TIMEOUT_MS_MAX)(request)
    return replace(limited, expiration_ms=min(request.expiration_ms, EXPIRATION_MS_MAX))


def _check_format(request: v.FormatRequest) -> v.FormatRequest:
    controllers = request.initial_controllers
    if not request.cluster_id:
        raise ValueError("cluster_id is empty")
    if len({voter.id for voter in controllers}) != len(controllers):
        raise ValueError("initial_controllers: an id appears twice")
    if bool(controllers) != (request.mode is v.FormatMode.INITIAL_CONTROLLERS):
        raise ValueError(
            f"initial_controllers: {len(controllers)} given with --{request.mode.value}"
        )
    return request


# --- types ----------------------------------------------------------------------------------------

_MODES_TO_WIRE: Final = {
    v.FormatMode.STANDALONE: quorum_pb2.STANDALONE,
    v.FormatMode.INITIAL_CONTROLLERS: quorum_pb2.INITIAL_CONTROLLERS,
    v.FormatMode.NO_INITIAL_CONTROLLERS: quorum_pb2.NO_INITIAL_CONTROLLERS,
}
_MODES_FROM_WIRE: Final = {int(number): mode for mode, number in _MODES_TO_WIRE.items()}


def _mode_from_wire(number: int) -> v.FormatMode:
    mode = _MODES_FROM_WIRE.get(number)
    if mode is None:
        raise ValueError(f"{number} is not a format mode")
    return mode


def _upgrade_type_from_wire(number: int) -> v.UpgradeType:
    try:
        return v.UpgradeType(number or v.UpgradeType.UPGRADE)
    except ValueError:
        raise ValueError(f"{number} is not an upgrade type") from None


RULES: Final = Rules(
    conversions={
        ReplicaKey: TypeConversion(f.key_to_wire, f.key_from_wire),
        CurrentLeader: TypeConversion(f.leader_to_wire, f.leader_from_wire, may_be_absent=True),
        OffsetAndEpoch: TypeConversion(
            f.position_to_wire, lambda message: f.position_from_wire(message, "the position")
        ),
        VersionRange: TypeConversion(f.range_to_wire, f.range_from_wire, may_be_absent=True),
        Voter: TypeConversion(f.voter_to_wire, f.voter_from_wire),
        VoterSet: TypeConversion(f.voters_to_wire, f.voter_set_from_wire, is_list=True),
        tuple[Voter, ...]: TypeConversion(f.voters_to_wire, f.voters_from_wire, is_list=True),
        tuple[Endpoint, ...]: TypeConversion(
            f.endpoints_to_wire, f.endpoints_from_wire, is_list=True
        ),
        v.FormatMode: TypeConversion(_MODES_TO_WIRE.__getitem__, _mode_from_wire),
        v.UpgradeType: TypeConversion(int, _upgrade_type_from_wire),
        v.Buffer: TypeConversion(bytes, None),
    },
    checks={
        m.AddVoterRequest: _limit_timeout(CHANGE_TIMEOUT_MS_MAX),
        m.RemoveVoterRequest: _limit_timeout(CHANGE_TIMEOUT_MS_MAX),
        m.TransferLeadershipRequest: _limit_timeout(ASK_TIMEOUT_MS_MAX),
        v.ReadRequest: _limit_timeout(ASK_TIMEOUT_MS_MAX),
        v.UpdateFeaturesRequest: _check_update_features,
        m.EndQuorumEpochRequest: _check_end_quorum_epoch,
        v.FormatRequest: _check_format,
        v.OpenProducerRequest: _check_open_producer,
    },
    are_numbers_natural=True,
)


# --- the table ------------------------------------------------------------------------------------

_HANDWRITTEN: Final = {
    m.FetchRequest: (c.encode_fetch_request, c.decode_fetch_request),
    m.FetchResponse: (c.encode_fetch_response, c.decode_fetch_response),
    m.ApiVersionsResponse: (c.encode_api_versions_response, c.decode_api_versions_response),
}
_NEEDED_IN_REFUSALS: Final[dict[type, dict[str, Any]]] = {
    m.ApiVersionsResponse: {"replica": None, "kraft_version": VersionRange(0, 0)},
    v.ReadChunk: {"last": True},
}


def _conversions(value_type: type, message_type: type[Message]) -> tuple[Any, Any]:
    if value_type in _HANDWRITTEN:
        return _HANDWRITTEN[value_type]
    codec: MessageCodec[Any, Any] = MessageCodec(value_type, message_type, RULES)
    return codec.encode, codec.decode


def _refusing(response_type: type) -> Callable[[ErrorCode, str], Any] | None:
    names = {field.name for field in dataclasses.fields(response_type)}
    if "error" not in names:
        return None
    needed = dict(_NEEDED_IN_REFUSALS.get(response_type, ()))
    if "leader" in names:
        needed["leader"] = NO_LEADER
    return lambda error, text: response_type(error=error, message=text, **needed)


def _codec(method: RpcMethod, request_type: type, response_type: type) -> Codec:
    return Codec(
        method,
        *_conversions(request_type, method.request),
        *_conversions(response_type, method.response),
        _refusing(response_type),
    )


CODECS: Final[dict[str, Codec]] = {
    name: _codec(method, *method.values)
    for name, method in RPC_METHODS.items()
    if method.values is not None and not method.is_metadata
}
"""By method name. Appends have `convert_append`."""

CODEC_OF: Final[dict[type, Codec]] = {
    codec.method.values[0]: codec
    for codec in CODECS.values()
    if codec.method.values is not None and not codec.method.streams_requests
}
"""By request class, for methods that take a single request."""
