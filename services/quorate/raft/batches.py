"""Record batches as the protocol sees them: offsets, an epoch, and control records as values.

A data batch is opaque bytes from producer to follower to reader: the protocol carries `data`
without a look.

Source: KIP-853, "Log and snapshot control records"; KIP-595, LeaderChangeMessage; KIP-630,
SnapshotHeaderRecord.
"""

from __future__ import annotations

from quorate.common.value import value
from quorate.raft.types import ReplicaKey, VoterSet


@value
class LeaderChange:
    """Written first in each epoch by its leader. `voters` is the set in force, `granting` who voted
    for it.
    """

    leader_id: int
    voters: tuple[ReplicaKey, ...]
    granting: tuple[ReplicaKey, ...]
    version: int = 0


@value
class KRaftVersion:
    """The finalized level of the feature kraft.version from this offset on."""

    level: int


@value
class VotersRecord:
    """The entire set of voters from this offset on (KRaftVoters in Kafka's dumps)."""

    voters: VoterSet


@value
class SnapshotHeader:
    """The first record of a checkpoint."""

    last_contained_log_timestamp: int
    """The time in milliseconds since 1970, 0 if unknown."""


@value
class SnapshotFooter:
    """Last record of a checkpoint: what lacks it is incomplete."""


@value
class UnknownControl:
    """A control record of a type that is not the quorum's (a transaction marker, say): kept, never
    acted on.
    """

    type: int
    data: bytes


ControlRecord = (
    LeaderChange | KRaftVersion | VotersRecord | SnapshotHeader | SnapshotFooter | UnknownControl
)


@value
class Batch:
    """One record batch: the unit of append, replication and atomicity."""

    base_offset: int
    """The offset of the first record."""
    last_offset: int
    """The offset of the last record, inclusive."""
    epoch: int
    """The leader epoch under which it was appended."""
    control: tuple[ControlRecord, ...] = ()
    """The control records, in order; empty for a data batch."""
    data: object = None
    """The encoded batch, opaque here (None where only the protocol runs)."""

    @property
    def end_offset(self) -> int:
        return self.last_offset + 1
