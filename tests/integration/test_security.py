"""Who may do what, with real controllers and real certificates.

Three controllers, whose certificates name them, with an authorizer; an administrator who is a super
user, and alice, who may do nothing until somebody says so.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from quorate.common.error_codes import ErrorCode
from quorate.controller.formatting import random_uuid
from quorate.metadata import requests as r
from quorate.metadata.acls import CLUSTER_NAME, LITERAL, PREFIXED
from quorate.metadata.authorizer import Operation, ResourceType
from quorate.raft.messages import DescribeQuorumResponse
from quorate.raft.types import ReplicaKey
from quorate.rpc.client.quorum_client import QuorumClient
from quorate.rpc.errors import AdminError
from quorate.rpc.fields import directory_to_wire
from quorate.rpc.metadata_client import MetadataClient
from quorate.rpc.tls import TlsConfig
from quorate.v1 import common_pb2, raft_pb2

from tests.certificates import make_authority, make_certificate, needs_openssl
from tests.integration.support import (
    CLUSTER,
    HOST,
    Node,
    assert_clean,
    assert_error,
    free_ports,
    quorate,
    succeed,
    until,
)
from tests.processes import WAIT_S

pytestmark = needs_openssl

IDS = (1, 2, 3)
ALICE = "User:CN=alice"
REFUSED = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
SECRET = "do-not-tell-me-7391"


class Secured:
    """The controllers, and the files of whoever talks to them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = make_authority(folder, "authority")
        ports = dict(zip(IDS, free_ports(len(IDS)), strict=True))
        self.addresses = [f"{HOST}:{port}" for port in ports.values()]
        self.files: dict[str, tuple[Path, Path]] = {}
        for name in ("admin", "alice"):
            self.files[name] = make_certificate(folder, name, self.authority)
        for i in IDS:
            name = f"node-{i}"
            self.files[name] = make_certificate(folder, name, self.authority, names=(name,))
        supers = ";".join(["User:CN=admin", *(f"User:CN=node-{i}" for i in IDS)])
        self.nodes = {
            i: Node(
                folder,
                i,
                ports[i],
                **{
                    "controller.quorum.bootstrap.servers": ",".join(self.addresses),
                    "listener.security.protocol.map": "CONTROLLER:SSL",
                    "ssl.certificate.location": self.files[f"node-{i}"][0],
                    "ssl.key.location": self.files[f"node-{i}"][1],
                    "ssl.ca.location": self.authority[0],
                    "authorizer.class.name": (
                        "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
                    ),
                    "super.users": supers,
                    "metadata.max.idle.interval.ms": 0,
                },
            )
            for i in IDS
        }
        ids = {i: random_uuid() for i in IDS}
        voters = ",".join(f"{i}-{ids[i]}@{HOST}:{ports[i]}" for i in IDS)
        for node in self.nodes.values():
            succeed(
                *("storage", "format", "-t", CLUSTER, "-c", node.properties),
                *("--initial-controllers", voters),
            )
            # They mean nothing here, and are told to do so.
            node.configure(
                {
                    "ssl.truststore.password": f"{SECRET}-truststore",
                    "sasl.jaas.config": f'Plain required password="{SECRET}-jaas";',
                }
            )
            node.start()

    def tls(self, name: str) -> TlsConfig:
        return TlsConfig(*self.files[name], self.authority[0])

    def client(self, name: str) -> QuorumClient:
        return QuorumClient(self.addresses, tls=self.tls(name), request_timeout_ms=20_000)

    def metadata(self, name: str) -> MetadataClient:
        return MetadataClient(self.addresses, tls=self.tls(name), request_timeout_ms=20_000)

    async def described(self) -> DescribeQuorumResponse:
        """Once everything is committed and known to all voters."""
        async with self.client("admin") as client, asyncio.timeout(30):
            while True:
                found = (await client.describe_quorum()).response
                ends = {voter.log_end_offset for voter in found.voters}
                if ends == {found.high_watermark}:
                    return found
                await asyncio.sleep(0.05)

    def connection(self, name: str) -> Path:
        """What a command needs to connect as somebody."""
        certificate, key = self.files[name]
        path = self.folder / f"{name}.properties"
        path.write_text(
            f"security.protocol=SSL\nssl.certificate.location={certificate}\n"
            f"ssl.key.location={key}\nssl.ca.location={self.authority[0]}\n"
        )
        return path

    def said(self) -> str:
        return "".join(node.said() for node in self.nodes.values())


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("secured"))
    try:
        until("a leader", lambda: "leads epoch" in made.said())
        yield made
        for node in made.nodes.values():
            assert node.stop() == 0
            assert_clean(node.said())
    finally:
        for node in made.nodes.values():
            node.kill()


@contextlib.asynccontextmanager
async def channel(secured: Secured, node: int, name: str) -> AsyncIterator[grpc.aio.Channel]:
    credentials = secured.tls(name).channel_credentials()
    async with grpc.aio.secure_channel(secured.nodes[node].address, credentials) as opened:
        yield opened


async def refused(ask: Any) -> AdminError:
    with pytest.raises(AdminError) as failed:
        await ask
    return failed.value


def acl(operation: Operation, permission: int = 3, **resource: Any) -> r.Acl:
    kind = resource.get("type", ResourceType.CLUSTER)
    pattern = resource.get("pattern", LITERAL)
    name = resource.get("name", CLUSTER_NAME)
    return r.Acl(kind, name, pattern, ALICE, "*", operation, permission)


async def create(secured: Secured, *acls: r.Acl) -> None:
    async with secured.metadata("admin") as admin:
        response = await admin.ask(r.CreateAcls(acls))
        assert {result.error for result in response.results} == {ErrorCode.NONE}


async def remove(secured: Secured) -> None:
    async with secured.metadata("admin") as admin:
        await admin.ask(r.DeleteAcls((r.AclFilter(principal=ALICE),)))


async def test_an_unauthorized_client_is_refused_and_the_log_is_unchanged(
    secured: Secured,
) -> None:
    before = await secured.described()
    voter = before.voters[0].replica
    asked: list[AdminError] = []
    async with secured.client("alice") as client, secured.metadata("alice") as metadata:
        asked.append(await refused(client.append_value(b"value")))
        asked.append(await refused(client.describe_quorum()))
        asked.append(await refused(client.describe_features()))
        asked.append(await refused(client.remove_voter(voter)))
        asked.append(await refused(client.add_voter(ReplicaKey(9, random_uuid()), ())))
        asked.append(await refused(client.transfer_leadership(before.voters[1].replica)))
        asked.append(await refused(client.update_features("kraft.version", 1)))
        requests: Sequence[Any] = (
            r.CreateAcls((acl(Operation.ALL),)),
            r.DeleteAcls((r.AclFilter(),)),
            r.DescribeAcls(),
            r.AlterUserScramCredentials((r.ScramUpsertion("u", 1, 4096, b"s" * 16, b"p" * 32),)),
            r.AlterClientQuotas((r.QuotaChange((("user", "u"),), (r.QuotaOp("x", 1.0),)),)),
            r.UnregisterBroker(1),
            r.UpdateFeatures((r.FeatureUpdate("metadata.version", 20),)),
            r.ElectLeaders(0),
            r.DescribeCluster(),
        )
        asked += [await refused(metadata.ask(request)) for request in requests]
        broker = r.ConfigResource(4, "")
        parts: Sequence[Any] = (
            r.CreateTopics((r.NewTopic("orders"),)),
            r.DescribeTopics(),
            r.IncrementalAlterConfigs(
                (r.ConfigChange(broker, (r.ConfigOp("log.retention.ms", "1"),)),)
            ),
        )
        of_parts = [await refused(metadata.ask(request)) for request in parts]
    assert {error.code for error in asked} == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    assert {error.code for error in of_parts} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    after = await secured.described()
    assert (after.leader, after.high_watermark, after.voter_set) == (
        before.leader,
        before.high_watermark,
        before.voter_set,
    )
    ends = {status.log_end_offset for status in after.voters}
    assert ends == {before.high_watermark}


async def test_reading_the_log_needs_a_cluster_action(secured: Secured) -> None:
    async with secured.client("alice") as client:
        error = await refused(_read(client))
    assert error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    async with secured.client("admin") as client:
        await client.append_value(b"value")
        assert await _read(client) > 0


async def _read(client: QuorumClient) -> int:
    return len([record async for record in client.read()])


async def heard(ask: Callable[[], Awaitable[Any]], *, refused: bool) -> None:
    """Wait until the node that is asked has heard of the ACL: a follower hears of it a moment after
    its leader.
    """
    async with asyncio.timeout(WAIT_S):
        while True:
            found = ErrorCode.NONE
            try:
                await ask()
            except AdminError as error:
                found = error.code
            if (found is ErrorCode.CLUSTER_AUTHORIZATION_FAILED) is refused:
                return
            await asyncio.sleep(0.05)


async def created(metadata: MetadataClient, request: r.CreateTopics) -> list[ErrorCode]:
    """The outcome for each topic, once the first is not refused for want of an ACL."""
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                errors = [topic.error for topic in (await metadata.ask(request)).topics]
            except AdminError as error:
                # Without an ACL for any topic the request is refused as a whole.
                errors = [error.code]
            if errors[0] != refused:
                return errors
            await asyncio.sleep(0.05)


async def test_acls_of_the_log_decide_and_a_denial_wins(secured: Secured) -> None:
    try:
        async with secured.client("alice") as client, secured.metadata("alice") as metadata:
            assert (await refused(client.append_value(b"no"))).code == REFUSED
            await create(secured, acl(Operation.ALTER))
            await heard(lambda: client.append_value(b"yes"), refused=False)
            await heard(client.describe_quorum, refused=False)
            create_some = r.CreateTopics((r.NewTopic("alice-1"), r.NewTopic("bob-1")))
            own = {"type": ResourceType.TOPIC, "name": "alice-", "pattern": PREFIXED}
            await create(secured, acl(Operation.CREATE, **own))
            assert await created(metadata, create_some) == [
                # There is no broker yet: the controller was asked for this one.
                ErrorCode.INVALID_REPLICATION_FACTOR,
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ]
            await create(secured, acl(Operation.ALL, permission=2))
            await heard(lambda: client.append_value(b"no"), refused=True)
    finally:
        await remove(secured)


async def test_a_command_says_it_in_one_line(secured: Secured) -> None:
    asked = ("metadata-quorum", "--bootstrap-controller", secured.addresses[0])
    ran = quorate(*asked, "--command-config", secured.connection("alice"), "describe", "--status")
    assert_error(ran, "CLUSTER_AUTHORIZATION_FAILED", "User:CN=alice may not")
    ran = quorate(*asked, "--command-config", secured.connection("admin"), "describe", "--status")
    assert ran.status == 0, ran


def _from_3(secured: Secured, receiver: int) -> list[tuple[str, Any, Any]]:
    """Every Raft request as node 3 would send it, and its answer's class."""
    keys = {
        i: common_pb2.ReplicaKey(id=i, directory_id=directory_to_wire(node.directory_id))
        for i, node in secured.nodes.items()
    }
    cluster = {"cluster_id": CLUSTER, "epoch": 1_000}
    endpoint = common_pb2.Endpoint(name="CONTROLLER", host=HOST, port=1)
    return [
        (
            "Vote",
            raft_pb2.VoteRequest(
                **cluster,
                candidate=keys[3],
                voter=keys[receiver],
                last_epoch=1_000,
                last_offset=1_000_000,
            ),
            raft_pb2.VoteResponse,
        ),
        (
            "BeginQuorumEpoch",
            raft_pb2.BeginQuorumEpochRequest(
                **cluster, leader=keys[3], leader_endpoints=[endpoint], voter=keys[receiver]
            ),
            raft_pb2.BeginQuorumEpochResponse,
        ),
        (
            "EndQuorumEpoch",
            raft_pb2.EndQuorumEpochRequest(
                **cluster, leader=keys[3], preferred_candidates=[keys[receiver]]
            ),
            raft_pb2.EndQuorumEpochResponse,
        ),
        (
            "Fetch",
            raft_pb2.FetchRequest(**cluster, replica=keys[3], offset=0),
            raft_pb2.FetchResponse,
        ),
        (
            "UpdateVoter",
            raft_pb2.UpdateVoterRequest(
                **cluster,
                voter=common_pb2.Voter(
                    key=keys[3],
                    endpoints=[endpoint],
                    kraft_version=common_pb2.VersionRange(min=0, max=1),
                ),
            ),
            raft_pb2.UpdateVoterResponse,
        ),
    ]


@pytest.mark.parametrize("who", ["node-2", "admin"])
async def test_a_peer_with_the_certificate_of_another_node_is_refused(
    secured: Secured, who: str
) -> None:
    """node-2 is a node, but not that one; the administrator may do everything, and is no node."""
    before = await secured.described()
    async with channel(secured, 1, who) as opened:
        for name, request, answer in _from_3(secured, 1):
            call = opened.unary_unary(
                f"/quorate.v1.Raft/{name}",
                request_serializer=type(request).SerializeToString,
                response_deserializer=answer.FromString,
            )
            response = await call(request, timeout=10)
            assert response.error_code == REFUSED, (name, response)
            assert "certificate" in response.error_message
        fetch = _from_3(secured, 1)[3][1]
        stream = opened.stream_stream(
            "/quorate.v1.Raft/FetchStream",
            request_serializer=raft_pb2.FetchRequest.SerializeToString,
            response_deserializer=raft_pb2.FetchResponse.FromString,
        )()
        for _ in range(2):
            await stream.write(fetch)
            response = await stream.read()
            assert response.error_code == REFUSED
            assert not response.records
        stream.cancel()
        pieces = opened.unary_stream(
            "/quorate.v1.Raft/FetchSnapshot",
            request_serializer=raft_pb2.FetchSnapshotRequest.SerializeToString,
            response_deserializer=raft_pb2.FetchSnapshotResponse.FromString,
        )(
            raft_pb2.FetchSnapshotRequest(
                cluster_id=CLUSTER,
                epoch=1,
                replica=fetch.replica,
                snapshot_id=common_pb2.OffsetAndEpoch(offset=0, epoch=0),
            )
        )
        async for piece in pieces:
            assert piece.error_code == REFUSED
            assert not piece.data
    after = await secured.described()
    assert after.leader == before.leader, "an epoch of 1000 was not believed"


async def test_a_node_speaks_for_itself(secured: Secured) -> None:
    fetch = _from_3(secured, 1)[3][1]
    fetch.epoch = 0
    async with channel(secured, 1, "node-3") as opened:
        call = opened.unary_unary(
            "/quorate.v1.Raft/Fetch",
            request_serializer=raft_pb2.FetchRequest.SerializeToString,
            response_deserializer=raft_pb2.FetchResponse.FromString,
        )
        assert (await call(fetch, timeout=10)).error_code != REFUSED


async def test_secrets_are_never_logged(secured: Secured) -> None:
    salted = b"salted-" + SECRET.encode().ljust(25, b".")
    salt = b"salt-" + SECRET.encode()
    async with secured.metadata("admin") as admin:
        upserted = r.ScramUpsertion("carol", 1, 4096, salt, salted)
        answer = await admin.ask(r.AlterUserScramCredentials((upserted,)))
        assert {user.error for user in answer.users} == {ErrorCode.NONE}
        bad = r.ScramUpsertion("dave", 1, 1, salt, salted)
        answer = await admin.ask(r.AlterUserScramCredentials((bad,)))
        assert {user.error for user in answer.users} != {ErrorCode.NONE}
        error = f"{answer}"
    async with secured.metadata("alice") as alice:
        await refused(alice.ask(r.AlterUserScramCredentials((upserted,))))
    node = secured.nodes[1]
    _, key = secured.files["node-1"]
    outputs = [secured.said(), error]
    # What is wrong with a setting is said without the setting's secret.
    for wrong in (
        {"ssl.key.password": f"{SECRET}-key"},
        {"ssl.keystore.key": key.read_text().replace("\n", "\\n")},
        {"ssl.key.location": key.read_text().replace("\n", "\\n")},
        {"quorate.peer.identity": key.read_text().replace("\n", "\\n")},
    ):
        path = secured.folder / "wrong.properties"
        settings = node.settings | wrong
        path.write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
        ran = quorate("controller", path)
        assert ran.status != 0
        outputs += [ran.out, ran.err]
    secrets = [SECRET]
    for bytes_ in (salted, salt):
        secrets += [base64.b64encode(bytes_).decode()[:16], bytes_.hex()[:32]]
    for _, file in secured.files.values():
        lines = file.read_text().splitlines()
        secrets += [line for line in lines if line and not line.startswith("-----")]
    for output in outputs:
        for secret in secrets:
            assert secret not in output, output[max(0, output.find(secret) - 200) :][:400]
    assert "ssl.truststore.password is Kafka's" in secured.said(), "it was read, and not told"
