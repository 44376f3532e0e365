"""Who may do what with a topic's records: decided by a broker's own image, anew with each request.

The broker's server is real and unencrypted, so that every caller is User:ANONYMOUS.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from quorate.broker.authorizer import BrokerAuthorizer, broker_authorizer
from quorate.broker.client import RecordReader
from quorate.broker.config import BrokerConfig
from quorate.common.config_types import Address
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.identifiers import ZERO_UUID
from quorate.metadata.acls import LITERAL
from quorate.metadata.authorizer import ANONYMOUS, AclAuthorizer, Operation, ResourceType
from quorate.process.node_config import Security
from quorate.records.batch import build_data_batch
from quorate.records.metadata import (
    AccessControlEntryRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    TopicRecord,
)
from quorate.records.metadata.nodes import RegisteredEndpoint
from quorate.rpc.client.partition_client import BrokerConnections
from quorate.rpc.errors import AdminError, TlsError
from quorate.rpc.principals import Caller
from quorate.rpc.tls import TlsConfig
from quorate.rpc.wire.partition_values import (
    FetchPosition,
    PartitionFetch,
    PartitionKey,
    ProduceRequest,
)
from quorate.runtime.authorizer import PeerIdentity
from quorate.runtime.metadata_loader import MetadataLoader

from tests.certificates import make_authority, make_certificate, needs_openssl
from tests.unit.broker.test_broker_data_plane import (
    HOST,
    KEY,
    TOPIC_ID,
    DataPlane,
    NumberedProducer,
    until,
)

OTHER_ID, NO_ID = "AAAAAAAAAAAAAAAAAAABBA", "AAAAAAAAAAAAAAAAAAABCA"
ENDED = "CLUSTER_AUTHORIZATION_FAILED"


def acl(number: int, operation: Operation, topic: str = "t") -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=f"{'A' * 20}{number}A",
        resource_type=ResourceType.TOPIC,
        resource_name=topic,
        pattern_type=LITERAL,
        principal=ANONYMOUS,
        host="*",
        operation=operation,
        permission_type=3,
    )


class Guarded(DataPlane):
    """One broker that leads t-0 and other-0, with an authorizer and no ACLs."""

    async def start(self) -> None:
        self.authorizer = BrokerAuthorizer(identity=PeerIdentity.OFF, authorizer=AclAuthorizer())
        await super().start()
        self.listeners: list[Callable[..., None]] = []
        followed: Any = SimpleNamespace(
            image=self.image, has_caught_up=True, add_listener=self.listeners.append
        )
        self.authorizer.follow(cast(MetadataLoader, followed))
        endpoint = RegisteredEndpoint("PLAINTEXT", HOST, self.port, 0)
        self.tell(
            RegisterBrokerRecord(
                broker_id=1, broker_epoch=1, end_points=(endpoint,), fenced=False, version=3
            ),
            *(
                TopicRecord(name, topic, version=0)
                for name, topic in (("t", TOPIC_ID), ("other", OTHER_ID))
            ),
            *(
                PartitionRecord(
                    0, topic, (1,), (1,), leader=1, leader_epoch=0, partition_epoch=0, version=0
                )
                for topic in (TOPIC_ID, OTHER_ID)
            ),
        )
        replicas = self.manager.replicas
        await until(lambda: KEY in replicas and replicas[KEY].machine.is_leader)

    def tell(self, *records: MetadataRecord) -> None:
        super().tell(*records)
        for listener in self.listeners:
            listener(self.image, SimpleNamespace(acls=True))

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Guarded]:
    made = Guarded(1, tmp_path)
    await made.start()
    yield made
    await made.stop()


async def test_producers_and_readers_hear_at_once_that_they_may_not(broker: Guarded) -> None:
    async with (
        NumberedProducer([broker.address]) as producer,
        RecordReader([broker.address]) as reader,
    ):
        for attempt in (producer.send("t", b"v"), reader.end_offset("t", 0)):
            with pytest.raises(AdminError) as refused:
                await attempt
            assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        broker.tell(acl(1, Operation.WRITE))
        assert (await producer.send("t", b"v")).offset == 0
        with pytest.raises(AdminError, match="other"):
            await producer.send("other", b"v")
        # WRITE implies DESCRIBE, and no more.
        assert await reader.end_offset("t", 0) == 1
        with pytest.raises(AdminError) as refused:
            await anext(reader.records("t", 0))
        assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_a_right_that_is_taken_away_ends_what_is_open(broker: Guarded) -> None:
    broker.tell(acl(1, Operation.WRITE), acl(2, Operation.READ))
    async with (
        NumberedProducer([broker.address]) as producer,
        RecordReader([broker.address]) as reader,
    ):
        await producer.send("t", b"first")
        records = reader.records("t", 0)
        assert (await anext(records)).value == b"first"
        broker.tell(*(RemoveAccessControlEntryRecord(acl(n, Operation.ALL).id) for n in (1, 2)))
        for attempt in (anext(records), producer.send("t", b"second")):
            with pytest.raises(AdminError) as refused:
                await attempt
            assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert broker.manager.replicas[KEY].log.end_offset == 1


async def test_a_right_to_one_topic_is_none_to_another(broker: Guarded) -> None:
    """Asked by the topic's id, which no Locate has to tell."""
    broker.tell(acl(1, Operation.WRITE), acl(2, Operation.READ))
    batch = bytes(build_data_batch([(None, b"v")], 0))
    connections = BrokerConnections()
    produce = await connections.open_produce(HOST, broker.port)
    fetch = await connections.open_fetch(HOST, broker.port)
    failed = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    unknown = ErrorCode.UNKNOWN_TOPIC_ID
    kept: tuple[PartitionKey, ...] = ()
    for topic_id, error in ((TOPIC_ID, 0), (OTHER_ID, failed), (NO_ID, unknown)):
        key = PartitionKey(topic_id, 0)
        assert (await produce.produce(ProduceRequest(key, batch), 5_000)).error == error
        (found,) = (
            await fetch.fetch(PartitionFetch(-1, -1, 100, 1_000, (FetchPosition(key, 0),), kept))
        ).partitions
        kept = (key,)
        assert (found.partition, found.error, bool(found.records)) == (key, error, not error)
        assert (await connections.list_offsets(HOST, broker.port, key)).error == error
    other = broker.manager.replicas[PartitionKey(OTHER_ID, 0)]
    assert other.log.end_offset == 0
    fetch.close()
    await produce.close()
    await connections.close()


async def test_only_topics_that_one_may_describe_are_listed(broker: Guarded) -> None:
    connections = BrokerConnections()
    broker.tell(acl(1, Operation.DESCRIBE))
    everything = await connections.locate(HOST, broker.port, [], 2_000)
    assert [topic.name for topic in everything.topics] == ["t"]
    named = await connections.locate(HOST, broker.port, ["t", "other", "no"], 2_000)
    failed = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert [topic.error for topic in named.topics] == [ErrorCode.NONE, failed, failed]
    assert [topic.topic_id for topic in named.topics[1:]] == [ZERO_UUID, ZERO_UUID]
    await connections.close()


def follower(authorizer: BrokerAuthorizer, caller: Caller, node: int) -> str:
    refused = authorizer.follower_refusal(caller, node)
    return "" if refused is None else refused.error.name


@pytest.mark.parametrize(
    ("identity", "of_nobody", "in_clear"),
    [
        (PeerIdentity.AUTO, ENDED, ""),
        (PeerIdentity.REQUIRED, ENDED, ENDED),
        (PeerIdentity.OFF, "", ""),
    ],
)
def test_a_follower_fetches_in_its_own_name(
    identity: PeerIdentity, of_nobody: str, in_clear: str
) -> None:
    authorizer = BrokerAuthorizer(identity=identity)
    own = Caller("User:CN=node-2", "h", frozenset({2}), has_certificate=True)
    assert follower(authorizer, own, 2) == ""
    assert follower(authorizer, own, 3) == of_nobody
    assert follower(authorizer, Caller("User:CN=x", "h", has_certificate=True), 2) == of_nobody
    assert follower(authorizer, Caller(host="h"), 2) == in_clear


@needs_openssl
def test_a_broker_whose_certificate_does_not_name_it_says_so_at_once(tmp_path: Path) -> None:
    authority = make_authority(tmp_path, "authority")
    certificate, key = make_certificate(tmp_path, "broker", authority, names=("node-7", "b"))

    def config(node: int, identity: str) -> BrokerConfig:
        endpoint = Endpoint("SSL", HOST, 1)
        return BrokerConfig(
            node_id=node,
            listen=(f"{HOST}:1",),
            endpoints=(endpoint,),
            controller_listener_names=("CONTROLLER",),
            metadata_log_dir=tmp_path,
            log_dirs=(tmp_path,),
            bootstrap_servers=(Address(HOST, 1),),
            tls=TlsConfig(certificate, key, authority[0]),
            security=Security(peer_identity=identity),
        )

    assert broker_authorizer(config(7, "auto")) is not None
    assert broker_authorizer(config(8, "off")) is None
    for identity in ("auto", "required"):
        with pytest.raises(TlsError, match="node-8 among its DNS names"):
            broker_authorizer(config(8, identity))
