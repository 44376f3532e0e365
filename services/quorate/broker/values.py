"""Values of the partition replica's state machine: metadata, replica messages and outputs.

Offsets count records; epochs are Kafka's leader, partition and broker epochs; times are
milliseconds.

Source: KIP-101 and KIP-595 (positions and diverging epochs), KIP-497 (AlterPartition), KIP-841,
KIP-903 (broker epochs in fetches and proposals).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from quorate.common.error_codes import ErrorCode
from quorate.common.identifiers import NO_NODE
from quorate.metadata.requests import IsrMember
from quorate.raft.batches import Batch
from quorate.raft.types import OffsetAndEpoch

NO_BROKER_EPOCH = -1
NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition's state in the metadata log."""

    leader: int
    """The id of the leader, -1 for none."""
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_NODE


@dataclass(frozen=True, slots=True)
class BrokerRegistrationState:
    """A broker's state in the metadata log."""

    epoch: int
    is_active: bool
    """Whether the broker is neither fenced nor in controlled shutdown."""


Brokers = Mapping[int, BrokerRegistrationState]


# --- messages between replicas --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReplicaPosition:
    """A follower has everything before `offset`; its last record is of `last_epoch`."""

    leader_epoch: int
    """The epoch in which the follower expects the receiver to lead."""
    offset: int
    last_epoch: int


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """A leader's fetch response for one partition."""

    error: ErrorCode
    leader_id: int = NO_NODE
    leader_epoch: int = NO_EPOCH
    high_watermark: int = 0
    log_start: int = 0
    log_end: int = 0
    read_from: int | None = None
    """The offset from which to return records, None for none."""
    read_end: int = 0
    """The offset before which the records to return end."""
    diverging: OffsetAndEpoch | None = None
    """Set if the follower's log is not a prefix of the leader's and must be truncated."""


# --- outputs --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AppendReplicaBatches:
    """Append batches that continue the log."""

    batches: tuple[Batch, ...]


@dataclass(frozen=True, slots=True)
class TruncateReplicaLog:
    """Drop everything from `end_offset` on."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class ReplicaHighWatermarkAdvanced:
    """The high watermark is `offset`: all in-sync replicas have everything before it."""

    offset: int


@dataclass(frozen=True, slots=True)
class ProposeIsr:
    """Propose an ISR to the controller (AlterPartition).

    `PartitionReplica.isr_answered` handles the response.
    """

    leader_epoch: int
    partition_epoch: int
    isr: tuple[IsrMember, ...]


@dataclass(frozen=True, slots=True)
class ReplicaRoleChanged:
    """This replica leads, follows `leader_id`, or is idle (-1)."""

    role: str
    leader_id: int
    leader_epoch: int


Output = (
    AppendReplicaBatches
    | TruncateReplicaLog
    | ReplicaHighWatermarkAdvanced
    | ProposeIsr
    | ReplicaRoleChanged
)


@dataclass(frozen=True, slots=True)
class ProposalAnswer:
    """The controller's response to a ProposeIsr. With NONE, the fields are the committed state."""

    error: ErrorCode
    leader_id: int = NO_NODE
    leader_epoch: int = NO_EPOCH
    isr: tuple[int, ...] = ()
    partition_epoch: int = NO_EPOCH
