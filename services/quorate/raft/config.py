"""The initial configuration and state of a raft node. Times are milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from quorate.common import config_types as types
from quorate.common.endpoints import Endpoint
from quorate.common.features import VersionRange
from quorate.common.setting import setting
from quorate.raft.logstate import LogState
from quorate.raft.types import (
    SUPPORTED_KRAFT_VERSION,
    ElectionState,
    ReplicaKey,
    RequiredEnd,
    Voter,
    VoterSet,
)

T = TypeVar("T")


class Randomness(Protocol):
    """An injected source of randomness (`random.Random` is one)."""

    def randint(self, a: int, b: int) -> int: ...

    def choice(self, seq: Sequence[T]) -> T: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings:
    """The settings of every replica. Source: Kafka's QuorumConfig."""

    fetch_timeout_ms: int = setting(
        "controller.quorum.fetch.timeout.ms",
        types.milliseconds(1),
        "2000",
        "How long a voter goes without a successful fetch from the leader before it starts an "
        "election. A leader resigns after 1.5 times this without fetches from a majority.",
    )
    request_timeout_ms: int = setting(
        "controller.quorum.request.timeout.ms",
        types.milliseconds(1),
        "2000",
        "The timeout of a request to another controller.",
    )
    retry_backoff_ms: int = setting(
        "controller.quorum.retry.backoff.ms",
        types.milliseconds(1),
        "50",
        "How long to wait before retrying a failed request to another controller. Kafka's "
        "default is 20.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class VoterSettings(ReplicaSettings):
    """The settings of a replica that may vote. Source: Kafka's QuorumConfig."""

    auto_join: bool = setting(
        "controller.quorum.auto.join.enable",
        types.boolean(),
        "false",
        "Whether this controller adds itself to the voters. It does not do so again after an "
        "administrator has removed it.",
    )
    election_timeout_ms: int = setting(
        "controller.quorum.election.timeout.ms",
        types.milliseconds(1),
        "1000",
        "How long a candidate waits for votes; each wait is a random time between one and two "
        "times this value.",
    )
    election_backoff_max_ms: int = setting(
        "controller.quorum.election.backoff.max.ms",
        types.milliseconds(0),
        "1000",
        "The maximum backoff after a lost election before the next one.",
    )
    fetch_bytes_max: int = setting(
        "controller.quorum.fetch.max.bytes",
        types.size(1, types.INT_MAX),
        str(8 * types.MIB),
        "The maximum size of the records in one Fetch response; a single batch may exceed it. "
        "A replica far away catches up faster with a larger one, which takes more memory.",
    )
    snapshot_chunk_bytes_max: int = setting(
        "controller.quorum.fetch.snapshot.max.bytes",
        types.size(1, types.INT_MAX),
        str(types.MIB),
        "The maximum number of snapshot bytes in one FetchSnapshot response. A replica far away "
        "receives a snapshot faster with a larger one, which takes more memory.",
    )


@dataclass(frozen=True, slots=True)
class RaftConfig(VoterSettings):
    """One replica: what it is, its settings, and the limits that no setting changes."""

    cluster_id: str
    local: ReplicaKey
    endpoints: tuple[Endpoint, ...] = ()
    kraft_version: VersionRange = SUPPORTED_KRAFT_VERSION
    bootstrap: tuple[Endpoint, ...] = ()
    """The setting `controller.quorum.bootstrap.servers`."""
    static_voters: VoterSet = field(default_factory=VoterSet)
    """The setting `controller.quorum.voters` (kraft.version 0)."""
    can_vote: bool = True
    """False for brokers, which stay observers whatever the voter set says."""
    fetch_max_wait_ms: int = 500
    high_watermark_linger_ms: int = 5
    """How long a parked Fetch whose only news is a higher high watermark waits for records to
    travel with, 0 for not at all. It halves the messages of a commit.
    """
    lost_connection_wait_max_ms: int = 60
    """How long the voters that lost their leader take to stand, one after the other."""
    update_voter_period_ms: int = 1_000
    observer_expiry_ms: int = 300_000
    observers_max: int = 1_024
    """How many replicas that are no voters the leader remembers."""
    step_down_period_ms: int = 60_000
    """How long a replica at least leads until it steps down again because a voter is in a higher
    epoch.
    """
    parked_fetches_max: int = 4_096
    pending_changes_max: int = 64
    pending_adds_max: int = 8
    """The most AddVoter requests that wait for their voter to answer and to catch up."""
    pending_reads_max: int = 4_096
    incarnation: int = 0
    """A random number of this process, 64 bits; 0 for unknown. It tells the leader whether two
    processes run as one replica.
    """

    @property
    def check_quorum_timeout_ms(self) -> int:
        return self.fetch_timeout_ms * 3 // 2

    @property
    def begin_quorum_epoch_period_ms(self) -> int:
        return self.fetch_timeout_ms // 2

    def peer_endpoint(self, endpoints: tuple[Endpoint, ...]) -> Endpoint:
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
    """What recovery found on disk."""

    election: ElectionState | None = None
    log: LogState = field(default_factory=LogState)
    voters: tuple[tuple[int, VoterSet], ...] = ()
    """The voter sets, with the offsets of their records (see `MembershipHistory`)."""
    kraft_versions: tuple[tuple[int, int], ...] = ()
    """The values of kraft.version, with the offsets of their records."""
    removed: bool = False
    """Whether a record took this replica out of the voters; it does not join again by itself."""
    required_end: RequiredEnd | None = None
    """What the log must reach again before this replica votes and stands without restrictions."""
