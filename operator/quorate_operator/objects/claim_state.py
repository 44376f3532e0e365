"""The state of a volume claim, as the storage driver and the kubelet report it.

A claim is expanded in two steps: the driver enlarges the volume, then the kubelet enlarges the file
system in it, while the pod runs or, with some drivers, when it starts.

Source: Kubernetes, "Persistent Volumes", "Expanding Persistent Volumes Claims".
"""

from __future__ import annotations

import datetime as dt

from kubernetes.utils.quantity import parse_quantity

from quorate_operator.naming import Object
from quorate_operator.planning.values import ObservedClaim

RESTART_AFTER_S = 300.0
"""A file system that has not grown by itself after this time grows when its pod is restarted."""
FILE_SYSTEM_PENDING = "FileSystemResizePending"


def bytes_of(quantity: str) -> int:
    """The bytes of a quantity such as 10Gi; 0 if it is not a quantity."""
    try:
        return int(parse_quantity(quantity))  # type: ignore[no-untyped-call]
    except ValueError:
        return 0


def observed_claim(ordinal: int, claim: Object, pod: Object | None) -> ObservedClaim | None:
    """The state of a claim, None while it is being deleted. pod: its pod."""
    status, spec = claim.get("status") or {}, claim.get("spec") or {}
    capacity = str((status.get("capacity") or {}).get("storage") or "")
    requests = spec.get("resources", {}).get("requests", {})
    if claim["metadata"].get("deletionTimestamp"):
        return None
    return ObservedClaim(
        ordinal,
        requested=bytes_of(requests.get("storage", capacity)),
        capacity=bytes_of(capacity),
        size=capacity,
        problem="; ".join(map(_shown, _true_conditions(claim))),
        needs_restart=pod is not None and _needs_restart(claim, pod),
        name=claim["metadata"]["name"],
        storage_class=str(spec.get("storageClassName") or ""),
        is_bound=bool(capacity or spec.get("volumeName")),
    )


def _true_conditions(claim: Object) -> list[Object]:
    conditions = (claim.get("status") or {}).get("conditions") or ()
    return [each for each in conditions if each.get("status") == "True"]


def _shown(condition: Object) -> str:
    return f"{condition['type']}: {condition.get('message') or ''}".rstrip(": ")


def _needs_restart(claim: Object, pod: Object) -> bool:
    """Whether the file system waits for a restart of the pod; once the pod started, no more."""
    started = str((pod.get("status") or {}).get("startTime") or "")
    for each in _true_conditions(claim):
        since = str(each.get("lastTransitionTime") or "")
        if each["type"] == FILE_SYSTEM_PENDING and since and started:
            at = dt.datetime.fromisoformat(since)
            age_s = (dt.datetime.now(dt.UTC) - at).total_seconds()
            return age_s >= RESTART_AFTER_S and dt.datetime.fromisoformat(started) <= at
    return False
