"""Znodes as records, and where both differ; with a real cluster's znodes where they are at hand."""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from pathlib import Path

import pytest
from quorate.migration.entities import entity_name, entity_segment
from quorate.migration.errors import ZNodeError
from quorate.migration.planning import plan
from quorate.migration.reading import known_brokers, read_all
from quorate.migration.verification import compare
from quorate.migration.znodes import Tree, ZNode
from quorate.migration.zookeeper import Position
from quorate.records.metadata import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntity,
    TopicRecord,
)

ROOT = Path(__file__).resolve().parents[3]
SHARED = Path(os.environ.get("QUORATE_SHARED", ROOT.parent / "shared"))
TOPIC_ID = "kiNBqNGdSkighOqe--JjKw"


def plain(paths: dict[str, object], versions: dict[str, int] | None = None) -> Tree:
    return Tree(
        ZNode(
            path,
            None if value is None else json.dumps(value).encode(),
            (versions or {}).get(path, 0),
        )
        for path, value in paths.items()
    )


def records(of: Tree) -> list[MetadataRecord]:
    numbers = itertools.count()
    return [r for batch in read_all(of, lambda: f"{next(numbers):022d}") for r in batch]


TOPIC = {
    "/brokers/topics/t": {
        "version": 3,
        "topic_id": TOPIC_ID,
        "partitions": {"0": [1, 2], "1": [2, 3]},
        "adding_replicas": {"1": [3]},
        "removing_replicas": {},
    },
    "/brokers/topics/t/partitions": None,
    "/brokers/topics/t/partitions/0": None,
    "/brokers/topics/t/partitions/0/state": {
        "controller_epoch": 4, "leader": 2, "version": 1, "leader_epoch": 7, "isr": [2],
        "leader_recovery_state": 1,
    },
    "/config/topics/t": {"version": 1, "config": {"b": "2", "a": "1"}},
}  # fmt: skip


def test_a_topic_is_its_partitions_and_its_configuration() -> None:
    found = records(plain(TOPIC, {"/brokers/topics/t/partitions/0/state": 9}))
    assert found == [
        TopicRecord(name="t", topic_id=TOPIC_ID),
        PartitionRecord(
            partition_id=0, topic_id=TOPIC_ID, replicas=(1, 2), isr=(2,), leader=2,
            leader_recovery_state=1, leader_epoch=7, partition_epoch=9,
        ),
        PartitionRecord(
            partition_id=1, topic_id=TOPIC_ID, replicas=(2, 3), isr=(2, 3), adding_replicas=(3,),
            leader=2, leader_epoch=0, partition_epoch=0,
        ),
        ConfigRecord(resource_type=2, resource_name="t", name="a", value="1"),
        ConfigRecord(resource_type=2, resource_name="t", name="b", value="2"),
    ]  # fmt: skip


def test_a_topic_whose_deletion_is_pending_is_left_out() -> None:
    assert records(plain(TOPIC | {"/admin/delete_topics/t": None})) == []


def test_quotas_name_their_entities() -> None:
    config = {"version": 1, "config": {"producer_byte_rate": "12.5"}}
    found = records(
        plain(
            {
                "/config/users/<default>": config,
                "/config/users/a%20b%2Fc": {"version": 1, "config": {}},
                "/config/users/a%20b%2Fc/clients": None,
                "/config/users/a%20b%2Fc/clients/<default>": config,
                "/config/ips/10.0.0.1": config,
            }
        )
    )
    entities = [record.entity for record in found if isinstance(record, ClientQuotaRecord)]
    assert entities == [
        (QuotaEntity(entity_type="user", entity_name=None),),
        (
            QuotaEntity(entity_type="user", entity_name="a b/c"),
            QuotaEntity(entity_type="client-id", entity_name=None),
        ),
        (QuotaEntity(entity_type="ip", entity_name="10.0.0.1"),),
    ]


@pytest.mark.parametrize("name", ["alice", "a b/c", "ü*~+%", "CN=x,O=y", None])
def test_a_name_survives_its_path(name: str | None) -> None:
    segment = entity_segment("users", name)
    assert "/" not in segment
    assert entity_name("users", segment) == name


def test_a_name_has_the_path_that_kafka_gives_it() -> None:
    """What Java's URLEncoder writes, with `%20` for a space and `%2A` for an asterisk."""
    punctuation = " !\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
    assert entity_segment("users", punctuation) == (
        "%20%21%22%23%24%25%26%27%28%29%2A%2B%2C-.%2F%3A%3B%3C%3D%3E%3F%40%5B%5C%5D%5E_%60"
        "%7B%7C%7D%7E"
    )
    assert entity_segment("clients", "aZ09ü😀") == "aZ09%C3%BC%F0%9F%98%80"


def test_brokers_are_known_by_registration_assignment_or_configuration() -> None:
    found = known_brokers(
        plain(
            TOPIC | {"/brokers/ids/7": {}, "/config/brokers/8": {}, "/config/brokers/<default>": {}}
        )
    )
    assert found == {1, 2, 3, 7, 8}


@pytest.mark.parametrize(
    ("paths", "said"),
    [
        ({"/brokers/topics/t": {"partitions": {"0": [1]}}}, "/topics/t: the topic has no id"),
        ({"/brokers/topics/t": {"topic_id": "short", "partitions": {}}}, "is not a UUID"),
        ({"/brokers/topics/t": {"topic_id": TOPIC_ID, "partitions": {"x": []}}}, "'x' is not a"),
        ({"/brokers/topics/t": {"topic_id": TOPIC_ID, "partitions": {"0": 1}}}, "is not a list"),
        ({"/brokers/topics/t": [1]}, "not a JSON object"),
        ({"/config/clients/c": {"config": {"rate": "fast"}}}, "rate='fast' is not a number"),
        ({"/config/users/u": {"config": {"SCRAM-SHA-256": "salt=$"}}}, "SCRAM-SHA-256 credential"),
        ({"/latest_producer_id_block": {"broker": 1}}, "None is not a number"),
        (
            {"/kafka-acl": None, "/kafka-acl/Moon": None, "/kafka-acl/Moon/m": {"acls": [{}]}},
            "'Moon' is not a known resource type",
        ),
    ],
)  # fmt: skip
def test_a_znode_that_is_wrong_is_named(paths: dict[str, object], said: str) -> None:
    with pytest.raises(ZNodeError, match=said.replace("/", ".")) as caught:
        records(plain(paths))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("{}", "brokerid is missing or null"),
        ('{"brokerid":null}', "brokerid is missing or null"),
        ('{"brokerid":true}', "brokerid True is not a number"),
        ('{"brokerid":1.5}', "brokerid 1.5 is not a number"),
        ('{"brokerid":1e400}', "brokerid inf is not a number"),
        ('{"brokerid":"one\\nmore"}', r"brokerid 'one\nmore' is not a number"),
        ('{"brokerid":"1_0"}', "brokerid '1_0' is not a number"),
        ('{"brokerid":{"id":1}}', "brokerid {'id': 1} is not a number"),
        ('{"brokerid":2147483648}', "brokerid 2147483648 has more than 32 bits"),
        ('{"brokerid":1,"kraftControllerEpoch":[[1]]}', "kraftControllerEpoch [[1]] is not"),
        ('{"brokerid":1,"kraftControllerEpoch":3.0}', "kraftControllerEpoch 3.0 is not a number"),
        ('{"brokerid":' + "9" * 5_000 + "}", "not JSON"),
        ('{"brokerid":' + "[" * 100_000 + "}", "not JSON"),
    ],
    ids=lambda value: value[:40],
)
def test_a_malformed_number_in_controller_is_a_problem_in_one_line(data: str, said: str) -> None:
    tree = Tree([ZNode("/controller", data.encode()), ZNode("/cluster/id", b'{"id":"x"}')])
    (problem,) = plan(tree).problems
    assert problem.startswith(f"/controller: {said}")
    assert "\n" not in problem
    assert len(problem) < 200


def test_the_controller_may_be_a_number_as_text() -> None:
    cluster = ZNode("/cluster/id", b'{"id":"x"}')
    found = plan(Tree([ZNode("/controller", b'{"brokerid":"7"}'), cluster]))
    assert (found.controller, found.problems) == ((7, -1), [])


def test_a_malformed_number_in_migration_names_the_znode() -> None:
    node = ZNode("/migration", b'{"kraft_controller_id":Infinity}')
    with pytest.raises(ZNodeError, match=r"^/migration: kraft_controller_id inf is not a number$"):
        Position.decode(node)


def test_a_credential_is_never_shown() -> None:
    with pytest.raises(ZNodeError) as caught:
        records(plain({"/config/users/u": {"config": {"SCRAM-SHA-512": "salt=hunter2"}}}))
    assert "hunter2" not in str(caught.value)


# --- the comparison -------------------------------------------------------------------------------


def test_equal_sides_do_not_differ() -> None:
    assert list(compare(plain(TOPIC), records(plain(TOPIC)))) == []


def test_each_kind_of_difference_is_found_by_field() -> None:
    image = records(plain(TOPIC))
    del image[-1]
    image[2] = PartitionRecord(
        partition_id=1, topic_id=TOPIC_ID, replicas=(2, 3), isr=(2,), adding_replicas=(3,),
        leader=2, leader_epoch=0, partition_epoch=0,
    )  # fmt: skip
    image.append(ConfigRecord(resource_type=2, resource_name="t", name="c", value="3"))
    found = {(each.kind, each.field, each.in_zookeeper, each.in_the_log)
             for each in compare(plain(TOPIC), image)}  # fmt: skip
    assert found == {
        ("Config", "", "present", "missing"),
        ("Config", "", "missing", "present"),
        ("Partition", "isr", "(2, 3)", "(2,)"),
    }


def test_a_topic_that_zookeeper_is_deleting_must_not_be_in_the_log() -> None:
    deleting = plain(TOPIC | {"/admin/delete_topics/t": None})
    topics = [each for each in compare(deleting, records(plain(TOPIC))) if each.kind == "Topic"]
    assert [each.in_zookeeper for each in topics] == ["deletion pending"]


# --- a real cluster's znodes ----------------------------------------------------------------------


@pytest.fixture
def real() -> Tree:
    file = SHARED / "kafka-3.9-zookeeper" / "znodes.jsonl"
    file = file if file.exists() else SHARED / "data" / "kafka-3.9-zookeeper" / "znodes.jsonl"
    if not file.exists():
        if os.environ.get("CI") and SHARED.exists():
            pytest.fail(f"{file} is missing")
        pytest.skip(f"{file} is not at hand: a ZooKeeper-mode cluster's znodes")
    nodes = []
    for line in file.read_text().splitlines():
        fields = json.loads(line)
        data = None if fields["data"] is None else fields["data"].encode()
        nodes.append(ZNode(fields["path"], data, fields["version"], fields["ephemeral_owner"]))
    return Tree(nodes)


def test_every_znode_of_a_real_cluster_is_read(real: Tree) -> None:
    found = records(real)
    counts = Counter(type(record).__name__ for record in found)
    states = [p for p in real if p.endswith("/state") and "/placed/" not in p]
    assert counts["PartitionRecord"] == len(states)
    assert counts["TopicRecord"] == 29, "one of thirty is being deleted"
    configs = [
        node.object()["config"]
        for path, node in real.items()
        if path.startswith(("/config/topics/", "/config/brokers/"))
    ]
    assert counts["ConfigRecord"] == sum(map(len, configs))
    acls = [
        node.object()["acls"]
        for path, node in real.items()
        if path.startswith(("/kafka-acl/", "/kafka-acl-extended/")) and node.data
    ]
    assert counts["AccessControlEntryRecord"] == sum(map(len, acls))
    assert len({r.id for r in found if isinstance(r, AccessControlEntryRecord)}) == 6
    assert counts["ClientQuotaRecord"] == 5
    assert counts["UserScramCredentialRecord"] == 2
    assert [r.next_producer_id for r in found if isinstance(r, ProducerIdsRecord)] == [2000]
    assert known_brokers(real) == {1, 2}


def test_a_real_cluster_equals_its_copy(real: Tree) -> None:
    assert list(compare(real, records(real))) == []


def test_a_cluster_that_gave_no_producer_ids_away_has_an_empty_znode_for_them() -> None:
    for data in (None, b""):
        found = records(Tree([ZNode("/latest_producer_id_block", data)]))
        assert not [each for each in found if isinstance(each, ProducerIdsRecord)]
