"""`describe` against what Kafka's own tool printed of a quorum that lived through changes."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from quorate.cli.quorum.describe import (
    endpoint_text,
    from_leader,
    max_follower_lag,
    replication_json,
    replication_text,
    silent_voters,
    status_json,
    status_text,
)
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.raft.messages import CurrentLeader, DescribeQuorumResponse, ReplicaStatus
from quorate.raft.types import ReplicaKey, Voter, VoterSet
from quorate.rpc.software import UNKNOWN, Software

from tests.replica.voters import without_directories

ROOT = Path(__file__).resolve().parents[3]
SHARED = Path(os.environ.get("QUORATE_SHARED", ROOT.parent / "shared"))
ORACLE = SHARED / "data/kafka-4.3/quorum/describe.txt"


@dataclass(frozen=True)
class Printed:
    """One description by Kafka's tool: the two texts."""

    title: str
    status: str
    replication: str


def oracle() -> list[Printed]:
    if not ORACLE.exists():
        return []
    printed = []
    for block in re.split(r"^=== ", ORACLE.read_text(), flags=re.MULTILINE)[1:]:
        title, rest = block.split("\n", 1)
        _, status, replication = re.split(r"^--- describe --\w+\n", rest, flags=re.MULTILINE)
        printed.append(Printed(title, status.rstrip("\n"), replication.rstrip("\n")))
    return printed


def test_the_oracle_is_there() -> None:
    if not ORACLE.exists():
        if "CI" in os.environ and SHARED.exists():
            pytest.fail(f"{ORACLE} is missing")
        pytest.skip(f"no golden data of Kafka: {ORACLE} does not exist")
    assert len(oracle()) > 10


def field(printed: Printed, name: str) -> str:
    found = re.search(rf"^{name}: +(.*)$", printed.status, re.MULTILINE)
    assert found is not None
    return found[1]


def members(printed: Printed, name: str) -> list[tuple[ReplicaKey, tuple[Endpoint, ...]]]:
    result = []
    for member in json.loads(field(printed, name)):
        endpoints = []
        for text in member.get("endpoints", []):
            found = re.fullmatch(r"(\w+)://(.*):(\d+)", text)
            assert found is not None
            endpoints.append(Endpoint(found[1], found[2], int(found[3])))
        result.append((ReplicaKey(member["id"], member.get("directoryId")), tuple(endpoints)))
    return result


def given_status(printed: Printed) -> DescribeQuorumResponse:
    """A description with the same facts: the last follower is as far behind as Kafka says."""
    leader_id = int(field(printed, "LeaderId"))
    lag, lag_ms = int(field(printed, "MaxFollowerLag")), int(field(printed, "MaxFollowerLagTimeMs"))
    voters = members(printed, "CurrentVoters")
    behind = next((key for key, _ in voters if key.id != leader_id), None)
    statuses = []
    for key, endpoints in voters:
        if key == behind:
            caught_up = -1 if lag_ms < 0 else 1_000_000 - lag_ms
            statuses.append(ReplicaStatus(key, 1000 - lag, 1, caught_up, endpoints))
        else:
            statuses.append(ReplicaStatus(key, 1000, 1, 1_000_000, endpoints))
    voter_set = VoterSet.of(Voter(key, endpoints) for key, endpoints in voters)
    return DescribeQuorumResponse(
        ErrorCode.NONE,
        CurrentLeader(int(field(printed, "LeaderEpoch")), leader_id),
        int(field(printed, "HighWatermark")),
        1,
        tuple(statuses),
        tuple(
            ReplicaStatus(key, 0, 0, 0, endpoints)
            for key, endpoints in members(printed, "CurrentObservers")
        ),
        voter_set,
        voter_set,
    )


def given_replication(printed: Printed) -> DescribeQuorumResponse:
    rows = [line.rstrip("\t").split("\t") for line in printed.replication.split("\n")[1:]]
    voters, observers, leader_id = [], [], -1
    for cells in rows:
        node, directory, end, _, fetched, caught_up, status = (cell.strip() for cell in cells)
        replica = ReplicaStatus(
            ReplicaKey(int(node), directory), int(end), int(fetched), int(caught_up)
        )
        (observers if status == "Observer" else voters).append(replica)
        if status == "Leader":
            leader_id = replica.replica.id
    return DescribeQuorumResponse(
        ErrorCode.NONE, CurrentLeader(1, leader_id), 1, 1, tuple(voters), tuple(observers)
    )


@pytest.mark.parametrize("printed", oracle(), ids=lambda printed: printed.title)
def test_status_is_printed_as_by_kafka(printed: Printed) -> None:
    description = given_status(printed)
    text = status_text(field(printed, "ClusterId"), description)
    assert text == printed.status


@pytest.mark.parametrize("printed", oracle(), ids=lambda printed: printed.title)
def test_replication_is_printed_as_by_kafka(printed: Printed) -> None:
    description = given_replication(printed)
    lines = replication_text(description).split("\n")
    if silent_voters(description):
        lines = [line[: line.rindex("\t", 0, -1) + 1] for line in lines]  # without State
    assert "\n".join(lines) == printed.replication


ONE = ReplicaKey(1, "Rigw3vfNRMmcl9pdbu4hDQ")
TWO = ReplicaKey(2, "xtkV4Apmyk8T6_K1BRD_yQ")
AT = {
    1: (Endpoint("CONTROLLER", "127.0.0.1", 9093),),
    2: (Endpoint("CONTROLLER", "::1", 9094), Endpoint("SECOND", "b", 1)),
}
BOTH = VoterSet.of([Voter(ONE, AT[1]), Voter(TWO, AT[2])])


def described(**changes: object) -> DescribeQuorumResponse:
    base = DescribeQuorumResponse(
        ErrorCode.NONE,
        CurrentLeader(5, 1, AT[1]),
        10,
        1,
        (ReplicaStatus(ONE, 11, 900, 900, AT[1]), ReplicaStatus(TWO, 8, 800, 700, AT[2])),
        (),
        BOTH,
        BOTH,
    )
    return replace(base, **changes)


def test_committed_voters_are_shown_while_they_differ() -> None:
    assert "CommittedVoters" not in status_text("c", described())
    text = status_text("c", described(committed_voters=VoterSet.of([Voter(ONE, AT[1])])))
    assert text.splitlines()[-1] == (
        'CommittedVoters:        [{"id": 1, "directoryId": "Rigw3vfNRMmcl9pdbu4hDQ", '
        '"endpoints": ["CONTROLLER://127.0.0.1:9093"]}]'
    )


def test_at_kraft_version_0_the_voters_directories_are_no_uncommitted_change() -> None:
    """They are known from what the voters fetch; the voter set has ids alone."""
    static = without_directories(BOTH)
    answer = described(voter_set=static, committed_voters=static)
    assert any(voter.replica.directory_id for voter in answer.voters)
    assert "CommittedVoters" not in status_text("c", answer)


def test_lag_is_that_of_the_last_voter() -> None:
    assert max_follower_lag(described()) == (3, 200)


def test_a_leader_that_is_removed_is_found_among_the_observers() -> None:
    leaving = described(
        voters=(ReplicaStatus(TWO, 8, 800, 700, AT[2]),),
        observers=(ReplicaStatus(ONE, 11, 900, 900, AT[1]), ReplicaStatus(ReplicaKey(9), 1, 2, 3)),
    )
    roles = [line.split("\t")[6].strip() for line in replication_text(leaving).splitlines()[1:]]
    assert roles == ["Leader", "Follower", "Observer"]
    assert max_follower_lag(leaving) == (3, 200)


def test_without_a_leader_there_is_what_the_node_knows() -> None:
    unknown = tuple(ReplicaStatus(v.key, -1, -1, -1, v.endpoints) for v in BOTH)
    text = status_text(
        "c",
        described(
            error=ErrorCode.NOT_LEADER_OR_FOLLOWER,
            leader=CurrentLeader(6),
            high_watermark=-1,
            voters=unknown,
        ),
    )
    lines = dict(line.split(":", 1) for line in text.splitlines())
    assert lines["LeaderId"].strip() == "-1"
    assert lines["LeaderEpoch"].strip() == "6"
    assert lines["MaxFollowerLag"].strip() == lines["MaxFollowerLagTimeMs"].strip() == "-1"
    assert '"id": 2' in lines["CurrentVoters"]
    assert "CONTROLLER://[::1]:9094" in text
    assert not from_leader(described(error=ErrorCode.NOT_LEADER_OR_FOLLOWER))


def test_ages_instead_of_times() -> None:
    """They are those of the leader's clock, which may differ from the local one."""
    text = replication_text(described(), ages=True)
    found = [re.findall(r"(\d+) ms ago", line) for line in text.splitlines()[1:]]
    assert found == [["0", "0"], ["100", "200"]]


def idle(offline_ms: int) -> DescribeQuorumResponse:
    """Nothing is written: voter 2 has the whole log, and has not fetched for `offline_ms`."""
    now_ms = 50_000
    fetched_ms = now_ms - offline_ms
    voters = (
        ReplicaStatus(ONE, 11, now_ms, now_ms, AT[1]),
        ReplicaStatus(TWO, 11, fetched_ms, fetched_ms, AT[2]),
    )
    return described(voters=voters)


def test_an_offline_voter_of_an_idle_quorum_is_shown() -> None:
    text = status_text("c", idle(14_100))
    lines = dict(line.split(":", 1) for line in text.splitlines())
    assert lines["MaxFollowerLag"].strip() == "0"
    assert lines["MaxFollowerLagTimeMs"].strip() == "14100"
    assert lines["OfflineVoters"].strip() == "2 (last fetch 14100 ms ago)"
    shown = replication_text(idle(14_100), ages=True).splitlines()
    assert [line.split("\t")[7].strip() for line in shown] == ["State", "Online", "Offline"]
    assert shown[2].count("14100 ms ago") == 2
    offline = [{"id": 2, "directoryId": TWO.directory_id}]
    assert status_json("c", idle(14_100))["offlineVoters"] == offline
    states = [row["state"] for row in replication_json(idle(14_100))]
    assert states == ["online", "offline"]


def test_while_all_voters_fetch_the_output_is_that_of_kafka() -> None:
    assert "OfflineVoters" not in status_text("c", idle(500))
    assert "State" not in replication_text(idle(500))
    assert [row["state"] for row in replication_json(idle(500))] == ["online", "online"]


def test_a_voter_that_has_never_fetched_from_this_leader_is_offline() -> None:
    leader, _ = idle(0).voters
    never = described(voters=(leader, ReplicaStatus(TWO, -1, -1, -1, AT[2])))
    lines = status_text("c", never).splitlines()
    assert "OfflineVoters:          2 (no fetch in this epoch)" in lines


def test_for_programs() -> None:
    status = status_json("c", described())
    assert status["leaderId"] == 1
    assert status["kraftVersion"] == 1
    assert status["currentVoters"] == [
        {"id": 1, "directoryId": ONE.directory_id, "endpoints": ["CONTROLLER://127.0.0.1:9093"]},
        {
            "id": 2,
            "directoryId": TWO.directory_id,
            "endpoints": ["CONTROLLER://[::1]:9094", "SECOND://b:1"],
        },
    ]
    rows = replication_json(described())
    assert [(row["nodeId"], row["lag"], row["status"]) for row in rows] == [
        (1, 0, "Leader"),
        (2, 3, "Follower"),
    ]
    json.dumps([status, rows])
    software = {1: Software("kafka", "4.3"), 2: UNKNOWN}
    rows = replication_json(described(), software)
    known = [(row["implementation"], row["version"]) for row in rows]
    assert known == [("kafka", "4.3"), (None, None)]


def test_software_is_shown_while_not_all_run_the_same() -> None:
    kafkas, ours = Software("kafka", "4.3"), Software("quorate", "0.2.0")
    plain = replication_text(described())
    assert replication_text(described(), {1: ours, 2: ours}) == plain
    assert replication_text(described(), {1: ours, 2: UNKNOWN}) == plain, "one is down"
    for software in ({1: kafkas, 2: ours}, {1: Software("quorate", "0.1.0"), 2: ours}):
        shown = replication_text(described(), software).splitlines()
        assert [line.split("\t")[:7] for line in shown] == [
            line.split("\t")[:7] for line in plain.splitlines()
        ]
        last = [line.split("\t")[7].strip() for line in shown]
        assert last == ["Implementation", str(software[1]), "quorate 0.2.0"]


def test_an_unknown_directory_is_left_out_as_kafka_does() -> None:
    key = ReplicaKey(1)
    text = status_text("c", described(voters=(ReplicaStatus(key, 1, 1, 1),)))
    assert 'CurrentVoters:          [{"id": 1}]' in text
    assert "A" * 22 in replication_text(described(voters=(ReplicaStatus(key, 1, 1, 1),)))
    assert endpoint_text(Endpoint("C", "::1", 1)) == "C://[::1]:1"
