"""What the console makes of pages of partitions."""

from __future__ import annotations

import pytest
from quorate.console.cluster import WORST_MAX, ClusterSnapshot, IsrSummary
from quorate.console.topics import ALONE, LEADERLESS, UNDER_REPLICATED, problem_of
from quorate.metadata.requests import (
    BrokerDescription,
    DescribeClusterResponse,
    DescribeTopicsResponse,
    PartitionDescription,
    TopicDescription,
)


def partition(
    index: int, leader: int, isr: tuple[int, ...], adding: tuple[int, ...] = ()
) -> PartitionDescription:
    replicas = (1, 2, 3, *adding)
    return PartitionDescription(index, leader, 0, 0, replicas, isr, adding_replicas=adding)


@pytest.mark.parametrize(
    ("described", "problem"),
    [
        (partition(0, 1, (1, 2, 3)), None),
        (partition(0, 1, (3, 1, 2)), None),
        (partition(0, 1, (1, 2)), UNDER_REPLICATED),
        (partition(0, 1, (1,)), ALONE),
        (partition(0, -1, (1,)), LEADERLESS),
        (partition(0, -1, ()), LEADERLESS),
        (partition(0, 1, (1, 2, 3), adding=(4,)), None),
        (partition(0, 4, (1, 2, 4), adding=(4,)), UNDER_REPLICATED),
    ],
)
def test_what_is_wrong_with_a_partition(
    described: PartitionDescription, problem: str | None
) -> None:
    assert problem_of(described) == problem


def test_one_replica_that_is_alone_by_design_is_healthy() -> None:
    assert problem_of(PartitionDescription(0, 1, 0, 0, (1,), (1,))) is None


def page(
    name: str, *partitions: PartitionDescription, then: tuple[str, int] | None = None
) -> ClusterSnapshot:
    topics = (TopicDescription(name, partitions=partitions),)
    return ClusterSnapshot(1_000, page=DescribeTopicsResponse(topics, then))


def test_a_round_is_shown_when_it_is_complete() -> None:
    isr_summary = IsrSummary()
    isr_summary.apply(page("a", partition(0, 1, (1, 2)), then=("b", 0)))
    assert isr_summary.health is None
    assert isr_summary.want().cursor == ("b", 0)
    isr_summary.apply(page("b", partition(0, -1, (1,)), partition(1, 1, (1, 2, 3))))
    assert isr_summary.health is not None
    assert isr_summary.health.partitions == 3
    assert isr_summary.health.counts == {UNDER_REPLICATED: 1, LEADERLESS: 1}
    assert [each.topic for each in isr_summary.health.worst] == ["b", "a"]
    assert isr_summary.want().cursor is None

    isr_summary.apply(page("a", partition(0, 1, (1, 2, 3)), then=("b", 0)))
    assert isr_summary.health.unhealthy == 2, "until the next round is over"
    isr_summary.apply(page("b", partition(0, 1, (1, 2, 3))))
    assert isr_summary.health.unhealthy == 0


def test_the_worst_are_kept_by_name_and_all_are_counted() -> None:
    isr_summary = IsrSummary()
    many = [partition(index, 1, (1, 2)) for index in range(2 * WORST_MAX)]
    isr_summary.apply(page("many", *many, partition(999, -1, (2,))))
    assert isr_summary.health is not None
    assert isr_summary.health.unhealthy == 2 * WORST_MAX + 1
    assert len(isr_summary.health.worst) == WORST_MAX
    assert isr_summary.health.worst[0].partition == 999


def test_what_was_known_stays_while_there_is_no_answer() -> None:
    isr_summary = IsrSummary()
    assert not isr_summary.is_in_use
    broker = BrokerDescription(7, 1, (), None, is_fenced=True, in_controlled_shutdown=False)
    isr_summary.apply(ClusterSnapshot(1, DescribeClusterResponse((broker,), (), (), topic_count=2)))
    isr_summary.apply(ClusterSnapshot(2, error="no leader is known"))
    assert isr_summary.is_in_use
    assert (isr_summary.fenced, isr_summary.topics, isr_summary.error) == (
        (7,),
        2,
        "no leader is known",
    )
