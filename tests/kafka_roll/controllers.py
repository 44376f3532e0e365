"""Six controllers, three of Kafka and three of Quorate, of which three are voters at a time."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from quorate.log.meta_properties import random_uuid

from tests.integration.support import HOST, Node, free_ports, until
from tests.kafka import KafkaNode, java
from tests.kafka_soak.clusters import (
    START_S,
    Controllers,
    change_voters,
    kafka_controller,
    tool_config,
)
from tests.processes import Process

KAFKAS = (3001, 3002, 3003)
QUORATES = (3004, 3005, 3006)
STOP_S = 120.0
SERVERS = "controller.quorum.bootstrap.servers"
VOTERS = "controller.quorum.voters"
CATCH_UP_S = 120.0
PATIENT = {"controller.quorum.fetch.timeout.ms": 6_000}
"""Each election must have a kill or a removal as its cause, not a machine that stalls."""
REPLICA = re.compile(r"^(\d+)\s+\S+\s+(-?\d+)\s.*\b(Leader|Follower|Observer)\s*$", re.MULTILINE)
"""A line of `describe --replication`: the id, the log end offset and the role."""


def kind(node_id: int) -> str:
    return "Kafka" if node_id in KAFKAS else "Quorate"


class MixedControllers(Controllers):
    """The quorum begins with Kafka's three. static: their addresses are in
    `controller.quorum.voters`, so kraft.version is 0 until `upgrade`.

    errors: why Kafka's tool had to be run again to change the voters. formatted: the controllers
    that came back with an empty directory.
    """

    ids = (*KAFKAS, *QUORATES)

    def __init__(self, folder: Path, jars: Path, *, static: bool = False) -> None:
        super().__init__(folder)
        self.errors: list[str] = []
        self.formatted: list[int] = []
        self._jars = jars
        self._static = static
        self._tool_file = folder / "tool.properties"
        self.ports = dict(zip(self.ids, free_ports(len(self.ids)), strict=True))
        self.kafkas: dict[int, KafkaNode] = {
            node: kafka_controller(folder, jars, node, self.ports, self.listener) for node in KAFKAS
        }
        for kafka in self.kafkas.values():
            kafka.settings |= PATIENT
        if static:
            self.make_static(self.kafkas.values())
        self.quorates: dict[int, Node] = {}
        for node, port in zip(QUORATES, free_ports(len(QUORATES)), strict=True):
            made = Node(folder, node, port)
            made.configure(
                {
                    "controller.listener.names": f"CONTROLLER,{self.listener}",
                    "listeners": f"{made.endpoint},{self.listener}://{HOST}:{self.ports[node]}",
                    "listener.security.protocol.map": (
                        f"CONTROLLER:PLAINTEXT,{self.listener}:PLAINTEXT"
                    ),
                    "quorate.kafka.listener.name": self.listener,
                    "quorate.peer.protocol": "kafka",
                    "controller.quorum.bootstrap.servers": self.addresses,
                    **PATIENT,
                }
            )
            self.quorates[node] = made

    def start(self, release: str) -> None:
        initial = ",".join(f"{node}@{HOST}:{self.ports[node]}:{random_uuid()}" for node in KAFKAS)
        for node in self.kafkas.values():
            voters = () if self._static else ("--initial-controllers", initial)
            node.format(self.cluster_id, *voters, "--release-version", release)
            node.start()
        for made in self.quorates.values():
            made.format("--no-initial-controllers", self.cluster_id)
        for each in KAFKAS:
            self.wait(each)

    def make_static(self, nodes: Iterable[KafkaNode]) -> None:
        """Let these nodes know Kafka's controllers by `controller.quorum.voters`."""
        for node in nodes:
            del node.settings[SERVERS]
            node.settings[VOTERS] = ",".join(f"{each}@{HOST}:{self.ports[each]}" for each in KAFKAS)

    def make_dynamic(self, nodes: Iterable[KafkaNode]) -> None:
        """Let these nodes know all controllers, from their next start on."""
        for node in nodes:
            del node.settings[VOTERS]
            node.settings[SERVERS] = self.addresses

    def upgrade(self) -> None:
        """From kraft.version 0 to 1, while Kafka's controllers are the voters."""

        def is_done() -> bool:
            said = self._tool("FeatureCommand", "upgrade", "--feature", "kraft.version=1")
            return "was upgraded to 1" in said

        until("kraft.version is 1", is_done, START_S)
        self.make_dynamic(self.kafkas.values())

    def process(self, node_id: int) -> Process:
        return self.kafkas.get(node_id) or self.quorates[node_id]

    def directory(self, node_id: int) -> Path:
        if node_id in self.quorates:
            return self.quorates[node_id].data
        return self.kafkas[node_id].folder / "data"

    def format_again(self, node_id: int) -> None:
        if node_id in self.quorates:
            self.quorates[node_id].format("--no-initial-controllers", self.cluster_id)
        else:
            self.kafkas[node_id].format(self.cluster_id, "--no-initial-controllers")

    def start_observer(self, node_id: int) -> None:
        """Start a controller that is no voter, with an empty directory if it must have one."""
        if not self._may_keep_directory(node_id):
            shutil.rmtree(self.directory(node_id))
            self.format_again(node_id)
            self.formatted.append(node_id)
        self.process(node_id).start()
        self.wait(node_id)

    def _may_keep_directory(self, node_id: int) -> bool:
        """Whether a controller starts with the directory that it has.

        Kafka's becomes a candidate at its start if its last vote was for itself, and fails if it is
        no voter then (Kafka's QuorumState.initialize).
        """
        state = self.directory(node_id) / "__cluster_metadata-0/quorum-state"
        if node_id in self.quorates or not state.exists():
            return True
        return bool(json.loads(state.read_text())["votedId"] != node_id)

    def wait(self, node_id: int) -> None:
        self.process(node_id).wait_listening(self.ports[node_id], timeout_s=START_S)

    def add(self, node_id: int) -> None:
        self._change(node_id, "add-controller")

    def remove(self, node_id: int, directory_id: str) -> None:
        self._change(
            None, "remove-controller", "--controller-id", str(node_id),
            "--controller-directory-id", directory_id,
        )  # fmt: skip

    def _change(self, added: int | None, *arguments: str) -> None:
        node = None if added is None else self.quorates.get(added) or self.kafkas[added]
        properties = None if node is None else node.properties
        config = tool_config(self._tool_file, properties)
        self.errors += change_voters(self._jars, config, self.addresses, *arguments)

    def describe(self, *arguments: str) -> str:
        """What Kafka's tool prints of the quorum."""
        return self._tool("MetadataQuorumCommand", "describe", *arguments)

    def catch_up(self) -> int:
        """Wait until all controllers hold what the leader's log holds now; the end of that."""
        wanted: list[int] = []

        def are_there() -> bool:
            found = REPLICA.findall(self.describe("--replication"))
            ends = {int(node): int(end) for node, end, _ in found}
            wanted.extend(int(end) for _, end, role in found if role == "Leader" and not wanted)
            return bool(wanted) and all(ends.get(node, -1) >= wanted[0] for node in self.ids)

        until("all controllers hold the leader's log", are_there, CATCH_UP_S)
        return wanted[0]

    def features(self) -> str:
        """What Kafka's tool prints of the features."""
        return self._tool("FeatureCommand", "describe")

    def _tool(self, name: str, *arguments: str) -> str:
        where = ("--bootstrap-controller", self.addresses, *tool_config(self._tool_file))
        done = subprocess.run(
            java(self._jars, f"org.apache.kafka.tools.{name}", *where, *arguments),
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        return done.stdout + done.stderr
