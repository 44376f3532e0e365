"""The part of the plan that fences members: their controllers stop, their pods keep the volumes.

All pods share one template, which names the pods that are fenced (`made`). To fence a member, it is
named there, and its pod restarted; the others stay as they are. A member stays a voter while it is
fenced, so the other voters need a majority of all. Unfencing needs no leader.
"""

from __future__ import annotations

from collections.abc import Iterator

from quorate.raft.types import ReplicaKey

from quorate_operator.planning.safety import has_template, is_safe, majority
from quorate_operator.planning.values import (
    CLAIM_DELETED,
    Desired,
    LeaderView,
    Observed,
    ObservedNode,
    OperatorPlan,
    PlanRefusal,
    Reason,
    RestartPod,
    SetFenced,
    TransferLeadership,
)


def unfence(desired: Desired, observed: Observed) -> OperatorPlan:
    """Return members that are not to be fenced any more, or cannot be fenced now."""
    ended = observed.fenced - desired.fenced
    if observed.view is None:
        ended |= {node.ordinal for node in _announced(observed)}
    if ended and not has_template(desired, observed):
        text = f"cannot unfence {_shown(observed, ended)}: the template is invalid"
        return OperatorPlan(refusals=(PlanRefusal(Reason.FENCING_REFUSED, text),))
    if ended:
        text = f"unfence {_shown(observed, ended)}"
        return OperatorPlan(_set(observed.fenced - ended), text)
    refusals: list[PlanRefusal] = []
    for node in observed.nodes:
        is_over = node.is_fenced and node.ordinal not in observed.fenced | desired.fenced
        if is_over and node.loses_volume:
            text = f"node {node.id} stays fenced: {CLAIM_DELETED}"
            refusals.append(PlanRefusal(Reason.FENCING_REFUSED, text))
        elif is_over and not node.terminating and not observed.is_template_pending:
            text = f"restart pod {node.ordinal}: it is not fenced any more"
            return OperatorPlan(RestartPod(node.ordinal, node.uid), text, tuple(refusals))
    return OperatorPlan(refusals=tuple(refusals))


def fence(
    desired: Desired, observed: Observed, view: LeaderView, alive: frozenset[ReplicaKey]
) -> OperatorPlan:
    """Take the next step to fence a member, if the other voters have a majority."""
    refusals = [
        PlanRefusal(Reason.FENCING_REFUSED, f"cannot fence {name}: no pod has this name")
        for name in desired.unknown_members
    ]
    for ordinal in sorted(desired.fenced):
        node = observed.node(ordinal)
        shown = f"node {observed.ids.of(ordinal)}"
        if node is not None and node.terminating:
            continue
        if node is not None and node.is_fenced and ordinal in observed.fenced:
            continue
        why = _why_not(desired, observed, view, alive, node)
        if node is None or why:
            refusals.append(PlanRefusal(Reason.FENCING_REFUSED, f"cannot fence {shown}: {why}"))
            if node is not None and ordinal in observed.fenced and has_template(desired, observed):
                action = _set(observed.fenced - {ordinal})
                return OperatorPlan(action, f"do not fence {shown}", tuple(refusals))
            continue
        found = _step(observed, view, alive, node, desired.fenced)
        if found is not None:
            return OperatorPlan(found.action, found.text, tuple(refusals))
    return OperatorPlan(refusals=tuple(refusals))


def fenced(observed: Observed) -> Iterator[PlanRefusal]:
    """Yield the members whose controllers do not run because they are fenced."""
    for node in observed.nodes:
        if node.is_fenced and node.answers:
            text = f"node {node.id} is fenced, but its controller runs: its image ignores fences"
            yield PlanRefusal(Reason.FENCING_REFUSED, text)
        elif node.is_fenced:
            text = f"node {node.id} is fenced; meanwhile no live pod is restarted for a rollout"
            yield PlanRefusal(Reason.FENCED, text)


def _why_not(
    desired: Desired,
    observed: Observed,
    view: LeaderView,
    alive: frozenset[ReplicaKey],
    node: ObservedNode | None,
) -> str:
    """Why a member may not be fenced, "" if it may."""
    if node is None:
        return "it has no pod"
    if node.loses_volume:
        return f"{CLAIM_DELETED}, so it would lose its volume"
    if not has_template(desired, observed):
        return "the template is invalid"
    if all(voter.id != node.id for voter in view.voters):
        return ""
    stopped = {node.id, *(each.id for each in _announced(observed))}
    rest = frozenset(voter for voter in alive if voter.id not in stopped)
    if is_safe(rest, view.voters):
        return ""
    count = len(view.voters)
    left = len(rest & view.voters)
    return f"{left} of {count} voters would be alive, but {majority(count)} are needed"


def _step(
    observed: Observed,
    view: LeaderView,
    alive: frozenset[ReplicaKey],
    node: ObservedNode,
    unwanted: frozenset[int],
) -> OperatorPlan | None:
    """The next step to fence a member; None to wait. unwanted: who shall not lead."""
    if node.key == view.leader:
        others = sorted(
            alive - {node.key},
            # Kafka's controllers cannot transfer leadership back.
            key=lambda v: (observed.is_kafkas(v), observed.ordinal_of(v) in unwanted, v),
        )
        text = f"transfer leadership to {others[0]}, because node {node.id} will be fenced"
        return OperatorPlan(TransferLeadership(others[0]), text)
    if node.ordinal not in observed.fenced:
        return OperatorPlan(_set(observed.fenced | {node.ordinal}), f"fence node {node.id}")
    if observed.is_template_pending:
        return None
    return OperatorPlan(RestartPod(node.ordinal, node.uid), f"restart pod {node.ordinal}: fenced")


def _announced(observed: Observed) -> Iterator[ObservedNode]:
    """Yield the members that the template fences, and whose controllers still run."""
    for node in observed.nodes:
        if node.ordinal in observed.fenced and not node.is_fenced and not node.terminating:
            yield node


def _set(ordinals: frozenset[int]) -> SetFenced:
    return SetFenced(tuple(sorted(ordinals)))


def _shown(observed: Observed, ordinals: frozenset[int] | set[int]) -> str:
    return ", ".join(f"node {observed.ids.of(ordinal)}" for ordinal in sorted(ordinals))
