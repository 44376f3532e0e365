"""The limits to epochs: budgets over time, and what a replica does at the last epoch."""

from __future__ import annotations

import random

import pytest
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.raft import RaftConfig, RaftNode
from quorate.raft.config import InitialState
from quorate.raft.epochs import (
    BUDGET_EPOCHS,
    CATCH_UP_EPOCHS,
    EPOCH_MAX,
    REFILL_EPOCHS_PER_S,
    SMALL_RAISE,
    EpochBudgets,
    Origin,
)
from quorate.raft.errors import FatalError
from quorate.raft.messages import CurrentLeader, VoteResponse
from quorate.raft.outputs import Notice, PersistElection, RoleName
from quorate.raft.types import ElectionState, ReplicaKey, Voter, VoterSet

VOTERS = {1, 2, 3}
HOUR_MS = 3_600_000


class Replica:
    """An epoch with its budgets, and a clock."""

    def __init__(self) -> None:
        self.epoch = 10
        self.now_ms = 0
        self.budgets = EpochBudgets(0)

    def hears(
        self,
        raised_by: int,
        sender: int | None = 2,
        origin: Origin = Origin.MESSAGE,
        *,
        has_nothing: bool = False,
    ) -> bool:
        epoch = self.epoch + raised_by
        verdict = self.budgets.judge(
            self.epoch,
            epoch,
            sender,
            VOTERS,
            origin=origin,
            now_ms=self.now_ms,
            has_nothing=has_nothing,
        )
        if not verdict.reason:
            self.epoch = epoch
        return not verdict.reason


def test_a_sender_raises_by_its_budget_and_then_as_fast_as_it_fills() -> None:
    replica = Replica()
    assert not replica.hears(BUDGET_EPOCHS + 1)
    assert replica.hears(BUDGET_EPOCHS)
    assert not replica.hears(1)
    replica.now_ms += 1_000 // REFILL_EPOCHS_PER_S
    assert replica.hears(1)
    assert not replica.hears(1)
    replica.now_ms += 1_000
    assert replica.hears(REFILL_EPOCHS_PER_S)
    replica.now_ms += 24 * HOUR_MS
    assert not replica.hears(BUDGET_EPOCHS + 1)
    assert replica.hears(BUDGET_EPOCHS)


def test_elections_do_not_wait_for_the_second_of_a_large_raise() -> None:
    replica = Replica()
    assert replica.hears(SMALL_RAISE + 1)
    assert not replica.hears(SMALL_RAISE + 1)
    for _ in range(100):
        assert replica.hears(1)
        assert replica.hears(SMALL_RAISE)
    replica.now_ms += 999
    assert not replica.hears(SMALL_RAISE + 1)
    replica.now_ms += 1
    assert replica.hears(SMALL_RAISE + 1)


def test_voters_have_budgets_of_their_own_and_all_others_share_one() -> None:
    replica = Replica()
    assert replica.hears(BUDGET_EPOCHS, sender=2)
    assert replica.hears(BUDGET_EPOCHS, sender=3)
    assert replica.hears(BUDGET_EPOCHS, sender=4_000)
    assert not replica.hears(1, sender=4_001)
    assert not replica.hears(1, sender=None)


def test_answers_cover_a_recovery_and_have_an_end_as_well() -> None:
    for origin in (Origin.BEGIN_ANSWER, Origin.FETCH_ANSWER):
        replica = Replica()
        assert not replica.hears(1_000_000)
        assert replica.hears(1_000_000, origin=origin)
        replica.now_ms += 1_000
        assert replica.hears(1_000_000, origin=origin)
        replica.now_ms += 1_000
        assert not replica.hears(CATCH_UP_EPOCHS - 2_000_000 + 9, origin=origin)
        assert not replica.hears(BUDGET_EPOCHS + 1)


def test_who_has_nothing_takes_any_epoch_from_the_server_that_it_asked() -> None:
    replica = Replica()
    assert not replica.hears(EPOCH_MAX - 10, has_nothing=True)
    for too_high in (EPOCH_MAX + 1, EPOCH_MAX + 2):
        assert not replica.hears(too_high - 10, None, Origin.FETCH_ANSWER, has_nothing=True)
    assert replica.hears(EPOCH_MAX - 10, None, Origin.FETCH_ANSWER, has_nothing=True)
    assert replica.epoch == 2**31 - 3


def test_many_senders_are_not_many_budgets() -> None:
    replica = Replica()
    size = 10_000
    for sender in range(4, size):
        replica.hears(1, sender=sender)
    assert replica.epoch == 10 + size - 4
    assert not replica.budgets._voters


# --- at the end -----------------------------------------------------------------------------------


def _node(epoch: int, voters: int = 1) -> RaftNode:
    keys = [ReplicaKey(i, "A") for i in range(1, voters + 1)]
    members = VoterSet.of(Voter(key, (Endpoint("C", "h", key.id),)) for key in keys)
    config = RaftConfig("cluster", keys[0], (Endpoint("C", "h", 1),))
    initial = InitialState(ElectionState(epoch), voters=((-1, members),), kraft_versions=((-1, 1),))
    return RaftNode(config, initial, random.Random(1), 1_000)


def _run(node: RaftNode) -> tuple[list[int], list[str]]:
    """Let ten minutes pass: the epochs that were persisted, and the warnings."""
    persisted, warnings = [], []
    now = 1_000
    while now < 601_000:
        for output in node.take_outputs():
            if isinstance(output, PersistElection):
                persisted.append(output.state.epoch)
            if isinstance(output, Notice) and output.warning:
                warnings.append(output.text)
        now = max(now + 1, node.next_deadline_ms())
        node.tick(now)
    return persisted, warnings


def test_the_last_epoch_can_be_led() -> None:
    node = _node(EPOCH_MAX - 1)
    assert (node.role, node.epoch) == (RoleName.LEADER, EPOCH_MAX)


@pytest.mark.parametrize("voters", [1, 3])
def test_nobody_stands_after_the_last_epoch_and_says_so_once(voters: int) -> None:
    node = _node(EPOCH_MAX, voters)
    persisted, warnings = _run(node)
    assert node.role is RoleName.UNATTACHED
    assert node.epoch == EPOCH_MAX
    assert set(persisted) <= {EPOCH_MAX}
    assert len(warnings) == 1
    assert f"epoch {EPOCH_MAX} is the last one" in warnings[0]


def test_a_candidate_of_the_last_epoch_that_lost_stays_there() -> None:
    node = _node(EPOCH_MAX - 1, 2)
    for now in (3_000, 3_001):
        node.tick(now)
    core = node.core

    (asked,) = core.inflight
    known = CurrentLeader(EPOCH_MAX - 1)
    node.handle_response(asked, VoteResponse(ErrorCode.NONE, known, True), 3_002)
    assert (node.role, node.epoch) == (RoleName.CANDIDATE, EPOCH_MAX)
    node.tick(20_000)
    for request_id in list(core.inflight):
        known = CurrentLeader(EPOCH_MAX)
        node.handle_response(request_id, VoteResponse(ErrorCode.NONE, known, True), 20_001)
    assert (node.role, node.epoch) == (RoleName.UNATTACHED, EPOCH_MAX)


def test_a_leader_of_the_last_epoch_that_resigns_stays_there() -> None:
    node = _node(EPOCH_MAX - 1)
    node.resign("on purpose", 2_000)
    persisted, _ = _run(node)
    assert (node.role, node.epoch) == (RoleName.RESIGNED, EPOCH_MAX)
    assert set(persisted) <= {EPOCH_MAX}


@pytest.mark.parametrize("epoch", [EPOCH_MAX + 1, 2**31 - 1, 2**31])
def test_a_quorum_state_above_the_last_epoch_is_refused(epoch: int) -> None:
    with pytest.raises(FatalError, match="stop all voters and reset their epochs"):
        _node(epoch)
