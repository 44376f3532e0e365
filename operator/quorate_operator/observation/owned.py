"""Reads the Kubernetes objects of one Quorum, and reports foreign objects that have their names."""

from __future__ import annotations

from collections.abc import Iterable

from quorate_operator import naming
from quorate_operator.crd.external import ExternalAddress, external_address
from quorate_operator.kube.api import Kube
from quorate_operator.kube.ownership import conflict, is_controlled_by
from quorate_operator.naming import Object
from quorate_operator.objects.resource import QuorumResource


class Owned:
    """Reads the objects of one Quorum. conflicts: messages by "Kind/name" of foreign objects."""

    def __init__(self, kube: Kube, quorum: QuorumResource) -> None:
        self._kube = kube
        self._quorum = quorum
        self._found: dict[tuple[str, str], Object | None] = {}
        self._services: dict[str, Object] | None = None
        self.conflicts: dict[str, str] = {}

    def get(self, kind: str, name: str) -> Object | None:
        """Return the Quorum's own object of that name, or None. Raises KubeError."""
        found = self.find(kind, name)
        if found is None or is_controlled_by(found, self._quorum.uid):
            return found
        self.conflicts[f"{kind}/{name}"] = conflict(kind, found, self._quorum.name)
        return None

    def has_unwanted(self, kind: str, name: str) -> bool:
        """Whether the Quorum's own object of that name is to be deleted. Raises KubeError.

        The deletion of a Service takes as long as that of its load balancer. One that has lost its
        labels is not found: a request for each name that a Service could have would be too many.
        """
        found = self._listed_services().get(name) if kind == "Service" else self.find(kind, name)
        if found is None or not is_controlled_by(found, self._quorum.uid):
            return False
        return not found["metadata"].get("deletionTimestamp")

    def find(self, kind: str, name: str) -> Object | None:
        """Return the object of that name, whoever owns it, or None. Raises KubeError."""
        if kind == "Service" and name in self._listed_services():
            return self._listed_services()[name]
        if (kind, name) not in self._found:
            self._found[kind, name] = self._kube.get(kind, self._quorum.namespace, name)
        return self._found[kind, name]

    def _listed_services(self) -> dict[str, Object]:
        """The Services with the Quorum's labels, by name: one request in place of one for each
        node. Without the labels it would return those of all Quorums of the namespace.
        """
        if self._services is None:
            namespace, labels = self._quorum.namespace, naming.selector_text(self._quorum.name)
            found = self._kube.list("Service", namespace, labels)
            self._services = {each["metadata"]["name"]: each for each in found}
        return self._services

    def external_addresses(self, quorum: QuorumResource) -> dict[int, ExternalAddress]:
        """Where clients outside the cluster reach the nodes, by ordinal. Raises KubeError.

        quorum: with the size that its StatefulSet has (`made`).
        """
        access = quorum.external
        if access is None:
            return {}
        names = {n: naming.external_service(quorum.name, n) for n in quorum.external_ordinals}
        return {n: external_address(access, n, self.get("Service", x)) for n, x in names.items()}

    def claims(self) -> tuple[dict[int, Object], frozenset[int]]:
        """Return the Quorum's volume claims by ordinal, and the ordinals with a foreign claim.
        Claims outlive the StatefulSet and have no owner reference to the Quorum, so the name and
        the labels identify them. All claims of the namespace are listed, because a claim without
        the labels would be mounted as well. Raises KubeError.
        """
        quorum, kind = self._quorum, "PersistentVolumeClaim"
        labels = naming.selector(quorum.name).items()
        found = by_ordinal(
            f"{naming.VOLUME}-{quorum.name}", self._kube.list(kind, quorum.namespace)
        )
        found = {ordinal: claim for ordinal, claim in found.items() if ordinal < naming.NODES_MAX}
        own = {n: claim for n, claim in found.items() if labels <= labels_of(claim).items()}
        foreign = frozenset(found) - frozenset(own)
        for ordinal in foreign:
            name = f"{kind}/{naming.claim(quorum.name, ordinal)}"
            self.conflicts[name] = (
                f"{name} exists and lacks the labels of Quorum {quorum.name}: delete or rename "
                "it, or rename the Quorum"
            )
        return own, foreign


def by_ordinal(prefix: str, objects: Iterable[Object]) -> dict[int, Object]:
    found = {}
    for each in objects:
        name = each["metadata"]["name"]
        ordinal = naming.ordinal_of(name)
        if ordinal is not None and name == f"{prefix}-{ordinal}":
            found[ordinal] = each
    return found


def labels_of(found: Object) -> dict[str, str]:
    return found["metadata"].get("labels") or {}
