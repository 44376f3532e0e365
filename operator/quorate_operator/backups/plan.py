"""Decides on the next change of one QuorumBackup's objects, without I/O.

1. Nothing is changed for a spec that is invalid, names a Quorum that does not exist, or uses an
   image, a Secret or a volume claim that it may not use.
2. The object of the other mode is deleted first, and its pods must be gone: only one process may
   write an archive.
3. The Deployment or CronJob is created, or applied if it differs. Then that of the drills, which is
   deleted if none are wanted.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from quorate_operator.backups.manifests import drill, workload
from quorate_operator.backups.resource import BackupResource
from quorate_operator.kube.job_state import JobRun
from quorate_operator.naming import Object
from quorate_operator.objects import manifests
from quorate_operator.objects.resource import QuorumResource


@dataclass(frozen=True, slots=True)
class BackupPage:
    """The status that a continuous backup reports (`/status`)."""

    end: int | None
    cluster_id: str
    success_age_s: float | None
    error: str


@dataclass(frozen=True, slots=True)
class BackupObserved:
    """The observed state."""

    quorum: QuorumResource | None = None
    """The Quorum, None if it does not exist."""
    forbidden: tuple[str, ...] = ()
    """Messages about what the backup may not use."""
    conflicts: tuple[str, ...] = ()
    """Messages about foreign objects."""
    workload: Object | None = None
    """The Deployment or CronJob of the wanted mode."""
    has_other: bool = False
    """Whether the workload of the other mode exists."""
    other_pods: tuple[str, ...] = ()
    """The names of the pods of the other workload."""
    pod_problem: str = ""
    """Why the pod does not run."""
    page: BackupPage | None = None
    """The page of the pod, None without an answer."""
    runs: tuple[JobRun, ...] = ()
    """The runs, the newest last."""
    drill: Object | None = None
    """The CronJob of the drills."""
    drills: tuple[JobRun, ...] = ()
    """The drills, the newest last."""


class BackupReason(StrEnum):
    """Why a QuorumBackup is not as wanted; also the reasons of conditions."""

    DELETED = "Deleted"
    INVALID_SPEC = "InvalidSpec"
    QUORUM_MISSING = "QuorumMissing"
    NOT_ALLOWED = "NotAllowed"
    CONFLICT = "Conflict"
    OTHER_MODE_RUNS = "OtherModeRuns"
    APPLY_REJECTED = "ApplyRejected"


@dataclass(frozen=True, slots=True)
class PutWorkload:
    """Create the object, or change it."""

    made: Object


@dataclass(frozen=True, slots=True)
class DeleteWorkload:
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class BackupPlan:
    """At most one action, or the reason why the objects are not changed."""

    action: PutWorkload | DeleteWorkload | None = None
    reason: BackupReason | None = None
    """None if the objects are as wanted, or become so with the action."""
    text: str = ""


def plan_backup(backup: BackupResource, observed: BackupObserved) -> BackupPlan:
    """The next action for one QuorumBackup."""
    if backup.deleted:
        return BackupPlan(reason=BackupReason.DELETED, text="the QuorumBackup is being deleted")
    if backup.invalid:
        return BackupPlan(reason=BackupReason.INVALID_SPEC, text=backup.invalid)
    if observed.quorum is None:
        text = f"Quorum/{backup.quorum_name} does not exist"
        return BackupPlan(reason=BackupReason.QUORUM_MISSING, text=text)
    if observed.forbidden:
        return BackupPlan(reason=BackupReason.NOT_ALLOWED, text="; ".join(observed.forbidden))
    if observed.conflicts:
        return BackupPlan(reason=BackupReason.CONFLICT, text="; ".join(observed.conflicts))
    if observed.has_other:
        return BackupPlan(DeleteWorkload(*backup.other_workload))
    if observed.other_pods:
        text = f"waiting until pods of the other mode are gone: {', '.join(observed.other_pods)}"
        return BackupPlan(reason=BackupReason.OTHER_MODE_RUNS, text=text)
    wanted = [(observed.workload, workload(backup, observed.quorum))]
    if backup.drill:
        wanted.append((observed.drill, drill(backup, observed.quorum)))
    for found, made in wanted:
        if found is None or manifests.stamp_of(found) != manifests.stamp_of(made):
            return BackupPlan(PutWorkload(made))
    if observed.drill is not None and not backup.drill:
        return BackupPlan(DeleteWorkload(*backup.drill_job))
    return BackupPlan()
