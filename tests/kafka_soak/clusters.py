"""Three controllers, of Quorate or of Kafka, and three brokers of Kafka on them."""

from __future__ import annotations

import json
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from quorate.log.meta_properties import MetaProperties, random_uuid

from tests.integration.bridge_support import KafkaQuorum
from tests.integration.support import HOST, free_ports, succeed, until
from tests.kafka import KafkaNode, java
from tests.processes import Process

CONTROLLERS = (3001, 3002, 3003)
BROKERS = (1, 2, 3)
START_S = 300.0
TOOL_TIMEOUT_MS = 15_000
ERRORS = "org.apache.kafka.common.errors."


class Controllers(ABC):
    """The controllers of a cluster. ports: where brokers and tools reach each of them."""

    listener = "KAFKA"
    ids: Sequence[int] = CONTROLLERS

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cluster_id = random_uuid()
        self.ports: Mapping[int, int] = {}

    @property
    def addresses(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports.values())

    @abstractmethod
    def start(self, release: str) -> None:
        """Format and start all of them. release: of metadata.version, such as 4.3."""

    @abstractmethod
    def process(self, node_id: int) -> Process:
        """The process of a controller."""

    @abstractmethod
    def directory(self, node_id: int) -> Path:
        """Its `metadata.log.dir`."""

    @abstractmethod
    def format_again(self, node_id: int) -> None:
        """Format a new, empty directory for it."""

    @abstractmethod
    def remove(self, node_id: int, directory_id: str) -> None:
        """Remove a voter."""

    @abstractmethod
    def add(self, node_id: int) -> None:
        """Make a running controller a voter."""

    def leader(self) -> int:
        """The controller that the newest quorum-state names."""

        def newest() -> int:
            states = []
            for node_id in self.ids:
                path = self.directory(node_id) / "__cluster_metadata-0/quorum-state"
                if path.exists():
                    states.append(json.loads(path.read_text()))
            state = max(states, key=lambda each: int(each["leaderEpoch"]), default={"leaderId": -1})
            leader = int(state["leaderId"])
            return leader if leader in self.ids and self.process(leader).is_alive else 0

        return int(until("a controller leads", newest, START_S))

    def directory_id(self, node_id: int) -> str:
        found = MetaProperties.read(self.directory(node_id)).directory_id
        assert found is not None
        return found

    def replace_disk(self, node_id: int) -> None:
        """Lose a controller's disk and bring it back with a new one."""
        lost = self.directory_id(node_id)
        self.process(node_id).kill()
        shutil.rmtree(self.directory(node_id))
        self.format_again(node_id)
        self.process(node_id).start()
        self.remove(node_id, lost)
        self.add(node_id)

    def kill(self) -> None:
        for node_id in self.ids:
            self.process(node_id).kill()


class QuorateControllers(Controllers):
    """Controllers of Quorate, set up as docs/kafka-brokers.md describes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.quorum = KafkaQuorum(folder, CONTROLLERS)
        self.ports = self.quorum.ports

    def start(self, release: str) -> None:
        voters = ",".join(
            f"{node.id}@{node.address}:{random_uuid()}" for node in self.quorum.nodes.values()
        )
        for node in self.quorum.nodes.values():
            succeed(
                "storage", "format", "-t", self.cluster_id, "-c", node.properties,
                "--initial-controllers", voters, "--release-version", release,
            )  # fmt: skip
            node.start()

    def process(self, node_id: int) -> Process:
        return self.quorum.nodes[node_id]

    def directory(self, node_id: int) -> Path:
        return self.quorum.nodes[node_id].data

    def format_again(self, node_id: int) -> None:
        self.quorum.nodes[node_id].format("--no-initial-controllers", self.cluster_id)

    def remove(self, node_id: int, directory_id: str) -> None:
        succeed(
            *self.quorum.ask, "remove-controller", "--controller-id", node_id,
            "--controller-directory-id", directory_id,
        )  # fmt: skip

    def add(self, node_id: int) -> None:
        properties = self.quorum.nodes[node_id].properties
        succeed(*self.quorum.ask, "--command-config", properties, "add-controller")


def tool_config(path: Path, controller: Path | None = None) -> tuple[str, str]:
    """The option `--command-config` of Kafka's tools, with the file that it names.

    Kafka 4.3's admin client that asks who leads during an election learns that nobody does, and
    asks again only when `default.api.timeout.ms` is over: after 60 s if it is not set.
    controller: the properties of the controller that is added.
    """
    settings = controller.read_text() if controller is not None else ""
    for name in ("request.timeout.ms", "default.api.timeout.ms"):
        settings += f"{name}={TOOL_TIMEOUT_MS}\n"
    path.write_text(settings)
    return "--command-config", str(path)


MADE = {"add-controller": "DuplicateVoterException", "remove-controller": "VoterNotFoundException"}
"""How a leader rejects a change that was made already, once no change is uncommitted (KIP-853)."""


def change_voters(jars: Path, config: Sequence[str], addresses: str, *arguments: str) -> list[str]:
    """Run Kafka's tool for the quorum until the change is made: a controller that has not caught
    up cannot be added yet, and leaders change. Return the errors of the attempts that failed.

    config: see `tool_config`. arguments: the command, and its arguments.
    """
    errors: list[str] = []

    def is_done() -> bool:
        done = subprocess.run(
            java(
                jars, "org.apache.kafka.tools.MetadataQuorumCommand",
                "--bootstrap-controller", addresses, *config, *arguments,
            ),
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        if done.returncode == 0 or MADE[arguments[0]] in done.stderr:
            return True
        found = [line for line in done.stderr.splitlines() if line.startswith(ERRORS)]
        errors.append(found[0].removeprefix(ERRORS) if found else done.stdout + done.stderr)
        return False

    until(" ".join(arguments), is_done, START_S)
    return errors


def kafka_controller(
    folder: Path, jars: Path, node_id: int, ports: Mapping[int, int], listener: str
) -> KafkaNode:
    """One of the quorum's controllers, of Kafka. ports: of all of them."""
    bootstrap = ",".join(f"{HOST}:{port}" for port in ports.values())
    return KafkaNode(
        folder / f"controller-{node_id}",
        jars,
        {
            "process.roles": "controller",
            "node.id": node_id,
            "controller.listener.names": listener,
            "listeners": f"{listener}://{HOST}:{ports[node_id]}",
            "listener.security.protocol.map": f"{listener}:PLAINTEXT",
            "controller.quorum.bootstrap.servers": bootstrap,
            "log.dirs": folder / f"controller-{node_id}/data",
        },
    )


class KafkaControllers(Controllers):
    """Kafka's own controllers. options: of their JVMs."""

    def __init__(self, folder: Path, jars: Path, options: Sequence[str] = ()) -> None:
        super().__init__(folder)
        self._jars = jars
        self.ports = dict(zip(CONTROLLERS, free_ports(len(CONTROLLERS)), strict=True))
        self._nodes = {
            node_id: kafka_controller(folder, jars, node_id, self.ports, self.listener)
            for node_id in CONTROLLERS
        }
        for node in self._nodes.values():
            node.options = options

    def start(self, release: str) -> None:
        voters = ",".join(
            f"{node_id}@{HOST}:{port}:{random_uuid()}" for node_id, port in self.ports.items()
        )
        for node in self._nodes.values():
            options = ("--initial-controllers", voters, "--release-version", release)
            node.format(self.cluster_id, *options)
            node.start()

    def process(self, node_id: int) -> Process:
        return self._nodes[node_id]

    def directory(self, node_id: int) -> Path:
        return self._nodes[node_id].folder / "data"

    def format_again(self, node_id: int) -> None:
        self._nodes[node_id].format(self.cluster_id, "--no-initial-controllers")

    def remove(self, node_id: int, directory_id: str) -> None:
        change_voters(
            self._jars, tool_config(self.folder / "tool.properties"), self.addresses,
            "remove-controller", "--controller-id", str(node_id),
            "--controller-directory-id", directory_id,
        )  # fmt: skip

    def add(self, node_id: int) -> None:
        properties = self._nodes[node_id].properties
        config = tool_config(self.folder / "tool.properties", properties)
        change_voters(self._jars, config, self.addresses, "add-controller")


class Brokers:
    """Brokers of Kafka. jars: of their release."""

    def __init__(self, folder: Path, jars: Path, controllers: Controllers) -> None:
        self.ports = dict(zip(BROKERS, free_ports(len(BROKERS)), strict=True))
        self._cluster_id = controllers.cluster_id
        self.nodes = {
            broker_id: KafkaNode(
                folder / f"broker-{broker_id}",
                jars,
                {
                    "process.roles": "broker",
                    "node.id": broker_id,
                    "listeners": f"PLAINTEXT://{HOST}:{port}",
                    "controller.listener.names": controllers.listener,
                    "listener.security.protocol.map": (
                        f"PLAINTEXT:PLAINTEXT,{controllers.listener}:PLAINTEXT"
                    ),
                    "controller.quorum.bootstrap.servers": controllers.addresses,
                    "log.dirs": folder / f"broker-{broker_id}/data",
                    "offsets.topic.num.partitions": 3,
                    "transaction.state.log.num.partitions": 3,
                    "share.coordinator.state.topic.num.partitions": 3,
                    "share.coordinator.state.topic.replication.factor": 3,
                    "share.coordinator.state.topic.min.isr": 2,
                    "group.initial.rebalance.delay.ms": 0,
                    "log.segment.bytes": 64 * 1024 * 1024,
                },
            )
            for broker_id, port in self.ports.items()
        }

    @property
    def addresses(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports.values())

    def start(self) -> None:
        for node in self.nodes.values():
            node.format(self._cluster_id)
            node.start()
        for broker_id in BROKERS:
            self.wait(broker_id)

    def wait(self, broker_id: int) -> None:
        """Wait until it serves since its last start."""
        self.nodes[broker_id].wait_listening(self.ports[broker_id], timeout_s=START_S)

    def kill(self) -> None:
        for node in self.nodes.values():
            node.kill()
