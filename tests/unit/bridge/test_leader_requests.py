"""What a follower forwards to a leader over Kafka's protocol, and reads that this leader confirms.

Three real replicas; the leader's listener for Kafka's protocol is a server of the test, which
answers from the leader's replica and from a real metadata controller.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
from quorate.bridge.framing.frames import Decoder
from quorate.bridge.listener.server import api_versions
from quorate.bridge.messages import schemas as s
from quorate.bridge.peers.leader_requests import KafkaLeader, LeaderRequests
from quorate.bridge.peers.leader_service import KafkaLedService
from quorate.bridge.requests.cluster import encode_describe_quorum_response
from quorate.bridge.requests.forwarding import answer_envelope, envelope_response
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.metadata import requests as r
from quorate.metadata.controller import MetadataController
from quorate.metadata.managers.controller_context import RefusedError
from quorate.metadata.settings import ControllerSettings
from quorate.raft import messages as m
from quorate.raft.types import ReplicaKey, VoterSet
from quorate.rpc.principals import Caller, PrincipalMapping
from quorate.rpc.server.authorizer import Context
from quorate.rpc.wire.values import DescribeFeaturesRequest, ReadRequest, UpdateFeaturesRequest
from quorate.runtime.metadata_service import NO_APPLICATIONS, MetadataService
from quorate.runtime.pending_appends import CommitOutcome

from tests.processes import HOST, free_ports
from tests.unit.bridge.bridge_support import NO_QUOTAS, Migrating
from tests.unit.bridge.client_frames import read_frame, write_frame
from tests.unit.runtime.replicas import CLUSTER, SOON_S, Replica, address, leader_of, trio, until

LISTENER = address(1).name
ALICE = Caller("User:alice", "10.0.0.7")
SOON_MS = 20_000
TOPIC = r.CreateTopics((r.NewTopic("made", 1, 1),))
Answer = Callable[[s.Call], Awaitable[Any]]


class Leader:
    """The leader's listener. answer: of requests other than ApiVersions; returns None to hang up.
    asked: their API keys.
    """

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.callers: list[Caller] = []
        self.cluster = Migrating(1)
        self.replica: Replica | None = None
        self.answer: Answer = self.answer_truly
        self.decoder = Decoder()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (frame := await read_frame(reader)) is not None:
            call = s.read_call(frame)
            if call.api_key == s.API_VERSIONS:
                body = api_versions(call, serves_voters=True)
            else:
                self.asked.append(call.api_key)
                body = await self.answer(call)
            if body is None:
                break
            write_frame(writer, s.write_response(call.correlation_id, body))
        writer.close()

    async def answer_truly(self, call: s.Call) -> Any:
        if call.api_key == s.ENVELOPE:
            return await answer_envelope(call, self._ask, self.decoder.call, NO_QUOTAS)
        assert call.api_key == s.DESCRIBE_QUORUM
        assert self.replica is not None
        view, _ = await self.replica.driver.ask(m.DescribeQuorumRequest(""))
        module = s.response_module(call.api_key, call.version)
        return encode_describe_quorum_response(module, cast(m.DescribeQuorumResponse, view))

    async def _ask(self, request: Any, timeout_ms: int, caller: Caller) -> Any:
        self.callers.append(caller)
        return await self.cluster.answer(request, timeout_ms, caller)


class Requests(LeaderRequests):
    """Sends to the listener of the test, instead of the endpoint in the log."""

    port = 0

    def leader(self) -> KafkaLeader | None:
        found = super().leader()
        return found and replace(found, endpoint=Endpoint(LISTENER, HOST, self.port))


def same(endpoint: Endpoint, _voters: VoterSet) -> Endpoint:
    return endpoint


def requests_of(replica: Replica, port: int = 0) -> Requests:
    made = Requests(replica.driver, replica.loader, listener=LISTENER, tls=None, resolve=same)
    made.port = port
    return made


@dataclass
class Following:
    """A follower, its leader, and the leader's listener."""

    replicas: dict[int, Replica]
    own: Replica
    leader: Leader
    port: int

    @property
    def requests(self) -> Requests:
        return requests_of(self.own, self.port)

    @property
    def service(self) -> KafkaLedService:
        controller = MetadataController(lambda: b"0" * 16, ControllerSettings())
        metadata = MetadataService(self.own.loader, controller, batch_bytes_max=1 << 20)
        metadata.bind(self.own.driver)
        return KafkaLedService(
            self.own.driver,
            batch_bytes_max=1 << 20,
            is_ready=lambda: True,
            metadata=metadata,
            forwarding=self.requests,
            mapping=PrincipalMapping(),
        )

    async def forward(self, request: Any, timeout_ms: int = SOON_MS) -> Any:
        requests = self.requests
        leader = requests.leader()
        assert leader is not None
        return await requests.forward(leader, request, timeout_ms, ALICE)


@asynccontextmanager
async def following(folder: Path, fetch_timeout_ms: int) -> AsyncIterator[Following]:
    listener = Leader()
    server = await asyncio.start_server(listener.serve, HOST, 0)
    try:
        async with trio(folder, fetch_timeout_ms=fetch_timeout_ms) as replicas:
            listener.replica = leader = await leader_of(replicas)
            own = next(each for each in replicas.values() if each is not leader)
            await until("it follows", lambda: own.node.current_leader.id == leader.id)
            port = server.sockets[0].getsockname()[1]
            yield Following(replicas, own, listener, port)
    finally:
        server.close()
        listener.decoder.close()


@pytest.fixture
async def follower(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Following]:
    """Its parameter is the fetch timeout in milliseconds. By default no pause of a busy machine
    is long enough for another election.
    """
    async with following(tmp_path, getattr(request, "param", 8_000)) as made:
        yield made


class Call:
    """gRPC's context of a call without TLS."""

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}

    def peer(self) -> str:
        return "ipv4:10.0.0.7:4711"


CALL = cast(Context, Call())


# --- forwarding -----------------------------------------------------------------------------------


async def test_a_request_is_answered_in_the_name_of_its_caller(follower: Following) -> None:
    response = await follower.forward(TOPIC)
    assert [topic.error for topic in response.topics] == [ErrorCode.NONE]
    assert follower.leader.asked == [s.ENVELOPE]
    assert follower.leader.callers == [Caller("User:alice", "10.0.0.7")]


async def test_a_leader_that_speaks_grpc_is_not_asked(follower: Following) -> None:
    own = follower.own
    assert requests_of(own).leader() is not None
    requests = Requests(own.driver, own.loader, listener="KAFKA", tls=None, resolve=same)
    assert requests.leader() is None, "its endpoint is of another listener"
    elsewhere = Endpoint("GRPC", HOST, 1)
    requests = Requests(
        own.driver, own.loader, listener=LISTENER, tls=None, resolve=lambda *_: elsewhere
    )
    assert requests.leader() is None, "the configuration knows where it speaks gRPC"
    assert follower.leader.replica is not None
    assert requests_of(follower.leader.replica).leader() is None, "a leader does not ask itself"


async def failure(follower: Following, request: Any = TOPIC, timeout_ms: int = SOON_MS) -> Any:
    with pytest.raises(RefusedError) as caught:
        await follower.forward(request, timeout_ms)
    return caught.value.error, caught.value.message


async def test_nothing_is_done_if_nobody_listens(follower: Following) -> None:
    (follower.port,) = free_ports(1)
    assert await failure(follower) == (ErrorCode.NOT_CONTROLLER, "")


async def test_a_lost_response_leaves_the_outcome_open(follower: Following) -> None:
    async def hang_up(_call: s.Call) -> Any:
        return None

    follower.leader.answer = hang_up
    error, text = await failure(follower)
    assert error is ErrorCode.NOT_CONTROLLER
    assert "may have executed the request" in text
    assert len(follower.leader.asked) == 1, "it is never sent twice"


async def test_what_kafka_cannot_express_is_not_sent(follower: Following) -> None:
    error, text = await failure(follower, r.CreateTopics((r.NewTopic("made", 1, 70_000),)))
    assert error is ErrorCode.INVALID_REQUEST
    assert "Kafka's protocol, which cannot express this request" in text
    assert follower.leader.asked == []


async def test_no_response_in_time_leaves_the_outcome_open(follower: Following) -> None:
    async def wait(_call: s.Call) -> Any:
        await asyncio.sleep(SOON_MS)

    follower.leader.answer = wait
    error, text = await failure(follower, timeout_ms=2_000)
    assert error is ErrorCode.REQUEST_TIMED_OUT
    assert "did not answer within 2000 ms" in text


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (ErrorCode.NOT_CONTROLLER, "has lost leadership"),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "CLUSTER_ACTION"),
        (ErrorCode.UNSUPPORTED_VERSION, "rejects the forwarded request"),
        (ErrorCode.NONE, "rejects the forwarded request"),
    ],
)
async def test_an_error_of_the_envelope_is_reported(
    follower: Following, code: ErrorCode, said: str
) -> None:
    async def refuse(call: s.Call) -> Any:
        return envelope_response(call.version, code)

    follower.leader.answer = refuse
    error, text = await failure(follower)
    assert error is (ErrorCode.UNKNOWN_SERVER_ERROR if code is ErrorCode.NONE else code)
    assert said in text


# --- reads ----------------------------------------------------------------------------------------


async def test_a_read_waits_for_a_record_that_follows_it(follower: Following) -> None:
    leader = follower.leader.replica
    assert leader is not None
    await leader.commit()
    end_offset = leader.log.end_offset
    reading = asyncio.create_task(follower.requests.read_index(SOON_MS))
    await until("the leader was asked", lambda: follower.leader.asked)
    await asyncio.sleep(0.3)
    assert not reading.done(), "whatever the leader's answer says"
    await leader.commit()
    index = await reading
    assert (index.error, index.offset) == (ErrorCode.NONE, end_offset + 1)
    assert follower.own.loader.offset >= index.offset
    assert index.leader == m.CurrentLeader(leader.node.epoch, leader.id), "without its endpoints"


async def test_a_read_times_out_if_no_record_follows(follower: Following) -> None:
    index = await follower.requests.read_index(500)
    assert index.error is ErrorCode.REQUEST_TIMED_OUT
    assert "metadata.max.idle.interval.ms" in index.message


@pytest.mark.parametrize("follower", [2_000], indirect=True)
async def test_a_deposed_leader_confirms_no_read(follower: Following) -> None:
    """It answers, and records follow at its end: but another leader has appended them."""
    stale = follower.leader.replica
    assert stale is not None
    stale_end = stale.log.end_offset
    network = follower.own.network
    network.cut.add(stale.id)
    view = s.response_module(s.DESCRIBE_QUORUM, 2)
    described, _ = await stale.driver.ask(m.DescribeQuorumRequest(""))
    answers = [encode_describe_quorum_response(view, cast(m.DescribeQuorumResponse, described))]

    async def answer(call: s.Call) -> Any:
        return answers.pop() if answers else await follower.leader.answer_truly(call)

    follower.leader.answer = answer
    reading = asyncio.create_task(follower.requests.read_index(SOON_MS))
    await until("the stale leader was asked", lambda: not answers)
    leaders: list[Replica] = []
    epochs: list[int] = []
    committed: int | None = None
    # Leaders may change again on a busy machine; the last record is committed in any case.
    while not reading.done() or committed is None:
        if committed is None:
            leaders.append(await leader_of(follower.replicas, but=stale.id))
            epochs.append(leaders[-1].node.epoch)
            follower.leader.replica = leaders[-1]
        ended = await leaders[-1].append()
        is_committed = isinstance(ended, tuple) and ended[1] is CommitOutcome.COMMITTED
        committed = ended[0] if is_committed else None
        await asyncio.sleep(0.05)
    index = await reading
    if leaders == [follower.own] or index.error is not ErrorCode.NONE:
        assert index.error is ErrorCode.NOT_LEADER_OR_FOLLOWER, "the client asks again"
        assert follower.own in leaders
        return
    assert index.leader.epoch in epochs
    assert stale_end + 1 < index.offset <= committed + 1


async def test_a_leader_that_does_not_describe_itself_confirms_no_read(
    follower: Following,
) -> None:
    async def refuse(call: s.Call) -> Any:
        module = s.response_module(call.api_key, call.version)
        error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return s.answer(module, **s.error_fields(error), topics=(), nodes=())

    follower.leader.answer = refuse
    index = await follower.requests.read_index(SOON_MS)
    assert index.error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert "DESCRIBE on the cluster" in index.message
    (follower.port,) = free_ports(1)
    index = await follower.requests.read_index(SOON_MS)
    assert (index.error, index.message) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, "")


# --- the handler of gRPC requests -----------------------------------------------------------------


async def test_the_leaders_view_is_described(follower: Following) -> None:
    """The test's leader describes the quorum in an envelope as well."""

    async def ask(request: Any, timeout_ms: int, caller: Caller) -> Any:
        assert follower.leader.replica is not None
        view, _ = await follower.leader.replica.driver.ask(request)
        answered = await follower.leader.cluster.answer(r.UnregisterBroker(9), timeout_ms, caller)
        return replace(answered, response=view)

    async def answer(call: s.Call) -> Any:
        return await answer_envelope(call, ask, follower.leader.decoder.call, NO_QUOTAS)

    follower.leader.answer = answer
    handler = follower.service.for_call(CALL)
    view = await handler.handle(m.DescribeQuorumRequest(""))
    async with asyncio.timeout(SOON_S):
        while any(each.log_end_offset <= 0 for each in view.voters):  # one has not fetched yet
            await asyncio.sleep(0.01)
            view = await handler.handle(m.DescribeQuorumRequest(""))
    own = follower.own.node
    assert view.error is ErrorCode.NONE
    assert (view.leader.id, view.leader.endpoints) == (own.current_leader.id, ())
    assert view.voter_set == own.voters
    (follower.port,) = free_ports(1)
    view = await follower.service.for_call(CALL).handle(m.DescribeQuorumRequest(CLUSTER))
    assert view.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert view.leader == m.CurrentLeader(own.epoch, own.current_leader.id)
    view = await follower.service.for_call(CALL).handle(m.DescribeQuorumRequest("A" * 22))
    assert view.error is ErrorCode.INCONSISTENT_CLUSTER_ID


async def test_changes_are_forwarded_and_name_no_endpoints(follower: Following) -> None:
    handler = follower.service.for_call(CALL)
    leader = m.CurrentLeader(follower.own.node.epoch, follower.own.node.current_leader.id)
    features = UpdateFeaturesRequest("", "metadata.version", 99)
    response = await handler.handle(features)
    assert (response.error, response.leader) == (ErrorCode.INVALID_UPDATE_VERSION, leader)
    answer = await handler.metadata(TOPIC, SOON_MS)
    assert (answer.error, answer.leader) == (ErrorCode.NONE, leader)
    assert [topic.error for topic in answer.response.topics] == [ErrorCode.NONE]
    wrong = replace(features, cluster_id="A" * 22)
    assert (await handler.handle(wrong)).error is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert follower.leader.asked == [s.ENVELOPE] * 2
    (follower.port,) = free_ports(1)
    handler = follower.service.for_call(CALL)
    assert await handler.handle(features) == m.AdminResponse(
        ErrorCode.NOT_LEADER_OR_FOLLOWER, leader
    )
    answer = await handler.metadata(TOPIC, SOON_MS)
    assert (answer.error, answer.leader, answer.message) == (ErrorCode.NOT_CONTROLLER, leader, "")


async def test_reads_of_the_metadata_are_answered_here(follower: Following) -> None:
    leader = follower.leader.replica
    assert leader is not None
    handler = follower.service.for_call(CALL)
    reading = asyncio.create_task(handler.metadata(r.DescribeTopics(), SOON_MS))
    await until("the leader was asked", lambda: follower.leader.asked)
    await leader.commit()
    answer = await reading
    assert (answer.error, answer.response) == (ErrorCode.NONE, r.DescribeTopicsResponse(()))
    assert follower.leader.asked == [s.DESCRIBE_QUORUM]
    chunks = [chunk async for chunk in follower.service.read(ReadRequest(0, linearizable=False))]
    assert chunks[-1].error is ErrorCode.NONE
    assert {chunk.leader.endpoints for chunk in chunks} == {()}, "clients cannot use them"
    features = await handler.handle(DescribeFeaturesRequest(""))
    assert (features.error, features.leader) == (ErrorCode.NONE, chunks[-1].leader)
    assert follower.leader.asked == [s.DESCRIBE_QUORUM]
    chunks = [chunk async for chunk in follower.service.read(ReadRequest(0, timeout_ms=300))]
    assert [chunk.error for chunk in chunks] == [ErrorCode.REQUEST_TIMED_OUT]


async def test_what_kafka_cannot_do_is_rejected(follower: Following) -> None:
    service = follower.service
    handler = service.for_call(CALL)
    transfer = await handler.handle(m.TransferLeadershipRequest("", ReplicaKey(2)))
    assert transfer.error is ErrorCode.UNSUPPORTED_VERSION
    assert "cannot transfer leadership" in transfer.message
    keyed = await service.append([(b"key", b"value")], SOON_MS)
    assert (keyed.error, keyed.message) == (ErrorCode.INVALID_REQUEST, NO_APPLICATIONS)
    keyless = await service.append([(None, b"\1\x14\0")], SOON_MS)
    assert keyless.error is ErrorCode.INVALID_REQUEST
    assert "accepts no records from clients" in keyless.message
    beat = await handler.metadata(r.BrokerHeartbeat(1, 1, 1), SOON_MS)
    assert (beat.error, beat.message) == (ErrorCode.NOT_CONTROLLER, "")
    assert follower.leader.asked == []


async def test_other_leaders_are_named_as_before(follower: Following) -> None:
    service = follower.service
    service._forwarding = Requests(
        follower.own.driver, follower.own.loader, listener="KAFKA", tls=None, resolve=same
    )
    handler = service.for_call(CALL)
    leader = follower.own.node.current_leader
    assert leader.endpoints
    refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await handler.handle(m.DescribeQuorumRequest(""))).leader == leader
    transfer = await handler.handle(m.TransferLeadershipRequest("", ReplicaKey(2)))
    assert (transfer.error, transfer.leader) == (refused, leader)
    assert (await service.append([(b"k", b"v")], SOON_MS)).error is refused
    answer = await handler.metadata(TOPIC, SOON_MS)
    assert (answer.error, answer.leader) == (ErrorCode.NOT_CONTROLLER, leader)
    chunks = [chunk async for chunk in service.read(ReadRequest(0))]
    assert [chunk.error for chunk in chunks] == [refused]
    assert follower.leader.asked == []
