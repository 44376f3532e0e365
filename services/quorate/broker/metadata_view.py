"""A broker's view of the committed metadata, in its own values.

It reads the loader's image on the event loop's thread and returns immutable values. The states of
the brokers are computed once per change, not once per fetch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from quorate.broker.values import BrokerRegistrationState, Brokers, PartitionState
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.metadata.image.cluster import is_active
from quorate.metadata.image.delta import MetadataDelta
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.metadata.image.partitions import Partition
from quorate.rpc.wire.partition_values import (
    Located,
    LocatedBroker,
    LocatedPartition,
    LocatedTopic,
    PartitionKey,
)

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
"""Kafka's ConfigResource types; the broker resource with an empty name is the cluster's default."""
MIN_INSYNC_REPLICAS = "min.insync.replicas"


class MetadataView:
    """Follows the metadata loader, which calls `follow` with every change."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.brokers: Brokers = {}
        self.offset = -1
        self._image = MetadataImage()

    def follow(self, image: MetadataImage, changes: MetadataDelta) -> None:
        """Replace the image."""
        self._image = image
        self.offset = image.offset
        if changes.brokers:
            self.brokers = {
                broker.broker_id: BrokerRegistrationState(broker.broker_epoch, is_active(broker))
                for broker in image.cluster.brokers.values()
            }

    # --- topics and partitions --------------------------------------------------------------------

    def topic_name(self, topic_id: str) -> str | None:
        return self._image.topics.names.get(topic_id)

    def has_topic(self, topic_id: str) -> bool:
        return topic_id in self._image.topics.names

    def partition(self, key: PartitionKey) -> PartitionState | None:
        found = self._image.topics.partition(key.topic_id, key.index)
        return None if found is None else _state(found)

    def partitions_of(self, broker_id: int) -> Iterator[PartitionKey]:
        """The partitions that have a replica on a broker."""
        for partition in self._image.topics.all_partitions():
            if broker_id in partition.replicas:
                yield PartitionKey(partition.topic_id, partition.partition_id)

    def min_insync(self, topic_id: str, default: int) -> int:
        """The min.insync.replicas of a topic: its own, this or all brokers', or `default`."""
        resources = self._image.configs.resources
        for resource in (
            (TOPIC_RESOURCE, self.topic_name(topic_id) or ""),
            (BROKER_RESOURCE, str(self.node_id)),
            (BROKER_RESOURCE, ""),
        ):
            text = resources.get(resource, {}).get(MIN_INSYNC_REPLICAS)
            if text is not None and text.isdecimal():
                return int(text)
        return default

    # --- brokers ----------------------------------------------------------------------------------

    def address(self, broker_id: int, listener: str) -> tuple[str, int] | None:
        """The address of a broker's listener of that name, or else of its first listener."""
        broker = self._image.cluster.brokers.get(broker_id)
        if broker is None or not broker.end_points:
            return None
        named = (e for e in broker.end_points if e.name == listener)
        chosen = next(named, broker.end_points[0])
        return chosen.host, chosen.port

    def locate(self, topics: Sequence[str]) -> Located:
        """Answer a Locate request for these topics, or for all topics if none is named.

        A topic that is named twice is answered once.
        """
        image = self._image
        brokers = tuple(
            LocatedBroker(
                broker.broker_id,
                tuple(Endpoint(e.name, e.host, e.port) for e in broker.end_points),
                broker.rack or "",
                broker.fenced,
                broker.in_controlled_shutdown,
                broker.broker_epoch,
            )
            for broker in image.cluster.brokers.values()
        )
        names = tuple(dict.fromkeys(topics)) or tuple(image.topics.ids)
        found = tuple(self._locate(name) for name in names)
        return Located(ErrorCode.NONE, brokers, found, self.offset)

    def _locate(self, name: str) -> LocatedTopic:
        topic_id = self._image.topics.ids.get(name)
        if topic_id is None:
            return LocatedTopic(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partitions = self._image.topics.partitions(topic_id)
        return LocatedTopic(
            name,
            ErrorCode.NONE,
            topic_id,
            tuple(
                LocatedPartition(
                    each.partition_id, each.leader, each.leader_epoch, each.replicas, each.isr
                )
                for _, each in sorted(partitions.items())
            ),
        )


def _state(partition: Partition) -> PartitionState:
    return PartitionState(
        partition.leader,
        partition.leader_epoch,
        partition.partition_epoch,
        partition.replicas,
        partition.isr,
    )
