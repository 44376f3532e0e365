"""The part of the plan that adds pods to a quorum with a leader, one after another.

Rules:
1. The missing pods of voters come back at once and together: nothing waits for others. So do those
   that run, but that the StatefulSet is too small for, because it is about to delete them.
2. The next pod is created once every pod below it is a voter. Pods that copy all records at the
   same time would slow the leader down, and a mistake in the spec would show in all of them.
3. A fenced member is not waited for, because only its user ends that.
4. A pod that cannot start is waited for, unless the quorum tolerates no failure: then the next pod
   may be the one that helps.

In a takeover of Kafka's controllers, all pods join at once, as observers.
"""

from __future__ import annotations

from quorate.raft.types import ReplicaKey

from quorate_operator.planning.bootstrap import create_pods, resize_to
from quorate_operator.planning.safety import majority, ordinals
from quorate_operator.planning.takeover import is_under_way
from quorate_operator.planning.values import (
    Desired,
    LeaderView,
    Observed,
    OperatorPlan,
    PlanRefusal,
    Reason,
)
from quorate_operator.planning.waits import is_failing


def grow(
    desired: Desired, observed: Observed, view: LeaderView, alive: frozenset[ReplicaKey]
) -> OperatorPlan:
    """Create the missing pods of voters, or the next pod of a wanted node."""
    if is_under_way(desired, observed):
        found = create_pods(desired, observed, view.voters - alive)
        return OperatorPlan() if found is None else OperatorPlan(*found)
    size = observed.size or 0
    needed = max((ordinal + 1 for ordinal in ordinals(observed, view.voters)), default=0)
    found = resize_to(observed, needed)
    if found is not None:
        return OperatorPlan(*found)
    if size >= desired.replicas:
        return OperatorPlan()
    awaited = _awaited(desired, observed, view, alive)
    if awaited:
        nodes = ", ".join(str(observed.ids.of(ordinal)) for ordinal in awaited)
        text = f"pod {size + 1} of {desired.replicas} is created once these are voters: {nodes}"
        return OperatorPlan(refusals=(PlanRefusal(Reason.WAITING_FOR_PODS, text),))
    found = resize_to(observed, size + 1)
    if found is None:
        return OperatorPlan()
    return OperatorPlan(found[0], f"{_adding(size + 1, desired)}: create pod {size}")


def progress(desired: Desired, observed: Observed) -> str:
    """Which pod is being added, for people; "" if none is."""
    view, size = observed.view, observed.size
    if (
        view is None
        or size is None
        or not observed.is_bootstrapped
        or is_under_way(desired, observed)
    ):
        return ""
    joining = _joining(desired, observed, view)
    if size < desired.replicas:
        return _adding(joining[-1] + 1 if joining else size + 1, desired)
    return _adding(size, desired) if joining == [size - 1] else ""


def _adding(number: int, desired: Desired) -> str:
    return f"adding pod {number} of {desired.replicas}"


def _joining(desired: Desired, observed: Observed, view: LeaderView) -> list[int]:
    """The ordinals of wanted pods that are no voters, and not fenced."""
    voters = {observed.ordinal_of(voter) for voter in view.voters}
    fenced = observed.fenced | desired.fenced
    count = min(observed.size or 0, desired.replicas)
    return [ordinal for ordinal in range(count) if ordinal not in voters | fenced]


def _awaited(
    desired: Desired, observed: Observed, view: LeaderView, alive: frozenset[ReplicaKey]
) -> list[int]:
    """The ordinals for which the next pod waits."""
    joining = _joining(desired, observed, view)
    if len(alive) > majority(len(view.voters)):
        return joining
    stuck = {pod.ordinal for pod in observed.rejected_pods}
    stuck |= {node.ordinal for node in observed.nodes if is_failing(node)}
    return [ordinal for ordinal in joining if ordinal not in stuck]
