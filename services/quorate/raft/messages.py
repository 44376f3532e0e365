"""The requests and responses of the protocol, as immutable values.

Peers (KIP-595, KIP-853, KIP-996, KIP-630): Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch,
FetchSnapshot, UpdateVoter, ApiVersions. Administrators: AddVoter, RemoveVoter, UpdateKRaftVersion,
TransferLeadership, DescribeQuorum, ReadIndex.

Every request names its cluster; every request between replicas names the sender's key and, where it
is meant for one replica, the receiver's. Offsets are log offsets; times are milliseconds; `None` is
"unknown".
"""

from __future__ import annotations

from dataclasses import field

from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.features import VersionRange
from quorate.common.value import value
from quorate.raft.batches import Batch
from quorate.raft.types import OffsetAndEpoch, ReplicaKey, Voter, VoterSet


@value
class CurrentLeader:
    """The leader as the answering replica knows it. `epoch` is its own epoch; `id` None if no
    leader is known.
    """

    epoch: int
    id: int | None = None
    endpoints: tuple[Endpoint, ...] = ()


# --- elections ------------------------------------------------------------------------------------


@value
class VoteRequest:
    """KIP-853 Vote with KIP-996's pre_vote. `epoch` is the candidate's: its own when pre-voting,
    else one more.
    """

    cluster_id: str
    epoch: int
    candidate: ReplicaKey
    voter: ReplicaKey
    last_epoch: int
    last_offset: int
    pre_vote: bool = False


@value
class VoteResponse:
    """The response to VoteRequest."""

    error: ErrorCode
    leader: CurrentLeader
    granted: bool = False
    message: str = ""
    granted_if_all: bool = False
    """Whether the vote counts only if all voters of the candidate's voter set vote for it (see
    `required_end`); `granted` is False then.
    """


@value
class BeginQuorumEpochRequest:
    """The leader of `epoch` says so, with its endpoints, to the voter `voter`."""

    cluster_id: str
    epoch: int
    leader: ReplicaKey
    leader_endpoints: tuple[Endpoint, ...]
    voter: ReplicaKey


@value
class BeginQuorumEpochResponse:
    error: ErrorCode
    leader: CurrentLeader
    message: str = ""


@value
class EndQuorumEpochRequest:
    """The leader of `epoch` resigns."""

    cluster_id: str
    epoch: int
    leader: ReplicaKey
    preferred_candidates: tuple[ReplicaKey, ...]
    """The first of these elects at once, the others wait their turn."""
    leader_endpoints: tuple[Endpoint, ...] = ()


@value
class EndQuorumEpochResponse:
    error: ErrorCode
    leader: CurrentLeader
    message: str = ""


# --- replication ----------------------------------------------------------------------------------


@value
class FetchRequest:
    """Asks for records from `offset` and acknowledges all before it as durable."""

    cluster_id: str
    replica: ReplicaKey
    epoch: int
    """The epoch in which the sender believes."""
    offset: int
    last_epoch: int
    """The epoch of the sender's last record, 0 for an empty log."""
    high_watermark: int = -1
    """The high watermark that the sender knows, -1 for none. A stale one is answered without
    waiting.
    """
    max_wait_ms: int = 500
    """How long the leader may park the request."""
    max_bytes: int = 8 * 1024 * 1024
    """The limit on the size of the records; one batch may exceed it."""
    read_round: int = 0
    """The last round of the leader that the sender saw (see ReadIndex)."""
    endpoints: tuple[Endpoint, ...] = ()
    incarnation: int = 0
    """A random number of the sender's process, 0 for unknown."""


@value
class FetchResponse:
    """Exactly one of: an error, a divergence to truncate to, a snapshot to fetch, or records from
    `records_from`.

    In the response of the leader's core, `records_from` is the offset to read from and `batches` is
    empty: the owner of the log adds the records (bytes on the wire, parsed batches for the core
    that receives them).
    """

    error: ErrorCode
    leader: CurrentLeader
    high_watermark: int = -1
    log_start_offset: int = 0
    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None
    records_from: int | None = None
    max_bytes: int = 0
    read_round: int = 0
    batches: tuple[Batch, ...] = ()
    message: str = ""
    traces: tuple[tuple[int, str], ...] = ()
    """The (offset, traceparent) of traced records; the protocol ignores them."""
    acknowledged: OffsetAndEpoch | None = None
    """What an earlier process of the fetching replica acknowledged in this epoch, if the Fetch is
    below it: the log end that the replica must reach again.
    """


@value
class FetchSnapshotRequest:
    """Asks for the bytes of `snapshot` from `position` on; resumable (KIP-630)."""

    cluster_id: str
    replica: ReplicaKey
    epoch: int
    snapshot: OffsetAndEpoch
    position: int
    max_bytes: int = 1024 * 1024


@value
class FetchSnapshotResponse:
    """Bytes [position, position + len(data)) of a snapshot of `size` bytes. The owner of the files
    fills `data`.
    """

    error: ErrorCode
    leader: CurrentLeader
    snapshot: OffsetAndEpoch | None = None
    size: int = 0
    position: int = 0
    max_bytes: int = 0
    data: bytes = b""
    message: str = ""


# --- membership -----------------------------------------------------------------------------------


@value
class ApiVersionsRequest:
    """Asks a node who it is and which kraft.version it supports."""

    cluster_id: str


@value
class ApiVersionsResponse:
    """The response to ApiVersionsRequest."""

    error: ErrorCode
    replica: ReplicaKey | None
    """The replica that answers; None in some errors, and from nodes whose protocol does not name
    it: Kafka's.
    """
    kraft_version: VersionRange
    message: str = ""


@value
class AddVoterRequest:
    """KIP-853 AddVoter. The new voter's first endpoint is dialled before anything is written."""

    cluster_id: str
    voter: ReplicaKey
    endpoints: tuple[Endpoint, ...]
    timeout_ms: int = 30_000
    ack_when_committed: bool = True
    """False replies when the record is appended; controllers that join by themselves use it."""


@value
class RemoveVoterRequest:
    """KIP-853 RemoveVoter. Id and directory must both match, except for voters whose directory is
    unknown.
    """

    cluster_id: str
    voter: ReplicaKey
    timeout_ms: int = 30_000
    force: bool = False
    """Whether to append the removal even if the voters that it leaves and that fetch are no
    majority. It then commits when enough of them come back; until then nothing else does.
    """


@value
class UpdateVoterRequest:
    """KIP-853 UpdateVoter: a voter tells the leader of `epoch` its endpoints and supported
    versions.
    """

    cluster_id: str
    epoch: int
    voter: Voter


@value
class UpdateKRaftVersionRequest:
    """The part of UpdateFeatures that is the quorum's: finalize `level` of kraft.version."""

    cluster_id: str
    level: int
    validate_only: bool = False
    timeout_ms: int = 30_000


@value
class TransferLeadershipRequest:
    """Asks the leader to resign in favour of `target`, a voter, once that has caught up."""

    cluster_id: str
    target: ReplicaKey
    timeout_ms: int = 30_000


@value
class AdminResponse:
    """The answer to every request that changes the quorum."""

    error: ErrorCode
    leader: CurrentLeader
    message: str = ""


@value
class ReadIndexRequest:
    """Asks for an offset up to which a read is linearizable: the leader confirms itself with a
    majority first.
    """

    cluster_id: str
    timeout_ms: int = 5_000


@value
class ReadIndexResponse:
    error: ErrorCode
    leader: CurrentLeader
    offset: int = -1
    message: str = ""


@value
class DescribeQuorumRequest:
    cluster_id: str


@value
class ReplicaStatus:
    """What the leader knows of one replica. Times are the leader's wall clock; -1 where nothing is
    known.
    """

    replica: ReplicaKey
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int
    endpoints: tuple[Endpoint, ...] = ()


@value
class DescribeQuorumResponse:
    """The leader's view; from any other node NOT_LEADER_OR_FOLLOWER with its own voter set and the
    leader it knows.
    """

    error: ErrorCode
    leader: CurrentLeader
    high_watermark: int = -1
    kraft_version: int = 0
    voters: tuple[ReplicaStatus, ...] = ()
    observers: tuple[ReplicaStatus, ...] = ()
    voter_set: VoterSet = field(default_factory=VoterSet)
    committed_voters: VoterSet = field(default_factory=VoterSet)
    message: str = ""


PeerRequest = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | UpdateVoterRequest
    | ApiVersionsRequest
)
AdminRequest = (
    AddVoterRequest
    | RemoveVoterRequest
    | UpdateKRaftVersionRequest
    | TransferLeadershipRequest
    | ReadIndexRequest
    | DescribeQuorumRequest
)
Request = PeerRequest | AdminRequest
Response = (
    VoteResponse
    | BeginQuorumEpochResponse
    | EndQuorumEpochResponse
    | FetchResponse
    | FetchSnapshotResponse
    | ApiVersionsResponse
    | AdminResponse
    | ReadIndexResponse
    | DescribeQuorumResponse
)
