"""The table of transitions: every pair of roles is either legal or raises, and raising changes
nothing.
"""

from __future__ import annotations

import random
from itertools import product

import pytest
from quorate.common.endpoints import Endpoint
from quorate.raft import InitialState, RaftConfig
from quorate.raft.core import Core
from quorate.raft.errors import FatalError
from quorate.raft.outputs import RoleName
from quorate.raft.roles import (
    Ballot,
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    Unattached,
)
from quorate.raft.transitions import HIGHER_EPOCH, SAME_EPOCH, check_transition
from quorate.raft.types import ElectionState, ReplicaKey, Voter, VoterSet

U, P, C = RoleName.UNATTACHED, RoleName.PROSPECTIVE, RoleName.CANDIDATE
L, F, R = RoleName.LEADER, RoleName.FOLLOWER, RoleName.RESIGNED

LEGAL_SAME = {
    (U, U), (U, P), (U, F),
    (P, U), (P, P), (P, F),
    (C, P), (C, L), (C, F),
    (L, R),
    (F, P),
    (R, U),
}  # fmt: skip
LEGAL_HIGHER = {
    (U, U), (U, F),
    (P, U), (P, F), (P, C),
    (C, U), (C, F),
    (L, U), (L, F),
    (F, U), (F, F),
    (R, U), (R, F),
}  # fmt: skip

PAIRS = list(product(RoleName, RoleName))


def endpoint(node_id: int) -> Endpoint:
    return Endpoint("CONTROLLER", f"n{node_id}", 9093)


VOTERS = VoterSet.of(Voter(ReplicaKey(i, "A"), (endpoint(i),)) for i in (1, 2, 3))


def role(name: RoleName, epoch: int) -> Role:
    ballot = Ballot(VOTERS, ReplicaKey(1, "A"))
    match name:
        case RoleName.UNATTACHED:
            return Unattached(epoch)
        case RoleName.PROSPECTIVE:
            return Prospective(epoch, ballot, 1_000)
        case RoleName.CANDIDATE:
            return Candidate(epoch, ballot, 1_000)
        case RoleName.LEADER:
            return Leader(epoch, 0, 1_000)
        case RoleName.FOLLOWER:
            return Follower(epoch, 2, (endpoint(2),), 1_000)
        case RoleName.RESIGNED:
            return Resigned(epoch, 1_000)


def core_in(name: RoleName, epoch: int) -> Core:
    config = RaftConfig("c", ReplicaKey(1, "A"), (endpoint(1),))
    initial = InitialState(ElectionState(epoch), voters=((-1, VOTERS),), kraft_versions=((-1, 1),))
    core = Core(config, initial, random.Random(0), 0)
    core.role = role(name, epoch)
    core.persisted = core.election_state()
    core.outputs.clear()
    return core


def test_the_table_covers_every_role() -> None:
    assert set(SAME_EPOCH) == set(HIGHER_EPOCH) == set(RoleName)


@pytest.mark.parametrize(("old", "new"), PAIRS)
@pytest.mark.parametrize("gap", [-1, 0, 1, 7])
def test_every_pair_is_legal_or_raises(old: RoleName, new: RoleName, gap: int) -> None:
    legal = (old, new) in (LEGAL_SAME if gap == 0 else LEGAL_HIGHER) and gap >= 0
    if legal:
        check_transition(old, 10, new, 10 + gap)
    else:
        with pytest.raises(FatalError, match=f"no transition from {old} in epoch 10 to {new}"):
            check_transition(old, 10, new, 10 + gap)


@pytest.mark.parametrize(("old", "new"), PAIRS)
@pytest.mark.parametrize("gap", [-1, 0, 1])
def test_the_state_machine_obeys_and_an_illegal_step_changes_nothing(
    old: RoleName, new: RoleName, gap: int
) -> None:
    core = core_in(old, 10)
    before, persisted = core.role, core.persisted
    legal = gap >= 0 and (old, new) in (LEGAL_HIGHER if gap else LEGAL_SAME)
    following = role(new, 10 + gap)
    if legal:
        core.become(following, "because")
        assert core.role is following
        return
    with pytest.raises(FatalError):
        core.become(following, "because")
    assert core.role is before
    assert core.persisted is persisted
    assert not core.outputs
