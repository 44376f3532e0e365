"""What the console makes of pages of partitions."""

from __future__ import annotations

import pytest
from quorate.console.cluster import (
    ALONE,
    LEADERLESS,
    UNDER_REPLICATED,
    WORST_MAX,
    Census,
    ClusterLook,
    problem_of,
)
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
) -> ClusterLook:
    topics = (TopicDescription(name, partitions=partitions),)
    return ClusterLook(1_000, page=DescribeTopicsResponse(topics, then))


def test_a_round_is_shown_when_it_is_complete() -> None:
    census = Census()
    census.look(page("a", partition(0, 1, (1, 2)), then=("b", 0)))
    assert census.health is None
    assert census.want().cursor == ("b", 0)
    census.look(page("b", partition(0, -1, (1,)), partition(1, 1, (1, 2, 3))))
    assert census.health is not None
    assert census.health.partitions == 3
    assert census.health.counts == {UNDER_REPLICATED: 1, LEADERLESS: 1}
    assert [each.topic for each in census.health.worst] == ["b", "a"]
    assert census.want().cursor is None

    census.look(page("a", partition(0, 1, (1, 2, 3)), then=("b", 0)))
    assert census.health.unhealthy == 2, "until the next round is over"
    census.look(page("b", partition(0, 1, (1, 2, 3))))
    assert census.health.unhealthy == 0


def test_the_worst_are_kept_by_name_and_all_are_counted() -> None:
    census = Census()
    many = [partition(index, 1, (1, 2)) for index in range(2 * WORST_MAX)]
    census.look(page("many", *many, partition(999, -1, (2,))))
    assert census.health is not None
    assert census.health.unhealthy == 2 * WORST_MAX + 1
    assert len(census.health.worst) == WORST_MAX
    assert census.health.worst[0].partition == 999


def test_what_was_known_stays_while_there_is_no_answer() -> None:
    census = Census()
    assert not census.is_in_use
    broker = BrokerDescription(7, 1, (), None, is_fenced=True, in_controlled_shutdown=False)
    census.look(ClusterLook(1, DescribeClusterResponse((broker,), (), (), topic_count=2)))
    census.look(ClusterLook(2, error="no leader is known"))
    assert census.is_in_use
    assert (census.fenced, census.topics, census.error) == ((7,), 2, "no leader is known")
