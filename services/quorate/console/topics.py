"""Topics and their configs, for the console. Pure: no I/O, no clock.

`TopicTable` collects what one round over all partitions finds (`cluster`). A round arrives in pages
of partitions, sorted by topic and partition, so a topic may come in several parts. The table is
limited to `TOPICS_MAX` topics and `CONFIGS_MAX` configs and counts the ones that it leaves out.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from quorate.metadata import describe
from quorate.metadata.image.configs import ConfigResourceType
from quorate.metadata.requests import PartitionDescription, ResourceConfigs, TopicDescription

TOPICS_MAX = 100_000
CONFIGS_MAX = 50_000
NAMED_MAX = 20
"""The most partitions of a topic that are listed by number."""
VALUE_CHARACTERS = 300

LEADERLESS = "no leader"
ALONE = "one in-sync replica is left"
UNDER_REPLICATED = "under-replicated"

HIDDEN = "(hidden)"
BROKER_DEFAULTS = "all brokers"


def missing_replicas(partition: PartitionDescription) -> set[int]:
    """Return the replicas that should be in sync and are not.

    A partition that is being reassigned has more replicas than it will have. The replicas that are
    being added need not be in sync.
    """
    wanted = set(partition.replicas) - set(partition.adding_replicas)
    return wanted - set(partition.isr)


def problem_of(partition: PartitionDescription) -> str | None:
    """Return the problem of a partition, or None if every replica is in sync."""
    if partition.leader < 0:
        return LEADERLESS
    if not missing_replicas(partition):
        return None
    return ALONE if len(partition.isr) <= 1 else UNDER_REPLICATED


@dataclass(slots=True)
class TopicRow:
    """A topic, and how many of its partitions have a problem."""

    name: str
    partitions: int = 0
    replication_factor: int = 0
    """The largest one of any partition, without replicas that are being added."""
    under_replicated: int = 0
    """The number of partitions with a replica that is not in sync, with or without a leader."""
    leaderless: int = 0
    unhealthy: int = 0
    """The number of partitions with a problem."""
    named: tuple[int, ...] = ()
    """The numbers of the first `NAMED_MAX` partitions with a problem."""

    def add(self, partition: PartitionDescription) -> None:
        factor = len(partition.replicas) - len(partition.adding_replicas)
        self.partitions += 1
        self.replication_factor = max(self.replication_factor, factor)
        self.under_replicated += bool(missing_replicas(partition))
        self.leaderless += partition.leader < 0
        if problem_of(partition) is not None:
            self.unhealthy += 1
            if len(self.named) < NAMED_MAX:
                self.named = (*self.named, partition.index)


@dataclass(frozen=True, slots=True)
class ConfigRow:
    """A dynamic config: what it is set for, its name, and its value as it may be shown."""

    entity: str
    name: str
    value: str


class TopicTable:
    """The topics of one round, sorted by name, and their configs.

    left_out, configs_left_out: how many do not fit. version: changes with each page.
    """

    def __init__(self) -> None:
        self.rows: list[TopicRow] = []
        self.configs: list[ConfigRow] = []
        self.left_out = 0
        self.configs_left_out = 0
        self.partitions = 0
        self.version = 0
        self._last: TopicRow | None = None

    def add(self, topics: Iterable[TopicDescription]) -> None:
        """Add the topics of the next page."""
        for topic in topics:
            self._add(topic)
        self.version += 1

    def _add(self, topic: TopicDescription) -> None:
        row = self._last
        if row is None or row.name != topic.name:
            row = self._last = TopicRow(topic.name)
            if len(self.rows) < TOPICS_MAX:
                self.rows.append(row)
            else:
                self.left_out += 1
            room = max(0, CONFIGS_MAX - len(self.configs))
            self.configs += topic_configs(topic)[:room]
            self.configs_left_out += max(0, len(topic.configs) - room)
        for partition in topic.partitions:
            row.add(partition)
        self.partitions += len(topic.partitions)

    def find(self, name: str) -> TopicRow | None:
        return next((row for row in self.rows if row.name == name), None)


def topic_configs(topic: TopicDescription) -> list[ConfigRow]:
    """Return the configs of a topic. DescribeTopics returns them as they are in the log."""
    return [
        ConfigRow(
            topic.name,
            sys.intern(name),
            shown_value(value, is_secret=describe.is_sensitive(ConfigResourceType.TOPIC, name)),
        )
        for name, value in topic.configs
    ]


def broker_configs(resources: Iterable[ResourceConfigs]) -> list[ConfigRow]:
    """Return the configs of brokers, each once: with its own source, the defaults first."""
    return [
        row
        for resource in sorted(resources, key=lambda each: _broker_order(each.resource.name))
        for row in _own_configs(resource)
    ]


def _own_configs(resource: ResourceConfigs) -> Iterator[ConfigRow]:
    name = resource.resource.name
    own = describe.BROKER_SOURCE if name else describe.DEFAULT_BROKER_SOURCE
    entity = f"broker {name}" if name else BROKER_DEFAULTS
    for config in resource.configs:
        if config.source == own:
            secret = config.is_sensitive or describe.is_sensitive(
                ConfigResourceType.BROKER, config.name
            )
            yield ConfigRow(entity, config.name, shown_value(config.value, is_secret=secret))


def _broker_order(name: str) -> tuple[int, str]:
    return (int(name) if name.isdecimal() else -1, name)


def shown_value(value: str | None, *, is_secret: bool) -> str:
    """Return a value as it may be shown: hidden if it is sensitive, and shortened if it is long."""
    if is_secret:
        return HIDDEN
    if value is None:
        return "null"
    if len(value) > VALUE_CHARACTERS:
        return f"{value[:VALUE_CHARACTERS]} … ({len(value):,} characters)"
    return value
