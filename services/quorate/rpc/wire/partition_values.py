"""The values of the Partition service: produce, fetch, list offsets, locate.

Topic ids are UUIDs in Kafka's text form; offsets count records, times are milliseconds, sizes
bytes. -1 stands for an unknown leader or epoch, as in Kafka.

Source: proto/quorate/v1/partition.proto.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quorate.raft.errors import ErrorCode
from quorate.raft.types import NO_NODE, Endpoint, OffsetAndEpoch
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
    """One batch for one partition. acks_all: answer when all in-sync replicas have it."""

    partition: PartitionKey
    records: bytes
    acks_all: bool = True
    timeout_ms: int = 30_000


@dataclass(frozen=True, slots=True)
class ProduceResponse:
    """base_offset: of the first record, -1 if nothing was appended."""

    error: ErrorCode
    base_offset: int = NO_OFFSET
    leader_id: int = NO_NODE
    leader_epoch: int = NO_EPOCH
    message: str = ""


@dataclass(frozen=True, slots=True)
class FetchPosition:
    """Where to continue. leader_epoch: -1 if unknown. last_epoch: a follower's last epoch."""

    partition: PartitionKey
    offset: int
    leader_epoch: int = NO_EPOCH
    last_epoch: int = 0
    max_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True)
class PartitionFetch:
    """replica_id: -1 for a reader. positions: those that are new or changed on this stream."""

    replica_id: int
    broker_epoch: int
    max_wait_ms: int
    max_bytes: int
    positions: tuple[FetchPosition, ...] = ()
    forgotten: tuple[PartitionKey, ...] = ()


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """The changes of one partition. records: whole batches, not copied before they are sent."""

    partition: PartitionKey
    error: ErrorCode
    leader_id: int = NO_NODE
    leader_epoch: int = NO_EPOCH
    high_watermark: int = 0
    log_start: int = 0
    log_end: int = 0
    diverging: OffsetAndEpoch | None = None
    records: Sequence[Buffer] = ()


@dataclass(frozen=True, slots=True)
class PartitionFetchResponse:
    """error: for the whole request."""

    error: ErrorCode
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
    """Where a broker listens. epoch: of its registration, unique to the broker's process."""

    id: int
    endpoints: tuple[Endpoint, ...]
    rack: str = ""
    fenced: bool = False
    in_controlled_shutdown: bool = False
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class LocatedPartition:
    """The replicas of a partition. leader_id: -1 for none."""

    index: int
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LocatedTopic:
    """error: UNKNOWN_TOPIC_OR_PARTITION for a name that does not exist."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    topic_id: str = ""
    partitions: tuple[LocatedPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class Located:
    """A broker's view of topics and brokers. metadata_offset: how far it has read."""

    error: ErrorCode
    brokers: tuple[LocatedBroker, ...] = ()
    topics: tuple[LocatedTopic, ...] = ()
    metadata_offset: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """A producer id and its epoch; -1 with an error."""

    error: ErrorCode
    producer_id: int = -1
    producer_epoch: int = -1
    message: str = ""
