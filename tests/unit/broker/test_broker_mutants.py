"""The model finds what it is there to find: a replica with one rule broken loses records in it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from quorate.broker.partition import PartitionReplica
from quorate.broker.roles import FollowerProgress, LeaderRole
from quorate.raft.errors import FatalError, ViolationError

from tests.unit.broker.model import World
from tests.unit.broker.model_values import LossError, Promise

SEEDS = 150
STEPS = 1_500


def proposed_isr_counts(patch: pytest.MonkeyPatch) -> None:
    """A smaller ISR counts for the high watermark before the controller has confirmed it."""
    patch.setattr(
        LeaderRole,
        "maximal_isr",
        property(lambda leader: leader.proposal.isr if leader.proposal else leader.isr),
    )
    patch.setattr(PartitionReplica, "min_isr", property(lambda replica: 1))


def joins_behind(patch: pytest.MonkeyPatch) -> None:
    """A follower joins the ISR wherever it is."""
    whole = PartitionReplica._maybe_expand

    def expand(
        replica: PartitionReplica,
        leader: LeaderRole,
        follower: int,
        progress: FollowerProgress,
        now_ms: int,
    ) -> None:
        ahead = FollowerProgress(now_ms, progress.broker_epoch, replica.log.end_offset)
        whole(replica, leader, follower, ahead, now_ms)

    patch.setattr(PartitionReplica, "_maybe_expand", expand)


def leader_alone(patch: pytest.MonkeyPatch) -> None:
    """What the leader has is committed."""
    patch.setattr(LeaderRole, "maximal_isr", property(lambda leader: frozenset[int]()))


def never_truncates(patch: pytest.MonkeyPatch) -> None:
    """A follower keeps what its leader does not have."""
    patch.setattr(PartitionReplica, "_truncate", lambda replica, end_offset: None)


def flushes_later(patch: pytest.MonkeyPatch) -> None:
    """A follower acknowledges what it has not flushed."""
    always = property(lambda replica: replica.log.end_offset, lambda replica, end_offset: None)
    patch.setattr(PartitionReplica, "flushed_end", always, raising=False)


@pytest.mark.parametrize(
    ("mutant", "promise"),
    [
        (proposed_isr_counts, Promise.FENCING),
        (joins_behind, Promise.FENCING),
        (leader_alone, Promise.FENCING),
        (never_truncates, Promise.FENCING),
        (flushes_later, Promise.FLUSHED),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_broken_rule_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None],
    promise: Promise,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mutant(monkeypatch)
    for seed in range(SEEDS):
        try:
            world = World(seed, promise)
            for _ in range(STEPS):
                world.step()
            world.heal()
        except (LossError, FatalError, ViolationError):
            return
    raise AssertionError(f"{SEEDS} worlds, and nobody noticed: {mutant.__doc__}")
