"""KIP-841's promise over random interleavings: no acknowledged record is lost.

QUORATE_MODEL_SEEDS says how many worlds of each kind are tried.
"""

from __future__ import annotations

import os

import pytest

from tests.unit.broker.model import World
from tests.unit.broker.model_values import LossError, Promise

SEEDS = int(os.environ.get("QUORATE_MODEL_SEEDS", "48"))
STEPS = 1_500
GROUPS = 4
UNSAFE_SEEDS = 50


@pytest.mark.parametrize("group", range(GROUPS))
@pytest.mark.parametrize("promise", Promise, ids=lambda promise: promise.value)
def test_no_acknowledged_record_is_lost(group: int, promise: Promise) -> None:
    acknowledged = lost_tails = 0
    for seed in range(group, SEEDS, GROUPS):
        world = World(seed, promise)
        try:
            for _ in range(STEPS):
                world.step()
            world.heal()
        except LossError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        acknowledged += len(world.acknowledged)
        lost_tails += world.lost_tails
    assert acknowledged > 0
    assert lost_tails > 0


def test_without_kip_841_the_same_worlds_endanger_records() -> None:
    """The checks are what the promise rests on, and this model can tell."""
    endangered = 0
    for seed in range(UNSAFE_SEEDS):
        world = World(seed, safe=False)
        try:
            for _ in range(STEPS):
                world.step()
        except LossError:
            endangered += 1
    assert endangered >= UNSAFE_SEEDS // 5


def test_the_same_seed_is_the_same_world() -> None:
    first, second = World(7), World(7)
    for _ in range(STEPS):
        first.step()
        second.step()
    assert first.acknowledged == second.acknowledged
    assert first.image == second.image
