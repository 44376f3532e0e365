"""Control requests that propagate the image to brokers in ZooKeeper mode. Pure.

Owns no state. The rules are those of Kafka's controller in ZooKeeper mode:

1. A broker that is new, unfenced again, or has another epoch receives the full state:
   UpdateMetadata (full), then LeaderAndIsr (full) of its own replicas. A full LeaderAndIsr lets it
   remove stray replicas; a full UpdateMetadata lets it forget deleted topics.
2. Other brokers receive what changed, in this order: LeaderAndIsr of their replicas whose leader,
   epoch or assignment changed, then UpdateMetadata, then StopReplica for replicas they lose. When a
   broker comes alive, UpdateMetadata goes first and LeaderAndIsr also contains the partitions it
   leads: a follower cannot follow a leader that it does not know to be alive.
3. A deleted topic is a StopReplica with deletion, and an UpdateMetadata with the leader -2.
4. Every request names the KRaft controller, the number its claim wrote to `/controller_epoch`, and
   the receiver's broker epoch, so that brokers reject late requests of an earlier controller.

Fenced brokers receive nothing; they receive the full state when they are unfenced.

Source: KIP-866 "Controller RPCs"; KIP-380 (broker epochs), KIP-516 (topic ids).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from quorate.bridge.messages import schemas as s
from quorate.bridge.messages import zookeeper_messages as zk
from quorate.metadata.image.cluster import Broker
from quorate.metadata.image.delta import MetadataDelta
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.metadata.image.partitions import Partition, PartitionKey
from quorate.records.metadata import RegisteredEndpoint

INCREMENTAL: Final = 1
FULL: Final = 2
LEADER_OF_THE_DELETED: Final = -2
EPOCH_OF_THE_DELETED: Final = -2
BROKER_EPOCH_AT: Final = 9
"""Byte offset of the receiver's epoch in UpdateMetadata, after the controller's id, kind, epoch."""
PLAINTEXT: Final = 0

_UPDATE: Final[Any] = zk.MESSAGES[zk.UPDATE_METADATA][0]
_LEADERS: Final[Any] = zk.MESSAGES[zk.LEADER_AND_ISR][0]
_STOP: Final[Any] = zk.MESSAGES[zk.STOP_REPLICA][0]


@dataclass(frozen=True, slots=True)
class Sender:
    """The controller that sends the requests."""

    controller_id: int
    zk_epoch: int
    """The number in `/controller_epoch`."""
    listener: str | None = None
    """The brokers' listener, for each other and for this controller; None for the first PLAINTEXT
    one.
    """


@dataclass(frozen=True, slots=True)
class Message:
    """A control request without its header."""

    api_key: int
    body: bytes
    summary: str
    """A summary for the log."""


ControlRequests = dict[int, list[Message]]
"""The requests for each broker, in order."""


def receivers(image: MetadataImage) -> dict[int, Broker]:
    """The receivers of control requests: registered, unfenced brokers in ZooKeeper mode."""
    return {
        broker.broker_id: broker
        for _, broker in sorted(image.cluster.brokers.items())
        if broker.is_migrating_zk_broker and not broker.fenced
    }


def reached_at(broker: Broker, listener: str | None) -> RegisteredEndpoint | None:
    """The endpoint at which a broker is reached; None if it has none for `listener`."""
    found = (
        endpoint
        for endpoint in broker.end_points
        if listener == endpoint.name
        or (listener is None and endpoint.security_protocol == PLAINTEXT)
    )
    return next(found, None)


def everything(image: MetadataImage, sender: Sender, brokers: Iterable[int]) -> ControlRequests:
    """The full state (rule 1) for these brokers."""
    wanted = [broker for broker in receivers(image).values() if broker.broker_id in set(brokers)]
    if not wanted:
        return {}
    view = _View(image, sender)
    topics = view.topic_states(
        (name, topic_id, image.topics.partitions(topic_id).values())
        for topic_id, name in image.topics.names.items()
    )
    own: dict[int, dict[str, list[Partition]]] = {broker.broker_id: {} for broker in wanted}
    for partition in image.topics.all_partitions():
        for replica in partition.replicas:
            if replica in own:
                own[replica].setdefault(partition.topic_id, []).append(partition)
    metadata = view.update_metadata(topics, FULL)
    return {
        broker.broker_id: [
            metadata.to(broker),
            view.leader_and_isr(broker, own[broker.broker_id], FULL, frozenset()),
        ]
        for broker in wanted
    }


def changed(
    old: MetadataImage, image: MetadataImage, changes: MetadataDelta, sender: Sender
) -> ControlRequests:
    """Requests for all receivers by rules 1 to 3. old: the image that was propagated last."""
    before, now = receivers(old), receivers(image)
    fresh = {
        broker_id
        for broker_id, broker in now.items()
        if broker_id not in before or before[broker_id].broker_epoch != broker.broker_epoch
    }
    messages_of = everything(image, sender, fresh)
    difference = _Difference(old, image, changes)
    if not difference and not changes.brokers:
        return messages_of
    view = _View(image, sender)
    came = _came_to_life(old, image)
    followed = _led_by(image, came)
    states = (*view.topic_states(difference.changed_by_topic()), *view.gone(difference.deleted))
    metadata = view.update_metadata(states, INCREMENTAL)
    for broker_id, broker in now.items():
        if broker_id in fresh:
            continue
        messages = messages_of.setdefault(broker_id, [])
        if came:
            messages.append(metadata.to(broker))
        if own := difference.to_lead_or_follow(broker_id, followed):
            messages.append(view.leader_and_isr(broker, own, INCREMENTAL, difference.new))
        if not came:
            messages.append(metadata.to(broker))
        if lost := difference.to_stop(broker_id):
            messages.append(view.stop_replica(broker, lost))
    return messages_of


def _came_to_life(old: MetadataImage, image: MetadataImage) -> frozenset[int]:
    """Unfenced brokers that were fenced or unregistered before, or had another epoch."""
    before = {b.broker_id: b.broker_epoch for b in old.cluster.brokers.values() if not b.fenced}
    return frozenset(
        broker.broker_id
        for broker in image.cluster.brokers.values()
        if not broker.fenced and before.get(broker.broker_id) != broker.broker_epoch
    )


def _led_by(image: MetadataImage, brokers: frozenset[int]) -> list[Partition]:
    """The partitions that these brokers lead."""
    if not brokers:
        return []
    return [partition for partition in image.topics.all_partitions() if partition.leader in brokers]


# --- what changed ---------------------------------------------------------------------------------


class _Difference:
    """The partition changes between two images. deleted: names and old partitions by topic id."""

    def __init__(self, old: MetadataImage, image: MetadataImage, changes: MetadataDelta) -> None:
        self.image = image
        self.changed: list[tuple[Partition | None, Partition]] = []
        keys = set(changes.partitions)
        for topic_id in changes.topics_created:
            keys.update((topic_id, index) for index in image.topics.partitions(topic_id))
        for topic_id, index in sorted(keys):
            partition = image.topics.partition(topic_id, index)
            before = old.topics.partition(topic_id, index)
            if partition is not None and partition != before:
                self.changed.append((before, partition))
        self.deleted = {
            topic_id: (name, list(old.topics.partitions(topic_id).values()))
            for topic_id, name in changes.topics_deleted.items()
            if topic_id not in image.topics.names and topic_id in old.topics.names
        }
        self.new: frozenset[PartitionKey] = frozenset(
            (p.topic_id, p.partition_id) for before, p in self.changed if before is None
        )

    def __bool__(self) -> bool:
        return bool(self.changed or self.deleted)

    def changed_by_topic(self) -> Iterator[tuple[str, str, Iterable[Partition]]]:
        found: dict[str, list[Partition]] = {}
        for _, partition in self.changed:
            found.setdefault(partition.topic_id, []).append(partition)
        for topic_id, partitions in found.items():
            yield self.image.topics.names[topic_id], topic_id, partitions

    def to_lead_or_follow(
        self, broker_id: int, followed: Iterable[Partition]
    ) -> dict[str, list[Partition]]:
        """By topic id, the broker's partitions for LeaderAndIsr.

        A change of the ISR alone is not sent: AlterPartition returned it to the leader. followed:
        partitions whose leader has come alive.
        """
        wanted = {
            (partition.topic_id, partition.partition_id): partition
            for before, partition in self.changed
            if before is None or _assignment(before) != _assignment(partition)
        }
        wanted |= {(each.topic_id, each.partition_id): each for each in followed}
        found: dict[str, list[Partition]] = {}
        for partition in wanted.values():
            if broker_id in partition.replicas:
                found.setdefault(partition.topic_id, []).append(partition)
        return found

    def to_stop(self, broker_id: int) -> dict[str, list[tuple[int, int]]]:
        """By topic name, (partition, leader epoch) of the replicas that the broker loses."""
        found: dict[str, list[tuple[int, int]]] = {}
        for before, partition in self.changed:
            if before is None or broker_id not in before.replicas:
                continue
            if broker_id not in partition.replicas:
                name = self.image.topics.names[partition.topic_id]
                found.setdefault(name, []).append((partition.partition_id, partition.leader_epoch))
        for name, partitions in self.deleted.values():
            mine = [
                (p.partition_id, EPOCH_OF_THE_DELETED)
                for p in partitions
                if broker_id in p.replicas
            ]
            if mine:
                found[name] = mine
        return found


def _assignment(partition: Partition) -> tuple[Any, ...]:
    return (
        partition.leader,
        partition.leader_epoch,
        partition.replicas,
        partition.adding_replicas,
        partition.removing_replicas,
    )


# --- the messages ---------------------------------------------------------------------------------


class _View:
    """Converts an image to requests."""

    def __init__(self, image: MetadataImage, sender: Sender) -> None:
        self.image = image
        self.sender = sender
        self.alive = {
            broker.broker_id: broker
            for broker in image.cluster.brokers.values()
            if not broker.fenced
        }
        self.live_brokers = tuple(
            _UPDATE.UpdateMetadataBroker(
                id_=broker.broker_id,
                endpoints=tuple(
                    _UPDATE.UpdateMetadataEndpoint(
                        port=each.port,
                        host=each.host,
                        listener=each.name,
                        security_protocol=each.security_protocol,
                    )
                    for each in broker.end_points
                ),
                rack=broker.rack,
            )
            for broker in self.alive.values()
        )

    def topic_states(
        self, topics: Iterable[tuple[str, str, Iterable[Partition]]]
    ) -> tuple[Any, ...]:
        """The UpdateMetadata topic states. topics: (name, id, partitions)."""
        return tuple(
            _UPDATE.UpdateMetadataTopicState(
                topic_name=name,
                topic_id=s.uuid_field(topic_id),
                partition_states=tuple(map(self._state, partitions)),
            )
            for name, topic_id, partitions in topics
        )

    def gone(self, deleted: dict[str, tuple[str, list[Partition]]]) -> Iterator[Any]:
        """The UpdateMetadata topic states of deleted topics (rule 3)."""
        for topic_id, (name, partitions) in deleted.items():
            yield _UPDATE.UpdateMetadataTopicState(
                topic_name=name,
                topic_id=s.uuid_field(topic_id),
                partition_states=tuple(
                    self._state(partition, LEADER_OF_THE_DELETED) for partition in partitions
                ),
            )

    def _state(self, partition: Partition, leader: int | None = None) -> Any:
        return _UPDATE.UpdateMetadataPartitionState(
            partition_index=partition.partition_id,
            controller_epoch=self.sender.zk_epoch,
            leader=partition.leader if leader is None else leader,
            leader_epoch=partition.leader_epoch,
            isr=partition.isr,
            zk_version=partition.partition_epoch,
            replicas=partition.replicas,
            offline_replicas=tuple(each for each in partition.replicas if each not in self.alive),
        )

    def update_metadata(self, topics: tuple[Any, ...], kind: int) -> _ToAll:
        request = _UPDATE.UpdateMetadataRequest(
            controller_id=self.sender.controller_id,
            is_k_raft_controller=True,
            type_=kind,
            controller_epoch=self.sender.zk_epoch,
            broker_epoch=-1,
            topic_states=topics,
            live_brokers=self.live_brokers,
        )
        return _ToAll(_message(request, f"{_KINDS[kind]}, {len(topics)} topics"))

    def leader_and_isr(
        self,
        broker: Broker,
        partitions: dict[str, list[Partition]],
        kind: int,
        new: frozenset[PartitionKey],
    ) -> Message:
        names = self.image.topics.names
        leaders = {p.leader for found in partitions.values() for p in found}
        request = _LEADERS.LeaderAndIsrRequest(
            controller_id=self.sender.controller_id,
            is_k_raft_controller=True,
            controller_epoch=self.sender.zk_epoch,
            broker_epoch=broker.broker_epoch,
            type_=kind,
            topic_states=tuple(
                _LEADERS.LeaderAndIsrTopicState(
                    topic_name=names[topic_id],
                    topic_id=s.uuid_field(topic_id),
                    partition_states=tuple(self._role(p, new) for p in found),
                )
                for topic_id, found in partitions.items()
            ),
            live_leaders=tuple(self._live_leaders(leaders)),
        )
        count = sum(map(len, partitions.values()))
        return _message(request, f"{_KINDS[kind]}, {count} partitions")

    def _role(self, partition: Partition, new: frozenset[PartitionKey]) -> Any:
        return _LEADERS.LeaderAndIsrPartitionState(
            partition_index=partition.partition_id,
            controller_epoch=self.sender.zk_epoch,
            leader=partition.leader,
            leader_epoch=partition.leader_epoch,
            isr=partition.isr,
            partition_epoch=partition.partition_epoch,
            replicas=partition.replicas,
            adding_replicas=partition.adding_replicas,
            removing_replicas=partition.removing_replicas,
            is_new=(partition.topic_id, partition.partition_id) in new,
            leader_recovery_state=partition.leader_recovery_state,
        )

    def _live_leaders(self, leaders: set[int]) -> Iterator[Any]:
        for broker_id in sorted(leaders & self.alive.keys()):
            endpoint = reached_at(self.alive[broker_id], self.sender.listener)
            if endpoint is not None:
                yield _LEADERS.LeaderAndIsrLiveLeader(
                    broker_id=broker_id, host_name=endpoint.host, port=endpoint.port
                )

    def stop_replica(self, broker: Broker, lost: dict[str, list[tuple[int, int]]]) -> Message:
        request = _STOP.StopReplicaRequest(
            controller_id=self.sender.controller_id,
            is_k_raft_controller=True,
            controller_epoch=self.sender.zk_epoch,
            broker_epoch=broker.broker_epoch,
            topic_states=tuple(
                _STOP.StopReplicaTopicState(
                    topic_name=name,
                    partition_states=tuple(
                        _STOP.StopReplicaPartitionState(
                            partition_index=index, leader_epoch=epoch, delete_partition=True
                        )
                        for index, epoch in partitions
                    ),
                )
                for name, partitions in lost.items()
            ),
        )
        return _message(request, f"{sum(map(len, lost.values()))} partitions")


@dataclass(frozen=True, slots=True)
class _ToAll:
    """An encoded UpdateMetadata, of which `to` replaces only the receiver's epoch.

    It is encoded once for all receivers, since a large one takes seconds to encode.
    """

    message: Message

    def to(self, broker: Broker) -> Message:
        body = bytearray(self.message.body)
        struct.pack_into(">q", body, BROKER_EPOCH_AT, broker.broker_epoch)
        return Message(self.message.api_key, bytes(body), self.message.summary)


_KINDS: Final = {INCREMENTAL: "incremental", FULL: "full"}


def _message(request: Any, summary: str) -> Message:
    name = type(request).__name__.removesuffix("Request")
    return Message(request.__api_key__, s.write(request), f"{name} ({summary})")
