"""What the objects of a Quorum are called, and where its nodes are reached.

The pod of ordinal N is node `NodeIds.first` + N: its node id, its volume and its address follow
from its name and that number, for the operator and for the pod alike (`pod.py`). Pods, volumes and
Services are counted by ordinals, what controllers hear and say is by node ids, and nothing but
`NodeIds` turns one into the other. This module imports nothing but the standard library, because
pods use it too.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

GROUP = "quorate.dev"
VERSION = "v1alpha1"
KIND = "Quorum"
PLURAL = "quorums"
API_VERSION = f"{GROUP}/{VERSION}"

LISTENER = "CONTROLLER"
PORT = 9093
KAFKA_LISTENER = "KAFKA"
KAFKA_PORT = 9094
"""Kafka's own protocol, unencrypted, for Kafka's brokers."""
HTTP_PORT = 9464
"""Probes and metrics, unencrypted."""
VOLUME = "data"
DATA_PATH = "/var/lib/quorate"
TLS_PATH = "/etc/quorate/tls"
KEY_PATH = "/etc/quorate/key/tls.key"
"""The private key of a pod. It stays the same while the pod lives: its certificates change."""
ZOOKEEPER_TLS_PATH = "/etc/quorate/zookeeper"
ZOOKEEPER_CA = "ca.crt"
ZOOKEEPER_PAIR = "client.pem"
"""The certificate and its private key that ZooKeeper asks for, if it does, in one file."""

OWN_SETTINGS = (
    "process.roles",
    "node.id",
    "cluster.id",
    "listeners",
    "advertised.listeners",
    "controller.listener.names",
    "listener.security.protocol.map",
    "controller.quorum.voters",
    "controller.quorum.bootstrap.servers",
    "controller.quorum.auto.join.enable",
    "quorate.unformatted.wait",
    "quorate.http.listener",
    "metadata.log.dir",
    "log.dir",
    "log.dirs",
    "quorate.kafka.listener.name",
    "zookeeper.metadata.migration.enable",
    "zookeeper.connect",
    "zookeeper.clientCnxnSocket",
    "zookeeper.ssl.client.enable",
    "zookeeper.ssl.truststore.location",
    "zookeeper.ssl.keystore.location",
)
"""Settings that the operator decides; `spec.config` may not name them."""
OWN_PREFIXES = ("ssl.", "pod.")
"""All settings that begin with one of these, too: the pod's entry is told who it is by `pod.`."""

OPERATOR, CLIENT = "operator", "client"
"""What the operator's certificate, and that in NAME-client-tls, call themselves."""

BROKER_LISTENER = "BROKER"
BROKER_PORT = 9092
BROKER_ID_FIRST = 1000
"""Broker N is node 1000 + N: ids of controllers and brokers must not meet."""
BROKERS_MAX = 100

NODES_MAX = 9
"""The most voters that a Quorum may have; ordinals beyond belong to nobody."""
FIRST_NODE_ID_MAX = 2**31 - NODES_MAX
"""The highest node id that Kafka's formats can hold is 2^31 - 1."""

NAME_LABEL = "app.kubernetes.io/name"
INSTANCE_LABEL = "app.kubernetes.io/instance"
MANAGED_LABEL = "app.kubernetes.io/managed-by"
POD_LABEL = "statefulset.kubernetes.io/pod-name"
COMPONENT_LABEL = "app.kubernetes.io/component"
USABLE_LABEL = f"{GROUP}/usable-by"
"""On a Secret that a Quorum's pods are to mount and that is not the Quorum's own: its name."""
HASH_ANNOTATION = f"{GROUP}/hash"


@dataclass(frozen=True, slots=True)
class NodeIds:
    """Which node the pods of a Quorum are: that of ordinal N is node `first` + N."""

    first: int = 0

    def of(self, ordinal: int) -> int:
        return self.first + ordinal

    def ordinal(self, node_id: int) -> int | None:
        """The inverse; None for a node that no pod of the Quorum can be."""
        ordinal = node_id - self.first
        return ordinal if 0 <= ordinal < NODES_MAX else None


SAME_IDS = NodeIds()
"""Pod N is node N."""

_ORDINAL = re.compile(r"-([0-9]{1,4})$")


def labels(quorum: str) -> dict[str, str]:
    """The labels of every object of a Quorum."""
    return selector(quorum) | {MANAGED_LABEL: "quorate-operator"}


def selector(quorum: str) -> dict[str, str]:
    """What selects the pods (and their volume claims) of a Quorum."""
    return {NAME_LABEL: "quorate", INSTANCE_LABEL: quorum, COMPONENT_LABEL: "controller"}


def selector_text(quorum: str) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(selector(quorum).items()))


def service(quorum: str) -> str:
    """The headless Service of all nodes, for clients that look for any of them."""
    return f"{quorum}-controllers"


def node_service(quorum: str, ordinal: int) -> str:
    """The Service of one node. Its address outlives pods, so that nobody who kept a pod's address
    waits for an answer from where nobody is.
    """
    return pod(quorum, ordinal)


def record(quorum: str) -> str:
    """The ConfigMap that says for which cluster the Quorum was begun."""
    return f"{quorum}-bootstrap"


def marker(quorum: str) -> str:
    """The ConfigMap whose existence says that no node may be formatted standalone any more."""
    return f"{quorum}-bootstrapped"


def node_secret(quorum: str) -> str:
    return f"{quorum}-node-tls"


def authority_secret(quorum: str) -> str:
    return f"{quorum}-ca"


def client_secret(quorum: str) -> str:
    return f"{quorum}-client-tls"


def named_client_secret(quorum: str, client: str) -> str:
    """The certificate of a client in `spec.clients`."""
    return f"{quorum}-client-{client}-tls"


def client_name(client: str) -> str:
    """What the certificate of a client in `spec.clients` calls it."""
    return f"client-{client}"


def broker_name(ordinal: int) -> str:
    """What a broker's certificate calls it, and how its files are named."""
    return f"broker-{ordinal}"


def principal(name: str) -> str:
    """Who shows the certificate with this name that the operator issued."""
    return f"User:CN={name}"


def broker_secret(quorum: str) -> str:
    return f"{quorum}-broker-tls"


def broker_host(quorum: str, namespace: str, ordinal: int) -> str:
    """Where a broker is reached, by its StatefulSet's headless Service."""
    return f"{quorum}-broker-{ordinal}.{quorum}-brokers.{namespace}.svc"


def operator_secret(quorum: str) -> str:
    """The operator's own certificate, where somebody else issues it."""
    return f"{quorum}-operator-tls"


def given_node_secret(quorum: str, node_id: int) -> str:
    """A node's certificate, where somebody else issues it."""
    return f"{quorum}-{node_name(node_id)}-tls"


def node_name(node_id: int) -> str:
    """What a node's certificate calls it, and how its files are named."""
    return f"node-{node_id}"


def pod(quorum: str, ordinal: int) -> str:
    return f"{quorum}-{ordinal}"


def claim(quorum: str, ordinal: int) -> str:
    """The volume claim of a pod, as a StatefulSet names it."""
    return f"{VOLUME}-{quorum}-{ordinal}"


def ordinal_of(name: str) -> int | None:
    """The ordinal in the name of a pod or of its claim."""
    found = _ORDINAL.search(name)
    return int(found.group(1)) if found else None


def host(quorum: str, namespace: str, ordinal: int) -> str:
    """Where the node of an ordinal is reached, from any pod of the cluster."""
    return f"{node_service(quorum, ordinal)}.{namespace}.svc"


def place(quorum: str, namespace: str, ordinal: int) -> tuple[str, int]:
    """Host and port of a node, for who dials it."""
    return host(quorum, namespace, ordinal), PORT


def address(quorum: str, namespace: str, ordinal: int) -> str:
    return f"{host(quorum, namespace, ordinal)}:{PORT}"


def bootstrap_servers(quorum: str, namespace: str) -> tuple[str, ...]:
    """Where a new node asks for the leader.

    It must not depend on the number of nodes, or scaling would restart them all. The lowest
    ordinals are the last that go; the Service stands for whoever is there.
    """
    first = [address(quorum, namespace, ordinal) for ordinal in range(3)]
    return (*first, f"{service(quorum)}.{namespace}.svc:{PORT}")


def repository(image: str) -> str:
    """An image's reference without its tag and digest."""
    name = image.partition("@")[0]
    head, colon, tag = name.rpartition(":")
    return head if colon and "/" not in tag else name


def is_allowed(image: str, allowed: Collection[str]) -> bool:
    """Whether an image is of one of these repositories; one that ends with `/` allows all below.
    No repositories: any image.
    """
    found = repository(image)
    return not allowed or any(
        found.startswith(each) if each.endswith("/") else found == each for each in allowed
    )


def variable(setting: str) -> str:
    """The environment variable of a setting."""
    return "QUORATE_" + setting.upper().replace(".", "_")


SETTING_PATTERN = "[a-z][a-z0-9]*([.][a-z0-9]+)*"
_SETTING = re.compile(SETTING_PATTERN)
_OWN_VARIABLES = frozenset(map(variable, OWN_SETTINGS))
_OWN_VARIABLE_PREFIXES = tuple(map(variable, OWN_PREFIXES))


def problem_of_setting(name: str) -> str:
    """Why `spec.config` may not have a setting; "" if it may. Names are compared as the variables
    that they become.
    """
    found = variable(name)
    if found in _OWN_VARIABLES or found.startswith(_OWN_VARIABLE_PREFIXES):
        return f"config names {name}, about which the operator decides"
    if not _SETTING.fullmatch(name):
        return f"config names {name!r}: a setting has lower-case words with dots between them"
    return ""
