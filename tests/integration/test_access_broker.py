"""Every method of a broker, called by every kind of caller, is answered as docs/access.md says.

A controller and a broker, each with an authorizer, an encrypted listener and one without TLS.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import pytest_asyncio
from quorate.common.error_codes import ErrorCode
from quorate.common.identifiers import uuid_to_bytes
from quorate.metadata import requests as r
from quorate.records.batch import build_data_batch
from quorate.rpc.metadata_client import MetadataClient
from quorate.rpc.wire.methods import FOLLOWER_FETCH, PARTITION_METHODS, RPC_METHODS, RpcMethod
from quorate.v1 import partition_pb2 as pb

from tests.certificates import make_certificate, needs_openssl
from tests.integration.support import CLUSTER, HOST, free_ports
from tests.integration.test_access import CALL_S, DENIED, Lab, call, is_allowed
from tests.processes import quorate_process, write_properties
from tests.tools import access, access_broker, callers

pytestmark = needs_openssl

LOCATE, READ = PARTITION_METHODS["Locate"], RPC_METHODS["Read"]
READY_S = 60.0


class BrokerLab(Lab):
    """The controller's lab, and the broker that it has the certificate of."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.files["producer"] = make_certificate(folder, "producer", self.authority)
        encrypted, clear = free_ports(2)
        self.controller = self.address
        # From here on channels go to the broker.
        self.address, self.plaintext = f"{HOST}:{encrypted}", f"{HOST}:{clear}"
        self.folder = folder
        self.properties = folder / "broker.properties"
        self.broker = quorate_process(
            "broker", folder / "broker.log", "broker", self.properties, "--format", CLUSTER
        )

    def start_broker(self, **changed: object) -> None:
        certificate, key = self.files["broker"]
        settings = {
            "process.roles": "broker",
            "node.id": callers.BROKER,
            "listeners": f"EXTERNAL://{self.address},CLEAR://{self.plaintext}",
            "listener.security.protocol.map": "CONTROLLER:SSL,EXTERNAL:SSL,CLEAR:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": self.controller,
            "log.dirs": self.folder / "broker",
            "ssl.certificate.location": certificate,
            "ssl.key.location": key,
            "ssl.ca.location": self.authority[0],
            **{name.replace("_", "."): value for name, value in changed.items()},
        }
        write_properties(self.properties, settings)
        self.broker.start()

    async def ask(self, request: Any) -> Any:
        """What the controller answers to the administrator."""
        async with MetadataClient([self.controller], tls=self.tls("administrator")) as admin:
            return await admin.ask(request)

    async def make_topic(self) -> str:
        """TOPIC, once the broker can have it, with the ACLs of the page; its id."""
        async with asyncio.timeout(READY_S):
            acls = r.CreateAcls((callers.broker_acl(), *callers.producer_acls()))
            answer = await self.ask(acls)
            assert {each.error for each in answer.results} == {ErrorCode.NONE}
            while True:
                found = await self.ask(r.CreateTopics((r.NewTopic(callers.TOPIC, 1, 1),)))
                if found.topics[0].error is ErrorCode.NONE:
                    return str(found.topics[0].topic_id)
                await asyncio.sleep(0.1)

    async def wait_ready(self, topic_id: str) -> None:
        """Until the broker knows the topic, decides by the ACLs, and leads the partition."""
        produce = PARTITION_METHODS["Produce"]
        async with asyncio.timeout(READY_S), self.channel("producer") as channel:
            request = pb.LocateRequest(topics=[callers.TOPIC])
            while True:
                answer = await call(channel, LOCATE, request, wait_for_ready=True)
                found = [topic.error_code for topic in answer.topics]
                if answer.error_code == 0 and found == [0] and answer.topics[0].partitions:
                    answer = await call(channel, produce, request_of(produce, 0, topic_id))
                    if answer.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                        return
                await asyncio.sleep(0.1)

    def end(self) -> None:
        self.node.kill()
        self.broker.kill()


@pytest_asyncio.fixture
async def lab(tmp_path: Path) -> AsyncIterator[BrokerLab]:
    made = BrokerLab(tmp_path)
    try:
        yield made
    finally:
        made.end()


def request_of(rpc: RpcMethod, node: int, topic_id: str) -> Any:
    key = pb.PartitionKey(topic_id=uuid_to_bytes(topic_id), index=0)
    if rpc.name == "Fetch":
        position = pb.FetchPosition(partition=key, max_bytes=1)
        follower = {"replica_id": node} if rpc is FOLLOWER_FETCH else {}
        return pb.PartitionFetchRequest(positions=[position], max_bytes=1, **follower)
    return {
        "Produce": pb.ProduceRequest(
            correlation_id=7, partition=key, records=bytes(build_data_batch([(None, b"v")], 0))
        ),
        "ListOffsets": pb.ListOffsetsRequest(partition=key),
        "Locate": pb.LocateRequest(topics=[callers.TOPIC]),
        "InitProducerId": pb.InitProducerIdRequest(),
    }[rpc.name]


def errors_in(answer: Any) -> Iterator[int]:
    yield answer.error_code
    for field in ("partitions", "topics"):
        for part in getattr(answer, field, ()):
            yield part.error_code


@pytest.mark.slow
async def test_a_broker_allows_what_the_page_says(lab: BrokerLab) -> None:
    lab.start_broker(
        authorizer_class_name="quorate.authorizer", super_users=";".join(callers.super_users())
    )
    topic_id = await lab.make_topic()
    await lab.wait_ready(topic_id)
    page = {title: decided for title, _, decided in access_broker.rows()}
    controllers = {rpc.name: decided for rpc, decided in access.rows()}
    for number, column in enumerate(access_broker.CALLERS):
        async with lab.channel(column.title) as channel:
            if column.caller is None:
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await call(channel, LOCATE, LOCATE.request())
                assert refused.value.code() is grpc.StatusCode.UNAVAILABLE, refused.value
                continue
            found = {}
            for title, rpc in access_broker.methods().items():
                request = request_of(rpc, column.node, topic_id)
                answer = await asyncio.wait_for(call(channel, rpc, request), CALL_S)
                found[title] = DENIED.isdisjoint(errors_in(answer))
                if rpc.name == "Produce":
                    assert answer.correlation_id == 7
            assert found == {title: row[number] for title, row in page.items()}, column.title
            # What it serves beside records passes the rules of controllers, and what it forwards
            # those of the controller for the broker.
            for name, decided in controllers.items():
                if column in callers.COLUMNS and not decided[number]:
                    rpc = RPC_METHODS[name]
                    assert not await is_allowed(channel, rpc, column.node), (column.title, name)


async def test_without_an_authorizer_followers_and_readers_of_the_log_are_nodes(
    lab: BrokerLab,
) -> None:
    """Acknowledgements, and the credentials in the metadata log."""
    lab.start_broker()
    topic_id = await lab.make_topic()
    await lab.wait_ready(topic_id)
    for title in ("client", "producer", "administrator", "plaintext", "controller", "broker"):
        async with lab.channel(title) as channel:
            node = callers.BROKER if title == "broker" else callers.CONTROLLER
            names_node = title in ("broker", "controller")
            fetch = request_of(FOLLOWER_FETCH, node, topic_id)
            answer = await call(channel, FOLLOWER_FETCH, fetch)
            is_denied = not DENIED.isdisjoint(errors_in(answer))
            # Without TLS nobody has an identity: quorate.peer.identity=required refuses that.
            assert is_denied is not (names_node or title == "plaintext"), title
            assert await is_allowed(channel, READ, node) is names_node, title
            other = request_of(FOLLOWER_FETCH, 1002, topic_id)
            answer = await call(channel, FOLLOWER_FETCH, other)
            assert DENIED.isdisjoint(errors_in(answer)) is (title == "plaintext"), title
            answer = await call(
                channel,
                PARTITION_METHODS["Produce"],
                request_of(PARTITION_METHODS["Produce"], 0, topic_id),
            )
            assert answer.error_code == 0, title
