"""Who has a certificate of the authority, or only a connection, speaks for no node.

Certificates here do not name nodes: `quorate.controller.principals` says whose they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import grpc.aio
import pytest
from quorate.common.error_codes import ErrorCode
from quorate.controller.formatting import random_uuid
from quorate.log.meta_properties import META_PROPERTIES_FILE
from quorate.rpc.client.quorum_client import QuorumClient
from quorate.rpc.fields import directory_to_wire
from quorate.rpc.tls import TlsConfig
from quorate.v1 import common_pb2, quorum_pb2, raft_pb2

from tests.certificates import make_authority, make_certificate, needs_openssl
from tests.integration.support import CLUSTER, HOST, OTHER_CLUSTER, Node, free_ports, until

pytestmark = [pytest.mark.timeout(120), needs_openssl]

IDS = (1, 2, 3)
REFUSED = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


class Unnamed:
    """Voters whose certificates name no node, and alice, who has a certificate too."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self.authority = make_authority(folder, "authority")
        self.alice = TlsConfig(
            *make_certificate(folder, "alice", self.authority), self.authority[0]
        )
        ports = dict(zip(IDS, free_ports(len(IDS)), strict=True))
        self.addresses = [f"{HOST}:{port}" for port in ports.values()]
        self.nodes: dict[int, Node] = {}
        for i, port in ports.items():
            certificate, key = make_certificate(folder, f"kafka-{i}", self.authority)
            self.nodes[i] = Node(
                folder / "nodes",
                i,
                port,
                **{
                    "controller.quorum.bootstrap.servers": ",".join(self.addresses),
                    "listener.security.protocol.map": "CONTROLLER:SSL",
                    "ssl.certificate.location": certificate,
                    "ssl.key.location": key,
                    "ssl.ca.location": self.authority[0],
                    **settings,
                },
            )
        voters = ",".join(f"{n.id}@{n.address}:{random_uuid()}" for n in self.nodes.values())
        for node in self.nodes.values():
            node.format(f"--initial-controllers={voters}")

    def said(self) -> str:
        return "".join(node.said() for node in self.nodes.values())

    def stop(self) -> None:
        for node in self.nodes.values():
            node.kill()


@pytest.fixture
def mapped(tmp_path: Path) -> Iterator[Unnamed]:
    principals = ";".join(f"{i}@User:CN=kafka-{i}" for i in IDS)
    quorum = Unnamed(tmp_path, **{"quorate.controller.principals": principals})
    try:
        for node in quorum.nodes.values():
            node.start()
        yield quorum
    finally:
        quorum.stop()


async def test_a_listed_principal_speaks_for_its_node_and_nobody_else_does(mapped: Unnamed) -> None:
    async with QuorumClient(mapped.addresses, tls=mapped.alice) as client:
        await client.append_value(b"by three voters")
        described = (await client.describe_quorum()).response
    leader = mapped.nodes[described.leader.id or 0]
    follower = next(node for node in mapped.nodes.values() if node is not leader)
    fetch = raft_pb2.FetchRequest(
        cluster_id=CLUSTER,
        epoch=described.leader.epoch,
        replica=common_pb2.ReplicaKey(
            id=follower.id, directory_id=directory_to_wire(follower.directory_id)
        ),
        offset=0,
    )
    credentials = mapped.alice.channel_credentials()
    async with grpc.aio.secure_channel(leader.address, credentials) as channel:
        answer = await channel.unary_unary(
            "/quorate.v1.Raft/Fetch",
            request_serializer=raft_pb2.FetchRequest.SerializeToString,
            response_deserializer=raft_pb2.FetchResponse.FromString,
        )(fetch, timeout=10)
    assert answer.error_code == REFUSED
    assert "ID@PRINCIPAL to quorate.controller.principals" in answer.error_message
    assert not answer.records


def test_a_controller_whose_certificate_names_nobody_says_what_to_do(tmp_path: Path) -> None:
    quorum = Unnamed(tmp_path)
    node = quorum.nodes[1]
    try:
        node.start()
        until("it ends", lambda: node.status is not None)
    finally:
        quorum.stop()
    (line,) = [line for line in node.said().splitlines() if "error:" in line]
    assert "does not name node 1" in line
    assert "node-1 among its DNS names" in line
    assert "quorate.peer.identity=off" in line
    assert "Traceback" not in node.said()


@pytest.mark.parametrize("principals", ["", "User:ANONYMOUS"])
async def test_only_listed_principals_format_a_waiting_node(
    tmp_path: Path, principals: str
) -> None:
    settings = {"quorate.unformatted.wait": "true", "quorate.format.principals": principals}
    node = Node(tmp_path, 1, free_ports(1)[0], **settings)
    node.start()
    try:
        node.wait_said("waiting for Format")
        async with grpc.aio.insecure_channel(node.address) as channel:
            answer = await channel.unary_unary(
                "/quorate.v1.Quorum/Format",
                request_serializer=quorum_pb2.FormatRequest.SerializeToString,
                response_deserializer=quorum_pb2.FormatResponse.FromString,
            )(quorum_pb2.FormatRequest(cluster_id=OTHER_CLUSTER, mode=1), timeout=10)
        if principals:
            assert answer.error_code == 0, answer
            node.wait_said("leads epoch")
        else:
            assert answer.error_code == REFUSED, answer
            assert "quorate.format.principals" in answer.error_message
            files = {name for _, _, names in os.walk(tmp_path) for name in names}
            assert META_PROPERTIES_FILE not in files
    finally:
        node.kill()
