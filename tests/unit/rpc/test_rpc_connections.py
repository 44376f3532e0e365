"""What the guard of a server's connections closes, and what it leaves alone."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Iterator

import grpc.aio
import pytest
from quorate.rpc.server.connections import LOGGER, ConnectionGuard
from quorate.rpc.wire.limits import ServerLimits
from quorate.v1 import quorum_pb2

from tests.tools.stubs import quorum_stub
from tests.unit.rpc.rpc_support import HOST, Node, address_of, serving

SETTLED_S = 0.05


class Listener:
    """Accepts in this process, as gRPC does; clients connect from chosen addresses of loopback."""

    def __init__(self, total: int, per_address: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self._listener.getsockname()[1]
        self.accepted: list[socket.socket] = []
        self.clients: list[socket.socket] = []
        limits = ServerLimits(connections_max=total, connections_per_address_max=per_address)
        self.guard = ConnectionGuard([self.port], limits)

    def connect(self, host: str) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.port), source_address=(host, 0))
        self.accepted.append(self._listener.accept()[0])
        self.clients.append(client)
        return client

    def close(self) -> None:
        for each in (*self.accepted, *self.clients, self._listener):
            each.close()


@pytest.fixture
def make() -> Iterator[type[Listener]]:
    made: list[Listener] = []

    class Made(Listener):
        def __init__(self, total: int, per_address: int) -> None:
            super().__init__(total, per_address)
            made.append(self)

    yield Made
    for each in made:
        each.close()


def is_open(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


async def test_an_address_keeps_the_connections_on_which_something_arrives(
    make: type[Listener], caplog: pytest.LogCaptureFixture
) -> None:
    listener = make(100, 10)
    silent = [listener.connect("127.0.0.2") for _ in range(15)]
    peers = [listener.connect("127.0.0.1") for _ in range(3)]
    await asyncio.sleep(SETTLED_S)
    for client in silent[:10]:
        client.sendall(b"x")
    listener.guard.look()
    assert [is_open(client) for client in silent] == [True] * 10 + [False] * 5
    assert all(map(is_open, peers))
    assert listener.guard.open_count == 18
    assert listener.guard.closed_count == 5
    (record,) = (each for each in caplog.records if each.name == LOGGER.name)
    assert "closed 5 of 15 connections from 127.0.0.2" in record.getMessage()


async def test_new_connections_without_data_do_not_replace_those_in_use(
    make: type[Listener],
) -> None:
    listener = make(100, 10)
    peers = [listener.connect("127.0.0.1") for _ in range(5)]
    for client in peers:
        client.sendall(b"x")
    await asyncio.sleep(SETTLED_S)
    silent = [listener.connect("127.0.0.1") for _ in range(10)]
    listener.guard.look()
    assert all(map(is_open, peers))
    assert sum(map(is_open, silent)) == 5


async def test_the_address_with_the_most_makes_room_for_the_others(make: type[Listener]) -> None:
    listener = make(40, 40)  # 35 without the reserve
    attackers = [[listener.connect(f"127.0.0.{n}") for _ in range(12)] for n in (2, 3, 4)]
    peers = [listener.connect("127.0.0.1") for _ in range(3)]
    await asyncio.sleep(SETTLED_S)
    listener.guard.look()
    left = [sum(map(is_open, clients)) for clients in attackers]
    assert sorted(left) == [10, 11, 11]
    assert all(map(is_open, peers))


async def test_a_closed_connection_does_not_count_until_grpc_closes_its_socket(
    make: type[Listener],
) -> None:
    listener = make(100, 10)
    clients = [listener.connect("127.0.0.2") for _ in range(15)]
    await asyncio.sleep(SETTLED_S)
    for client in clients[:10]:
        client.sendall(b"x")
    for _ in range(3):
        listener.guard.look()
        assert listener.guard.closed_count == 5
    assert listener.guard.open_count == 10
    assert [is_open(client) for client in clients] == [True] * 10 + [False] * 5
    clients[0].shutdown(socket.SHUT_WR)  # gRPC has its last data still to read
    listener.guard.look()
    assert listener.guard.open_count == 10


def calls_of(act: Callable[[], object]) -> int:
    """How many functions written in C it calls, as system calls are."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "c_call"

    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(None)
    return calls


async def test_an_inspection_makes_few_calls_for_each_connection(make: type[Listener]) -> None:
    """They take the interpreter from the event loop, for thousands of connections."""
    listener = make(1_000, 1_000)
    before = calls_of(listener.guard.look)
    for _ in range(100):
        listener.connect("127.0.0.1")
    more = calls_of(listener.guard.look) - before
    assert listener.guard.open_count == 100
    assert more <= 20 * 100, "with the clients' ends, which are in this process too"


async def test_other_sockets_and_files_are_left_alone(make: type[Listener]) -> None:
    watched, other = make(8, 4), make(1000, 1000)
    for _ in range(20):
        watched.connect("127.0.0.1")
        other.connect("127.0.0.1")
    first, second = socket.socketpair()
    watched.guard.look()
    watched.guard.look()
    assert sum(map(is_open, watched.clients)) == 4
    assert all(map(is_open, other.clients))
    first.sendall(b"x")
    assert second.recv(1) == b"x"
    first.close()
    second.close()
    assert all(each.fileno() >= 0 for each in watched.accepted), "the owner closes them"


async def test_grpc_survives_and_serves_who_connects_next() -> None:
    limits = ServerLimits(connections_max=40, connections_per_address_max=20)
    async with serving(Node(), limits=limits) as server:
        guard = ConnectionGuard(server.ports, limits)
        guard.start()
        address = (HOST, server.ports[0])
        opened = [socket.create_connection(address) for _ in range(100)]
        for _ in range(100):
            await asyncio.sleep(0.1)
            if guard.closed_count and guard.open_count <= 20:
                break
        assert guard.closed_count > 0
        assert guard.open_count <= 20
        async with grpc.aio.insecure_channel(address_of(server)) as channel:
            # gRPC rejects new connections until it has closed the sockets that were shut down.
            status = await quorum_stub(channel).NodeStatus(
                quorum_pb2.NodeStatusRequest(), timeout=10, wait_for_ready=True
            )
        assert status.node_id == 1
        await guard.stop()
        for each in opened:
            each.close()
