"""Requests about topics and partitions (see `requests`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from quorate.common.error_codes import ErrorCode
from quorate.common.identifiers import ZERO_UUID
from quorate.metadata.requests.common import (
    DEFAULT_COUNT,
    MutationQuota,
    PartResult,
    Read,
    Request,
    RequestOutcome,
    Response,
)

# --- topics ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic with a partition count and replication factor, or with `assignments`."""

    name: str
    partitions: int = DEFAULT_COUNT
    replication_factor: int = DEFAULT_COUNT
    assignments: tuple[tuple[int, ...], ...] = ()
    """The replicas of the partitions."""
    configs: tuple[tuple[str, str | None], ...] = ()
    """The (name, value) of each config."""
    partition_numbers: tuple[int, ...] = ()
    """The partitions that `assignments` are of; 0, 1, … if empty. gRPC has only the latter."""


@dataclass(frozen=True, slots=True)
class CreateTopics(Request):
    """Create topics."""

    topics: tuple[NewTopic, ...]
    validate_only: bool = False
    """Whether to validate the request without changing anything."""
    mutation_quota: MutationQuota | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """The result of a NewTopic."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    topic_id: str = ZERO_UUID
    partitions: int = -1
    replication_factor: int = -1
    configs: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class CreateTopicsResponse(Response):
    """One entry for each topic, in the order of the request."""

    topics: tuple[CreatedTopic, ...]


@dataclass(frozen=True, slots=True)
class TopicRef:
    """A topic by its name, or by its id where `name` is empty."""

    name: str = ""
    topic_id: str = ZERO_UUID


@dataclass(frozen=True, slots=True)
class DeleteTopics(Request):
    """Delete topics by name or id."""

    topics: tuple[TopicRef, ...]
    mutation_quota: MutationQuota | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """The result for a TopicRef."""

    name: str
    topic_id: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class DeleteTopicsResponse(Response):
    """One entry for each topic, in the order of the request."""

    topics: tuple[DeletedTopic, ...]


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """Grow a topic to `count` partitions."""

    name: str
    count: int
    assignments: tuple[tuple[int, ...], ...] | None = None
    """The replicas of the new partitions, None to place them."""


@dataclass(frozen=True, slots=True)
class CreatePartitions(Request):
    """Add partitions to topics."""

    topics: tuple[NewPartitions, ...]
    validate_only: bool = False
    """Whether to validate the request without changing anything."""
    mutation_quota: MutationQuota | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class CreatePartitionsResponse(Response):
    """One entry for each topic."""

    topics: tuple[PartResult, ...]


@dataclass(frozen=True, slots=True)
class DescribeTopics(Read):
    """Describe these topics, or all topics if `topics` is None."""

    topics: tuple[TopicRef, ...] | None = None
    cursor: tuple[str, int] | None = None
    """The (topic name, partition) at which the response starts."""
    limit: int = 0
    """The most partitions in the response, 0 for all."""


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition as the metadata log has it."""

    index: int
    leader: int
    """The id of the leader, -1 for none."""
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    leader_recovery_state: int = 0


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic, its configs as set (without defaults), and its partitions sorted by index."""

    name: str
    topic_id: str = ZERO_UUID
    partitions: tuple[PartitionDescription, ...] = ()
    configs: tuple[tuple[str, str | None], ...] = ()
    is_internal: bool = False
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class DescribeTopicsResponse(Response):
    """Topics sorted by name."""

    topics: tuple[TopicDescription, ...]
    next_cursor: tuple[str, int] | None = None
    """Where the next page starts, None after the last page."""


# --- partitions -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ElectLeaders(Request):
    """Elect the leaders of partitions."""

    election_type: int
    """The type of the election: 0 preferred, 1 unclean."""
    partitions: tuple[tuple[str, int], ...] | None = None
    """The (topic name, index) of each partition, all if None."""


@dataclass(frozen=True, slots=True)
class PartitionOutcome(RequestOutcome):
    """The result for one partition."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class ElectLeadersResponse(Response, RequestOutcome):
    """A request for all partitions returns only those that needed an election."""

    partitions: tuple[PartitionOutcome, ...] = ()


@dataclass(frozen=True, slots=True)
class Reassignment:
    """The target replicas of a partition; None cancels an ongoing reassignment."""

    topic: str
    partition: int
    replicas: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class AlterPartitionReassignments(Request):
    """Change or cancel reassignments (KIP-455)."""

    reassignments: tuple[Reassignment, ...]
    allow_replication_factor_change: bool = True
    """Whether a reassignment may change the replication factor (KIP-860)."""


@dataclass(frozen=True, slots=True)
class AlterPartitionReassignmentsResponse(Response, RequestOutcome):
    """One entry for each partition."""

    partitions: tuple[PartitionOutcome, ...]
    allow_replication_factor_change: bool = True
    """The value in the request."""


@dataclass(frozen=True, slots=True)
class ListPartitionReassignments(Read):
    """List the ongoing reassignments of these (topic name, index), or all if None."""

    partitions: tuple[tuple[str, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class OngoingReassignment:
    """An ongoing reassignment."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ListPartitionReassignmentsResponse(Response):
    """Sorted by topic and partition."""

    reassignments: tuple[OngoingReassignment, ...]
