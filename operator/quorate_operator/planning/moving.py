"""The part of the plan that moves members to new volumes: another StorageClass, or another zone.

A member moves when its volume claim is deleted, which Kubernetes postpones until the pod is gone:
the member is removed from the voters, then its pod is deleted, and it joins again with the empty
volume of a new claim. The operator never deletes a claim itself. Until a member has been removed,
its pod is not restarted, because the volume would go with it.

The claims of a StatefulSet cannot be changed. For another StorageClass it is deleted without its
pods, and created again; volumes that exist stay as they are until their claims are deleted.

Rules:
1. One member at a time, dead ones first, the leader last. At least two other voters remain, which
   can commit without it.
2. Unless its pod is dead, only while all other wanted nodes are live voters, new volumes get the
   wanted StorageClass, and in a maintenance window.
3. Not while it is fenced, and not during a takeover of Kafka's controllers.

Source: Kubernetes, "Persistent Volumes", "Storage Object in Use Protection".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from quorate.raft.types import ReplicaKey

from quorate_operator.planning.bootstrap import is_dead
from quorate_operator.planning.safety import alive, has_template, is_safe
from quorate_operator.planning.takeover import is_under_way
from quorate_operator.planning.values import (
    CLAIM_DELETED,
    Desired,
    LeaderView,
    Observed,
    ObservedClaim,
    ObservedNode,
    OperatorPlan,
    PlanRefusal,
    Reason,
    RecreateStatefulSet,
    RemoveVoter,
    RestartPod,
    TransferLeadership,
)

COPIES_MIN = 2
"""How many other voters must remain while a member moves."""


def losing_volumes(observed: Observed) -> list[ObservedNode]:
    """The nodes whose volume is deleted with their pod."""
    return [node for node in observed.nodes if node.loses_volume]


@dataclass(frozen=True, slots=True)
class _Moves:
    """The members that may move."""

    desired: Desired
    observed: Observed
    view: LeaderView
    alive: frozenset[ReplicaKey]

    def missing(self, voter: ReplicaKey) -> list[int]:
        """The wanted nodes other than this voter that are not live voters, by id."""
        wanted = set(map(self.observed.ids.of, range(self.desired.replicas)))
        return sorted(wanted - {voter.id} - {each.id for each in self.alive})

    def refusal(self, voter: ReplicaKey, node: ObservedNode) -> PlanRefusal | None:
        """Why a voter cannot move now; None if it can."""
        shown = f"cannot move voter {voter} to a new volume"
        rest = self.view.voters - {voter}
        if node.ordinal in self.observed.fenced | self.desired.fenced:
            text = f"{shown}: unfence it first"
        elif is_under_way(self.desired, self.observed):
            text = f"{shown} during a takeover of Kafka's controllers"
        elif not self.desired.replace_disks:
            text = f"{shown}: diskReplacement is Manual: remove that voter to move it"
            return PlanRefusal(Reason.DISK_REPLACEMENT_MANUAL, text)
        elif not is_dead(node) and (missing := self.missing(voter)):
            nodes = ", ".join(map(str, missing))
            text = f"the next member moves to a new volume once these are live voters: {nodes}"
            return PlanRefusal(Reason.VOLUMES_MOVING, text)
        elif len(rest) < COPIES_MIN:
            text = f"{shown}: two others must keep the records; scale to 3 or more first"
        elif not is_safe(self.alive - {voter}, rest):
            text = f"{shown}: too few of the other voters are alive"
        elif is_dead(node):
            return None
        elif self.observed.made_class != self.desired.volume_class:
            text = f"{shown}: its claim would not get {_class(self.desired.volume_class)}"
        elif self.observed.closed_window:
            return PlanRefusal(Reason.WINDOW_CLOSED, self.observed.closed_window)
        else:
            return None
        return PlanRefusal(Reason.VOLUME_MOVE_BLOCKED, text)


def move(
    desired: Desired, observed: Observed, view: LeaderView, alive: frozenset[ReplicaKey]
) -> OperatorPlan:
    """Take the next step to move the first member whose volume claim is being deleted."""
    leaving = [
        node
        for node in losing_volumes(observed)
        if node.ordinal < desired.replicas and not node.terminating
    ]
    fenced = observed.fenced | desired.fenced
    refusals: dict[PlanRefusal, None] = {}
    voters = {voter.id: voter for voter in view.voters}
    for node in leaving:
        action = RestartPod(node.ordinal, node.uid)
        if node.id in voters or node.ordinal in fenced:
            continue
        text, failure = f"delete pod {node.ordinal}: {CLAIM_DELETED}", observed.failure_of(action)
        if not failure:
            return OperatorPlan(action, text, tuple(refusals))
        refusals[PlanRefusal(Reason.ACTION_FAILED, f"{text}: {failure}")] = None
    moves = _Moves(desired, observed, view, alive)
    nodes = {voters[node.id]: node for node in leaving if node.id in voters}
    for voter in sorted(nodes, key=lambda v: (not is_dead(nodes[v]), v == view.leader, -v.id)):
        refusal = moves.refusal(voter, nodes[voter])
        if refusal is not None:
            refusals[refusal] = None
            continue
        if voter == view.leader:
            others = sorted(alive - {voter}, key=lambda v: (v in nodes, v))
            due = [v for v in others if not observed.failure_of(TransferLeadership(v))]
            target = (due or others)[0]
            text = f"transfer leadership to {target}, because {voter} moves to a new volume"
            return OperatorPlan(TransferLeadership(target), text, tuple(refusals))
        text = f"remove voter {voter}: {CLAIM_DELETED}, it moves to a new volume"
        return OperatorPlan(RemoveVoter(voter), text, tuple(refusals))
    return OperatorPlan(refusals=tuple(refusals))


def apply_storage_class(desired: Desired, observed: Observed) -> OperatorPlan:
    """Create the StatefulSet again for another StorageClass, and report volumes that differ."""
    differ = tuple(_different_volumes(desired, observed))
    if observed.made_class == desired.volume_class or not _can_recreate(desired, observed):
        return OperatorPlan(refusals=differ)
    text = f"create the StatefulSet again for {_class(desired.volume_class)}, keeping its pods"
    action = RecreateStatefulSet()
    why = observed.failure_of(action)
    if not observed.outlives_set:
        why = "storage.retention.whenDeleted must be Retain, or the volumes could be deleted"
    if why:
        refusal = PlanRefusal(Reason.STORAGE_CLASS_REFUSED, f"cannot {text}: {why}")
        return OperatorPlan(refusals=(refusal, *differ))
    return OperatorPlan(action, text, differ)


def _can_recreate(desired: Desired, observed: Observed) -> bool:
    """Whether the StatefulSet could be created from the spec, and is as the spec wants it to be."""
    return (
        observed.size is not None
        and has_template(desired, observed)
        and not observed.conflicts
        and not observed.stale
        and not observed.is_template_pending
    )


def _different_volumes(desired: Desired, observed: Observed) -> Iterator[PlanRefusal]:
    """Yield which claims have another StorageClass, and which of them can be deleted now."""
    if not desired.volume_class:
        return
    differ = [
        claim
        for claim in observed.claims
        if claim.ordinal < desired.replicas and claim.storage_class != desired.volume_class
    ]
    wanted = _class(desired.volume_class)
    for claim in differ:
        if not claim.is_bound and observed.made_class == desired.volume_class:
            text = f"{claim.shown} has no volume, and does not ask for {wanted}: delete it"
            yield PlanRefusal(Reason.VOLUMES_DIFFER, text)
    bound = [claim for claim in differ if claim.is_bound]
    if bound:
        nodes = ", ".join(str(observed.ids.of(claim.ordinal)) for claim in bound)
        text = f"volumes of nodes {nodes} do not have {wanted}"
        if desired.hibernated:
            text += "; to move them, wake the quorum first"
        elif (found := _next_claim(desired, observed, bound)) is not None:
            text += f"; to move node {observed.ids.of(found.ordinal)}, delete {found.shown}"
        yield PlanRefusal(Reason.VOLUMES_DIFFER, text)


def _next_claim(
    desired: Desired, observed: Observed, claims: list[ObservedClaim]
) -> ObservedClaim | None:
    """The claim whose deletion moves a member at once; None if there is none."""
    view = observed.view
    if view is None or view.voters != view.committed or losing_volumes(observed):
        return None
    living = alive(observed)
    moves = _Moves(desired, observed, view, living)
    leader = observed.ordinal_of(view.leader)
    for claim in sorted(claims, key=lambda each: (each.ordinal == leader, -each.ordinal)):
        node = observed.node(claim.ordinal)
        if node is not None and node.key in living and moves.refusal(node.key, node) is None:
            return claim
    return None


def _class(name: str) -> str:
    return f"StorageClass {name}" if name else "the default StorageClass"
