"""What somebody can do with the certificate of a broker, or of a job that reads the log.

A real controller with TLS and an authorizer; both principals have CLUSTER_ACTION. By design they
read the whole log, with its credentials, and a broker registers and speaks in its own name. Nothing
else is allowed to them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.controller.formatting import random_uuid
from quorate.log.meta_properties import MetaProperties
from quorate.metadata import requests as r
from quorate.metadata.metadata_version import SUPPORTED
from quorate.rpc.client.quorum_client import QuorumClient
from quorate.rpc.errors import AdminError, OutcomeUnknownError
from quorate.rpc.wire.methods import RPC_METHODS
from quorate.v1 import quorum_pb2, raft_pb2

from tests.attacks.test_controller_principals import BROKER, REFUSED, STRANGER, Lab
from tests.certificates import make_certificate, needs_openssl
from tests.integration.support import CLUSTER, HOST, OTHER_CLUSTER

pytestmark = [needs_openssl, pytest.mark.timeout(120)]

ENDPOINTS = (Endpoint("PLAINTEXT", HOST, 1),)
FEATURES = tuple(r.BrokerFeature(name, levels) for name, levels in SUPPORTED.items())


def registration(broker_id: int) -> r.RegisterBroker:
    return r.RegisterBroker(
        broker_id, random_uuid(), ENDPOINTS, log_dirs=(random_uuid(),), features=FEATURES
    )


@pytest_asyncio.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    """broker, stranger (another one) and job have CLUSTER_ACTION."""
    made = Lab(tmp_path, 1)
    try:
        made.files["job"] = make_certificate(tmp_path, "job", made.authority)
        await made.allow("User:CN=broker", "User:CN=stranger", "User:CN=job")
        yield made
    finally:
        made.stop()


async def refusal(lab: Lab, who: str, request: Any) -> ErrorCode:
    """How a request for metadata ends, as a whole or in its first part."""
    async with lab.metadata(who) as client:
        try:
            answer = await client.ask(request)
        except AdminError as error:
            return error.code
    for name in ("error", "results", "topics"):
        found = getattr(answer, name, None)
        if isinstance(found, tuple):
            return found[0].error
        if found is not None:
            return found
    raise AssertionError(answer)


async def call(lab: Lab, who: str, name: str, request: Any) -> Any:
    rpc = RPC_METHODS[name]
    credentials = lab.tls(who).channel_credentials()
    async with grpc.aio.secure_channel(lab.nodes[1].address, credentials) as channel:
        ask = channel.unary_unary(
            rpc.path,
            request_serializer=rpc.request.SerializeToString,
            response_deserializer=rpc.response.FromString,
        )
        return await ask(request, timeout=10)


ADMINISTRATION: tuple[Any, ...] = (
    r.CreateTopics((r.NewTopic("made", 1, 1),)),
    r.DeleteTopics((r.TopicRef("owned"),)),
    r.CreateAcls((r.Acl(2, "*", 3, "User:CN=broker", "*", 2, 3),)),
    r.AlterUserScramCredentials((r.ScramUpsertion("root", 1, 4096, b"s" * 20, b"k" * 32),)),
    r.DescribeUserScramCredentials(),
    r.UnregisterBroker(STRANGER),
    r.UpdateFeatures((r.FeatureUpdate("metadata.version", 7, 3),)),
)
"""What neither of them may do."""


async def assert_refused(lab: Lab, who: str, sender: int) -> None:
    """Elections, changes of the quorum, appends and administration."""
    for request in lab.attacks(sender, 1):
        answer = await lab.call(who, 1, request)
        assert answer.error_code == REFUSED, (type(request), answer)
    for request in ADMINISTRATION:
        code = await refusal(lab, who, request)
        assert code in (
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ), (request, code)
    for name, request in (
        ("Append", quorum_pb2.AppendRequest(records=[{"key": b"k", "value": b"v"}])),
        ("RemoveVoter", quorum_pb2.RemoveVoterRequest(cluster_id=CLUSTER)),
        ("TransferLeadership", quorum_pb2.TransferLeadershipRequest(cluster_id=CLUSTER)),
        ("Format", quorum_pb2.FormatRequest(cluster_id=OTHER_CLUSTER, mode=1)),
    ):
        answer = await call(lab, who, name, request)
        assert answer.error_code == REFUSED, (name, answer)
    async with QuorumClient(lab.addresses, tls=lab.tls(who)) as client:
        with pytest.raises((AdminError, OutcomeUnknownError)) as caught:
            await client.append_value(b"on a stream")
        assert "ALTER on the cluster" in str(caught.value)


async def test_a_stolen_broker_certificate_speaks_for_that_broker_only(lab: Lab) -> None:
    async with lab.metadata("stranger") as owner:
        registered = await owner.ask(registration(STRANGER))
        beat = r.BrokerHeartbeat(STRANGER, registered.broker_epoch, registered.broker_epoch)
        async with asyncio.timeout(20):
            while (answer := await owner.ask(beat)).is_fenced:
                assert answer.error is ErrorCode.NONE, answer
                await asyncio.sleep(0.1)
    async with lab.metadata("admin") as admin:
        topic = r.NewTopic("owned", assignments=((STRANGER,),))
        made = await admin.ask(r.CreateTopics((topic,)))
        assert made.topics[0].error is ErrorCode.NONE, made
        described = (await admin.ask(r.DescribeTopics((r.TopicRef("owned"),)))).topics[0]
    partition = described.partitions[0]

    # In another broker's name.
    proposal = r.PartitionProposal(
        0, partition.leader_epoch, partition.partition_epoch, (r.IsrMember(BROKER),)
    )
    topics = (r.TopicProposals((proposal,), described.topic_id),)
    for request in (
        registration(STRANGER),
        r.BrokerHeartbeat(STRANGER, registered.broker_epoch, 0, want_shutdown=True),
        r.AlterPartition(STRANGER, registered.broker_epoch, topics),
        r.AllocateProducerIds(STRANGER, registered.broker_epoch),
    ):
        code = await refusal(lab, "broker", request)
        assert code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED, request
    fetch = raft_pb2.FetchRequest(cluster_id=CLUSTER, epoch=0, replica=lab.key(1), offset=0)
    answer = await lab.call("broker", 1, fetch)
    assert answer.error_code == REFUSED, "nor in a voter's"

    # In its own, where it does not lead.
    async with lab.metadata("broker") as broker:
        epoch = (await broker.ask(registration(BROKER))).broker_epoch
        altered = await broker.ask(r.AlterPartition(BROKER, epoch, topics))
        parts = [part for topic in altered.topics for part in topic.partitions]
        assert all(part.error is not ErrorCode.NONE for part in parts), altered
    async with lab.metadata("admin") as admin:
        now = (await admin.ask(r.DescribeTopics((r.TopicRef("owned"),)))).topics[0].partitions[0]
    assert (now.leader, now.isr) == (partition.leader, partition.isr)

    await assert_refused(lab, "broker", BROKER)
    # It does not become a controller either.
    features = tuple(r.ControllerFeature(name, levels) for name, levels in SUPPORTED.items())
    await refusal(lab, "broker", r.RegisterController(BROKER, random_uuid(), ENDPOINTS, features))
    await assert_refused(lab, "broker", BROKER)


async def test_a_jobs_certificate_reads_and_changes_nothing(lab: Lab) -> None:
    async with QuorumClient(lab.addresses, tls=lab.tls("admin")) as client:
        await client.append_value(b"to be read")
    async with QuorumClient(lab.addresses, tls=lab.tls("job")) as client:
        read = [record async for record in client.read(0)]
    assert any(record.value == b"to be read" for record in read)

    for request in (
        registration(BROKER),
        r.BrokerHeartbeat(BROKER, 1, 0),
        r.RegisterController(BROKER, random_uuid(), ENDPOINTS, ()),
    ):
        code = await refusal(lab, "job", request)
        assert code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED, request
    fetch = raft_pb2.FetchRequest(cluster_id=CLUSTER, epoch=0, replica=lab.key(BROKER), offset=0)
    answer = await lab.call("job", 1, fetch)
    assert answer.error_code == REFUSED, "it names no node"
    await assert_refused(lab, "job", BROKER)


async def test_format_is_not_done_twice(lab: Lab) -> None:
    """By a super user: a replayed or late Format must not touch a node that is formatted."""
    node = lab.nodes[1]
    before = MetaProperties.read(node.data)
    for cluster_id, directory in (
        (CLUSTER, b""),
        (OTHER_CLUSTER, b""),
        (CLUSTER, bytes(range(16))),
        ("../../../etc/passwd00", b""),
        ("x" * 60_000, b""),
    ):
        request = quorum_pb2.FormatRequest(cluster_id=cluster_id, mode=1, directory_id=directory)
        answer = await call(lab, "admin", "Format", request)
        assert answer.error_code == int(ErrorCode.INVALID_REQUEST), answer
    assert MetaProperties.read(node.data) == before
    assert node.stop() == 0
    node.start()
    node.wait_said("leads epoch")
    assert MetaProperties.read(node.data) == before
