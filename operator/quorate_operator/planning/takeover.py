"""The part of the plan that takes over the quorum of Kafka's controllers, and gives it back.

The pods join that quorum as observers and become voters in place of Kafka's controllers, one at a
time: a voter is added when it has caught up, then a surplus one is removed, the leader last. To
roll back, Kafka's controllers, which run on as observers, replace the pods in the same way.

Rules:
1. No voter is added or removed unless all voters are alive. But dead surplus voters are removed
   once all wanted ones are alive, and dead pods do not hold up a rollback: they may be its reason.
2. No voter is added or removed while there is one that is neither a pod nor named in the spec.
3. There are never more voters than the larger side has controllers, plus one.
4. Kafka's controllers cannot transfer leadership: a leader that is removed resigns (KIP-853).

Source: KIP-853, "Add controller", "Remove controller".
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from quorate.raft.types import ReplicaKey

from quorate_operator.planning.safety import is_alive, is_safe, wanted_ids
from quorate_operator.planning.values import (
    AddVoter,
    Desired,
    LeaderView,
    Observed,
    OperatorPlan,
    PlanRefusal,
    Reason,
    RemoveVoter,
)


class TakeoverPhase(StrEnum):
    """How far a takeover is, in the status."""

    JOINING = "Joining"
    TAKING_OVER = "TakingOver"
    COMPLETE = "Complete"
    ROLLING_BACK = "RollingBack"
    ROLLED_BACK = "RolledBack"


def phase(desired: Desired, observed: Observed) -> TakeoverPhase | None:
    """How far the takeover is; None without a takeover, or without a leader."""
    if not desired.is_takeover or observed.view is None:
        return None
    voters = observed.view.voters | observed.view.committed
    ours = {voter for voter in voters if observed.ordinal_of(voter) is not None}
    if desired.rolls_back:
        return TakeoverPhase.ROLLING_BACK if ours else TakeoverPhase.ROLLED_BACK
    if ours == voters:
        return TakeoverPhase.COMPLETE
    return TakeoverPhase.TAKING_OVER if ours else TakeoverPhase.JOINING


def is_under_way(desired: Desired, observed: Observed) -> bool:
    """Whether voters are added and removed by `take_over`, and not as in other Quorums."""
    return phase(desired, observed) not in (None, TakeoverPhase.COMPLETE)


def take_over(
    desired: Desired, observed: Observed, view: LeaderView, alive: frozenset[ReplicaKey]
) -> OperatorPlan:
    """Add the next voter, or remove a surplus one."""
    strangers = [
        voter
        for voter in sorted(view.voters)
        if observed.ordinal_of(voter) is None and not observed.is_kafkas(voter)
    ]
    if strangers:
        shown = ", ".join(map(str, strangers))
        return _blocked(
            f"voter {shown} is neither a pod of this Quorum nor in takeover.controllers"
        )
    wanted = wanted_ids(desired, observed)
    surplus = [voter for voter in sorted(view.voters) if voter.id not in wanted]
    missing = wanted - {voter.id for voter in view.voters & alive}
    stops = missing and not desired.rolls_back
    unwell = [v for v in sorted(view.voters - alive) if stops or v.id in wanted]
    if unwell:
        shown = ", ".join(map(str, unwell))
        return _blocked(f"waiting until these voters are alive: {shown}")
    most = max(desired.replicas, len(observed.kafka_ids))
    if surplus and (not missing or len(view.voters) > most):
        return _remove(view, alive, surplus)
    ready = [
        replica
        for replica in sorted(view.caught_up)
        if replica.id in missing and is_alive(observed, view, replica)
        if (node := observed.node_of(replica)) is None or not node.loses_volume
    ]
    late = tuple(_late(desired, missing - {replica.id for replica in ready}))
    for replica in ready:
        if is_safe(alive | {replica}, view.voters | {replica}):
            return OperatorPlan(AddVoter(replica), f"add voter {replica}", late)
    if desired.rolls_back and not missing:
        text = "Kafka's controllers are the voters again: this Quorum can be deleted"
        return OperatorPlan(refusals=(PlanRefusal(Reason.ROLLED_BACK, text),))
    return OperatorPlan(refusals=late)


def _remove(
    view: LeaderView, alive: frozenset[ReplicaKey], surplus: list[ReplicaKey]
) -> OperatorPlan:
    """Remove a surplus voter: a dead one first, the leader last."""
    voter = min(surplus, key=lambda each: (each == view.leader, each in alive, each.id))
    rest = view.voters - {voter}
    if not is_safe(alive, rest):
        return _blocked(f"cannot remove voter {voter}: too few of the others are alive")
    return OperatorPlan(RemoveVoter(voter), f"remove voter {voter}, which was replaced")


def _late(desired: Desired, nodes: frozenset[int]) -> Iterator[PlanRefusal]:
    """Yield which missing voters cannot be added yet."""
    for node_id in sorted(nodes):
        who = "Kafka's controller" if desired.rolls_back else "node"
        text = f"{who} {node_id} does not fetch from the leader, or has not caught up"
        yield PlanRefusal(Reason.CATCHING_UP, text)


def _blocked(text: str) -> OperatorPlan:
    return OperatorPlan(refusals=(PlanRefusal(Reason.TAKEOVER_BLOCKED, text),))
