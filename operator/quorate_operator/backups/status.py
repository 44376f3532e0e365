"""Builds the status of a QuorumBackup: a pure function of the observed state and the plan.

Conditions, and what True means: Ready: the last run succeeded, and a continuous backup runs now.
SpecApplied: the Deployment and the CronJobs are as the spec wants them. Drilled, with `spec.drill`:
the last restore drill succeeded, with an archive of the Quorum's cluster. Suspended: `spec.suspend`
is set. Apart from Suspended, they are Unknown while the state cannot be observed.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from typing import Any

from quorate_operator.backups.plan import BackupObserved, BackupPlan, BackupReason
from quorate_operator.backups.resource import BackupResource
from quorate_operator.kube.job_state import JobRun
from quorate_operator.naming import Object
from quorate_operator.observation.status import Said, written

NOT_OBSERVED = "ObservationFailed"
OTHER_CLUSTER = "OtherCluster"
_CALM = ("Suspended", "NotSuspended", "Applying", "PodNotRunning", "OtherModeRuns", "Deleted")
"""The reasons of a condition that is False without a failure, or whose pods have Events."""
_SUCCESSES = ("BackingUp", "LastRunSucceeded", "DrillSucceeded")
_MOVING = ("lastSuccess", "lastOffset")
UNREADABLE = (ValueError, KeyError, TypeError, OverflowError, RecursionError)
"""What reading the message of a pod may raise: a pod may end with any text."""
LATE_S = 60.0
"""How much later than written the success of a continuous backup may be."""


def build(
    backup: BackupResource,
    observed: BackupObserved,
    plan: BackupPlan,
    now: dt.datetime,
    failure: str = "",
) -> Object:
    """Build the status. failure: why the plan's action failed, "" if it did not."""
    said: dict[str, Said] = {
        "Ready": _ready(backup, observed, plan),
        "SpecApplied": _spec_applied(plan, failure),
        "Suspended": _suspended(backup),
    }
    if backup.drill:
        said["Drilled"] = _drilled(backup, observed)
    names = ("lastSuccess", "lastOffset", "clusterId", "lastDrill")
    return {
        "observedGeneration": backup.generation,
        **{name: backup.status.get(name) for name in names},
        **_last_success(backup, observed, now),
        **_last_drill(backup, observed),
        "conditions": written(backup.status, backup.generation, said),
    }


def unknown(backup: BackupResource, error: str) -> Object:
    """Build the status for when the state cannot be observed. error: why."""
    said: Said = (None, NOT_OBSERVED, error)
    conditions = {"Ready": said, "SpecApplied": said, "Suspended": _suspended(backup)}
    if backup.drill:
        conditions["Drilled"] = said
    return {**backup.status, "conditions": written(backup.status, backup.generation, conditions)}


def _suspended(backup: BackupResource) -> Said:
    return backup.is_suspended, "Suspended" if backup.is_suspended else "NotSuspended", ""


def is_same(backup: BackupResource, made: Object) -> bool:
    """Whether a new status need not be written.

    A continuous backup succeeds all the time: its success may be a little later than written.
    """
    before = backup.status
    if _still(made) != _still(before):
        return False
    if backup.schedule:
        return all(made.get(name) == before.get(name) for name in _MOVING)
    return _is_close(made, before)


def news(earlier: Object, made: Object) -> list[tuple[str, str, str]]:
    """The Events of a new status: types, reasons and texts. One for each reason that is new.

    Further texts of a failure are further Events, such as that of each Job.
    """
    known = {_said(each) for each in earlier.get("conditions") or ()}
    found: dict[tuple[str, str], str] = {}
    for each in made["conditions"]:
        is_failure = each["status"] == "False" and each["reason"] not in _CALM
        is_success = each["reason"] in _SUCCESSES and (each["reason"], "") not in known
        if is_failure and _said(each) not in known:
            found[each["reason"], each["message"]] = "Warning"
        elif is_success:
            found[each["reason"], each["message"]] = "Normal"
    return [(kind, reason, text) for (reason, text), kind in found.items()]


def _said(condition: Object) -> tuple[str, str]:
    return condition.get("reason") or "", condition.get("message") or ""


def _still(status: Object) -> Object:
    return {name: v for name, v in status.items() if v is not None and name not in _MOVING}


def _is_close(one: Object, other: Object) -> bool:
    times = [status.get("lastSuccess") for status in (one, other)]
    if None in times:
        return times[0] == times[1]
    first, second = (dt.datetime.fromisoformat(str(each)) for each in times)
    return abs((second - first).total_seconds()) < LATE_S


def _spec_applied(plan: BackupPlan, failure: str) -> Said:
    if failure:
        return False, BackupReason.APPLY_REJECTED.value, failure
    if plan.reason is not None:
        return False, plan.reason.value, plan.text
    if plan.action is not None:
        return False, "Applying", type(plan.action).__name__
    return True, "AsWanted", ""


def _ready(backup: BackupResource, observed: BackupObserved, plan: BackupPlan) -> Said:
    if plan.reason is not None:
        return False, plan.reason.value, plan.text
    if backup.is_suspended:
        return False, "Suspended", "spec.suspend is set: no backups run"
    if backup.schedule:
        return _by_last_run(observed.runs, "LastRunSucceeded", "BackupFailing")
    page = observed.page
    if page is None:
        if observed.pod_problem:
            return False, "PodNotRunning", observed.pod_problem
        return None, "NoAnswer", "the pod does not answer"
    if page.error:
        return False, "BackupFailing", page.error
    return True, "BackingUp", ""


def _by_last_run(runs: Sequence[JobRun], succeeded: str, failing: str) -> Said:
    """A condition that is True if the last run that has ended succeeded. The rest: its reasons."""
    last = _last_ended(runs)
    running = runs[-1] if runs and runs[-1].succeeded is None else None
    if running is not None and running.message:
        return False, failing, f"Job/{running.name}: {running.message}"
    if last is None:
        return None, "NoRunYet", "" if running is None else f"Job/{running.name} is the first one"
    if last.succeeded:
        return True, succeeded, ""
    return False, failing, f"Job/{last.name}: {last.message}"


def _last_ended(runs: Sequence[JobRun]) -> JobRun | None:
    return next((run for run in reversed(runs) if run.succeeded is not None), None)


def _drilled(backup: BackupResource, observed: BackupObserved) -> Said:
    said = _by_last_run(observed.drills, "DrillSucceeded", "DrillFailing")
    other = _other_cluster(backup, observed) if said[0] else ""
    return (False, OTHER_CLUSTER, other) if other else said


def _other_cluster(backup: BackupResource, observed: BackupObserved) -> str:
    """What to say if the last drill restored an archive of another cluster; "" if it did not."""
    run = _last_ended(observed.drills)
    if run is None or not run.succeeded or observed.quorum is None:
        return ""
    known, begin = observed.quorum.known_cluster_id, f"Job/{run.name}: "
    try:
        found = str(json.loads(run.message)["clusterId"])[:64]
    except UNREADABLE:
        # The pod, whose message it was, is gone, or an older image says no id.
        before = (
            each for each in backup.status.get("conditions") or () if each["type"] == "Drilled"
        )
        reason, message = _said(next(before, {}))
        return message if reason == OTHER_CLUSTER and message.startswith(begin) else ""
    if not known or found == known:
        return ""
    return (
        f"{begin}the archive can be restored, but it is the backup of cluster {found}, and "
        f"Quorum/{observed.quorum.name} is cluster {known}"
    )


def _last_success(backup: BackupResource, observed: BackupObserved, now: dt.datetime) -> Object:
    """Return the status fields of a newer success, if there is one."""
    if backup.schedule:
        return _of_run(next((run for run in reversed(observed.runs) if run.succeeded), None))
    page = observed.page
    if page is None or page.success_age_s is None:
        return {}
    at = now - dt.timedelta(seconds=page.success_age_s)
    found: Object = {"lastSuccess": at.strftime("%Y-%m-%dT%H:%M:%SZ")}
    if page.end is not None:
        found |= {"lastOffset": page.end, "clusterId": page.cluster_id}
    return found


def _last_drill(backup: BackupResource, observed: BackupObserved) -> Object:
    """Return the status field of the last drill, if it succeeded."""
    run = _last_ended(observed.drills)
    if run is None or not run.succeeded or _other_cluster(backup, observed):
        return {}
    if not run.ended:
        return {}
    found: Object = {"time": run.ended}
    known = backup.status.get("lastDrill") or {}
    try:
        said: Any = json.loads(run.message)
        found |= {"endOffset": int(said["endOffset"]), "seconds": int(said["seconds"])}
    except UNREADABLE:
        if known.get("time") == run.ended:
            return {}  # the pod, whose message it was, is gone
    return {"lastDrill": found}


def _of_run(run: JobRun | None) -> Object:
    if run is None or not run.ended:
        return {}
    found: Object = {"lastSuccess": run.ended}
    try:
        said: Any = json.loads(run.message)
        found |= {"lastOffset": int(said["endOffset"]), "clusterId": str(said["clusterId"])[:64]}
    except UNREADABLE:
        pass  # an older image reports nothing
    return found
