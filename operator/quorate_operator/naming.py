"""The names of a Quorum's objects, and the addresses of its nodes.

The pod of ordinal N is node `NodeIds.first` + N. The operator and the pod (`pod.py`) both derive
its node id, volume and address from its name and that number. Ordinals identify pods, volumes and
Services; node ids identify nodes in the protocol. Only `NodeIds` converts between the two. This
module imports only the standard library, because pods use it too.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
"""An object of Kubernetes, or a part of one, as JSON."""

GROUP = "quorate.dev"
VERSION = "v1alpha1"
KIND = "Quorum"
PLURAL = "quorums"
API_VERSION = f"{GROUP}/{VERSION}"

LISTENER = "CONTROLLER"
PORT = 9093
KAFKA_LISTENER = "KAFKA"
KAFKA_PORT = 9094
"""The port of Kafka's own protocol, for Kafka's brokers and tools."""
RAFT_LISTENER = "RAFT"
"""The listener for gRPC in a Quorum whose listener for Kafka's protocol is called `LISTENER`."""
KAFKA_SSL = "SSL"
"""The value of the protocol of that port that encrypts it."""
HTTP_PORT = 9464
"""The port of probes and metrics, unencrypted."""
VOLUME = "data"
VOLUME_SIZE = "10Gi"
"""The default size of a volume."""
DATA_PATH = "/var/lib/quorate"
METADATA_PATH = f"{DATA_PATH}/metadata"
"""A directory of its own: the root of a volume may hold lost+found."""
TLS_PATH = "/etc/quorate/tls"
KEY_PATH = "/etc/quorate/key/tls.key"
"""A pod's private key. It stays the same for the pod's lifetime; only certificates change."""
ZOOKEEPER_TLS_PATH = "/etc/quorate/zookeeper"
ZOOKEEPER_CA = "ca.crt"
ZOOKEEPER_PAIR = "client.pem"
"""The client certificate and its private key in one file, if ZooKeeper requires them."""

_MEMBERSHIP = "it adds and removes voters with the quorum's own requests"
_ADDRESSES = "certificates and Services have these names (see spec.kafkaListener for Kafka's port)"
_VOLUME = "the node's volume is mounted there"
_MIGRATION = "see spec.migration"
_IDENTITY = "it follows from the pod's name and spec.firstNodeId"
_FORMATTING = "it formats each node itself, once"
_TLS = "it issues and mounts the certificates: see spec.tls"

OWN_SETTINGS = {
    "process.roles": "the pods of a Quorum are controllers",
    "node.id": _IDENTITY,
    "cluster.id": "see spec.clusterId",
    "listeners": _ADDRESSES,
    "advertised.listeners": _ADDRESSES,
    "controller.listener.names": _ADDRESSES,
    "listener.security.protocol.map": _ADDRESSES,
    "controller.quorum.voters": _MEMBERSHIP,
    "controller.quorum.bootstrap.servers": _MEMBERSHIP,
    "controller.quorum.auto.join.enable": _MEMBERSHIP,
    "quorate.unformatted.wait": _FORMATTING,
    "quorate.unformatted.format": _FORMATTING,
    "quorate.http.listener": "probes and metrics are at port 9464",
    "metadata.log.dir": _VOLUME,
    "log.dir": _VOLUME,
    "log.dirs": _VOLUME,
    "quorate.kafka.listener.name": "see spec.kafkaListener",
    "zookeeper.metadata.migration.enable": _MIGRATION,
    "zookeeper.connect": _MIGRATION,
    "zookeeper.clientCnxnSocket": _MIGRATION,
    "zookeeper.ssl.client.enable": _MIGRATION,
    "zookeeper.ssl.truststore.location": _MIGRATION,
    "zookeeper.ssl.keystore.location": _MIGRATION,
}
"""Settings that the operator controls, and why: `spec.config` may not contain them."""
OWN_PREFIXES = {"ssl.": _TLS, "pod.": _IDENTITY}
"""Prefixes of further such settings. `pod.` settings tell the pod's entry point its identity."""

OPERATOR, CLIENT = "operator", "client"
"""The common names of the operator's certificate and of the one in NAME-client-tls."""

BROKER_LISTENER = "BROKER"
BROKER_PORT = 9092
BROKER_ID_FIRST = 1000
"""Broker N is node 1000 + N: ids of controllers and brokers must not overlap."""
BROKERS_MAX = 100

NODES_MAX = 9
"""The maximum number of voters of a Quorum. Higher ordinals are invalid."""
FIRST_NODE_ID_MAX = 2**31 - NODES_MAX
"""The highest node id that Kafka's formats can hold is 2^31 - 1."""

NAME_LABEL = "app.kubernetes.io/name"
INSTANCE_LABEL = "app.kubernetes.io/instance"
MANAGED_LABEL = "app.kubernetes.io/managed-by"
POD_LABEL = "statefulset.kubernetes.io/pod-name"
COMPONENT_LABEL = "app.kubernetes.io/component"
USABLE_LABEL = f"{GROUP}/usable-by"
"""The label of a Secret that is not a Quorum's own but that it may use: the Quorum's name."""
REVISION_ANNOTATION = f"{GROUP}/schema-revision"
"""The annotation of a CRD with the revision of its schema, a whole number."""
APPROVED_ANNOTATION = f"{GROUP}/approved-rollout"
"""The annotation of a Quorum that names the template revision to which its pods may change."""
FENCED_ANNOTATION = f"{GROUP}/fenced-members"
"""The annotation of a Quorum with the names of the pods to fence, separated by commas."""
FENCED_VARIABLE = "QUORATE_POD_FENCED"
"""The variable of all pods that names those whose controllers do not run."""
HASH_ANNOTATION = f"{GROUP}/hash"


@dataclass(frozen=True, slots=True)
class NodeIds:
    """Maps ordinals to node ids: the pod of ordinal N is node `first` + N."""

    first: int = 0

    def of(self, ordinal: int) -> int:
        return self.first + ordinal

    def ordinal(self, node_id: int) -> int | None:
        """The ordinal of a node id; None if no pod of the Quorum can have that id."""
        ordinal = node_id - self.first
        return ordinal if 0 <= ordinal < NODES_MAX else None


SAME_IDS = NodeIds()
"""Pod N is node N."""

_ORDINAL = re.compile(r"-([0-9]{1,4})$")


def labels(quorum: str) -> dict[str, str]:
    """The labels of every object of a Quorum."""
    return selector(quorum) | {MANAGED_LABEL: "quorate-operator"}


def selector(quorum: str) -> dict[str, str]:
    """The labels that select the pods (and their volume claims) of a Quorum."""
    return {NAME_LABEL: "quorate", INSTANCE_LABEL: quorum, COMPONENT_LABEL: "controller"}


def selector_text(quorum: str) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(selector(quorum).items()))


def service(quorum: str) -> str:
    """The headless Service of all nodes, for clients that can use any of them."""
    return f"{quorum}-controllers"


def node_service(quorum: str, ordinal: int) -> str:
    """The Service of one node.

    Its address outlives pods, so that clients do not wait at the cached address of a deleted pod.
    """
    return pod(quorum, ordinal)


def external_service(quorum: str, ordinal: int) -> str:
    """The Service by which clients outside the cluster reach one node."""
    return f"{pod(quorum, ordinal)}-external"


def record(quorum: str) -> str:
    """The ConfigMap that records the cluster for which the Quorum was started."""
    return f"{quorum}-bootstrap"


def restore_job(quorum: str) -> str:
    """The Job that restores a backup before the Quorum has pods."""
    return f"{quorum}-restore"


def verify_job(quorum: str) -> str:
    """The Job that verifies a backup before anything else exists for its restore."""
    return f"{quorum}-verify"


def marker(quorum: str) -> str:
    """The ConfigMap whose existence forbids formatting any node standalone."""
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
    """The common name of the certificate of a client in `spec.clients`."""
    return f"client-{client}"


def broker_name(ordinal: int) -> str:
    """The common name of a broker's certificate, and the stem of its file names."""
    return f"broker-{ordinal}"


def principal(name: str) -> str:
    """The principal of a certificate that the operator issued with this common name."""
    return f"User:CN={name}"


def broker_secret(quorum: str) -> str:
    return f"{quorum}-broker-tls"


def broker_host(quorum: str, namespace: str, ordinal: int) -> str:
    """A broker's host name, through the headless Service of its StatefulSet."""
    return f"{quorum}-broker-{ordinal}.{quorum}-brokers.{namespace}.svc"


def operator_secret(quorum: str) -> str:
    """The Secret of the operator's own certificate from another issuer (cert-manager)."""
    return f"{quorum}-operator-tls"


def given_node_secret(quorum: str, node_id: int) -> str:
    """The Secret of a node's certificate from another issuer (cert-manager)."""
    return f"{quorum}-{node_name(node_id)}-tls"


def node_name(node_id: int) -> str:
    """The common name of a node's certificate, and the stem of its file names."""
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


def members(quorum: str, text: str) -> dict[str, int | None]:
    """The ordinals of pods by name; None for a name that no pod can have.

    text: the names, separated by commas.
    """
    found: dict[str, int | None] = {}
    for name in filter(None, (each.strip() for each in text.split(","))):
        ordinal = ordinal_of(name)
        is_pod = ordinal is not None and ordinal < NODES_MAX and name == pod(quorum, ordinal)
        found[name] = ordinal if is_pod else None
    return found


def ordinals_of(quorum: str, text: str) -> frozenset[int]:
    """The ordinals of pods whose names are separated by commas."""
    return frozenset(each for each in members(quorum, text).values() if each is not None)


def host(quorum: str, namespace: str, ordinal: int) -> str:
    """The host name of an ordinal's node, which any pod of the cluster can resolve."""
    return f"{node_service(quorum, ordinal)}.{namespace}.svc"


def place(quorum: str, namespace: str, ordinal: int) -> tuple[str, int]:
    """The host and port for connections to a node."""
    return host(quorum, namespace, ordinal), PORT


def address(quorum: str, namespace: str, ordinal: int) -> str:
    return f"{host(quorum, namespace, ordinal)}:{PORT}"


def raft_listener(kafka_listener: str) -> str:
    """The name of the listener for gRPC, which differs from that for Kafka's protocol."""
    return RAFT_LISTENER if kafka_listener == LISTENER else LISTENER


def bootstrap_servers(quorum: str, namespace: str, port: int = PORT) -> tuple[str, ...]:
    """The addresses at which a new node discovers the leader.

    They must not depend on the number of nodes, or scaling would restart all of them. The lowest
    ordinals are removed last; the Service resolves to all nodes that exist.
    """
    hosts = [host(quorum, namespace, ordinal) for ordinal in range(3)]
    return tuple(f"{each}:{port}" for each in (*hosts, f"{service(quorum)}.{namespace}.svc"))


def repository(image: str) -> str:
    """An image's reference without its tag and digest."""
    name = image.partition("@")[0]
    head, colon, tag = name.rpartition(":")
    return head if colon and "/" not in tag else name


def is_allowed(image: str, allowed: Collection[str]) -> bool:
    """Whether an image is from one of the allowed repositories.

    An entry that ends with `/` allows all repositories below it. No entries allow any image.
    """
    found = repository(image)
    return not allowed or any(
        found.startswith(each) if each.endswith("/") else found == each for each in allowed
    )


def variable(setting: str) -> str:
    """The environment variable of a setting."""
    return "QUORATE_" + setting.upper().replace(".", "_")


PROFILE_ANNOTATIONS = (
    "container.apparmor.security.beta.kubernetes.io/",
    "container.seccomp.security.alpha.kubernetes.io/",
    "seccomp.security.alpha.kubernetes.io/",
)
"""Prefixes of the annotations of a pod that choose AppArmor and seccomp profiles."""
_DEFAULT_PROFILES = ("runtime/default", "docker/default")
_OWN_PROFILE = "localhost/"


def problem_of_annotation(name: str, value: str) -> str:
    """Why `spec.podTemplate` may not contain an annotation; "" if it may.

    The restricted Pod Security Standard allows the default profiles and those on the machine.
    """
    is_confined = value in _DEFAULT_PROFILES or value.startswith(_OWN_PROFILE)
    if not name.startswith(PROFILE_ANNOTATIONS) or is_confined:
        return ""
    return f"podTemplate.annotations contains {name}={value}: pods must be confined"


SETTING_PATTERN = "[a-z][a-z0-9]*([.][a-z0-9]+)*"
_SETTING = re.compile(SETTING_PATTERN)
_OWN_VARIABLES = {variable(name): why for name, why in OWN_SETTINGS.items()}
_OWN_VARIABLE_PREFIXES = {variable(prefix): why for prefix, why in OWN_PREFIXES.items()}
_OF_LISTENER = re.compile(r"QUORATE_LISTENER_NAME_.*_SSL_")


def problem_of_setting(name: str) -> str:
    """Why `spec.config` may not contain a setting, whatever its value; "" if it may.

    Names are compared in the form of their environment variables.
    """
    why = _why_own(variable(name))
    if why:
        return f"config contains {name}, which the operator sets itself: {why}"
    if not _SETTING.fullmatch(name):
        return f"config contains {name!r}: expected lower-case words separated by dots"
    return ""


def _why_own(found: str) -> str:
    """Why the operator sets a variable itself; "" if it does not."""
    if _OF_LISTENER.match(found):
        return _TLS
    prefixes = (why for prefix, why in _OWN_VARIABLE_PREFIXES.items() if found.startswith(prefix))
    return _OWN_VARIABLES.get(found) or next(prefixes, "")
