"""The state of the cluster that the quorum serves, for the console: brokers, and ISR health.

No I/O, no clock. A cluster may have a hundred thousand partitions, so the console reads one page at
a time: `IsrSummary.want` returns the request for the next page, and a complete round over all pages
replaces the displayed health. It has the names of the worst `WORST_MAX` unhealthy partitions and
the number of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from quorate.metadata.requests import (
    BrokerDescription,
    ControllerDescription,
    DescribeClusterResponse,
    DescribeTopics,
    DescribeTopicsResponse,
    PartitionDescription,
)

PAGE_PARTITIONS = 2_000
WORST_MAX = 50

LEADERLESS = "no leader"
ALONE = "one in-sync replica is left"
UNDER_REPLICATED = "under-replicated"
_RANK = {LEADERLESS: 0, ALONE: 1, UNDER_REPLICATED: 2}


@dataclass(frozen=True, slots=True)
class UnhealthyPartition:
    """A partition without a leader or with an incomplete ISR. leader: None for none."""

    topic: str
    partition: int
    problem: str
    leader: int | None
    isr: tuple[int, ...]
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class IsrHealth:
    """The result of one round over all partitions. counts: number of partitions by problem."""

    at_ms: int = 0
    partitions: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    worst: tuple[UnhealthyPartition, ...] = ()

    @property
    def unhealthy(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The result of one poll of the cluster. error: why a response is missing."""

    at_ms: int
    cluster: DescribeClusterResponse | None = None
    page: DescribeTopicsResponse | None = None
    error: str = ""


def problem_of(partition: PartitionDescription) -> str | None:
    """Return the problem of a partition, or None if every replica is in sync.

    A partition that is being reassigned has more replicas than it will have. The replicas that are
    being added need not be in sync.
    """
    wanted = set(partition.replicas) - set(partition.adding_replicas)
    missing = wanted - set(partition.isr)
    if partition.leader < 0:
        return LEADERLESS
    if not missing:
        return None
    return ALONE if len(partition.isr) <= 1 else UNDER_REPLICATED


class IsrSummary:
    """Reads the health of all partitions in rounds, page by page."""

    def __init__(self) -> None:
        self.health: IsrHealth | None = None
        self.brokers: tuple[BrokerDescription, ...] = ()
        self.controllers: tuple[ControllerDescription, ...] = ()
        self.topics = 0
        self.partitions = 0
        self.error = ""
        self._round = _Round()

    @property
    def is_in_use(self) -> bool:
        """Whether the quorum serves a cluster, that is, any broker or topic."""
        return bool(self.brokers or self.topics)

    @property
    def fenced(self) -> tuple[int, ...]:
        return tuple(broker.id for broker in self.brokers if broker.is_fenced)

    def want(self) -> DescribeTopics:
        """Return the request for the next page."""
        return DescribeTopics(None, self._round.cursor, PAGE_PARTITIONS)

    def apply(self, snapshot: ClusterSnapshot) -> None:
        """Apply the result of a poll."""
        self.error = snapshot.error
        if snapshot.cluster is not None:
            self.brokers = snapshot.cluster.brokers
            self.controllers = snapshot.cluster.controllers
            self.topics = snapshot.cluster.topic_count
            self.partitions = snapshot.cluster.partition_count
        if snapshot.page is None:
            return
        self._round.add(snapshot.page)
        if self._round.cursor is None:
            self.health = self._round.health(snapshot.at_ms)
            self._round = _Round()


class _Round:
    """The partitions read since the first page."""

    def __init__(self) -> None:
        self.cursor: tuple[str, int] | None = None
        self._seen = 0
        self._counts: dict[str, int] = {}
        self._worst: list[UnhealthyPartition] = []

    def add(self, page: DescribeTopicsResponse) -> None:
        for found in _unhealthy(page):
            self._counts[found.problem] = self._counts.get(found.problem, 0) + 1
            self._worst.append(found)
        self._worst.sort(key=lambda each: (_RANK[each.problem], each.topic, each.partition))
        del self._worst[WORST_MAX:]
        self._seen += sum(len(topic.partitions) for topic in page.topics)
        self.cursor = page.next_cursor

    def health(self, at_ms: int) -> IsrHealth:
        return IsrHealth(at_ms, self._seen, self._counts, tuple(self._worst))


def _unhealthy(page: DescribeTopicsResponse) -> Iterator[UnhealthyPartition]:
    for topic in page.topics:
        for each in topic.partitions:
            problem = problem_of(each)
            if problem is not None:
                leader = each.leader if each.leader >= 0 else None
                yield UnhealthyPartition(
                    topic.name, each.index, problem, leader, each.isr, each.replicas
                )
