"""The changes of a log range to the image, so that listeners need not scan the whole image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from quorate.metadata.image.partitions import PartitionKey


@dataclass(slots=True)
class MetadataDelta:
    """The keys of the changed metadata. The image has the values."""

    topics_created: set[str] = field(default_factory=set)
    """Topic ids."""
    topics_deleted: dict[str, str] = field(default_factory=dict)
    """Names by topic id."""
    partitions: set[PartitionKey] = field(default_factory=set)
    """Includes the partitions of created topics. Some may have been deleted since."""
    brokers: set[int] = field(default_factory=set)
    controllers: set[int] = field(default_factory=set)
    configs: set[tuple[int, str]] = field(default_factory=set)
    """Resource types and names."""
    features: set[str] = field(default_factory=set)
    quotas: bool = False
    scram_users: set[str] = field(default_factory=set)
    acls: bool = False
    producer_ids: bool = False
    delegation_tokens: bool = False
    zk_migration: bool = False

    def topic_deleted(self, topic_id: str, name: str) -> None:
        self.topics_created.discard(topic_id)
        self.topics_deleted[topic_id] = name

    def add(self, later: MetadataDelta) -> None:
        """Append a later delta to this one."""
        self.topics_created -= later.topics_deleted.keys()
        for each in fields(self):
            merged = getattr(self, each.name)
            merged |= getattr(later, each.name)
            setattr(self, each.name, merged)

    def __bool__(self) -> bool:
        return self != MetadataDelta()


class LazyDelta(MetadataDelta):
    """A delta that gathers its partitions on first use.

    There may be a million of them, and the active controller does not need them.
    """

    __slots__ = ("_gather", "_gathered")

    def __init__(self, gather: Callable[[], set[PartitionKey]], **changed: Any) -> None:
        self._gather = gather
        super().__init__(**changed)
        self._gathered: set[PartitionKey] | None = None

    @property
    def partitions(self) -> set[PartitionKey]:
        if self._gathered is None:
            self._gathered = self._gather()
        return self._gathered

    @partitions.setter
    def partitions(self, partitions: set[PartitionKey]) -> None:
        self._gathered = partitions
