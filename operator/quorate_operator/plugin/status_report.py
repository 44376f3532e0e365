"""What `kubectl quorate status` shows: the operator's status, pods, volumes and Events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from quorate_operator import naming
from quorate_operator.kube.api import Kube
from quorate_operator.kube.pod_state import is_ready, pod_problem
from quorate_operator.naming import Object
from quorate_operator.objects.made import size_of
from quorate_operator.objects.resource import QuorumResource
from quorate_operator.observation.owned import by_ordinal

EVENTS = 10
"""The number of Events that are shown."""
CONDITIONS_OF_TROUBLE = ("Degraded", "DataLossRisk", "Conflict", "Hibernated", "Fenced", "Paused")
"""Conditions that are shown as text only while they are True or Unknown; JSON has all."""


def report(kube: Kube, quorum: QuorumResource) -> Object:
    """The state of a Quorum. Raises KubeError.

    `members` has an entry for each pod, volume and reported node. Absent values are None.
    """
    namespace, status = quorum.namespace, quorum.status
    selector = naming.selector_text(quorum.name)
    pods = by_ordinal(quorum.name, kube.list("Pod", namespace, selector))
    claims = by_ordinal(
        f"{naming.VOLUME}-{quorum.name}", kube.list("PersistentVolumeClaim", namespace, selector)
    )
    reported = {
        quorum.ids.ordinal(int(each["nodeId"])): each for each in status.get("members") or ()
    }
    ordinals = {*pods, *claims, *(each for each in reported if each is not None)}
    return {
        "name": quorum.name,
        "namespace": namespace,
        "replicas": quorum.replicas,
        "voters": status.get("voters"),
        "leader": status.get("leader"),
        "clusterId": status.get("clusterId"),
        "action": status.get("currentAction"),
        "operator": status.get("operator"),
        "isCurrent": status.get("observedGeneration") == quorum.generation,
        "members": [
            _member(quorum, n, reported.get(n), pods.get(n), claims.get(n))
            for n in sorted(ordinals)
        ],
        "conditions": status.get("conditions") or [],
        "events": [*_events(kube, quorum)],
    }


def _member(
    quorum: QuorumResource,
    ordinal: int,
    reported: Object | None,
    pod: Object | None,
    claim: Object | None,
) -> Object:
    known = reported or {}
    return {
        "name": naming.pod(quorum.name, ordinal),
        "nodeId": quorum.ids.of(ordinal),
        "role": known.get("role"),
        "lag": known.get("lag"),
        "version": known.get("version"),
        "pod": None if pod is None else _pod(pod),
        "volume": None if claim is None else _volume(claim),
    }


def _pod(pod: Object) -> Object:
    containers = (pod.get("status") or {}).get("containerStatuses") or ()
    state = "Ready" if is_ready(pod) else pod_problem(pod) or "Running, not ready"
    return {
        "state": "Terminating" if pod["metadata"].get("deletionTimestamp") else state,
        "restarts": sum(int(each.get("restartCount") or 0) for each in containers),
        "machine": (pod.get("spec") or {}).get("nodeName"),
    }


def _volume(claim: Object) -> Object:
    spec, status = claim.get("spec") or {}, claim.get("status") or {}
    return {
        "claim": claim["metadata"]["name"],
        "phase": status.get("phase"),
        "size": (status.get("capacity") or {}).get("storage"),
        "requested": size_of(spec) or None,
        "storageClassName": spec.get("storageClassName"),
    }


def _events(kube: Kube, quorum: QuorumResource) -> Iterator[Object]:
    """Yield the last Events, the latest one last."""
    fields = f"involvedObject.kind={naming.KIND},involvedObject.name={quorum.name}"
    found = kube.list("Event", quorum.namespace, fields=fields)
    own = [each for each in found if (each.get("involvedObject") or {}).get("uid") == quorum.uid]
    for each in sorted(own, key=lambda e: str(e.get("lastTimestamp") or ""))[-EVENTS:]:
        yield {
            "at": each.get("lastTimestamp"),
            "type": each.get("type"),
            "reason": each.get("reason"),
            "count": each.get("count"),
            "message": each.get("message"),
        }


# --- as text --------------------------------------------------------------------------------------


def text(found: Object) -> str:
    """The report for people."""
    leader = found["leader"]
    led = f"node {leader['id']} in epoch {leader['epoch']}" if leader else "none"
    lines = [
        f"Quorum {found['name']} in namespace {found['namespace']}",
        f"  Voters   {_shown(found['voters'])}, {found['replicas']} wanted",
        f"  Leader   {led}",
        f"  Cluster  {_shown(found['clusterId'])}",
        f"  Action   {found['action'] or 'none'}",
        f"  Operator {_shown(found['operator'])}",
    ]
    if not found["isCurrent"]:
        lines.append("  The operator has not observed the last change of the spec yet.")
    lines += ["", *_table(MEMBER_HEADER, map(_member_row, found["members"]))]
    conditions = (c for c in found["conditions"] if _is_shown(c))
    lines += [
        "",
        *_table(("CONDITION", "STATUS", "REASON", "MESSAGE"), map(_condition, conditions)),
    ]
    events = ((e["at"], e["reason"], _with_count(e)) for e in found["events"])
    lines += ["", *_table(("EVENT", "REASON", "MESSAGE"), events)]
    return "\n".join(lines)


MEMBER_HEADER = (
    *("MEMBER", "NODE", "ROLE", "LAG", "VERSION", "RESTARTS", "MACHINE"),
    *("VOLUME", "CLASS", "POD"),
)


def _member_row(member: Object) -> tuple[object, ...]:
    pod, volume = member["pod"] or {}, member["volume"] or {}
    size, wanted = volume.get("size"), volume.get("requested")
    return (
        *(member[name] for name in ("name", "nodeId", "role", "lag", "version")),
        pod.get("restarts"),
        pod.get("machine"),
        size if size == wanted else f"{_shown(size)} of {wanted}",
        volume.get("storageClassName"),
        pod.get("state"),
    )


def _is_shown(condition: Object) -> bool:
    return condition["type"] not in CONDITIONS_OF_TROUBLE or condition["status"] != "False"


def _condition(condition: Object) -> tuple[object, ...]:
    return tuple(condition.get(name) for name in ("type", "status", "reason", "message"))


def _with_count(event: Object) -> str:
    count = event["count"] or 1
    return f"{event['message']} ({count} times)" if count > 1 else str(event["message"])


def _shown(value: object) -> str:
    """One line; what is absent is a hyphen."""
    return "-" if value in (None, "") else " ".join(str(value).split())


def _table(header: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> list[str]:
    """The lines of a table; one line without rows."""
    cells = [[_shown(value) for value in row] for row in rows]
    if not cells:
        return [f"{header[0]}: none"]
    cells.insert(0, [*header])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
