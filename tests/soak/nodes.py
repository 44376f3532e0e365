"""Controllers whose disk and clock fail on demand: real processes with `faults.c` loaded first.

`Faults` are the triggers of one node: files in a folder that the library looks at. What it injects
it notes there too, so that a test can tell a fault that was survived from one that never happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from quorate.controller.formatting import random_uuid
from quorate.raft.messages import DescribeQuorumResponse
from quorate.rpc.client.quorum_client import ClientError, QuorumClient

from tests.integration.support import CLUSTER, HOST, Node, free_ports, here
from tests.soak.network import Network

SOURCE = Path(__file__).with_name("faults.c")
WAIT_S = 60.0
POLL_S = 0.1

FSYNC_FAILS = "fsync-fails"
SYNC_HANGS = "sync-hangs"
DISK_FULL = "disk-full"
READ_FAILS = "read-fails"
CLOCK = "clock"

Condition = Callable[[DescribeQuorumResponse], bool]


class NotWithinTimeError(Exception):
    """What a quorum should have come to, and did not."""


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc")


def build_library(folder: Path) -> Path:
    """Compile `faults.c` into a folder."""
    command = compiler()
    assert command is not None, "a C compiler is needed: cc or gcc"
    target = folder / "faults.so"
    arguments = [
        "-shared",
        "-fPIC",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-o",
        str(target),
        str(SOURCE),
    ]
    built = subprocess.run([command, *arguments, "-ldl"], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return target


class Faults:
    """The triggers of one node."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def begin(self, fault: str) -> None:
        """FSYNC_FAILS, SYNC_HANGS, DISK_FULL or READ_FAILS, until `end`."""
        (self.folder / fault).touch()

    def end(self, fault: str) -> None:
        (self.folder / fault).unlink()

    def shift_clock(self, seconds: int) -> None:
        """Let the wall clock be so far from the right time."""
        fresh = self.folder / "clock.new"
        fresh.write_text(str(seconds))
        fresh.rename(self.folder / CLOCK)

    @property
    def injected(self) -> list[str]:
        """One line for each failed call and each change of the clock."""
        with contextlib.suppress(FileNotFoundError):
            return (self.folder / "injected").read_text().splitlines()
        return []

    def count(self, *kinds: str) -> int:
        """How often calls of these names failed; "clock" counts its jumps."""
        return sum(line.startswith(kinds) for line in self.injected)


class FaultyNode(Node):
    """A controller with the library in its process, where there is one. kafka_port: where it speaks
    Kafka's protocol to the other controllers, None if it does not.
    """

    def __init__(
        self,
        folder: Path,
        node_id: int,
        port: int,
        library: Path | None,
        kafka_port: int | None = None,
        **settings: object,
    ) -> None:
        if kafka_port is not None:
            settings = {
                "controller.listener.names": "CONTROLLER,KAFKA",
                "listeners": f"CONTROLLER://{HOST}:{port},KAFKA://{HOST}:{kafka_port}",
                "quorate.kafka.listener.name": "KAFKA",
                "quorate.peer.protocol": "kafka",
            } | settings
        super().__init__(folder.resolve(), node_id, port, **settings)
        self.kafka_port = kafka_port
        self._library = library
        self.faults = Faults(self.folder / "faults")

    @property
    def variables(self) -> dict[str, str]:
        if self._library is None:
            return {}
        return {
            "LD_PRELOAD": str(self._library),
            "FAULTS_FOLDER": str(self.faults.folder),
            "FAULTS_DATA": str(self.data),
        }

    async def listens(self, timeout_s: float = WAIT_S) -> None:
        """Wait until the process listens, or has ended."""
        deadline = time.monotonic() + timeout_s
        while "listens on" not in self.said() and self.status is None:
            if time.monotonic() > deadline:
                raise NotWithinTimeError(f"controller {self.id} does not listen: {self.recently()}")
            await asyncio.sleep(POLL_S)

    async def ended(self, timeout_s: float = WAIT_S) -> int:
        """Wait until the process ends by itself; its status."""
        deadline = time.monotonic() + timeout_s
        while (status := self.status) is None:
            if time.monotonic() > deadline:
                raise NotWithinTimeError(f"controller {self.id} did not end: {self.recently()}")
            await asyncio.sleep(POLL_S)
        return status


class FaultyQuorum:
    """Voters from the first, and a client that watches them; `close` ends all.

    addresses: of the listeners. network: where given, the controllers reach each other through it;
    `close` ends it, too. peer_protocol: the protocol between them, grpc or kafka.
    """

    def __init__(
        self,
        folder: Path,
        library: Path | None,
        ids: Sequence[int],
        *,
        network: Network | None = None,
        peer_protocol: str = "grpc",
        **settings: object,
    ) -> None:
        ports = dict(zip(ids, free_ports(len(ids)), strict=True))
        self.addresses = [f"{HOST}:{port}" for port in ports.values()]
        self.network = network
        self._speaks_kafka = peer_protocol == "kafka"
        kafka_ports = (
            dict(zip(ids, free_ports(len(ids)), strict=True)) if self._speaks_kafka else {}
        )
        advertised = self._advertise(ports)
        peers = self._advertise(kafka_ports) or advertised
        settings = {"controller.quorum.bootstrap.servers": ",".join(peers.values())} | settings
        self.nodes: dict[int, FaultyNode] = {}
        for node_id, port in ports.items():
            own = settings
            if network is not None:
                listeners = {"CONTROLLER": advertised, "KAFKA": peers}
                own = settings | {
                    "advertised.listeners": ",".join(
                        f"{name}://{addresses[node_id]}"
                        for name, addresses in listeners.items()
                        if name == "CONTROLLER" or self._speaks_kafka
                    )
                }
            kafka_port = kafka_ports.get(node_id)
            self.nodes[node_id] = FaultyNode(folder, node_id, port, library, kafka_port, **own)
        if network is not None:
            network.watch(self._pids)
        voters = ",".join(
            f"{node.id}@{advertised[node.id]}:{random_uuid()}" for node in self.nodes.values()
        )
        for node in self.nodes.values():
            self.format(node, f"--initial-controllers={voters}")
        self.admin: QuorumClient | None = None

    def _advertise(self, ports: dict[int, int]) -> dict[int, str]:
        """Where the nodes are reached at these ports of theirs."""
        if self.network is not None:
            ports = {node_id: self.network.add(node_id, port) for node_id, port in ports.items()}
        return {node_id: f"{HOST}:{port}" for node_id, port in ports.items()}

    def _pids(self) -> dict[int, int]:
        """The nodes that run, id by pid. Other threads ask, too."""
        started = {node.id: node.process for node in list(self.nodes.values())}
        return {
            process.pid: node_id
            for node_id, process in started.items()
            if process is not None and process.returncode is None
        }

    def format(self, node: Node, how: str) -> None:
        ran = here("storage", "format", "-t", CLUSTER, "-c", node.properties, how)
        assert ran.status == 0, ran

    async def start(self) -> None:
        self.admin = QuorumClient(self.addresses)
        for node in self.nodes.values():
            node.start()
        await self.whole()
        if self._speaks_kafka:
            # They were formatted with the first listener, and add the other one to the voter set.
            await self.until(
                "both listeners of all voters are known",
                lambda d: all(len(voter.endpoints) == 2 for voter in d.voter_set),
            )

    async def close(self) -> None:
        if self.admin is not None:
            await self.admin.close()
        for node in self.nodes.values():
            node.kill()
        if self.network is not None:
            self.network.close()

    async def until(
        self, what: str, condition: Condition, timeout_s: float = WAIT_S
    ) -> DescribeQuorumResponse:
        """Ask until there is a leader whose view is as wanted."""
        assert self.admin is not None
        deadline = time.monotonic() + timeout_s
        seen: object = None
        while time.monotonic() < deadline:
            try:
                description = await self.admin.describe_quorum()
            except ClientError as error:
                seen = error
            else:
                seen = description.response
                if description.is_leaders_view and condition(description.response):
                    return description.response
            await asyncio.sleep(POLL_S)
        raise NotWithinTimeError(f"{what} within {timeout_s:.0f} s; seen last: {seen}")

    async def leader(self, after_epoch: int = -1) -> tuple[FaultyNode, int]:
        """The leader of a later epoch, and its epoch."""
        described = await self.until(
            f"a leader after epoch {after_epoch}", lambda d: d.leader.epoch > after_epoch
        )
        assert described.leader.id is not None
        return self.nodes[described.leader.id], described.leader.epoch

    async def whole(self) -> DescribeQuorumResponse:
        """Wait until every node is a voter that has caught up with what is committed now."""
        described = await self.until(
            f"voters {sorted(self.nodes)}",
            lambda d: {status.replica.id for status in d.voters} == set(self.nodes),
        )
        for node in self.nodes.values():
            await self._back(node, described.high_watermark)
        return await self.until("a leader", lambda _: True)

    async def responds(self, node: FaultyNode) -> int | None:
        """Wait until a node that was started has ended, or answers.

        Returns the exit status, None if the node runs.
        """
        assert self.admin is not None
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            if node.status is not None:
                return node.status
            with contextlib.suppress(ClientError):
                await self.admin.node_status(node.address)
                return None
            await asyncio.sleep(POLL_S)
        raise NotWithinTimeError(
            f"controller {node.id} neither ended nor answered:\n{node.recently()[-2000:]}"
        )

    async def settled(self, node: FaultyNode) -> int | None:
        """Wait until a node that was started has ended, or has what is committed now.

        Returns the exit status, None if the node runs.
        """
        described = await self.until("a leader", lambda _: True)
        assert self.admin is not None
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            if node.status is not None:
                return node.status
            with contextlib.suppress(ClientError):
                status = await self.admin.node_status(node.address)
                if status.high_watermark >= described.high_watermark:
                    return None
            await asyncio.sleep(POLL_S)
        raise NotWithinTimeError(
            f"controller {node.id} neither ended nor caught up:\n{node.recently()[-2000:]}"
        )

    async def _back(self, node: FaultyNode, offset: int) -> None:
        """Wait until the node itself says that it is a voter and has `offset`."""
        assert self.admin is not None
        deadline = time.monotonic() + WAIT_S
        seen: object = None
        while time.monotonic() < deadline:
            if node.status is not None:
                raise NotWithinTimeError(
                    f"controller {node.id} ended with {node.status}:\n{node.recently()[-2000:]}"
                )
            try:
                seen = status = await self.admin.node_status(node.address)
            except ClientError as error:
                seen = error
            else:
                if status.ready and status.is_voter and status.high_watermark >= offset:
                    return
            await asyncio.sleep(POLL_S)
        raise NotWithinTimeError(f"controller {node.id} is not back at {offset}: {seen}")
