"""State that the active controller's managers share: the working image, sessions and settings.

The working image is ahead of the committed image by the records that are written but not committed
yet. Managers read it and return records; only the controller applies them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from quorate.common.error_codes import ErrorCode
from quorate.common.identifiers import DirectoryId
from quorate.metadata.describe import effective_topic_config
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.metadata.image.partition_index import PartitionIndex
from quorate.metadata.image.partitions import Partition, PartitionKey
from quorate.metadata.image.tokens import TokenSecrets
from quorate.metadata.managers.sessions import BrokerSessions
from quorate.metadata.metadata_version import ELR_VERSION
from quorate.metadata.settings import ControllerSettings
from quorate.records.metadata import MetadataRecord, PartitionRecord


@dataclass(frozen=True, slots=True)
class CurrentControllers:
    """The ids of the quorum's other controllers at present."""

    voters: frozenset[int] = frozenset()
    """The controllers that vote."""
    fetching: frozenset[int] = frozenset()
    """All nodes that fetch, including brokers."""


class RefusedError(Exception):
    """A request, or one part of it, is rejected.

    The manager that handles a part catches this; the controller catches what leaves a manager.
    """

    def __init__(self, error: ErrorCode, message: str = "") -> None:
        super().__init__(message)
        self.error = error
        self.message = message


def note_once(seen: set[PartitionKey], key: PartitionKey) -> None:
    """Add a partition that a request names to `seen`. RefusedError if it is there already."""
    if key in seen:
        raise RefusedError(ErrorCode.INVALID_REQUEST, "The partition is named twice.")
    seen.add(key)


PARTITION_BYTES, REPLICA_BYTES = 80, 24
"""The approximate size of a PartitionRecord: a base, and an addition for each replica."""

TOO_MANY = "Unable to perform excessively large batch operation."


@dataclass(slots=True)
class RequestBatch:
    """The records of all parts of a request, within the limits of one batch."""

    settings: ControllerSettings
    records: list[MetadataRecord] = field(default_factory=list)
    partition_bytes: int = 0

    def add(self, part: Sequence[MetadataRecord]) -> None:
        """Add all records of a part. If they exceed a limit, add none: POLICY_VIOLATION."""
        size = sum(
            PARTITION_BYTES + REPLICA_BYTES * len(record.replicas)
            for record in part
            if isinstance(record, PartitionRecord)
        )
        self._check(len(part), size)
        self.records += part
        self.partition_bytes += size

    def require_room(self, partitions: int, factor: int, others: int) -> None:
        """Raise POLICY_VIOLATION if a part with so many partitions would exceed a limit.

        others: how many records it has besides. A few bytes of a request ask for thousands of
        partitions, so this precedes their placement.
        """
        self._check(partitions + others, partitions * (PARTITION_BYTES + REPLICA_BYTES * factor))

    def _check(self, count: int, size: int) -> None:
        if (
            len(self.records) + count > self.settings.records_per_batch_max
            or self.partition_bytes + size > self.settings.batch_bytes_max
        ):
            raise RefusedError(ErrorCode.POLICY_VIOLATION, TOO_MANY)


NOBODY = -1


@dataclass(slots=True)
class ElectionTask:
    """The partitions to change after the state of a broker changed.

    `leadership` changes them in slices that fit a batch. One of `removed`, `added` and `unclean` is
    the broker, the others are NOBODY.
    """

    broker_id: int
    keys: list[PartitionKey]
    removed: int = NOBODY
    """The broker leaves."""
    added: int = NOBODY
    """The broker became active."""
    unclean: int = NOBODY
    """The broker may have lost records."""
    position: int = 0

    @property
    def is_done(self) -> bool:
        return self.position >= len(self.keys)


@dataclass(slots=True)
class ControllerContext:
    """The active controller's state."""

    image: MetadataImage
    index: PartitionIndex
    sessions: BrokerSessions
    settings: ControllerSettings
    random_uuid: Callable[[], bytes]
    """Returns sixteen random bytes per call."""
    enforce_eligibility: bool = True
    """False disables the checks of a proposed ISR (KIP-841), for tests that demonstrate their
    purpose.
    """
    controllers: CurrentControllers | None = None
    """The quorum's other controllers; None stands for all registered controllers."""
    wall_ms: Callable[[], int] = lambda: 0
    """Returns the milliseconds since 1970."""
    node_id: int = 0
    """The id of this controller, for messages."""
    token_secrets: TokenSecrets = field(default_factory=TokenSecrets)
    cursor: int = 0
    """The start of the next placement. It advances with each partition to spread the load."""
    colliding: dict[str, str] = field(default_factory=dict)
    """Topic names by `collision_key`."""
    registered_at: dict[int, int] = field(default_factory=dict)
    """The offsets of the registrations, by broker; without those of previous active controllers."""
    election_tasks: deque[ElectionTask] = field(default_factory=deque)
    """The tasks in progress."""

    def is_busy_with(self, broker_id: int) -> bool:
        """Whether the broker is still being removed from ISRs. It cannot become active before."""
        return any(
            task.broker_id == broker_id and task.added != broker_id for task in self.election_tasks
        )

    @property
    def elr_enabled(self) -> bool:
        return self.image.features.levels.get(ELR_VERSION, 0) >= 1

    def partition(self, key: PartitionKey) -> Partition:
        """The partition of a key from the index."""
        found = self.image.topics.partition(*key)
        assert found is not None, f"the index contains {key}, which does not exist"
        return found

    def find(self, topic: str, index: int) -> Partition:
        """Find a partition by topic name. UNKNOWN_TOPIC_OR_PARTITION if it does not exist."""
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
        """Raise STALE_BROKER_EPOCH unless the epoch is that of the registered process."""
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

    def batch(self) -> RequestBatch:
        """An empty batch for the records of one request."""
        return RequestBatch(self.settings)

    # --- configuration ----------------------------------------------------------------------------

    def topic_config(self, topic_id: str, name: str) -> str:
        """A topic's effective value: its own, the cluster-wide default, or Kafka's default.

        The config must have a default.
        """
        topic = self.image.topics.names.get(topic_id, "")
        found = effective_topic_config(self.image, topic, name)
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
        """The directory of a new replica on the broker (KIP-858).

        It is the broker's directory if the broker has exactly one. Otherwise it is one of Kafka's
        reserved ids: UNASSIGNED, with which the broker decides, or MIGRATING for a broker that
        registered none.
        """
        broker = self.image.cluster.brokers.get(broker_id)
        if broker is None or len(broker.log_dirs) > 1:
            return UNASSIGNED_DIRECTORY
        return broker.log_dirs[0] if broker.log_dirs else MIGRATING_DIRECTORY

    def is_online(self, broker_id: int, directory_id: DirectoryId) -> bool:
        """Whether a replica of a registered broker may be in a directory.

        It may be in one that the broker registered and did not lose, or in one that is not known
        yet. A broker that registered below metadata.version 3.7-IV2 has none that are known.
        """
        if directory_id in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY):
            return True
        registered = self.image.cluster.brokers[broker_id].log_dirs
        return directory_id != LOST_DIRECTORY and (not registered or directory_id in registered)


MIGRATING_DIRECTORY: DirectoryId = "A" * 22
"""Kafka's DirectoryId.MIGRATING (0): the replica was created before directories were recorded."""
UNASSIGNED_DIRECTORY: DirectoryId = "A" * 21 + "Q"
"""Kafka's DirectoryId.UNASSIGNED (1): the broker has not chosen a directory yet."""
LOST_DIRECTORY: DirectoryId = "A" * 21 + "g"
"""Kafka's DirectoryId.LOST (2): the replica is in a directory that failed."""
RESERVED_DIRECTORIES = frozenset("A" * 21 + last for last in "AQgw")
"""MIGRATING, UNASSIGNED, LOST and one more: small numbers that do not identify a directory."""
