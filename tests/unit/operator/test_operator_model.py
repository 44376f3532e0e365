"""The planner in every world that two faults can lead to (see `model`)."""

from __future__ import annotations

import pytest
from quorate_operator.planning import plan as p

from tests.unit.operator.model import Explored, World, explore, healthy, unguarded, without

SIZES = range(1, 6)


def scalings(faults: int, first: int = 0) -> list[World]:
    """From every size to every size, whoever leads."""
    return [
        healthy(size, desired, leader, faults=faults, first=first)
        for size in SIZES
        for desired in SIZES
        for leader in range(size)
    ]


def assert_safe(what: str, found: Explored) -> None:
    """The operator lost no quorum, and every state becomes as wanted."""
    print(
        f"\n{what}: {found.states} states, {found.actions} actions, "
        f"{len(found.losses)} quorums lost by the operator, {len(found.stuck)} states stuck"
    )
    assert not found.losses, found.losses[:3]
    assert not found.stuck, found.stuck[:3]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", [0, pytest.param(3000, marks=pytest.mark.slow)])
def test_no_quorum_is_lost_by_the_operator(first: int) -> None:
    """Scaling from each size to each, with up to two crashes or lost disks at any moment, whatever
    the ids of the nodes are.
    """
    found = explore(scalings(2, first), check_progress=True)
    assert_safe("scaling with two faults", found)
    assert found.states > 10_000


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_scaling_again_meanwhile_loses_nothing() -> None:
    """Somebody changes the wanted size in the middle, and one thing goes wrong."""
    initial = [
        healthy(size, size, leader, faults=1, scalings=2)
        for size in SIZES
        for leader in range(size)
    ]
    found = explore(initial, check_progress=True)
    assert_safe("scaling twice with one fault", found)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("sizes", "moves", "outdated"),
    [
        ((3,), 2, False),
        pytest.param((3,), 3, True, marks=pytest.mark.slow),
        pytest.param((4, 5), 2, False, marks=pytest.mark.slow),
    ],
)
def test_a_move_to_new_volumes_loses_nothing(
    sizes: tuple[int, ...], moves: int, outdated: bool
) -> None:
    """Volume claims are deleted at any moment, and a process or a disk fails."""
    initial = []
    for size in sizes:
        for leader in range(size):
            world = healthy(size, size, leader, faults=1, moves=moves)
            pods = tuple(pod._replace(outdated=outdated) for pod in world.pods)
            initial.append(world._replace(pods=pods))
    found = explore(initial, check_progress=True)
    assert_safe(f"{moves} moves with a fault", found)


def test_one_or_two_voters_do_not_move() -> None:
    initial = [healthy(size, size, 0, faults=1, moves=2) for size in (1, 2)]
    found = explore(initial)
    assert not found.losses, found.losses[:3]
    assert found.states > 20


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_members_move_while_the_quorum_is_scaled() -> None:
    initial = [
        healthy(size, desired, leader, faults=0, scalings=1, moves=1)
        for size in (3, 4, 5)
        for desired in (3, 5)
        for leader in range(size)
    ]
    found = explore(initial)
    assert not found.losses, found.losses[:3]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_rollout_loses_nothing() -> None:
    """All pods outdated, with up to two faults."""
    initial = []
    for size in SIZES:
        for leader in range(size):
            world = healthy(size, size, leader, faults=2 if size < 5 else 1)
            outdated = tuple(pod._replace(outdated=True) for pod in world.pods)
            initial.append(world._replace(pods=outdated))
    found = explore(initial, check_progress=True)
    assert_safe("rollout with faults", found)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "kind", [p.RemoveVoter, p.FormatNode, p.AddVoter, p.Resize, p.TransferLeadership, p.RestartPod]
)
def test_steps_that_are_taken_without_an_earlier_one_lose_nothing(kind: type) -> None:
    """The actions of one kind fail all the time. The pods have an outdated template, too.

    Up to four nodes: five take five times as long.
    """
    initial = [
        world._replace(pods=tuple(pod._replace(outdated=True) for pod in world.pods))
        for world in scalings(1)
        if max(len(world.pods), world.desired) < 5
    ]
    found = explore(initial, without(kind))
    print(f"\nwithout {kind.__name__}: {found.states} states, {found.actions} actions")
    assert not found.losses, found.losses[:3]
    assert found.actions > 1_000


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_without_guards_quorums_are_lost() -> None:
    """The same worlds catch a planner that removes the highest voter whoever is alive."""
    found = explore(scalings(2), unguarded)
    print(f"\nwithout guards: {found.states} states, {len(found.losses)} quorums lost")
    assert found.losses
