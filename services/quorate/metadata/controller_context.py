"""What the managers of the active controller share: the working image, sessions, settings.

The working image is ahead of the committed one by the records that are written and not committed
yet. Managers read it and return records; only the controller applies them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from quorate.metadata import config_defs
from quorate.metadata.configs import ResourceType
from quorate.metadata.image import MetadataImage
from quorate.metadata.metadata_version import ELR_VERSION, LATEST_LEVEL
from quorate.metadata.partition_index import PartitionIndex
from quorate.metadata.partitions import Partition, PartitionKey
from quorate.metadata.sessions import BrokerSessions
from quorate.raft.errors import ErrorCode
from quorate.raft.types import DirectoryId
from quorate.records.metadata import MetadataRecord, PartitionRecord


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Times are milliseconds, 0 turns what they pace off. Names are Kafka's.

    session_timeout_ms: broker.session.timeout.ms. idle_interval_ms: metadata.max.idle.interval.ms.
    num_partitions, default_replication_factor: for topics that leave it to the cluster.
    metadata_version_max: the highest metadata.version that this controller can serve.
    records_per_batch_max: what one request or tick writes at most; batch_bytes_max: how large new
    partitions may make it.
    """

    session_timeout_ms: int = 9_000
    idle_interval_ms: int = 500
    num_partitions: int = 1
    default_replication_factor: int = 1
    leader_imbalance_check_interval_ms: int = 300_000
    unclean_election_interval_ms: int = 300_000
    metadata_version_max: int = LATEST_LEVEL
    records_per_batch_max: int = 10_000
    batch_bytes_max: int = 7 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class CurrentControllers:
    """The other controllers of the quorum as they are now, by id: those that vote, and all that
    fetch (brokers among them).
    """

    voters: frozenset[int] = frozenset()
    fetching: frozenset[int] = frozenset()


class RefusedError(Exception):
    """One part of a request cannot be done. Caught by the manager that answers for the part."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


PARTITION_BYTES, REPLICA_BYTES = 80, 24
"""About what a PartitionRecord takes, and more for each replica."""

TOO_MANY = "Unable to perform excessively large batch operation."


@dataclass(slots=True)
class Batch:
    """The records of a request's parts, within the limits of one batch."""

    settings: ControllerSettings
    records: list[MetadataRecord] = field(default_factory=list)
    partition_bytes: int = 0

    def add(self, part: Sequence[MetadataRecord]) -> None:
        """All of the part, or POLICY_VIOLATION and nothing of it."""
        size = self.partition_bytes + sum(
            PARTITION_BYTES + REPLICA_BYTES * len(record.replicas)
            for record in part
            if isinstance(record, PartitionRecord)
        )
        count = len(self.records) + len(part)
        if count > self.settings.records_per_batch_max or size > self.settings.batch_bytes_max:
            raise RefusedError(ErrorCode.POLICY_VIOLATION, TOO_MANY)
        self.records += part
        self.partition_bytes = size


NOBODY = -1


@dataclass(slots=True)
class ElectionTask:
    """The partitions to change because of what happened to a broker. `leadership` does them in
    slices that fit a batch. One of `removed`, `added` and `unclean` is the broker.
    """

    broker_id: int
    keys: list[PartitionKey]
    removed: int = NOBODY
    """It leaves."""
    added: int = NOBODY
    """It became active."""
    unclean: int = NOBODY
    """It may have lost records."""
    position: int = 0

    @property
    def is_done(self) -> bool:
        return self.position >= len(self.keys)


@dataclass(slots=True)
class ControllerContext:
    """The active controller's state.

    random_uuid: sixteen random bytes a call. enforce_eligibility: False takes KIP-841's checks of a
    proposed ISR away, for tests that show what they are good for. controllers: None for "all that
    are registered".
    """

    image: MetadataImage
    index: PartitionIndex
    sessions: BrokerSessions
    settings: ControllerSettings
    random_uuid: Callable[[], bytes]
    enforce_eligibility: bool = True
    controllers: CurrentControllers | None = None
    cursor: int = 0
    """Where the placement of the next partition begins; moves on so that load spreads."""
    colliding: dict[str, str] = field(default_factory=dict)
    """The topics by `collision_key`."""
    election_tasks: deque[ElectionTask] = field(default_factory=deque)
    """The tasks that are begun and not done."""

    def is_busy_with(self, broker_id: int) -> bool:
        """Whether it is still being taken out of ISRs: it cannot become active before."""
        return any(
            task.broker_id == broker_id and task.added != broker_id for task in self.election_tasks
        )

    @property
    def elr_enabled(self) -> bool:
        return self.image.features.levels.get(ELR_VERSION, 0) >= 1

    def partition(self, key: PartitionKey) -> Partition:
        """A partition that the index names."""
        found = self.image.topics.partition(*key)
        assert found is not None, f"the index names {key}, which is not there"
        return found

    def find(self, topic: str, index: int) -> Partition:
        """UNKNOWN_TOPIC_OR_PARTITION for what does not exist."""
        topic_id = self.image.topics.ids.get(topic)
        if topic_id is None:
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic}")
        found = self.image.topics.partition(topic_id, index)
        if found is None:
            raise RefusedError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic}-{index}"
            )
        return found

    def check_broker_epoch(self, broker_id: int, epoch: int) -> None:
        """STALE_BROKER_EPOCH for a process that is not the registered one."""
        broker = self.image.cluster.brokers.get(broker_id)
        if broker is None:
            raise RefusedError(
                ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker {broker_id}"
            )
        if broker.broker_epoch != epoch:
            raise RefusedError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"Expected broker epoch {broker.broker_epoch}, but got {epoch}",
            )

    def batch(self) -> Batch:
        """What one request writes, part by part."""
        return Batch(self.settings)

    # --- configuration ----------------------------------------------------------------------------

    def topic_config(self, topic_id: str, name: str) -> str:
        """A topic's value of a config that has a default: its own, the cluster's, or Kafka's."""
        topic = self.image.topics.names.get(topic_id, "")
        own = self.image.configs.of(ResourceType.TOPIC, topic).get(name)
        if own is not None:
            return own
        definition = config_defs.TOPIC[name]
        cluster = self.image.configs.of(ResourceType.BROKER, "")
        found = cluster.get(definition.synonym or name, definition.default)
        assert found is not None, f"{name} has no default"
        return found

    def allows_unclean(self, topic_id: str) -> bool:
        value = self.topic_config(topic_id, "unclean.leader.election.enable")
        return value.strip().lower() == "true"

    def min_insync_replicas(self, topic_id: str) -> int:
        try:
            return int(self.topic_config(topic_id, "min.insync.replicas"))
        except ValueError:
            return 1

    # --- directories ------------------------------------------------------------------------------

    def directory_of(self, broker_id: int) -> DirectoryId:
        """Where a new replica on that broker goes: its directory if it has one, else Kafka's
        reserved id for "the broker decides" (KIP-858, UNASSIGNED).
        """
        broker = self.image.cluster.brokers.get(broker_id)
        if broker is not None and len(broker.log_dirs) == 1:
            return broker.log_dirs[0]
        return UNASSIGNED_DIRECTORY


UNASSIGNED_DIRECTORY: DirectoryId = "A" * 22
"""Kafka's DirectoryId.UNASSIGNED: sixteen zero bytes."""
LOST_DIRECTORY: DirectoryId = "A" * 21 + "Q"
"""Kafka's DirectoryId.LOST: in one that failed."""
MIGRATING_DIRECTORY: DirectoryId = "A" * 21 + "g"
"""Kafka's DirectoryId.MIGRATING: from before directories were noted."""
RESERVED_DIRECTORIES = frozenset("A" * 21 + last for last in "AQgw")
"""UNASSIGNED, LOST, MIGRATING and one more: small numbers that name no directory."""
