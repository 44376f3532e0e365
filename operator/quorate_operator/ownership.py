"""Whose an object is, and who owns which of its fields in the eyes of server-side apply.

An object belongs to a Quorum if the Quorum's UID is that of its controller. Any other object of the
same name is somebody else's: it is neither used, changed nor deleted.

A field goes away when its only owner applies the object without it. Who created an object
owns all that it was created with, so what the operator leaves out later would stay for ever:
the ownership of everything but the replicas is handed over to who applies, once.

Source: Kubernetes, "Server-Side Apply", "Upgrading from client-side apply to server-side apply".
"""

from __future__ import annotations

from typing import Any

from quorate_operator.naming import KIND

Object = dict[str, Any]
SPEC, REPLICAS = "f:spec", "f:replicas"


def controller_of(found: Object) -> Object | None:
    """The owner that controls an object."""
    owners = found["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def is_controlled_by(found: Object, uid: str) -> bool:
    """Whether the object with this UID controls another."""
    controller = controller_of(found)
    return bool(uid) and controller is not None and controller.get("uid") == uid


def conflict(kind: str, found: Object, quorum: str) -> str:
    """What to say of an object that has the name of a Quorum's, and is not its own."""
    name = found["metadata"]["name"]
    controller = controller_of(found)
    if controller is None:
        whose = f"is not controlled by Quorum {quorum}"
    elif (controller.get("kind"), controller.get("name")) == (KIND, quorum):
        return f"{kind}/{name} belongs to a deleted Quorum {quorum}: wait until it is gone"
    else:
        whose = f"is controlled by {controller.get('kind')}/{controller.get('name')}"
    return f"{kind}/{name} exists and {whose}: delete or rename it, or rename the Quorum"


def handed_over(entries: list[Object], creator: str, manager: str) -> list[Object]:
    """An object's managedFields as they should be; equal to `entries` if they are."""
    created = next((e for e in entries if _is(e, creator, "Update")), None)
    if created is None:
        return entries
    fields: Object = created.get("fieldsV1") or {}
    spec: Object = fields.get(SPEC) or {}
    kept = {name: value for name, value in spec.items() if name == REPLICAS}
    rest = {name: value for name, value in spec.items() if name != REPLICAS}
    given = {name: value for name, value in fields.items() if name != SPEC}
    given |= {SPEC: rest} if rest else {}
    if not given:
        return entries
    result = []
    applied: Object = {**created, "manager": manager, "operation": "Apply", "fieldsV1": {}}
    for entry in entries:
        if _is(entry, manager, "Apply"):
            applied = entry
        elif entry is not created:
            result.append(entry)
    result.append({**applied, "fieldsV1": _union(applied["fieldsV1"], given)})
    if kept:
        result.append({**created, "fieldsV1": {SPEC: kept}})
    return result


def _is(entry: Object, manager: str, operation: str) -> bool:
    said = (entry.get("manager"), entry.get("operation"), entry.get("subresource") or "")
    return said == (manager, operation, "")


def _union(one: Object, other: Object) -> Object:
    """Sets of fields, as nested objects."""
    result = dict(one)
    for name, value in other.items():
        result[name] = _union(result.get(name) or {}, value)
    return result
