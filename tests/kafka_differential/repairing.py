"""Makes two controllers agree again after a difference that changed what they store.

A pair of controllers then lasts longer, and less time is spent on starts.
"""

from __future__ import annotations

from collections.abc import Sequence

from quorate.records import metadata as rec

from tests.kafka_differential.broker_requests import unregistration
from tests.kafka_differential.comparing import differing
from tests.kafka_differential.requests import Request
from tests.kafka_differential.side import Side
from tests.kafka_differential.topic_requests import deletion


def repairs(sides: Sequence[Side]) -> Sequence[Request]:
    """Requests after which the images may be the same: they delete the topics and unregister the
    brokers that differ.

    Empty if something else differs, or if Kafka's controller would keep a deleted topic in its
    index of eligible replicas, and fail later.
    """
    topics: set[str] = set()
    brokers: set[int] = set()
    for side, record in differing(sides):
        match record:
            case rec.TopicRecord() | rec.PartitionRecord():
                topics.add(side.image.topics.names[record.topic_id])
            case rec.RegisterBrokerRecord():
                brokers.add(record.broker_id)
            case _:
                return ()
    if any(_has_eligible(side, name) for side in sides for name in topics):
        return ()
    found = [deletion(sorted(topics))] if topics else []
    return [*found, *map(unregistration, sorted(brokers))]


def _has_eligible(side: Side, topic: str) -> bool:
    partitions = side.image.topics.partitions(side.image.topics.ids.get(topic, ""))
    return any(each.eligible_leader_replicas for each in partitions.values())
