"""What the generators of requests share: the request, the state that it is about, and chances.

A request is built for each side, because its ids differ. Generators see the image of Kafka's log,
sorted, so that a seed gives the same requests whatever ids the controllers choose.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from quorate.bridge.messages import schemas as s
from quorate.metadata.image.cluster import Broker, is_active
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.metadata.image.partitions import Partition

from tests.kafka_differential.side import Side

BROKERS: Final = range(10, 18)
UNKNOWN_BROKER: Final = 99
TOPICS: Final = 40
"""How many names of topics there are."""
TOPICS_MAX: Final = 24
"""More topics than this are deleted first."""

AUTOMATIC: Final = "automatic-"
"""The names of topics whose replicas the controller places begin with this."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request of both sides. build: its body for a side. is_common: both bodies are the same.
    shape_only: the controller places replicas. name: for the report. is_safe: whether it may be
    sent in a state, which may have changed since it was built.
    """

    name: str
    api_key: int
    version: int
    build: Callable[[Side], Any]
    is_common: bool = False
    shape_only: bool = False
    is_safe: Callable[[State], bool] | None = None


Script = Sequence[Request]
"""Requests that follow each other directly."""


class State:
    """What requests are about. image: of Kafka's log. stopped: the brokers that may stop."""

    def __init__(
        self, image: MetadataImage, chance: random.Random, stopped: Collection[int]
    ) -> None:
        self.image = image
        self.stopped = stopped
        self.chance = chance

    def odds(self, probability: float) -> bool:
        return self.chance.random() < probability

    @property
    def brokers(self) -> Sequence[Broker]:
        return [each for _, each in sorted(self.image.cluster.brokers.items())]

    @property
    def broker_ids(self) -> Sequence[int]:
        return sorted(self.image.cluster.brokers)

    @property
    def active_ids(self) -> Sequence[int]:
        return [each.broker_id for each in self.brokers if is_active(each)]

    @property
    def topics(self) -> Sequence[str]:
        """The topics whose replicas are the same in each run with a seed."""
        return sorted(each for each in self.image.topics.ids if not each.startswith(AUTOMATIC))

    def partitions(self, topic: str) -> Sequence[Partition]:
        found = self.image.topics.partitions(self.image.topics.ids[topic])
        return [found[number] for number in sorted(found)]

    def broker(self, unknown: float = 0.05) -> int:
        """A broker, registered or not. unknown: how likely it is of no broker at all."""
        if self.odds(unknown):
            return UNKNOWN_BROKER
        registered = self.broker_ids
        if registered and self.odds(0.9):
            return self.chance.choice(registered)
        return self.chance.choice(BROKERS)

    def topic(self, unknown: float = 0.05) -> str:
        """A topic, mostly an existing one."""
        topics = self.topics
        if topics and not self.odds(unknown):
            return self.chance.choice(topics)
        return topic_name(self.chance.randrange(TOPICS))

    def some_topics(self, most: int, unknown: float = 0.05) -> list[str]:
        return [self.topic(unknown) for _ in range(1 + self.skewed(most))]

    def skewed(self, bound: int) -> int:
        """A number from 0 to below a bound, mostly a low one."""
        return min(self.chance.randrange(bound), self.chance.randrange(bound))

    def replicas(self, count: int, *, wrong: float = 0.03) -> tuple[int, ...]:
        """A manual assignment. wrong: how likely it is invalid."""
        pool = list(self.active_ids if self.odds(0.7) else self.broker_ids) or list(BROKERS)
        found = self.chance.sample(pool, min(count, len(pool)))
        if self.odds(wrong):
            found = self.chance.choice(
                [[], [*found, found[0]], [*found, UNKNOWN_BROKER], [-1], [*found, self.broker()]]
            )
        return tuple(found)


def topic_name(number: int) -> str:
    return f"t{number}"


def common(
    name: str,
    api_key: int,
    version: int,
    body: Any,
    *,
    shape_only: bool = False,
    is_safe: Callable[[State], bool] | None = None,
) -> Request:
    """A request with the same body for both sides."""
    return Request(name, api_key, version, lambda _side: body, True, shape_only, is_safe)


def part(api_key: int, version: int, class_name: str, **fields: Any) -> Any:
    """A nested class of a request."""
    return s.make(getattr(s.request_module(api_key, version), class_name), **fields)


def whole(api_key: int, version: int, **fields: Any) -> Any:
    """The body of a request."""
    return s.make(s.request_type(api_key, version), **fields)
