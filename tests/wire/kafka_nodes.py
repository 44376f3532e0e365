"""Controllers and brokers of Kafka 4.3 as processes, on loopback."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.integration.support import CLUSTER, HOST, free_ports, until
from tests.kafka import PEERS

START_S = 90.0
STOP_S = 60.0
PROTOCOLS = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT"

KafkaTool = Callable[..., str]


class KafkaNode:
    """One process: FOLDER/kafka.properties, FOLDER/data, FOLDER/kafka.log."""

    def __init__(self, folder: Path, node_id: int, settings: Mapping[str, object]) -> None:
        self.id = node_id
        self.folder = folder
        self.folder.mkdir(parents=True)
        self.log_file = folder / "kafka.log"
        self.properties = folder / "kafka.properties"
        self.data = folder / "data"
        lines = {"node.id": node_id, "log.dirs": self.data, **settings}
        self.properties.write_text("".join(f"{k}={v}\n" for k, v in lines.items()))
        self.process: subprocess.Popen[bytes] | None = None
        self.said_before = 0

    def format(self, kafka_tool: KafkaTool, *how: str) -> None:
        kafka_tool(
            *("kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(self.properties)),
            *how,
        )

    def start(self) -> None:
        with self.log_file.open("ab") as output:
            self.said_before = output.tell()
            self.process = subprocess.Popen(
                [
                    *("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp"),
                    *(f"{PEERS}/kafka-4.3.0/*", "kafka.Kafka", str(self.properties)),
                ],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                env=dict(os.environ),
            )

    def said(self) -> str:
        """What it has logged since its last start."""
        return self.log_file.read_bytes()[self.said_before :].decode(errors="replace")

    def wait_started(self) -> None:
        process = self.process
        assert process is not None
        until(
            f"Kafka's node {self.id} serves",
            lambda: process.poll() is not None or "Kafka Server started" in self.said(),
            START_S,
        )
        assert process.poll() is None, self.said()[-3000:]

    def stop(self, *, kill: bool = False) -> None:
        if self.process is None:
            return
        (self.process.kill if kill else self.process.terminate)()
        self.process.wait(STOP_S)
        self.process = None


class KafkaCluster:
    """Three controllers and a broker. static: of kraft.version 0."""

    def __init__(self, folder: Path, kafka_tool: KafkaTool, *, static: bool) -> None:
        self.static = static
        self.kafka_tool = kafka_tool
        self.ports = dict(zip((1, 2, 3), free_ports(3), strict=True))
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
            i: KafkaNode(
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
        self.broker = KafkaNode(
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

    def format_and_start(self, release: str) -> None:
        """release: the metadata.version."""
        initial = ",".join(f"{i}@{HOST}:{port}:{'A' * 20}{i}A" for i, port in self.ports.items())
        dynamic = ("--initial-controllers", initial)
        for node in (*self.controllers.values(), self.broker):
            is_voter = node is not self.broker and not self.static
            node.format(
                self.kafka_tool, "--release-version", release, *(dynamic if is_voter else ())
            )
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
            node.stop()

    def kill(self) -> None:
        for node in (*self.controllers.values(), self.broker):
            node.stop(kill=True)

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
