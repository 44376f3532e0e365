"""The server: what it answers to whom, what it refuses, and that nothing a handler does ends it."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.raft.errors import MisuseError
from quorate.raft.messages import CurrentLeader, VoteRequest
from quorate.raft.types import ReplicaKey
from quorate.rpc.client.channels import EOF
from quorate.rpc.errors import ListenError, PortInUseError
from quorate.rpc.server.grpc_server import (
    QUORUM_SERVICE,
    RAFT_SERVICE,
    SERVICES,
    RpcServer,
    start_server,
)
from quorate.rpc.server.request_validation import STOPPING
from quorate.rpc.wire import convert_append
from quorate.rpc.wire.limits import ServerLimits, format_address, parse_address
from quorate.rpc.wire.methods import RPC_METHODS
from quorate.v1 import common_pb2, quorum_pb2, raft_pb2

from tests.pressure import http2
from tests.tools.stubs import quorum_stub, raft_stub
from tests.unit.rpc.rpc_support import (
    CLUSTER,
    HOST,
    NO_HANG_S,
    Node,
    Unformatted,
    address_of,
    serving,
)

KEY = common_pb2.ReplicaKey(id=1)
SNAPSHOT = common_pb2.OffsetAndEpoch(offset=10, epoch=2)
VOTE = raft_pb2.VoteRequest(cluster_id=CLUSTER, epoch=4, candidate=KEY, voter=KEY, pre_vote=True)

WAITING_CALLS = 3_600
CALLS_EACH = 90
BUSY_S = 2.0
SEEN_S = 0.5
"""Until then a server has seen that a call was cancelled."""


def channel_to(server: RpcServer) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(address_of(server))


@contextlib.asynccontextmanager
async def stubs(server: RpcServer) -> AsyncIterator[tuple[Any, Any]]:
    """A client that shares nothing with ours."""
    async with channel_to(server) as channel:
        yield raft_stub(channel), quorum_stub(channel)


async def test_a_request_reaches_the_handler_as_a_value_and_its_answer_the_client() -> None:
    leader = CurrentLeader(9, 2, (Endpoint("CONTROLLER", "b", 9093),))
    node = Node(leader=leader)
    async with serving(node) as server, stubs(server) as (raft, _):
        answer = await raft.Vote(VOTE)
    assert node.asked == [VoteRequest(CLUSTER, 4, ReplicaKey(1), ReplicaKey(1), 0, 0, True)]
    assert answer.vote_granted
    assert (answer.current_leader.epoch, answer.current_leader.id) == (9, 2)
    assert answer.current_leader.endpoints[0].host == "b"


async def test_every_method_of_the_proto_is_served() -> None:
    """None is left to the generated base class, which answers UNIMPLEMENTED."""
    async with serving(Node()) as server, stubs(server) as (raft, quorum):
        for stub, file, name in ((raft, raft_pb2, "Raft"), (quorum, quorum_pb2, "Quorum")):
            for method in file.DESCRIPTOR.services_by_name[name].methods:
                request = getattr(file, method.input_type.name)()
                call = getattr(stub, method.name)
                argument = iter([request]) if method.client_streaming else request
                answer = call(argument, timeout=5)
                if method.server_streaming:
                    assert [message async for message in answer], method.name
                else:
                    await answer


async def test_a_malformed_request_is_answered_with_the_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = Node()
    async with serving(node) as server, stubs(server) as (raft, quorum):
        vote = await raft.Vote(raft_pb2.VoteRequest(candidate=KEY))
        pieces = [piece async for piece in raft.FetchSnapshot(raft_pb2.FetchSnapshotRequest())]
        chunks = [chunk async for chunk in quorum.Read(quorum_pb2.ReadRequest(from_offset=-1))]
    for answer in (vote, *pieces, *chunks):
        assert answer.error_code == common_pb2.INVALID_REQUEST
    assert vote.error_message == "VoteRequest.voter: it is missing"
    assert chunks[-1].last
    assert node.asked == []
    assert "Vote from" in caplog.text


async def test_what_a_handler_raises_is_logged_and_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = Node(failure=RuntimeError("the disk sings"))
    async with serving(node) as server, stubs(server) as (raft, quorum):
        with caplog.at_level(logging.ERROR):
            vote = await raft.Vote(VOTE)
            fetch = await raft.Fetch(raft_pb2.FetchRequest(replica=KEY))
            chunks = [chunk async for chunk in quorum.Read(quorum_pb2.ReadRequest())]
            with pytest.raises(grpc.aio.AioRpcError) as status:
                await quorum.NodeStatus(quorum_pb2.NodeStatusRequest())
        assert vote.error_code == common_pb2.UNKNOWN_SERVER_ERROR
        assert vote.error_message == "internal error: RuntimeError"
        assert fetch.error_code == common_pb2.UNKNOWN_SERVER_ERROR
        assert chunks[-1].error_code == common_pb2.UNKNOWN_SERVER_ERROR
        assert status.value.code() is grpc.StatusCode.INTERNAL
        assert "Vote from ipv4:127.0.0.1" in caplog.text
        assert "the disk sings" in caplog.text
        node.failure = None
        assert (await raft.Vote(VOTE)).vote_granted, "the server goes on"


async def test_an_unformatted_node_serves_two_methods_until_it_is_formatted() -> None:
    async with serving(Unformatted()) as server, stubs(server) as (raft, quorum):
        status = await quorum.NodeStatus(quorum_pb2.NodeStatusRequest())
        assert (status.node_id, status.formatted) == (5, False)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await raft.Vote(VOTE)
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert "not formatted" in str(refused.value.details())
        request = quorum_pb2.FormatRequest(cluster_id=CLUSTER, mode=quorum_pb2.STANDALONE)
        formatted = await quorum.Format(request)
        assert (formatted.error_code, formatted.cluster_id) == (common_pb2.NONE, CLUSTER)
        server.use(Node())
        assert (await raft.Vote(VOTE)).vote_granted


async def test_a_snapshot_arrives_in_pieces_that_follow_each_other() -> None:
    snapshot = bytes(range(256)) * 10_000
    async with serving(Node(snapshot=snapshot)) as server, stubs(server) as (raft, _):
        request = raft_pb2.FetchSnapshotRequest(
            replica=KEY,
            snapshot_id=SNAPSHOT,
            position=100,
            max_bytes=1 << 22,
        )
        pieces = [piece async for piece in raft.FetchSnapshot(request)]
    assert len(pieces) == 3
    assert b"".join(piece.data for piece in pieces) == snapshot[100:]
    assert [piece.position for piece in pieces] == [100, 100 + (1 << 20), 100 + (2 << 20)]
    assert {piece.size for piece in pieces} == {len(snapshot)}


async def test_a_fetch_stream_answers_one_after_the_other() -> None:
    node = Node()
    node.store([(b"", b"one")])
    async with serving(node) as server, stubs(server) as (raft, _):
        stream = raft.FetchStream()
        for round_number in range(3):
            await stream.write(raft_pb2.FetchRequest(replica=KEY, read_round=round_number))
            answer = await stream.read()
            assert answer.records == bytes(node.batches[0])
        await stream.done_writing()
        assert await stream.read() is EOF
        assert await stream.code() is grpc.StatusCode.OK


async def test_a_server_that_stops_does_not_wait_for_idle_streams() -> None:
    async with serving(Node()) as server, stubs(server) as (raft, quorum):
        fetches, appends = raft.FetchStream(), quorum.AppendStream()
        await fetches.write(raft_pb2.FetchRequest(replica=KEY))
        await appends.write(append_request(1))
        for stream in (fetches, appends):
            assert (await stream.read()).error_code == 0
        await asyncio.wait_for(server.stop(60_000), NO_HANG_S)
        for stream in (fetches, appends):
            assert await stream.code() is grpc.StatusCode.OK


async def test_a_stream_ends_after_the_fetch_in_progress_when_the_server_stops() -> None:
    node = Held()
    async with serving(node) as server, stubs(server) as (raft, _):
        stream = raft.FetchStream()
        await stream.write(raft_pb2.FetchRequest(replica=KEY))
        await node.begun.wait()
        stopped = asyncio.create_task(server.stop(60_000))
        await asyncio.sleep(0.05)
        assert not stopped.done()
        node.let_go.set()
        assert (await stream.read()).error_code == 0
        await asyncio.wait_for(stopped, NO_HANG_S)
        assert await stream.code() is grpc.StatusCode.OK


async def test_calls_that_the_node_cancels_are_answered() -> None:
    """As the driver does with the requests that wait when the replica fails."""
    node = Node(failure=asyncio.CancelledError())
    async with serving(node) as server, stubs(server) as (raft, quorum):
        stream = raft.FetchStream()
        await stream.write(raft_pb2.FetchRequest(replica=KEY))
        calls = [
            stream,
            raft.Fetch(raft_pb2.FetchRequest(replica=KEY)),
            raft.FetchSnapshot(raft_pb2.FetchSnapshotRequest(replica=KEY, snapshot_id=SNAPSHOT)),
            raft.Vote(VOTE),
            quorum.Read(quorum_pb2.ReadRequest()),
            quorum.Append(append_request(1)),
        ]
        for call in calls:
            assert await asyncio.wait_for(call.code(), NO_HANG_S) is grpc.StatusCode.CANCELLED
            assert await call.details() == STOPPING


# --- appends --------------------------------------------------------------------------------------


def append_request(correlation_id: int, value: bytes = b"v") -> quorum_pb2.AppendRequest:
    return convert_append.encode_append_request(correlation_id, [(b"", value)], 1_000)


class Held(Node):
    """A node that answers when it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = asyncio.Event()

    async def _refusal(self, request: object) -> ErrorCode:
        error = await super()._refusal(request)
        await self.let_go.wait()
        return error


async def test_a_call_appends_a_batch_and_is_answered_as_it_commits() -> None:
    node = Node()
    limits = ServerLimits(batch_bytes_max=1_000)
    async with serving(node, limits=limits) as server, stubs(server) as (_, quorum):
        answers = [await quorum.Append(append_request(number)) for number in (7, 8)]
        empty = await quorum.Append(quorum_pb2.AppendRequest(packed=quorum_pb2.PackedRecords(
            values=b"x", value_sizes=[2],
        )))  # fmt: skip
        large = await quorum.Append(append_request(1, bytes(1_000)))
        node.failure = KeyError("x")
        failed = await quorum.Append(append_request(2))
    assert [(answer.correlation_id, answer.base_offset) for answer in answers] == [(7, 0), (8, 1)]
    assert empty.error_code == common_pb2.INVALID_REQUEST
    assert large.error_code == common_pb2.MESSAGE_TOO_LARGE
    assert failed.error_code == common_pb2.UNKNOWN_SERVER_ERROR
    assert node.appended == [[(b"", b"v")]] * 2


async def test_an_append_that_has_begun_goes_on_without_its_call() -> None:
    node = Held()
    async with serving(node) as server:
        async with stubs(server) as (_, quorum):
            call = quorum.Append(append_request(1))
            await node.begun.wait()
            call.cancel()
        await asyncio.sleep(SEEN_S)
        assert node.appended == []
        node.let_go.set()
        await node.ended.wait()
        assert node.appended == [[(b"", b"v")]]


async def test_appends_are_under_way_together_and_answered_as_they_commit() -> None:
    node = Held()
    async with serving(node) as server, stubs(server) as (_, quorum):
        stream = quorum.AppendStream()
        for correlation_id in range(10):
            await stream.write(append_request(correlation_id))
        async with asyncio.timeout(NO_HANG_S):
            while node.under_way < 10:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        node.let_go.set()
        answers = [await stream.read() for _ in range(10)]
        await stream.done_writing()
        assert await stream.read() is EOF
    assert {answer.correlation_id for answer in answers} == set(range(10))
    assert sorted(answer.base_offset for answer in answers) == list(range(10))
    assert {answer.epoch for answer in answers} == {3}
    assert node.most_under_way == 10


async def test_an_append_stream_is_read_only_as_far_as_its_limits_go() -> None:
    node = Node(delay_s=0.02)
    limits = ServerLimits(append_messages_in_flight_max=3)
    async with serving(node, limits=limits) as server, stubs(server) as (_, quorum):
        stream = quorum.AppendStream()
        for correlation_id in range(9):
            await stream.write(append_request(correlation_id))
        await stream.done_writing()
        answers = [answer async for answer in stream]
    assert len(answers) == 9
    assert node.most_under_way == 3


async def test_an_append_that_has_begun_goes_on_without_its_stream() -> None:
    node = Held()
    async with serving(node) as server:
        async with stubs(server) as (_, quorum):
            stream = quorum.AppendStream()
            await stream.write(append_request(1))
            await node.begun.wait()
            stream.cancel()
        await asyncio.sleep(SEEN_S)
        assert node.appended == []
        node.let_go.set()
        await node.ended.wait()
        assert node.appended == [[(b"", b"v")]]


async def test_an_append_over_the_batch_limit_is_refused_and_the_stream_goes_on() -> None:
    node = Node()
    limits = ServerLimits(batch_bytes_max=1_000)
    async with serving(node, limits=limits) as server, stubs(server) as (_, quorum):
        stream = quorum.AppendStream()
        await stream.write(append_request(1, bytes(1_000)))
        answer = await stream.read()
        assert answer.error_code == common_pb2.MESSAGE_TOO_LARGE
        assert "the limit is 1000" in answer.error_message
        await stream.write(append_request(2))
        assert (await stream.read()).error_code == common_pb2.NONE


async def test_a_message_over_grpcs_limit_is_an_error_that_names_the_limit() -> None:
    limits = ServerLimits(message_bytes_max=100_000)
    async with serving(Node(), limits=limits) as server, stubs(server) as (_, quorum):
        stream = quorum.AppendStream()
        await stream.write(append_request(1, bytes(200_000)))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stream.read()
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "100000" in str(refused.value.details())
        status = await quorum.NodeStatus(quorum_pb2.NodeStatusRequest())
        assert status.formatted, "the server goes on"


async def test_a_failing_append_is_answered_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = Node(failure=KeyError("x"))
    async with serving(node) as server, stubs(server) as (_, quorum):
        stream = quorum.AppendStream()
        await stream.write(append_request(1))
        assert (await stream.read()).error_code == common_pb2.UNKNOWN_SERVER_ERROR
        node.failure = None
        await stream.write(append_request(2))
        assert (await stream.read()).error_code == common_pb2.NONE
    assert "an append of 1 records" in caplog.text


async def test_an_answer_with_more_records_than_a_message_holds_is_an_error() -> None:
    node = Node()
    node.store([(b"", bytes(90_000))])
    limits = ServerLimits(message_bytes_max=100_000)
    async with serving(node, limits=limits) as server, stubs(server) as (raft, _):
        answer = await raft.Fetch(raft_pb2.FetchRequest(replica=KEY))
    assert answer.error_code == common_pb2.MESSAGE_TOO_LARGE


# --- ports, health, reflection --------------------------------------------------------------------


async def test_a_port_in_use_is_an_error_that_names_it() -> None:
    async with serving(Node()) as server:
        with pytest.raises(PortInUseError, match=address_of(server)):
            await start_server([address_of(server)], Node())


async def test_a_port_that_another_program_uses_is_an_error_too() -> None:
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        with pytest.raises(PortInUseError):
            await start_server([f"{HOST}:{other.getsockname()[1]}"], Node())


@pytest.mark.parametrize("address", ["no-such-host.invalid:9093", "203.0.113.7:9093"])
async def test_an_address_that_is_not_ours_is_an_error(address: str) -> None:
    with pytest.raises(ListenError, match="cannot listen at") as refused:
        await start_server([address], Node())
    assert not isinstance(refused.value, PortInUseError)


async def test_a_server_listens_at_several_addresses() -> None:
    server = await start_server([f"{HOST}:0", f"{HOST}:0"], Node(), plaintext=[":0"])
    try:
        assert len(set(server.ports)) == 3
        for port in server.ports:
            async with grpc.aio.insecure_channel(f"{HOST}:{port}") as channel:
                stub = quorum_stub(channel)
                assert (await stub.NodeStatus(quorum_pb2.NodeStatusRequest())).formatted
    finally:
        await server.stop(0)


async def test_a_stopped_servers_port_is_free_at_once() -> None:
    async with serving(Node()) as server:
        port = server.ports[0]
    async with serving(Node(), port=port) as again:
        assert again.ports == (port,)


async def test_health_is_what_the_runtime_says() -> None:
    async with serving(Node()) as server, channel_to(server) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)

        async def status(service: str) -> int:
            request = health_pb2.HealthCheckRequest(service=service)
            return int((await stub.Check(request)).status)

        assert {await status(name) for name in SERVICES} == {2}, "NOT_SERVING at first"
        await server.set_serving(True, RAFT_SERVICE)
        assert await status(RAFT_SERVICE) == 1
        assert await status(QUORUM_SERVICE) == 2
        await server.set_serving(True)
        assert {await status(name) for name in SERVICES} == {1}


async def test_calls_wait_while_the_server_is_busy() -> None:
    """gRPC would end some with CANCELLED, which a client takes for an unknown outcome."""
    limits = ServerLimits(calls_per_second_max=0)
    calls = []
    async with serving(Node(), limits=limits) as server:
        # Without asyncio: these channels send while the event loop is blocked, as by a long step.
        channels = [
            grpc.insecure_channel(
                address_of(server), options=[("grpc.use_local_subchannel_pool", 1)]
            )
            for _ in range(WAITING_CALLS // CALLS_EACH)
        ]
        for channel in channels:
            vote: Any = channel.unary_unary(RPC_METHODS["Vote"].path)
            calls += [vote.future(VOTE.SerializeToString()) for _ in range(CALLS_EACH)]
        time.sleep(BUSY_S)  # noqa: ASYNC251
        async with asyncio.timeout(NO_HANG_S):
            codes = collections.Counter([await asyncio.to_thread(call.code) for call in calls])
        for channel in channels:
            channel.close()
    assert codes == {grpc.StatusCode.OK: WAITING_CALLS}


async def test_a_flood_of_pings_is_answered() -> None:
    """gRPC counts no strikes: each one beyond the limit costs more than the last."""
    pings = 2_000
    ping = http2.frame(http2.PING, 0, 0, b"12345678")
    answer = http2.frame(http2.PING, http2.ACK, 0, b"12345678")
    async with serving(Node()) as server:
        reader, writer = await asyncio.open_connection(HOST, server.ports[0])
        writer.write(http2.PREFACE + http2.settings() + ping * pings)
        received = b""
        while received.count(answer) < pings:
            chunk = await reader.read(65_536)
            assert chunk, "the connection was closed"
            received += chunk
        assert b"too_many_pings" not in received
        writer.close()


async def test_reflection_lists_the_services() -> None:
    async with serving(Node()) as server, channel_to(server) as channel:
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        answers = [answer async for answer in stub.ServerReflectionInfo(iter([request]))]
    names = {service.name for service in answers[0].list_services_response.service}
    assert {RAFT_SERVICE, QUORUM_SERVICE, "grpc.health.v1.Health"} <= names


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:9093", ("localhost", 9093)),
        ("[::1]:9093", ("::1", 9093)),
        (":9093", ("", 9093)),
        (" h:0 ", ("h", 0)),
    ],
)
def test_addresses_are_read(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["localhost", "::1:9093", "h:port", "h:70000", "h:-1", ""])
def test_what_is_no_address_is_misuse(text: str) -> None:
    with pytest.raises(MisuseError, match=r"host:port"):
        parse_address(text)


def test_addresses_are_written_with_brackets_where_they_need_them() -> None:
    assert format_address("::1", 9093) == "[::1]:9093"
    assert format_address("h", 1) == "h:1"


async def test_the_error_of_a_follower_is_the_handlers() -> None:
    node = Node(id=1, leader=CurrentLeader(5, 2))
    async with serving(node) as server, stubs(server) as (_, quorum):
        answer = await quorum.AddVoter(quorum_pb2.AddVoterRequest(voter=KEY))
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answer.current_leader.id == 2
