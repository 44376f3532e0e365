"""The custom resource: group quorate.dev, version v1alpha1, kind Quorum.

`definition()` returns the CustomResourceDefinition. The chart ships it in `crds/` (a test keeps the
two identical), and the operator applies it at startup, because Helm never upgrades `crds/`.

Validation rules: the parent guards a field that cannot change later, with `!has(oldSelf.x) ||
has(self.x) && …`, because removing the field bypasses `self == oldSelf`. The same rules apply to
`kubectl scale`. State that must never be lost is not part of the resource: immutable ConfigMaps
hold it.
"""

from __future__ import annotations

from typing import Any

from quorate_operator.crd_rules import QUANTITY, Schema, kept, kept_as_created, kept_volume
from quorate_operator.naming import (
    BROKER_ID_FIRST,
    BROKERS_MAX,
    FIRST_NODE_ID_MAX,
    GROUP,
    KAFKA_PORT,
    KAFKA_SSL,
    KIND,
    NODES_MAX,
    OWN_PREFIXES,
    OWN_SETTINGS,
    PLURAL,
    SETTING_PATTERN,
    USABLE_LABEL,
    VERSION,
    ZOOKEEPER_CA,
    ZOOKEEPER_PAIR,
)

CONDITIONS = (
    "Ready",
    "SpecApplied",
    "Quorate",
    "Bootstrapped",
    "Progressing",
    "Degraded",
    "DataLossRisk",
    "Conflict",
    "Paused",
)


def _text(description: str, **more: Any) -> Schema:
    return {"type": "string", "description": description, **more}


def _integer(description: str, **more: Any) -> Schema:
    return {"type": "integer", "description": description, **more}


def _boolean(description: str, **more: Any) -> Schema:
    return {"type": "boolean", "description": description, **more}


def _object(description: str, properties: dict[str, Schema], **more: Any) -> Schema:
    return {"type": "object", "description": description, "properties": properties, **more}


def _free(description: str, kind: str = "object", **more: Any) -> Schema:
    """A field of a Kubernetes type, which the API server validates when it creates the pod."""
    schema: Schema = {"type": kind, "description": description, **more}
    if kind == "array":
        schema["items"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    else:
        schema["x-kubernetes-preserve-unknown-fields"] = True
    return schema


def _strings(description: str, **more: Any) -> Schema:
    values = {"type": "string", "maxLength": 1024}
    return {"type": "object", "description": description, "additionalProperties": values, **more}


def _identity() -> dict[str, Schema]:
    """The fields that identify the cluster and its nodes; fixed at creation."""
    highest = NODES_MAX - 1
    apart = {
        "rule": f"self + {highest} < {BROKER_ID_FIRST} || self >= {BROKER_ID_FIRST + BROKERS_MAX}",
        "message": f"the chart's brokers have the node ids from {BROKER_ID_FIRST} on",
    }
    return {
        "firstNodeId": _integer(
            "Pod N is node firstNodeId + N. No broker may have one of these ids: 3000 is a good "
            "choice for the migration of a Kafka cluster. Cannot be changed later.",
            minimum=0,
            maximum=FIRST_NODE_ID_MAX,
            default=0,
            **{"x-kubernetes-validations": [apart]},
        ),
        "clusterId": _text(
            "The id of the new cluster; default: a random one. A migration needs the id of the "
            "Kafka cluster to migrate. Cannot be changed later.",
            pattern="^[A-Za-z0-9_-]{22}$",
        ),
    }


def _kafka() -> dict[str, Schema]:
    """The fields for Kafka brokers."""
    return {
        "kafkaListener": _object(
            f"A listener on port {KAFKA_PORT} that speaks the Kafka protocol to Kafka's brokers "
            "and tools.",
            {
                "enabled": _boolean(
                    "Whether nodes have the listener. A migration implies it, and migrated brokers "
                    "stay on it when `migration` is removed.",
                    default=False,
                ),
                # No default: the API server would set it in Quorums that exist, whose brokers
                # use PLAINTEXT.
                "protocol": _text(
                    "SSL: encrypted with the nodes' certificates, and every client presents one "
                    "(`clients`). Not set: PLAINTEXT, which disables the operator's authorizer.",
                    enum=["PLAINTEXT", KAFKA_SSL],
                ),
            },
            default={},
        ),
        "migration": _object(
            "Migrates a Kafka cluster from ZooKeeper (KIP-866). Its brokers connect to the "
            f"controllers at port {KAFKA_PORT}. Needs clusterId and firstNodeId.",
            {
                "enabled": _boolean(
                    "Set to false once all brokers run in KRaft mode: ends the migration "
                    "permanently. The listener for brokers stays open.",
                    default=True,
                ),
                "zookeeperConnect": _text(
                    "The ZooKeeper ensemble, HOST:PORT,…/CHROOT.", minLength=1, maxLength=1024
                ),
                "tls": _object(
                    "TLS for connections to ZooKeeper.",
                    {
                        "secretName": _text(
                            f"A Secret with {ZOOKEEPER_CA}, the authorities that issue ZooKeeper's "
                            "certificates, and, if ZooKeeper requires client certificates, "
                            f"{ZOOKEEPER_PAIR}: private key and certificate in one file. The "
                            f"Secret needs the label {USABLE_LABEL} with the Quorum's name.",
                            minLength=1,
                            maxLength=253,
                        )
                    },
                    required=["secretName"],
                ),
            },
            required=["zookeeperConnect"],
        ),
    }


def _storage() -> Schema:
    retention = {
        field: _text(text, enum=["Retain", "Delete"], default="Retain")
        for field, text in (
            ("whenDeleted", "Whether to keep the volumes when the Quorum is deleted."),
            ("whenScaled", "Whether to keep the volumes of nodes that are removed."),
        )
    }
    return _object(
        "The volume of each node. size and storageClassName cannot be changed once the StatefulSet "
        "exists.",
        {
            "size": _text(
                "The size, as in a PersistentVolumeClaim.",
                default="10Gi",
                maxLength=32,
                pattern=QUANTITY,
            ),
            "storageClassName": _text(
                "Default: the cluster's default StorageClass.", maxLength=253
            ),
            "retention": _object("Whether volumes are kept or deleted.", retention, default={}),
        },
        default={},
    )


def _pod_template() -> Schema:
    return _object(
        "Fields of the pod template.",
        {
            "labels": _strings("Additional labels of the pods.", maxProperties=32),
            "annotations": _strings("Additional annotations of the pods.", maxProperties=32),
            "resources": _free("Resources of the controller container."),
            "nodeSelector": _strings("As in a pod.", maxProperties=32),
            "tolerations": _free("As in a pod.", "array", maxItems=32),
            "affinity": _free("As in a pod."),
            "topologySpreadConstraints": _free(
                "As in a pod; default: spread over zones and nodes where possible.",
                "array",
                maxItems=8,
            ),
            "imagePullSecrets": _free("As in a pod.", "array", maxItems=8),
            "priorityClassName": _text("As in a pod.", maxLength=253),
            "terminationGracePeriodSeconds": _integer(
                "Time for a controller to shut down and, if it leads, to transfer leadership.",
                minimum=5,
                maximum=600,
                default=30,
            ),
        },
        default={},
    )


def _spec() -> Schema:
    own = ", ".join(f"'{name}'" for name in OWN_SETTINGS)
    apart = "".join(f" && !name.startsWith('{prefix}')" for prefix in OWN_PREFIXES)
    config = _strings(
        "Settings of the controllers under Kafka's names (`quorate config-docs` lists them). Names "
        "are lower-case words separated by dots.",
        maxProperties=64,
    )
    config["x-kubernetes-validations"] = [
        {
            "rule": f"self.all(name, !(name in [{own}]){apart})",
            "message": "the operator sets ids, listeners, directories and TLS itself",
        },
        {
            "rule": f"self.all(name, name.matches('^{SETTING_PATTERN}$'))",
            "message": "setting names are lower-case words separated by dots",
        },
    ]
    return _object(
        "The desired state of the quorum.",
        {
            "replicas": _integer(
                "Number of voters; an odd number tolerates the most failures for its cost.",
                minimum=1,
                maximum=NODES_MAX,
                default=3,
            ),
            **_identity(),
            **_kafka(),
            "image": _text(
                "The controllers' image, from a repository that the operator allows.",
                minLength=1,
                maxLength=512,
            ),
            "imagePullPolicy": _text(
                "As in a pod.", enum=["Always", "IfNotPresent", "Never"], default="IfNotPresent"
            ),
            "storage": _storage(),
            "podTemplate": _pod_template(),
            "tls": _object(
                "Mutual TLS between nodes, and between nodes and clients.",
                {
                    "enabled": _boolean("Cannot be changed later.", default=True),
                    "certificateDays": _integer(
                        "Validity of a certificate in days; renewed after two thirds of it.",
                        minimum=1,
                        maximum=825,
                        default=90,
                    ),
                    "brokerCertificates": _integer(
                        "Number of brokers for which certificates are issued, in NAME-broker-tls.",
                        minimum=0,
                        maximum=BROKERS_MAX,
                        default=0,
                    ),
                    "authorityDays": _integer(
                        "Validity of the authority in days; replaced after two thirds of it.",
                        minimum=2,
                        maximum=7300,
                        default=3650,
                    ),
                    "authorityRevision": _integer(
                        "Changing this number replaces the authority, without a restart.",
                        minimum=1,
                        default=1,
                    ),
                    "rotationWaitSeconds": _integer(
                        "Minimum time for clients to reload their files, in each of the two steps "
                        "that replace the authority.",
                        minimum=0,
                        maximum=604800,
                        default=300,
                    ),
                    "certManager": _object(
                        "Certificates from cert-manager, in the Secrets NAME-node-N-tls, "
                        "NAME-client-tls and NAME-operator-tls.",
                        {"enabled": _boolean("Cannot be changed later.", default=False)},
                        default={},
                        **{"x-kubernetes-validations": [kept("enabled")]},
                    ),
                },
                default={},
                **{
                    "x-kubernetes-validations": [
                        kept("enabled"),
                        {
                            "rule": "!has(oldSelf.certManager) || has(self.certManager)",
                            "message": "certManager cannot be removed",
                        },
                    ]
                },
            ),
            "authorization": _object(
                "Authorization of requests. Needs certificates from the operator's own authority. "
                "Without TLS, with cert-manager, or with a PLAINTEXT listener for Kafka brokers, "
                "configure the authorizer in config instead.",
                {
                    "enabled": _boolean(
                        "Enables the authorizer. The operator, the nodes, NAME-client-tls and "
                        "clients with superUser are super users; brokers are granted the cluster "
                        "action; everyone else needs ACLs.",
                        default=True,
                    )
                },
                default={},
            ),
            "clients": {
                "type": "array",
                "description": "Clients with their own certificates, in NAME-client-CLIENT-tls; "
                "their principals are User:CN=client-CLIENT.",
                "maxItems": 32,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": _object(
                    "One client.",
                    {
                        "name": _text("", maxLength=30, pattern="^[a-z]([-a-z0-9]*[a-z0-9])?$"),
                        "superUser": _boolean(
                            "Whether the client is a super user; otherwise it needs ACLs.",
                            default=False,
                        ),
                        "brokerId": _integer(
                            "The client is the Kafka broker with this node id: its certificate "
                            "also names node-ID, and it is granted the cluster action.",
                            minimum=0,
                            maximum=2**31 - 1,
                        ),
                    },
                    required=["name"],
                ),
            },
            "networkPolicy": _object(
                "Which pods may connect.",
                {
                    "enabled": _boolean(
                        "Allows nodes, the operator and labelled clients only.", default=True
                    ),
                    "metricsFrom": _free(
                        "Which pods may read metrics, as in a NetworkPolicy's `from`; empty: none.",
                        "array",
                        maxItems=16,
                        default=[],
                    ),
                    "brokersFrom": _free(
                        "Which Kafka brokers may connect, as in a NetworkPolicy's `from`; default: "
                        "labelled clients; empty: none.",
                        "array",
                        maxItems=16,
                    ),
                },
                default={},
            ),
            "paused": _boolean(
                "The operator reports the status but changes nothing.", default=False
            ),
            "diskReplacement": _text(
                "Automatic: a voter whose disk is lost is removed, and its replacement added. "
                "Manual: replacement waits until you remove the voter.",
                enum=["Automatic", "Manual"],
                default="Automatic",
            ),
            "config": config,
        },
        required=["image"],
        **{
            "x-kubernetes-validations": [
                {
                    "rule": "!has(oldSelf.storage) || has(self.storage)",
                    "message": "storage cannot be removed",
                },
                {"rule": "!has(oldSelf.tls) || has(self.tls)", "message": "tls cannot be removed"},
                kept("firstNodeId"),
                kept_as_created("clusterId"),
                {
                    "rule": "!has(self.migration) || has(self.clusterId)",
                    "message": "a migration needs clusterId, the id of the cluster to migrate",
                },
                {
                    "rule": "!has(self.migration) || self.firstNodeId > 0",
                    "message": "a migration needs firstNodeId, such as 3000: no broker may have "
                    "the id of a controller",
                },
                {
                    "rule": "!has(oldSelf.migration) || has(self.migration) || "
                    "(has(self.kafkaListener) && self.kafkaListener.enabled)",
                    "message": "migrated brokers need the listener: set kafkaListener.enabled "
                    "to remove migration",
                },
                {
                    "rule": "!has(self.kafkaListener) || !has(self.kafkaListener.protocol) || "
                    f"self.kafkaListener.protocol != '{KAFKA_SSL}' || !has(self.tls) || "
                    "!has(self.tls.enabled) || self.tls.enabled",
                    "message": f"kafkaListener.protocol {KAFKA_SSL} needs tls.enabled",
                },
                {
                    "rule": "!has(self.clients) || self.clients.all(c, !has(c.brokerId) || "
                    "c.brokerId < self.firstNodeId || "
                    f"c.brokerId >= self.firstNodeId + {NODES_MAX})",
                    "message": "a brokerId is a controller's id",
                },
            ]
        },
    )


def _status_of_parts() -> dict[str, Schema]:
    """What is absent in the status until it is known."""
    return {
        "storage": _object(
            "The volume claims of the StatefulSet.",
            {"size": _text("", maxLength=32), "storageClassName": _text("", maxLength=253)},
            nullable=True,
        ),
        "migration": _object(
            "Progress of the migration from ZooKeeper, as last reported by the leader.",
            {
                "state": _text("NONE, PRE_MIGRATION, MIGRATION or POST_MIGRATION."),
                "brokersInZooKeeperMode": _integer(
                    "Number of registered brokers in ZooKeeper mode."
                ),
            },
            nullable=True,
        ),
        "authority": _object(
            "The operator's own certificate authority.",
            {
                "revision": _integer("spec.tls.authorityRevision when the last replacement began."),
                "phase": _text("Stable; Preparing or Switching while it is being replaced."),
            },
            nullable=True,
        ),
    }


def _status() -> Schema:
    condition = _object(
        "One condition.",
        {
            "type": _text("", maxLength=64),
            "status": _text("", enum=["True", "False", "Unknown"]),
            "reason": _text("", maxLength=128),
            "message": _text("", maxLength=4096),
            "lastTransitionTime": _text("", format="date-time"),
            "observedGeneration": _integer("", format="int64"),
        },
        required=["type", "status"],
    )
    member = _object(
        "One node.",
        {
            "nodeId": _integer(""),
            "directoryId": _text(""),
            "role": _text("leader, voter, observer, unformatted or unknown."),
            "lag": _integer("Number of records behind the leader.", format="int64"),
            "endpoint": _text(""),
            "version": _text(""),
        },
        required=["nodeId"],
    )
    return _object(
        "The observed state of the quorum.",
        {
            "observedGeneration": _integer("", format="int64"),
            "replicas": _integer("Number of pods."),
            "readyReplicas": _integer("Number of ready pods."),
            "voters": _integer("Size of the voter set."),
            "voterSet": {
                "type": "array",
                "description": "The last observed voter set, as ID-DIRECTORYID.",
                "items": {"type": "string"},
            },
            "leader": _object(
                "", {"id": _integer(""), "epoch": _integer("", format="int64")}, nullable=True
            ),
            "clusterId": _text(""),
            "selector": _text("Label selector of the pods, for the scale subresource."),
            "currentAction": _text("What the operator is doing or waiting for."),
            **_status_of_parts(),
            "members": {
                "type": "array",
                "items": member,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["nodeId"],
            },
            "conditions": {
                "type": "array",
                "items": condition,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
        },
    )


def _column(name: str, kind: str, path: str, priority: int = 0) -> Schema:
    return {"name": name, "type": kind, "jsonPath": path, "priority": priority}


def definition() -> dict[str, Any]:
    """The CustomResourceDefinition."""
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "description": "A replicated metadata quorum, managed by the operator.",
                "required": ["spec"],
                "properties": {
                    "apiVersion": {"type": "string"},
                    "kind": {"type": "string"},
                    "metadata": {
                        "type": "object",
                        "properties": {
                            # Pod names, which are host names, derive from it.
                            "name": {
                                "type": "string",
                                "maxLength": 40,
                                "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$",
                            }
                        },
                    },
                    "spec": _spec(),
                    "status": _status(),
                },
                "x-kubernetes-validations": [
                    kept_volume("size"),
                    kept_volume("storageClassName"),
                ],
            }
        },
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            _column("Desired", "integer", ".spec.replicas"),
            _column("Voters", "integer", ".status.voters"),
            _column("Ready", "integer", ".status.readyReplicas"),
            _column("Leader", "integer", ".status.leader.id"),
            _column("Quorate", "string", ".status.conditions[?(@.type=='Quorate')].status"),
            _column("Age", "date", ".metadata.creationTimestamp"),
            _column("Action", "string", ".status.currentAction", 1),
            _column("ClusterId", "string", ".status.clusterId", 1),
            _column("Migration", "string", ".status.migration.state", 1),
        ],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": "quorum",
                "shortNames": ["qu"],
            },
            "versions": [version],
        },
    }
