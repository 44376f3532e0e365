"""Random requests about topics and partitions."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from quorate.bridge.messages import schemas as s
from quorate.metadata.image.partitions import NO_LEADER, Partition, is_reassigning

from tests.kafka_differential.config_requests import topic_configs
from tests.kafka_differential.requests import (
    AUTOMATIC,
    TOPICS,
    TOPICS_MAX,
    Request,
    Script,
    State,
    common,
    part,
    topic_name,
    whole,
)
from tests.kafka_differential.side import Side

TIMEOUT: Final = s.milliseconds(60_000)
INVALID_NAMES: Final = ("", ".", "..", "a/b", "x" * 250, "t 1", "__cluster_metadata")
MOST_PARTITIONS: Final = 5
MIN_ISR_MAX: Final = 3
"""The highest min.insync.replicas of a topic."""


# --- CreateTopics ---------------------------------------------------------------------------------


def create_topics(state: State) -> Script:
    if len(state.topics) >= TOPICS_MAX:
        return delete_topics(state)
    if state.odds(0.1):
        return _create_automatically(state)
    version = state.chance.choice((7, 7, 7, 5))
    topics = [_topic(state, version) for _ in range(1 + state.skewed(3))]
    if state.odds(0.03):
        topics.append(topics[0])
    return [_creation(topics, version, validate_only=state.odds(0.08))]


def _creation(
    topics: list[Any],
    version: int,
    *,
    validate_only: bool = False,
    shape_only: bool = False,
) -> Request:
    body = whole(
        s.CREATE_TOPICS,
        version,
        topics=tuple(topics),
        timeout=TIMEOUT,
        validate_only=validate_only,
    )
    names = {each.name for each in topics}
    collide = len({each.replace(".", "_") for each in names}) < len(names)
    name = "CreateTopics of colliding names" if collide else "CreateTopics"
    return common(name, s.CREATE_TOPICS, version, body, shape_only=shape_only)


def _topic(state: State, version: int) -> Any:
    name = topic_name(state.chance.randrange(TOPICS))
    if state.odds(0.03):
        name = state.chance.choice(INVALID_NAMES)
    elif state.odds(0.03):
        name = state.chance.choice((f"{name}.a", f"{name}_a"))
    factor = 1 + state.chance.randrange(4)
    first = 1 if state.odds(0.02) else 0
    assignments = [
        _assignment(version, number, state.replicas(factor, wrong=0.01))
        for number in range(first, 1 + first + state.skewed(MOST_PARTITIONS))
    ]
    numbers = (-1, -1)
    if state.odds(0.02):
        numbers = state.chance.choice(((1, -1), (-1, 2), (2, 2)))
    if state.odds(0.03):
        # Invalid numbers fail before replicas are placed.
        assignments = []
        numbers = state.chance.choice(((0, 1), (-2, 1), (1, 0), (1, -2), (1, 50)))
    return part(
        s.CREATE_TOPICS,
        version,
        "CreatableTopic",
        name=name,
        num_partitions=numbers[0],
        replication_factor=numbers[1],
        assignments=tuple(assignments),
        configs=tuple(
            part(s.CREATE_TOPICS, version, "CreatableTopicConfig", name=name, value=value)
            for name, value in topic_configs(state)
        ),
    )


def _assignment(version: int, number: int, replicas: tuple[int, ...]) -> Any:
    return part(
        s.CREATE_TOPICS,
        version,
        "CreatableReplicaAssignment",
        partition_index=number,
        broker_ids=replicas,
    )


def _create_automatically(state: State) -> Script:
    """Let the controller place replicas, and delete the topic again: the two images would differ.

    Either a new topic's, or those of partitions that are added to one.
    """
    name = f"{AUTOMATIC}{state.chance.getrandbits(32)}"
    factor = 1 + state.chance.randrange(3)
    is_new = state.odds(0.5)
    creation = part(
        s.CREATE_TOPICS,
        7,
        "CreatableTopic",
        name=name,
        num_partitions=state.chance.choice((-1, 1, 2, 5)) if is_new else -1,
        replication_factor=state.chance.choice((-1, factor)) if is_new else -1,
        assignments=() if is_new else (_assignment(7, 0, state.replicas(factor, wrong=0.0)),),
        configs=(),
    )
    script = [_creation([creation], 7, shape_only=is_new)]
    if not is_new:
        script.append(_more_partitions(name, 1 + state.chance.randrange(4), None, shape_only=True))
    return [*script, deletion([name])]


# --- CreatePartitions -----------------------------------------------------------------------------


def create_partitions(state: State) -> Script:
    name = state.topic()
    existing = state.partitions(name) if name in state.image.topics.ids else ()
    if len(existing) > 2 * MOST_PARTITIONS:
        return delete_topics(state)
    if len(_factors(state, name)) > 1:
        return []
    added = state.chance.choice((1, 1, 2, 0, -1) if state.odds(0.2) else (1, 2))
    factor = len(existing[0].replicas) if existing else 1
    replicas = [state.replicas(factor) for _ in range(max(added, 0))]
    if state.odds(0.05):
        replicas.append(state.replicas(factor))
    elif state.odds(0.05):
        replicas = [state.replicas(factor + 1) for _ in replicas]
    count_wanted = len(existing) + added
    request = _more_partitions(name, count_wanted, replicas, validate_only=state.odds(0.1))
    return [replace(request, is_safe=lambda now: len(_factors(now, name)) <= 1)]


def _factors(state: State, topic: str) -> set[int]:
    """The numbers of replicas of a topic's partitions.

    Of several, Kafka's controllers take that of one partition of a hash table for new partitions.
    """
    if topic not in state.image.topics.ids:
        return set()
    return {len(each.replicas) for each in state.partitions(topic)}


def _more_partitions(
    name: str,
    number: int,
    replicas: list[tuple[int, ...]] | None,
    *,
    validate_only: bool = False,
    shape_only: bool = False,
) -> Request:
    key, version = s.CREATE_PARTITIONS, 3
    assignments = None
    if replicas is not None:
        assignments = tuple(
            part(key, version, "CreatePartitionsAssignment", broker_ids=each) for each in replicas
        )
    topic = part(
        key, version, "CreatePartitionsTopic", name=name, count=number, assignments=assignments
    )
    body = whole(key, version, topics=(topic,), timeout=TIMEOUT, validate_only=validate_only)
    return common("CreatePartitions", key, version, body, shape_only=shape_only)


# --- DeleteTopics ---------------------------------------------------------------------------------


def delete_topics(state: State) -> Script:
    chosen = []
    for name in state.some_topics(3):
        if state.odds(0.5):
            chosen.append((name, False))
        else:
            chosen.append((name, True))
    if state.odds(0.05):
        chosen.append(chosen[0])

    def topics(side: Side) -> tuple[Any, ...]:
        return tuple(
            _identified(side.topic_id(name)) if by_id else _named(name) for name, by_id in chosen
        )

    if state.odds(0.02):
        both = part(
            s.DELETE_TOPICS, 6, "DeleteTopicState", name="t1", topic_id=uuid.UUID(int=2**100)
        )
        return [_deletion((both,))]
    return [
        Request(
            "DeleteTopics",
            s.DELETE_TOPICS,
            6,
            lambda side: whole(s.DELETE_TOPICS, 6, topics=topics(side), timeout=TIMEOUT),
            is_safe=lambda state: not any(_has_eligible(state, name) for name, _ in chosen),
        )
    ]


def _has_eligible(state: State, topic: str) -> bool:
    """Whether a replica out of sync may lead a partition of the topic.

    If that is deleted, Kafka's controllers keep the broker in an index, and fail once the broker is
    unregistered, or one of its directories fails.
    """
    if topic not in state.image.topics.ids:
        return False
    return any(each.eligible_leader_replicas for each in state.partitions(topic))


def deletion(names: Sequence[str]) -> Request:
    return _deletion(tuple(map(_named, names)))


def _deletion(topics: tuple[Any, ...]) -> Request:
    body = whole(s.DELETE_TOPICS, 6, topics=topics, timeout=TIMEOUT)
    return common("DeleteTopics", s.DELETE_TOPICS, 6, body)


def _named(name: str) -> Any:
    return part(s.DELETE_TOPICS, 6, "DeleteTopicState", name=name, topic_id=None)


def _identified(topic_id: uuid.UUID) -> Any:
    return part(s.DELETE_TOPICS, 6, "DeleteTopicState", name=None, topic_id=topic_id)


# --- AlterPartition -------------------------------------------------------------------------------


def alter_partition(state: State) -> Script:
    """The leader of some partitions proposes their ISRs; sometimes another broker does."""
    led: dict[int, list[Partition]] = {}
    for name in state.topics:
        for each in state.partitions(name):
            if each.leader != NO_LEADER:
                led.setdefault(each.leader, []).append(each)
    if not led:
        return []
    leader = state.chance.choice(sorted(led))
    chosen = state.chance.sample(led[leader], min(len(led[leader]), 1 + state.skewed(4)))
    names = state.image.topics.names
    proposals: dict[str, list[Mapping[str, Any]]] = {}
    for each in chosen:
        proposals.setdefault(names[each.topic_id], []).append(_proposal(state, each))
    broker = state.broker() if state.odds(0.03) else leader
    stale = state.odds(0.02)
    wrong_topic = state.odds(0.01)
    key = s.ALTER_PARTITION
    version = state.chance.choice((3, 3, 3, 2))

    def build(side: Side) -> Any:
        topics = []
        for name, partitions in proposals.items():
            topic_id = side.topic_id("no such topic" if wrong_topic else name)
            data = tuple(_partition_data(side, each, version) for each in partitions)
            topics.append(part(key, version, "TopicData", topic_id=topic_id, partitions=data))
        return whole(
            key,
            version,
            broker_id=broker,
            broker_epoch=side.epoch(broker) + stale,
            topics=tuple(topics),
        )

    return [
        Request(
            "AlterPartition",
            key,
            version,
            build,
            is_safe=lambda now: _are_unchanged(now, chosen),
        )
    ]


def _are_unchanged(state: State, partitions: Sequence[Partition]) -> bool:
    topics = state.image.topics
    return all(topics.partition(each.topic_id, each.partition_id) == each for each in partitions)


def _proposal(state: State, partition: Partition) -> Mapping[str, Any]:
    """An ISR with the epochs that the leader knows: one more replica, one less, or anything."""
    isr = list(partition.isr)
    missing = [each for each in partition.replicas if each not in isr]
    if is_reassigning(partition) and has_elr(state):
        kept = set(partition.replicas) - set(partition.removing_replicas)
        isr = list(partition.replicas) if len(kept) >= MIN_ISR_MAX else isr
    elif missing and state.odds(0.6):
        isr.append(state.chance.choice(missing))
    elif len(isr) > 1 and state.odds(0.6):
        isr.remove(state.chance.choice(isr if state.odds(0.05) else isr[1:]))
    elif state.odds(0.1):
        isr = list(state.replicas(3, wrong=0.2))
    if state.odds(0.1):
        state.chance.shuffle(isr)
    if state.odds(0.01):
        isr = [*isr, *isr]
    return {
        "isr": isr,
        "stale": {state.chance.choice(isr)} if isr and state.odds(0.03) else frozenset(),
        "no_epochs": state.odds(0.1),
        "number": partition.partition_id + (100 if state.odds(0.01) else 0),
        "leader_epoch": partition.leader_epoch + _off(state),
        "partition_epoch": partition.partition_epoch + _off(state),
        "recovery": (
            state.chance.choice((0, 1)) if state.odds(0.03) else partition.leader_recovery_state
        )
        * (not state.odds(0.5)),
    }


def _off(state: State) -> int:
    return state.chance.choice((-1, 1)) if state.odds(0.02) else 0


def _partition_data(side: Side, proposal: Mapping[str, Any], version: int) -> Any:
    key = s.ALTER_PARTITION
    with_epochs = ()
    if version >= 3:
        with_epochs = tuple(
            part(
                key,
                version,
                "BrokerState",
                broker_id=each,
                broker_epoch=(
                    -1 if proposal["no_epochs"] else side.epoch(each) + (each in proposal["stale"])
                ),
            )
            for each in proposal["isr"]
        )
    return part(
        key,
        version,
        "PartitionData",
        partition_index=proposal["number"],
        leader_epoch=proposal["leader_epoch"],
        new_isr=tuple(proposal["isr"]),
        new_isr_with_epochs=with_epochs,
        leader_recovery_state=proposal["recovery"],
        partition_epoch=proposal["partition_epoch"],
    )


# --- reassignments --------------------------------------------------------------------------------


def alter_reassignments(state: State) -> Script:
    key = s.ALTER_PARTITION_REASSIGNMENTS
    version = state.chance.choice((1, 1, 0))
    topics = []
    again, replaces, loses_isr = state.odds(0.01), False, False
    seen: list[Partition] = []
    for name in dict.fromkeys(state.some_topics(2)):
        partitions = []
        existing = state.partitions(name) if name in state.image.topics.ids else ()
        for each in existing or (None,):
            if each is None or state.odds(0.5):
                number = 0 if each is None else each.partition_id
                is_moving = each is not None and is_reassigning(each)
                target = None if is_moving and not again else _target(state, each)
                if each is not None and not _is_safe(state, each, target):
                    continue
                replaces |= is_moving and target is not None
                loses_isr |= target is None and is_moving and _is_isr_added(each)
                partitions.append((number, target))
                if each is not None:
                    seen.append(each)
        if state.odds(0.02):
            partitions.append((100, None))
        if not partitions:
            continue
        topics.append(
            part(
                key,
                version,
                "ReassignableTopic",
                name=name,
                partitions=tuple(
                    part(
                        key,
                        version,
                        "ReassignablePartition",
                        partition_index=number,
                        replicas=replicas,
                    )
                    for number, replicas in partitions
                ),
            )
        )
    if not topics:
        return []
    body = whole(
        key,
        version,
        timeout=TIMEOUT,
        allow_replication_factor_change=state.odds(0.8),
        topics=tuple(topics),
    )
    action = "AlterPartitionReassignments"
    if replaces:
        action += " that replaces one"
    elif loses_isr:
        action += " that loses the ISR"
    return [common(action, key, version, body, is_safe=lambda now: _are_unchanged(now, seen))]


def _is_isr_added(partition: Partition | None) -> bool:
    """Whether only replicas are in sync that a cancellation removes."""
    return partition is not None and set(partition.isr) <= set(partition.adding_replicas)


def has_elr(state: State) -> bool:
    return state.image.features.levels.get("eligible.leader.replicas.version", 0) > 0


def _is_safe(state: State, partition: Partition, target: tuple[int, ...] | None) -> bool:
    """Whether no removed replica becomes eligible to lead.

    Kafka's controllers write that, and fail when the topic is deleted and the broker is fenced.
    """
    if not has_elr(state):
        return True
    if target is None:
        held = (*partition.isr, *(partition.eligible_leader_replicas or ()))
        return not set(held) & set(partition.adding_replicas)
    is_done = set(target) <= set(partition.replicas)
    return len(target) >= MIN_ISR_MAX and (not is_done or set(target) <= set(partition.isr))


def _target(state: State, partition: Partition | None) -> tuple[int, ...] | None:
    if state.odds(0.25):
        return None
    if partition is not None and state.odds(0.2):
        kept = list(partition.replicas)
        state.chance.shuffle(kept)
        return tuple(kept)
    factor = 1 + state.chance.randrange(3)
    if partition is not None and state.odds(0.5):
        factor = len(partition.replicas)
    return state.replicas(factor)


# --- ElectLeaders ---------------------------------------------------------------------------------


def elect_leaders(state: State) -> Script:
    key = s.ELECT_LEADERS
    version = state.chance.choice((2, 2, 1))
    kind = 2 if state.odds(0.01) else state.chance.choice((0, 0, 1))
    wanted = None
    if not state.odds(0.15):
        numbers = range(1 + state.chance.randrange(4))
        wanted = tuple(
            part(
                key,
                version,
                "TopicPartitions",
                topic=name,
                partitions=tuple(numbers),
            )
            for name in dict.fromkeys(state.some_topics(3))
        )
    body = whole(key, version, election_type=kind, topic_partitions=wanted, timeout=TIMEOUT)
    return [common("ElectLeaders", key, version, body)]


# --- AssignReplicasToDirs -------------------------------------------------------------------------


def assign_replicas(state: State) -> Script:
    """A broker says in which directories its replicas are."""
    key = s.ASSIGN_REPLICAS_TO_DIRS
    broker = state.broker(0.02)
    registration = state.image.cluster.brokers.get(broker)
    directories = list(registration.log_dirs) if registration is not None else []
    held = [
        (name, each.partition_id)
        for name in state.topics
        for each in state.partitions(name)
        if broker in each.replicas or state.odds(0.01)
    ]
    chosen: dict[uuid.UUID | None, dict[str, list[int]]] = {}
    for name, number in state.chance.sample(held, min(len(held), 1 + state.skewed(5))):
        directory = _directory(state, directories)
        chosen.setdefault(directory, {}).setdefault(name, []).append(
            number + 100 * state.odds(0.01)
        )
    if state.odds(0.02):
        chosen.setdefault(_directory(state, directories), {}).setdefault("no such topic", [0])
    stale = state.odds(0.02)

    def build(side: Side) -> Any:
        return whole(
            key,
            0,
            broker_id=broker,
            broker_epoch=side.epoch(broker) + stale,
            directories=tuple(
                part(
                    key,
                    0,
                    "DirectoryData",
                    id_=directory,
                    topics=tuple(
                        part(
                            key,
                            0,
                            "TopicData",
                            topic_id=side.topic_id(name),
                            partitions=tuple(
                                part(key, 0, "PartitionData", partition_index=number)
                                for number in numbers
                            ),
                        )
                        for name, numbers in topics.items()
                    ),
                )
                for directory, topics in chosen.items()
            ),
        )

    return [Request("AssignReplicasToDirs", key, 0, build)]


def _directory(state: State, registered: list[str]) -> uuid.UUID | None:
    if not registered or state.odds(0.05):
        reserved = uuid.UUID(int=state.chance.randrange(4))
        unknown = uuid.UUID(int=state.chance.getrandbits(128))
        return state.chance.choice((reserved, unknown)) or None
    return s.uuid_field(state.chance.choice(registered))
