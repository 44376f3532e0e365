"""Three processes of a key-value store, on Quorate or on PySyncObj, and their traces."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from tests.kafka import PEERS
from tests.key_value.clients import Connection
from tests.key_value.namespaces import Namespaces
from tests.processes import HOST, QUORATE, Process, environment, free_ports

HERE = Path(__file__).resolve().parent
TRACED = HERE / "traced.py"
NODES = (1, 2, 3)
CLIENT_PORT = 9001
NODE_PORT = 9091
CONNECT_S = 2.0
COMMAND_S = 60.0
START_S = 120.0
POLL_S = 0.2

PYSYNCOBJ = "pysyncobj==0.3.17"


def pysyncobj_python() -> Path:
    """The interpreter of an environment with PySyncObj, which is made on first use."""
    folder = PEERS / f"venv-{PYSYNCOBJ}"
    if not (folder / ".complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([folder / "bin/pip", "install", "-q", PYSYNCOBJ], check=True)
        (folder / ".complete").touch()
    return folder / "bin/python"


class StoreProcess(Process):
    """One node. port: of its server for clients. prefix: what starts a command in its namespace."""

    def __init__(
        self, node: int, folder: Path, port: int, prefix: Sequence[str], *command: object
    ) -> None:
        super().__init__(f"node {node}", folder / f"node-{node}.log", *prefix, *command)
        self.node = node
        self.port = port
        self.is_paused = False

    def pause(self) -> None:
        self.is_paused = True
        super().pause()

    def resume(self) -> None:
        self.is_paused = False
        super().resume()


class Stores:
    """Three nodes in a folder. namespaces: None if they share the machine's network.

    Subclasses say which program they run, on which interpreter, with which settings.
    """

    name: str
    version: str
    program: Path
    settings: ClassVar[Mapping[str, object]]

    def __init__(self, folder: Path, namespaces: Namespaces | None) -> None:
        self.folder = folder
        self.namespaces = namespaces
        if namespaces is None:
            ports = free_ports(2 * len(NODES))
            self.addresses = [f"{HOST}:{port}" for port in ports[: len(NODES)]]
            client_ports = ports[len(NODES) :]
        else:
            self.addresses = [f"{namespaces.host(node)}:{NODE_PORT}" for node in NODES]
            client_ports = [CLIENT_PORT] * len(NODES)
        self.processes = {
            node: StoreProcess(
                node, folder, port, self._prefix(node), self.python, TRACED,
                self.trace_file(node), self.program,
                *(f"{name}={value}" for name, value in self.settings.items()),
                "--", "serve", *self._arguments(node, port),
            )
            for node, port in zip(NODES, client_ports, strict=True)
        }  # fmt: skip

    @property
    def python(self) -> Path:
        return Path(sys.executable)

    def trace_file(self, node: int) -> Path:
        return self.folder / f"node-{node}.trace"

    def _prefix(self, node: int) -> list[str]:
        names = self.namespaces
        return [] if names is None else ["ip", "netns", "exec", names.name(node)]

    def _arguments(self, node: int, port: int) -> list[object]:
        return [node, port, *self.addresses]

    def start(self) -> None:
        """Start all nodes and wait until they are a quorum of three that serves.

        TimeoutError if that takes too long.
        """
        for process in self.processes.values():
            process.start()
        for node in NODES:
            self.wait(node)

    def connect(self, node: int) -> Connection:
        with contextlib.ExitStack() as stack:
            if self.namespaces is not None:
                stack.enter_context(self.namespaces.inside(node))
            address = (HOST, self.processes[node].port)
            return Connection(socket.create_connection(address, CONNECT_S))

    def ask(self, node: int, line: str) -> str | None:
        """A reply of the node, None if there is none."""
        try:
            connection = self.connect(node)
        except OSError:
            return None
        try:
            return connection.ask(line)
        finally:
            connection.close()

    def wait(self, node: int, timeout_s: float = START_S) -> None:
        """Wait until the node serves gets. TimeoutError if it takes too long."""
        deadline = time.monotonic() + timeout_s
        reply: str | None = None
        while (reply := self.ask(node, "get nothing")) is None or reply.startswith("error"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"node {node} does not serve after {timeout_s:g} s: {reply}")
            time.sleep(POLL_S)

    def leader(self) -> int:
        """The node that most nodes take for the leader, 0 if they know none."""
        votes = []
        for node, process in self.processes.items():
            if process.is_alive and not process.is_paused:
                reply = self.ask(node, "leader")
                votes += [int(reply)] if reply in {"1", "2", "3"} else []
        return max(votes, key=votes.count, default=0)

    def recover(self) -> None:
        """End all faults."""
        if self.namespaces is not None:
            self.namespaces.heal()
        for process in self.processes.values():
            if process.is_paused:
                process.resume()
            if not process.is_alive:
                process.start()

    def kill(self) -> None:
        for process in self.processes.values():
            process.kill()


class QuorateStores(Stores):
    """examples/key_value_store.py, with a snapshot every 8 KiB of log.

    Segments and retention are small too, so that a node that lags needs a snapshot.
    """

    name = "quorate"
    version = "this repository"
    program = HERE.parents[1] / "examples/key_value_store.py"
    settings: ClassVar = {
        "metadata.log.max.record.bytes.between.snapshots": 8 * 1024,
        "internal.metadata.log.segment.bytes": 8 * 1024,
        "metadata.max.retention.bytes": 16 * 1024,
    }

    def start(self) -> None:
        first = self.processes[NODES[0]]
        create = [self.python, self.program, "create", *self._arguments(first.node, first.port)]
        subprocess.run(
            list(map(str, create)), check=True, cwd=self.folder, env=environment(),
            timeout=COMMAND_S,
        )  # fmt: skip
        super().start()
        deadline = time.monotonic() + START_S
        while (voters := self._voters()) < len(NODES):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{voters} of {len(NODES)} voters after {START_S:g} s")
            time.sleep(POLL_S)

    def _voters(self) -> int:
        """How many voters `quorate metadata-quorum describe` finds, 0 if it finds no leader."""
        done = subprocess.run(
            [
                *self._prefix(NODES[0]), sys.executable, *QUORATE, "metadata-quorum",
                "--bootstrap-controller", ",".join(self.addresses), "describe", "--status",
            ],
            capture_output=True, text=True, timeout=COMMAND_S, env=environment(),
        )  # fmt: skip
        found = re.search(r"CurrentVoters: *(\[.*\])", done.stdout)
        return 0 if found is None else len(json.loads(found[1]))


class PySyncObjStores(Stores):
    """pysyncobj_store.py, which dumps its state each 200 entries."""

    name = "pysyncobj"
    version = PYSYNCOBJ.partition("==")[2]
    program = HERE / "pysyncobj_store.py"
    settings: ClassVar = {"logCompactionMinEntries": 200}

    @property
    def python(self) -> Path:
        return pysyncobj_python()


STORES: dict[str, type[Stores]] = {each.name: each for each in (QuorateStores, PySyncObjStores)}


def trace_lines(stores: Stores, node: int) -> Iterator[list[str]]:
    """The trace of a node; a line that a kill cut short is left out."""
    text = stores.trace_file(node).read_text()
    for line in text.split("\n")[:-1]:
        yield line.split(" ")
