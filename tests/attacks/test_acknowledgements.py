"""Acknowledgements in a voter's name by somebody else's certificate."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import grpc.aio
import pytest
from quorate.controller.formatting import random_uuid
from quorate.rpc.client.quorum_client import ClientError, QuorumClient
from quorate.rpc.fields import directory_to_wire
from quorate.rpc.tls import TlsConfig
from quorate.v1 import common_pb2, raft_pb2

from tests.certificates import make_authority, make_certificate, needs_openssl
from tests.integration.support import CLUSTER, HOST, Node, free_ports

pytestmark = [pytest.mark.timeout(120), needs_openssl]

IDS = (1, 2, 3)
FETCH = "/quorate.v1.Raft/Fetch"


def make_nodes(folder: Path, authority: tuple[Path, Path]) -> list[Node]:
    """Three voters with certificates that name them."""
    ports = dict(zip(IDS, free_ports(len(IDS)), strict=True))
    nodes = []
    for node_id, port in ports.items():
        name = f"node-{node_id}"
        certificate, private_key = make_certificate(folder, name, authority, names=(name,))
        settings = {
            "controller.quorum.bootstrap.servers": ",".join(f"{HOST}:{p}" for p in ports.values()),
            "listener.security.protocol.map": "CONTROLLER:SSL",
            "ssl.certificate.location": certificate,
            "ssl.key.location": private_key,
            "ssl.ca.location": authority[0],
            "metadata.max.idle.interval.ms": 0,
        }
        nodes.append(Node(folder / "nodes", node_id, port, **settings))
    voters = ",".join(f"{node.id}@{node.address}:{random_uuid()}" for node in nodes)
    for node in nodes:
        node.format(f"--initial-controllers={voters}")
    return nodes


class Forger:
    """Fetches in a voter's name, a record further each time.

    asked, answered: how often, and how often the leader answered without an error.
    """

    def __init__(self, leader: Node, epoch: int, voter: Node, tls: TlsConfig) -> None:
        self._address = leader.address
        self._epoch = epoch
        self._key = common_pb2.ReplicaKey(
            id=voter.id, directory_id=directory_to_wire(voter.directory_id)
        )
        self._tls = tls
        self.asked = 0
        self.answered = 0

    async def run(self) -> None:
        """Until cancelled."""
        credentials = self._tls.channel_credentials()
        async with grpc.aio.secure_channel(self._address, credentials) as channel:
            call = channel.unary_unary(
                FETCH,
                request_serializer=raft_pb2.FetchRequest.SerializeToString,
                response_deserializer=raft_pb2.FetchResponse.FromString,
            )
            while True:
                request = raft_pb2.FetchRequest(
                    cluster_id=CLUSTER,
                    epoch=self._epoch,
                    replica=self._key,
                    offset=2 + self.asked % 8,
                    last_epoch=self._epoch,
                    max_wait_ms=100,
                )
                self.asked += 1
                with contextlib.suppress(grpc.aio.AioRpcError):
                    answer = await call(request, timeout=5)
                    self.answered += answer.error_code == 0
                await asyncio.sleep(0.02)


async def test_a_clients_certificate_acknowledges_nothing(tmp_path: Path) -> None:
    authority = make_authority(tmp_path, "authority")
    alice = TlsConfig(*make_certificate(tmp_path, "alice", authority), authority[0])
    nodes = make_nodes(tmp_path, authority)
    followers: list[Node] = []
    try:
        for node in nodes:
            node.start()
        addresses = [node.address for node in nodes]
        async with QuorumClient(addresses, tls=alice, request_timeout_ms=20_000) as client:
            await client.append_value(b"before")
            described = (await client.describe_quorum()).response
        leader = next(node for node in nodes if node.id == described.leader.id)
        followers = [node for node in nodes if node is not leader]
        for node in followers:
            node.pause()
        epoch = described.leader.epoch
        forgers = [Forger(leader, epoch, node, alice) for node in followers]
        tasks = [asyncio.create_task(forger.run()) for forger in forgers]
        async with QuorumClient(addresses, tls=alice, request_timeout_ms=4_000) as client:
            with pytest.raises(ClientError):
                await client.append_value(b"acknowledged nowhere")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for forger in forgers:
            assert forger.asked > 10
            assert forger.answered == 0, "the leader answered in a voter's name"
    finally:
        for node in followers:
            node.resume()
        for node in nodes:
            node.kill()
