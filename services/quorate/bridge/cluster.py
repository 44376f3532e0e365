"""Requests about the quorum, its features and brokers, from Kafka's form into Quorate's, and the
answers back.

Source: KIP-584, KIP-595 "DescribeQuorum", KIP-631 (UnregisterBroker), KIP-853 (directory ids).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from quorate.bridge import schemas as s
from quorate.bridge.topics import RefusedCallError
from quorate.metadata import requests as r
from quorate.raft.errors import ErrorCode
from quorate.raft.messages import (
    CurrentLeader,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ReplicaStatus,
)

TOPIC = "__cluster_metadata"
UPGRADE = 1
UNSAFE_DOWNGRADE = 3

# --- the quorum -----------------------------------------------------------------------------------


def describe_quorum(body: Any) -> DescribeQuorumRequest:
    named = [(t.topic_name, p.partition_index) for t in body.topics for p in t.partitions]
    if named != [(TOPIC, 0)]:
        raise RefusedCallError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"only {TOPIC} 0 is a quorum")
    # An empty name is any cluster: a broker has said in its Fetches which one it means.
    return DescribeQuorumRequest("")


def quorum_described(version: int, response: DescribeQuorumResponse) -> Any:
    module = s.response_module(s.DESCRIBE_QUORUM, version)
    if response.error is not ErrorCode.NONE:
        return s.make(
            module.DescribeQuorumResponse,
            error_code=s.error_field(response.error),
            error_message=response.message or None,
            topics=(),
            nodes=(),
        )
    partition = s.make(
        module.PartitionData,
        partition_index=0,
        error_code=s.error_field(ErrorCode.NONE),
        error_message=None,
        leader_id=-1 if response.leader.id is None else response.leader.id,
        leader_epoch=response.leader.epoch,
        high_watermark=response.high_watermark,
        current_voters=_replicas(module, response.voters),
        observers=_replicas(module, response.observers),
    )
    return s.make(
        module.DescribeQuorumResponse,
        error_code=s.error_field(ErrorCode.NONE),
        error_message=None,
        topics=(module.TopicData(topic_name=TOPIC, partitions=(partition,)),),
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


def no_quorum(_request: object, error: ErrorCode, text: str) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(error, CurrentLeader(0), message=text)


# --- features -------------------------------------------------------------------------------------


def update_features(body: Any) -> r.UpdateFeatures:
    return r.UpdateFeatures(
        tuple(
            r.FeatureUpdate(each.feature, each.max_version_level, _upgrade_type(each))
            for each in body.feature_updates
        ),
        getattr(body, "validate_only", False),
    )


def _upgrade_type(update: Any) -> int:
    if hasattr(update, "upgrade_type"):
        return int(update.upgrade_type)
    return UNSAFE_DOWNGRADE if update.allow_downgrade else UPGRADE


def features_updated(version: int, response: r.UpdateFeaturesResponse) -> Any:
    """All of them or none were, so one error speaks for all."""
    return s.make(
        s.response_type(s.UPDATE_FEATURES, version),
        throttle_time=s.milliseconds(),
        error_code=s.error_field(response.error),
        error_message=response.message or None,
        results=(),
    )


def no_features_updated(
    _request: r.UpdateFeatures, error: ErrorCode, text: str
) -> r.UpdateFeaturesResponse:
    return r.UpdateFeaturesResponse(error, text)


# --- brokers --------------------------------------------------------------------------------------


def unregister_broker(body: Any) -> r.UnregisterBroker:
    return r.UnregisterBroker(body.broker_id)


def broker_unregistered(version: int, response: r.UnregisterBrokerResponse) -> Any:
    return s.make(
        s.response_type(s.UNREGISTER_BROKER, version),
        throttle_time=s.milliseconds(),
        error_code=s.error_field(response.error),
        error_message=response.message or None,
    )


def no_broker_unregistered(
    _request: r.UnregisterBroker, error: ErrorCode, text: str
) -> r.UnregisterBrokerResponse:
    return r.UnregisterBrokerResponse(error, text)
