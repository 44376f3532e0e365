"""Wire values beyond `raft.messages`: node status and format, features, appends and reads.

Offsets count records, times are milliseconds, sizes bytes; `None` means "unknown" unless a field
says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import NamedTuple

from quorate.applications.sessions import EXPIRATION_MS
from quorate.common.error_codes import ErrorCode
from quorate.common.features import VersionRange
from quorate.common.identifiers import DirectoryId
from quorate.raft.messages import CurrentLeader, DescribeQuorumResponse
from quorate.raft.types import OffsetAndEpoch, ReplicaKey, Voter

OPAQUE_KEY = b""
"""The key of application data without a key of its own.

It is present, so that the record is opaque, and empty.
"""

Buffer = bytes | bytearray | memoryview

APPEND_TIMEOUT_MS = 30_000
"""How long the leader waits for the commit of an append without a timeout."""


# --- one node -------------------------------------------------------------------------------------


class FormatMode(Enum):
    """The options of `storage format`."""

    STANDALONE = "standalone"
    INITIAL_CONTROLLERS = "initial-controllers"
    NO_INITIAL_CONTROLLERS = "no-initial-controllers"


@dataclass(frozen=True, slots=True)
class FormatRequest:
    """Format a node's storage."""

    cluster_id: str
    mode: FormatMode
    initial_controllers: tuple[Voter, ...] = ()
    """The first voters; only with the mode of that name."""
    directory_id: DirectoryId | None = None
    """The id of the directory, generated if None."""


@dataclass(frozen=True, slots=True)
class ChecksumLogRequest:
    """Asks `voter` for the checksum of its committed batches from start_offset to end_offset."""

    cluster_id: str
    replica: ReplicaKey
    voter: ReplicaKey
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class ChecksumLogResponse:
    """The response to ChecksumLogRequest."""

    error: ErrorCode
    crc: int = 0
    """The CRC-32C of the batches' bytes, headers included."""
    size: int = 0
    """The size of those batches in bytes."""
    message: str = ""


@dataclass(frozen=True, slots=True)
class FormatResponse:
    """INVALID_REQUEST if the node is already formatted. The ids are the node's current ones."""

    error: ErrorCode
    cluster_id: str = ""
    directory_id: DirectoryId | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class NodeStatusRequest:
    """Asks a node for its own status, formatted or not."""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A node's own status. An unformatted node only has an id."""

    node_id: int
    formatted: bool
    cluster_id: str = ""
    directory_id: DirectoryId | None = None
    state: str = ""
    """The role's name, "" without a role."""
    epoch: int = 0
    leader_id: int | None = None
    high_watermark: int = -1
    log_end_offset: int = 0
    log_start_offset: int = 0
    is_voter: bool = False
    ready: bool = False
    """The node's readiness."""
    version: str = ""
    pid: int = 0
    frames_port: int = 0
    """Where it takes appends in frames; 0: nowhere."""


# --- features -------------------------------------------------------------------------------------


class UpgradeType(IntEnum):
    """KIP-584: whether a level may go down, and at what price."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature: the responding node's supported range, and the finalized level, None if none."""

    name: str
    supported: VersionRange
    finalized_level: int | None = None


@dataclass(frozen=True, slots=True)
class DescribeFeaturesRequest:
    """Asks for all features. An empty cluster id matches any cluster."""

    cluster_id: str = ""


@dataclass(frozen=True, slots=True)
class DescribeFeaturesResponse:
    """`epoch` increases with each change of a finalized level; -1 if unknown."""

    error: ErrorCode
    leader: CurrentLeader
    features: tuple[Feature, ...] = ()
    epoch: int = -1
    message: str = ""


@dataclass(frozen=True, slots=True)
class UpdateFeaturesRequest:
    """Finalize `level` of `feature`. An empty cluster id matches any cluster."""

    cluster_id: str
    feature: str
    level: int
    upgrade_type: UpgradeType = UpgradeType.UPGRADE
    validate_only: bool = False
    timeout_ms: int = 30_000


# --- the log --------------------------------------------------------------------------------------

OpaqueRecord = tuple[bytes | None, bytes | None]
"""(key, value). With a key, the value is application data, or None, which deletes the key.

Without a key (None), it is a metadata record in Kafka's framing.
"""


class LogOffsets(NamedTuple):
    """Offsets that an append expects, or finds. -1 means that there is none, and -2 that it is
    unknown.
    """

    last: int | None = None
    """The offset of the last application record; None if it is not compared."""
    keys: tuple[tuple[bytes, int], ...] = ()
    """Pairs of a key and the offset of its last record."""

    def __bool__(self) -> bool:
        """Whether there is anything to compare."""
        return self.last is not None or bool(self.keys)


NO_CONDITIONS = LogOffsets()


class AppendOutcome(NamedTuple):
    """The result of an append handler.

    NONE: committed at `base_offset`, in `epoch`, or if that is -1 in the epoch of `leader`. The
    errors in `NOT_APPENDED` are rejections. Any other error: the batch may have been appended and
    may still be committed.
    """

    error: ErrorCode
    leader: CurrentLeader
    base_offset: int = -1
    message: str = ""
    actual: LogOffsets = NO_CONDITIONS
    """With CONDITION_FAILED, the offsets that are not the expected ones."""
    epoch: int = -1


NOT_APPENDED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.CONDITION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
"""The errors that guarantee that this request has appended nothing.

A leader that has appended the batch must return a different error. An earlier request with the same
batch of a producer session may have appended it.
"""


@dataclass(frozen=True, slots=True)
class OpenProducerRequest:
    """Open a producer session. An empty cluster id matches any cluster."""

    cluster_id: str = ""
    expiration_ms: int = EXPIRATION_MS
    """How long the session lasts after its last batch, by the timestamps of the log's batches."""
    timeout_ms: int = 30_000


@dataclass(frozen=True, slots=True)
class OpenProducerResponse:
    """The response to OpenProducerRequest."""

    error: ErrorCode
    leader: CurrentLeader
    message: str = ""
    producer_id: int = -1
    """The id of the session, which is committed; -1 with an error."""
    producer_epoch: int = 0


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """Read committed records from `from_offset` on."""

    from_offset: int = 0
    max_records: int | None = None
    """The most records to read, None for all current ones."""
    linearizable: bool = True
    """Whether to confirm leadership with a majority first. Otherwise any node answers from its own
    state.
    """
    include_control: bool = False
    timeout_ms: int = 30_000
    follow: bool = False
    """Whether to continue with the batches that commit later."""


@dataclass(frozen=True, slots=True)
class ReadChunk:
    """A piece of a read: whole batches in `records`, from `snapshot` if it is set.

    The chunk with `last`, or with an error, is the final one. With OFFSET_OUT_OF_RANGE, `snapshot`
    replaced the requested records.
    """

    error: ErrorCode
    leader: CurrentLeader
    high_watermark: int = -1
    read_offset: int = -1
    """Where the read ends, exclusive."""
    log_start_offset: int = 0
    snapshot: OffsetAndEpoch | None = None
    records: Buffer = b""
    last: bool = False
    message: str = ""
    next_offset: int = -1
    """In a read that follows the log, the offset at which it continues."""


# --- what the client hands to its callers ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AppendResult:
    """A committed batch: the offset of its first record, and the epoch in which it was appended.

    Example:
        result = await client.append([(b"key", b"1"), (b"key", b"2")])
        print(result.base_offset, result.base_offset + 1, result.epoch)
    """

    base_offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """A view of the quorum.

    It is the leader's if `response.error` is NONE, else that of the node at `answered_by`.
    """

    cluster_id: str
    answered_by: str
    response: DescribeQuorumResponse

    @property
    def is_leaders_view(self) -> bool:
        return self.response.error is ErrorCode.NONE
