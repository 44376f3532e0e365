"""The entry point of a controller's or a broker's pod: the pod's name determines its identity.

    python -m quorate_operator.pod            becomes `quorate controller`
    python -m quorate_operator.pod broker     becomes `quorate broker`
    python -m quorate_operator.pod backup …   becomes `quorate backup create …`
    python -m quorate_operator.pod restore …  becomes `quorate restore …`, unless that was done

Pod NAME-N of a namespace is node N, or QUORATE_POD_FIRST_NODE_ID + N. It advertises the address
NAME-N.NAMESPACE.svc, which its certificate (node-ID.crt) names. Pod NAME-broker-N is node 1000 + N,
at NAME-broker-N.NAME-brokers.NAMESPACE.svc, with broker-N.crt. All other settings come from the
environment of the pod template. A controller's pod that QUORATE_POD_FENCED names runs no controller
(`fence`). This module needs neither the Kubernetes client nor its API.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from quorate_operator import fence, naming

POD_PREFIX = "QUORATE_POD_"
BROKER_INFIX = "-broker"


CLIENT_FILE = Path("/tmp/client.properties")  # noqa: S108 - inside the pod


class PodError(Exception):
    """The environment or the command line does not identify this pod."""


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of `quorate controller` in this pod. Raises PodError."""
    quorum, namespace, ordinal = _identity(environment)
    host = naming.host(quorum, namespace, ordinal)
    node_id = _node_ids(environment).of(ordinal)
    kafka = environment.get("QUORATE_POD_KAFKA_NAME", naming.KAFKA_LISTENER)
    raft = naming.raft_listener(kafka)
    ports, protocols = {raft: naming.PORT}, {raft: _protocol(environment)}
    result = _common(environment, quorum, namespace)
    is_encrypted = environment.get("QUORATE_POD_KAFKA") == naming.KAFKA_SSL
    if is_encrypted or _is_set(environment, "QUORATE_POD_KAFKA"):
        ports[kafka] = naming.KAFKA_PORT
        protocols[kafka] = "SSL" if is_encrypted else "PLAINTEXT"
        result["QUORATE_QUORATE_KAFKA_LISTENER_NAME"] = kafka
    result["QUORATE_CONTROLLER_LISTENER_NAMES"] = ",".join(ports)
    result |= {
        "QUORATE_PROCESS_ROLES": "controller",
        "QUORATE_NODE_ID": str(node_id),
        "QUORATE_LISTENERS": ",".join(f"{name}://:{port}" for name, port in ports.items()),
        "QUORATE_ADVERTISED_LISTENERS": ",".join(
            f"{name}://{host}:{port}" for name, port in ports.items()
        ),
        "QUORATE_LISTENER_SECURITY_PROTOCOL_MAP": ",".join(
            f"{name}:{protocol}" for name, protocol in protocols.items()
        ),
        "QUORATE_CONTROLLER_QUORUM_AUTO_JOIN_ENABLE": "false",
        "QUORATE_QUORATE_UNFORMATTED_WAIT": "true",
        "QUORATE_QUORATE_HTTP_LISTENER": f":{naming.HTTP_PORT}",
    }
    result |= _takeover_settings(environment, quorum, namespace)
    result |= _zookeeper_settings(environment)
    return result | _tls_settings(environment, naming.node_name(node_id))


def broker_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of `quorate broker` in this pod. Raises PodError."""
    name, namespace, ordinal = _identity(environment)
    if not name.endswith(BROKER_INFIX):
        raise PodError(f"QUORATE_POD_NAME={name}-{ordinal}: expected NAME-broker-N")
    quorum = name.removesuffix(BROKER_INFIX)
    address = f"{naming.broker_host(quorum, namespace, ordinal)}:{naming.BROKER_PORT}"
    protocol = _protocol(environment)
    result = _common(environment, quorum, namespace)
    result |= {
        "QUORATE_PROCESS_ROLES": "broker",
        "QUORATE_NODE_ID": str(naming.BROKER_ID_FIRST + ordinal),
        "QUORATE_LISTENERS": f"{naming.BROKER_LISTENER}://:{naming.BROKER_PORT}",
        "QUORATE_ADVERTISED_LISTENERS": f"{naming.BROKER_LISTENER}://{address}",
        "QUORATE_LISTENER_SECURITY_PROTOCOL_MAP": (
            f"{naming.LISTENER}:{protocol},{naming.BROKER_LISTENER}:{protocol}"
        ),
        "QUORATE_LOG_DIRS": f"{naming.DATA_PATH}/data",
        "QUORATE_QUORATE_HTTP_LISTENER": f":{naming.HTTP_PORT}",
    }
    return result | _tls_settings(environment, naming.broker_name(ordinal))


def _identity(environment: Mapping[str, str]) -> tuple[str, str, int]:
    """The StatefulSet's name, the namespace and the ordinal."""
    name = _required(environment, "QUORATE_POD_NAME")
    namespace = _required(environment, "QUORATE_POD_NAMESPACE")
    ordinal = naming.ordinal_of(name)
    if ordinal is None:
        raise PodError(f"QUORATE_POD_NAME={name}: expected a StatefulSet's pod name, NAME-N")
    return name.rpartition("-")[0], namespace, ordinal


def _node_ids(environment: Mapping[str, str]) -> naming.NodeIds:
    text = environment.get("QUORATE_POD_FIRST_NODE_ID", "0")
    if not text.isdecimal() or int(text) > naming.FIRST_NODE_ID_MAX:
        expected = f"expected a node id from 0 to {naming.FIRST_NODE_ID_MAX}"
        raise PodError(f"QUORATE_POD_FIRST_NODE_ID={text}: {expected}")
    return naming.NodeIds(int(text))


def _common(environment: Mapping[str, str], quorum: str, namespace: str) -> dict[str, str]:
    servers = ",".join(naming.bootstrap_servers(quorum, namespace))
    return _passed_on(environment) | {
        "QUORATE_CONTROLLER_LISTENER_NAMES": naming.LISTENER,
        "QUORATE_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS": servers,
        "QUORATE_METADATA_LOG_DIR": naming.METADATA_PATH,
    }


def _passed_on(environment: Mapping[str, str]) -> dict[str, str]:
    """What the command gets of the pod's environment."""
    return {k: v for k, v in environment.items() if not k.startswith(POD_PREFIX)}


def _protocol(environment: Mapping[str, str]) -> str:
    return "SSL" if _is_set(environment, "QUORATE_POD_TLS") else "PLAINTEXT"


def _is_set(environment: Mapping[str, str], name: str) -> bool:
    return environment.get(name, "false") == "true"


def _takeover_settings(
    environment: Mapping[str, str], quorum: str, namespace: str
) -> dict[str, str]:
    """Beside voters of Kafka: controllers talk to each other in Kafka's protocol, at its port."""
    kafkas = environment.get("QUORATE_POD_TAKEOVER", "")
    if not kafkas:
        return {}
    own = naming.bootstrap_servers(quorum, namespace, naming.KAFKA_PORT)
    return {
        "QUORATE_QUORATE_PEER_PROTOCOL": "kafka",
        "QUORATE_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS": ",".join((kafkas, *own)),
    }


def _zookeeper_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """TLS to ZooKeeper: the Secret's files. The client certificate is optional."""
    if not _is_set(environment, "QUORATE_POD_ZOOKEEPER_TLS"):
        return {}
    root = Path(naming.ZOOKEEPER_TLS_PATH)
    result = {
        "QUORATE_ZOOKEEPER_SSL_CLIENT_ENABLE": "true",
        "QUORATE_ZOOKEEPER_SSL_TRUSTSTORE_LOCATION": str(root / naming.ZOOKEEPER_CA),
    }
    if (root / naming.ZOOKEEPER_PAIR).exists():
        location = str(root / naming.ZOOKEEPER_PAIR)
        result["QUORATE_ZOOKEEPER_SSL_KEYSTORE_LOCATION"] = location
    return result


def _tls_settings(environment: Mapping[str, str], name: str) -> dict[str, str]:
    """The files of a node, as they are mounted."""
    if _protocol(environment) != "SSL":
        return {}
    root, key = Path(naming.TLS_PATH), Path(naming.KEY_PATH)
    if not key.exists():  # the pod template is of an operator older than this image
        key = root / f"{name}.key"
    return {
        "QUORATE_SSL_CERTIFICATE_LOCATION": str(root / f"{name}.crt"),
        "QUORATE_SSL_KEY_LOCATION": str(key),
        "QUORATE_SSL_CA_LOCATION": str(root / "ca.crt"),
    }


def backup_properties(environment: Mapping[str, str]) -> str:
    """The client properties with which a backup connects."""
    if not _is_set(environment, "QUORATE_POD_TLS"):
        return "security.protocol=PLAINTEXT\n"
    root = Path(naming.TLS_PATH)
    return (
        "security.protocol=SSL\n"
        f"ssl.certificate.location={root / 'tls.crt'}\n"
        f"ssl.key.location={root / 'tls.key'}\n"
        f"ssl.ca.location={root / 'ca.crt'}\n"
    )


def _backup_command(environment: Mapping[str, str], options: list[str]) -> list[str]:
    """The command of a backup, whose client properties are written. Raises PodError."""
    servers = _required(environment, "QUORATE_POD_BOOTSTRAP")
    CLIENT_FILE.write_text(backup_properties(environment))
    connection = [f"--bootstrap-controller={servers}", f"--command-config={CLIENT_FILE}"]
    return ["backup", "create", *connection, *options]


def is_restored(directory: Path, cluster_id: str) -> bool:
    """Whether an earlier run has restored the directory for this cluster, completely."""
    try:
        found = (directory / "meta.properties").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return f"cluster.id={cluster_id}" in found.splitlines()


def is_fenced(environment: Mapping[str, str]) -> bool:
    """Whether this pod shall not run its controller. Raises PodError."""
    quorum, _namespace, ordinal = _identity(environment)
    return ordinal in naming.ordinals_of(quorum, environment.get(naming.FENCED_VARIABLE, ""))


def _required(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "")
    if not value:
        raise PodError(f"{name} is not set: this command must run in a pod of a Quorum")
    return value


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    command = [sys.executable, "-m", "quorate.cli.main"]
    try:
        if given == ["broker"]:
            cluster_id = _required(os.environ, "QUORATE_POD_CLUSTER_ID")
            environment = broker_settings(os.environ)
            command += ["broker", "--format", cluster_id]
        elif given[:1] == ["backup"]:
            environment = _passed_on(os.environ)
            command += _backup_command(os.environ, given[1:])
        elif given[:1] == ["restore"]:
            cluster_id = _required(os.environ, "QUORATE_POD_CLUSTER_ID")
            if is_restored(Path(naming.METADATA_PATH), cluster_id):
                print(f"{naming.METADATA_PATH} was restored for cluster {cluster_id} before")
                return 0
            environment = _passed_on(os.environ)
            command += given
        elif given:
            raise PodError(
                f"{' '.join(given)}: expected `broker`, `backup`, `restore` or no argument"
            )
        elif is_fenced(os.environ):
            return fence.serve(naming.HTTP_PORT)
        else:
            environment = settings(os.environ)
            command.append("controller")
    except PodError as error:
        print(f"quorate: error: {error}", file=sys.stderr)
        return 1
    return os.execve(sys.executable, command, environment)  # noqa: S606 - replaces this process


if __name__ == "__main__":
    sys.exit(main())
