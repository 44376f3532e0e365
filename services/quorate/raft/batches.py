"""Record batches as the protocol sees them: offsets, an epoch, and control records as values.

A data batch is opaque bytes from producer to follower to reader: the protocol carries `data`
without a look.

Source: KIP-853, "Log and snapshot control records"; KIP-595, LeaderChangeMessage; KIP-630,
SnapshotHeaderRecord.
"""

from __future__ import annotations

from quorate.raft.types import ReplicaKey, VoterSet
from quorate.raft.value import value


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
class Voters:
    """The entire set of voters from this offset on (KRaftVoters in Kafka's dumps)."""

    voters: VoterSet


@value
class SnapshotHeader:
    """First record of a checkpoint. `last_contained_log_timestamp`: milliseconds since 1970, 0 if
    unknown.
    """

    last_contained_log_timestamp: int


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
    LeaderChange | KRaftVersion | Voters | SnapshotHeader | SnapshotFooter | UnknownControl
)


@value
class Batch:
    """One record batch: the unit of append, replication and atomicity.

    base_offset, last_offset: offsets of its first and last record, inclusive.
    epoch: the leader epoch under which it was appended.
    control: its control records, in order; empty for a data batch.
    data: the encoded batch, opaque here (None where only the protocol runs).
    """

    base_offset: int
    last_offset: int
    epoch: int
    control: tuple[ControlRecord, ...] = ()
    data: object = None

    @property
    def end_offset(self) -> int:
        return self.last_offset + 1
