"""The part of the plan that lets a quorum hibernate: no pods, and the same voters."""

from __future__ import annotations

from quorate_operator.planning.bootstrap import waiting
from quorate_operator.planning.values import Desired, Observed, OperatorPlan, Reason, Resize


def is_hibernating(desired: Desired, observed: Observed) -> bool:
    """Whether no pods are wanted. A new quorum starts first, so that its voters are known."""
    return desired.hibernated and observed.is_bootstrapped


def hibernate(observed: Observed) -> OperatorPlan:
    """Delete all pods. The voters, whose disks remain, stay the same."""
    view = observed.view
    if not observed.size and observed.nodes:
        return waiting(Reason.WAITING_FOR_PODS, "the pods are being deleted")
    if not observed.size:
        text = f"spec.hibernated is set: no pods, and {len(observed.volumes)} volumes"
        return waiting(Reason.HIBERNATED, text)
    if not observed.keeps_volumes:
        text = "to hibernate would delete the volumes: set storage.retention.whenScaled to Retain"
        return waiting(Reason.HIBERNATION_BLOCKED, text)
    if view is not None and view.voters != view.committed:
        return waiting(Reason.CHANGE_UNCOMMITTED, "the last voter set change is uncommitted")
    return OperatorPlan(Resize(0, observed.size), "hibernate: delete all pods")
