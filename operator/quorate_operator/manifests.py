"""The Kubernetes objects of a Quorum, as they should be.

Rules:
1. Objects depend on the Quorum only, never on the number of nodes that happen to run: scaling must
   not change the pods' template. The StatefulSet's replicas are none of its business here; they are
   changed one decision at a time (`plan.Resize`).
2. Each object carries a digest of itself, so that what differs is seen without comparing fields
   that the API server fills in.
3. Pods satisfy the restricted Pod Security Standard and hold no service-account token.
4. Pods start in parallel and are replaced only by the operator (OnDelete), which knows who leads.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from quorate_operator import naming
from quorate_operator.naming import (
    DATA_PATH,
    HASH_ANNOTATION,
    HTTP_PORT,
    KAFKA_PORT,
    LISTENER,
    PORT,
    TLS_PATH,
    VOLUME,
    ZOOKEEPER_TLS_PATH,
)
from quorate_operator.resource import QuorumResource

Object = dict[str, Any]

USER_ID = 10001
TIMEOUTS = {
    "controller.quorum.fetch.timeout.ms": "1000",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.election.backoff.max.ms": "300",
}
"""Settings that `spec.config` overrides. A pod that vanishes closes no connection: its followers
notice by the fetch timeout. Pods of one cluster answer in milliseconds, so half of Kafka's default
is ample.
"""
CLIENT_LABEL = f"{naming.GROUP}/client"
"""Pods with this label, "true", may connect where the NetworkPolicy is enforced."""
KAFKA = "kafka"
"""The port of Kafka's protocol, by name."""


def objects(quorum: QuorumResource) -> dict[str, Object]:
    """All objects but the StatefulSet's size, Secrets and records; by "Kind/name"."""
    made = [_service(quorum), _stateful_set(quorum)]
    made += [_node_service(quorum, ordinal) for ordinal in range(naming.NODES_MAX)]
    if quorum.replicas > 1:
        made.append(_disruption_budget(quorum))
    if quorum.part("networkPolicy").get("enabled", True):
        made.append(_network_policy(quorum))
    return {key(each): _stamped(each) for each in made}


def optional(quorum: QuorumResource) -> dict[str, bool]:
    """The objects that a Quorum may have, and whether this one has them."""
    wanted = objects(quorum)
    names = (f"PodDisruptionBudget/{quorum.name}", f"NetworkPolicy/{quorum.name}")
    return {name: name in wanted for name in names}


def key(found: Object) -> str:
    return f"{found['kind']}/{found['metadata']['name']}"


def digest(found: Object) -> str:
    text = json.dumps(found, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def stamp_of(found: Object) -> str:
    annotations = found["metadata"].get("annotations") or {}
    return str(annotations.get(HASH_ANNOTATION, ""))


def _stamped(made: Object) -> Object:
    stamp = digest(made)
    made["metadata"].setdefault("annotations", {})[HASH_ANNOTATION] = stamp
    return made


def _object(quorum: QuorumResource, api: str, kind: str, name: str, **content: Any) -> Object:
    metadata = {
        "name": name,
        "namespace": quorum.namespace,
        "labels": naming.labels(quorum.name),
        "ownerReferences": [quorum.owner],
    }
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **content}


def record(quorum: QuorumResource, cluster_id: str, *, adopted: bool) -> Object:
    """The bootstrap record: immutable, created once."""
    return _object(
        quorum,
        "v1",
        "ConfigMap",
        naming.record(quorum.name),
        immutable=True,
        data={"clusterId": cluster_id, "adopted": "true" if adopted else "false"},
    )


def marker(quorum: QuorumResource, cluster_id: str) -> Object:
    """Its existence forbids formatting any node standalone."""
    name = naming.marker(quorum.name)
    return _object(quorum, "v1", "ConfigMap", name, immutable=True, data={"clusterId": cluster_id})


def secret(
    quorum: QuorumResource,
    name: str,
    data: dict[str, str],
    kind: str,
    annotations: dict[str, str] | None = None,
) -> Object:
    """A Secret; `data` is text."""
    made = _object(quorum, "v1", "Secret", name, type=kind, stringData=data)
    if annotations:
        made["metadata"]["annotations"] = annotations
    return made


def _service(quorum: QuorumResource) -> Object:
    return _object(
        quorum,
        "v1",
        "Service",
        naming.service(quorum.name),
        spec={
            "clusterIP": "None",
            # Nodes find each other before they are ready: readiness needs a leader.
            "publishNotReadyAddresses": True,
            "selector": naming.selector(quorum.name),
            "ports": [
                *_service_ports(quorum),
                {"name": "http", "port": HTTP_PORT, "targetPort": HTTP_PORT, "protocol": "TCP"},
            ],
        },
    )


def _node_service(quorum: QuorumResource, ordinal: int) -> Object:
    """One for each ordinal that may be, since objects do not depend on how many nodes there are."""
    return _object(
        quorum,
        "v1",
        "Service",
        naming.node_service(quorum.name, ordinal),
        spec={
            "publishNotReadyAddresses": True,
            "selector": naming.selector(quorum.name)
            | {naming.POD_LABEL: naming.pod(quorum.name, ordinal)},
            "ports": _service_ports(quorum),
        },
    )


def _listeners(quorum: QuorumResource) -> dict[str, int]:
    """The ports of a node's listeners, by name."""
    return {"controller": PORT} | ({KAFKA: KAFKA_PORT} if quorum.has_kafka_listener else {})


def _service_ports(quorum: QuorumResource) -> list[Object]:
    return [
        {"name": name, "port": port, "targetPort": port, "protocol": "TCP"}
        for name, port in _listeners(quorum).items()
    ]


def _disruption_budget(quorum: QuorumResource) -> Object:
    return _object(
        quorum,
        "policy/v1",
        "PodDisruptionBudget",
        quorum.name,
        spec={
            "maxUnavailable": 1,
            "selector": {"matchLabels": naming.selector(quorum.name)},
            # A node that is not ready may still hold what a majority needs.
            "unhealthyPodEvictionPolicy": "IfHealthyBudget",
        },
    )


def _network_policy(quorum: QuorumResource) -> Object:
    anywhere: Object = {"namespaceSelector": {}}
    labels = {naming.NAME_LABEL: "quorate", naming.COMPONENT_LABEL: "operator"}
    operator: Object = {**anywhere, "podSelector": {"matchLabels": labels}}
    clients: Object = {**anywhere, "podSelector": {"matchLabels": {CLIENT_LABEL: "true"}}}
    sources = [{"podSelector": {"matchLabels": naming.selector(quorum.name)}}, operator, clients]
    # Metrics are in clear and change nothing; who shall not see them is kept out by metricsFrom.
    readers = quorum.part("networkPolicy").get("metricsFrom")
    if readers is None:
        readers = [anywhere]
    ingress: list[Object] = [{"from": sources, "ports": [{"port": PORT, "protocol": "TCP"}]}]
    if quorum.has_kafka_listener:
        # The operator reads how far a migration is from the metrics.
        readers = [*readers, operator]
        brokers = quorum.part("networkPolicy").get("brokersFrom")
        brokers = [clients] if brokers is None else brokers
        if brokers:
            ingress.append({"from": brokers, "ports": [{"port": KAFKA_PORT, "protocol": "TCP"}]})
    if readers:  # an empty list in a policy would mean everybody
        ingress.append({"from": readers, "ports": [{"port": HTTP_PORT, "protocol": "TCP"}]})
    return _object(
        quorum,
        "networking.k8s.io/v1",
        "NetworkPolicy",
        quorum.name,
        spec={
            "podSelector": {"matchLabels": naming.selector(quorum.name)},
            "policyTypes": ["Ingress"],
            "ingress": ingress,
        },
    )


# --- the StatefulSet ------------------------------------------------------------------------------


def _stateful_set(quorum: QuorumResource) -> Object:
    template = quorum.part("podTemplate")
    retention = quorum.part("storage").get("retention") or {}
    return _object(
        quorum,
        "apps/v1",
        "StatefulSet",
        quorum.name,
        spec={
            "serviceName": naming.service(quorum.name),
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "revisionHistoryLimit": 5,
            "selector": {"matchLabels": naming.selector(quorum.name)},
            "persistentVolumeClaimRetentionPolicy": {
                "whenDeleted": retention.get("whenDeleted", "Retain"),
                "whenScaled": retention.get("whenScaled", "Retain"),
            },
            "template": {
                "metadata": {
                    "labels": {**(template.get("labels") or {}), **naming.labels(quorum.name)},
                    "annotations": template.get("annotations") or {},
                },
                "spec": _pod_spec(quorum, template),
            },
            "volumeClaimTemplates": [_claim_template(quorum)],
        },
    )


def _claim_template(quorum: QuorumResource) -> Object:
    storage = quorum.part("storage")
    spec: Object = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": storage.get("size", "10Gi")}},
    }
    if storage.get("storageClassName"):
        spec["storageClassName"] = storage["storageClassName"]
    return {"metadata": {"name": VOLUME, "labels": naming.labels(quorum.name)}, "spec": spec}


def _pod_spec(quorum: QuorumResource, template: Object) -> Object:
    volumes: list[Object] = [{"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}}]
    if quorum.is_tls:
        volumes.append({"name": "tls", **_tls_source(quorum)})
    if quorum.zookeeper_secret:
        source = {"secretName": quorum.zookeeper_secret, "defaultMode": 0o440}
        volumes.append({"name": "zookeeper", "secret": source})
    spec: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": template.get("terminationGracePeriodSeconds", 30),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(quorum, template)],
        "volumes": volumes,
        "topologySpreadConstraints": template.get("topologySpreadConstraints")
        or [_spread(quorum, where) for where in ("topology.kubernetes.io/zone", HOSTNAME)],
    }
    for name in (
        "nodeSelector",
        "tolerations",
        "affinity",
        "imagePullSecrets",
        "priorityClassName",
    ):
        if template.get(name):
            spec[name] = template[name]
    return spec


def _tls_source(quorum: QuorumResource) -> Object:
    """The certificates of all nodes: each pod takes its own, since pods have one template."""
    if quorum.has_own_authority:
        return {"secret": {"secretName": naming.node_secret(quorum.name), "defaultMode": 0o440}}
    sources: list[Object] = [
        {
            "secret": {
                "name": naming.client_secret(quorum.name),
                "items": [{"key": "ca.crt", "path": "ca.crt"}],
            }
        }
    ]
    for node_id in map(quorum.ids.of, range(naming.NODES_MAX)):
        file = naming.node_name(node_id)
        items = [{"key": f"tls.{kind}", "path": f"{file}.{kind}"} for kind in ("crt", "key")]
        name = naming.given_node_secret(quorum.name, node_id)
        sources.append({"secret": {"name": name, "items": items}})
    return {"projected": {"defaultMode": 0o440, "sources": sources}}


HOSTNAME = "kubernetes.io/hostname"


def _spread(quorum: QuorumResource, where: str) -> Object:
    return {
        "maxSkew": 1,
        "topologyKey": where,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": naming.selector(quorum.name)},
    }


def _container(quorum: QuorumResource, template: Object) -> Object:
    mounts: list[Object] = [
        {"name": VOLUME, "mountPath": DATA_PATH},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - inside the pod
    ]
    if quorum.is_tls:
        mounts.append({"name": "tls", "mountPath": TLS_PATH, "readOnly": True})
    if quorum.zookeeper_secret:
        mounts.append({"name": "zookeeper", "mountPath": ZOOKEEPER_TLS_PATH, "readOnly": True})
    ports = _listeners(quorum) | {"http": HTTP_PORT}
    return {
        "name": "controller",
        "image": quorum.spec["image"],
        "imagePullPolicy": quorum.spec.get("imagePullPolicy", "IfNotPresent"),
        "command": ["python", "-m", "quorate_operator.pod"],
        "env": environment(quorum),
        "ports": [
            {"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports.items()
        ],
        # What a process ends with is one line, which the status repeats.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": template.get("resources") or {},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
        # Recovery of a long log comes before the first answer.
        "startupProbe": _probe("/healthz", period_s=1, failures=600),
        "livenessProbe": _probe("/healthz", period_s=10, failures=6),
        # Of this member only: whether it leads, or fetches from a leader.
        "readinessProbe": _probe("/readyz", period_s=2, failures=2),
    }


def _probe(page: str, *, period_s: int, failures: int) -> Object:
    return {
        "httpGet": {"path": page, "port": "http", "scheme": "HTTP"},
        "periodSeconds": period_s,
        "timeoutSeconds": 3,
        "failureThreshold": failures,
    }


def environment(quorum: QuorumResource) -> list[Object]:
    """What the pod's entry (`pod.py`) needs, and `spec.config` as variables."""
    own: dict[str, Object] = {
        "QUORATE_POD_NAME": {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        "QUORATE_POD_NAMESPACE": {"valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        "QUORATE_POD_TLS": {"value": "true" if quorum.is_tls else "false"},
    }
    if quorum.ids.first:
        own["QUORATE_POD_FIRST_NODE_ID"] = {"value": str(quorum.ids.first)}
    if quorum.has_kafka_listener:
        own["QUORATE_POD_KAFKA"] = {"value": "true"}
    if quorum.zookeeper_secret:
        own["QUORATE_POD_ZOOKEEPER_TLS"] = {"value": "true"}
    settings = {**TIMEOUTS, **_principals(quorum), **quorum.part("config")}
    if quorum.is_migrating:
        settings["zookeeper.metadata.migration.enable"] = "true"
        settings["zookeeper.connect"] = quorum.part("migration")["zookeeperConnect"]
    for name, value in settings.items():
        own[variable(name)] = {"value": str(value)}
    return [{"name": name, **value} for name, value in sorted(own.items())]


def _principals(quorum: QuorumResource) -> dict[str, str]:
    """Who the controllers are, by the certificates that the operator issues: brokers and clients
    have others of the same authority, and never vote.
    """
    rules = variable("ssl.principal.mapping.rules")
    if not quorum.has_own_authority or rules in map(variable, quorum.part("config")):
        return {}
    nodes = map(quorum.ids.of, range(naming.NODES_MAX))
    principals = ";".join(f"User:CN={naming.node_name(node)}" for node in nodes)
    return {"quorate.controller.principals": principals}


def variable(setting: str) -> str:
    """The environment variable of a setting."""
    return "QUORATE_" + setting.upper().replace(".", "_")


__all__ = ["LISTENER", "digest", "environment", "key", "marker", "objects", "record", "secret"]
