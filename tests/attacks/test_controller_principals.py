"""A broker's or a client's certificate cannot take part in elections, whatever its ACLs allow.

Real controllers with TLS and an authorizer. The attackers' certificates are of the same authority.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.controller.formatting import random_uuid
from quorate.metadata import requests as r
from quorate.metadata.acls import CLUSTER_NAME, LITERAL
from quorate.metadata.authorizer import Operation, ResourceType
from quorate.metadata.metadata_version import SUPPORTED
from quorate.raft.messages import DescribeQuorumResponse
from quorate.rpc.client.quorum_client import QuorumClient
from quorate.rpc.fields import directory_to_wire
from quorate.rpc.metadata_client import MetadataClient
from quorate.rpc.tls import TlsConfig
from quorate.v1 import common_pb2, raft_pb2

from tests.certificates import make_authority, make_certificate, needs_openssl
from tests.integration.support import CLUSTER, HOST, Node, free_ports, succeed, until

pytestmark = needs_openssl

REFUSED = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
BROKER, STRANGER = 1001, 2000
EPOCH_MAX = 2**31 - 1
PRINCIPALS = "quorate.controller.principals"


def takes_part(node: Node) -> bool:
    """Whether it leads or follows, and so has its listener open."""
    said = node.said()
    return "leader in epoch" in said or "follower in epoch" in said


class Lab:
    """Controllers whose certificates name them; broker, stranger and admin besides."""

    def __init__(self, folder: Path, count: int, **settings: object) -> None:
        ids = range(1, count + 1)
        self.authority = make_authority(folder, "authority")
        self.files = {"admin": make_certificate(folder, "admin", self.authority)}
        for name, node in (("broker", BROKER), ("stranger", STRANGER)):
            names = (f"node-{node}",)
            self.files[name] = make_certificate(folder, name, self.authority, names=names)
        ports = dict(zip(ids, free_ports(count), strict=True))
        self.addresses = [f"{HOST}:{port}" for port in ports.values()]
        self.nodes: dict[int, Node] = {}
        directories = {i: random_uuid() for i in ids}
        voters = ",".join(f"{i}-{directories[i]}@{HOST}:{ports[i]}" for i in ids)
        for i in ids:
            name = f"node-{i}"
            certificate, key = make_certificate(folder, name, self.authority, names=(name,))
            node = Node(
                folder,
                i,
                ports[i],
                **{
                    "controller.quorum.bootstrap.servers": ",".join(self.addresses),
                    "listener.security.protocol.map": "CONTROLLER:SSL",
                    "ssl.certificate.location": certificate,
                    "ssl.key.location": key,
                    "ssl.ca.location": self.authority[0],
                    "authorizer.class.name": "quorate.authorizer",
                    "super.users": ";".join(["User:CN=admin", *(f"User:CN=node-{j}" for j in ids)]),
                    **settings,
                },
            )
            self.nodes[i] = node
            succeed(
                *("storage", "format", "-t", CLUSTER, "-c", node.properties),
                *("--initial-controllers", voters),
            )
            node.start()
        until("all take part", lambda: all(map(takes_part, self.nodes.values())))

    def said(self) -> str:
        return "".join(node.said() for node in self.nodes.values())

    def stop(self) -> None:
        for node in self.nodes.values():
            node.kill()

    def tls(self, name: str) -> TlsConfig:
        return TlsConfig(*self.files[name], self.authority[0])

    def metadata(self, name: str) -> MetadataClient:
        return MetadataClient(self.addresses, tls=self.tls(name), request_timeout_ms=20_000)

    async def allow(self, *principals: str) -> None:
        """CLUSTER_ACTION, which brokers have."""
        acls = tuple(
            r.Acl(
                *(ResourceType.CLUSTER, CLUSTER_NAME, LITERAL, principal, "*"),
                *(Operation.CLUSTER_ACTION, 3),
            )
            for principal in principals
        )
        async with self.metadata("admin") as admin:
            answer = await admin.ask(r.CreateAcls(acls))
        assert {result.error for result in answer.results} == {ErrorCode.NONE}

    async def described(self) -> DescribeQuorumResponse:
        async with QuorumClient(self.addresses, tls=self.tls("admin")) as client:
            return (await client.describe_quorum()).response

    def key(self, node: int) -> common_pb2.ReplicaKey:
        found = self.nodes.get(node)
        directory = random_uuid() if found is None else found.directory_id
        return common_pb2.ReplicaKey(id=node, directory_id=directory_to_wire(directory))

    async def call(self, who: str, receiver: int, request: Any) -> Any:
        name = type(request).__name__.removesuffix("Request")
        answer: Any = getattr(raft_pb2, f"{name}Response")
        address = self.nodes[receiver].address
        credentials = self.tls(who).channel_credentials()
        async with grpc.aio.secure_channel(address, credentials) as channel:
            ask = channel.unary_unary(
                f"/quorate.v1.Raft/{name}",
                request_serializer=type(request).SerializeToString,
                response_deserializer=answer.FromString,
            )
            return await ask(request, timeout=10)

    def vote(self, sender: int, receiver: int, epoch: int, **fields: Any) -> Any:
        return raft_pb2.VoteRequest(
            cluster_id=CLUSTER,
            epoch=epoch,
            candidate=self.key(sender),
            voter=self.key(receiver),
            last_epoch=0,
            last_offset=0,
            **fields,
        )

    def attacks(self, sender: int, receiver: int) -> Sequence[Any]:
        """What ends a quorum, in the name of `sender`."""
        endpoint = common_pb2.Endpoint(name="CONTROLLER", host=HOST, port=1)
        at = {"cluster_id": CLUSTER, "epoch": EPOCH_MAX}
        voter = common_pb2.Voter(
            key=self.key(sender),
            endpoints=[endpoint],
            kraft_version=common_pb2.VersionRange(min=0, max=1),
        )
        return (
            self.vote(sender, receiver, EPOCH_MAX),
            raft_pb2.BeginQuorumEpochRequest(
                **at, leader=self.key(sender), leader_endpoints=[endpoint], voter=self.key(receiver)
            ),
            raft_pb2.EndQuorumEpochRequest(
                **at, leader=self.key(sender), preferred_candidates=[self.key(receiver)]
            ),
            raft_pb2.UpdateVoterRequest(**at, voter=voter),
        )


@pytest.fixture
def listed(tmp_path: Path) -> Iterator[Lab]:
    """Only the setting tells controllers from others: certificates need not name the sender."""
    principals = ";".join(f"User:CN=node-{i}" for i in (1, 2, 3))
    lab = Lab(tmp_path, 3, **{PRINCIPALS: principals, "quorate.peer.identity": "off"})
    try:
        yield lab
    finally:
        lab.stop()


@pytest.fixture
def unlisted(tmp_path: Path) -> Iterator[Lab]:
    """The setting is empty; certificates name nodes."""
    lab = Lab(tmp_path, 1)
    try:
        yield lab
    finally:
        lab.stop()


async def test_who_is_not_listed_takes_no_part_in_elections(listed: Lab) -> None:
    await listed.allow("User:CN=broker", "User:CN=stranger")
    before = await listed.described()
    for who, sender in (("broker", BROKER), ("broker", 3), ("admin", 3), ("stranger", STRANGER)):
        for receiver in listed.nodes:
            for request in listed.attacks(sender, receiver):
                answer = await listed.call(who, receiver, request)
                assert answer.error_code == REFUSED, (who, type(request), answer)
                assert PRINCIPALS in answer.error_message
    leader = before.leader.id
    assert leader is not None
    for sender, is_refused in ((leader % 3 + 1, True), (BROKER, False)):
        fetch = raft_pb2.FetchRequest(
            cluster_id=CLUSTER, epoch=0, replica=listed.key(sender), offset=0
        )
        answer = await listed.call("broker", leader, fetch)
        assert (answer.error_code == REFUSED) is is_refused, answer
    after = await listed.described()
    assert after.leader == before.leader
    async with listed.metadata("admin") as admin:
        assert (await admin.ask(r.DescribeCluster())).features


async def test_a_registered_broker_takes_no_part_in_elections(unlisted: Lab) -> None:
    await unlisted.allow("User:CN=broker", "User:CN=stranger")
    before = await unlisted.described()
    features = tuple(r.BrokerFeature(name, levels) for name, levels in SUPPORTED.items())
    async with unlisted.metadata("broker") as broker:
        registered = await broker.ask(
            r.RegisterBroker(
                *(BROKER, random_uuid(), (Endpoint("PLAINTEXT", HOST, 1),)),
                log_dirs=(random_uuid(),),
                features=features,
            )
        )
    assert registered.error is ErrorCode.NONE
    until("the controller registers", lambda: "registered the features" in unlisted.said())
    for request in unlisted.attacks(BROKER, 1):
        answer = await unlisted.call("broker", 1, request)
        assert answer.error_code == REFUSED, (type(request), answer)
        assert "a registered broker" in answer.error_message
    # A node that is not known as a broker may be a voter that this one has not heard of (KIP-853).
    asked = await unlisted.call(
        "stranger", 1, unlisted.vote(STRANGER, 1, before.leader.epoch, pre_vote=True)
    )
    assert asked.error_code != REFUSED, asked
    assert (await unlisted.described()).leader == before.leader
