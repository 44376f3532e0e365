"""A quorum of real controller processes on loopback, optionally with brokers, in one folder.

FOLDER/cluster.json               cluster id, and each controller's and broker's id and port
FOLDER/controller-N/controller.properties, controller.log, data/
FOLDER/broker-N/broker.properties, broker.log, data/

The first controller is formatted standalone, the others without initial controllers; they join
automatically (KIP-853 "Automatic joining controllers"). An existing folder is started unchanged.
Each process runs in its own session, so that Ctrl-C at the terminal reaches only the parent.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom

from quorate.cli.output import CommandError
from quorate.controller.config_reader import load_config
from quorate.controller.formatting import FormatMode, format_directory, random_uuid
from quorate.controller.kafka.settings import GRPC, KAFKA, PEER_PROTOCOL
from quorate.log.meta_properties import MetaProperties

HOST = "127.0.0.1"
STOP_TIMEOUT_S = 10.0
PORTS = range(20_000, 30_000)
"""Of new nodes; below Linux's ephemeral ports."""

_assigned: set[int] = set()
"""Ports of this process's nodes, which may not listen yet, or be stopped."""


@dataclass(frozen=True, slots=True)
class LocalNode:
    """One controller or broker of the folder."""

    id: int
    port: int
    folder: Path
    kind: str = "controller"
    """Either "controller" or "broker"."""
    kafka_port: int | None = None
    """The port on which a controller speaks Kafka's protocol, None if it does not."""

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def kafka_address(self) -> str | None:
        return None if self.kafka_port is None else f"{HOST}:{self.kafka_port}"

    @property
    def properties(self) -> Path:
        return self.folder / f"{self.kind}.properties"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log_file(self) -> Path:
        return self.folder / f"{self.kind}.log"

    @property
    def directory_id(self) -> str | None:
        return MetaProperties.read(self.data).directory_id


def free_ports(count: int, host: str = HOST) -> list[int]:
    """Return ports of a local address on which nothing listens. Raises OSError if there are none.

    No call returns a port that an earlier one returned or that a `LocalCluster` uses. Outgoing
    connections do not take them while a node is down, as they may take the kernel's ephemeral
    ports.
    """
    found: list[int] = []
    with ExitStack() as opened:
        for port in SystemRandom().sample(PORTS, len(PORTS)):
            if len(found) == count:
                break
            if port in _assigned:
                continue
            try:
                opened.enter_context(socket.create_server((host, port)))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
            found.append(port)
    if len(found) < count:
        raise OSError(errno.EADDRINUSE, f"fewer than {count} ports are free", host)
    _assigned.update(found)
    return found


def ports_from(first: int, count: int) -> list[int]:
    """Return consecutive loopback ports. Raises CommandError if one of them is in use."""
    ports = list(range(first, first + count))
    for port in ports:
        try:
            socket.create_server((HOST, port)).close()
        except OSError as error:
            raise CommandError(
                f"--port {first}: cannot listen on port {port}: {error.strerror}; ports {first} to "
                f"{ports[-1]} must be free"
            ) from None
    return ports


@dataclass(frozen=True, slots=True)
class MigratedCluster:
    """The cluster that the controllers migrate from ZooKeeper (KIP-866)."""

    zookeeper: str
    cluster_id: str


class LocalCluster:
    """The folder and its processes.

    static_voters: all controllers are voters from the start, at kraft.version 0. migration: the
    cluster that new controllers take over. kafka_listener: whether new controllers also speak
    Kafka's protocol, which a migration implies. peer_protocol: of `PEER_PROTOCOLS`, in which new
    controllers talk to each other; KAFKA implies the listener. first_port: of consecutive ports for
    a new folder; by default, free ports are chosen. broker_settings,
    controller_settings: additional lines of their properties files. launcher: the arguments of
    Python before those of `quorate`.
    The processes inherit the environment without the settings of a node (QUORATE_…).
    """

    def __init__(
        self,
        folder: Path,
        *,
        static_voters: bool = False,
        migration: MigratedCluster | None = None,
        kafka_listener: bool = False,
        peer_protocol: str = GRPC,
        first_port: int | None = None,
        broker_settings: Mapping[str, object] | None = None,
        controller_settings: Mapping[str, object] | None = None,
        launcher: Sequence[str] = ("-m", "quorate.cli.main"),
    ) -> None:
        self.folder = folder
        self.static_voters = static_voters
        self.migration = migration
        self.kafka_listener = kafka_listener or peer_protocol == KAFKA
        self.peer_protocol = peer_protocol
        self.first_port = first_port
        self.broker_settings = dict(broker_settings or {})
        self.controller_settings = dict(controller_settings or {})
        self.launcher = launcher
        self.brokers: dict[int, LocalNode] = {}
        self.cluster_id = ""
        self.nodes: dict[int, LocalNode] = {}
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    # --- the folder -------------------------------------------------------------------------------

    @property
    def _index(self) -> Path:
        return self.folder / "cluster.json"

    @property
    def exists(self) -> bool:
        return self._index.exists()

    def load(self) -> None:
        """Load a folder that an earlier quickstart created. Raises CommandError."""
        try:
            index = json.loads(self._index.read_text())
            self.cluster_id = str(index["cluster_id"])
            for entry in index["controllers"]:
                self._place(
                    int(entry["id"]), int(entry["port"]), kafka_port=entry.get("kafka_port")
                )
            self.kafka_listener = any(each.kafka_port for each in self.nodes.values())
            if "zookeeper" in index:
                self.migration = MigratedCluster(str(index["zookeeper"]), self.cluster_id)
            for entry in index.get("brokers", ()):
                self._place(int(entry["id"]), int(entry["port"]), "broker")
        except (ValueError, KeyError, TypeError) as error:
            raise CommandError(
                f"{self._index} is not a valid quickstart file ({error}); "
                "use another --dir or delete the folder"
            ) from None

    def create(self, ids: Sequence[int], brokers: Sequence[int] = ()) -> None:
        """Create the folder and format the controllers, the first standalone, and the brokers."""
        if self.folder.exists() and not self.folder.is_dir():
            raise CommandError(f"{self.folder} is a file, not a folder; use another --dir")
        self.folder.mkdir(parents=True, exist_ok=True)
        if any(self.folder.iterdir()):
            raise CommandError(
                f"{self.folder} is not empty and was not created by quickstart; use another --dir"
            )
        self.cluster_id = random_uuid() if self.migration is None else self.migration.cluster_id
        count = 2 * len(ids) + len(brokers)
        first = self.first_port
        ports = free_ports(count) if first is None else ports_from(first, count)
        for position, node_id in enumerate(ids):
            kafka_port = ports[len(ids) + position] if self._has_kafka_listener else None
            self._place(node_id, ports[position], kafka_port=kafka_port)
        for node_id, port in zip(brokers, ports[2 * len(ids) :], strict=True):
            self._format_broker(self._place(node_id, port, "broker"))
        for node in self.nodes.values():
            self._configure(node)
        for position, node_id in enumerate(ids):
            self.format(node_id, standalone=position == 0)
        self._save()

    def add(self, node_id: int) -> LocalNode:
        """Create another controller, which joins automatically once it is started."""
        port, kafka_port = free_ports(2)
        has_listener = self._has_kafka_listener
        node = self._place(node_id, port, kafka_port=kafka_port if has_listener else None)
        self._configure(node)
        self.format(node_id, standalone=False)
        self._save()
        return node

    def add_broker(self, node_id: int) -> LocalNode:
        """Create another broker."""
        node = self._place(node_id, free_ports(1)[0], "broker")
        self._format_broker(node)
        self._save()
        return node

    @property
    def _has_kafka_listener(self) -> bool:
        return self.kafka_listener or self.migration is not None

    def _place(
        self, node_id: int, port: int, kind: str = "controller", kafka_port: int | None = None
    ) -> LocalNode:
        node = LocalNode(node_id, port, self.folder / f"{kind}-{node_id}", kind, kafka_port)
        (self.nodes if kind == "controller" else self.brokers)[node_id] = node
        _assigned.update(port for port in (node.port, node.kafka_port) if port is not None)
        return node

    def _format_broker(self, node: LocalNode) -> None:
        from quorate.broker.formatting import format_broker

        settings = {
            "process.roles": "broker",
            "node.id": node.id,
            "listeners": f"PLAINTEXT://{node.address}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.quorum.bootstrap.servers": ",".join(self.addresses),
            "log.dirs": node.data,
        } | self.broker_settings
        _write_properties(node, settings)
        format_broker(node.id, self.cluster_id, node.data, (node.data,))

    def _save(self) -> None:
        index: dict[str, object] = {
            "cluster_id": self.cluster_id,
            "controllers": [_entry(node) for node in self.nodes.values()],
            "brokers": [_entry(node) for node in self.brokers.values()],
        }
        if self.migration is not None:
            index["zookeeper"] = self.migration.zookeeper
        self._index.write_text(json.dumps(index, indent=2) + "\n")

    def _configure(self, node: LocalNode) -> None:
        settings = {
            "process.roles": "controller",
            "node.id": node.id,
            "listeners": f"CONTROLLER://{node.address}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
            "controller.quorum.bootstrap.servers": ",".join(self.addresses),
            "metadata.log.dir": node.data,
        }
        if self.static_voters:
            voters = ",".join(f"{other.id}@{other.address}" for other in self.nodes.values())
            settings["controller.quorum.voters"] = voters
        else:
            settings["controller.quorum.auto.join.enable"] = "true"
        if node.kafka_address is not None:
            settings |= {
                "listeners": f"CONTROLLER://{node.address},KAFKA://{node.kafka_address}",
                "controller.listener.names": "CONTROLLER,KAFKA",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,KAFKA:PLAINTEXT",
                "quorate.kafka.listener.name": "KAFKA",
            }
        if self.peer_protocol == KAFKA:
            settings |= {
                PEER_PROTOCOL: KAFKA,
                "controller.quorum.bootstrap.servers": ",".join(self.kafka_addresses),
            }
        if self.migration is not None:
            settings |= {
                "zookeeper.metadata.migration.enable": "true",
                "zookeeper.connect": self.migration.zookeeper,
            }
        _write_properties(node, settings | self.controller_settings)

    def format(self, node_id: int, *, standalone: bool) -> None:
        """Format a controller's directory, with a new directory id."""
        config = load_config(self.nodes[node_id].properties, {})
        if self.static_voters:
            format_directory(config, self.cluster_id, None, features={"kraft.version": 0})
            return
        mode = FormatMode.STANDALONE if standalone else FormatMode.NO_INITIAL_CONTROLLERS
        format_directory(config, self.cluster_id, mode)

    def lose_disk(self, node_id: int) -> None:
        """Delete a controller's data, like a lost disk. The controller must not be running."""
        assert node_id not in self.running, f"controller {node_id} is still running"
        shutil.rmtree(self.nodes[node_id].data)

    # --- the processes ----------------------------------------------------------------------------

    @property
    def running(self) -> list[int]:
        return [i for i, process in self.processes.items() if process.poll() is None]

    @property
    def addresses(self) -> list[str]:
        """The bootstrap addresses of the quorum: every controller of the folder."""
        return [node.address for node in self.nodes.values()]

    @property
    def kafka_voters(self) -> str:
        """The value of controller.quorum.voters for Kafka brokers during a migration."""
        return ",".join(f"{node.id}@{node.kafka_address}" for node in self.nodes.values())

    @property
    def kafka_addresses(self) -> list[str]:
        """Where controllers speak Kafka's protocol; empty for a folder without such listeners."""
        found = (node.kafka_address for node in self.nodes.values())
        return [address for address in found if address is not None]

    @property
    def broker_addresses(self) -> list[str]:
        """The bootstrap addresses of the brokers."""
        return [node.address for node in self.brokers.values()]

    def _node(self, node_id: int) -> LocalNode:
        return self.nodes[node_id] if node_id in self.nodes else self.brokers[node_id]

    def start(self, ids: Iterable[int] | None = None) -> None:
        """Start controllers and brokers (all by default); their output goes to their log files."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("QUORATE_")}
        for node_id in (*self.nodes, *self.brokers) if ids is None else ids:
            node = self._node(node_id)
            with node.log_file.open("ab") as output:
                self.processes[node_id] = subprocess.Popen(
                    [sys.executable, *self.launcher, node.kind, str(node.properties)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    env=environment,
                )

    def kill(self, node_id: int) -> None:
        """Send SIGKILL and wait until the process has exited."""
        process = self.processes[node_id]
        process.kill()
        process.wait()

    def stop(self, ids: Iterable[int] | None = None) -> None:
        """Send SIGTERM to all nodes, or to `ids`; SIGKILL those that exceed STOP_TIMEOUT_S.

        Brokers stop before the controllers, because their controlled shutdown needs a controller.
        """
        chosen = self.running if ids is None else [i for i in ids if i in self.running]
        self._end([i for i in chosen if i in self.brokers])
        self._end([i for i in chosen if i in self.nodes])

    def _end(self, chosen: Sequence[int]) -> None:
        for node_id in chosen:
            self.processes[node_id].send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for node_id in chosen:
            process = self.processes[node_id]
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def check_running(self) -> None:
        """Raise CommandError, with the last log line, if a process has exited with an error."""
        for node_id, process in self.processes.items():
            status = process.poll()
            if status is not None and status not in (-signal.SIGKILL, -signal.SIGTERM, 0):
                node = self._node(node_id)
                lines = node.log_file.read_text(errors="replace").strip().splitlines()
                raise CommandError(
                    f"{node.kind} {node_id} exited with status {status}: "
                    f"{lines[-1] if lines else 'its log is empty'} (see {node.log_file})"
                )

    async def poll(self, seconds: float) -> None:
        """Sleep for `seconds`, then call `check_running`."""
        await asyncio.sleep(seconds)
        self.check_running()


def _write_properties(node: LocalNode, settings: Mapping[str, object]) -> None:
    node.folder.mkdir(parents=True, exist_ok=True)
    node.properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))


def _entry(node: LocalNode) -> dict[str, int]:
    places = {"id": node.id, "port": node.port, "kafka_port": node.kafka_port}
    return {name: value for name, value in places.items() if value is not None}
