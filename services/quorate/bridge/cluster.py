"""Requests about the quorum, its features and brokers: conversion from Kafka's messages.

The responses are converted back.

Source: KIP-584, KIP-595 "DescribeQuorum", KIP-631 (UnregisterBroker), KIP-853 (directory ids).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from quorate.bridge import schemas as s
from quorate.bridge.exchange import RefusedCallError
from quorate.log.offset_files import METADATA_PARTITION, METADATA_TOPIC
from quorate.metadata import requests as r
from quorate.raft.errors import ErrorCode
from quorate.raft.messages import (
    CurrentLeader,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ReplicaStatus,
)

UPGRADE = 1
UNSAFE_DOWNGRADE = 3

# --- the quorum -----------------------------------------------------------------------------------


def describe_quorum(body: Any) -> DescribeQuorumRequest:
    named = [(t.topic_name, p.partition_index) for t in body.topics for p in t.partitions]
    if named != [(METADATA_TOPIC, METADATA_PARTITION)]:
        raise RefusedCallError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"only {METADATA_TOPIC}-{METADATA_PARTITION} is a quorum",
        )
    # Kafka's request has no cluster id (brokers send it in Fetch); an empty one matches any.
    return DescribeQuorumRequest("")


def quorum_described(module: Any, response: DescribeQuorumResponse) -> Any:
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


def features_updated(module: Any, response: r.UpdateFeaturesResponse) -> Any:
    """The update is atomic, so one error covers all features."""
    return s.answer(module, **s.outcome(response), results=())


# --- brokers --------------------------------------------------------------------------------------


def unregister_broker(body: Any) -> r.UnregisterBroker:
    return r.UnregisterBroker(body.broker_id)


def broker_unregistered(module: Any, response: r.UnregisterBrokerResponse) -> Any:
    return s.answer(module, **s.outcome(response))
