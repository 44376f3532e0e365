"""Answers over an image."""

from __future__ import annotations

import pytest
from quorate.broker.metadata_view import MetadataView
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.features import VersionRange
from quorate.metadata import requests as r
from quorate.metadata.describe import answer, effective_topic_config
from quorate.metadata.image.delta import MetadataDelta

from tests.unit.metadata.metadata_support import Cluster, uuid_of

E = ErrorCode


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    made = Cluster(3)
    made.create("b", (1, 2, 3), (2, 3, 1), retention_ms="5")
    made.create("a", (3,))
    made.create("c", (1, 2), (1, 2), (1, 2))
    made.ask(r.AlterPartitionReassignments((r.Reassignment("c", 1, (3,)),)))
    set_default = r.ConfigChange(
        r.ConfigResource(4, ""),
        (r.ConfigOp("log.segment.bytes", "2000000"), r.ConfigOp("my.plugin", "secret")),
    )
    set_broker = r.ConfigChange(
        r.ConfigResource(4, "1"),
        (r.ConfigOp("num.io.threads", "4"), r.ConfigOp("ssl.key.password", "hidden")),
    )
    made.ask(r.IncrementalAlterConfigs((set_default, set_broker)))
    for entity in ((("user", "u"),), (("user", None),), (("user", "u"), ("client-id", "c"))):
        made.ask(
            r.AlterClientQuotas((r.QuotaChange(entity, (r.QuotaOp("producer_byte_rate", 1.0),)),))
        )
    made.ask(r.AlterUserScramCredentials((r.ScramUpsertion("u", 2, 5000, b"s", b"p" * 64),)))
    made.ask(
        r.CreateAcls((r.Acl(2, "b", 3, "User:u", "*", 3, 3), r.Acl(2, "a", 4, "User:u", "*", 3, 3)))
    )
    made.expire(2)
    return made


def test_topics(cluster: Cluster) -> None:
    found = answer(cluster.committed, r.DescribeTopics())
    assert isinstance(found, r.DescribeTopicsResponse)
    assert [topic.name for topic in found.topics] == ["a", "b", "c"]
    topic = found.topics[1]
    assert topic.configs == (("retention.ms", "5"),)
    assert [p.index for p in topic.partitions] == [0, 1]
    first = topic.partitions[0]
    assert (first.leader, first.replicas, first.isr, first.offline_replicas) == (
        1,
        (1, 2, 3),
        (1, 3),
        (2,),
    )


def test_some_topics_and_what_is_wrong_with_them(cluster: Cluster) -> None:
    ids = cluster.committed.topics.ids
    refs = (
        r.TopicRef("a"),
        r.TopicRef(topic_id=ids["b"]),
        r.TopicRef("x"),
        r.TopicRef(topic_id=uuid_of("x")),
        r.TopicRef("a", ids["b"]),
    )
    found = answer(cluster.committed, r.DescribeTopics(refs))
    assert isinstance(found, r.DescribeTopicsResponse)
    assert {(t.name, t.error) for t in found.topics} == {
        ("a", E.NONE),
        ("b", E.NONE),
        ("x", E.UNKNOWN_TOPIC_OR_PARTITION),
        ("", E.UNKNOWN_TOPIC_ID),
        ("a", E.INCONSISTENT_TOPIC_ID),
    }


def test_what_is_named_twice_is_described_once(cluster: Cluster) -> None:
    """A name takes a few bytes of a request, its description as much as the topic is large."""
    topics = answer(cluster.committed, r.DescribeTopics((r.TopicRef("b"), r.TopicRef("a")) * 9))
    assert isinstance(topics, r.DescribeTopicsResponse)
    assert [topic.name for topic in topics.topics] == ["a", "b"]
    resources = (r.ConfigResource(4, "1"), r.ConfigResource(2, "b"), r.ConfigResource(2, "x"))
    found = answer(cluster.committed, r.DescribeConfigs(resources * 9))
    assert isinstance(found, r.DescribeConfigsResponse)
    assert [each.resource for each in found.resources] == list(resources)
    view = MetadataView(1)
    view.follow(cluster.committed, MetadataDelta())
    assert [topic.name for topic in view.locate(["b", "a", "b", "x", "x"]).topics] == [
        "b",
        "a",
        "x",
    ]


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 7, 100])
def test_pages_of_topics(cluster: Cluster, limit: int) -> None:
    cursor, seen = None, []
    for _ in range(20):
        page = answer(cluster.committed, r.DescribeTopics(cursor=cursor, limit=limit))
        assert isinstance(page, r.DescribeTopicsResponse)
        parts = [(topic.name, p.index) for topic in page.topics for p in topic.partitions]
        assert len(parts) <= limit
        seen += parts
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == [("a", 0), ("b", 0), ("b", 1), ("c", 0), ("c", 1), ("c", 2)]


def test_configs(cluster: Cluster) -> None:
    def told(read: r.DescribeConfigs) -> list[r.ResourceConfigs]:
        found = answer(cluster.committed, read)
        assert isinstance(found, r.DescribeConfigsResponse)
        return list(found.resources)

    topic, broker = r.ConfigResource(2, "b"), r.ConfigResource(4, "1")
    assert told(r.DescribeConfigs((topic,)))[0].configs == (r.ConfigValue("retention.ms", "5", 1),)
    own = told(r.DescribeConfigs((broker,)))[0].configs
    assert {(c.name, c.value, c.source, c.is_sensitive) for c in own} == {
        ("num.io.threads", "4", 2, False),
        ("ssl.key.password", None, 2, True),
        ("log.segment.bytes", "2000000", 3, False),
        ("my.plugin", None, 3, True),
    }
    everything = told(r.DescribeConfigs((topic,), with_defaults=True))[0].configs
    values = {c.name: (c.value, c.source) for c in everything}
    assert values["retention.ms"] == ("5", 1)
    assert values["cleanup.policy"] == ("delete", 5)
    named = told(r.DescribeConfigs((topic,), names=("retention.ms", "x")))[0].configs
    assert [c.name for c in named] == ["retention.ms"]
    assert [x.resource for x in told(r.DescribeConfigs(all_of_type=2))] == [topic]
    assert len(told(r.DescribeConfigs())) == 3
    assert told(r.DescribeConfigs((r.ConfigResource(2, "x"),)))[0].error is (
        E.UNKNOWN_TOPIC_OR_PARTITION
    )
    assert told(r.DescribeConfigs((r.ConfigResource(9, "x"),)))[0].error is E.INVALID_REQUEST
    assert effective_topic_config(cluster.committed, "b", "segment.bytes") == "2000000"
    assert effective_topic_config(cluster.committed, "b", "retention.ms") == "5"
    assert effective_topic_config(cluster.committed, "b", "segment.ms") == "604800000"


def test_quotas(cluster: Cluster) -> None:
    def entities(*filters: r.QuotaFilter, strict: bool = False) -> list[r.QuotaEntityKey]:
        found = answer(cluster.committed, r.DescribeClientQuotas(filters, strict))
        assert isinstance(found, r.DescribeClientQuotasResponse)
        assert found.error is E.NONE
        return [entity for entity, _ in found.entries]

    both, user, default = (("client-id", "c"), ("user", "u")), (("user", "u"),), (("user", None),)
    assert entities() == [both, default, user]
    assert entities(r.QuotaFilter("user", 2)) == [both, default, user]
    assert entities(r.QuotaFilter("user", 2), strict=True) == [default, user]
    assert entities(r.QuotaFilter("user", 1)) == [default]
    assert entities(r.QuotaFilter("user", 0, "u"), strict=True) == [user]
    assert entities(r.QuotaFilter("ip", 2)) == []
    for bad in (
        (r.QuotaFilter("user", 2), r.QuotaFilter("user", 1)),
        (r.QuotaFilter("", 2),),
        (r.QuotaFilter("user", 7),),
        (r.QuotaFilter("user", 0),),
        (r.QuotaFilter("user", 2, "u"),),
    ):
        found = answer(cluster.committed, r.DescribeClientQuotas(bad))
        assert isinstance(found, r.DescribeClientQuotasResponse)
        assert found.error is E.INVALID_REQUEST


def test_scram_users(cluster: Cluster) -> None:
    found = answer(cluster.committed, r.DescribeUserScramCredentials())
    assert found == r.DescribeUserScramCredentialsResponse(
        (r.UserScramCredentials("u", ((2, 5000),)),)
    )
    some = answer(cluster.committed, r.DescribeUserScramCredentials(("x", "u", "y", "y")))
    assert isinstance(some, r.DescribeUserScramCredentialsResponse)
    assert [(user.name, user.error) for user in some.users] == [
        ("u", E.NONE),
        ("x", E.RESOURCE_NOT_FOUND),
        ("y", E.DUPLICATE_RESOURCE),
    ]


def test_acls(cluster: Cluster) -> None:
    found = answer(cluster.committed, r.DescribeAcls())
    assert isinstance(found, r.DescribeAclsResponse)
    assert [acl.resource_name for acl in found.acls] == ["a", "b"]
    bad = answer(cluster.committed, r.DescribeAcls(r.AclFilter(operation=0)))
    assert isinstance(bad, r.DescribeAclsResponse)
    assert bad.error is E.INVALID_REQUEST


def test_the_cluster(cluster: Cluster) -> None:
    found = answer(cluster.committed, r.DescribeCluster())
    assert isinstance(found, r.DescribeClusterResponse)
    assert [(b.id, b.is_fenced) for b in found.brokers] == [(1, False), (2, True), (3, False)]
    assert found.brokers[0].endpoints == (Endpoint("PLAINTEXT", "broker-1", 9092),)
    assert (found.topic_count, found.partition_count) == (3, 6)
    features = {f.name: (f.supported, f.finalized_level) for f in found.features}
    assert features["metadata.version"] == (VersionRange(7, 30), 30)
    active = answer(cluster.committed, r.DescribeCluster(include_fenced=False))
    assert isinstance(active, r.DescribeClusterResponse)
    assert [b.id for b in active.brokers] == [1, 3]


def test_reassignments(cluster: Cluster) -> None:
    expected = (r.OngoingReassignment("c", 1, (3, 1, 2), (3,), (1, 2)),)
    for partitions in (None, (("c", 1), ("c", 0), ("x", 0))):
        found = answer(cluster.committed, r.ListPartitionReassignments(partitions))
        assert found == r.ListPartitionReassignmentsResponse(expected)
