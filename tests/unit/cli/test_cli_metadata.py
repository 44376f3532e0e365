"""The metadata's commands as far as they need no quorum: options, text, the tree, the shell."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from quorate.cli import acls
from quorate.cli.configs import changes
from quorate.cli.configs.entities import (
    DEFAULT_MARK,
    Entity,
    EntityPart,
    parse_additions,
    parse_entity,
    parse_file,
)
from quorate.cli.configs.text import Described
from quorate.cli.log.metadata_shell import Shell, _prompt
from quorate.cli.log.metadata_tree import Directory, build_tree, draw
from quorate.cli.main import main
from quorate.cli.output import CommandError, UsageError
from quorate.cli.topics.metadata_import import chosen_topics
from quorate.cli.topics.text import topic_json, topic_lines
from quorate.common.error_codes import ErrorCode
from quorate.controller.bootstrap import write_bootstrap
from quorate.metadata import requests as r
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.records import metadata as rec

TOPIC_ID = "q4-87cwrTP20I1r4Xtfj7g"

# --- entities and values --------------------------------------------------------------------------


def entity(types: list[str], names: list[str], *, is_alter: bool = True) -> Entity:
    return parse_entity(types, names, {}, {}, is_alter=is_alter)


def test_names_belong_to_types_in_their_order() -> None:
    both = entity(["clients", "users"], [DEFAULT_MARK, "alice"])
    assert both.parts == (EntityPart("users", "alice"), EntityPart("clients", is_default=True))
    assert entity(["users", "clients"], ["alice", DEFAULT_MARK]) == both
    assert entity(["users"], [], is_alter=False).parts == (EntityPart("users"),)
    assert parse_entity(None, None, {"users": "alice"}, {"clients": True}, is_alter=True) == both


@pytest.mark.parametrize(
    ("types", "names", "said"),
    [
        ([], [], "--entity-type is missing"),
        (["tables"], ["t"], "accepted: topics, brokers"),
        (["topics"], [], "--entity-name or --entity-default for topics is missing"),
        (["topics"], [DEFAULT_MARK], "there is no default for topics"),
        (["topics", "users"], ["t", "u"], "Only users and clients"),
        (["users"], ["a", "b"], "more --entity-name than --entity-type"),
        (["users"], [""], "is empty"),
        (["brokers"], ["one"], "valid integer broker id"),
    ],
)
def test_entities_that_make_no_sense(types: list[str], names: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        entity(types, names)


def test_values_with_commas_stand_in_brackets() -> None:
    assert parse_additions(["a=1,cleanup.policy=[compact,delete]", "c= x=y "]) == {
        "a": "1",
        "cleanup.policy": "compact,delete",
        "c": "x=y",
    }
    for wrong in ("a", "=1", "a=[1"):
        with pytest.raises(UsageError, match="--add-config"):
            parse_additions([wrong])


def test_properties_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "add.properties"
    path.write_text("retention.ms = 5\ncleanup.policy=compact,delete\n")
    assert parse_file(path) == {"retention.ms": "5", "cleanup.policy": "compact,delete"}


def test_a_password_is_salted_and_never_sent() -> None:
    user = Entity((EntityPart("users", "alice"),))
    made = changes.scram(
        user, {"SCRAM-SHA-512": "iterations=5000,password=secret"}, ["SCRAM-SHA-256"]
    )
    assert made is not None
    (upsertion,) = made.upsertions
    assert (upsertion.mechanism, upsertion.iterations) == (2, 5000)
    assert upsertion.salted_password == hashlib.pbkdf2_hmac(
        "sha512", b"secret", upsertion.salt, 5000
    )
    assert made.deletions == (r.ScramDeletion("alice", 1),)
    assert changes.scram(user, {"producer_byte_rate": "1"}, []) is None
    for wrong in ("password=", "iterations=0,password=x", "iterations=x,password=y", "x=1", "x"):
        with pytest.raises(UsageError, match="SCRAM-SHA-256"):
            changes.scram(user, {"SCRAM-SHA-256": wrong}, [])
    with pytest.raises(UsageError, match="belong to one user"):
        changes.scram(Entity((EntityPart("ips", "1"),)), {"SCRAM-SHA-256": "password=x"}, [])


def test_quotas_of_users_and_clients() -> None:
    both = entity(["clients", "users"], [DEFAULT_MARK, "alice"])
    made = changes.quotas(both, {"producer_byte_rate": "5"}, ["request_percentage"], True)
    assert made == r.AlterClientQuotas(
        (
            r.QuotaChange(
                (("client-id", None), ("user", "alice")),
                (r.QuotaOp("producer_byte_rate", 5.0), r.QuotaOp("request_percentage", None)),
            ),
        ),
        True,
    )
    with pytest.raises(UsageError, match="Cannot parse"):
        changes.quotas(both, {"producer_byte_rate": "x"}, [], False)


# --- text -----------------------------------------------------------------------------------------

PARTITION = r.PartitionDescription(0, 1, 0, 0, (1, 2), (1,), eligible_leader_replicas=(2,))
LEADERLESS = r.PartitionDescription(1, -1, 0, 0, (1, 2, 3), (), adding_replicas=(3,))
ORDERS = r.TopicDescription("orders", TOPIC_ID, (PARTITION, LEADERLESS))


def test_a_topic_as_kafka_prints_it() -> None:
    assert list(topic_lines(ORDERS, {"b": "2", "a": "1"}, None, False)) == [
        (
            f"Topic: orders\tTopicId: {TOPIC_ID}\tPartitionCount: 2\tReplicationFactor: 2\t"
            "Configs: a=1,b=2"
        ),
        "\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1\tElr: 2\tLastKnownElr: ",
        (
            "\tTopic: orders\tPartition: 1\tLeader: none\tReplicas: 1,2,3\tIsr: "
            "\tAdding Replicas: 3\tRemoving Replicas: \tElr: \tLastKnownElr: "
        ),
    ]
    assert topic_json(ORDERS, {})["partitions"][1]["leader"] is None


@pytest.mark.parametrize(
    ("only", "min_isr", "partitions"),
    [
        ("under-replicated", "1", [0, 1]),
        ("unavailable", "1", [1]),
        ("under-min-isr", "1", [1]),
        ("under-min-isr", "2", [0, 1]),
        ("at-min-isr", "1", [0]),
    ],
)
def test_chosen_partitions(only: str, min_isr: str, partitions: list[int]) -> None:
    lines = list(topic_lines(ORDERS, {"min.insync.replicas": min_isr}, only, False))
    assert [f"Partition: {index}" in line for index, line in zip(partitions, lines, strict=True)]
    assert list(topic_lines(ORDERS, {}, None, True)) == []


def test_synonyms_say_where_a_value_could_come_from() -> None:
    found = Described(broker_defaults={"message.max.bytes": "7"})
    topic = r.ConfigResource(2, "orders")
    value = r.ConfigValue("max.message.bytes", "9", 1)
    found.resources = [r.ResourceConfigs(topic, (value, r.ConfigValue("x", "1", 5)))]
    head, line = found.lines()
    assert head == "Dynamic configs for topic orders are:"
    told, _, synonyms = line.partition(" synonyms=")
    assert told == "  max.message.bytes=9 sensitive=false"
    assert synonyms.strip("{}").split(", ") == [
        "DYNAMIC_TOPIC_CONFIG:max.message.bytes=9",
        "DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=7",
        "DEFAULT_CONFIG:message.max.bytes=1048588",
    ]


def test_added_acls_in_json_have_their_errors() -> None:
    added, failed = (r.Acl(2, name, 3, "User:a", "*", 3, 3) for name in ("t", "u"))
    results = (r.PartResult(""), r.PartResult("", ErrorCode.INVALID_REQUEST, "wrong"))
    found = acls.added_json((added, failed), results)
    assert [(each["resourceName"], each["error"]) for each in found] == [
        ("t", None),
        ("u", "INVALID_REQUEST: wrong"),
    ]


@pytest.mark.parametrize("pattern", ["orders", "'orders'", '"orders"', " 'ord.*' "])
def test_topics_to_import_may_be_quoted_as_everywhere(pattern: str) -> None:
    image = MetadataImage()
    image.apply(rec.TopicRecord("orders", TOPIC_ID), 0)
    assert chosen_topics(image, [pattern]) == {"orders": TOPIC_ID}


@pytest.mark.parametrize("pattern", ["(", "a{99999999999}", "(" * 5_000])
def test_a_pattern_of_topics_to_import_that_is_none_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pattern: str
) -> None:
    write_bootstrap(tmp_path, {"metadata.version": 30}, 1)
    command = ("topics", "--bootstrap-controller", "127.0.0.1:9", "import")
    source = str(tmp_path / "bootstrap.checkpoint")
    assert main([*command, "--from", source, "--topic", pattern]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "invalid regular expression" in line


# --- the tree and the shell -----------------------------------------------------------------------


@pytest.fixture
def root() -> Directory:
    image = MetadataImage()
    records: list[Any] = [
        rec.FeatureLevelRecord("metadata.version", 30),
        rec.TopicRecord("orders", TOPIC_ID),
        *(rec.PartitionRecord(n, TOPIC_ID, (1,), (1,), leader=1) for n in range(11)),
        rec.ConfigRecord(2, "orders", "retention.ms", "5"),
        rec.ConfigRecord(4, "", "background.threads", "11"),
        rec.ClientQuotaRecord((rec.QuotaEntity("user", "a/b"),), "producer_byte_rate", 5.0),
        rec.UserScramCredentialRecord("alice", 1, b"salt", b"stored", b"server", 4096),
        rec.UnknownRecord(99, 3, b"later"),
    ]
    image.apply_batch(records, 0, 1, 1)
    return build_tree(image.records(), {"offset": 17})


def test_every_record_has_its_place_and_no_secret_is_shown(root: Directory) -> None:
    text = "\n".join(draw(root))
    assert root.find("/image/configs/TOPIC/orders/retention.ms") == "5"
    assert root.find("/image/configs/BROKER/(default)/background.threads") == "11"
    assert root.find("/image/clientQuotas/user=a%2Fb/producer_byte_rate") == "5.0"
    assert root.find("/image/features/metadata.version") == "30"
    assert "UNKNOWN_RECORD_99" in text
    assert "c3RvcmVk" not in text
    assert root.find("/image/none") is None


def shell(root: Directory, *lines: str) -> str:
    printed: list[str] = []
    one = Shell(root, printed.append)
    for line in lines:
        one.run(line.split())
    return "".join(printed)


def test_the_shells_commands(root: Directory) -> None:
    numbers = "  ".join(map(str, range(11)))
    assert shell(root, "ls /image/topics/byName/orders") == f"{numbers}  id  name\n"
    assert shell(root, "cd /image/topics/byName", "pwd", "cat orders/id") == (
        f"/image/topics/byName\n{TOPIC_ID}\n"
    )
    assert shell(root, "cat /image/topics/by*/*/name") == "orders\norders\n"
    assert shell(root, "find /image/configs/BROKER").splitlines()[-1] == (
        "/image/configs/BROKER/(default)/background.threads"
    )
    assert "background.threads" in shell(root, "tree /image/configs")
    for wrong, said in (
        ("cat /image", "is a directory"),
        ("ls /none", "no such file or directory"),
        ("cd /local/version", "is not a directory"),
    ):
        with pytest.raises(CommandError, match=said):
            shell(root, wrong)
    with pytest.raises(UsageError, match="did you mean tree"):
        shell(root, "tre")


def test_a_fault_in_a_script_ends_the_shell_and_is_not_printed_twice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written: list[str] = []
    for script, error in (("ls /none\nls /\n", CommandError), ("ls '\nls /\n", UsageError)):
        monkeypatch.setattr("sys.stdin", io.StringIO(script))
        with pytest.raises(error):
            _prompt(Shell(Directory(), written.append))
    assert written == []
    assert capsys.readouterr() == ("", "")


def test_the_shells_options(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["metadata-shell"]) == 2
    assert "either --snapshot FILE or --log-dir DIR" in capsys.readouterr().err
    assert main(["metadata-shell", "--log-dir", str(tmp_path), "ls"]) == 1
    assert "holds no metadata log" in capsys.readouterr().err
    assert main(["metadata-shell", "--snapshot", str(tmp_path / "none"), "ls"]) == 1
    assert "No such file" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["tre", "cd", "/image"])
def test_json_takes_only_commands_that_read_paths(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, word: str
) -> None:
    assert main(["metadata-shell", "--log-dir", str(tmp_path), "--json", word, "/"]) == 2
    assert f"--json works with ls, cat, tree and find, not with '{word}'" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["ls", "cat", "tree", "find"])
def test_json_of_a_path(capsys: pytest.CaptureFixture[str], tmp_path: Path, word: str) -> None:
    write_bootstrap(tmp_path, {"metadata.version": 30}, 1)
    path = "/image/features"
    snapshot = str(tmp_path / "bootstrap.checkpoint")
    assert main(["metadata-shell", "--snapshot", snapshot, "--json", word, path]) == 0
    assert json.loads(capsys.readouterr().out) == {path: {"metadata.version": "30"}}
