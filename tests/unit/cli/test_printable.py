"""What names and values from outside do to a terminal: nothing."""

from __future__ import annotations

import json
import unicodedata

import pytest
from quorate.cli import acls
from quorate.cli.log import metadata_shell
from quorate.cli.log.metadata_tree import Directory, build_tree
from quorate.cli.output import kafka_table, print_error, print_json, print_line, printable
from quorate.cli.quorum import describe
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.metadata.requests import Acl
from quorate.raft.messages import CurrentLeader, DescribeQuorumResponse, ReplicaStatus
from quorate.raft.types import ReplicaKey
from quorate.records.metadata import ConfigRecord, TopicRecord

EVIL = "x\x1b[2J\x1b[31mPWNED\x1b]0;title\x07\nERROR forged\r\x9b1m\x7f\u202elive\u2066\u2028"


def is_harmless(text: str) -> bool:
    lines = text.split("\n")
    kinds = {unicodedata.category(each) for line in lines for each in line if each != "\t"}
    forged = any(line.startswith("ERROR") for line in lines)
    return not forged and not kinds & {"Cc", "Cf", "Zl", "Zp"}


def test_only_what_a_terminal_obeys_is_escaped() -> None:
    assert printable("topic-1\tgrün 日本 “q” \\ é") == "topic-1\tgrün 日本 “q” \\ é"
    assert printable("a\x1b[2J\nb") == "a\\u001b[2J\\u000ab"
    assert printable("a\nb\r", keep_lines=True) == "a\nb\\u000d"


def test_every_way_to_print(capsys: pytest.CaptureFixture[str]) -> None:
    print_line(EVIL)
    print(kafka_table(("NAME", "VALUE"), [(EVIL, "1"), ("y", EVIL)]))
    print_error(EVIL)
    captured = capsys.readouterr()
    assert is_harmless(captured.out), captured.out
    assert is_harmless(captured.err), captured.err
    assert captured.out.count("\n") == 4


def test_json_stays_the_same_value(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"name": EVIL, "list": [EVIL, "日本"]}
    print_json(value)
    printed = capsys.readouterr().out
    assert json.loads(printed) == value
    assert is_harmless(printed)


def test_columns_are_as_wide_as_what_is_printed() -> None:
    lines = kafka_table(("NAME", "N"), [("a\x1bb", "1"), ("c", "2")]).splitlines()
    assert [line.index("\t") for line in lines] == [8, 8, 8]


def test_the_acls(capsys: pytest.CaptureFixture[str]) -> None:
    for line in acls.acl_lines([Acl(2, EVIL, 3, f"User:{EVIL}", EVIL, 3, 3)]):
        print_line(line)
    printed = capsys.readouterr().out
    assert "PWNED" in printed
    assert is_harmless(printed)


def test_the_status_of_a_quorum() -> None:
    place = (Endpoint(EVIL, EVIL, 1),)
    observer = ReplicaStatus(ReplicaKey(55, "A" * 22), 1, 1, 1, place)
    response = DescribeQuorumResponse(
        ErrorCode.NONE, CurrentLeader(1, 1), observers=(observer,), voters=()
    )
    printed = describe.status_text(EVIL, response)
    assert "PWNED" in printed
    assert is_harmless(printed)


def test_the_metadata_shell() -> None:
    topic = TopicRecord(EVIL, "q4-87cwrTP20I1r4Xtfj7g")
    records = [topic, ConfigRecord(2, EVIL, "cleanup.policy", EVIL)]
    printed: list[str] = []
    shell = metadata_shell.Shell(build_tree(records, {}), printed.append)
    shell.run(["ls", "/image/topics/byName"])
    shell.run(["tree", "/image"])
    shell.run(["find", "/image"])
    assert "PWNED" in "".join(printed)
    assert is_harmless("".join(printed)), printed


def test_names_are_sorted_by_value_if_they_are_numbers() -> None:
    names = ("b", "10", "²", "9", "a")
    assert Directory({name: Directory() for name in names}).sorted_names() == [
        *("9", "10", "a", "b", "²")
    ]
