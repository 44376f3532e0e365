"""Clients over gRPC while a controller of Kafka leads: Quorate's, a follower, forwards for them."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from quorate import __version__
from quorate.bridge.messages import schemas as s
from quorate.bridge.peers.client import KafkaClient
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.features import KRAFT_VERSION
from quorate.metadata import requests as r
from quorate.metadata.image.configs import ConfigResourceType
from quorate.metadata.metadata_version import SUPPORTED
from quorate.raft.types import SUPPORTED_KRAFT_VERSION, ReplicaKey
from quorate.rpc.client.quorum_client import QuorumClient
from quorate.rpc.errors import AdminError
from quorate.rpc.metadata_client import MetadataClient
from quorate.rpc.tls import TlsConfig
from quorate_operator.objects.broker_rights import rights

from tests.certificates import make_authority, make_certificate, needs_openssl
from tests.integration.support import CLUSTER, HOST, here, succeed, until
from tests.processes import write_properties
from tests.wire.test_mixed_quorum import KAFKAS, LISTENER, OURS, MixedQuorum, running

BROKER = 9
TOPIC = "orders"
TIMEOUT_S = 30.0
NODES = {node: f"node-{node}" for node in (*KAFKAS, OURS)}
ADMIN, ALICE = "admin", "alice"


class SecureQuorum(MixedQuorum):
    """Everything speaks TLS. Kafka's controllers authorize callers, Quorate's authorizes all."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder
        authority = make_authority(folder, "authority")
        for name in (*NODES.values(), ADMIN, ALICE):
            make_certificate(folder, name, authority, names=(name,))
            self.store(name).write_text(self.key(name).read_text() + self.pem(name).read_text())
        supers = ";".join(f"User:CN={name}" for name in (*NODES.values(), ADMIN))
        for node, kafka in self.kafkas.items():
            kafka.settings |= {
                "listener.security.protocol.map": f"{LISTENER}:SSL",
                "ssl.client.auth": "required",
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": supers,
                **self.stores(NODES[node]),
            }
        self.ours.configure(
            {
                "listener.security.protocol.map": f"CONTROLLER:SSL,{LISTENER}:SSL",
                "ssl.client.auth": "required",
                "ssl.certificate.location": self.pem(NODES[OURS]),
                "ssl.key.location": self.key(NODES[OURS]),
                "ssl.ca.location": self.pem("authority"),
            }
        )
        client = folder / "client.properties"
        write_properties(client, {"security.protocol": "SSL", **self.stores(ADMIN)})
        self.tool_options = ("--command-config", client)

    def pem(self, name: str) -> Path:
        return self.folder / f"{name}.pem"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def store(self, name: str) -> Path:
        return self.folder / f"{name}.store.pem"

    def stores(self, name: str) -> dict[str, object]:
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.store(name),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.pem("authority"),
        }

    def tls(self, name: str) -> TlsConfig:
        return TlsConfig(self.pem(name), self.key(name), self.pem("authority"))


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[SecureQuorum]:
    with running(SecureQuorum(tmp_path)) as made:
        yield made


@contextlib.asynccontextmanager
async def registered_broker(port: int, tls: TlsConfig) -> AsyncIterator[None]:
    """A broker that the leader on `port` takes for alive: topics can be placed on it."""

    async def heartbeat(client: KafkaClient, epoch: int, *, last: int) -> bool:
        response = await client.ask(
            s.BROKER_HEARTBEAT,
            2,
            broker_id=BROKER,
            broker_epoch=epoch,
            current_metadata_offset=last,
            want_fence=False,
            want_shut_down=False,
            offline_log_dirs=(),
            cordoned_log_dirs=(),
        )
        assert int(response.error_code) == 0, response
        return not response.is_fenced

    async def stay(client: KafkaClient, epoch: int) -> None:
        while True:
            await heartbeat(client, epoch, last=epoch)
            await asyncio.sleep(1)

    async with KafkaClient((HOST, port), tls, TIMEOUT_S) as client:
        module = s.request_module(s.BROKER_REGISTRATION, 4)
        response = await client.ask(
            s.BROKER_REGISTRATION,
            4,
            broker_id=BROKER,
            cluster_id=CLUSTER,
            incarnation_id=uuid.uuid4(),
            listeners=(module.Listener(name="A", host=HOST, port=9, security_protocol=0),),
            features=tuple(
                module.Feature(
                    name=name,
                    min_supported_version=levels.min,
                    max_supported_version=levels.max,
                )
                for name, levels in (SUPPORTED | {KRAFT_VERSION: SUPPORTED_KRAFT_VERSION}).items()
            ),
            rack=None,
            is_migrating_zk_broker=False,
            log_dirs=(uuid.uuid4(),),
            previous_broker_epoch=-1,
        )
        assert int(response.error_code) == 0, response
        epoch = response.broker_epoch
        async with asyncio.timeout(TIMEOUT_S):
            while not await heartbeat(client, epoch, last=epoch):
                pass
        task = asyncio.create_task(stay(client, epoch))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def described(client: QuorumClient, *leaders: int, dead: int | None = None) -> None:
    """The leader's view, complete, also if the client knows the follower only."""
    view = await client.describe_quorum()
    found = view.response
    assert view.is_leaders_view
    assert found.leader.id in leaders
    assert found.kraft_version == 1
    assert found.high_watermark > 0
    assert {each.replica.id for each in found.voters} == {*KAFKAS, OURS}
    now_ms = time.time() * 1000
    late = {each.replica.id for each in found.voters if now_ms - each.last_fetch_ms > 10_000}
    assert late <= {dead}, found.voters
    assert found.voter_set == found.committed_voters
    names = {each.id: [e.name for e in each.endpoints] for each in found.voter_set}
    assert names[OURS] == ["CONTROLLER", LISTENER]


async def metadata_is_changed_and_read(client: MetadataClient) -> None:
    """Each change is in the next read, which is linearizable."""
    topic = r.ConfigResource(ConfigResourceType.TOPIC, TOPIC)
    new = r.NewTopic(TOPIC, 2, 1, configs=(("retention.ms", "1000"),))
    (created,) = (await client.ask(r.CreateTopics((new,)))).topics
    assert created.error is ErrorCode.NONE, created
    assert (created.partitions, created.configs) == (2, (("retention.ms", "1000"),))
    (again,) = (await client.ask(r.CreateTopics((new,)))).topics
    assert again.error is ErrorCode.TOPIC_ALREADY_EXISTS
    grown = r.CreatePartitions((r.NewPartitions(TOPIC, 3),))
    assert (await client.ask(grown)).topics[0].error is ErrorCode.NONE
    (found,) = (await client.ask(r.DescribeTopics((r.TopicRef(TOPIC),)))).topics
    assert (found.topic_id, len(found.partitions)) == (created.topic_id, 3)

    change = r.ConfigChange(topic, (r.ConfigOp("cleanup.policy", "compact"),))
    wrong = r.ConfigChange(r.ConfigResource(topic.type, "none"), change.ops)
    answers = (await client.ask(r.IncrementalAlterConfigs((wrong, change)))).resources
    assert [each.error.name for each in answers] == ["UNKNOWN_TOPIC_OR_PARTITION", "NONE"]
    (configs,) = (await client.ask(r.DescribeConfigs((topic,)))).resources
    assert ("cleanup.policy", "compact") in [(each.name, each.value) for each in configs.configs]

    (acl,) = rights("User:broker", is_kafka=False)
    (result,) = (await client.ask(r.CreateAcls((acl,)))).results
    assert result.error is ErrorCode.NONE, result
    assert (await client.ask(r.DescribeAcls())).acls == (acl,)
    wanted = r.AclFilter(principal="User:broker")
    assert (await client.ask(r.DeleteAcls((wanted,)))).results[0].acls == (acl,)

    entity = (("user", "alice"),)
    quota = r.QuotaChange(entity, (r.QuotaOp("producer_byte_rate", 10.0),))
    assert (await client.ask(r.AlterClientQuotas((quota,)))).entries[0].error is ErrorCode.NONE
    quotas = (await client.ask(r.DescribeClientQuotas())).entries
    assert (entity, (("producer_byte_rate", 10.0),)) in quotas
    credential = r.ScramUpsertion("alice", 1, 4096, b"salt", b"x" * 32)
    (user,) = (await client.ask(r.AlterUserScramCredentials((credential,)))).users
    assert user.error is ErrorCode.NONE, user
    (alice,) = (await client.ask(r.DescribeUserScramCredentials())).users
    assert (alice.name, alice.credentials) == ("alice", ((1, 4096),))

    elected = await client.ask(r.ElectLeaders(0, ((TOPIC, 0), ("none", 0))))
    outcomes = {each.topic: each.error.name for each in elected.partitions}
    assert outcomes == {TOPIC: "ELECTION_NOT_NEEDED", "none": "UNKNOWN_TOPIC_OR_PARTITION"}
    cancelled = r.AlterPartitionReassignments((r.Reassignment(TOPIC, 0, None),))
    (part,) = (await client.ask(cancelled)).partitions
    assert part.error is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    (deleted,) = (await client.ask(r.DeleteTopics((r.TopicRef(TOPIC),)))).topics
    assert (deleted.error, deleted.topic_id) == (ErrorCode.NONE, created.topic_id)
    assert (await client.ask(r.DescribeTopics())).topics == ()
    gone = await client.ask(r.UnregisterBroker(77))
    assert gone.error is ErrorCode.BROKER_ID_NOT_REGISTERED


async def voters_change(client: QuorumClient, kafka: int, port: int) -> None:
    """Remove a controller of Kafka, and add it again."""
    voters = (await client.describe_quorum()).response.voter_set
    found = voters.get(kafka)
    assert found is not None
    with pytest.raises(AdminError) as caught:
        await client.remove_voter(ReplicaKey(kafka, "A" * 21 + "w"))
    assert caught.value.code is ErrorCode.VOTER_NOT_FOUND
    await client.remove_voter(found.key)
    left = (await client.describe_quorum()).response
    assert [each.id for each in left.voter_set] == sorted({*KAFKAS, OURS} - {kafka})
    await client.add_voter(found.key, [Endpoint(LISTENER, HOST, port)])
    again = (await client.describe_quorum()).response.voter_set
    assert again.get(kafka) == found


async def rejected(client: QuorumClient) -> None:
    """What a leader of Kafka has no request for is rejected with the reason."""
    with pytest.raises(AdminError, match="Kafka's nodes use this quorum"):
        await client.append_value(b"an application's")
    with pytest.raises(AdminError, match=r"no such request\. Append them while a controller of"):
        await client.append([(None, b"\1\x14\0")])
    with pytest.raises(AdminError, match="cannot transfer leadership") as caught:
        await client.transfer_leadership(ReplicaKey(OURS))
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


async def the_leader_authorizes_the_caller(address: str, tls: TlsConfig) -> None:
    """It is not the controller that forwards, which may do everything."""
    async with MetadataClient([address], tls=tls) as metadata:
        (created,) = (await metadata.ask(r.CreateTopics((r.NewTopic("alices"),)))).topics
        assert created.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        (acl,) = rights("User:CN=alice", is_kafka=False)
        (result,) = (await metadata.ask(r.CreateAcls((acl,)))).results
        assert result.error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        async with metadata.quorum_client() as client:
            with pytest.raises(AdminError, match="CLUSTER_AUTHORIZATION_FAILED"):
                await client.remove_voter(ReplicaKey(1, "A" * 20 + "1A"))
            with pytest.raises(AdminError, match="CLUSTER_AUTHORIZATION_FAILED"):
                await client.update_features("group.version", 1)


async def through_the_follower(quorum: SecureQuorum, leader: int) -> None:
    address, tls = quorum.ours.address, quorum.tls(ADMIN)
    follower = next(node for node in KAFKAS if node != leader)
    await the_leader_authorizes_the_caller(address, quorum.tls(ALICE))
    async with (
        QuorumClient([address], tls=tls) as client,
        MetadataClient([address], tls=tls) as metadata,
    ):
        await described(client, leader)
        async with registered_broker(quorum.ports[leader], tls):
            await metadata_is_changed_and_read(metadata)
        await voters_change(client, follower, quorum.ports[follower])
        await rejected(client)
        assert [record async for record in client.read(0, linearizable=True)]
        assert [record async for record in client.read(0, linearizable=False)]
        # Another leader, of Kafka or of Quorate, is found without another word.
        quorum.kafkas[leader].kill()
        cluster = await metadata.ask(r.DescribeCluster())
        assert {each.id for each in cluster.controllers} == {*KAFKAS, OURS}
        entity = r.QuotaChange((("user", "bob"),), (r.QuotaOp("producer_byte_rate", 1.0),))
        assert (await metadata.ask(r.AlterClientQuotas((entity,)))).entries
        await described(client, follower, OURS, dead=leader)
        assert (await client.node_status(address)).is_voter


def commands(quorum: SecureQuorum, leader: int) -> None:
    """The command line, with the address of the follower only."""
    options = quorum.tool_options
    ask = ("metadata-quorum", "--bootstrap-controller", quorum.ours.address, *options)
    status = succeed(*ask, "describe", "--status", "--json").json()
    assert status["leaderId"] == leader
    rows = succeed(*ask, "describe", "--replication", "--json").json()
    software = {row["nodeId"]: (row["implementation"], row["version"]) for row in rows}
    assert software == {
        **dict.fromkeys(KAFKAS, ("kafka", "4.3")),
        OURS: ("quorate", __version__),
    }
    text = succeed(*ask, "describe", "--replication").out
    assert re.search(rf"^{leader}\s.*Leader\s+kafka 4\.3\s*$", text, re.MULTILINE), text
    at = ("--bootstrap-server", quorum.ours.address, *options)
    features = succeed("features", *at, "upgrade", "--feature", "metadata.version=28").out
    assert "metadata.version was upgraded to 28." in features

    def levels() -> dict[str, int]:
        listed = succeed("features", *at, "describe", "--json").json()
        return {each["feature"]: each["finalizedVersionLevel"] for each in listed}

    until("the follower has replayed the level", lambda: levels()["metadata.version"] == 28)
    assert levels()["kraft.version"] == 1
    wrong = here("features", *at, "upgrade", "--feature", "metadata.version=99")
    assert wrong.status == 1
    assert "99" in wrong.out
    succeed("configs", *at, "alter", "--entity-type", "users", "--entity-name", "eve",
            "--add-config", "producer_byte_rate=5")  # fmt: skip


@needs_openssl
@pytest.mark.timeout(400)
def test_clients_over_grpc_work_while_kafka_leads(
    kafka_tool: Callable[..., str], quorum: SecureQuorum
) -> None:
    leader = quorum.leader()
    commands(quorum, leader)
    asyncio.run(through_the_follower(quorum, leader))
    for node in quorum.kafkas.values():
        assert "fault handler" not in node.said()
    assert quorum.ours.is_alive
