"""The state of a Job, and the message of its last pod."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from quorate_operator.kube.ownership import is_controlled_by
from quorate_operator.kube.pod_state import last_message, pod_failure
from quorate_operator.naming import Object


@dataclass(frozen=True, slots=True)
class JobRun:
    """One Job."""

    name: str
    succeeded: bool | None = None
    """Whether the Job succeeded, None while it runs."""
    ended: str = ""
    """When the Job ended, "" while it runs."""
    message: str = ""
    """What the Job's pod reported at its end, or why it fails."""


def created(found: Object) -> tuple[str, str]:
    """A key that sorts objects by their age, the newest last."""
    metadata = found["metadata"]
    return metadata.get("creationTimestamp") or "", metadata["name"]


def job_run(job: Object, pods: Iterable[Object]) -> JobRun:
    """The state of a Job. pods: any pods; those of the Job are among them."""
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    mine = [pod for pod in pods if is_controlled_by(pod, uid)]
    pod = max(mine, key=created, default=None)
    failed = "" if pod is None else pod_failure(pod)
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition.get("status") != "True":
            continue
        ended = str(condition.get("lastTransitionTime") or "")
        if condition["type"] == "Complete":
            return JobRun(name, True, ended, "" if pod is None else last_message(pod))
        if condition["type"] == "Failed":
            return JobRun(name, False, ended, failed or str(condition.get("message") or ""))
    return JobRun(name, message=failed)
