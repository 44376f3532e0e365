"""The tables and sentences of the pages, as plain data."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest
from quorate.common.endpoints import Endpoint
from quorate.console import rows
from quorate.console.cluster import ClusterSnapshot, IsrSummary
from quorate.console.state import NO_CHANGES, QuorumState
from quorate.console.topics import TopicRow
from quorate.metadata.requests import (
    BrokerDescription,
    DescribeClusterResponse,
    DescribeTopicsResponse,
    PartitionDescription,
    TopicDescription,
)

from tests.unit.console.test_state import NOW, key, leaderless, led, status

HOSTILE = "javascript:alert(1)//?#&<img src=x onerror=alert(1)>\u202e\n"


@pytest.mark.parametrize("theme", ["auto", "dark", "", HOSTILE])
def test_addresses_stay_on_the_console(theme: str) -> None:
    found = urlsplit(rows.address_of("/topic", theme, name=HOSTILE))
    assert (found.scheme, found.netloc, found.path) == ("", "", "/topic")
    expected = {"name": [HOSTILE], "theme": ["dark"]} if theme == "dark" else {"name": [HOSTILE]}
    assert parse_qs(found.query) == expected
    assert rows.topic(TopicRow(HOSTILE), theme)["href"] == found.geturl()


def test_changes_are_offered_only_with_a_leader() -> None:
    state = QuorumState()
    assert rows.why_no_changes(state) == NO_CHANGES
    state.apply(led())
    assert rows.why_no_changes(state) == ""
    assert all(row["changeable"] for row in rows.replicas(state)[0])
    state.apply(leaderless(NOW + 1_000))
    assert rows.why_no_changes(state) == NO_CHANGES
    shown, _ = rows.replicas(state)
    assert len(shown) == 2
    assert not any(row["changeable"] for row in shown)


def test_all_voters_and_the_slowest_observers_are_listed() -> None:
    state = QuorumState()
    count = rows.OBSERVERS_SHOWN + 20
    observers = [status(key(100 + n), end=100 - (n == count - 1) * 9) for n in range(count)]
    state.apply(led(observers=observers))
    shown, left_out = rows.replicas(state)
    assert (len(shown), left_out) == (3 + rows.OBSERVERS_SHOWN, 20)
    assert [row["id"] for row in shown[:4]] == [1, 2, 3, 100 + count - 1]


def broker(node_id: int, *, fenced: bool = False, leaving: bool = False) -> BrokerDescription:
    ends = (Endpoint("PLAINTEXT", f"broker-{node_id}", 9092),)
    return BrokerDescription(node_id, 7, ends, None, fenced, leaving)


def test_fenced_brokers_are_listed_first_if_not_all_are() -> None:
    few, left_out = rows.brokers([broker(1), broker(2, fenced=True), broker(3, leaving=True)])
    assert [row["problem"] for row in few] == ["active", "fenced", "shutting down"]
    assert (few[0]["endpoint"], left_out) == ("broker-1:9092", 0)
    many = [broker(n, fenced=n == 70) for n in range(rows.BROKERS_SHOWN + 30)]
    shown, left_out = rows.brokers(many)
    assert (shown[0]["id"], len(shown), left_out) == (70, rows.BROKERS_SHOWN, 30)


def described(topics: int, partitions: int) -> ClusterSnapshot:
    cluster = DescribeClusterResponse((broker(1),), (), (), -1, topics, partitions)
    return ClusterSnapshot(NOW, cluster)


def test_every_state_of_the_cluster_has_a_sentence() -> None:
    state, summary = QuorumState(), IsrSummary()
    assert rows.isr_verdict(summary, state) == rows.NOT_KNOWN
    assert rows.without_topics(summary) == rows.NOT_KNOWN
    summary.apply(ClusterSnapshot(NOW, DescribeClusterResponse((), (), ())))
    assert rows.isr_verdict(summary, state) == "No broker is registered and there are no topics."
    summary.apply(described(0, 0))
    assert rows.isr_verdict(summary, state) == rows.NO_TOPICS
    assert rows.without_topics(summary) == rows.NO_TOPICS
    summary.apply(described(2, 3))
    assert rows.without_topics(summary) == rows.READING
    half = TopicDescription("a", partitions=(PartitionDescription(0, 1, 0, 0, (1,), (1,)),))
    summary.apply(ClusterSnapshot(NOW, page=DescribeTopicsResponse((half,), ("b", 0))))
    assert [row.name for row in summary.table.rows] == ["a"], "before the round is complete"
    assert "1 of 3 partitions so far" in rows.topics_note(summary, state)
    assert "1 of 3 partitions so far" in rows.isr_verdict(summary, state)
    summary.apply(ClusterSnapshot(NOW, page=DescribeTopicsResponse((half,))))
    assert rows.isr_verdict(summary, state) == "Every replica of every partition is in sync."
    assert rows.topics_note(summary, state) == "Read until 2027-01-15 08:00:00 UTC."
    summary.apply(ClusterSnapshot(NOW, error="timed out"))
    assert "there is no leader to describe it" in rows.isr_verdict(summary, state)
    state.apply(led())
    assert "timed out. Last update" in rows.topics_note(summary, state)
    assert [row.name for row in summary.table.rows] == ["a"], "what was known stays"
    summary.apply(described(0, 0))
    assert summary.table.rows == [], "all topics were deleted"
    assert summary.health is None


def test_partitions_that_the_console_may_not_see_are_not_called_healthy() -> None:
    state, summary = QuorumState(), IsrSummary()
    summary.apply(described(2, 3))
    summary.apply(ClusterSnapshot(NOW, page=DescribeTopicsResponse(())))
    assert "needs DESCRIBE on topics" in rows.isr_verdict(summary, state)
    assert "needs DESCRIBE on topics" in rows.without_topics(summary)


def test_partitions_with_a_problem_are_named() -> None:
    assert rows.named_partitions(TopicRow("a", 5)) == ""
    found = TopicRow("a", 5000, 3, under_replicated=1_300, leaderless=2, unhealthy=1_300,
                     named=(3, 17))  # fmt: skip
    assert rows.named_partitions(found) == (
        "1,300 under-replicated, 2 without a leader: partitions 3, 17 and 1,298 more"
    )


def test_the_state_of_a_partition() -> None:
    healthy = rows.partition(PartitionDescription(0, 1, 4, 0, (1, 2), (2, 1)))
    assert (healthy["problem"], healthy["leader"], healthy["isr"]) == ("in sync", "1", "2, 1")
    assert healthy["healthy"]
    lost = rows.partition(PartitionDescription(1, -1, 4, 0, (1, 2), (), offline_replicas=(1, 2)))
    assert (lost["problem"], lost["leader"], lost["isr"]) == ("no leader", "none", "–")
    assert (lost["serious"], lost["offline"]) == (True, "1, 2")
