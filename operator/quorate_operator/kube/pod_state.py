"""The state of a pod, as the kubelet and the StatefulSet controller report it."""

from __future__ import annotations

import datetime as dt
import math
import re

from quorate_operator.naming import Object

WRONG_ENSEMBLE = re.compile(r"zookeeper\.connect=\S+: /cluster/id\b.*")
"""Matches the last line of a controller that exits because ZooKeeper holds another cluster."""
PROVEN_S = 20.0
"""A restarted controller that has run for this long has found the right cluster."""
STARTING = ("ContainerCreating", "PodInitializing")
"""The reasons of a container that waits because it is being started."""


def pod_ip(pod: Object) -> str:
    return str((pod.get("status") or {}).get("podIP") or "")


def is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def is_pending(stateful_set: Object | None) -> bool:
    """Whether the StatefulSet controller has not observed the last change yet."""
    if stateful_set is None:
        return False
    observed = (stateful_set.get("status") or {}).get("observedGeneration", 0)
    return bool(observed < stateful_set["metadata"].get("generation", 0))


def update_revision(stateful_set: Object | None) -> str:
    """The revision of the template of new pods, once it is observed; "" before."""
    if stateful_set is None or is_pending(stateful_set):
        return ""
    return str((stateful_set.get("status") or {}).get("updateRevision") or "")


def keeps_volumes(stateful_set: Object | None) -> bool:
    """Whether the volumes of pods that a smaller size removes are provably kept."""
    return _retains(stateful_set, "whenScaled")


def outlives_set(stateful_set: Object | None) -> bool:
    """Whether the volumes are provably kept when the StatefulSet is deleted."""
    return _retains(stateful_set, "whenDeleted")


def _retains(stateful_set: Object | None, when: str) -> bool:
    if stateful_set is None or is_pending(stateful_set):
        return False
    policy = stateful_set["spec"].get("persistentVolumeClaimRetentionPolicy") or {}
    return bool(policy.get(when, "Retain") == "Retain")


def is_outdated(pod: Object, stateful_set: Object | None) -> bool:
    """Whether the pod's template is older than the update revision, once that is observed."""
    expected = update_revision(stateful_set)
    revision = (pod["metadata"].get("labels") or {}).get("controller-revision-hash")
    return bool(expected) and revision != expected


def last_message(pod: Object) -> str:
    """What a container's process wrote when it last ended, with success or not; else ""."""
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        states = container.get("state") or {}, container.get("lastState") or {}
        for state in states:
            message = (state.get("terminated") or {}).get("message")
            if message:
                return str(message).strip()
    return ""


def _last_words(pod: Object, remembered_s: float = 0.0) -> str:
    """Return the last line of a container's process that exited with an error; else "".

    The line is ignored once the restarted process has run for `remembered_s` seconds.
    """
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        now, before = container.get("state") or {}, container.get("lastState") or {}
        if "running" in now and _age_s(now["running"].get("startedAt")) >= remembered_s:
            continue
        ended = now.get("terminated") or before.get("terminated") or {}
        lines = str(ended.get("message") or "").strip().splitlines()
        if ended.get("exitCode") and lines:
            return lines[-1]
    return ""


def wrong_ensemble(pod: Object) -> str:
    found = WRONG_ENSEMBLE.search(_last_words(pod, PROVEN_S))
    return found.group() if found else ""


def _age_s(at: str | None) -> float:
    """Return the seconds since a timestamp of the API server; infinity if it is unknown."""
    if not at:
        return math.inf
    return (dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(at)).total_seconds()


def pod_failure(pod: Object) -> str:
    """What keeps a pod from running and does not end by waiting; "" if nothing does.

    The text has the container, its state and the message, or why the pod has no machine.
    """
    status = pod.get("status") or {}
    words = _last_words(pod)
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") and waiting["reason"] not in STARTING:
            reason = f"{waiting['reason']}: {words or waiting.get('message', '')}".rstrip(": ")
            return f"{_named(container)}{reason}{_last_exit(container)}"
        if words:
            return f"{_named(container)}{words}"
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"{condition.get('reason', '')}: {condition.get('message', '')}".rstrip(": ")
    return (
        f"{status['reason']}: {status.get('message', '')}".rstrip(": ")
        if (status.get("reason"))
        else ""
    )


def _named(container: Object) -> str:
    return f"container {container['name']}: " if container.get("name") else ""


def _last_exit(container: Object) -> str:
    """How a container's last process ended, if its message does not say so; else ""."""
    ended = (container.get("lastState") or {}).get("terminated") or {}
    if not ended.get("exitCode") or ended.get("message"):
        return ""
    return f" (last exit: {ended.get('reason', 'Error')}, code {ended['exitCode']})"


def pod_problem(pod: Object) -> str:
    """Why a pod does not run, in a few words; empty if it does."""
    phase = (pod.get("status") or {}).get("phase")
    return pod_failure(pod) or ("" if phase == "Running" else f"the pod is {phase}")
