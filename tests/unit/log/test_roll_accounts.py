"""The account of a roll's elections and changes."""

from __future__ import annotations

import pytest
from quorate.raft.types import ReplicaKey, Voter, VoterSet

from tests.kafka_roll.accounts import ADDED, REMOVED, Kill, changes_of, elections, unasked
from tests.kafka_roll.controllers import REPLICA
from tests.logs.checks import Term
from tests.replica.voters import without_directories

KEYS = {node: ReplicaKey(node, f"{'ABCD'[node - 1] * 20}_w") for node in (1, 2, 3, 4)}
THREE = VoterSet.of(Voter(KEYS[node]) for node in (1, 2, 3))
FOUR = THREE.adding(Voter(KEYS[4]))
TWO = THREE.removing(KEYS[1])


def term(epoch: int, leader: int, at_ms: int, voters: VoterSet = THREE) -> Term:
    return Term(epoch, epoch * 10, leader, at_ms, voters)


@pytest.mark.parametrize(
    ("terms", "kills", "causes", "idle"),
    [
        ([term(1, 1, 100)], [], ["first"], 0),
        ([term(1, 1, 100), term(2, 2, 300)], [Kill(1, 200, 205)], ["first", "killed"], 0),
        ([term(1, 1, 100), term(2, 2, 300)], [], ["first", "none"], 0),
        # Another one was killed, or the leader was before or after its term.
        ([term(1, 1, 100), term(2, 2, 300)], [Kill(3, 200, 205)], ["first", "none"], 1),
        ([term(1, 1, 100), term(2, 2, 300)], [Kill(1, 90, 95)], ["first", "none"], 1),
        ([term(1, 1, 100), term(2, 2, 300)], [Kill(1, 301, 305)], ["first", "none"], 1),
        # One kill excuses one election.
        (
            [term(1, 1, 100), term(2, 1, 200), term(4, 3, 200)],
            [Kill(1, 200, 200)],
            ["first", "killed", "none"],
            0,
        ),
        (
            [term(1, 1, 100), term(2, 2, 210), term(3, 1, 400), term(4, 3, 600)],
            [Kill(1, 200, 205), Kill(2, 350, 355), Kill(1, 500, 505)],
            ["first", "killed", "killed", "killed"],
            0,
        ),
        # The leader is no voter any more.
        ([term(1, 1, 100), term(2, 2, 300, TWO)], [], ["first", "removed"], 0),
        ([term(1, 1, 100), term(2, 2, 300, TWO)], [Kill(1, 200, 205)], ["first", "both"], 0),
        # A voter that did not lead is removed.
        ([term(1, 2, 100), term(2, 3, 300, TWO)], [], ["first", "none"], 0),
    ],
)
def test_elections_and_their_causes(
    terms: list[Term], kills: list[Kill], causes: list[str], idle: int
) -> None:
    found, left = elections(terms, kills)
    names = {
        (True, False, False): "first",
        (False, True, False): "killed",
        (False, False, True): "removed",
        (False, True, True): "both",
        (False, False, False): "none",
    }
    assert [names[each.is_first, each.was_killed, each.was_removed] for each in found] == causes
    assert [each.has_cause for each in found] == [cause != "none" for cause in causes]
    assert len(left) == idle


def test_changes_of_the_voters() -> None:
    static = without_directories(THREE)
    described = THREE.updating(Voter(KEYS[2], THREE.voters[1].endpoints))
    sets = [VoterSet(), static, THREE, described, FOUR, FOUR.removing(KEYS[1])]
    assert list(changes_of(sets)) == [(ADDED, KEYS[4]), (REMOVED, KEYS[1])]


def test_a_replaced_directory_is_a_change() -> None:
    other = Voter(ReplicaKey(1, KEYS[2].directory_id))
    found = list(changes_of([THREE, TWO, TWO.adding(other)]))
    assert found == [(REMOVED, KEYS[1]), (ADDED, other.key)]


def test_changes_that_were_not_asked_for() -> None:
    asked = [(ADDED, KEYS[4]), (REMOVED, KEYS[1])]
    assert list(unasked(asked, asked)) == []
    assert "change 2" in next(unasked(asked, asked[:1]))
    assert "change 2" in next(unasked(asked[:1], asked))
    assert "change 1" in next(unasked(asked, asked[1:]))


def test_log_ends_are_read_from_kafkas_tool() -> None:
    said = (
        "NodeId\tDirectoryId           \tLogEndOffset\tLag\tLastFetchTimestamp\t"
        "LastCaughtUpTimestamp\tStatus  \t\n"
        "3001  \tPg2diVHUThOFzXEO2UrbaA\t485         \t0  \t1795609453398     \t"
        "1795609453398        \tLeader  \t\n"
        "3006  \tQ9EKN93dTl6cMV0tpJtUjA\t-1          \t9  \t1795609449207     \t"
        "1795609448790        \tObserver\t\n"
    )
    assert REPLICA.findall(said) == [("3001", "485", "Leader"), ("3006", "-1", "Observer")]
