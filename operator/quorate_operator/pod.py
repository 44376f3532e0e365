"""The first process of a controller's pod: who the pod is follows from its name.

    python -m quorate_operator.pod          becomes `quorate controller`
    python -m quorate_operator.pod ready    exit status 0 if the member is serving (for probes)

Pod NAME-N of a namespace is node N and is reached at NAME-N.NAME-controllers.NAMESPACE.svc. That is
what others are told, and what its certificate (node-N.crt) names. Everything else comes from the
environment of the template. This needs neither Kubernetes' client nor its API.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from quorate_operator import naming

POD_PREFIX = "QUORATE_POD_"
READY_TIMEOUT_S = 3.0


class PodError(Exception):
    """The environment does not say who this pod is."""


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of `quorate controller` in this pod. Raises PodError."""
    name = _required(environment, "QUORATE_POD_NAME")
    namespace = _required(environment, "QUORATE_POD_NAMESPACE")
    ordinal = naming.ordinal_of(name)
    if ordinal is None:
        raise PodError(f"QUORATE_POD_NAME={name}: a pod of a StatefulSet ends with its ordinal")
    quorum = name.rpartition("-")[0]
    is_tls = environment.get("QUORATE_POD_TLS", "false") == "true"
    result = {k: v for k, v in environment.items() if not k.startswith(POD_PREFIX)}
    result |= {
        "QUORATE_PROCESS_ROLES": "controller",
        "QUORATE_NODE_ID": str(ordinal),
        "QUORATE_CONTROLLER_LISTENER_NAMES": naming.LISTENER,
        "QUORATE_LISTENERS": f"{naming.LISTENER}://:{naming.PORT}",
        "QUORATE_ADVERTISED_LISTENERS": (
            f"{naming.LISTENER}://{naming.host(quorum, namespace, ordinal)}:{naming.PORT}"
        ),
        "QUORATE_LISTENER_SECURITY_PROTOCOL_MAP": (
            f"{naming.LISTENER}:{'SSL' if is_tls else 'PLAINTEXT'}"
        ),
        "QUORATE_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS": ",".join(
            naming.bootstrap_servers(quorum, namespace)
        ),
        "QUORATE_CONTROLLER_QUORUM_AUTO_JOIN_ENABLE": "false",
        "QUORATE_QUORATE_UNFORMATTED_WAIT": "true",
        # A directory of its own: the root of a volume may hold lost+found.
        "QUORATE_METADATA_LOG_DIR": f"{naming.DATA_PATH}/metadata",
    }
    if is_tls:
        files = tls_files(ordinal)
        result |= {
            "QUORATE_SSL_CERTIFICATE_LOCATION": str(files[0]),
            "QUORATE_SSL_KEY_LOCATION": str(files[1]),
            "QUORATE_SSL_CA_LOCATION": str(files[2]),
        }
    return result


def tls_files(ordinal: int) -> tuple[Path, Path, Path]:
    """Certificate, key and authorities of a node, as they are mounted."""
    root = Path(naming.TLS_PATH)
    return root / f"node-{ordinal}.crt", root / f"node-{ordinal}.key", root / "ca.crt"


def _required(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "")
    if not value:
        raise PodError(f"{name} is not set: this command runs in a pod of a Quorum")
    return value


def is_serving(environment: Mapping[str, str]) -> bool:
    """Ask this pod's controller for its health, with the pod's own certificate. Raises PodError."""
    import grpc  # noqa: PLC0415 - the controller's first process does not need it
    from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: PLC0415

    values = settings(environment)
    address = f"127.0.0.1:{naming.PORT}"
    advertised = values["QUORATE_ADVERTISED_LISTENERS"].partition("://")[2]
    if "QUORATE_SSL_CA_LOCATION" in values:
        files = [
            _read(values[f"QUORATE_SSL_{part}_LOCATION"]) for part in ("CA", "KEY", "CERTIFICATE")
        ]
        options = [("grpc.ssl_target_name_override", advertised.rpartition(":")[0])]
        credentials = grpc.ssl_channel_credentials(*files)
        channel = grpc.secure_channel(address, credentials, options=options)
    else:
        channel = grpc.insecure_channel(address)
    with channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=READY_TIMEOUT_S)
        except grpc.RpcError:
            return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise PodError(f"{path}: {error.strerror}") from None


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    try:
        if given == ["ready"]:
            return 0 if is_serving(os.environ) else 1
        if given:
            raise PodError(f"{' '.join(given)}: nothing, or `ready`, is what this takes")
        environment = settings(os.environ)
    except PodError as error:
        print(f"quorate: error: {error}", file=sys.stderr)
        return 1
    command = [sys.executable, "-m", "quorate.cli.main", "controller"]
    return os.execve(sys.executable, command, environment)  # noqa: S606 - it becomes that


if __name__ == "__main__":
    sys.exit(main())
