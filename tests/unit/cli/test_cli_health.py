"""The verdict of `quorate health` about descriptions of a quorum."""

from __future__ import annotations

import json

from quorate.cli.quorum.health import (
    LAGGING_AFTER_MS,
    HealthStatus,
    QuorumHealth,
    health_json,
    health_of,
    impaired_voters,
)
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.raft.messages import CurrentLeader, DescribeQuorumResponse, ReplicaStatus
from quorate.raft.types import ReplicaKey, Voter, VoterSet
from quorate.rpc.wire.values import QuorumDescription

NOW_MS = 1_800_000_000_000
"""Of the leader's clock, which need not be that of this machine."""
END = 40


def voter(
    node_id: int, fetched_ago_ms: int, caught_up_ago_ms: int, end: int = END
) -> ReplicaStatus:
    endpoint = Endpoint("CONTROLLER", f"controller-{node_id}", 9093)
    fetched, caught_up = NOW_MS - fetched_ago_ms, NOW_MS - caught_up_ago_ms
    return ReplicaStatus(ReplicaKey(node_id), end, fetched, caught_up, (endpoint,))


LEADER = voter(1, 0, 0)


def described(*voters: ReplicaStatus, error: ErrorCode = ErrorCode.NONE) -> QuorumDescription:
    members = VoterSet.of(Voter(each.replica, each.endpoints) for each in voters)
    leader = CurrentLeader(5, 1 if error is ErrorCode.NONE else None)
    response = DescribeQuorumResponse(
        error, leader, END, 1, voters, voter_set=members, committed_voters=members
    )
    return QuorumDescription("cluster", "controller-1:9093", response)


def test_all_voters_have_caught_up() -> None:
    found = health_of(described(LEADER, voter(2, 400, 400), voter(3, 100, 600)))
    assert found.status is HealthStatus.HEALTHY
    assert found.reason == "leader 1 in epoch 5, 3 of 3 voters caught up"
    assert (found.majority, found.impaired) == (2, ())


def test_a_voter_that_is_offline_is_named_although_nothing_is_written() -> None:
    found = health_of(described(LEADER, voter(2, 14_100, 14_100), voter(3, 100, 100)))
    assert found.status is HealthStatus.DEGRADED
    assert found.reason == (
        "leader 1 in epoch 5, 2 of 3 voters caught up; "
        "voter 2 at controller-2:9093 is offline, last fetch 14.1 s ago"
    )
    assert found.caught_up == 2


def test_a_voter_that_fetches_and_lags_is_named() -> None:
    late = voter(3, 10, LAGGING_AFTER_MS + 1, end=END - 7)
    found = health_of(described(LEADER, voter(2, 10, LAGGING_AFTER_MS), late))
    assert found.status is HealthStatus.DEGRADED
    assert found.reason.endswith("; voter 3 at controller-3:9093 lags 7 records behind")


def test_without_a_majority_nothing_commits() -> None:
    never = ReplicaStatus(ReplicaKey(3), -1, -1, -1)
    found = health_of(described(LEADER, voter(2, 2_500, 2_500), never))
    assert found.status is HealthStatus.UNAVAILABLE
    assert found.reason == (
        "leader 1 in epoch 5, 1 of 3 voters caught up, a commit needs 2; "
        "voter 2 at controller-2:9093 is offline, last fetch 2.5 s ago; "
        "voter 3 is offline, it has not fetched in this epoch"
    )
    assert [each.since_ms for each in found.impaired] == [2_500, None]


def test_without_a_leader_the_reason_says_what_is_missing() -> None:
    error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    found = health_of(described(LEADER, voter(2, 0, 0), voter(3, 0, 0), error=error))
    assert found.status is HealthStatus.UNAVAILABLE
    assert found.leader is None
    assert "there is no leader" in found.reason
    assert "2 of the 3 voters are running" in found.reason


def test_for_programs() -> None:
    found = health_json(health_of(described(LEADER, voter(2, 9_000, 9_000, end=END - 1))))
    assert json.loads(json.dumps(found)) == {
        "status": "unavailable",
        "reason": (
            "leader 1 in epoch 5, 1 of 2 voters caught up, a commit needs 2; "
            "voter 2 at controller-2:9093 is offline, last fetch 9.0 s ago"
        ),
        "leaderId": 1,
        "leaderEpoch": 5,
        "voters": 2,
        "majority": 2,
        "caughtUp": 1,
        "impairedVoters": [
            {
                "id": 2,
                "endpoint": "controller-2:9093",
                "state": "offline",
                "lag": 1,
                "sinceMs": 9_000,
            }
        ],
    }
    nobody = health_json(QuorumHealth(HealthStatus.UNAVAILABLE, "no answer"))
    assert (nobody["leaderId"], nobody["impairedVoters"]) == (None, [])


def test_ages_are_those_of_the_leaders_clock() -> None:
    base = NOW_MS - 1_000_000
    statuses = [
        ReplicaStatus(each.replica, END, each.last_fetch_ms - base, each.last_caught_up_ms - base)
        for each in (LEADER, voter(2, 100, 100), voter(3, 3_000, 3_000))
    ]
    (offline,) = impaired_voters(described(*statuses).response)
    assert (offline.id, offline.since_ms) == (3, 3_000)
