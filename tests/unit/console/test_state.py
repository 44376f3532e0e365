"""What the console makes of successive looks at a quorum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.features import VersionRange
from quorate.console import charts
from quorate.console.state import (
    EVENTS_MAX,
    LAGS_MAX,
    POINTS_MAX,
    Health,
    QuorumSnapshot,
    QuorumState,
    place_of,
)
from quorate.metadata.requests import ControllerDescription
from quorate.raft.messages import CurrentLeader, DescribeQuorumResponse, ReplicaStatus
from quorate.raft.types import ReplicaKey, Voter, VoterSet
from quorate.rpc.wire.values import NodeStatus

NOW = 1_800_000_000_000


def key(node_id: int, disk: str = "A") -> ReplicaKey:
    return ReplicaKey(node_id, (disk * 22)[:22])


def endpoint(node_id: int) -> Endpoint:
    return Endpoint("CONTROLLER", f"controller-{node_id}", 9093)


def voter_set(*keys: ReplicaKey) -> VoterSet:
    return VoterSet.of(Voter(each, (endpoint(each.id),)) for each in keys)


def status(of: ReplicaKey, end: int = 100, late_ms: int = 10, now_ms: int = NOW) -> ReplicaStatus:
    return ReplicaStatus(of, end, now_ms - 5, now_ms - late_ms, (endpoint(of.id),))


def led(
    by: int = 1,
    epoch: int = 3,
    voters: Sequence[ReplicaStatus] = (),
    observers: Sequence[ReplicaStatus] = (),
    at_ms: int = NOW,
) -> QuorumSnapshot:
    """The leader's answer."""
    voters = voters or [status(key(node_id), now_ms=at_ms) for node_id in (1, 2, 3)]
    members = voter_set(*(each.replica for each in voters))
    leader = CurrentLeader(epoch, by, (endpoint(by),))
    view = DescribeQuorumResponse(
        ErrorCode.NONE, leader, 100, 1, tuple(voters), tuple(observers), members, members
    )
    return QuorumSnapshot(at_ms, view, True, confirm_ms=2.5)


def leaderless(at_ms: int = NOW, message: str = "") -> QuorumSnapshot:
    """The answer of controller 1, which knows no leader; controller 2 is silent."""
    members = voter_set(key(1), key(2))
    voters = tuple(ReplicaStatus(each.key, -1, -1, -1, each.endpoints) for each in members)
    view = DescribeQuorumResponse(
        ErrorCode.NOT_LEADER_OR_FOLLOWER, CurrentLeader(4), 100, 1, voters, (), members, members,
        message,
    )  # fmt: skip
    answers = {"controller-1:9093": NodeStatus(1, True)}
    return QuorumSnapshot(at_ms, view, False, answers, {"controller-2:9093": "Connection refused"})


def test_each_replica_has_its_software() -> None:
    """Controller 1 is Kafka's, 2 does not answer, 3 is Quorate's and has a listener for Kafka."""
    found = led()
    assert found.view is not None
    kafkas = Endpoint("KAFKA", "controller-1", 9093)
    both = (endpoint(3), Endpoint("KAFKA", "controller-3", 9094))
    members = VoterSet.of(
        [Voter(key(1), (kafkas,)), Voter(key(2), (endpoint(2),)), Voter(key(3), both)]
    )
    levels = (("metadata.version", VersionRange(7, 27)),)
    state = QuorumState()
    state.apply(
        replace(
            found,
            view=replace(found.view, voter_set=members),
            nodes={"controller-3:9093": NodeStatus(3, True, version="0.2.0")},
            controllers=(ControllerDescription(1, "A" * 22, (kafkas,), levels),),
        )
    )
    shown = {row.key.id: str(row.software) for row in state.replicas}
    assert shown == {1: "kafka 4.1", 2: "unknown", 3: "quorate 0.2.0"}


def test_software_stays_known_while_a_voter_is_down_but_not_for_another_disk() -> None:
    state = QuorumState()
    answers = {"controller-2:9093": NodeStatus(2, True, version="0.2.0")}
    state.apply(replace(led(), nodes=answers))
    state.apply(replace(led(at_ms=NOW + 1_000), nodes={}))
    assert [str(row.software) for row in state.replicas] == ["unknown", "quorate 0.2.0", "unknown"]
    state.apply(QuorumSnapshot(NOW + 2_000, None))
    assert str(state.replicas[1].software) == "quorate 0.2.0"
    new_disk = [status(key(1)), status(key(2, "B")), status(key(3))]
    state.apply(led(voters=new_disk, at_ms=NOW + 3_000))
    assert str(state.replicas[1].software) == "unknown"


def test_brokers_are_called_brokers_and_other_observers_observers() -> None:
    state = QuorumState()
    observers = [status(key(101)), status(key(9))]
    state.apply(replace(led(observers=observers), brokers=frozenset({101, 102})))
    assert [row.role for row in state.replicas[3:]] == ["broker", "observer"]
    assert [series["name"] for series in charts.lag(state)["series"]] == [
        "controller 1", "controller 2", "controller 3", "observer 9", "broker 101",
    ]  # fmt: skip
    state.apply(led(at_ms=NOW + 1_000))
    assert [series["name"] for series in charts.lag(state)["series"]][-2:] == [
        "controller 9", "broker 101",
    ], "one that has left keeps its name"  # fmt: skip


def test_a_voter_is_a_controller_even_if_a_broker_has_its_id() -> None:
    state = QuorumState()
    state.apply(replace(led(), brokers=frozenset({1, 2})))
    assert [row.role for row in state.replicas] == ["leader", "voter", "voter"]
    assert state.name_of(2) == "controller 2"


def test_three_voters_that_have_caught_up_are_healthy() -> None:
    state = QuorumState()
    state.apply(led())
    assert (state.health, state.leader, state.epoch) == (Health.HEALTHY, 1, 3)
    assert [row.role for row in state.replicas] == ["leader", "voter", "voter"]
    assert state.verdict == "all 3 voters have caught up"
    assert list(state.events) == [], "what was so from the beginning is no event"


def test_one_late_voter_of_five_leaves_slack_one_of_three_does_not() -> None:
    late = status(key(3), end=40, late_ms=60_000)
    three = QuorumState()
    three.apply(led(voters=[status(key(1)), status(key(2)), late]))
    assert three.health is Health.AT_RISK
    assert three.verdict == (
        "2 of 3 voters have caught up, and voter 3 has not: one more failure stops all commits"
    )
    assert three.replicas[2].lag == 60
    five = QuorumState()
    five.apply(led(voters=[*(status(key(n)) for n in (1, 2, 4, 5)), late]))
    assert five.health is Health.DEGRADED
    assert five.verdict == "4 of 5 voters have caught up, and voter 3 has not"


def test_a_minority_that_has_caught_up_commits_nothing() -> None:
    late = [status(key(n), end=40, late_ms=60_000) for n in (2, 3)]
    state = QuorumState()
    state.apply(led(voters=[status(key(1)), *late]))
    assert state.health is Health.AT_RISK
    assert state.verdict == (
        "1 of 3 voters has caught up, and voters 2 and 3 have not: commits wait for a majority of 2"
    )


def test_one_voter_is_not_all_1_voters() -> None:
    state = QuorumState()
    state.apply(led(voters=[status(key(1))]))
    assert (state.health, state.verdict) == (Health.HEALTHY, "the only voter has caught up")


def test_a_leader_that_removes_itself_is_no_voter() -> None:
    state = QuorumState()
    others = [status(key(2)), status(key(3))]
    state.apply(led(by=1, voters=others, observers=[status(key(1))]))
    assert state.replicas[-1].role == "leader"
    assert state.verdict == "all 2 voters have caught up"


def test_an_observer_that_lags_is_no_danger() -> None:
    state = QuorumState()
    state.apply(led(observers=[status(key(9), end=1, late_ms=99_000)]))
    assert state.health is Health.HEALTHY
    assert state.replicas[-1].role == "observer"


def test_without_a_leader_it_says_why_and_who_is_silent() -> None:
    state = QuorumState()
    state.apply(leaderless(message="electing one takes 2 of {1, 2}"))
    assert state.health is Health.NO_LEADER
    assert state.leader is None
    assert "electing one takes 2" in state.verdict
    assert "controller-2:9093" in state.verdict
    assert [row.is_healthy for row in state.replicas] == [True, False]


def test_the_verdict_names_voters_without_directories_and_the_latest_epoch_is_shown() -> None:
    state = QuorumState()
    members = f"{{1-{'A' * 22}, 2-{'-_z' * 7}x}}"
    state.apply(leaderless(message=f"electing one takes 2 of {members}"))
    assert "electing one takes 2 of {1, 2};" in state.verdict
    later = leaderless(NOW + 1_000)
    assert later.view is not None
    state.apply(replace(later, view=replace(later.view, leader=CurrentLeader(7))))
    assert (state.leader, state.epoch) == (None, 7)


def test_a_leader_that_is_known_and_silent_is_named() -> None:
    snapshot = leaderless()
    assert snapshot.view is not None
    view = replace(snapshot.view, leader=CurrentLeader(4, 2, (endpoint(2),)))
    state = QuorumState()
    state.apply(replace(snapshot, view=view))
    assert state.health is Health.NO_LEADER
    assert state.verdict == (
        "controller 2 leads epoch 4, but does not answer; controllers that do not answer: "
        "controller-2:9093"
    )
    state.apply(replace(snapshot, silent={}))
    assert state.verdict == "no leader is known in epoch 4"


def test_controllers_that_answer_without_describing_the_quorum_are_named() -> None:
    state = QuorumState()
    state.apply(QuorumSnapshot(NOW, None))
    assert state.verdict == "no controller answers"
    state.apply(
        QuorumSnapshot(NOW, None, nodes={"a:1": NodeStatus(1, False)}, silent={"b:1": "no answer"})
    )
    assert state.health is Health.UNREACHABLE
    assert state.verdict == (
        "no controller describes the quorum (b:1: no answer; a:1 answers other requests)"
    )


def test_nobody_answering_keeps_the_voters_that_were_known() -> None:
    state = QuorumState()
    state.apply(led())
    state.apply(QuorumSnapshot(NOW + 1000, None, silent={"controller-1:9093": "no answer"}))
    assert state.health is Health.UNREACHABLE
    assert [row.key for row in state.replicas] == [key(1), key(2), key(3)]
    assert "controller-1:9093: no answer" in state.verdict


def test_elections_and_changes_become_events_and_tenures() -> None:
    state = QuorumState()
    state.apply(led())
    state.apply(leaderless(NOW + 1_000))
    state.apply(leaderless(NOW + 2_000))
    new_disk = [status(key(1), now_ms=NOW + 3_000), status(key(2, "B"), now_ms=NOW + 3_000)]
    state.apply(led(2, 5, new_disk, at_ms=NOW + 3_000))
    texts = [event.text for event in state.events]
    assert "there is no leader" in texts
    assert "controller 2 leads epoch 5" in texts
    assert f"controller 2 (directory {'A' * 22}) is no longer a voter" in texts
    assert f"controller 2 (directory {'B' * 22}) is now a voter" in texts
    spans = [(t.leader, t.from_ms - NOW, t.to_ms and t.to_ms - NOW) for t in state.leader_terms]
    assert spans == [(1, 0, 1_000), (None, 1_000, 3_000), (2, 3_000, None)]


def test_what_is_remembered_is_bounded() -> None:
    state = QuorumState()
    for number in range(POINTS_MAX + 50):
        state.apply(led(1 + number % 2, number, at_ms=NOW + number))
    many = [status(key(100 + n), end=n) for n in range(2 * LAGS_MAX)]
    state.apply(led(observers=many, at_ms=NOW + 10_000))
    assert set(state.points[-1].lags) == {1, 2, 3, *range(100, 100 + LAGS_MAX)}, "the slowest"
    assert len(state.points) == POINTS_MAX
    assert len(state.events) == len(state.leader_terms) == EVENTS_MAX


def test_a_place_is_written_as_it_is_dialled() -> None:
    assert place_of(()) == ""
    assert place_of((endpoint(1), endpoint(2))) == "controller-1:9093"
    assert place_of((Endpoint("CONTROLLER", "fd00::1", 9093),)) == "[fd00::1]:9093"
