"""Builds the desired Kubernetes objects of a Quorum.

Rules:
1. Objects depend only on the Quorum, never on the number of running nodes: scaling must not change
   the pod template. This module does not set the StatefulSet's replicas; the plan changes them one
   decision at a time (`values.Resize`). What cannot be changed is as it was made (`made`). The
   Services for outside are an exception: a load balancer costs money, so spare ordinals have none.
2. Each object carries a digest of itself, so the operator detects a difference without comparing
   fields that the API server fills in.
3. Pods satisfy the restricted Pod Security Standard and mount no service account token.
4. Pods start in parallel. Only the operator, which knows the leader, replaces them (OnDelete).
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from quorate_operator import naming
from quorate_operator.crd.external import ExternalAccess
from quorate_operator.naming import (
    DATA_PATH,
    HASH_ANNOTATION,
    HTTP_PORT,
    KAFKA_PORT,
    KEY_PATH,
    LISTENER,
    PORT,
    TLS_PATH,
    VOLUME,
    ZOOKEEPER_TLS_PATH,
    Object,
    variable,
)
from quorate_operator.objects.resource import QuorumResource

USER_ID = 10001
_IDS = {"runAsUser": USER_ID, "runAsGroup": USER_ID, "fsGroup": USER_ID}
TIMEOUTS = {
    "controller.quorum.fetch.timeout.ms": "1000",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.election.backoff.max.ms": "300",
}
"""Defaults that `spec.config` overrides. A pod that vanishes closes no connection, so its followers
detect the failure by the fetch timeout. Pods of one cluster answer within milliseconds, so at most
half of each of Kafka's defaults is ample.
"""
CLIENT_LABEL = f"{naming.GROUP}/client"
"""Pods with this label set to "true" may connect where the NetworkPolicy is enforced."""
AUTHORIZER, SUPER_USERS = "authorizer.class.name", "super.users"
KAFKA = "kafka"
"""The name of the Kafka protocol's port."""
REQUIRED = "Required"
"""The value of `spec.podTemplate.spread` with which a pod waits until it can be placed so."""
_REQUIRED = {"whenUnsatisfiable": "DoNotSchedule"}
ZONES_MIN = 3
"""The number of zones of a required spread: a majority survives the loss of one of three."""


def objects(quorum: QuorumResource) -> dict[str, Object]:
    """Return all objects by "Kind/name", except Secrets, the record and the marker.

    The StatefulSet has no replicas yet.
    """
    made = [_service(quorum), _stateful_set(quorum)]
    made += [_node_service(quorum, ordinal) for ordinal in range(naming.NODES_MAX)]
    if max(quorum.replicas, quorum.voters or 0) > 1:
        made.append(_disruption_budget(quorum))
    if quorum.part("networkPolicy").get("enabled", True):
        made.append(_network_policy(quorum))
    if quorum.external is not None:
        made += [
            _external_service(quorum, quorum.external, ordinal)
            for ordinal in quorum.external_ordinals
        ]
    return {key(each): _stamped(each) for each in made}


def optional(quorum: QuorumResource) -> list[str]:
    """All objects that not every Quorum has, by "Kind/name"."""
    names = [f"{kind}/{quorum.name}" for kind in ("PodDisruptionBudget", "NetworkPolicy")]
    ordinals = range(naming.NODES_MAX)
    return names + [f"Service/{naming.external_service(quorum.name, each)}" for each in ordinals]


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
        "labels": quorum.common_labels | naming.labels(quorum.name),
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
    """The bootstrap marker, whose existence forbids formatting any node standalone."""
    name = naming.marker(quorum.name)
    return _object(quorum, "v1", "ConfigMap", name, immutable=True, data={"clusterId": cluster_id})


def secret(
    quorum: QuorumResource,
    name: str,
    data: dict[str, str],
    kind: str,
    annotations: dict[str, str] | None = None,
) -> Object:
    """A Secret. data: the values as plain text, before base64."""
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
    made = _object(quorum, "v1", "Secret", name, type=kind, data=encoded)
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
            # Nodes must find each other before they are ready, because readiness needs a leader.
            "publishNotReadyAddresses": True,
            "selector": naming.selector(quorum.name),
            "ports": [
                *_service_ports(quorum),
                {"name": "http", "port": HTTP_PORT, "targetPort": HTTP_PORT, "protocol": "TCP"},
            ],
        },
    )


def _node_service(quorum: QuorumResource, ordinal: int) -> Object:
    """The Service of one node. Every possible ordinal has one (rule 1)."""
    name = naming.node_service(quorum.name, ordinal)
    return _service_of_pod(quorum, name, ordinal, {"ports": _service_ports(quorum)})


def _external_service(quorum: QuorumResource, access: ExternalAccess, ordinal: int) -> Object:
    """The Service by which clients outside the cluster reach one node."""
    name = naming.external_service(quorum.name, ordinal)
    made = _service_of_pod(quorum, name, ordinal, access.service_fields(ordinal))
    made["metadata"]["annotations"] = dict(access.annotations)
    return made


def _service_of_pod(quorum: QuorumResource, name: str, ordinal: int, fields: Object) -> Object:
    """A Service that leads to one pod, ready or not. fields: further ones of its spec."""
    pod = {naming.POD_LABEL: naming.pod(quorum.name, ordinal)}
    selector = naming.selector(quorum.name) | pod
    spec = {"publishNotReadyAddresses": True, "selector": selector, **fields}
    return _object(quorum, "v1", "Service", name, spec=spec)


def _listeners(quorum: QuorumResource) -> dict[str, int]:
    """The ports of a node's listeners, by name."""
    return {"controller": PORT} | ({KAFKA: KAFKA_PORT} if quorum.has_kafka_listener else {})


def _service_ports(quorum: QuorumResource) -> list[Object]:
    return [
        {"name": name, "port": port, "targetPort": port, "protocol": "TCP"}
        for name, port in _listeners(quorum).items()
    ]


def _disruption_budget(quorum: QuorumResource) -> Object:
    """Allow one eviction at a time, or none if it would stop commits: of one of two voters.

    A quorum that grows or shrinks has not as many voters as wanted.
    """
    voters = quorum.replicas if quorum.voters is None else min(quorum.replicas, quorum.voters)
    tolerated = max(0, voters - 1) // 2
    return _object(
        quorum,
        "policy/v1",
        "PodDisruptionBudget",
        quorum.name,
        spec={
            "maxUnavailable": min(1, tolerated),
            "selector": {"matchLabels": naming.selector(quorum.name)},
            # A node that is not ready may still hold data that a majority needs.
            "unhealthyPodEvictionPolicy": "IfHealthyBudget",
        },
    )


def _network_policy(quorum: QuorumResource) -> Object:
    anywhere: Object = {"namespaceSelector": {}}
    labels = {naming.NAME_LABEL: "quorate", naming.COMPONENT_LABEL: "operator"}
    operator: Object = {**anywhere, "podSelector": {"matchLabels": labels}}
    pods: Object = {"podSelector": {"matchLabels": naming.selector(quorum.name)}}
    clients: Object = {**anywhere, "podSelector": {"matchLabels": {CLIENT_LABEL: "true"}}}
    sources = [pods, operator, clients]
    readers = quorum.part("networkPolicy").get("metricsFrom") or []
    ingress: list[Object] = [{"from": sources, "ports": [{"port": PORT, "protocol": "TCP"}]}]
    if quorum.external is not None:
        ingress += _from_outside(quorum)
    if quorum.is_migration:
        # The operator reads the progress of a migration from the metrics.
        readers = [*readers, operator]
    if quorum.has_kafka_listener:
        brokers = quorum.part("networkPolicy").get("brokersFrom")
        brokers = [clients] if brokers is None else brokers
        # In a takeover, the pods talk to each other there.
        kafka = {"from": [pods, *brokers], "ports": [{"port": KAFKA_PORT, "protocol": "TCP"}]}
        ingress.append(kafka)
    if readers:  # an empty `from` in a policy allows all sources
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


def _from_outside(quorum: QuorumResource) -> list[Object]:
    """The rule for clients outside the cluster, none if the spec lets none in.

    By default it has no sources: behind a load balancer or a node port, most networks show the
    address of a machine of the cluster in place of the client's.
    """
    rule: Object = {"ports": [{"port": PORT, "protocol": "TCP"}]}
    sources = quorum.part("networkPolicy").get("externalFrom")
    if sources is None:
        return [rule]
    return [{"from": sources, **rule}] if sources else []


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
                    "labels": {
                        **quorum.common_labels,
                        **(template.get("labels") or {}),
                        **naming.labels(quorum.name),
                    },
                    "annotations": template.get("annotations") or {},
                },
                "spec": _pod_spec(quorum, template),
            },
            "volumeClaimTemplates": [claim_template(quorum)],
        },
    )


def claim_template(quorum: QuorumResource) -> Object:
    """The template of the volume claims, which cannot be changed: without the common labels."""
    spec: Object = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": quorum.volume_size}},
    }
    if quorum.volume_class:
        spec["storageClassName"] = quorum.volume_class
    return {"metadata": {"name": VOLUME, "labels": naming.labels(quorum.name)}, "spec": spec}


def _pod_spec(quorum: QuorumResource, template: Object) -> Object:
    volumes: list[Object] = [{"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}}]
    if quorum.is_tls:
        volumes += _tls_volumes(quorum)
    if quorum.zookeeper_secret:
        source = {"secretName": quorum.zookeeper_secret, "defaultMode": 0o440}
        volumes.append({"name": "zookeeper", "secret": source})
    spec: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": template.get("terminationGracePeriodSeconds", 30),
        "securityContext": pod_security(template),
        "containers": [_container(quorum, template)],
        "volumes": volumes,
        "topologySpreadConstraints": template.get("topologySpreadConstraints")
        or _spread(quorum, template.get("spread") or {}),
    }
    names = ("nodeSelector", "tolerations", "affinity", "imagePullSecrets", "priorityClassName")
    return spec | {name: template[name] for name in names if template.get(name)}


def _tls_volumes(quorum: QuorumResource) -> list[Object]:
    """Return the volumes `tls` and `keys`, which are separate because all pods share one template.

    `tls` holds the certificates, which all pods may read; Kubernetes keeps it up to date. `keys`
    holds POD.key for each pod, and a container mounts only its own.
    """
    ids = [quorum.ids.of(ordinal) for ordinal in range(naming.NODES_MAX)]
    certificates: list[Object] = []
    keys: list[Object] = []
    if quorum.has_own_authority:
        files = [naming.node_name(node) for node in ids]
        public = ["ca.crt", *(f"{file}.crt" for file in files)]
        secret = naming.node_secret(quorum.name)
        certificates.append(_items(secret, {name: name for name in public}))
        paths = {f"{file}.key": _key_file(quorum, n) for n, file in enumerate(files)}
        keys.append(_items(secret, paths))
    else:
        certificates.append(_items(naming.client_secret(quorum.name), {"ca.crt": "ca.crt"}))
        for ordinal, node in enumerate(ids):
            secret = naming.given_node_secret(quorum.name, node)
            certificates.append(_items(secret, {"tls.crt": f"{naming.node_name(node)}.crt"}))
            keys.append(_items(secret, {"tls.key": _key_file(quorum, ordinal)}))
    return [
        {"name": name, "projected": {"defaultMode": 0o440, "sources": sources}}
        for name, sources in (("tls", certificates), ("keys", keys))
    ]


def _items(secret: str, paths: dict[str, str]) -> Object:
    """A source of a projected volume. paths: the file of each key of the Secret."""
    items = [{"key": key, "path": path} for key, path in paths.items()]
    return {"secret": {"name": secret, "items": items}}


def _key_file(quorum: QuorumResource, ordinal: int) -> str:
    return f"{naming.pod(quorum.name, ordinal)}.key"


def _spread(quorum: QuorumResource, wanted: Object) -> list[Object]:
    """The constraints for zones and nodes. wanted: `spec.podTemplate.spread`.

    They do not depend on the number of replicas (rule 1). Fewer domains than `minDomains` count as
    if another one had no pod, so each holds one. All revisions of the template count: with
    `matchLabelKeys`, two members could share a zone during a rollout.
    """
    made: list[Object] = [
        {
            "maxSkew": 1,
            "topologyKey": where,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": naming.selector(quorum.name)},
        }
        for where in ("topology.kubernetes.io/zone", "kubernetes.io/hostname")
    ]
    zones, nodes = made
    if wanted.get("zones") == REQUIRED:
        # A zone whose nodes no member tolerates would stay empty, and limit the others to one.
        zones |= {**_REQUIRED, "minDomains": ZONES_MIN, "nodeTaintsPolicy": "Honor"}
    if wanted.get("nodes") == REQUIRED:
        # At most one pod on a node, because there are never more pods than this.
        nodes |= {**_REQUIRED, "minDomains": naming.NODES_MAX}
    return made


def _container(quorum: QuorumResource, template: Object) -> Object:
    mounts: list[Object] = [
        {"name": VOLUME, "mountPath": DATA_PATH},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - inside the pod
    ]
    if quorum.is_tls:
        mounts.append({"name": "tls", "mountPath": TLS_PATH, "readOnly": True})
        own = {"mountPath": KEY_PATH, "subPathExpr": "$(QUORATE_POD_NAME).key", "readOnly": True}
        mounts.append({"name": "keys", **own})
    if quorum.zookeeper_secret:
        mounts.append({"name": "zookeeper", "mountPath": ZOOKEEPER_TLS_PATH, "readOnly": True})
    ports = _listeners(quorum) | {"http": HTTP_PORT}
    return {
        "name": "controller",
        "image": quorum.spec["image"],
        "imagePullPolicy": quorum.spec.get("imagePullPolicy", "IfNotPresent"),
        "command": ["python", "-m", "quorate_operator.pod"],
        # The custom resource rejects further variables with the names of the operator's.
        "env": [*environment(quorum), *(template.get("extraEnv") or ())],
        "ports": [
            {"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports.items()
        ],
        # A process that fails ends with one line, which the status repeats.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": template.get("resources") or {},
        "securityContext": container_security(),
        "volumeMounts": mounts,
        # A node recovers its log, which may be long, before it answers the first probe.
        "startupProbe": probe("/healthz", period_s=1, failures=600),
        "livenessProbe": probe("/healthz", period_s=10, failures=6),
        # Readiness is of this node only: it leads, or it fetches from a leader.
        "readinessProbe": probe("/readyz", period_s=2, failures=2),
    }


def pod_security(template: Object) -> Object:
    """The security context of a pod. The group may write to the pod's volumes.

    template: `spec.podTemplate` of the Quorum.
    """
    return {
        "runAsNonRoot": True,
        **(_IDS if template.get("fixedUserIds", True) else {}),
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security() -> Object:
    """The security context of a container."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def probe(page: str, *, period_s: int, failures: int) -> Object:
    """A probe of a page on the port `http`."""
    return {
        "httpGet": {"path": page, "port": "http", "scheme": "HTTP"},
        "periodSeconds": period_s,
        "timeoutSeconds": 3,
        "failureThreshold": failures,
    }


def environment(quorum: QuorumResource) -> list[Object]:
    """Return the variables for the pod's entry point (`pod.py`), and those of `spec.config`."""
    own: dict[str, Object] = {
        "QUORATE_POD_NAME": {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        "QUORATE_POD_NAMESPACE": {"valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        "QUORATE_POD_TLS": {"value": "true" if quorum.is_tls else "false"},
    }
    if quorum.ids.first:
        own["QUORATE_POD_FIRST_NODE_ID"] = {"value": str(quorum.ids.first)}
    if quorum.has_kafka_listener:
        # "true" is PLAINTEXT: pods with that listener are not restarted for another value.
        is_encrypted = quorum.kafka_listener_is_encrypted
        own["QUORATE_POD_KAFKA"] = {"value": naming.KAFKA_SSL if is_encrypted else "true"}
    if quorum.kafka_listener != naming.KAFKA_LISTENER:
        own["QUORATE_POD_KAFKA_NAME"] = {"value": quorum.kafka_listener}
    if quorum.is_takeover:
        addresses = sorted(quorum.kafka_controllers.values())
        own["QUORATE_POD_TAKEOVER"] = {"value": ",".join(addresses)}
    if quorum.fenced:
        names = (naming.pod(quorum.name, ordinal) for ordinal in sorted(quorum.fenced))
        own[naming.FENCED_VARIABLE] = {"value": ",".join(names)}
    if quorum.zookeeper_secret:
        own["QUORATE_POD_ZOOKEEPER_TLS"] = {"value": "true"}
    config = quorum.part("config")
    settings = {**TIMEOUTS, **_principals(quorum), **config, **_authorization(quorum, config)}
    if quorum.is_migrating:
        settings["zookeeper.metadata.migration.enable"] = "true"
        settings["zookeeper.connect"] = quorum.part("migration")["zookeeperConnect"]
    for name, value in settings.items():
        own[variable(name)] = {"value": str(value)}
    return [{"name": name, **value} for name, value in sorted(own.items())]


def _principals(quorum: QuorumResource) -> dict[str, str]:
    """Return the settings that name the principals of the operator and of the controllers.

    Only the operator may format nodes; without TLS it is `User:ANONYMOUS`. If the operator issues
    the certificates, only the principals of the nodes, and of Kafka's controllers in a takeover,
    are controllers: brokers and clients have certificates of the same authority, and never vote.
    """
    formatter = naming.principal(naming.OPERATOR) if quorum.is_tls else "User:ANONYMOUS"
    principals = {"quorate.format.principals": formatter}
    if quorum.has_own_authority:
        nodes = map(quorum.ids.of, range(naming.NODES_MAX))
        names = [*map(naming.node_name, nodes), *_kafka_controllers(quorum)]
        principals["quorate.controller.principals"] = ";".join(map(naming.principal, names))
    return principals


def _kafka_controllers(quorum: QuorumResource) -> list[str]:
    """The common names of the certificates of Kafka's controllers in a takeover."""
    found = quorum.kafka_brokers.items()
    return [naming.client_name(name) for name, node in found if node in quorum.kafka_controllers]


def _authorization(quorum: QuorumResource, config: Mapping[str, str]) -> dict[str, str]:
    """Return the authorizer's settings; empty unless `QuorumResource.is_authorizing`.

    The super users in `spec.config` are added to those that the quorum itself requires.
    """
    if not quorum.is_authorizing:
        return {}
    names = [naming.OPERATOR, naming.CLIENT]
    names += [naming.node_name(quorum.ids.of(ordinal)) for ordinal in range(naming.NODES_MAX)]
    names += [naming.client_name(name) for name, is_super in quorum.clients.items() if is_super]
    more = [each.strip() for each in config.get(SUPER_USERS, "").split(";") if each.strip()]
    users = dict.fromkeys([*map(naming.principal, names), *more])
    return {
        AUTHORIZER: config.get(AUTHORIZER) or "quorate.authorizer",
        SUPER_USERS: ";".join(users),
    }


def broker_principals(quorum: QuorumResource) -> tuple[str, ...]:
    """The principals of brokers, which get the `broker_rights` and no other permission.

    A broker forwards requests under its own principal, so they have its permissions.
    """
    if not quorum.is_authorizing:
        return ()
    names = [*map(naming.broker_name, range(quorum.broker_certificates))]
    names += map(naming.client_name, quorum.kafka_brokers)
    return tuple(map(naming.principal, names))


__all__ = [
    "LISTENER",
    "digest",
    "environment",
    "key",
    "marker",
    "objects",
    "record",
    "secret",
    "variable",
]
