"""The values that a partition's replica speaks of: what metadata says, what peers say, what to do.

Offsets count records; epochs are Kafka's leader, partition and broker epochs; times milliseconds.

Source: KIP-101 and KIP-595 (positions and diverging epochs), KIP-497 (AlterPartition), KIP-841,
KIP-903 (broker epochs in fetches and proposals).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from quorate.metadata.requests import IsrMember
from quorate.raft.batches import Batch
from quorate.raft.errors import ErrorCode
from quorate.raft.types import NO_NODE, OffsetAndEpoch

NO_BROKER_EPOCH = -1
NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class PartitionState:
    """What the metadata log says of a partition. leader: -1 for none."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_NODE


@dataclass(frozen=True, slots=True)
class BrokerState:
    """What the metadata log says of a broker. is_active: neither fenced nor in controlled
    shutdown.
    """

    epoch: int
    is_active: bool


Brokers = Mapping[int, BrokerState]


# --- between replicas -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReplicaPosition:
    """Where a follower stands: it has everything before `offset`, the last of it of `last_epoch`.

    leader_epoch: the epoch of the leader that it takes the receiver for.
    """

    leader_epoch: int
    offset: int
    last_epoch: int


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """A leader's answer for one partition.

    read_from: where records begin that go with the answer, None for none. read_end: they end there
    at the latest. diverging: the follower's log is not a prefix of the leader's; it truncates.
    """

    error: ErrorCode
    leader_id: int = NO_NODE
    leader_epoch: int = NO_EPOCH
    high_watermark: int = 0
    log_start: int = 0
    log_end: int = 0
    read_from: int | None = None
    read_end: int = 0
    diverging: OffsetAndEpoch | None = None


# --- what is to be done ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AppendBatches:
    """Append to the log what follows its end."""

    batches: tuple[Batch, ...]


@dataclass(frozen=True, slots=True)
class TruncateLog:
    """Drop everything from `end_offset` on."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class HighWatermarkAdvanced:
    """All in-sync replicas have what lies before `offset`."""

    offset: int


@dataclass(frozen=True, slots=True)
class ProposeIsr:
    """Ask the controller for another ISR (AlterPartition). Answered with
    `PartitionReplica.isr_answered`.
    """

    leader_epoch: int
    partition_epoch: int
    isr: tuple[IsrMember, ...]


@dataclass(frozen=True, slots=True)
class RoleChanged:
    """This replica now leads, follows `leader_id`, or waits for a leader (-1)."""

    role: str
    leader_id: int
    leader_epoch: int


Output = AppendBatches | TruncateLog | HighWatermarkAdvanced | ProposeIsr | RoleChanged


@dataclass(frozen=True, slots=True)
class ProposalAnswer:
    """The controller's answer to a ProposeIsr. With NONE the fields say what was committed."""

    error: ErrorCode
    leader_id: int = NO_NODE
    leader_epoch: int = NO_EPOCH
    isr: tuple[int, ...] = ()
    partition_epoch: int = NO_EPOCH
