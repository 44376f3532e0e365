"""The initial configuration and state of a raft node. Times are milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from quorate.raft.logstate import LogState
from quorate.raft.types import (
    SUPPORTED_KRAFT_VERSION,
    ElectionState,
    Endpoint,
    ReplicaKey,
    RequiredEnd,
    VersionRange,
    Voter,
    VoterSet,
)

T = TypeVar("T")


class Randomness(Protocol):
    """An injected source of randomness (`random.Random` is one)."""

    def randint(self, a: int, b: int) -> int: ...

    def choice(self, seq: Sequence[T]) -> T: ...


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """Settings of one replica; the timers are Kafka's, with Kafka's defaults.

    bootstrap: `controller.quorum.bootstrap.servers`. static_voters: `controller.quorum.voters`
    (kraft.version 0).
    step_down_period_ms: how long a replica at least leads until it steps down again because a voter
    is in a higher epoch.
    can_vote: False for brokers, which stay observers whatever the voter set says.
    high_watermark_linger_ms: how long a parked Fetch whose only news is a higher high watermark
    waits for records to travel with, 0 for not at all. It halves the messages of a commit.
    incarnation: a random number of this process, 64 bits; 0 for unknown. It tells the leader
    whether two processes run as one replica.
    observers_max: how many replicas that are no voters the leader remembers.
    pending_adds_max: AddVoter requests that wait for their voter to answer and to catch up.
    """

    cluster_id: str
    local: ReplicaKey
    endpoints: tuple[Endpoint, ...] = ()
    kraft_version: VersionRange = SUPPORTED_KRAFT_VERSION
    bootstrap: tuple[Endpoint, ...] = ()
    static_voters: VoterSet = field(default_factory=VoterSet)
    can_vote: bool = True
    auto_join: bool = False
    election_timeout_ms: int = 1_000
    election_backoff_max_ms: int = 1_000
    fetch_timeout_ms: int = 2_000
    request_timeout_ms: int = 2_000
    retry_backoff_ms: int = 50
    fetch_max_wait_ms: int = 500
    high_watermark_linger_ms: int = 5
    fetch_bytes_max: int = 8 * 1024 * 1024
    snapshot_chunk_bytes_max: int = 8 * 1024 * 1024
    lost_connection_wait_max_ms: int = 60
    update_voter_period_ms: int = 1_000
    observer_expiry_ms: int = 300_000
    observers_max: int = 1_024
    step_down_period_ms: int = 60_000
    parked_fetches_max: int = 4_096
    pending_changes_max: int = 64
    pending_adds_max: int = 8
    pending_reads_max: int = 4_096
    incarnation: int = 0

    @property
    def check_quorum_timeout_ms(self) -> int:
        return self.fetch_timeout_ms * 3 // 2

    @property
    def begin_quorum_epoch_period_ms(self) -> int:
        return self.fetch_timeout_ms // 2

    def dialled(self, endpoints: tuple[Endpoint, ...]) -> Endpoint:
        """The endpoint of a peer that this replica connects to, of at least one.

        It is the endpoint of the first of this replica's own listeners that the peer has too, so
        that a listener can be added, moved to the front and removed node by node (KIP-853
        "Upgrading controller listener"). Without a common listener it is the peer's first.
        """
        if len(endpoints) == 1:
            return endpoints[0]
        by_name = {endpoint.name: endpoint for endpoint in reversed(endpoints)}
        known = (by_name[own.name] for own in self.endpoints if own.name in by_name)
        return next(known, endpoints[0])

    @property
    def voter(self) -> Voter:
        """What this replica would be as a voter."""
        return Voter(self.local, self.endpoints, self.kraft_version)


@dataclass(frozen=True, slots=True)
class InitialState:
    """What recovery found on disk.

    voters, kraft_versions: with the offsets of their records (see `MembershipHistory`).
    removed: this replica was a voter and a record took it out; it does not join again by itself.
    required_end: what its log must reach again before it votes and stands without restrictions.
    """

    election: ElectionState | None = None
    log: LogState = field(default_factory=LogState)
    voters: tuple[tuple[int, VoterSet], ...] = ()
    kraft_versions: tuple[tuple[int, int], ...] = ()
    removed: bool = False
    required_end: RequiredEnd | None = None
