"""What the protocol wants done, in the order in which it must be done.

The driver executes outputs one after the other. `PersistElection` is durable before the next output
is executed; `AppendBatches`, `TruncateLog` and `InstallSnapshot` are queued with the log in this
order and reported by their ticket.
"""

from __future__ import annotations

from enum import StrEnum

from quorate.common.endpoints import Endpoint
from quorate.common.value import value
from quorate.raft.batches import Batch
from quorate.raft.messages import AddVoterRequest, PeerRequest, RemoveVoterRequest, Response
from quorate.raft.types import ElectionState, OffsetAndEpoch, RequiredEnd, VoterSet


class RoleName(StrEnum):
    """The roles of KIP-595 and KIP-996, named as Kafka's metric current-state names them."""

    UNATTACHED = "unattached"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    FOLLOWER = "follower"
    RESIGNED = "resigned"


@value
class PersistElection:
    """Write quorum-state durably, in the form of that kraft.version."""

    state: ElectionState
    kraft_version: int


@value
class PersistRequiredEnd:
    """Store durably which log end this replica must reach again; None: it has reached it."""

    required_end: RequiredEnd | None


@value
class AppendBatches:
    """Append to the log. A batch with `control` and no `data` is the leader's own; the
    writer encodes it.
    """

    ticket: int
    batches: tuple[Batch, ...]


@value
class TruncateLog:
    """Drop everything at and after `end_offset`."""

    ticket: int
    end_offset: int


@value
class Send:
    """Send a request to a peer. Its answer, or its failure, comes back with `request_id`.

    replica_id is None where only the endpoint is known (bootstrap servers). to_leader marks fetches
    that belong on the stream to the leader.
    """

    request_id: int
    endpoint: Endpoint
    request: PeerRequest
    timeout_ms: int
    replica_id: int | None = None
    to_leader: bool = False


@value
class SendAdmin:
    """Send a membership request of this replica's own (auto join) to the leader."""

    request_id: int
    endpoint: Endpoint
    request: AddVoterRequest | RemoveVoterRequest
    timeout_ms: int


@value
class Respond:
    """Answer the inbound request that was given with `request_id`."""

    request_id: int
    response: Response


@value
class HighWatermarkAdvanced:
    """Everything before `offset` is committed."""

    offset: int


@value
class LeadershipAcquired:
    """This replica leads `epoch`; its own records begin at `start_offset`."""

    epoch: int
    start_offset: int


@value
class LeadershipLost:
    """This replica no longer leads `epoch`: the outcome of what it appended and did not commit is
    unknown.
    """

    epoch: int


@value
class RoleChanged:
    """A change of role or leader, for logs, metrics and readiness."""

    role: RoleName
    epoch: int
    leader_id: int | None
    reason: str


@value
class VotersChanged:
    """The voter set in force changed."""

    voters: VoterSet
    offset: int
    is_voter: bool
    removed_self: bool
    """Whether a record took this very replica out of the set."""


@value
class StartSnapshotFetch:
    """Prepare to receive a snapshot; report how many of its bytes are there already with
    `snapshot_position`.
    """

    snapshot: OffsetAndEpoch


@value
class WriteSnapshotChunk:
    """Write a range of the snapshot being received."""

    snapshot: OffsetAndEpoch
    position: int
    data: bytes


@value
class InstallSnapshot:
    """Verify the received snapshot and let it replace the log; report `snapshot_installed` or
    `snapshot_failed`.
    """

    snapshot: OffsetAndEpoch


@value
class Notice:
    """One line for the log: something an operator may want to know."""

    text: str
    warning: bool = False


Output = (
    PersistElection
    | PersistRequiredEnd
    | AppendBatches
    | TruncateLog
    | Send
    | SendAdmin
    | Respond
    | HighWatermarkAdvanced
    | LeadershipAcquired
    | LeadershipLost
    | RoleChanged
    | VotersChanged
    | StartSnapshotFetch
    | WriteSnapshotChunk
    | InstallSnapshot
    | Notice
)
