"""Observes one QuorumBackup: its Kubernetes objects, and what a continuous backup says of itself.

Reads only. Nothing is decided by what a pod says: it only becomes part of the status.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from quorate_operator import naming
from quorate_operator.backups.manifests import selector_text
from quorate_operator.backups.plan import BackupObserved, BackupPage
from quorate_operator.backups.resource import DRILL, MODE_LABEL, BackupResource
from quorate_operator.kube.api import Kube
from quorate_operator.kube.job_state import JobRun, created, job_run
from quorate_operator.kube.ownership import conflict, is_controlled_by
from quorate_operator.kube.pod_state import pod_ip, pod_problem
from quorate_operator.naming import HTTP_PORT, Object
from quorate_operator.objects.resource import QuorumResource
from quorate_operator.observation.given_secrets import unlabelled
from quorate_operator.observation.owned import labels_of
from quorate_operator.observation.progress import read_page

TEXT_CHARACTERS_MAX = 500
LocatePod = Callable[[Object], tuple[str, int]]
"""Returns the host, "" if it has none yet, and the port of a pod's pages."""


def place_of(pod: Object) -> tuple[str, int]:
    return pod_ip(pod), HTTP_PORT


@dataclass(frozen=True, slots=True)
class BackupSnapshot:
    """A backup's state as it was read."""

    observed: BackupObserved
    """The input of the plan."""
    pod: Object | None = None
    """The pod of a continuous backup, None without one."""


class BackupObserver:
    """Observes QuorumBackups. Its methods block. images: the allowed repositories; empty: any."""

    def __init__(
        self, kube: Kube, images: Collection[str] = (), locate: LocatePod = place_of
    ) -> None:
        self._kube = kube
        self._images = images
        self._locate = locate

    def read(self, backup: BackupResource) -> BackupSnapshot:
        """Read the Kubernetes objects. Raises KubeError."""
        kube, namespace = self._kube, backup.namespace
        found = kube.get("Quorum", namespace, backup.quorum_name) if backup.quorum_name else None
        quorum = None if found is None else QuorumResource.parse(found)
        conflicts: list[str] = []
        workload = self._own(backup, *backup.workload, conflicts)
        other = self._own(backup, *backup.other_workload, [])
        drill = self._own(backup, *backup.drill_job, conflicts if backup.drill else [])
        pods = kube.list("Pod", namespace, selector_text(backup))
        by_mode = _by_mode(pods, backup.mode)
        jobs: list[Object] = []
        if backup.schedule or drill is not None:
            jobs = kube.list("Job", namespace, selector_text(backup))
        observed = BackupObserved(
            quorum=quorum,
            forbidden=() if quorum is None else tuple(self._forbidden(backup, quorum)),
            conflicts=tuple(conflicts),
            workload=workload,
            has_other=other is not None,
            other_pods=tuple(sorted(p["metadata"]["name"] for p in by_mode.other if _runs(p))),
            drill=drill,
            drills=_runs_of(drill, jobs, by_mode.drills),
        )
        if backup.schedule:
            runs = _runs_of(workload, jobs, by_mode.own)
            return BackupSnapshot(replace(observed, runs=runs))
        pod = max((pod for pod in by_mode.own if _is_wanted(pod)), key=created, default=None)
        return BackupSnapshot(replace(observed, pod_problem=_problem(pod)), pod)

    def poll(self, seen: BackupSnapshot) -> BackupSnapshot:
        """Ask a continuous backup for its state, without a request to the API server."""
        host, port = ("", 0) if seen.pod is None else self._locate(seen.pod)
        text = read_page(host, port, "/status") if host else None
        return replace(seen, observed=replace(seen.observed, page=parse_page(text or "")))

    def _own(
        self, backup: BackupResource, kind: str, name: str, conflicts: list[str]
    ) -> Object | None:
        """The backup's own object of that name. A foreign one is added to `conflicts`."""
        found = self._kube.get(kind, backup.namespace, name)
        if found is None or is_controlled_by(found, backup.uid):
            return found
        conflicts.append(conflict(kind, found, backup.name, backup.kind))
        return None

    def _forbidden(self, backup: BackupResource, quorum: QuorumResource) -> Iterable[str]:
        """Yield messages about what the backup may not use (`destination`)."""
        if not naming.is_allowed(quorum.image, self._images):
            yield f"the image {quorum.image} of the Quorum is not from an allowed repository"
        given = list(backup.destination.objects)
        if quorum.is_tls:
            given.append(("Secret", backup.client_secret))
        for kind, name in given:
            found = self._kube.get(kind, backup.namespace, name)
            if found is None or not is_controlled_by(found, quorum.uid):
                yield from unlabelled(quorum, kind, {name: found})


class _Pods(NamedTuple):
    """The pods of a QuorumBackup: those of its mode, those of its drills, and the others."""

    own: list[Object]
    drills: list[Object]
    other: list[Object]


def _by_mode(pods: Iterable[Object], mode: str) -> _Pods:
    found = _Pods([], [], [])
    places = {mode: found.own, DRILL: found.drills}
    for pod in pods:
        places.get(labels_of(pod).get(MODE_LABEL, ""), found.other).append(pod)
    return found


def _runs_of(cron_job: Object | None, jobs: list[Object], pods: list[Object]) -> tuple[JobRun, ...]:
    """The Jobs of a CronJob, the newest last. pods: those of the Jobs, and others."""
    if cron_job is None:
        return ()
    uid = cron_job["metadata"]["uid"]
    return tuple(
        job_run(job, pods) for job in sorted(jobs, key=created) if is_controlled_by(job, uid)
    )


def _is_wanted(pod: Object) -> bool:
    return not pod["metadata"].get("deletionTimestamp")


def _runs(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def _problem(pod: Object | None) -> str:
    if pod is None:
        return "the Deployment has no pod yet"
    found = pod_problem(pod)
    return f"pod {pod['metadata']['name']}: {found}" if found else ""


def parse_page(text: str) -> BackupPage | None:
    """The page of a continuous backup; None if it is not one."""
    try:
        found: Any = json.loads(text)
        age = found["secondsSinceSuccess"]
        end = found["endOffset"]
        return BackupPage(
            None if end is None else int(end),
            str(found["clusterId"] or "")[:TEXT_CHARACTERS_MAX],
            None if age is None else float(age),
            str(found["error"] or "")[:TEXT_CHARACTERS_MAX],
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
