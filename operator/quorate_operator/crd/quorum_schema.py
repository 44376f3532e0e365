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

from quorate_operator.crd import schema
from quorate_operator.crd.destination import destination
from quorate_operator.crd.external import external_access, rules_of_spec
from quorate_operator.crd.pod_schema import common_labels, peers, pod_template, strings
from quorate_operator.crd.rules import (
    QUANTITY,
    SUBDOMAIN_OR_NONE,
    Schema,
    kept,
    kept_as_created,
)
from quorate_operator.crd.takeover_schema import (
    KEPT_UNTIL_COMPLETE,
    RULES_OF_LISTENER,
    rules_of_takeover,
    status_of_takeover,
    takeover,
)
from quorate_operator.naming import (
    APPROVED_ANNOTATION,
    BROKER_ID_FIRST,
    BROKERS_MAX,
    FIRST_NODE_ID_MAX,
    KAFKA_PORT,
    KAFKA_SSL,
    KIND,
    NODES_MAX,
    OWN_PREFIXES,
    OWN_SETTINGS,
    PLURAL,
    SETTING_PATTERN,
    USABLE_LABEL,
    VOLUME_SIZE,
    ZOOKEEPER_CA,
    ZOOKEEPER_PAIR,
)
from quorate_operator.planning.windows import DAYS, HOURS_MAX, START_PATTERN

REVISION = 6
"""The revision of the schema. Raise it with each change, and never use one twice."""

CONDITIONS = (
    "Ready",
    "SpecApplied",
    "Quorate",
    "Bootstrapped",
    "Progressing",
    "Degraded",
    "DataLossRisk",
    "Conflict",
    "Hibernated",
    "Fenced",
    "Paused",
)


def _identity() -> dict[str, Schema]:
    """The fields that identify the cluster and its nodes; fixed at creation."""
    highest = NODES_MAX - 1
    apart = {
        "rule": f"self + {highest} < {BROKER_ID_FIRST} || self >= {BROKER_ID_FIRST + BROKERS_MAX}",
        "message": f"the chart's brokers have the node ids from {BROKER_ID_FIRST} on",
    }
    return {
        "firstNodeId": schema.integer(
            "Pod N is node firstNodeId + N. No broker may have one of these ids: 3000 is a good "
            "choice for the migration of a Kafka cluster. Cannot be changed later.",
            minimum=0,
            maximum=FIRST_NODE_ID_MAX,
            default=0,
            **{"x-kubernetes-validations": [apart]},
        ),
        "clusterId": schema.text(
            "The id of the new cluster; default: a random one. A migration needs the id of the "
            "Kafka cluster to migrate. Cannot be changed later.",
            pattern="^[A-Za-z0-9_-]{22}$",
        ),
    }


def _bootstrap() -> Schema:
    recovery = schema.object(
        "Restores a backup, instead of starting empty. The new cluster has another id.",
        {
            "source": destination("Where the archive is."),
            "toOffset": schema.integer(
                "Only the records before this offset.", minimum=0, format="int64"
            ),
            "toTime": schema.text(
                "Only the records before the first one that is later.", format="date-time"
            ),
        },
        required=["source"],
        **{
            "x-kubernetes-validations": [
                {
                    "rule": "!has(self.toOffset) || !has(self.toTime)",
                    "message": "toOffset and toTime cannot be used together",
                }
            ]
        },
    )
    return schema.object(
        "How the quorum begins. Ignored once it has begun. Cannot be changed later.",
        {"recovery": recovery},
        required=["recovery"],
    )


def _kafka() -> dict[str, Schema]:
    """The fields for Kafka brokers."""
    return {
        "kafkaListener": schema.object(
            f"A listener on port {KAFKA_PORT} that speaks the Kafka protocol to Kafka's brokers "
            "and tools.",
            {
                "enabled": schema.boolean(
                    "Whether nodes have the listener. A migration implies it, and migrated brokers "
                    "stay on it when `migration` is removed.",
                    default=False,
                ),
                "name": schema.text(
                    "The listener's name; default: KAFKA. A takeover needs the name that the "
                    "listener of Kafka's controllers has, which is mostly CONTROLLER: the listener "
                    "for gRPC is then called RAFT. Cannot be changed later.",
                    pattern="^[A-Z][A-Z0-9_]{0,62}$",
                ),
                # No default: the API server would set it in Quorums that exist, whose brokers
                # use PLAINTEXT.
                "protocol": schema.text(
                    "SSL: encrypted with the nodes' certificates, and every client presents one "
                    "(`clients`). Not set: PLAINTEXT, which disables the operator's authorizer.",
                    enum=["PLAINTEXT", KAFKA_SSL],
                ),
            },
            default={},
            **{"x-kubernetes-validations": RULES_OF_LISTENER},
        ),
        "takeover": takeover(),
        "migration": schema.object(
            "Migrates a Kafka cluster from ZooKeeper (KIP-866). Its brokers connect to the "
            f"controllers at port {KAFKA_PORT}. Needs clusterId and firstNodeId.",
            {
                "enabled": schema.boolean(
                    "Set to false once all brokers run in KRaft mode: ends the migration "
                    "permanently. The listener for brokers stays open.",
                    default=True,
                ),
                "zookeeperConnect": schema.text(
                    "The ZooKeeper ensemble, HOST:PORT,…/CHROOT.", minLength=1, maxLength=1024
                ),
                "tls": schema.object(
                    "TLS for connections to ZooKeeper.",
                    {
                        "secretName": schema.text(
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
        field: schema.text(text, enum=["Retain", "Delete"], default="Retain")
        for field, text in (
            ("whenDeleted", "Whether to keep the volumes when the Quorum is deleted."),
            ("whenScaled", "Whether to keep the volumes of nodes that are removed."),
        )
    }
    return schema.object(
        "The volume of each node.",
        {
            "size": schema.text(
                "As in a PersistentVolumeClaim. Volumes are expanded if their StorageClass allows "
                "it, and never become smaller.",
                default=VOLUME_SIZE,
                maxLength=32,
                pattern=QUANTITY,
            ),
            "storageClassName": schema.text(
                "Default: the cluster's default StorageClass. A change affects new volumes: the "
                "operator creates the StatefulSet again, keeping its pods.",
                maxLength=253,
                pattern=SUBDOMAIN_OR_NONE,
            ),
            "retention": schema.object(
                "Whether volumes are kept or deleted.", retention, default={}
            ),
        },
        default={},
    )


def _rollout() -> Schema:
    window = schema.object(
        "A time of the week, in UTC.",
        {
            "days": {
                "type": "array",
                "description": "Default: every day.",
                "items": {"type": "string", "enum": [*DAYS]},
                "maxItems": len(DAYS),
                "x-kubernetes-list-type": "set",
            },
            "start": schema.text("HH:MM.", pattern=START_PATTERN),
            "hours": schema.integer("Duration.", minimum=1, maximum=HOURS_MAX),
        },
        required=["start", "hours"],
    )
    return schema.object(
        "When live pods are restarted for a changed image, setting or pod template. Pods that are "
        "dead, and pods that restart for another reason, get it at once.",
        {
            "approval": schema.text(
                f"Manual: pods wait until the annotation {APPROVED_ANNOTATION} of the Quorum is "
                "status.updateRevision.",
                enum=["Automatic", "Manual"],
                default="Automatic",
            ),
            "windows": {
                "type": "array",
                "description": "Maintenance windows; default: any time.",
                "items": window,
                "maxItems": 16,
            },
        },
        default={},
    )


def _spec() -> Schema:
    own = ", ".join(f"'{name}'" for name in OWN_SETTINGS)
    apart = "".join(f" && !name.startsWith('{prefix}')" for prefix in OWN_PREFIXES)
    config = strings(
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
    return schema.object(
        "The desired state of the quorum.",
        {
            "replicas": schema.integer(
                "Number of voters; an odd number tolerates the most failures for its cost.",
                minimum=1,
                maximum=NODES_MAX,
                default=3,
            ),
            **_identity(),
            "bootstrap": _bootstrap(),
            **_kafka(),
            "image": schema.text(
                "The controllers' image, from a repository that the operator allows.",
                minLength=1,
                maxLength=512,
            ),
            "imagePullPolicy": schema.text(
                "As in a pod.", enum=["Always", "IfNotPresent", "Never"], default="IfNotPresent"
            ),
            "storage": _storage(),
            "podTemplate": pod_template(),
            "commonLabels": common_labels(),
            "tls": schema.object(
                "Mutual TLS between nodes, and between nodes and clients.",
                {
                    "enabled": schema.boolean("Cannot be changed later.", default=True),
                    "certificateDays": schema.integer(
                        "Validity of a certificate in days; renewed after two thirds of it.",
                        minimum=1,
                        maximum=825,
                        default=90,
                    ),
                    "brokerCertificates": schema.integer(
                        "Number of brokers for which certificates are issued, in NAME-broker-tls.",
                        minimum=0,
                        maximum=BROKERS_MAX,
                        default=0,
                    ),
                    "authorityDays": schema.integer(
                        "Validity of the authority in days; replaced after two thirds of it.",
                        minimum=2,
                        maximum=7300,
                        default=3650,
                    ),
                    "authorityRevision": schema.integer(
                        "Changing this number replaces the authority, without a restart.",
                        minimum=1,
                        default=1,
                    ),
                    "rotationWaitSeconds": schema.integer(
                        "Minimum time for clients to reload their files, in each of the two steps "
                        "that replace the authority.",
                        minimum=0,
                        maximum=604800,
                        default=300,
                    ),
                    "certManager": schema.object(
                        "Certificates from cert-manager, in the Secrets NAME-node-N-tls, "
                        "NAME-client-tls and NAME-operator-tls.",
                        {"enabled": schema.boolean("Cannot be changed later.", default=False)},
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
            "authorization": schema.object(
                "Authorization of requests. Needs certificates from the operator's own authority. "
                "Without TLS, with cert-manager, with a PLAINTEXT listener for Kafka brokers, or "
                "during a takeover, configure the authorizer in config instead.",
                {
                    "enabled": schema.boolean(
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
                "items": schema.object(
                    "One client.",
                    {
                        "name": schema.text(
                            "", maxLength=30, pattern="^[a-z]([-a-z0-9]*[a-z0-9])?$"
                        ),
                        "superUser": schema.boolean(
                            "Whether the client is a super user; otherwise it needs ACLs.",
                            default=False,
                        ),
                        "brokerId": schema.integer(
                            "The client is the Kafka broker with this node id: its certificate "
                            "also names node-ID, and it is granted the cluster action.",
                            minimum=0,
                            maximum=2**31 - 1,
                        ),
                    },
                    required=["name"],
                ),
            },
            "external": external_access(),
            "networkPolicy": schema.object(
                "Which pods may connect.",
                {
                    "enabled": schema.boolean(
                        "Allows nodes, the operator and labelled clients only.", default=True
                    ),
                    "metricsFrom": peers(
                        "Which pods may read metrics, as in a NetworkPolicy's `from`; empty: none.",
                        default=[],
                    ),
                    "brokersFrom": peers(
                        "Which Kafka brokers may connect, as in a NetworkPolicy's `from`; default: "
                        "labelled clients; empty: none.",
                    ),
                    "externalFrom": peers(
                        "From where clients of `external` may connect, as in a NetworkPolicy's "
                        "`from`; default: anywhere; empty: from nowhere.",
                    ),
                },
                default={},
            ),
            "paused": schema.boolean(
                "The operator reports the status but changes nothing.", default=False
            ),
            "hibernated": schema.boolean(
                "Deletes all pods and keeps the volumes. The voters stay the same, and return when "
                "this is false.",
                default=False,
            ),
            "rollout": _rollout(),
            "diskReplacement": schema.text(
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
                kept_as_created("bootstrap"),
                {
                    "rule": "!has(self.migration) || !has(self.bootstrap)",
                    "message": "a migration cannot begin with a backup",
                },
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
                *rules_of_takeover(),
                *rules_of_spec(),
            ]
        },
    )


def _status_of_parts() -> dict[str, Schema]:
    """The fields that are absent in the status until they are known."""
    return {
        "storage": schema.object(
            "The volume claims with which new volumes begin.",
            {
                "size": schema.text("", maxLength=32),
                "storageClassName": schema.text("", maxLength=253),
            },
            nullable=True,
        ),
        "migration": schema.object(
            "Progress of the migration from ZooKeeper, as last reported by the leader.",
            {
                "state": schema.text("NONE, PRE_MIGRATION, MIGRATION or POST_MIGRATION."),
                "brokersInZooKeeperMode": schema.integer(
                    "Number of registered brokers in ZooKeeper mode."
                ),
            },
            nullable=True,
        ),
        "takeover": status_of_takeover(),
        "authority": schema.object(
            "The operator's own certificate authority.",
            {
                "revision": schema.integer(
                    "spec.tls.authorityRevision when the last replacement began."
                ),
                "phase": schema.text("Stable; Preparing or Switching while it is being replaced."),
            },
            nullable=True,
        ),
    }


def _status() -> Schema:
    member = schema.object(
        "One node.",
        {
            "nodeId": schema.integer(""),
            "directoryId": schema.text(""),
            "role": schema.text("leader, voter, observer, unformatted, fenced or unknown."),
            "lag": schema.integer("Number of records behind the leader.", format="int64"),
            "endpoint": schema.text(""),
            "externalEndpoint": schema.text("Where clients outside the cluster reach the node."),
            "version": schema.text(""),
        },
        required=["nodeId"],
    )
    return schema.object(
        "The observed state of the quorum.",
        {
            "observedGeneration": schema.integer("", format="int64"),
            "replicas": schema.integer("Number of pods."),
            "readyReplicas": schema.integer("Number of ready pods."),
            "voters": schema.integer("Size of the voter set."),
            "voterSet": {
                "type": "array",
                "description": "The last observed voter set, as ID-DIRECTORYID.",
                "items": {"type": "string"},
            },
            "leader": schema.object(
                "",
                {"id": schema.integer(""), "epoch": schema.integer("", format="int64")},
                nullable=True,
            ),
            "clusterId": schema.text(""),
            "selector": schema.text("Label selector of the pods, for the scale subresource."),
            "updateRevision": schema.text("Revision of the template of new pods.", nullable=True),
            "externalBootstrapServers": schema.text(
                "What clients outside the cluster connect to: the addresses of all nodes.",
                nullable=True,
            ),
            "currentAction": schema.text("What the operator is doing or waiting for."),
            "operator": schema.text("The operator that acts: the NAMESPACE/NAME of its lease."),
            **_status_of_parts(),
            "members": {
                "type": "array",
                "items": member,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["nodeId"],
            },
            "conditions": schema.conditions(),
        },
    )


def definition() -> dict[str, Any]:
    """The CustomResourceDefinition."""
    validations = [KEPT_UNTIL_COMPLETE]
    description = "A replicated metadata quorum, managed by the operator."
    subresources = {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    }
    columns = [
        schema.column("Desired", "integer", ".spec.replicas"),
        schema.column("Voters", "integer", ".status.voters"),
        schema.column("Ready", "integer", ".status.readyReplicas"),
        schema.column("Leader", "integer", ".status.leader.id"),
        schema.column("Quorate", "string", ".status.conditions[?(@.type=='Quorate')].status"),
        schema.column("Age", "date", ".metadata.creationTimestamp"),
        schema.column("Action", "string", ".status.currentAction", 1),
        schema.column("ClusterId", "string", ".status.clusterId", 1),
        schema.column("Migration", "string", ".status.migration.state", 1),
        schema.column("Takeover", "string", ".status.takeover.phase", 1),
        schema.column("Operator", "string", ".status.operator", 1),
    ]
    found = schema.resource(description, _spec(), _status(), validations)
    return schema.definition(
        REVISION, KIND, PLURAL, "qu", described_by=found, subresources=subresources, columns=columns
    )
