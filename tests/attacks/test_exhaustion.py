"""Connections and Fetches of strangers use up nothing that probes, peers and clients need."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc.aio
import pytest
from quorate.common.error_codes import ErrorCode
from quorate.rpc.client.quorum_client import QuorumClient
from quorate.v1 import common_pb2, raft_pb2

from tests.integration.support import CLUSTER, HOST, Node, free_ports

pytestmark = pytest.mark.timeout(120)

CONNECTIONS_MAX = 64
SLOW = 300
ATTACK_S = 3.0
CLIENT_S = 20.0
FAKES = 1_200
OBSERVERS_MAX = 1_024


class Controller:
    """A quorum of one, and where its probes are."""

    def __init__(self, folder: Path) -> None:
        port, self.http = free_ports(2)
        self.node = Node(
            folder,
            1,
            port,
            **{
                "quorate.http.listener": f"{HOST}:{self.http}",
                "quorate.connections.max": CONNECTIONS_MAX,
                "quorate.calls.per.second.max": 0,
            },
        )
        self.node.format("--standalone")
        self.node.start()
        self.node.wait_said("leads epoch")

    def page(self, path: str) -> tuple[int, str]:
        with urllib.request.urlopen(f"http://{HOST}:{self.http}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    made = Controller(tmp_path)
    yield made
    made.node.kill()


@contextlib.asynccontextmanager
async def slow_connections(port: int, count: int, first: bytes) -> AsyncIterator[None]:
    """Connections that send a few bytes and wait, and come again when they are closed."""

    async def keep_one() -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(HOST, port)
                try:
                    writer.write(first)
                    while await reader.read(100):
                        pass
                finally:
                    writer.close()
            await asyncio.sleep(0.05)

    tasks = [asyncio.create_task(keep_one()) for _ in range(count)]
    await asyncio.sleep(1)
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_slow_connections_make_no_probe_fail(controller: Controller) -> None:
    answers = []
    async with slow_connections(controller.http, SLOW, b"G"):
        end = time.monotonic() + ATTACK_S
        while time.monotonic() < end:
            answers.append(await asyncio.to_thread(controller.page, "/healthz"))
    assert set(answers) == {(200, "alive\n")}


@pytest.mark.parametrize("first", [b"", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"])
async def test_silent_connections_lock_no_client_out(controller: Controller, first: bytes) -> None:
    address = (HOST, controller.node.port)
    opened = [socket.create_connection(address, timeout=5) for _ in range(3 * CONNECTIONS_MAX)]
    try:
        for each in opened:
            with contextlib.suppress(OSError):
                each.sendall(first)
        async with QuorumClient([controller.node.address]) as client:
            await asyncio.wait_for(client.append_value(b"meanwhile"), CLIENT_S)
        controller.node.wait_said(f"connections from {HOST}")
        _, metrics = controller.page("/metrics")
        (line,) = [x for x in metrics.splitlines() if x.startswith("quorate_closed_connections_")]
        assert float(line.split()[-1]) > 0
    finally:
        for each in opened:
            each.close()


async def test_invented_observers_are_bounded(controller: Controller) -> None:
    async with grpc.aio.insecure_channel(controller.node.address) as channel:
        fetch = channel.unary_unary(
            "/quorate.v1.Raft/Fetch",
            request_serializer=raft_pb2.FetchRequest.SerializeToString,
            response_deserializer=raft_pb2.FetchResponse.FromString,
        )

        async def invent(node_id: int, host: str) -> int:
            answer = await fetch(
                raft_pb2.FetchRequest(
                    cluster_id=CLUSTER,
                    epoch=1,
                    replica=common_pb2.ReplicaKey(id=node_id, directory_id=os.urandom(16)),
                    endpoints=[common_pb2.Endpoint(name="C", host=host, port=1)],
                    offset=0,
                ),
                timeout=30,
            )
            return int(answer.error_code)

        large = await invent(999, "h" * 30_000)
        assert large == ErrorCode.INVALID_REQUEST
        for first in range(1_000, 1_000 + FAKES, 50):
            codes = await asyncio.gather(*(invent(first + n, "h" * 255) for n in range(50)))
            assert set(codes) == {0}
        again = await asyncio.gather(*(invent(1_000 + FAKES, "h") for _ in range(50)))
        assert set(again) == {0}
    async with QuorumClient([controller.node.address]) as client:
        observers = (await client.describe_quorum()).response.observers
    ids = [each.replica.id for each in observers]
    assert len(ids) == len(set(ids)) == OBSERVERS_MAX
    assert ids[-1] == 1_000 + FAKES
