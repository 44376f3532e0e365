"""What the StatefulSet that exists determines in its own manifest.

Its claim templates cannot be changed. A manifest with another size or StorageClass would be
rejected, and with it every other change of the template. The members that it fences stay fenced:
the plan decides when that changes (`fencing`). Its size keeps the outside Services of surplus
nodes.
"""

from __future__ import annotations

from dataclasses import replace

from quorate_operator import naming
from quorate_operator.naming import Object
from quorate_operator.objects.claim_state import bytes_of
from quorate_operator.objects.resource import QuorumResource


def claims_of(stateful_set: Object | None) -> Object:
    """The spec of the StatefulSet's claims, {} without one."""
    spec = {} if stateful_set is None else stateful_set["spec"]
    templates = spec.get("volumeClaimTemplates") or [{}]
    found: Object = templates[0].get("spec") or {}
    return found


def size_of(claim: Object) -> str:
    """The size that the spec of a claim requests, "" without one."""
    return str(((claim.get("resources") or {}).get("requests") or {}).get("storage") or "")


def class_of(claim: Object) -> str:
    """The StorageClass in the spec of a claim, "" for the cluster's default."""
    return str(claim.get("storageClassName") or "")


def fenced_in(pod: Object | None, quorum: str) -> frozenset[int]:
    """The ordinals that the spec of a pod names as fenced."""
    variables = (
        variable
        for container in (pod or {}).get("containers") or ()
        for variable in container.get("env") or ()
    )
    found = (each.get("value") for each in variables if each["name"] == naming.FENCED_VARIABLE)
    return naming.ordinals_of(quorum, next(found, None) or "")


def fenced_by(stateful_set: Object | None, quorum: str) -> frozenset[int]:
    """The ordinals that the template of a StatefulSet fences."""
    template = {} if stateful_set is None else stateful_set["spec"].get("template") or {}
    return fenced_in(template.get("spec"), quorum)


def as_made(quorum: QuorumResource, stateful_set: Object | None) -> QuorumResource:
    """The Quorum with the StatefulSet's size, claims and fenced members."""
    size = 0 if stateful_set is None else int(stateful_set["spec"].get("replicas") or 0)
    quorum = replace(quorum, fenced=fenced_by(stateful_set, quorum.name), size=size)
    if stateful_set is None:
        return quorum
    claim, made = claims_of(stateful_set), {}
    # The API server writes equal quantities in one form, such as 1Gi for 1024Mi.
    if size_of(claim) and bytes_of(size_of(claim)) != bytes_of(quorum.volume_size):
        made["size"] = size_of(claim)
    if class_of(claim) != quorum.volume_class:
        made["storageClassName"] = class_of(claim)
    if not made:
        return quorum
    return replace(quorum, spec={**quorum.spec, "storage": {**quorum.part("storage"), **made}})
