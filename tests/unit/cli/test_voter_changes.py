"""What a dry run of a voter change says."""

from __future__ import annotations

import re

import pytest
from quorate.cli.quorum.voter_changes import addition_problem, removal_problem
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.raft.messages import CurrentLeader, DescribeQuorumResponse, ReplicaStatus
from quorate.raft.types import ReplicaKey, Voter, VoterSet

NOW_MS = 1_000_000
SILENT_MS = 100_000
KEYS = {i: ReplicaKey(i, str(i) * 22) for i in range(1, 6)}


def quorum(
    *voters: int, silent: tuple[int, ...] = (), kraft_version: int = 1
) -> DescribeQuorumResponse:
    """The view of leader 1. Controller 4 is an observer."""

    def status(i: int) -> ReplicaStatus:
        fetched_ms = NOW_MS - (SILENT_MS if i in silent else 0)
        return ReplicaStatus(KEYS[i], 10, fetched_ms, fetched_ms)

    endpoint = (Endpoint("CONTROLLER", "host", 9093),)
    return DescribeQuorumResponse(
        ErrorCode.NONE,
        CurrentLeader(3, 1),
        kraft_version=kraft_version,
        voters=tuple(map(status, voters)),
        observers=(status(4),),
        voter_set=VoterSet.of(Voter(KEYS[i], endpoint) for i in voters),
    )


@pytest.mark.parametrize(
    ("found", "key", "said"),
    [
        (quorum(1, 2, 3), KEYS[4], None),
        (quorum(1, 2, 3), KEYS[2], "is a voter already"),
        (quorum(1, 2, 3), ReplicaKey(2, "x" * 22), "remove it first"),
        (quorum(1, 2, 3), KEYS[5], "does not fetch from this quorum"),
        (quorum(1, kraft_version=0), KEYS[4], "kraft.version 1"),
    ],
)
def test_an_addition(found: DescribeQuorumResponse, key: ReplicaKey, said: str | None) -> None:
    problem = addition_problem(found, key)
    assert problem is None if said is None else re.search(said, problem or "")


@pytest.mark.parametrize(
    ("found", "key", "forced", "said"),
    [
        (quorum(1, 2, 3), KEYS[2], False, None),
        (quorum(1, 2, 3, silent=(3,)), KEYS[3], False, None),
        (quorum(1, 2, 3, silent=(3,)), KEYS[2], False, "1 more of the remaining voters must run"),
        (quorum(1, 2, 3, silent=(3,)), KEYS[2], True, None),
        (quorum(1, 2, 3), KEYS[5], True, "is not in"),
        (quorum(1), KEYS[1], True, "the last voter"),
        (quorum(1, 2, kraft_version=0), KEYS[2], True, "kraft.version 1"),
    ],
)
def test_a_removal(
    found: DescribeQuorumResponse, key: ReplicaKey, forced: bool, said: str | None
) -> None:
    problem = removal_problem(found, key, is_forced=forced)
    assert problem is None if said is None else re.search(said, problem or "")
