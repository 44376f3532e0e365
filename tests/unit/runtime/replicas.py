"""Replicas as a process puts them together, with real logs, on a network within one event loop.

The network takes the place of `rpc.PeerTransport`: requests and answers are handed over as
values, records as the bytes that the answering node's log returned. Links can be cut, and an
endpoint can be answered by a function instead of a replica.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.log.config import LogConfig
from quorate.log.disk import Disk
from quorate.log.metadata_log import MetadataLog, write_bootstrap_checkpoint
from quorate.log.quorum_state import QuorumStateFile
from quorate.raft import InitialState, LogState, RaftConfig, RaftNode
from quorate.raft import outputs as out
from quorate.raft.messages import FetchRequest, FetchResponse, Response
from quorate.raft.roles import Unattached
from quorate.raft.types import ReplicaKey, Voter, VoterSet
from quorate.records.batch import build_data_batch, parse_batches
from quorate.records.primitives import Buffer
from quorate.rpc.errors import TransportError, TransportKind
from quorate.runtime.clock import Clock
from quorate.runtime.driver import RaftDriver
from quorate.runtime.metadata_loader import MetadataLoader
from quorate.runtime.outbound import Outbound
from quorate.runtime.pending_appends import Commit, CommitOutcome
from quorate.runtime.snapshot_policy import SnapshotPolicy
from quorate.runtime.snapshots import Snapshotter

CLUSTER = "yFPgY5iXQYqr5sMxfdxu0Q"
DIRECTORIES = ("Rigw3vfNRMmcl9pdbu4hDQ", "SGVsbG9Xb3JsZEhlbGxvVw", "QUJDREVGR0hJSktMTU5PUA")
SOON_S = float(os.environ.get("QUORATE_TEST_WAIT_S", "30"))
"""How long a test waits for what comes at once on an idle machine, seconds."""
TIMEOUT_MS = 20_000


class HeldDisk(Disk):
    """A disk whose syncs of the log wait while `go` is not set, and which notes what it did.

    done: operations in their order, each with a file's name. fail: called before each with the
    same; raises what a test wants to fail, or waits.
    """

    def __init__(self) -> None:
        self.go = threading.Event()
        self.go.set()
        self.done: list[tuple[str, str]] = []
        self.fail: Callable[[str, str], None] = lambda _operation, _name: None

    def _note(self, operation: str, name: str) -> None:
        self.fail(operation, name)
        self.done.append((operation, name))

    def write_all(self, descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
        self._note("write", _name(descriptor))
        return super().write_all(descriptor, buffers, position)

    def sync_data(self, descriptor: int) -> None:
        assert self.go.wait(2 * SOON_S)
        self._note("sync_data", _name(descriptor))
        super().sync_data(descriptor)

    def sync(self, descriptor: int) -> None:
        self._note("sync", _name(descriptor))
        super().sync(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        self._note("rename", target.name)
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self._note("unlink", path.name)
        super().unlink(path)


def _name(descriptor: int) -> str:
    return Path(f"/proc/self/fd/{descriptor}").readlink().name


def address(node_id: int) -> Endpoint:
    return Endpoint("CONTROLLER", "127.0.0.1", 9_000 + node_id)


def key(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, DIRECTORIES[node_id - 1])


def voters(*ids: int) -> VoterSet:
    return VoterSet.of([Voter(key(each), (address(each),)) for each in ids])


Handler = Callable[[Any], Awaitable[Response]]


@dataclass
class Network:
    """cut: ids that reach nobody and that nobody reaches. sent: requests that were sent."""

    handlers: dict[Endpoint, Handler] = field(default_factory=dict)
    cut: set[int] = field(default_factory=set)
    sent: list[tuple[int, Any]] = field(default_factory=list)

    async def ask(self, sender: int, endpoint: Endpoint, request: Any, timeout_ms: int) -> Response:
        self.sent.append((sender, request))
        where = f"{endpoint.host}:{endpoint.port}"
        handler = self.handlers.get(endpoint)
        if handler is None:
            raise TransportError(TransportKind.REFUSED, where, "nobody listens there")
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                if sender in self.cut or endpoint.port - 9_000 in self.cut:
                    await asyncio.sleep(timeout_ms)
                response = await asyncio.create_task(handler(request))  # type: ignore[arg-type]
                if sender in self.cut or endpoint.port - 9_000 in self.cut:
                    await asyncio.sleep(timeout_ms)
                return response
        except TimeoutError:
            raise TransportError(TransportKind.TIMEOUT, where, "no answer in time") from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise TransportError(TransportKind.BROKEN, where, "the node stopped") from None


class Stream:
    """A FetchStream."""

    def __init__(self, transport: Transport, endpoint: Endpoint) -> None:
        self.transport = transport
        self.endpoint = endpoint
        self.is_open = True

    async def fetch(self, request: FetchRequest, timeout_ms: int) -> FetchResponse:
        response = await self.transport.call(self.endpoint, request, timeout_ms)
        assert isinstance(response, FetchResponse)
        return response

    async def close(self) -> None:
        self.is_open = False


class Transport:
    """One node's way into the network: what `Outbound` uses of `PeerTransport`."""

    def __init__(self, network: Network, node_id: int) -> None:
        self.network = network
        self.node_id = node_id

    async def call(self, endpoint: Endpoint, request: Any, timeout_ms: int) -> Response:
        return await self.network.ask(self.node_id, endpoint, request, timeout_ms)

    async def open_fetch_stream(self, endpoint: Endpoint, on_broken: Any) -> Stream:
        return Stream(self, endpoint)

    async def close(self) -> None:
        return None


class Replica:
    """One node, from its directory on. `node_type` lets a test change what the node does."""

    def __init__(
        self,
        directory: Path,
        network: Network,
        node_id: int = 1,
        *,
        members: VoterSet | None = None,
        node_type: type[RaftNode] = RaftNode,
        policy: SnapshotPolicy | None = None,
        log_config: LogConfig | None = None,
        **settings: Any,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.id = node_id
        self.network = network
        self.disk = HeldDisk()
        self.state_disk = HeldDisk()
        self.failures: list[BaseException] = []
        self.roles: list[out.RoleChanged] = []
        self.committed: list[int] = []
        self.on_committed: Callable[[int], None] = lambda _offset: None
        self.on_leadership: Callable[[Any], None] = lambda _change: None
        self.on_role: Callable[[out.RoleChanged], None] = lambda _change: None
        directory.mkdir(exist_ok=True)
        if not any(directory.iterdir()):
            write_bootstrap_checkpoint(directory, members or voters(1))
        self.log = MetadataLog.open(
            directory,
            log_config or LogConfig(),
            on_durable=lambda ticket: loop.call_soon_threadsafe(self._durable, ticket),
            on_failure=lambda error: loop.call_soon_threadsafe(self.failures.append, error),
            disk=self.disk,
        )
        quorum_state = QuorumStateFile(self.log.partition, self.state_disk)
        self.quorum_state = quorum_state
        recovered = self.log.recovered
        epochs = tuple((entry.epoch, entry.offset) for entry in recovered.epochs)
        state = LogState(recovered.start, recovered.end_offset, epochs, recovered.latest_snapshot)
        initial = InitialState(
            quorum_state.read(), state, recovered.voters, recovered.kraft_versions
        )
        self.clock = Clock()
        config = RaftConfig(CLUSTER, key(node_id), (address(node_id),), **settings)
        self.node = node_type(config, initial, random.Random(node_id), self.clock.now_ms())
        self.loader = MetadataLoader(self.log, on_fatal=self.failures.append)
        self.transport = Transport(network, node_id)
        self.driver = RaftDriver(
            self.node,
            self.log,
            quorum_state,
            Outbound(self.transport),  # type: ignore[arg-type]
            self.clock,
            on_fatal=self.failures.append,
            on_committed=self._committed,
            on_role=self._role_changed,
            on_leadership=self._leadership_changed,
        )
        self.snapshotter = Snapshotter(self.driver, policy or SnapshotPolicy(), self.loader)
        network.handlers[address(node_id)] = self.handle
        self._is_closed = False

    def _durable(self, ticket: int) -> None:
        if not self._is_closed:
            self.driver.durable(ticket)

    def _committed(self, offset: int) -> None:
        self.committed.append(offset)
        self.loader.committed(offset)
        self.on_committed(offset)

    def _role_changed(self, change: out.RoleChanged) -> None:
        self.roles.append(change)
        self.on_role(change)

    def _leadership_changed(self, change: Any) -> None:
        self.on_leadership(change)

    async def handle(self, request: Any) -> Response:
        """What the node's server does: for a Fetch the records go with the answer."""
        response, data = await self.driver.ask(request)
        if isinstance(response, FetchResponse):
            joined = b"".join(bytes(chunk) for chunk in data)
            response = replace(response, batches=parse_batches(joined), records_from=None)
        return response

    def expire_election_timeout(self) -> None:
        """Let a replica that has not started yet stand for election as soon as it starts."""
        role = self.node.core.role
        assert isinstance(role, Unattached)
        role.election_deadline_ms = self.clock.now_ms()

    def start(self) -> None:
        self.loader.start()
        self.driver.start()

    async def close(self) -> None:
        self.network.handlers.pop(address(self.id), None)
        for disk in (self.disk, self.state_disk):
            disk.fail = lambda _operation, _name: None
            disk.go.set()
        await self.snapshotter.stop()
        await self.loader.stop()
        await self.driver.close()
        self._is_closed = True
        await asyncio.to_thread(self.log.close)

    async def append(self, size: int = 20, timeout_ms: int = TIMEOUT_MS) -> Any:
        """One record of `size` bytes, by an application."""
        batch = build_data_batch([(b"k", b"v" * size)], time.time_ns() // 1_000_000)
        return await self.driver.append(1, batch, timeout_ms)

    async def commit(self, size: int = 20) -> int:
        ended: Commit | ErrorCode = await self.append(size)
        assert isinstance(ended, tuple), ended
        assert ended[1] is CommitOutcome.COMMITTED, ended
        return ended[0]


async def until(what: str, condition: Callable[[], Any], timeout_s: float = SOON_S) -> Any:
    try:
        async with asyncio.timeout(timeout_s):
            while not (found := condition()):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            return found
    except TimeoutError:
        raise AssertionError(f"not within {timeout_s} s: {what}") from None


@asynccontextmanager
async def alone(directory: Path, **options: Any) -> AsyncIterator[Replica]:
    """A quorum of one that leads."""
    replica = Replica(directory, Network(), **options)
    replica.start()
    try:
        await until("it leads", lambda: replica.node.is_leader and replica.node.high_watermark > 0)
        yield replica
    finally:
        await replica.close()


@asynccontextmanager
async def trio(folder: Path, **options: Any) -> AsyncIterator[dict[int, Replica]]:
    """Three voters, whose replicas may be exchanged in the dictionary.

    The first stands for election at once, and the timers run as configured from then on.
    """
    network = Network()
    members = voters(1, 2, 3)
    replicas = {
        each: Replica(folder / str(each), network, each, members=members, **options)
        for each in (1, 2, 3)
    }
    replicas[1].expire_election_timeout()
    for replica in replicas.values():
        replica.start()
    try:
        yield replicas
    finally:
        for replica in replicas.values():
            await replica.close()


async def leader_of(replicas: dict[int, Replica], *, but: int = 0) -> Replica:
    """The replica that leads and has committed something in its epoch."""

    def found() -> Replica | None:
        for replica in replicas.values():
            node = replica.node
            if replica.id != but and node.is_leader and not replica.failures:
                leader = node.core.role
                if node.high_watermark > leader.epoch_start_offset:  # type: ignore[union-attr]
                    return replica
        return None

    return await until("one leads", found)
