"""The state of the cluster that the quorum serves, for the console: brokers, topics, ISR health.

No I/O, no clock. A cluster may have hundreds of thousands of partitions, so the console reads one
page at a time: `IsrSummary.want` returns the request for the next page, and a complete round over
all pages replaces the displayed health and topics. The health has the names of the worst
`WORST_MAX` unhealthy partitions and the number of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from quorate.console.topics import ALONE, LEADERLESS, UNDER_REPLICATED, TopicTable, problem_of
from quorate.metadata.requests import (
    BrokerDescription,
    ControllerDescription,
    DescribeClusterResponse,
    DescribeTopics,
    DescribeTopicsResponse,
)

PAGE_PARTITIONS = 2_000
WORST_MAX = 50

_RANK = {LEADERLESS: 0, ALONE: 1, UNDER_REPLICATED: 2}


@dataclass(frozen=True, slots=True)
class UnhealthyPartition:
    """A partition without a leader or with an incomplete ISR."""

    topic: str
    partition: int
    problem: str
    leader: int | None
    """The id of the leader, None for none."""
    isr: tuple[int, ...]
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class IsrHealth:
    """The result of one round over all partitions."""

    at_ms: int = 0
    partitions: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    """The number of partitions by problem."""
    worst: tuple[UnhealthyPartition, ...] = ()

    @property
    def unhealthy(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The result of one poll of the cluster."""

    at_ms: int
    cluster: DescribeClusterResponse | None = None
    page: DescribeTopicsResponse | None = None
    error: str = ""
    """Why a response is missing."""


class IsrSummary:
    """Reads the health of all partitions in rounds, page by page.

    is_known: the cluster has been described, so that no brokers means that there are none.
    """

    def __init__(self) -> None:
        self.health: IsrHealth | None = None
        self.brokers: tuple[BrokerDescription, ...] = ()
        self.controllers: tuple[ControllerDescription, ...] = ()
        self.topics = 0
        self.partitions = 0
        self.error = ""
        self.is_known = False
        self._round = _Round()
        self._complete: TopicTable | None = None

    @property
    def table(self) -> TopicTable:
        """The topics of the last complete round, or those of the first one so far."""
        return self._complete or self._round.table

    @property
    def has_all_topics(self) -> bool:
        """Whether a round is complete, or there is nothing to read."""
        return self.is_known and (self._complete is not None or not self.topics)

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
            self.is_known = True
            self.brokers = snapshot.cluster.brokers
            self.controllers = snapshot.cluster.controllers
            self.topics = snapshot.cluster.topic_count
            self.partitions = snapshot.cluster.partition_count
            if not self.topics:
                self.health, self._complete, self._round = None, None, _Round()
        if snapshot.page is None:
            return
        self._round.add(snapshot.page)
        if self._round.cursor is None:
            self.health = self._round.health(snapshot.at_ms)
            self._complete = self._round.table
            self._round = _Round()


class _Round:
    """The partitions read since the first page."""

    def __init__(self) -> None:
        self.cursor: tuple[str, int] | None = None
        self.table = TopicTable()
        self._counts: dict[str, int] = {}
        self._worst: list[UnhealthyPartition] = []

    def add(self, page: DescribeTopicsResponse) -> None:
        for found in _unhealthy(page):
            self._counts[found.problem] = self._counts.get(found.problem, 0) + 1
            self._worst.append(found)
        self._worst.sort(key=lambda each: (_RANK[each.problem], each.topic, each.partition))
        del self._worst[WORST_MAX:]
        self.table.add(page.topics)
        self.cursor = page.next_cursor

    def health(self, at_ms: int) -> IsrHealth:
        return IsrHealth(at_ms, self.table.partitions, self._counts, tuple(self._worst))


def _unhealthy(page: DescribeTopicsResponse) -> Iterator[UnhealthyPartition]:
    for topic in page.topics:
        for each in topic.partitions:
            problem = problem_of(each)
            if problem is not None:
                leader = each.leader if each.leader >= 0 else None
                yield UnhealthyPartition(
                    topic.name, each.index, problem, leader, each.isr, each.replicas
                )
