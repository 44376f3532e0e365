"""Controllers and brokers of Kafka 4.3 as processes, on loopback."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.integration.support import CLUSTER
from tests.kafka import KAFKA_4_3, KafkaNode
from tests.processes import HOST, free_ports

START_S = 90.0
STOP_S = 60.0
PROTOCOLS = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT"

KafkaTool = Callable[..., str]


class ClusterNode(KafkaNode):
    """A controller or broker of Kafka 4.3; its log directory is FOLDER/data."""

    def __init__(self, folder: Path, node_id: int, settings: Mapping[str, object]) -> None:
        self.id = node_id
        own = {"node.id": node_id, "log.dirs": folder / "data"}
        super().__init__(folder, KAFKA_4_3, {**own, **settings})

    def wait_started(self) -> None:
        self.wait_said("Kafka Server started", START_S)


def make_controller(folder: Path, settings: Mapping[str, object]) -> tuple[ClusterNode, str]:
    """The only controller of a quorum of Kafka, on the listener KAFKA, and its address."""
    (port,) = free_ports(1)
    address = f"{HOST}:{port}"
    own = {
        "process.roles": "controller",
        "listeners": f"KAFKA://{address}",
        "controller.listener.names": "KAFKA",
        "listener.security.protocol.map": "KAFKA:PLAINTEXT",
        "controller.quorum.bootstrap.servers": address,
    }
    return ClusterNode(folder, 1, {**own, **settings}), address


def only_voter(address: str) -> str:
    """What `kafka-storage format --initial-controllers` gets for that controller."""
    return f"1@{address}:{'A' * 20}1A"


def start_controller(
    folder: Path, stack: ExitStack, release: str, settings: Mapping[str, object]
) -> str:
    """Start a quorum of one controller of Kafka on the listener KAFKA; its address.

    release: the metadata.version. stack: ends it.
    """
    node, address = make_controller(folder, settings)
    stack.callback(node.kill)
    voters = only_voter(address)
    node.format(CLUSTER, "--initial-controllers", voters, "--release-version", release)
    node.start()
    node.wait_listening(int(address.rpartition(":")[2]), timeout_s=START_S)
    return address


class KafkaCluster:
    """Three controllers and a broker. static: of kraft.version 0. ports: of the controllers."""

    def __init__(
        self,
        folder: Path,
        kafka_tool: KafkaTool,
        *,
        static: bool,
        ports: Mapping[int, int] | None = None,
    ) -> None:
        self.static = static
        self.kafka_tool = kafka_tool
        self.ports = dict(ports or zip((1, 2, 3), free_ports(3), strict=True))
        self.settings: dict[str, object] = {
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": PROTOCOLS,
        }
        if static:
            voters = ",".join(f"{i}@{HOST}:{port}" for i, port in self.ports.items())
            self.settings["controller.quorum.voters"] = voters
        else:
            self.settings["controller.quorum.bootstrap.servers"] = self.addresses
        self.controllers = {
            i: ClusterNode(
                folder / f"c{i}",
                i,
                {
                    "process.roles": "controller",
                    "listeners": f"CONTROLLER://{HOST}:{port}",
                    **self.settings,
                },
            )
            for i, port in self.ports.items()
        }
        (self.broker_port,) = free_ports(1)
        self.broker = ClusterNode(
            folder / "b101",
            101,
            {
                "process.roles": "broker",
                "listeners": f"PLAINTEXT://{HOST}:{self.broker_port}",
                "offsets.topic.replication.factor": 1,
                **self.settings,
            },
        )

    @property
    def addresses(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports.values())

    @property
    def broker_address(self) -> str:
        return f"{HOST}:{self.broker_port}"

    def format_and_start(self, release: str, *options: str) -> None:
        """release: the metadata.version. options: of kafka-storage for the controllers."""
        initial = ",".join(f"{i}@{HOST}:{port}:{'A' * 20}{i}A" for i, port in self.ports.items())
        voters = () if self.static else ("--initial-controllers", initial)
        for node in self.controllers.values():
            node.format(CLUSTER, "--release-version", release, *voters, *options)
        self.broker.format(CLUSTER, "--release-version", release)
        self.start_controllers()
        self.broker.start()
        self.broker.wait_started()

    def start_controllers(self) -> None:
        for node in self.controllers.values():
            node.start()
        for node in self.controllers.values():
            node.wait_started()

    def stop_controllers(self) -> None:
        for node in self.controllers.values():
            node.stop(STOP_S)

    def kill(self) -> None:
        for node in (*self.controllers.values(), self.broker):
            node.kill()

    def topics(self, *arguments: str) -> str:
        return self.kafka_tool(
            *("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", self.broker_address),
            *arguments,
        )

    def describe(self, *arguments: str) -> Sequence[str]:
        """`kafka-metadata-quorum describe` through the broker, as lines."""
        return self.kafka_tool(
            *("org.apache.kafka.tools.MetadataQuorumCommand", "--bootstrap-server"),
            *(self.broker_address, "describe", *arguments),
        ).splitlines()
