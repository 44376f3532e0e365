"""What a leader remembers of replicas that nobody has to have heard of: bounded, and never at the
expense of a voter.
"""

from __future__ import annotations

import random

import pytest
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.identifiers import uuid_from_bytes
from quorate.raft import RaftConfig, RaftNode
from quorate.raft.config import InitialState
from quorate.raft.messages import CurrentLeader, FetchRequest, VoteResponse
from quorate.raft.outputs import RoleName
from quorate.raft.roles import Leader
from quorate.raft.types import ElectionState, ReplicaKey, Voter, VoterSet

VOTER = ReplicaKey(2, "B")
HERE = (Endpoint("C", "h", 1),)


class LeaderOfTwo:
    """Leads epoch 1 with one other voter, whose directory id is known or not."""

    def __init__(self, directory_id: str | None = VOTER.directory_id) -> None:
        local = ReplicaKey(1, "A" if directory_id is not None else None)
        keys = (local, ReplicaKey(VOTER.id, directory_id))
        members = VoterSet.of(Voter(key, HERE) for key in keys)
        level = 0 if directory_id is None else 1
        initial = InitialState(
            ElectionState(0), voters=((-1, members),), kraft_versions=((-1, level),)
        )
        config = RaftConfig("cluster", ReplicaKey(1, "A"), HERE)
        self.node = RaftNode(config, initial, random.Random(1), 0)
        self.now_ms = 0
        while self.node.role is not RoleName.LEADER:
            self.now_ms += 3_000
            self.node.tick(self.now_ms)
            while self.node.role is not RoleName.LEADER and self.node.core.inflight:
                asked = next(iter(self.node.core.inflight))
                known = CurrentLeader(self.node.epoch)
                answer = VoteResponse(ErrorCode.NONE, known, True)
                self.node.handle_response(asked, answer, self.now_ms)
        self._requests = 0

    def fetches(self, key: ReplicaKey) -> None:
        self._requests += 1
        request = FetchRequest("cluster", key, self.node.epoch, 0, 0, endpoints=HERE)
        self.node.handle_request(self._requests, request, self.now_ms)
        self.node.take_outputs()

    @property
    def known(self) -> set[ReplicaKey]:
        role = self.node.core.role
        assert isinstance(role, Leader)
        return set(role.replicas)


def directory(number: int) -> str:
    return uuid_from_bytes(number.to_bytes(16, "big"))


def test_a_new_directory_of_a_node_takes_the_place_of_its_earlier_one() -> None:
    leader = LeaderOfTwo()
    leader.fetches(VOTER)
    for number in range(1, 4):
        leader.fetches(ReplicaKey(4, directory(number)))
    assert leader.known == {VOTER, ReplicaKey(4, directory(3))}


@pytest.mark.parametrize("directory_id", [VOTER.directory_id, None])
def test_other_directories_of_a_voters_id_do_not_add_up(directory_id: str | None) -> None:
    leader = LeaderOfTwo(directory_id)
    for number in range(1, 100):
        leader.fetches(VOTER)
        leader.fetches(ReplicaKey(VOTER.id, directory(number)))
        assert VOTER in leader.known
        assert len(leader.known) <= 2


def test_the_observer_that_is_silent_longest_makes_room_and_a_voter_never_does() -> None:
    leader = LeaderOfTwo()
    most = leader.node.core.config.observers_max
    leader.fetches(VOTER)
    broker = ReplicaKey(3, directory(3))
    for number in range(10, 10 + 2 * most):
        leader.now_ms += 1
        leader.fetches(ReplicaKey(number, directory(number)))
        if number % 100 == 0:
            leader.fetches(broker)
    assert len(leader.known) == most + 1
    assert {VOTER, broker} <= leader.known
    assert ReplicaKey(10, directory(10)) not in leader.known
