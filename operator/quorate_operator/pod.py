"""The first process of a controller's pod: who the pod is follows from its name.

    python -m quorate_operator.pod          becomes `quorate controller`

Pod NAME-N of a namespace is node N and is reached at NAME-N.NAMESPACE.svc. That is what others are
told, and what its certificate (node-N.crt) names. Everything else comes from the
environment of the template. This needs neither Kubernetes' client nor its API.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from quorate_operator import naming

POD_PREFIX = "QUORATE_POD_"


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
        "QUORATE_QUORATE_HTTP_LISTENER": f":{naming.HTTP_PORT}",
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


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    try:
        if given:
            raise PodError(f"{' '.join(given)}: this takes no arguments")
        environment = settings(os.environ)
    except PodError as error:
        print(f"quorate: error: {error}", file=sys.stderr)
        return 1
    command = [sys.executable, "-m", "quorate.cli.main", "controller"]
    return os.execve(sys.executable, command, environment)  # noqa: S606 - it becomes that


if __name__ == "__main__":
    sys.exit(main())
