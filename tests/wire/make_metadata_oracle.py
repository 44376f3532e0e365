"""Make the listings that `test_metadata_listing.py` holds Quorate to, by running Kafka itself.

    python tests/wire/make_metadata_oracle.py      (about 3 minutes; needs Java and Kafka's jars)

For each of the golden stages, full-history and compacted: the controllers' directories are copied,
Kafka 4.3's controllers run on the copies at the endpoints that the log names, and a broker with an
id of its own (901), which hosts nothing, lets Kafka's command-line tools ask. What they print goes
to tests/wire/oracle/STAGE/NAME.txt as it is. The configuration of broker 102 is told by nobody but
a broker 102, which is started for it when everything else has been listed.

Kafka's jars are where `shared/peers/kafka/fetch 4.3.0` puts them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("QUORATE_SHARED", ROOT.parent / "shared"))
GOLDEN = SHARED / "data/kafka-4.3/quorum"
JARS = Path(os.environ.get("PEERS", Path.home() / ".cache/peers")) / "kafka-4.3.0"
ORACLE = Path(__file__).parent / "oracle"

STAGES = {"full-history": (1, 2, 3), "compacted": (1, 2)}
TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
ACLS = "org.apache.kafka.tools.AclCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
STORAGE = "kafka.tools.StorageTool"
LISTER, CONFIGURED = 901, 102

LISTINGS: dict[str, tuple[str, ...]] = {
    "topics": (TOPICS, "--describe"),
    "topics-list": (TOPICS, "--list"),
    "configs-topics": (CONFIGS, "--describe", "--entity-type", "topics"),
    "configs-brokers-default": (
        CONFIGS,
        "--describe",
        "--entity-type",
        "brokers",
        "--entity-default",
    ),
    "configs-users": (CONFIGS, "--describe", "--entity-type", "users"),
    "configs-clients": (CONFIGS, "--describe", "--entity-type", "clients"),
    "configs-users-clients": (
        *(CONFIGS, "--describe", "--entity-type", "users", "--entity-type", "clients"),
    ),
    "configs-ips": (CONFIGS, "--describe", "--entity-type", "ips"),
    "acls": (ACLS, "--list"),
}
"""What is asked of the broker; the features are asked of the controllers."""


def endpoints() -> dict[int, int]:
    """The controllers' ports, as the log names them."""
    text = (GOLDEN / "describe.txt").read_text()
    found = {}
    for described in re.findall(r"CurrentVoters: +(\[.*\])", text):
        for voter in json.loads(described):
            found[voter["id"]] = int(voter["endpoints"][0].rpartition(":")[2])
    return found


def java(*arguments: object, check: bool = True) -> str:
    done = subprocess.run(
        [
            *("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{JARS}/*"),
            *("-Dorg.slf4j.simpleLogger.defaultLogLevel=off", *map(str, arguments)),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    if check and done.returncode:
        sys.exit(f"{arguments}: {done.stdout}{done.stderr}")
    return done.stdout


def start(folder: Path, **settings: object) -> subprocess.Popen[bytes]:
    """A Kafka node; its properties and its output are in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    properties = folder / "node.properties"
    properties.write_text("".join(f"{k.replace('_', '.')}={v}\n" for k, v in settings.items()))
    if settings["process_roles"] == "broker":
        cluster = (GOLDEN / "full-history/controller-1/meta.properties").read_text()
        cluster_id = re.search(r"cluster.id=(\S+)", cluster)
        assert cluster_id is not None
        java(STORAGE, "format", "-c", properties, "-t", cluster_id[1])
    with (folder / "server.log").open("wb") as output:
        return subprocess.Popen(
            [
                *("java", "-Xmx400m", "-cp", f"{JARS}/*"),
                *("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "kafka.Kafka", str(properties)),
            ],
            stdout=output,
            stderr=output,
        )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def wait_listening(port: int, timeout_s: float = 90) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    sys.exit(f"nothing listens on port {port}")


def broker(
    folder: Path, node_id: int, port: int, common: dict[str, object]
) -> subprocess.Popen[bytes]:
    process = start(
        folder / f"broker-{node_id}",
        process_roles="broker",
        node_id=node_id,
        listeners=f"PLAINTEXT://127.0.0.1:{port}",
        log_dirs=folder / f"broker-{node_id}" / "data",
        **common,
    )
    wait_listening(port)
    return process


def make(stage: str, ids: tuple[int, ...], folder: Path) -> None:
    """Run Kafka on copies of one stage and write down what its tools print."""
    ports = {node_id: port for node_id, port in endpoints().items() if node_id in ids}
    controllers = ",".join(f"127.0.0.1:{port}" for port in ports.values())
    common: dict[str, object] = {
        "controller_quorum_bootstrap_servers": controllers,
        "controller_listener_names": "CONTROLLER",
        "listener_security_protocol_map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super_users": "User:ANONYMOUS",
    }
    target = ORACLE / stage
    target.mkdir(parents=True, exist_ok=True)
    processes = []
    try:
        for node_id, port in ports.items():
            data = folder / f"controller-{node_id}" / "data"
            shutil.copytree(GOLDEN / stage / f"controller-{node_id}", data)
            for path in (data, *data.rglob("*")):
                path.chmod(0o755 if path.is_dir() else 0o644)
            processes.append(
                start(
                    folder / f"controller-{node_id}",
                    process_roles="controller",
                    node_id=node_id,
                    listeners=f"CONTROLLER://127.0.0.1:{port}",
                    log_dirs=data,
                    **common,
                )
            )
        for port in ports.values():
            wait_listening(port)
        port = free_port()
        processes.append(broker(folder, LISTER, port, common))
        for name, (tool, *arguments) in LISTINGS.items():
            text = java(tool, "--bootstrap-server", f"127.0.0.1:{port}", *arguments)
            (target / f"{name}.txt").write_text(text)
            print(f"{stage} {name}\n{text}")
        features = java(FEATURES, "--bootstrap-controller", controllers, "describe")
        (target / "features.txt").write_text(features)
        port = free_port()
        processes.append(broker(folder, CONFIGURED, port, common))
        text = java(
            *(CONFIGS, "--bootstrap-server", f"127.0.0.1:{port}", "--describe"),
            *("--entity-type", "brokers", "--entity-name", CONFIGURED),
        )
        (target / f"configs-brokers-{CONFIGURED}.txt").write_text(text)
        print(features, text)
    finally:
        for process in reversed(processes):
            process.send_signal(signal.SIGKILL)
            process.wait()


def main() -> int:
    for stage, ids in STAGES.items():
        with tempfile.TemporaryDirectory(prefix="oracle-") as folder:
            make(stage, ids, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
