"""The PodDisruptionBudget follows the voters that there are, and not only those that are wanted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from quorate_operator.kube.api import path
from quorate_operator.naming import Object
from quorate_operator.objects import manifests
from quorate_operator.objects.budget import stale_budget, with_voters
from quorate_operator.objects.resource import QuorumResource
from quorate_operator.planning import plan as p

from tests.unit.operator.fake_nodes import FakeNodes
from tests.unit.operator.stepping import Lab
from tests.unit.operator.test_operator_plan import key, node, quorum, without_leader

NAME = "PodDisruptionBudget/q"


def resource(replicas: int) -> QuorumResource:
    return QuorumResource("q", "lab", uid="uid", spec={"image": "x", "replicas": replicas})


def made(replicas: int, voters: int) -> Object | None:
    """The budget of a Quorum with so many voters; None without one."""
    found = with_voters(resource(replicas), None, observed(voters))
    return manifests.objects(found).get(NAME)


def observed(voters: int) -> p.Observed:
    return quorum(*(node(n) for n in range(voters)), voters=voters)


def stale(replicas: int, found: Object | None, seen: p.Observed) -> list[str]:
    return [*stale_budget(resource(replicas), found, None, seen)]


@pytest.mark.parametrize(
    ("replicas", "voters", "allowed"),
    [
        (3, 1, 0),
        (3, 2, 0),
        (3, 3, 1),
        (5, 4, 1),
        (9, 2, 0),
        (2, 3, 0),
        (1, 3, 0),
        (1, 1, None),
        (3, 0, 0),
        (5, 9, 1),
    ],
)
def test_no_eviction_stops_commits_while_a_quorum_changes_its_size(
    replicas: int, voters: int, allowed: int | None
) -> None:
    found = made(replicas, voters)
    assert (None if found is None else found["spec"]["maxUnavailable"]) == allowed


def test_the_budget_changes_only_with_what_it_allows() -> None:
    found = made(3, 1)
    assert stale(3, None, without_leader(observed(0))) == [NAME]
    assert stale(3, found, observed(1)) == stale(3, found, observed(2)) == []
    assert stale(3, found, observed(3)) == [NAME]
    assert stale(9, made(9, 3), observed(8)) == []
    # A removal that is not committed yet is counted, and so is an addition.
    changing = observed(3)
    assert changing.view is not None
    fewer = changing.view.voters - {key(2)}
    for view in (
        replace(changing.view, voters=fewer),
        replace(changing.view, committed=fewer),
    ):
        assert stale(3, made(3, 3), replace(changing, view=view)) == [NAME]


def test_without_a_leader_or_of_another_owner_it_stays() -> None:
    for voters in (1, 3):
        assert stale(3, made(3, voters), without_leader(observed(3))) == []
    assert stale(1, made(3, 3), without_leader(observed(3))) == []
    foreign: Object = {"metadata": {"name": "q"}}
    assert stale(3, foreign, observed(3)) == []
    assert stale(1, made(3, 3), observed(1)) == [NAME], "it is to be deleted"


async def test_a_quorum_that_shrinks_to_one_keeps_a_budget_until_it_has(
    lab: Lab, nodes: FakeNodes
) -> None:
    where = path("PodDisruptionBudget", "lab", "q")
    assert lab.store.objects[where]["spec"]["maxUnavailable"] == 1
    lab.patch(replicas=1)
    await lab.step()
    assert lab.store.objects[where]["spec"]["maxUnavailable"] == 0
    changes = [await lab.step() for _ in range(6)]
    assert nodes.removals == [2, 1]
    assert where not in lab.store.objects
    assert sum(each.count("DELETE q") for each in changes) == 1


async def test_a_lost_disk_allows_no_eviction_until_it_is_replaced(
    lab: Lab, nodes: FakeNodes
) -> None:
    nodes.disks[2] = None
    for _ in range(3):
        await lab.step()
    where = path("PodDisruptionBudget", "lab", "q")
    assert nodes.removals == [2]
    assert lab.store.objects[where]["spec"]["maxUnavailable"] == 0
