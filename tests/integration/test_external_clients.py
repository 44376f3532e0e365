"""A client outside of a cluster, which can reach none of the addresses that the controllers
advertise: it knows only the outside addresses, as `spec.external` of a Quorum makes them.

The controllers advertise gateways, which let their processes through but not this one, where the
client runs. Other gateways lead from outside addresses to the same listeners. The operator issued
the certificates, which name the outside addresses.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from quorate.cli.local.workload import Workload
from quorate.raft.types import ReplicaKey
from quorate.rpc.client.quorum_client import AdminError, QuorumClient
from quorate.rpc.tls import TlsConfig
from quorate_operator.objects import certificates

from tests.integration.support import HOST, Node, Quorum
from tests.integration.test_leader_stops import leader_after
from tests.processes import POLL_S, WAIT_S

IDS = (0, 1, 2)
NAME = "outside"
FOLLOWS = re.compile(r"follower in epoch|leader \d+ of epoch \d+ answers")
LOAD_S = 0.5
GAP_MAX_S = 20.0
"""Far above what is measured: others use the machine."""


def is_own(port: int) -> bool:
    """Whether the socket with a port on loopback is one of this process."""
    address = f"{socket.inet_aton(HOST)[::-1].hex().upper()}:{port:04X}"
    inodes = set()
    for table in ("tcp", "tcp6"):  # gRPC's sockets have addresses of IPv6
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, *_, inode = line.split()[:10]
            if local.endswith(address):
                inodes.add(f"socket:[{inode}]")
    links = set()
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links.add(str(each.readlink()))
    return bool(links & inodes)


class Gateway:
    """Forwards connections to a port. Of this process it accepts none unless `is_open`.

    refused: how many connections it has refused. is_silent: it keeps these connections open and
    says nothing, as a network does that drops packets.
    """

    def __init__(self, target: int, *, is_open: bool) -> None:
        self._target, self._is_open = target, is_open
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_silent = False
        self.refused = 0
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            if not self._is_open and is_own(writer.get_extra_info("peername")[1]):
                self.refused += 1
                if self.is_silent:
                    await reader.read()
            else:
                there, back = await asyncio.open_connection(HOST, self._target)
                await asyncio.gather(_copy(reader, back), _copy(there, writer))
        writer.close()
        self._tasks.discard(task)


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
    target.close()


class Cluster:
    """Three controllers with gateways. tls: the files of a client."""

    def __init__(self, folder: Path) -> None:
        self.quorum = Quorum(folder, IDS)
        signer = certificates.new_authority("q authority")
        issuer = certificates.Issuer(signer, signer.certificate, 1)
        files = issuer.node_files("q", "lab", external=dict.fromkeys(IDS, (HOST,)))
        files |= issuer.client_files()
        for name, text in files.items():
            (folder / name).write_text(text)
        self.folder = folder
        self.tls = TlsConfig(folder / "tls.crt", folder / "tls.key", folder / "ca.crt")
        self.inside: list[Gateway] = []
        self.outside: list[Gateway] = []

    async def start(self) -> None:
        for node in self.quorum.nodes.values():
            self.inside.append(Gateway(node.port, is_open=False))
            self.outside.append(Gateway(node.port, is_open=True))
        for gateway in (*self.inside, *self.outside):
            await gateway.start()
        servers = ",".join(f"localhost:{gateway.port}" for gateway in self.inside)
        for node, gateway in zip(self.quorum.nodes.values(), self.inside, strict=True):
            node.configure(
                {
                    "advertised.listeners": f"CONTROLLER://localhost:{gateway.port}",
                    "listener.security.protocol.map": "CONTROLLER:SSL",
                    "controller.quorum.bootstrap.servers": servers,
                    "controller.quorum.auto.join.enable": str(node.id != IDS[0]).lower(),
                    "ssl.certificate.location": self.folder / f"node-{node.id}.crt",
                    "ssl.key.location": self.folder / f"node-{node.id}.key",
                    "ssl.ca.location": self.folder / "ca.crt",
                }
            )
            node.format("--standalone" if node.id == IDS[0] else "--no-initial-controllers")
            node.start()

    @property
    def addresses(self) -> list[str]:
        return [f"{HOST}:{gateway.port}" for gateway in self.outside]

    async def start_again(self, node: Node) -> None:
        """Start a controller, and wait until it follows the leader."""
        node.start()
        follows = lambda: FOLLOWS.search(node.recently())  # noqa: E731
        await asyncio.to_thread(node.wait_until, "it follows the leader", follows)

    def drop_packets(self) -> None:
        """What this process sends to advertised addresses gets no answer any more."""
        for gateway in self.inside:
            gateway.is_silent = True

    @property
    def refused(self) -> int:
        return sum(gateway.refused for gateway in self.inside)

    async def stop(self) -> None:
        for gateway in (*self.inside, *self.outside):
            gateway.stop()
        await asyncio.to_thread(self.quorum.kill)


class Follower:
    """Reads all records as they commit. count: how many it has read, in order."""

    def __init__(self, client: QuorumClient) -> None:
        self._client = client
        self._reached = 0
        self.count = 0
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for record in self._client.read(0, follow=True):
            assert record.offset is not None
            assert record.offset >= self._reached
            self._reached = record.offset + 1
            self.count += record.value is not None and record.value.startswith(NAME.encode())

    async def reach(self, count: int) -> None:
        """Read at least this many records, then stop."""
        async with asyncio.timeout(WAIT_S):
            while self.count < count:
                assert not self._task.done(), self._task
                await asyncio.sleep(POLL_S)
        self._task.cancel()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Three voters. Connections of a client outside to advertised addresses are refused."""
    made = Cluster(tmp_path)
    try:
        await made.start()
        yield made
    finally:
        await made.stop()


async def transfer(client: QuorumClient, voters: Sequence[ReplicaKey]) -> None:
    """Transfer leadership to one of these voters, as soon as one has caught up."""
    async with asyncio.timeout(WAIT_S):
        while True:
            for voter in voters:
                with contextlib.suppress(AdminError):
                    await client.transfer_leadership(voter)
                    return
            await asyncio.sleep(POLL_S)


async def test_a_client_outside_appends_and_reads_while_the_leader_changes(
    cluster: Cluster,
) -> None:
    quorum = cluster.quorum
    await asyncio.to_thread(quorum.nodes[IDS[0]].wait_said, "leads epoch 1")
    async with QuorumClient(cluster.addresses, tls=cluster.tls) as client:
        described = await leader_after(client, 0)
        while len(described.committed_voters) < len(IDS):
            await asyncio.sleep(POLL_S)
            described = await leader_after(client, 0)
        follower = Follower(client)
        load = Workload(cluster.addresses, callers=4, pause_s=0.02, name=NAME)
        await load.use(QuorumClient(cluster.addresses, tls=cluster.tls))
        await load.start()
        gaps_ms = []
        try:
            for change in ("transfer", "kill", "transfer", "stop"):
                load.measure()
                epoch, leader = described.leader.epoch, described.leader.id
                assert leader is not None
                node = quorum.nodes[leader]
                if change == "transfer":
                    others = [v.key for v in described.voter_set if v.key.id != leader]
                    await transfer(client, others)
                else:
                    end = node.kill if change == "kill" else node.stop
                    await asyncio.to_thread(end)
                described = await leader_after(client, epoch)
                assert described.leader.id != leader
                await asyncio.sleep(LOAD_S)
                gaps_ms.append(load.longest_gap_s * 1000)
                if change != "transfer":
                    await cluster.start_again(node)
                    cluster.drop_packets()
            violations = await load.verify()
        finally:
            await load.stop()
        await follower.reach(load.acknowledged_count)
    print(
        f"\n{load.acknowledged_count} appends, longest gaps "
        f"{', '.join(f'{gap:.0f}' for gap in gaps_ms)} ms; {load.unknown_count} unknown; "
        f"{cluster.refused} connections to advertised addresses"
    )
    assert not violations, [str(violation) for violation in violations[:5]]
    assert load.acknowledged_count > 50
    assert load.refused_count == 0
    assert max(gaps_ms) < GAP_MAX_S * 1000
    assert cluster.refused, "the client was never led to an advertised address"
