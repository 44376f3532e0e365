"""The commands of the cluster's metadata against controllers that run: what they do and print."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from quorate.records import metadata as rec
from quorate.rpc.client.quorum_client import AdminError, QuorumClient
from quorate.runtime.metadata_files import read_directory, read_snapshot

from tests.integration.metadata_support import brokers
from tests.integration.support import (
    CLUSTER,
    PARTITION,
    Node,
    Quorum,
    assert_clean,
    assert_error,
    free_ports,
    here,
    succeed,
    until,
)

ORDERS = "orders"


class Commands:
    """Commands to one cluster."""

    def __init__(self, address: str) -> None:
        self.address = address

    def __call__(self, command: str, *arguments: object) -> str:
        return succeed(command, "--bootstrap-controller", self.address, *arguments).out

    def refused(self, *said: str, command: tuple[object, ...], status: int = 1) -> None:
        name, *arguments = command
        ran = here(name, "--bootstrap-controller", self.address, *arguments)
        assert_error(ran, *said, status=status)

    def json(self, command: str, *arguments: object) -> Any:
        return json.loads(self(command, *arguments, "--json"))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A controller, the only voter, with two brokers that are unfenced."""
    node = Node(tmp_path_factory.mktemp("metadata"), 1, free_ports(1)[0])
    node.format("--standalone")
    node.start()
    try:
        node.wait_said("active controller in epoch")
        with brokers(node.address, 11, 12):
            yield node
        assert node.stop() == 0
        assert_clean(node.said())
    finally:
        node.kill()


@pytest.fixture(scope="module")
def ask(node: Node) -> Commands:
    return Commands(node.address)


def test_topics_from_creation_to_deletion(ask: Commands) -> None:
    made = ("--partitions", 3, "--replication-factor", 2, "--config", "retention.ms=60000")
    assert ask("topics", "create", "--topic", ORDERS, *made) == "Created topic orders.\n"
    ask.refused("orders: TOPIC_ALREADY_EXISTS", command=("topics", "create", "--topic", ORDERS))
    assert ask("topics", "create", "--topic", ORDERS, "--if-not-exists") == ""
    assert ask("topics", "list") == "orders\n"
    (described,) = ask.json("topics", "describe")
    assert described["configs"] == {"retention.ms": "60000"}
    assert [sorted(p["replicas"]) for p in described["partitions"]] == [[11, 12]] * 3
    assert all(sorted(p["isr"]) == [11, 12] for p in described["partitions"])
    head, *lines = ask("topics", "describe", "--topic", "ord.*").splitlines()
    assert head == (
        f"Topic: orders\tTopicId: {described['topicId']}\tPartitionCount: 3\t"
        "ReplicationFactor: 2\tConfigs: retention.ms=60000"
    )
    assert len(lines) == 3
    altered = ask("topics", "alter", "--topic", ORDERS, "--partitions", 5)
    assert altered == "Altered topic orders.\n"
    assert len(ask.json("topics", "describe")[0]["partitions"]) == 5
    fewer = ("topics", "alter", "--topic", ORDERS, "--partitions", 2)
    ask.refused("orders: INVALID_PARTITIONS", command=fewer)
    assert ask("topics", "describe", "--unavailable-partitions") == ""
    assert ask("topics", "delete", "--topic", ORDERS) == "Deleted topic orders.\n"
    assert ask("topics", "list") == ""
    ask.refused("'orders' does not exist", command=("topics", "delete", "--topic", ORDERS))
    assert ask("topics", "delete", "--topic", ORDERS, "--if-exists") == ""


def test_many_topics_from_a_file(ask: Commands, tmp_path: Path) -> None:
    names = tmp_path / "names"
    names.write_text("".join(f"many-{number}\n" for number in range(450)))
    printed = ask("topics", "create", "--topics-file", names, "--partitions", 2)
    assert printed.count("Created topic many-") == 450
    assert len(ask("topics", "list", "--topic", "many-.*").split()) == 450
    ask("topics", "delete", "--topic", "many-.*")
    assert ask("topics", "list", "--topic", "many-.*") == ""


CREATE = ("topics", "create")
ALTER = ("configs", "alter")
SCRAM = "SCRAM-SHA-256=[iterations=4096]"

REFUSED = [
    ("INVALID_TOPIC_EXCEPTION", (*CREATE, "--topic", "a b")),
    ("INVALID_REPLICATION_FACTOR", (*CREATE, "--topic", "t", "--replication-factor", 3)),
    ("INVALID_CONFIG", (*CREATE, "--topic", "t", "--config", "retention.ms=x")),
    ("UNKNOWN_TOPIC", (*ALTER, "--topic", "t", "--add-config", "retention.ms=1")),
    ("cannot be a fractional", (*ALTER, "--user", "u", "--add-config", "producer_byte_rate=1.5")),
]
FLY = ("--deny-principal", "U:a", "--operation", "Fly", "--cluster")
WRONG = [
    ("--topic is missing", CREATE),
    ("expected the form 1:2", (*CREATE, "--topic", "t", "--replica-assignment", "x")),
    ("regular expression", ("topics", "list", "--topic", "(")),
    ("accepted: topics", (*ALTER, "--entity-type", "tables")),
    ("must be specified", (*ALTER, "--topic", "t")),
    ("password is missing", (*ALTER, "--user", "u", "--add-config", SCRAM)),
    ("broker id", (*ALTER, "--broker", "x", "--add-config", "a=b")),
    ("unbalanced brackets", (*ALTER, "--topic", "t", "--add-config", "a=[b")),
    ("a resource is missing", ("acls", "add", "--allow-principal", "User:a")),
    ("expected TYPE:NAME", ("acls", "add", "--allow-principal", "a", "--topic", "t")),
    ("--operation Fly", ("acls", "add", *FLY)),
]


@pytest.mark.parametrize(("said", "command"), REFUSED)
def test_what_cannot_be_is_one_line(ask: Commands, said: str, command: tuple[object, ...]) -> None:
    ask.refused(said, command=command)


@pytest.mark.parametrize(("said", "command"), WRONG)
def test_a_wrong_command_line_is_one_line(
    ask: Commands, said: str, command: tuple[object, ...]
) -> None:
    ask.refused(said, command=command, status=2)


def test_nobody_there_is_said_soon() -> None:
    nobody = here("topics", "--bootstrap-controller", f"127.0.0.1:{free_ports(1)[0]}", "list")
    assert_error(nobody, "check the addresses")


def test_configurations_quotas_and_credentials(ask: Commands) -> None:
    threads = "log.cleaner.threads=2"
    ask("configs", "alter", "--broker-defaults", "--add-config", threads)
    told = ask("configs", "describe", "--entity-type", "brokers", "--entity-default")
    assert told.splitlines() == [
        "Default configs for brokers in the cluster are:",
        f"  {threads} sensitive=false synonyms={{DYNAMIC_DEFAULT_BROKER_CONFIG:{threads}}}",
    ]
    ask("configs", "alter", "--broker-defaults", "--delete-config", "log.cleaner.threads")
    quota = ("--add-config", "producer_byte_rate=1048576,consumer_byte_rate=20")
    both = ("--entity-type", "users", "--entity-name", "alice", "--entity-type", "clients")
    ask("configs", "alter", *both, "--entity-default", *quota)
    assert ask("configs", "describe", "--entity-type", "users", "--entity-type", "clients") == (
        "Quota configs for user-principal 'alice', the default client-id are "
        "consumer_byte_rate=20.0, producer_byte_rate=1048576.0\n"
    )
    ask("configs", "alter", "--user", "alice", "--add-config", "SCRAM-SHA-256=[password=secret]")
    told = ask("configs", "describe", "--entity-type", "users")
    assert told.endswith("user-principal 'alice' are SCRAM-SHA-256=iterations=4096\n")
    ask("configs", "alter", "--user", "alice", "--delete-config", "SCRAM-SHA-256")
    assert ask("configs", "describe", "--entity-type", "users") == ""


def test_access_control_entries(ask: Commands) -> None:
    who = ("--allow-principal", "User:a", "--operation", "Read", "--operation", "Write")
    ask("acls", "add", *who, "--topic", "pay", "--resource-pattern-type", "prefixed")
    listed = ask("acls", "list").splitlines()
    assert listed[0].endswith("(resourceType=TOPIC, name=pay, patternType=PREFIXED)`:")
    assert len(listed) == 4
    assert ask("acls", "list", "--topic", "payments", "--resource-pattern-type", "match")
    assert ask("acls", "list", "--principal", "User:b") == ""
    ask("acls", "remove", "--force", "--topic", "pay", "--resource-pattern-type", "prefixed")
    assert ask("acls", "list") == ""


def test_cluster(ask: Commands) -> None:
    assert ask("cluster", "cluster-id") == f"Cluster ID: {CLUSTER}\n"
    assert ask.json("cluster", "cluster-id") == {"clusterId": CLUSTER}
    header, *rows = ask("cluster", "list-endpoints").splitlines()
    assert header.split() == ["ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE"]
    assert [row.split() for row in rows if "broker" in row] == [
        [str(i), "127.0.0.1", str(9000 + i), "null", "unfenced", "broker"] for i in (11, 12)
    ]
    with brokers(ask.address, 13):
        assert 13 in _ids(ask)
    until("a silent broker is left out", lambda: 13 not in _ids(ask))
    assert 13 in _ids(ask, "--include-fenced-brokers")
    assert "no longer registered" in ask("cluster", "unregister", "--id", 13)
    assert 13 not in _ids(ask, "--include-fenced-brokers")
    ask.refused("BROKER_ID_NOT_REGISTERED", "13", command=("cluster", "unregister", "--id", 13))
    ask.refused("--id", command=("cluster", "unregister"), status=2)


def _ids(ask: Commands, *options: str) -> list[int]:
    return [each["id"] for each in ask.json("cluster", "list-endpoints", *options)]


def test_features(ask: Commands) -> None:
    levels = {f["feature"]: f["finalizedVersionLevel"] for f in ask.json("features", "describe")}
    assert levels["metadata.version"] == 30
    ask.refused("1 out of 1", command=("features", "upgrade", "--feature", "nothing=1"))
    assert "was upgraded to 1" in ask("features", "upgrade", "--feature", "group.version=1")
    assert "FinalizedVersionLevel: 4.3-IV0" in ask("features", "describe")


def test_records_that_nobody_could_replay_are_refused(node: Node) -> None:
    async def append(*records: rec.MetadataRecord, keyed: bool = False) -> None:
        values: list[tuple[bytes | None, bytes]] = [(None, rec.encode(each)) for each in records]
        if keyed:
            values.append((b"", b"x"))
        async with QuorumClient([node.address]) as client:
            await client.append(values)

    unknown = rec.RemoveTopicRecord("q4-87cwrTP20I1r4Xtfj7g")
    with pytest.raises(AdminError, match=r"INVALID_RECORD: .*there is no topic q4-87"):
        asyncio.run(append(unknown))
    for refused in (
        rec.TopicRecord("../../etc/passwd", "q4-87cwrTP20I1r4Xtfj7g"),
        rec.FeatureLevelRecord("kraft.version", 7),
        rec.ZkMigrationStateRecord(99),
        rec.BeginTransactionRecord("mine"),
    ):
        with pytest.raises(AdminError, match=r"INVALID_RECORD: offset [0-9]+: [A-Z_]+_RECORD: "):
            asyncio.run(append(refused))
    with pytest.raises(AdminError, match=r"INVALID_RECORD: .* one batch cannot hold both"):
        asyncio.run(append(rec.NoOpRecord(), keyed=True))
    asyncio.run(append(rec.ConfigRecord(4, "", "background.threads", "11")))
    told = Commands(node.address)("configs", "describe", "--broker-defaults")
    assert "background.threads=11" in told


@pytest.mark.slow
def test_another_controller_takes_the_metadata_over(tmp_path: Path) -> None:
    quorum = Quorum(
        tmp_path, (1, 2, 3), **{"metadata.log.max.record.bytes.between.snapshots": 2000}
    )
    ask = Commands(quorum.addresses)
    try:
        for node in quorum.nodes.values():
            node.format("--standalone" if node.id == 1 else "--no-initial-controllers")
            if node.id != 1:
                node.configure({"controller.quorum.auto.join.enable": "true"})
            node.start()
        status = quorum.until_voters(1, 2, 3)
        with brokers(quorum.addresses, 11):
            ask("topics", "create", "--topic", ORDERS, "--partitions", 30)
            leader = quorum.nodes[status["leaderId"]]
            leader.kill()
            quorum.until("another leader", lambda s: s["leaderId"] != leader.id)
            assert ask("topics", "list") == "orders\n"
            ask("topics", "create", "--topic", "payments")
        before = ask("topics", "describe")
        leader.start()
        until("the old leader has snapshots", lambda: snapshots(leader))
        for node in quorum.nodes.values():
            assert node.stop() == 0
            assert_clean(node.said())
            image = read_directory(node.data)
            assert sorted(image.topics.ids) == [ORDERS, "payments"]
            assert read_snapshot(snapshots(node)[-1]).level == 30
        for node in quorum.nodes.values():
            node.start()
        quorum.until_voters(1, 2, 3)
        assert ask("topics", "list") == "orders\npayments\n"
        assert before.count("Partition: ") == 31
    finally:
        quorum.kill()


def snapshots(node: Node) -> list[Path]:
    found = sorted((node.data / PARTITION).glob("*.checkpoint"))
    return [path for path in found if not path.name.startswith("0" * 20)]


@pytest.mark.slow
def test_a_plain_quorum_stays_plain_and_imports_what_another_has(
    node: Node, ask: Commands, tmp_path: Path
) -> None:
    plain = Node(tmp_path, 1, free_ports(1)[0])
    plain.format("--standalone")
    plain.start()
    there = Commands(plain.address)
    try:
        plain.wait_said("active controller in epoch")
        asyncio.run(append_opaque(plain.address))
        assert there("topics", "list") == ""
        assert plain.stop() == 0
        assert list(read_directory(plain.data).records()) == []
        plain.start()
        plain.wait_said("active controller in epoch")
        ask("topics", "create", "--topic", "kept", "--partitions", 4, "--config", "retention.ms=7")
        ask("configs", "alter", "--client", "c", "--add-config", "request_percentage=50")
        source = ("--from", node.data)
        would = there("topics", "import", *source, "--dry-run")
        assert would.startswith("Would import 1 topics with ")
        assert there("topics", "list") == ""
        assert there("topics", "import", *source).startswith("Imported 1 topics with ")
        (theirs,), (ours,) = there.json("topics", "describe"), ask.json("topics", "describe")
        assert theirs["topicId"] == ours["topicId"]
        assert theirs["configs"] == {"retention.ms": "7"}
        assert [p["replicas"] for p in theirs["partitions"]] == [
            p["replicas"] for p in ours["partitions"]
        ]
        assert {p["leader"] for p in theirs["partitions"]} == {None}
        assert "request_percentage=50.0" in there("configs", "describe", "--client", "c")
        assert "Topic kept already exists." in there("topics", "import", *source)
        there("topics", "delete", "--topic", "kept")
        assert plain.stop() == 0
        assert_clean(plain.said())
    finally:
        plain.kill()


async def append_opaque(address: str) -> None:
    async with QuorumClient([address]) as client:
        for number in range(20):
            await client.append_value(b"%d" % number)
