"""Who owns which field of an object, in the eyes of server-side apply.

A field goes away when its only owner applies the object without it. Who created the StatefulSet
owns all that it was created with, so what the operator leaves out later would stay for ever:
the ownership of everything but the replicas is handed over to who applies, once.

Source: Kubernetes, "Server-Side Apply", "Upgrading from client-side apply to server-side apply".
"""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]
SPEC, REPLICAS = "f:spec", "f:replicas"


def handed_over(entries: list[Object], creator: str, manager: str) -> list[Object]:
    """An object's managedFields as they should be; equal to `entries` if they are."""
    created = next((e for e in entries if _is(e, creator, "Update")), None)
    if created is None:
        return entries
    fields: Object = created.get("fieldsV1") or {}
    spec: Object = fields.get(SPEC) or {}
    kept = {name: value for name, value in spec.items() if name == REPLICAS}
    given = {**fields, SPEC: {name: value for name, value in spec.items() if name != REPLICAS}}
    if given == {SPEC: {}}:
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
