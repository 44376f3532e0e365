"""Two clusters of Kafka 4.3's brokers that differ in their controllers only: Quorate's and Kafka's.

Each has one controller and two brokers. Brokers authenticate at the controller with SASL, clients
at the brokers either not at all or with SASL. All nodes have an authorizer, and everybody is a
super user, so that ACLs are stored and listed but forbid nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tests.integration.bridge_support import KafkaQuorum
from tests.integration.support import CLUSTER, HOST, free_ports
from tests.kafka import KAFKA_4_3, KafkaNode, fetch
from tests.wire.kafka_nodes import start_controller

BROKERS: Final = (101, 102)
CONTROLLER: Final = 1
RELEASE: Final = "4.2-IV1"
START_S: Final = 180.0
PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
AS_BROKER: Final = f'{PLAIN} username="broker" password="secret"'
SUPER_USERS: Final = "User:ANONYMOUS;User:broker"
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SECURITY: Final[Mapping[str, object]] = {
    "super.users": SUPER_USERS,
    "delegation.token.secret.key": "the key of delegation tokens",
    "listener.name.kafka.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.kafka.plain.sasl.jaas.config": f'{AS_BROKER} user_broker="secret";',
}
KAFKAS_OWN: Final[Mapping[str, object]] = {
    **SECURITY,
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "listener.security.protocol.map": "KAFKA:SASL_PLAINTEXT",
    "sasl.mechanism.controller.protocol": "PLAIN",
}
"""Kafka's controller has these, too."""
BROKERS_OWN: Final[Mapping[str, object]] = {
    **SECURITY,
    "process.roles": "broker",
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "controller.listener.names": "KAFKA",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": (
        "PLAINTEXT:PLAINTEXT,CLIENT:SASL_PLAINTEXT,KAFKA:SASL_PLAINTEXT"
    ),
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.client.plain.sasl.jaas.config": f'{AS_BROKER} user_broker="secret";',
    "broker.heartbeat.interval.ms": 500,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
}


class ComparedCluster:
    """One of the two. controller: the address at which its brokers find it. brokers, clients: where
    each broker listens, without and with SASL, by id. new_controller: the properties of a formatted
    controller that does not run, and new_address where it would listen.
    """

    def __init__(self, folder: Path, name: str, controller: str) -> None:
        self.name = name
        self.folder = folder
        self.controller = controller
        ports = free_ports(2 * len(BROKERS) + 1)
        self.new_address = f"{HOST}:{ports.pop()}"
        addresses = [f"{HOST}:{port}" for port in ports]
        self.brokers = dict(zip(BROKERS, addresses, strict=False))
        self.clients = dict(zip(BROKERS, addresses[len(BROKERS) :], strict=True))
        self.client_properties = folder / "client.properties"
        self.new_controller = folder / "new-controller/server.properties"

    @property
    def address(self) -> str:
        """For `--bootstrap-server`."""
        return ",".join(self.brokers.values())

    def start(self, stack: ExitStack) -> None:
        """Format and start the brokers, at once, and wait until they serve."""
        self.client_properties.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={AS_BROKER};\n"
        )
        nodes = [self._broker(each) for each in BROKERS]
        for node in nodes:
            stack.callback(node.kill)
            node.format(CLUSTER)
            node.start()
        for node in nodes:
            node.wait_said("STARTING to STARTED", START_S)
        self._format_new_controller()

    def _broker(self, node_id: int) -> KafkaNode:
        folder = self.folder / f"broker-{node_id}"
        listeners = f"PLAINTEXT://{self.brokers[node_id]},CLIENT://{self.clients[node_id]}"
        own = {
            "node.id": node_id,
            "listeners": listeners,
            "controller.quorum.bootstrap.servers": self.controller,
            "log.dirs": folder / "data",
        }
        return KafkaNode(folder, KAFKA_4_3, {**BROKERS_OWN, **own})

    def _format_new_controller(self) -> None:
        """For `kafka-metadata-quorum add-controller`."""
        folder = self.folder / "new-controller"
        node = KafkaNode(
            folder,
            KAFKA_4_3,
            {
                "process.roles": "controller",
                "node.id": 2,
                "listeners": f"KAFKA://{self.new_address}",
                "controller.listener.names": "KAFKA",
                "listener.security.protocol.map": "KAFKA:PLAINTEXT",
                "controller.quorum.bootstrap.servers": self.controller,
                "log.dirs": folder / "data",
            },
        )
        node.format(CLUSTER, "--no-initial-controllers", "--release-version", RELEASE)
        assert node.properties == self.new_controller


def start_quorates_controller(
    folder: Path, stack: ExitStack, release: str, settings: Mapping[str, object]
) -> tuple[int, Path]:
    """Start a controller of Quorate with SASL and an authorizer: its port and directory.

    settings: further ones. stack: ends it.
    """
    own = {
        **SECURITY,
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,KAFKA:SASL_PLAINTEXT",
        "authorizer.class.name": "quorate.authorizer",
        "quorate.kafka.forwarded.super.users": "allow",
        **settings,
    }
    quorum = KafkaQuorum(folder, (CONTROLLER,), **own)
    stack.callback(quorum.kill)
    quorum.format_and_start(release)
    quorum.nodes[CONTROLLER].wait_listening(quorum.ports[CONTROLLER], timeout_s=START_S)
    return quorum.ports[CONTROLLER], quorum.nodes[CONTROLLER].data


def start_kafkas_controller(
    folder: Path, stack: ExitStack, release: str, settings: Mapping[str, object]
) -> tuple[int, Path]:
    """The same with a controller of Kafka."""
    address = start_controller(folder, stack, release, {**KAFKAS_OWN, **settings})
    return int(address.rpartition(":")[2]), folder / "data"


def _on_quorate(folder: Path, stack: ExitStack) -> ComparedCluster:
    port, _ = start_quorates_controller(folder, stack, RELEASE, {})
    return ComparedCluster(folder, "Quorate", f"{HOST}:{port}")


def _on_kafka(folder: Path, stack: ExitStack) -> ComparedCluster:
    port, _ = start_kafkas_controller(folder / "controller", stack, RELEASE, {})
    return ComparedCluster(folder, "Kafka", f"{HOST}:{port}")


@contextmanager
def compared_clusters(folder: Path) -> Iterator[tuple[ComparedCluster, ComparedCluster]]:
    """Both clusters, Kafka's first, started at once."""
    fetch(KAFKA_4_3)
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        made = []
        for make, name in ((_on_kafka, "kafkas"), (_on_quorate, "quorates")):
            (folder / name).mkdir()
            made.append(make(folder / name, stack))
        list(pool.map(lambda each: each.start(stack), made))
        yield made[0], made[1]
