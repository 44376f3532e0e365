"""Secrets that others make and a Quorum may use, such as certificates from cert-manager."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping

from quorate_operator import naming
from quorate_operator.kube.api import Kube
from quorate_operator.naming import Object
from quorate_operator.objects import certificates
from quorate_operator.objects.authority import TIME_FORMAT, secret_files
from quorate_operator.objects.resource import QuorumResource
from quorate_operator.observation.owned import labels_of

Secrets = Mapping[str, Object | None]
"""By name; None for one that does not exist."""


def read_secrets(kube: Kube, quorum: QuorumResource) -> Secrets:
    """Read the Secrets that the pods mount or the operator reads. Raises KubeError."""
    names = quorum.given_secrets
    return {name: kube.get("Secret", quorum.namespace, name) for name in names}


def unlabelled(quorum: QuorumResource, kind: str, found: Secrets) -> Iterator[str]:
    """Yield messages about objects that the Quorum may not use."""
    for name, each in found.items():
        if each is None:
            yield f"{kind}/{name} does not exist"
        elif not is_labelled(quorum, each):
            yield f"{kind}/{name} needs the label {naming.USABLE_LABEL}={quorum.name}"


def is_labelled(quorum: QuorumResource, found: Object) -> bool:
    """Whether the label of an object says that the Quorum may use it."""
    return labels_of(found).get(naming.USABLE_LABEL) == quorum.name


def operator_files(quorum: QuorumResource, found: Secrets) -> Mapping[str, str]:
    """The operator's certificate files from another issuer, if it may use them."""
    secret = found.get(naming.operator_secret(quorum.name))
    if secret is None or not is_labelled(quorum, secret):
        return {}
    return secret_files(secret)


def expired(quorum: QuorumResource, found: Secrets, size: int) -> tuple[str, ...]:
    """Messages about certificates in use that have expired. size: of the StatefulSet."""
    count = min(max(size, quorum.replicas), naming.NODES_MAX)
    names = [naming.operator_secret(quorum.name)]
    names += [naming.given_node_secret(quorum.name, quorum.ids.of(n)) for n in range(count)]
    return tuple(text for name in names if (text := _expired(name, found.get(name))))


def _expired(name: str, secret: Object | None) -> str:
    ends = certificates.end_of(secret_files(secret).get("tls.crt", ""))
    if ends is None or dt.datetime.now(dt.UTC) < ends:
        return ""
    return (
        f"Secret/{name}: its certificate expired at {ends.strftime(TIME_FORMAT)}: have it renewed; "
        "with cert-manager, the status of its Certificate says why it was not"
    )
