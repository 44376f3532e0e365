"""The commands of the kubectl plugin. Each returns what is printed."""

from __future__ import annotations

import argparse
import datetime as dt
import json

from kubernetes import config

from quorate_operator import naming
from quorate_operator.kube.api import Kube, KubeError
from quorate_operator.naming import APPROVED_ANNOTATION, FENCED_ANNOTATION, Object
from quorate_operator.objects.resource import QuorumResource
from quorate_operator.plugin import status_report

RESTARTED_ANNOTATION = f"{naming.GROUP}/restarted-at"
"""The annotation of the pod template whose change restarts pods."""


class PluginError(Exception):
    """A command failed; the message is one line."""


def run(options: argparse.Namespace) -> str:
    """Execute a command and return its output. Raises PluginError."""
    try:
        kube, namespace = connect(options)
        found = kube.get(naming.KIND, namespace, options.name)
        if found is None:
            raise PluginError(f"no Quorum {options.name} in namespace {namespace}")
        return execute(kube, QuorumResource.parse(found), found, options)
    except KubeError as error:
        if error.status == 0:
            raise PluginError(f"the API server does not answer: {error}") from None
        raise PluginError(str(error)) from None


def connect(options: argparse.Namespace) -> tuple[Kube, str]:
    """The API server and the namespace that the options and the kubeconfig name.

    Raises PluginError.
    """
    path, context = options.kubeconfig, options.context
    try:
        contexts, active = config.list_kube_config_contexts(path)  # type: ignore[no-untyped-call]
        if context is not None:
            active = next((each for each in contexts if each["name"] == context), None)
        if active is None:
            raise PluginError(f"no cluster: the kubeconfig has no context {context}")
        namespace = options.namespace or active["context"].get("namespace") or "default"
        client = config.new_client_from_config(path, active["name"])  # type: ignore[no-untyped-call]
    except PluginError:
        raise
    except Exception as error:  # of the parser, too: the client checks little
        raise PluginError(f"no cluster: {error}") from None
    return Kube(client), namespace


def execute(kube: Kube, quorum: QuorumResource, found: Object, options: argparse.Namespace) -> str:
    """Execute a command for a Quorum. found: its object. Raises PluginError, KubeError."""
    match options.command:
        case "status":
            report = status_report.report(kube, quorum)
            return json.dumps(report, indent=2) if options.json else status_report.text(report)
        case "fence" | "unfence":
            return _fence(kube, quorum, found, options.member, is_fenced=options.command == "fence")
        case "restart":
            return _restart(kube, quorum)
        case "approve":
            return _approve(kube, quorum)
        case _:
            return _hibernate(kube, quorum, is_on=options.state == "on")


def _patch(kube: Kube, quorum: QuorumResource, body: Object) -> None:
    kube.merge(naming.KIND, quorum.namespace, quorum.name, body)


def _annotate(kube: Kube, quorum: QuorumResource, found: Object, name: str, value: str) -> None:
    """Set an annotation, or remove it (""), unless somebody else was first."""
    version = found["metadata"]["resourceVersion"]
    metadata = {"resourceVersion": version, "annotations": {name: value or None}}
    _patch(kube, quorum, {"metadata": metadata})


def pod_of(quorum: QuorumResource, member: str) -> str:
    """The pod of a member, which is given as that or as its node id. Raises PluginError."""
    ordinal = naming.members(quorum.name, member).get(member)
    if member.isdecimal() and member.isascii():
        ordinal = quorum.ids.ordinal(int(member))
    if ordinal is None:
        raise PluginError(
            f"{member} is not a member of Quorum {quorum.name}: expected a pod such as "
            f"{naming.pod(quorum.name, 0)}, or a node id such as {quorum.ids.of(0)}"
        )
    return naming.pod(quorum.name, ordinal)


def _fence(
    kube: Kube, quorum: QuorumResource, found: Object, member: str, *, is_fenced: bool
) -> str:
    pod = pod_of(quorum, member)
    given = naming.members(quorum.name, quorum.annotations.get(FENCED_ANNOTATION, ""))
    if is_fenced == (pod in given):
        return f"{pod} is fenced already" if is_fenced else f"{pod} is not fenced"
    names = [name for name in given if name != pod] + ([pod] if is_fenced else [])
    _annotate(kube, quorum, found, FENCED_ANNOTATION, ",".join(names))
    if not is_fenced:
        return f"{pod} will return"
    return (
        f"{pod} will be fenced if the other voters have a majority: see the condition Fenced in "
        f"`kubectl quorate status {quorum.name}`"
    )


def _restart(kube: Kube, quorum: QuorumResource) -> str:
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    annotations = {RESTARTED_ANNOTATION: now}
    _patch(kube, quorum, {"spec": {"podTemplate": {"annotations": annotations}}})
    text = f"the pods of {quorum.name} restart one at a time, the leader last"
    if quorum.desired.is_supervised:
        return f"{text}, once approved: kubectl quorate approve {quorum.name}"
    if quorum.part("rollout").get("windows"):
        return f"{text}, in the next maintenance window"
    return text


def _approve(kube: Kube, quorum: QuorumResource) -> str:
    """Approve the revision that the operator reports, not what the template may be by then."""
    revision = str(quorum.status.get("updateRevision") or "")
    if not revision:
        raise PluginError(f"Quorum {quorum.name} reports no status.updateRevision")
    annotations = {APPROVED_ANNOTATION: revision}
    _patch(kube, quorum, {"metadata": {"annotations": annotations}})
    return f"the rollout of {revision} is approved"


def _hibernate(kube: Kube, quorum: QuorumResource, *, is_on: bool) -> str:
    _patch(kube, quorum, {"spec": {"hibernated": is_on}})
    if is_on:
        return f"Quorum {quorum.name} will have no pods; the volumes and the voters stay"
    return f"Quorum {quorum.name} will return with the same voters"
