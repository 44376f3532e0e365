"""What a stretch of the log changed in the image: for listeners that need not look at all of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorate.metadata.image import MetadataImage


@dataclass(slots=True)
class Changes:
    """Names of what changed; what it is now says the image.

    topics_created: ids; topics_deleted: id to name; partitions: (topic id, index), those of created
    topics too; some may have gone since. configs: (resource type, resource name).
    """

    topics_created: set[str] = field(default_factory=set)
    topics_deleted: dict[str, str] = field(default_factory=dict)
    partitions: set[tuple[str, int]] = field(default_factory=set)
    brokers: set[int] = field(default_factory=set)
    controllers: set[int] = field(default_factory=set)
    configs: set[tuple[int, str]] = field(default_factory=set)
    features: set[str] = field(default_factory=set)
    quotas: bool = False
    scram_users: set[str] = field(default_factory=set)
    acls: bool = False
    producer_ids: bool = False
    delegation_tokens: bool = False
    zk_migration: bool = False

    @staticmethod
    def everything(image: MetadataImage) -> Changes:
        """All there is in the image. Ask it for its partitions before the image changes."""
        return _Everything(
            image,
            topics_created=set(image.topics.names),
            brokers=set(image.cluster.brokers),
            controllers=set(image.cluster.controllers),
            configs=set(image.configs.resources),
            features=set(image.features.levels),
            quotas=True,
            scram_users={name for name, _ in image.scram.credentials},
            acls=True,
            producer_ids=True,
            delegation_tokens=True,
            zk_migration=True,
        )

    def topic_deleted(self, topic_id: str, name: str) -> None:
        self.topics_created.discard(topic_id)
        self.topics_deleted[topic_id] = name

    def add(self, later: Changes) -> None:
        """Let these be followed by others."""
        for topic_id, name in later.topics_deleted.items():
            self.topic_deleted(topic_id, name)
        self.topics_created |= later.topics_created
        self.partitions |= later.partitions
        self.brokers |= later.brokers
        self.controllers |= later.controllers
        self.configs |= later.configs
        self.features |= later.features
        self.scram_users |= later.scram_users
        self.quotas |= later.quotas
        self.acls |= later.acls
        self.producer_ids |= later.producer_ids
        self.delegation_tokens |= later.delegation_tokens
        self.zk_migration |= later.zk_migration

    def __bool__(self) -> bool:
        return self != Changes()


class _Everything(Changes):
    """`partitions` are gathered when they are asked for: there may be a million, and the active
    controller does not ask.
    """

    __slots__ = ("_gathered", "_image")

    def __init__(self, image: MetadataImage, **found: Any) -> None:
        self._image = image
        super().__init__(**found)
        self._gathered: set[tuple[str, int]] | None = None

    @property
    def partitions(self) -> set[tuple[str, int]]:
        if self._gathered is None:
            self._gathered = {
                (topic_id, number)
                for topic_id, partitions in self._image.topics.by_topic()
                for number in partitions
            }
        return self._gathered

    @partitions.setter
    def partitions(self, partitions: set[tuple[str, int]]) -> None:
        self._gathered = partitions
