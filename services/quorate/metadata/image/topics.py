"""Topics and their partitions, as part of the image.

`_partitions` holds one dictionary per topic. An image and its copies share a dictionary until one
of them changes it; `_owned` holds those that this image may change in place. The cost of copying
therefore grows with the topics, not with the partitions.

Source: KIP-631; Kafka's TopicsImage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from quorate.metadata.image.delta import MetadataDelta
from quorate.metadata.image.partition_index import PartitionIndex
from quorate.metadata.image.partitions import Partition, PartitionKey, merged, normalized
from quorate.metadata.metadata_version import at_level, partition_version
from quorate.records.metadata import (
    ClearElrRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)


@dataclass(slots=True, repr=False)
class TopicsImage:
    """The topics of the cluster and their partitions."""

    names: dict[str, str] = field(default_factory=dict)
    """The name of each topic by id."""
    ids: dict[str, str] = field(default_factory=dict, compare=False)
    """The id of each topic by name. `_partitions` holds the same topics."""
    partition_count: int = field(default=0, compare=False)
    _partitions: dict[str, dict[int, Partition]] = field(default_factory=dict)
    _owned: dict[str, dict[int, Partition]] = field(default_factory=dict, compare=False)
    index: PartitionIndex | None = field(default=None, compare=False)
    """The active controller's index, updated with each partition change; None elsewhere."""

    def copy(self) -> TopicsImage:
        """A copy without the index."""
        # Both images share the dictionaries: neither may change them in place.
        self._owned = {}
        return TopicsImage(
            self.names.copy(), self.ids.copy(), self.partition_count, self._partitions.copy()
        )

    def __len__(self) -> int:
        return len(self.names)

    # --- reading ----------------------------------------------------------------------------------

    def partitions(self, topic_id: str) -> Mapping[int, Partition]:
        """The topic's partitions by number, in arbitrary order; empty for an unknown topic."""
        return self._partitions.get(topic_id, {})

    def partition(self, topic_id: str, index: int) -> Partition | None:
        found = self._partitions.get(topic_id)
        return None if found is None else found.get(index)

    def all_partitions(self) -> Iterator[Partition]:
        for partitions in self._partitions.values():
            yield from partitions.values()

    def by_topic(self) -> Iterable[tuple[str, Mapping[int, Partition]]]:
        """Pairs of a topic id and the topic's partitions by number."""
        return self._partitions.items()

    def keys(self) -> set[PartitionKey]:
        """The keys of all partitions."""
        return {
            (topic_id, number)
            for topic_id, partitions in self._partitions.items()
            for number in partitions
        }

    def records(self, level: int) -> Iterator[MetadataRecord]:
        """The record of each topic, followed by those of its partitions."""
        version = partition_version(level)
        for topic_id, name in self.names.items():
            yield TopicRecord(name, topic_id, version=0)
            for partition in self._partitions[topic_id].values():
                yield partition if partition.version == version else at_level(partition, level)

    # --- replay -----------------------------------------------------------------------------------

    def _mine(self, topic_id: str) -> dict[int, Partition]:
        """The topic's partitions, free to change in place. ValueError for an unknown topic."""
        found = self._owned.get(topic_id)
        if found is None:
            shared = self._partitions.get(topic_id)
            if shared is None:
                raise ValueError(f"there is no topic {topic_id}")
            found = self._partitions[topic_id] = self._owned[topic_id] = shared.copy()
        return found

    def apply_topic(self, record: TopicRecord, delta: MetadataDelta) -> None:
        if record.name in self.ids or record.topic_id in self.names:
            raise ValueError(f"topic {record.name} ({record.topic_id}) already exists")
        self.names[record.topic_id] = record.name
        self.ids[record.name] = record.topic_id
        self._partitions[record.topic_id] = self._owned[record.topic_id] = {}
        delta.topics_created.add(record.topic_id)

    def apply_partition(self, record: PartitionRecord, delta: MetadataDelta) -> None:
        self.load_partition(record, delta)
        delta.partitions.add((record.topic_id, record.partition_id))

    def load_partition(self, record: PartitionRecord, _delta: MetadataDelta) -> None:
        """Apply a partition record without adding it to the delta."""
        topic_id = record.topic_id
        partitions = self._owned.get(topic_id)
        if partitions is None:
            partitions = self._mine(topic_id)
        if not record.replicas:
            raise ValueError(f"partition {record.partition_id} of {topic_id} has no replicas")
        if record.eligible_leader_replicas == () or record.last_known_elr == ():
            record = normalized(record)
        number = record.partition_id
        old = partitions.get(number)
        partitions[number] = record
        if old is None:
            self.partition_count += 1
        if self.index is not None:
            self.index.replace(old, record)

    def apply_change(self, record: PartitionChangeRecord, delta: MetadataDelta) -> None:
        old = self.partition(record.topic_id, record.partition_id)
        if old is None:
            raise ValueError(f"there is no partition {record.partition_id} of {record.topic_id}")
        self._set(merged(old, record), old, delta)

    def _set(self, new: Partition, old: Partition, delta: MetadataDelta) -> None:
        self._mine(new.topic_id)[new.partition_id] = new
        if self.index is not None:
            self.index.replace(old, new)
        delta.partitions.add((new.topic_id, new.partition_id))

    def apply_remove(self, record: RemoveTopicRecord, delta: MetadataDelta) -> str:
        """Remove a topic and return its name."""
        name = self.names.pop(record.topic_id, None)
        if name is None:
            raise ValueError(f"there is no topic {record.topic_id}")
        del self.ids[name]
        gone = self._partitions.pop(record.topic_id)
        self._owned.pop(record.topic_id, None)
        self.partition_count -= len(gone)
        if self.index is not None:
            for partition in gone.values():
                self.index.replace(partition, None)
        delta.topic_deleted(record.topic_id, name)
        return name

    def apply_clear_elr(self, record: ClearElrRecord, delta: MetadataDelta) -> None:
        """Clear the ELR of one topic, or of all: a change of each partition that has one."""
        topic_ids = list(self.names)
        if record.topic_name:
            if record.topic_name not in self.ids:
                raise ValueError(f"there is no topic {record.topic_name}")
            topic_ids = [self.ids[record.topic_name]]
        for topic_id in topic_ids:
            for old in list(self._partitions[topic_id].values()):
                if old.eligible_leader_replicas or old.last_known_elr:
                    change = PartitionChangeRecord(
                        old.partition_id,
                        old.topic_id,
                        eligible_leader_replicas=(),
                        last_known_elr=(),
                    )
                    self._set(merged(old, change), old, delta)
