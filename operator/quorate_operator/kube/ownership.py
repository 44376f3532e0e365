"""The owner of an object, and the managers that own its fields under server-side apply.

An object belongs to a Quorum if the Quorum's UID is that of its controller. Any other object of the
same name is foreign: the operator neither uses, changes nor deletes it.

Server-side apply removes a field when its only manager applies the object without it. The manager
that creates an object owns all of its fields, so a field that the operator leaves out later would
stay forever. Therefore the operator hands the ownership of everything but the replicas over to the
manager that applies, once.

Source: Kubernetes, "Server-Side Apply", "Upgrading from client-side apply to server-side apply".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from quorate_operator.naming import KIND, Object

SPEC, REPLICAS = "f:spec", "f:replicas"


def controller_of(found: Object) -> Object | None:
    """The owner reference of an object's controller; None without one."""
    owners = found["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def is_controlled_by(found: Object, uid: str) -> bool:
    """Whether an object's controller has this UID."""
    controller = controller_of(found)
    return bool(uid) and controller is not None and controller.get("uid") == uid


def conflict(kind: str, found: Object, owner: str, owner_kind: str = KIND) -> str:
    """The message about a foreign object that has the name of one of the owner's objects."""
    name = found["metadata"]["name"]
    controller = controller_of(found)
    if controller is None:
        whose = f"is not controlled by {owner_kind} {owner}"
    elif (controller.get("kind"), controller.get("name")) == (owner_kind, owner):
        return f"{kind}/{name} belongs to a deleted {owner_kind} {owner}: wait until it is gone"
    else:
        whose = f"is controlled by {controller.get('kind')}/{controller.get('name')}"
    return f"{kind}/{name} exists and {whose}: delete or rename it, or rename the {owner_kind}"


def handed_over(entries: list[Object], creator: str, manager: str) -> list[Object]:
    """The managedFields after the handover; equal to `entries` if none is needed."""
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
    """The union of two sets of fields, which are nested objects."""
    result = dict(one)
    for name, value in other.items():
        result[name] = _union(result.get(name) or {}, value)
    return result


def last_manager(found: Object, annotation: str, own: Collection[str]) -> str:
    """The manager that changed an object last, if it is none of `own`; "" if that is unknown.

    It owns the annotation, or has changed other fields since one of `own` changed some.
    """
    entries = [e for e in found["metadata"].get("managedFields") or () if not e.get("subresource")]
    others = [each for each in entries if each.get("manager") not in own]
    path = ("f:metadata", "f:annotations", f"f:{annotation}")
    owners = [each for each in others if _has(each.get("fieldsV1") or {}, path)]
    applied_at = max((_time(each) for each in entries if each not in others), default="")
    later = [each for each in others if _time(each) >= applied_at and _time(each)]
    last = max(owners or later, key=_time, default=None)
    return "" if last is None else str(last.get("manager") or "")


def _has(fields: Object, path: Iterable[str]) -> bool:
    for name in path:
        if name not in fields:
            return False
        fields = fields[name]
    return True


def _time(entry: Object) -> str:
    """When an entry changed. Timestamps compare as text."""
    return str(entry.get("time") or "")
