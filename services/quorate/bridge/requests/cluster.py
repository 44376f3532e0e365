"""Requests about the quorum, its controllers, features and brokers: conversion from Kafka's
messages.

The responses are converted back.

Source: KIP-584, KIP-595 "DescribeQuorum", KIP-631 (UnregisterBroker), KIP-853 (directory ids,
AddRaftVoter, RemoveRaftVoter), KIP-919 (DescribeCluster); Kafka's AuthHelper.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from quorate.bridge.messages import schemas as s
from quorate.bridge.requests.exchange import RefusedCallError
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.log.offset_files import METADATA_PARTITION, METADATA_TOPIC
from quorate.metadata import requests as r
from quorate.metadata.authorizer import Operation
from quorate.raft.messages import (
    AddVoterRequest,
    AdminResponse,
    CurrentLeader,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RemoveVoterRequest,
    ReplicaStatus,
)
from quorate.raft.types import ReplicaKey
from quorate.rpc.fields import ENDPOINT_CHARS_MAX, ENDPOINTS_MAX
from quorate.rpc.wire.limits import CHANGE_TIMEOUT_MS_MAX

UPGRADE = 1

# --- the quorum -----------------------------------------------------------------------------------


def decode_describe_quorum(body: Any) -> DescribeQuorumRequest:
    named = [(t.topic_name, p.partition_index) for t in body.topics for p in t.partitions]
    if named != [(METADATA_TOPIC, METADATA_PARTITION)]:
        raise RefusedCallError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"only {METADATA_TOPIC}-{METADATA_PARTITION} is a quorum",
        )
    # Kafka's request has no cluster id (brokers send it in Fetch); an empty one matches any.
    return DescribeQuorumRequest("")


def encode_describe_quorum_response(module: Any, response: DescribeQuorumResponse) -> Any:
    if response.error is not ErrorCode.NONE:
        return s.answer(module, **s.outcome(response), topics=(), nodes=())
    partition = s.make(
        module.PartitionData,
        partition_index=METADATA_PARTITION,
        **s.error_fields(ErrorCode.NONE),
        leader_id=-1 if response.leader.id is None else response.leader.id,
        leader_epoch=response.leader.epoch,
        high_watermark=response.high_watermark,
        current_voters=_replicas(module, response.voters),
        observers=_replicas(module, response.observers),
    )
    return s.answer(
        module,
        **s.outcome(response),
        topics=(module.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),),
        nodes=tuple(
            module.Node(
                node_id=voter.id,
                listeners=tuple(
                    module.Listener(name=e.name, host=e.host, port=e.port) for e in voter.endpoints
                ),
            )
            for voter in response.voter_set
        )
        if hasattr(module, "Node")
        else (),
    )


def _replicas(module: Any, found: Iterable[ReplicaStatus]) -> tuple[Any, ...]:
    return tuple(
        s.make(
            module.ReplicaState,
            replica_id=each.replica.id,
            replica_directory_id=s.uuid_field(each.replica.directory_id or ""),
            log_end_offset=each.log_end_offset,
            last_fetch_timestamp=each.last_fetch_ms,
            last_caught_up_timestamp=each.last_caught_up_ms,
        )
        for each in found
    )


def describe_quorum_error_response(
    _request: object, error: ErrorCode, text: str
) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(error, CurrentLeader(0), message=text)


# --- voters ---------------------------------------------------------------------------------------


def decode_add_voter(body: Any) -> AddVoterRequest:
    endpoints = tuple(Endpoint(each.name, each.host, each.port) for each in body.listeners)
    if fault := _endpoints_fault(endpoints):
        raise RefusedCallError(ErrorCode.INVALID_REQUEST, fault)
    return AddVoterRequest(
        body.cluster_id or "",
        _voter(body),
        endpoints,
        min(max(1, body.timeout // s.milliseconds(1)), CHANGE_TIMEOUT_MS_MAX),
        getattr(body, "ack_when_committed", True),
    )


def _endpoints_fault(endpoints: tuple[Endpoint, ...]) -> str:
    """Why a voter may not have these endpoints, or "". The limits are those of AddVoter."""
    if len(endpoints) > ENDPOINTS_MAX:
        return f"{len(endpoints)} endpoints: at most {ENDPOINTS_MAX} are allowed"
    for each in endpoints:
        if not each.host or each.port == 0:
            return f"endpoint {each.name!r} has no host or no port"
        if max(len(each.name), len(each.host)) > ENDPOINT_CHARS_MAX:
            return f"an endpoint's name and host may have {ENDPOINT_CHARS_MAX} characters each"
    return ""


def decode_remove_voter(body: Any) -> RemoveVoterRequest:
    return RemoveVoterRequest(body.cluster_id or "", _voter(body))


def _voter(body: Any) -> ReplicaKey:
    if body.voter_id < 0:
        raise RefusedCallError(ErrorCode.INVALID_REQUEST, f"the voter's id is {body.voter_id}")
    directory = body.voter_directory_id
    return ReplicaKey(body.voter_id, None if directory is None else s.uuid_text(directory))


def encode_voter_change_response(module: Any, response: AdminResponse) -> Any:
    return s.answer(module, **s.outcome(response))


def voter_change_error_response(_request: object, error: ErrorCode, text: str) -> AdminResponse:
    return AdminResponse(error, CurrentLeader(0), text)


# --- the controllers ------------------------------------------------------------------------------

BROKERS, CONTROLLERS = 1, 2
"""The types of endpoints (KIP-919)."""
MISMATCHED_ENDPOINT_TYPE, UNSUPPORTED_ENDPOINT_TYPE = 114, 115
"""Kafka's error codes that only DescribeCluster has."""
NO_OPERATIONS: Final = -(1 << 31)
"""Stands for operations that were not requested."""


@dataclass(frozen=True, slots=True)
class DescribeControllers:
    """A DescribeCluster request."""

    with_operations: bool
    refusal: tuple[int, str] | None = None
    """The error code and message if the request is not about controllers, else None."""


@dataclass(frozen=True, slots=True)
class ControllersDescription:
    """The response to DescribeCluster."""

    error: int
    """Kafka's error code."""
    message: str
    cluster_id: str = ""
    leader_id: int = -1
    controllers: tuple[tuple[int, Endpoint], ...] = ()
    operations: tuple[Operation, ...] | None = None
    """The operations on the cluster that the caller is allowed; None if they were not requested."""


def decode_describe_cluster(body: Any) -> DescribeControllers:
    wanted = getattr(body, "endpoint_type", BROKERS)
    refusal: tuple[int, str] | None = None
    mismatched = (
        "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type "
        "BROKER"
    )
    if wanted not in (BROKERS, CONTROLLERS):
        refusal = UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {wanted}"
    elif wanted == BROKERS:
        refusal = MISMATCHED_ENDPOINT_TYPE, mismatched
    if refusal is not None and body.__version__ == 0:
        refusal = int(ErrorCode.INVALID_REQUEST), refusal[1]
    return DescribeControllers(body.include_cluster_authorized_operations, refusal)


def encode_describe_cluster_response(module: Any, response: ControllersDescription) -> Any:
    operations = response.operations
    return s.answer(
        module,
        error_code=s.code_field(response.error),
        error_message=response.message or None,
        endpoint_type=CONTROLLERS if response.error == 0 else BROKERS,
        cluster_id=response.cluster_id if response.error == 0 else "",
        controller_id=response.leader_id,
        brokers=tuple(
            s.make(
                module.DescribeClusterBroker,
                broker_id=node_id,
                host=endpoint.host,
                port=endpoint.port,
                rack=None,
                is_fenced=False,
            )
            for node_id, endpoint in response.controllers
        ),
        cluster_authorized_operations=(
            NO_OPERATIONS if operations is None else sum(1 << each for each in operations)
        ),
    )


def describe_cluster_error_response(
    _request: object, error: ErrorCode, text: str
) -> ControllersDescription:
    return ControllersDescription(int(error), text)


# --- features -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FeaturesUpdate(r.UpdateFeaturesResponse):
    """The response with the names of the features, which the versions below 2 repeat."""

    names: tuple[str, ...] = ()


def decode_update_features(body: Any) -> r.UpdateFeatures:
    updates = tuple(
        r.FeatureUpdate(each.feature, each.max_version_level, _upgrade_type(each))
        for each in body.feature_updates
    )
    return r.UpdateFeatures(updates, getattr(body, "validate_only", False))


def _upgrade_type(update: Any) -> int:
    """Version 0 has only a flag that allows downgrades, which Kafka's controllers ignore."""
    return int(getattr(update, "upgrade_type", UPGRADE))


def encode_update_features_response(module: Any, response: FeaturesUpdate) -> Any:
    """One error covers all features. Versions below 2 repeat the success for each of them."""
    names = response.names if response.error is ErrorCode.NONE else ()
    results: tuple[Any, ...] = ()
    if hasattr(module, "UpdatableFeatureResult"):
        results = tuple(
            module.UpdatableFeatureResult(feature=name, **s.error_fields(ErrorCode.NONE, "NONE"))
            for name in names
        )
    return s.answer(module, **s.outcome(response), results=results)


def update_features_error_response(_request: object, error: ErrorCode, text: str) -> FeaturesUpdate:
    return FeaturesUpdate(error=error, message=text)


# --- brokers --------------------------------------------------------------------------------------


def decode_unregister_broker(body: Any) -> r.UnregisterBroker:
    return r.UnregisterBroker(body.broker_id)


def encode_unregister_broker_response(module: Any, response: r.UnregisterBrokerResponse) -> Any:
    return s.answer(module, **s.spoken(response))
