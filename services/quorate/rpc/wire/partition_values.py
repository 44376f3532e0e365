"""The values of the Partition service: produce, fetch, list offsets, locate.

Topic ids are UUIDs in Kafka's text form; offsets count records, times are milliseconds, sizes
bytes. -1 stands for an unknown leader or epoch, as in Kafka.

Source: proto/quorate/v1/partition.proto.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.identifiers import NO_NODE, ZERO_UUID
from quorate.raft.types import OffsetAndEpoch
from quorate.rpc.wire.values import Buffer

NO_OFFSET = -1
NO_EPOCH = -1


@dataclass(frozen=True, slots=True, order=True)
class PartitionKey:
    """A partition of a topic."""

    topic_id: str
    index: int

    def __str__(self) -> str:
        return f"{self.topic_id}:{self.index}"


@dataclass(frozen=True, slots=True)
class ProduceRequest:
    """One batch for one partition."""

    partition: PartitionKey
    records: bytes
    acks_all: bool = True
    """Whether the leader answers only when all in-sync replicas have the batch."""
    timeout_ms: int = 30_000


@dataclass(frozen=True, slots=True)
class ProduceResponse:
    """The response to ProduceRequest."""

    error: ErrorCode
    base_offset: int = NO_OFFSET
    """The offset of the first record, -1 if nothing was appended."""
    leader_id: int = NO_NODE
    leader_epoch: int = NO_EPOCH
    message: str = ""


@dataclass(frozen=True, slots=True)
class FetchPosition:
    """The position at which a Fetch continues."""

    partition: PartitionKey
    offset: int
    leader_epoch: int = NO_EPOCH
    """The epoch of the leader, -1 if unknown."""
    last_epoch: int = 0
    """The last epoch of a follower's log."""
    max_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True)
class PartitionFetch:
    """A request for records of partitions."""

    replica_id: int
    """The id of the follower, -1 for a reader."""
    broker_epoch: int
    max_wait_ms: int
    max_bytes: int
    positions: tuple[FetchPosition, ...] = ()
    """The positions that are new or changed on this stream."""
    forgotten: tuple[PartitionKey, ...] = ()


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """The changes of one partition."""

    partition: PartitionKey
    error: ErrorCode
    leader_id: int = NO_NODE
    leader_epoch: int = NO_EPOCH
    high_watermark: int = 0
    log_start: int = 0
    log_end: int = 0
    diverging: OffsetAndEpoch | None = None
    records: Sequence[Buffer] = ()
    """Whole batches, which are not copied before they are sent."""


@dataclass(frozen=True, slots=True)
class PartitionFetchResponse:
    """The response to PartitionFetch."""

    error: ErrorCode
    """The error of the whole request."""
    partitions: tuple[FetchedPartition, ...] = ()
    message: str = ""


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """Where a partition begins and ends."""

    error: ErrorCode
    log_start: int = 0
    high_watermark: int = 0
    log_end: int = 0
    leader_id: int = NO_NODE
    leader_epoch: int = NO_EPOCH
    message: str = ""


@dataclass(frozen=True, slots=True)
class LocatedBroker:
    """A broker and the endpoints at which it listens."""

    id: int
    endpoints: tuple[Endpoint, ...]
    rack: str = ""
    fenced: bool = False
    in_controlled_shutdown: bool = False
    epoch: int = -1
    """The epoch of its registration, unique to the broker's process."""


@dataclass(frozen=True, slots=True)
class LocatedPartition:
    """The replicas of a partition."""

    index: int
    leader_id: int
    """The id of the leader, -1 for none."""
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LocatedTopic:
    """Where the partitions of a topic are."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    """UNKNOWN_TOPIC_OR_PARTITION for a name that does not exist."""
    topic_id: str = ZERO_UUID
    """ZERO_UUID with an error."""
    partitions: tuple[LocatedPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class Located:
    """A broker's view of topics and brokers."""

    error: ErrorCode
    brokers: tuple[LocatedBroker, ...] = ()
    topics: tuple[LocatedTopic, ...] = ()
    metadata_offset: int = 0
    """How far the broker has read the metadata log."""
    message: str = ""


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """A producer id and its epoch; -1 with an error."""

    error: ErrorCode
    producer_id: int = -1
    producer_epoch: int = -1
    message: str = ""
