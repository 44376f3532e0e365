"""Pods are added one after another, and nothing that heals waits for that."""

from __future__ import annotations

from dataclasses import replace

import pytest
from quorate.raft.types import ReplicaKey
from quorate_operator.objects.resource import QuorumResource
from quorate_operator.observation import status
from quorate_operator.observation.observe import Snapshot
from quorate_operator.planning import plan as p

from tests.unit.operator.model import Disk, Pod, act, events, guarded, healthy, observe
from tests.unit.operator.test_operator_plan import (
    HEALTHY,
    IDS,
    key,
    node,
    quorum,
    silent,
    without_leader,
)


def planned(observed: p.Observed, replicas: int = 9, **desired: object) -> p.OperatorPlan:
    return p.plan(p.Desired(replicas, **desired), observed)  # type: ignore[arg-type]


def without_voter(observed: p.Observed, ordinal: int) -> p.Observed:
    assert observed.view is not None
    voters = observed.view.voters - {key(ordinal)}
    return replace(observed, view=replace(observed.view, voters=voters, committed=voters))


def progressing(observed: p.Observed, replicas: int = 9) -> str:
    spec = {"image": "x", "replicas": replicas, "firstNodeId": IDS.first}
    resource = QuorumResource("q", "lab", spec=spec)
    found = status.build(resource, Snapshot(observed), planned(observed, replicas))
    return next(c["message"] for c in found["conditions"] if c["type"] == "Progressing")


def test_a_quorum_grows_pod_by_pod() -> None:
    """In the world of `model`: there is never more than one pod that is no voter."""
    world = healthy(3, 9, 0, faults=0)
    sizes = [3]
    for _ in range(100):
        world = next(events(world), world)
        action = guarded(p.Desired(9), observe(world))
        if action is not None:
            world = act(world, action)
        assert set(range(len(world.pods) - 1)) <= world.voters
        if len(world.pods) > sizes[-1]:
            sizes.append(len(world.pods))
    assert sizes == list(range(3, 10))
    assert world.is_as_wanted
    assert world.pods == (Pod(True, Disk.SYNCED),) * 9


@pytest.mark.parametrize(
    "last",
    [
        node(3, None),
        silent(3),
        silent(3, is_failing=True),
        node(3, terminating=True),
        node(3, "b"),
    ],
)
def test_the_next_pod_waits_for_the_one_before(last: p.ObservedNode) -> None:
    found = quorum(*HEALTHY.nodes, last, voters=3)
    assert not isinstance(planned(found).action, p.Resize)
    assert progressing(found).startswith("adding pod 4 of 9: ")


def test_the_status_says_what_the_next_pod_waits_for() -> None:
    broken = silent(3, is_failing=True, problem="pod q-3: ErrImagePull")
    found = quorum(*HEALTHY.nodes, broken, voters=3)
    text = progressing(found)
    assert f"pod 5 of 9 is created once these are voters: {IDS.of(3)}" in text
    assert "ErrImagePull" in text
    assert progressing(HEALTHY) == "adding pod 4 of 9: create pod 3"
    joining = quorum(*HEALTHY.nodes, node(3, None), voters=3)
    assert progressing(joining, 4) == f"adding pod 4 of 4: format node {IDS.of(3)} to join"
    replaced = without_voter(quorum(node(0), node(1, None), node(2)), 1)
    assert "adding" not in progressing(replaced, 3)
    assert "adding" not in progressing(replace(HEALTHY, size=None), 3), "all pods come back"


def test_voters_without_pods_come_back_together() -> None:
    """Somebody made the StatefulSet smaller, or it was restored from an older manifest."""
    lost = quorum(*(node(n) for n in range(5)), voters=7)
    assert planned(lost).action == p.Resize(7, 5)
    assert planned(lost, 7).action == p.Resize(7, 5)
    assert planned(without_leader(lost)).action == p.Resize(9, 5)


@pytest.mark.parametrize("size", [0, 1, 4])
@pytest.mark.parametrize("replicas", [3, 5, 7])
def test_a_set_that_was_made_smaller_keeps_the_pods_of_live_voters(
    size: int, replicas: int
) -> None:
    """Somebody scaled it, and its controller has not deleted the pods yet."""
    found = replace(quorum(*(node(n) for n in range(5)), voters=5), size=size)
    assert planned(found, replicas).action == p.Resize(5, size)


def test_a_dead_voter_and_a_fenced_member_hold_up_no_growth() -> None:
    dead = quorum(node(0), silent(1), node(2), voters=3)
    assert planned(dead, 5).action == p.Resize(4, 3)
    fenced = quorum(*HEALTHY.nodes, silent(3, is_fenced=True), voters=3)
    fenced = replace(fenced, fenced=frozenset({3}))
    assert planned(fenced, 5, fenced=frozenset({3})).action == p.Resize(5, 4)


def test_a_pod_that_cannot_start_is_passed_over_where_no_voter_is_to_spare() -> None:
    """Its disk was lost with its machine: two voters remain, and another pod is asked for."""
    gone = silent(1, is_failing=True, problem="no machine")
    left = quorum(node(0), gone, node(2), voters=3)
    left = without_voter(left, 1)
    assert planned(left, 4).action == p.Resize(4, 3)
    rejected = replace(left, nodes=(node(0), node(2)), rejected_pods=(p.RejectedPod(1, "quota"),))
    assert planned(rejected, 4).action == p.Resize(4, 3)
    starting = replace(left, nodes=(node(0), silent(1), node(2)))
    assert planned(starting, 4).action is None


def test_a_member_that_moves_holds_up_the_growth_but_not_its_move() -> None:
    moving = quorum(*HEALTHY.nodes, node(3, loses_volume=True), voters=3)
    assert planned(moving, 5).action == p.RestartPod(3, "uid-3")
    still_voter = quorum(node(0), node(1), node(2, loses_volume=True))
    assert planned(still_voter, 4).action == p.Resize(4, 3)


def test_pods_of_a_takeover_join_together() -> None:
    kafkas = frozenset({1, 2, 3})
    voters = frozenset(ReplicaKey(n, f"kafka-{n}") for n in kafkas)
    found = quorum(node(0, None))
    assert found.view is not None
    view = replace(found.view, voters=voters, committed=voters, caught_up=voters)
    found = replace(found, view=view, kafka_ids=kafkas, nodes=())
    assert planned(found, 3, is_takeover=True).action == p.Resize(3, 1)
