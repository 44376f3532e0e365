"""Make the listings that `test_metadata_listing.py` holds Quorate to, by running Kafka itself.

    python -m tests.wire.make_metadata_oracle      (about 3 minutes; needs Java and Kafka's jars)

For each of the golden stages, full-history and compacted: the controllers' directories are copied,
Kafka 4.3's controllers run on the copies at the endpoints that the log names, and a broker with an
id of its own (901), which hosts nothing, lets Kafka's command-line tools ask. What they print goes
to tests/wire/oracle/STAGE/NAME.txt as it is. The configuration of broker 102 is told by nobody but
a broker 102, which is started for it when everything else has been listed.

Kafka's jars are where `shared/peers/kafka/fetch 4.3.0` puts them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from quorate.log.meta_properties import MetaProperties

from tests.kafka import GOLDEN, KAFKA_4_3, KafkaNode, copy_writable, run_java
from tests.processes import HOST, free_ports
from tests.wire.metadata_support import golden_ports, kafka_controller

ORACLE = Path(__file__).parent / "oracle"
LOG_LEVEL = "-Dorg.slf4j.simpleLogger.defaultLogLevel"
START_S = 90.0
AUTHORIZER: dict[str, object] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}

STAGES = {"full-history": (1, 2, 3), "compacted": (1, 2)}
TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
ACLS = "org.apache.kafka.tools.AclCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
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


def ask(tool: str, *arguments: object) -> str:
    """What one of Kafka's tools prints."""
    return run_java(KAFKA_4_3, f"{LOG_LEVEL}=off", tool, *arguments)


@contextmanager
def controllers(
    folder: Path, servers: str, ports: Mapping[int, int], data: Mapping[int, Path]
) -> Iterator[None]:
    """Kafka's controllers on the directories `data`, once they listen."""
    with ExitStack() as running:
        nodes = {}
        for node_id, directory in data.items():
            place, port = folder / f"controller-{node_id}", ports[node_id]
            node = kafka_controller(place, node_id, port, directory, servers, **AUTHORIZER)
            node.options = (f"{LOG_LEVEL}=warn",)
            nodes[port] = running.enter_context(node)
            node.start()
        for port, node in nodes.items():
            node.wait_listening(port, timeout_s=START_S)
        yield


@contextmanager
def broker(folder: Path, node_id: int, servers: str) -> Iterator[str]:
    """A broker of the golden cluster, once it listens; its address."""
    (port,) = free_ports(1)
    place = folder / f"broker-{node_id}"
    settings = {
        "process.roles": "broker",
        "node.id": node_id,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{HOST}:{port}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "controller.quorum.bootstrap.servers": servers,
        "log.dirs": place / "data",
        **AUTHORIZER,
    }
    with KafkaNode(place, KAFKA_4_3, settings) as node:
        node.options = (f"{LOG_LEVEL}=warn",)
        node.format(MetaProperties.read(GOLDEN / "full-history/controller-1").cluster_id)
        node.start()
        node.wait_listening(port, timeout_s=START_S)
        yield f"{HOST}:{port}"


def make(stage: str, ids: tuple[int, ...], folder: Path) -> None:
    """Run Kafka on copies of one stage and write down what its tools print."""
    target = ORACLE / stage
    target.mkdir(parents=True, exist_ok=True)
    ports = golden_ports(GOLDEN)
    servers = ",".join(f"{HOST}:{ports[node_id]}" for node_id in ids)
    data = {
        node_id: copy_writable(GOLDEN / stage / f"controller-{node_id}", folder / f"data-{node_id}")
        for node_id in ids
    }
    with controllers(folder, servers, ports, data), broker(folder, LISTER, servers) as address:
        for name, (tool, *arguments) in LISTINGS.items():
            text = ask(tool, "--bootstrap-server", address, *arguments)
            (target / f"{name}.txt").write_text(text)
            print(f"{stage} {name}\n{text}")
        features = ask(FEATURES, "--bootstrap-controller", servers, "describe")
        (target / "features.txt").write_text(features)
        with broker(folder, CONFIGURED, servers) as configured:
            text = ask(
                *(CONFIGS, "--bootstrap-server", configured, "--describe"),
                *("--entity-type", "brokers", "--entity-name", CONFIGURED),
            )
        (target / f"configs-brokers-{CONFIGURED}.txt").write_text(text)
        print(features, text)


def main() -> None:
    for stage, ids in STAGES.items():
        with tempfile.TemporaryDirectory(prefix="oracle-") as folder:
            make(stage, ids, Path(folder))


if __name__ == "__main__":
    main()
