"""Creating and deleting topics, and adding partitions.

Each topic of a request succeeds or fails on its own, except that the records of all topics share
one batch, which has a limit (POLICY_VIOLATION).

Source: KIP-4, KIP-195, KIP-516 (ids), KIP-599 (quotas), KIP-841 (only active replicas start in an
ISR), KIP-1066.
"""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quorate.common.error_codes import ErrorCode
from quorate.common.identifiers import ZERO_UUID, uuid_from_bytes
from quorate.metadata.image.cluster import takes_replicas
from quorate.metadata.image.partitions import RECOVERED
from quorate.metadata.limits import collision_key, topic_name_fault
from quorate.metadata.managers.config_manager import topic_config_records
from quorate.metadata.managers.controller_context import (
    ControllerContext,
    RefusedError,
    RequestBatch,
)
from quorate.metadata.managers.placement import Placement, UsableBroker
from quorate.metadata.metadata_version import DIRECTORIES, partition_version
from quorate.metadata.requests import (
    DEFAULT_COUNT,
    CreatedTopic,
    CreatePartitions,
    CreatePartitionsResponse,
    CreateTopics,
    CreateTopicsResponse,
    DeletedTopic,
    DeleteTopics,
    DeleteTopicsResponse,
    MutationQuota,
    NewPartitions,
    NewTopic,
    PartResult,
    TopicRef,
)
from quorate.records.metadata import (
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

METADATA_TOPIC = "__cluster_metadata"
"""Brokers would keep it where the log of the metadata is."""

Assignments = Sequence[tuple[int, ...]]


@dataclass(slots=True)
class _TopicBatch(RequestBatch):
    """The batch of a request."""

    placement: Placement | None = None
    """The placement of the new partitions, None before the first."""


def _take(quota: MutationQuota | None, partitions: int) -> None:
    """Count these partitions against the client's quota. THROTTLING_QUOTA_EXCEEDED."""
    if quota is not None and not quota.take(partitions):
        raise RefusedError(
            ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded."
        )


# --- create ---------------------------------------------------------------------------------------


def create_topics(
    context: ControllerContext, request: CreateTopics
) -> tuple[list[MetadataRecord], CreateTopicsResponse]:
    times = Counter(topic.name for topic in request.topics)
    collisions: ChainMap[str, str] = ChainMap({}, context.colliding)
    batch = _TopicBatch(context.settings)
    created = []
    for topic in {topic.name: topic for topic in request.topics}.values():
        try:
            if times[topic.name] > 1:
                raise RefusedError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            made, answer = _created(context, topic, collisions, batch, request.mutation_quota)
            batch.add(made)
            collisions[collision_key(topic.name)] = topic.name
        except RefusedError as refused:
            answer = CreatedTopic(topic.name, refused.error, refused.message)
        created.append(answer)
    records = [] if request.validate_only else batch.records
    return records, CreateTopicsResponse(tuple(created))


def _created(
    context: ControllerContext,
    topic: NewTopic,
    collisions: Mapping[str, str],
    batch: _TopicBatch,
    quota: MutationQuota | None,
) -> tuple[list[MetadataRecord], CreatedTopic]:
    if topic.name == METADATA_TOPIC:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST, f"Creation of internal topic {topic.name} is prohibited."
        )
    fault = topic_name_fault(topic.name)
    if fault is not None:
        raise RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {fault}")
    if topic.name in context.image.topics.ids:
        raise RefusedError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    other = collisions.get(collision_key(topic.name))
    if other is not None:
        raise RefusedError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{topic.name}' collides with existing topic: {other}",
        )
    configs = topic_config_records(context, topic.name, topic.configs)
    assignments = _assignments(context, topic, batch, others=1 + len(configs))
    _take(quota, len(assignments))
    topic_id = _new_id(context)
    records: list[MetadataRecord] = [TopicRecord(topic.name, topic_id, version=0), *configs]
    records += [
        new_partition(context, topic_id, number, replicas)
        for number, replicas in enumerate(assignments)
    ]
    return records, CreatedTopic(
        topic.name,
        topic_id=topic_id,
        partitions=len(assignments),
        replication_factor=len(assignments[0]),
        configs=topic.configs,
    )


def _new_id(context: ControllerContext) -> str:
    """A new topic id without a leading dash, which Kafka's tools would parse as an option."""
    while True:
        text = uuid_from_bytes(context.random_uuid())
        if (
            text[0] != "-"
            and text[:21] != ZERO_UUID[:21]
            and text not in context.image.topics.names
        ):
            return text


def _assignments(
    context: ControllerContext, topic: NewTopic, batch: _TopicBatch, others: int
) -> Assignments:
    if topic.assignments:
        for count, name in (
            (topic.replication_factor, "replication factor"),
            (topic.partitions, "numPartitions"),
        ):
            if count != DEFAULT_COUNT:
                raise RefusedError(
                    ErrorCode.INVALID_REQUEST,
                    f"A manual partition assignment was specified, but {name} was not set to -1.",
                )
        return _manual_assignments(context, topic)
    partitions, factor = topic.partitions, topic.replication_factor
    if factor < DEFAULT_COUNT or factor == 0:
        raise RefusedError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if partitions < DEFAULT_COUNT or partitions == 0:
        raise RefusedError(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    partitions = context.settings.num_partitions if partitions == DEFAULT_COUNT else partitions
    if factor == DEFAULT_COUNT:
        factor = context.settings.default_replication_factor
    try:
        return _placed(context, partitions, factor, batch, others)
    except RefusedError as refused:
        if refused.error is ErrorCode.INVALID_REPLICATION_FACTOR:
            text = f"Unable to replicate the partition {factor} time(s): {refused.message}"
            raise RefusedError(refused.error, text) from None
        raise


def _manual_assignments(context: ControllerContext, topic: NewTopic) -> Assignments:
    """The assignments in the order of the partitions, which must be 0, 1, 2 and so on."""
    numbers = topic.partition_numbers or tuple(range(len(topic.assignments)))
    by_number: dict[int, tuple[int, ...]] = {}
    for number, replicas in zip(numbers, topic.assignments, strict=True):
        if number in by_number:
            raise RefusedError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {number}",
            )
        factor = next((len(each) for each in by_number.values()), None)
        _check_assignment(context, number, replicas, factor)
        by_number[number] = replicas
    if sorted(by_number) != list(range(len(by_number))):
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return [by_number[number] for number in sorted(by_number)]


def _placed(
    context: ControllerContext, partitions: int, factor: int, batch: _TopicBatch, others: int = 0
) -> Assignments:
    batch.require_room(partitions, factor, others)
    if batch.placement is None:
        batch.placement = Placement(
            [
                UsableBroker(
                    broker.broker_id, broker.rack, context.image.cluster.is_active(broker.broker_id)
                )
                for broker in context.image.cluster.brokers.values()
                if takes_replicas(broker)
            ]
        )
    placed = batch.placement.place(partitions, factor, context.cursor)
    context.cursor += partitions
    return placed


def checked_assignments(
    context: ControllerContext, assignments: Assignments, factor: int, first: int
) -> Assignments:
    """The assignments; INVALID_REPLICA_ASSIGNMENT if one is invalid or has no active broker."""
    for number, replicas in enumerate(assignments, first):
        _check_assignment(context, number, replicas, factor)
        factor = len(replicas)
    return assignments


def _check_assignment(
    context: ControllerContext, number: int, replicas: tuple[int, ...], factor: int | None
) -> None:
    check_replicas(context, replicas, factor)
    if not any(context.image.cluster.is_active(broker) for broker in replicas):
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "All brokers specified in the manual partition assignment for partition "
            f"{number} are fenced or in controlled shutdown.",
        )


def check_replicas(
    context: ControllerContext, replicas: tuple[int, ...], factor: int | None
) -> None:
    """Require `factor` distinct registered brokers, else raise INVALID_REPLICA_ASSIGNMENT."""
    message = "" if replicas else "includes an empty replica list."
    before = None
    for broker in sorted(replicas):
        if message:
            break
        if broker not in context.image.cluster.brokers:
            message = f"includes broker {broker}, but no such broker is registered."
        elif broker == before:
            message = f"includes the broker {broker} more than once."
        before = broker
    if not message and factor is not None and len(replicas) != factor:
        message = (
            f"includes a partition with {len(replicas)} replica(s), but this is not consistent "
            f"with previous partitions, which have {factor} replica(s)."
        )
    if message:
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment {message}"
        )


def new_partition(
    context: ControllerContext, topic_id: str, number: int, replicas: tuple[int, ...]
) -> MetadataRecord:
    """The record of a new partition: the active replicas form the ISR, and the first one leads."""
    isr = tuple(broker for broker in replicas if context.image.cluster.is_active(broker))
    assert isr, "placement gives each partition an active broker"
    level = context.image.level
    return PartitionRecord(
        number,
        topic_id,
        replicas,
        isr,
        (),
        (),
        isr[0],
        RECOVERED,
        0,
        0,
        tuple(map(context.directory_of, replicas)) if level >= DIRECTORIES else (),
        version=partition_version(level),
    )


# --- delete ---------------------------------------------------------------------------------------


def delete_topics(
    context: ControllerContext, request: DeleteTopics
) -> tuple[list[MetadataRecord], DeleteTopicsResponse]:
    records: list[MetadataRecord] = []
    answers = []
    times = Counter(request.topics)
    # A name that is given twice counts for nothing: its id, given once, is still deleted.
    ids = Counter(_id_of(context, ref) for ref in times if not ref.name or times[ref] == 1)
    for ref in times:
        try:
            if times[ref] > 1:
                kind = "name" if ref.name else "id"
                raise RefusedError(ErrorCode.INVALID_REQUEST, f"Duplicate topic {kind}.")
            topic_id = _existing(context, ref)
            if ids[topic_id] > 1:
                if ref.name:
                    text = "The provided topic name maps to an ID that was already supplied."
                    invalid = ErrorCode.INVALID_REQUEST
                    answers.append(DeletedTopic(ref.name, topic_id, invalid, text))
                continue
            _take(request.mutation_quota, len(context.image.topics.partitions(topic_id)))
            records.append(RemoveTopicRecord(topic_id, version=0))
            answers.append(DeletedTopic(context.image.topics.names[topic_id], topic_id))
        except RefusedError as refused:
            answers.append(DeletedTopic(ref.name, ref.topic_id, refused.error, refused.message))
    return records, DeleteTopicsResponse(tuple(answers))


def _id_of(context: ControllerContext, ref: TopicRef) -> str:
    return context.image.topics.ids.get(ref.name, "") if ref.name else ref.topic_id


def _existing(context: ControllerContext, ref: TopicRef) -> str:
    topics = context.image.topics
    if ref.name and ref.topic_id != ZERO_UUID:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."
        )
    if ref.name:
        if ref.name not in topics.ids:
            raise RefusedError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "This server does not host this topic-partition.",
            )
        return topics.ids[ref.name]
    if ref.topic_id == ZERO_UUID:
        raise RefusedError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if ref.topic_id not in topics.names:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    return ref.topic_id


# --- partitions -----------------------------------------------------------------------------------


def create_partitions(
    context: ControllerContext, request: CreatePartitions
) -> tuple[list[MetadataRecord], CreatePartitionsResponse]:
    names = Counter(topic.name for topic in request.topics)
    batch = _TopicBatch(context.settings)
    outcomes = []
    for topic in request.topics:
        try:
            if names[topic.name] > 1:
                raise RefusedError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            batch.add(_more_partitions(context, topic, batch, request.mutation_quota))
            outcomes.append(PartResult(topic.name))
        except RefusedError as refused:
            outcomes.append(PartResult(topic.name, refused.error, refused.message))
    records = [] if request.validate_only else batch.records
    return records, CreatePartitionsResponse(tuple(outcomes))


def _more_partitions(
    context: ControllerContext,
    topic: NewPartitions,
    batch: _TopicBatch,
    quota: MutationQuota | None,
) -> list[MetadataRecord]:
    topic_id = context.image.topics.ids.get(topic.name)
    if topic_id is None:
        raise RefusedError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
        )
    existing = context.image.topics.partitions(topic_id)
    more = topic.count - len(existing)
    if more == 0:
        raise RefusedError(
            ErrorCode.INVALID_PARTITIONS, f"Topic already has {len(existing)} partition(s)."
        )
    if more < 0:
        raise RefusedError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {len(existing)} partition(s); {topic.count} "
            "would not be an increase.",
        )
    factor = len(existing[min(existing)].replicas) if existing else 1
    if topic.assignments is not None and len(topic.assignments) != more:
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {more} additional partition(s), but only "
            f"{len(topic.assignments)} assignment(s) were specified.",
        )
    _take(quota, more)
    first = max(existing, default=-1) + 1
    if topic.assignments is None:
        assignments = _placed(context, more, factor, batch)
    else:
        assignments = checked_assignments(context, topic.assignments, factor, first)
    return [
        new_partition(context, topic_id, number, replicas)
        for number, replicas in enumerate(assignments, first)
    ]
