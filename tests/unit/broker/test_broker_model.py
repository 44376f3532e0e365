"""KIP-841's promise over random interleavings: no acknowledged record is lost."""

from __future__ import annotations

import os

import pytest

from tests.unit.broker.model import LossError, World

SEEDS = int(os.environ.get("QUORATE_MODEL_SEEDS", "40"))
STEPS = 1_500
GROUPS = 8


@pytest.mark.parametrize("group", range(GROUPS))
@pytest.mark.parametrize("flush_before_ack", [False, True], ids=["as Kafka", "flush before ack"])
def test_no_acknowledged_record_is_lost(group: int, flush_before_ack: bool) -> None:
    acknowledged = lost_tails = 0
    for seed in range(group, SEEDS, GROUPS):
        world = World(seed, flush_before_ack=flush_before_ack)
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


def test_without_kip_841_the_same_world_endangers_records() -> None:
    """The checks are what the promise rests on, and this model can tell."""
    for seed in range(200):
        world = World(seed, safe=False)
        try:
            for _ in range(STEPS):
                world.step()
        except LossError:
            return
    raise AssertionError("200 worlds without KIP-841's checks, and nothing was lost or endangered")
