"""Requests about topics and partitions: conversion from Kafka's messages.

The responses are converted back.

Source: KIP-4, KIP-195, KIP-455, KIP-460, KIP-516 (topic ids).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from quorate.bridge.messages import schemas as s
from quorate.bridge.requests.descriptions import ConfigDescription, effective_topic_configs
from quorate.common.error_codes import ErrorCode
from quorate.metadata import requests as r

OwnConfigs = tuple[tuple[str, str | None], ...]
"""The configs of a topic itself, as names and values."""

# --- CreateTopics ---------------------------------------------------------------------------------


def decode_create_topics(body: Any) -> r.CreateTopics:
    return r.CreateTopics(
        tuple(
            r.NewTopic(
                topic.name,
                topic.num_partitions,
                topic.replication_factor,
                _assignments(topic),
                tuple((config.name, config.value) for config in topic.configs),
                tuple(each.partition_index for each in topic.assignments),
            )
            for topic in body.topics
        ),
        body.validate_only,
    )


def _assignments(topic: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(each.broker_ids) for each in topic.assignments)


@dataclass(frozen=True, slots=True)
class DescribedCreation:
    """A response with the effective configs of the new topics (KIP-525)."""

    response: r.CreateTopicsResponse
    by_own: Mapping[OwnConfigs, tuple[ConfigDescription, ...]]
    """The effective configs, by the topic's own ones: many topics of a request have the same."""
    hidden: frozenset[str]
    """The names of new topics whose configs the caller may not describe."""


def describe_creation(
    response: r.CreateTopicsResponse,
    defaults: Mapping[str, str],
    may_describe: Callable[[str], bool],
) -> DescribedCreation:
    """Add the configs. defaults: the cluster-wide values of brokers' configs. may_describe: whether
    the caller may describe the configs of the topic with a name.
    """
    new = [topic for topic in response.topics if topic.error is ErrorCode.NONE]
    hidden = frozenset(topic.name for topic in new if not may_describe(topic.name))
    own = {topic.configs for topic in new if topic.name not in hidden}
    by_own = {each: effective_topic_configs(each, defaults) for each in own}
    return DescribedCreation(response, by_own, hidden)


def encode_create_topics_response(
    module: Any, response: r.CreateTopicsResponse | DescribedCreation
) -> Any:
    if isinstance(response, r.CreateTopicsResponse):
        return s.answer(module, topics=tuple(_created(module, each) for each in response.topics))
    configs: dict[OwnConfigs, tuple[Any, ...]] = {}
    if hasattr(module, "CreatableTopicConfigs"):
        for own, described in response.by_own.items():
            configs[own] = tuple(_created_config(module, config) for config in described)
    return s.answer(
        module,
        topics=tuple(
            _created(
                module,
                topic,
                configs.get(topic.configs, ()) if topic.error is ErrorCode.NONE else (),
                is_hidden=topic.error is ErrorCode.NONE and topic.name in response.hidden,
            )
            for topic in response.response.topics
        ),
    )


def _created(
    module: Any,
    topic: r.CreatedTopic,
    configs: tuple[Any, ...] = (),
    *,
    is_hidden: bool = False,
) -> Any:
    """Convert one result. Of a hidden topic, only the name and the id are in the response."""
    hidden = ErrorCode.TOPIC_AUTHORIZATION_FAILED if is_hidden else ErrorCode.NONE
    return s.make(
        module.CreatableTopicResult,
        name=topic.name,
        topic_id=s.uuid_field(topic.topic_id),
        **s.outcome(topic),
        topic_config_error_code=s.error_field(hidden),
        num_partitions=-1 if is_hidden else topic.partitions,
        replication_factor=-1 if is_hidden else topic.replication_factor,
        configs=() if is_hidden else configs,
    )


def _created_config(module: Any, config: ConfigDescription) -> Any:
    _, value, source = config.synonyms[0]
    return module.CreatableTopicConfigs(
        name=config.name,
        value=value,
        read_only=False,
        config_source=source,
        is_sensitive=config.is_sensitive,
    )


def create_topics_error_response(
    request: r.CreateTopics, error: ErrorCode, text: str
) -> r.CreateTopicsResponse:
    return r.CreateTopicsResponse(
        tuple(r.CreatedTopic(t.name, error, text) for t in request.topics)
    )


# --- DeleteTopics ---------------------------------------------------------------------------------


def decode_delete_topics(body: Any) -> r.DeleteTopics:
    if hasattr(body, "topic_names"):
        return r.DeleteTopics(tuple(map(r.TopicRef, body.topic_names)))
    return r.DeleteTopics(
        tuple(r.TopicRef(topic.name or "", s.uuid_text(topic.topic_id)) for topic in body.topics)
    )


def encode_delete_topics_response(module: Any, response: r.DeleteTopicsResponse) -> Any:
    return s.answer(
        module,
        responses=tuple(
            s.make(
                module.DeletableTopicResult,
                name=topic.name or None,
                topic_id=s.uuid_field(topic.topic_id),
                **s.outcome(topic),
            )
            for topic in response.topics
        ),
    )


def delete_topics_error_response(
    request: r.DeleteTopics, error: ErrorCode, text: str
) -> r.DeleteTopicsResponse:
    return r.DeleteTopicsResponse(
        tuple(r.DeletedTopic(t.name, t.topic_id, error, text) for t in request.topics)
    )


# --- CreatePartitions -----------------------------------------------------------------------------


def decode_create_partitions(body: Any) -> r.CreatePartitions:
    return r.CreatePartitions(
        tuple(
            r.NewPartitions(
                topic.name,
                topic.count,
                None
                if topic.assignments is None
                else tuple(tuple(each.broker_ids) for each in topic.assignments),
            )
            for topic in body.topics
        ),
        body.validate_only,
    )


def encode_create_partitions_response(module: Any, response: r.CreatePartitionsResponse) -> Any:
    return s.answer(
        module,
        results=tuple(
            s.make(
                module.CreatePartitionsTopicResult,
                name=topic.name,
                **_error_fields(topic),
            )
            for topic in response.topics
        ),
    )


def _error_fields(topic: r.PartResult) -> dict[str, Any]:
    """The error fields. Kafka's have no text for an unknown topic."""
    if topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return s.error_fields(topic.error)
    return s.outcome(topic)


def create_partitions_error_response(
    request: r.CreatePartitions, error: ErrorCode, text: str
) -> r.CreatePartitionsResponse:
    return r.CreatePartitionsResponse(
        tuple(r.PartResult(topic.name, error, text) for topic in request.topics)
    )


# --- ElectLeaders ---------------------------------------------------------------------------------


def decode_elect_leaders(body: Any) -> r.ElectLeaders:
    return r.ElectLeaders(
        getattr(body, "election_type", 0),
        None
        if body.topic_partitions is None
        else tuple((t.topic, index) for t in body.topic_partitions for index in t.partitions),
    )


def encode_elect_leaders_response(module: Any, response: r.ElectLeadersResponse) -> Any:
    return s.answer(
        module,
        **s.outcome(response),
        replica_election_results=tuple(
            module.ReplicaElectionResult(
                topic=topic,
                partition_result=tuple(
                    s.make(module.PartitionResult, partition_id=p.partition, **s.outcome(p))
                    for p in partitions
                ),
            )
            for topic, partitions in _by_topic(response.partitions)
        ),
    )


def elect_leaders_error_response(
    request: r.ElectLeaders, error: ErrorCode, text: str
) -> r.ElectLeadersResponse:
    wanted = request.partitions or ()
    return r.ElectLeadersResponse(
        tuple(r.PartitionOutcome(*key, error=error, message=text) for key in wanted),
        error=error,
        message=text,
    )


# --- reassignments --------------------------------------------------------------------------------


def decode_alter_reassignments(body: Any) -> r.AlterPartitionReassignments:
    return r.AlterPartitionReassignments(
        tuple(
            r.Reassignment(
                topic.name, p.partition_index, None if p.replicas is None else tuple(p.replicas)
            )
            for topic in body.topics
            for p in topic.partitions
        ),
        getattr(body, "allow_replication_factor_change", True),
    )


def encode_alter_reassignments_response(
    module: Any, response: r.AlterPartitionReassignmentsResponse
) -> Any:
    return s.answer(
        module,
        allow_replication_factor_change=response.allow_replication_factor_change,
        **s.outcome(response),
        responses=tuple(
            module.ReassignableTopicResponse(
                name=topic,
                partitions=tuple(
                    module.ReassignablePartitionResponse(
                        partition_index=p.partition, **s.outcome(p)
                    )
                    for p in partitions
                ),
            )
            for topic, partitions in _by_topic(response.partitions)
        ),
    )


def alter_reassignments_error_response(
    _request: r.AlterPartitionReassignments, error: ErrorCode, text: str
) -> r.AlterPartitionReassignmentsResponse:
    return r.AlterPartitionReassignmentsResponse((), error=error, message=text)


def decode_list_reassignments(body: Any) -> r.ListPartitionReassignments:
    return r.ListPartitionReassignments(
        None
        if body.topics is None
        else tuple((t.name, index) for t in body.topics for index in t.partition_indexes)
    )


def encode_list_reassignments_response(module: Any, response: Any) -> Any:
    """Convert the response. `Refused` has an error and no reassignments."""
    is_list = isinstance(response, r.ListPartitionReassignmentsResponse)
    found = response.reassignments if is_list else ()
    return s.answer(
        module,
        **(s.error_fields(ErrorCode.NONE) if is_list else s.outcome(response)),
        topics=tuple(
            module.OngoingTopicReassignment(
                name=topic,
                partitions=tuple(
                    module.OngoingPartitionReassignment(
                        partition_index=p.partition,
                        replicas=p.replicas,
                        adding_replicas=p.adding_replicas,
                        removing_replicas=p.removing_replicas,
                    )
                    for p in partitions
                ),
            )
            for topic, partitions in _by_topic(found)
        ),
    )


def _by_topic(parts: Iterable[Any]) -> list[tuple[str, list[Any]]]:
    ordered = sorted(parts, key=lambda part: (part.topic, part.partition))
    return [(topic, list(found)) for topic, found in groupby(ordered, lambda part: part.topic)]
