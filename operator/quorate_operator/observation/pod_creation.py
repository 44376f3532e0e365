"""Pods that the API server rejects, such as for a quota or by an admission webhook.

The StatefulSet controller reports them in Events only: its status says nothing about them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from quorate_operator.kube.api import Kube, KubeError
from quorate_operator.naming import Object
from quorate_operator.planning.values import RejectedPod

FAILED_CREATE = "FailedCreate"
"""The reason of the Event about a pod that could not be created."""
_CREATION = re.compile(r"Pod (\S+) in StatefulSet \S+ (?:successful|failed error: (.*))", re.DOTALL)
"""Matches the messages. Source: Kubernetes, pkg/controller/statefulset/stateful_pod_control.go."""


def rejected_pods(
    kube: Kube, stateful_set: Object, missing: Mapping[str, int]
) -> tuple[RejectedPod, ...]:
    """Return which missing pods were rejected. missing: their ordinals by name. Raises KubeError.

    Without the permission to list Events, there are none.
    """
    if not missing:
        return ()
    metadata = stateful_set["metadata"]
    uid = metadata["uid"]
    try:
        events = kube.list("Event", metadata["namespace"], fields=f"involvedObject.uid={uid}")
    except KubeError as error:
        if error.status != 403:
            raise
        return ()
    errors = creation_errors(events, uid)
    return tuple(RejectedPod(n, errors[name]) for name, n in missing.items() if name in errors)


def creation_errors(events: Iterable[Object], uid: str) -> dict[str, str]:
    """Why the pods of a StatefulSet could not be created, by name, from its Events.

    A pod is left out if its last creation succeeded. The message is that of the API server, such as
    that of an exceeded quota or of an admission webhook.
    """
    found: dict[str, tuple[str, str]] = {}
    for event in events:
        about = event.get("involvedObject") or {}
        match = _CREATION.search(str(event.get("message") or ""))
        if match is None or about.get("uid") != uid:
            continue
        at, (name, error) = _last_seen(event), match.groups()
        if at >= found.get(name, ("", ""))[0]:
            found[name] = (at, error or "")
    return {name: error for name, (_, error) in found.items() if error}


def _last_seen(event: Object) -> str:
    """When an Event was last recorded. Timestamps compare as text."""
    metadata = event.get("metadata") or {}
    return str(event.get("lastTimestamp") or metadata.get("creationTimestamp") or "")
