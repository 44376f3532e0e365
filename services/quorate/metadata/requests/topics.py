"""Requests about topics and partitions (see `requests`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from quorate.metadata.requests.common import (
    DEFAULT_COUNT,
    MutationQuota,
    PartResult,
    Read,
    Request,
    RequestOutcome,
    Response,
)
from quorate.raft.errors import ErrorCode
from quorate.raft.types import ZERO_UUID

# --- topics ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic with a partition count and replication factor, or with `assignments`.

    assignments: the replicas of the partitions. configs: (name, value). partition_numbers: the
    partitions that `assignments` are of, 0, 1, … if empty. gRPC has only the latter.
    """

    name: str
    partitions: int = DEFAULT_COUNT
    replication_factor: int = DEFAULT_COUNT
    assignments: tuple[tuple[int, ...], ...] = ()
    configs: tuple[tuple[str, str | None], ...] = ()
    partition_numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateTopics(Request):
    """validate_only: validate without changing anything."""

    topics: tuple[NewTopic, ...]
    validate_only: bool = False
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
    """Grow a topic to `count` partitions. assignments: of the new ones, None to place them."""

    name: str
    count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class CreatePartitions(Request):
    """validate_only: validate without changing anything."""

    topics: tuple[NewPartitions, ...]
    validate_only: bool = False
    mutation_quota: MutationQuota | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class CreatePartitionsResponse(Response):
    """One entry for each topic."""

    topics: tuple[PartResult, ...]


@dataclass(frozen=True, slots=True)
class DescribeTopics(Read):
    """Describe these topics, or all topics if `topics` is None.

    cursor: start at this (topic name, partition). limit: the most partitions in the response, 0 for
    all.
    """

    topics: tuple[TopicRef, ...] | None = None
    cursor: tuple[str, int] | None = None
    limit: int = 0


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition as the metadata log has it. leader: -1 for none."""

    index: int
    leader: int
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
    """Topics sorted by name. next_cursor: where the next page starts, None after the last page."""

    topics: tuple[TopicDescription, ...]
    next_cursor: tuple[str, int] | None = None


# --- partitions -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ElectLeaders(Request):
    """election_type: 0 preferred, 1 unclean. partitions: (topic name, index), all if None."""

    election_type: int
    partitions: tuple[tuple[str, int], ...] | None = None


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
    """KIP-455; allow_replication_factor_change: KIP-860."""

    reassignments: tuple[Reassignment, ...]
    allow_replication_factor_change: bool = True


@dataclass(frozen=True, slots=True)
class AlterPartitionReassignmentsResponse(Response, RequestOutcome):
    """One entry for each partition. allow_replication_factor_change: as requested."""

    partitions: tuple[PartitionOutcome, ...]
    allow_replication_factor_change: bool = True


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
