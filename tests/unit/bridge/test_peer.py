"""Calls to peers over Kafka's protocol: connections, failures, and what goes over gRPC instead."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from quorate.bridge.listener.server import api_versions
from quorate.bridge.messages import schemas as s
from quorate.bridge.peers.peer import KafkaFetchStream, KafkaPeers
from quorate.bridge.requests.raft_requests import write_response
from quorate.bridge.requests.replication import PEER_CLIENT_ID, respond
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.features import KRAFT_VERSION, VersionRange
from quorate.metadata.requests import FeatureDescription
from quorate.raft import messages as m
from quorate.raft.errors import MisuseError, ViolationError
from quorate.raft.types import ReplicaKey, Voter, VoterSet
from quorate.rpc.client.transport import FetchStream, PeerTransport
from quorate.rpc.errors import TransportError, TransportKind
from quorate.rpc.wire.values import ChecksumLogRequest

from tests.processes import HOST, free_ports
from tests.unit.bridge.client_frames import read_frame, write_frame
from tests.unit.bridge.test_raft_requests import BEGIN, CLUSTER, FETCH, LEADER, LISTENER, ONE, VOTE

GRANTED = m.VoteResponse(ErrorCode.NONE, m.CurrentLeader(7), granted=True)
SOON_MS = 5_000
Answer = Callable[[s.Call], Any]


def answers(call: s.Call) -> Any:
    if call.api_key == s.FETCH:
        return respond(call, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return write_response(call, GRANTED, LISTENER)


class Peer:
    """A node that answers each request by a function. open_count: connections so far."""

    def __init__(self, answer: Answer, *, serves_voters: bool = True) -> None:
        self.answer = answer
        self.serves_voters = serves_voters
        self.features: tuple[FeatureDescription, ...] = ()
        self.open_count = 0
        self.clients: set[str] = set()
        self.writers: list[asyncio.StreamWriter] = []
        self.received = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open_count += 1
        self.writers.append(writer)
        while (frame := await read_frame(reader)) is not None:
            call = s.read_call(frame)
            self.clients.add(call.client_id)
            if call.api_key == s.API_VERSIONS:
                body = api_versions(call, self.features, serves_voters=self.serves_voters)
            else:
                self.received.set()
                body = self.answer(call)
            if body is None:
                continue  # never
            write_frame(writer, s.write_response(call.correlation_id, body))

    def hang_up(self) -> None:
        for writer in self.writers:
            writer.close()


@asynccontextmanager
async def peer(
    answer: Answer = answers, *, serves_voters: bool = True
) -> AsyncIterator[tuple[Peer, Endpoint]]:
    made = Peer(answer, serves_voters=serves_voters)
    server = await asyncio.start_server(made.serve, HOST, 0)
    try:
        yield made, Endpoint(LISTENER, HOST, server.sockets[0].getsockname()[1])
    finally:
        made.hang_up()
        server.close()


@asynccontextmanager
async def peers(*voters: Voter, connect_timeout_ms: int = SOON_MS) -> AsyncIterator[KafkaPeers]:
    made = KafkaPeers(
        PeerTransport(CLUSTER),
        listener=LISTENER,
        tls=None,
        voters=lambda: VoterSet(voters),
        connect_timeout_ms=connect_timeout_ms,
    )
    try:
        yield made
    finally:
        await made.close()


def nobody(name: str = LISTENER) -> Endpoint:
    (port,) = free_ports(1)
    return Endpoint(name, HOST, port)


async def test_calls_one_after_the_other_share_a_connection() -> None:
    async with peer() as (node, endpoint), peers() as transport:
        for _ in range(3):
            assert await transport.call(endpoint, VOTE, SOON_MS) == GRANTED
        assert node.open_count == 1
        assert node.clients == {PEER_CLIENT_ID}
        await asyncio.gather(*(transport.call(endpoint, VOTE, SOON_MS) for _ in range(3)))
        assert node.open_count == 3, "a server answers the requests of a connection in order"


async def test_a_voter_is_dialled_on_its_listener_for_kafkas_protocol() -> None:
    async with peer() as (node, endpoint):
        grpc = nobody("CONTROLLER")
        async with peers(Voter(ONE, (grpc, endpoint))) as transport:
            assert await transport.call(grpc, VOTE, SOON_MS) == GRANTED
            stream = await transport.open_fetch_stream(grpc, lambda _reason: None)
            assert not isinstance(stream, FetchStream)
            response = await stream.fetch(FETCH)
            assert response.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert node.open_count == 2


async def test_a_peer_whose_listener_is_not_open_yet_is_called_over_grpc() -> None:
    grpc, closed = nobody("CONTROLLER"), nobody()
    async with peers(Voter(ONE, (grpc, closed))) as transport:
        with pytest.raises(TransportError) as refused:
            await transport.call(grpc, VOTE, SOON_MS)
        assert refused.value.address == f"{grpc.host}:{grpc.port}"
        stream = await transport.open_fetch_stream(grpc, lambda _reason: None)
        assert not isinstance(stream, KafkaFetchStream)
        await stream.close()


async def test_a_peer_that_serves_no_voters_there_is_called_over_grpc() -> None:
    async with peer(serves_voters=False) as (_, endpoint):
        grpc = nobody("CONTROLLER")
        async with peers(Voter(ONE, (grpc, endpoint))) as transport:
            with pytest.raises(TransportError) as refused:
                await transport.call(grpc, VOTE, SOON_MS)
            assert (refused.value.kind, refused.value.address) == (
                TransportKind.REFUSED,
                f"{grpc.host}:{grpc.port}",
            )
            with pytest.raises(TransportError) as rejected:
                await transport.call(endpoint, VOTE, SOON_MS)
            assert rejected.value.kind is TransportKind.NOT_SERVED
            with pytest.raises(TransportError):
                await transport.open_fetch_stream(endpoint, lambda _reason: None)


async def test_failures_are_those_of_the_other_transport() -> None:
    async with peers() as transport:
        with pytest.raises(TransportError) as error:
            await transport.call(nobody(), VOTE, SOON_MS)
        assert error.value.kind is TransportKind.REFUSED
        assert error.value.refused
        with pytest.raises(TransportError) as error:
            await transport.call(Endpoint(LISTENER, "no.such.host.invalid", 9), VOTE, SOON_MS)
        assert error.value.kind is TransportKind.UNREACHABLE
        async with peer() as (_, endpoint):
            request: Any = m.DescribeQuorumRequest(CLUSTER)
            with pytest.raises(MisuseError):
                await transport.call(endpoint, request, SOON_MS)


async def test_a_slow_peer_is_a_timeout_and_its_connection_is_not_used_again() -> None:
    async with peer(lambda _call: None) as (node, endpoint), peers() as transport:
        with pytest.raises(TransportError) as error:
            await transport.call(endpoint, VOTE, 200)
        assert error.value.kind is TransportKind.TIMEOUT
        node.answer = answers
        assert await transport.call(endpoint, VOTE, SOON_MS) == GRANTED
        assert node.open_count == 2


async def test_a_peer_that_accepts_but_says_nothing_is_unreachable() -> None:
    server = await asyncio.start_server(lambda _reader, _writer: None, HOST, 0)
    endpoint = Endpoint(LISTENER, HOST, server.sockets[0].getsockname()[1])
    async with peers(connect_timeout_ms=200) as transport:
        with pytest.raises(TransportError) as error:
            await transport.call(endpoint, VOTE, SOON_MS)
        assert error.value.kind is TransportKind.UNREACHABLE
    server.close()


async def test_a_connection_that_broke_while_idle_is_replaced() -> None:
    async with peer() as (node, endpoint), peers() as transport:
        assert await transport.call(endpoint, VOTE, SOON_MS) == GRANTED
        node.hang_up()
        await asyncio.sleep(0.1)
        assert await transport.call(endpoint, VOTE, SOON_MS) == GRANTED


@pytest.mark.parametrize("is_parked", [True, False])
async def test_a_leader_that_goes_away_is_noticed_at_once(is_parked: bool) -> None:
    reasons: list[str] = []
    async with peer(lambda _call: None) as (node, endpoint), peers() as transport:
        stream = await transport.open_fetch_stream(endpoint, reasons.append)
        fetch = None
        if is_parked:
            fetch = asyncio.create_task(stream.fetch(FETCH))
            await node.received.wait()
        node.hang_up()
        async with asyncio.timeout(SOON_MS / 1000):
            while not reasons:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert not stream.is_open
        if fetch is not None:
            with pytest.raises(TransportError) as error:
                await fetch
            assert error.value.refused
        await stream.close()
        await asyncio.sleep(0.05)
        assert len(reasons) == 1


async def test_a_fetch_that_is_given_up_ends_its_stream() -> None:
    reasons: list[str] = []
    async with peer(lambda _call: None) as (node, endpoint), peers() as transport:
        stream = await transport.open_fetch_stream(endpoint, reasons.append)
        fetch = asyncio.create_task(stream.fetch(FETCH))
        await node.received.wait()
        with pytest.raises(MisuseError):
            await stream.fetch(FETCH)
        fetch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetch
        assert not stream.is_open
        with pytest.raises(TransportError):
            await stream.fetch(FETCH)
        timed_out = await transport.open_fetch_stream(endpoint, reasons.append)
        with pytest.raises(TransportError) as error:
            await timed_out.fetch(FETCH, 100)
        assert error.value.kind is TransportKind.TIMEOUT
        assert not timed_out.is_open
        assert reasons == []


async def test_a_response_that_kafka_never_sends_is_a_violation() -> None:
    def answer(call: s.Call) -> Any:
        module = s.response_module(call.api_key, call.version)
        return s.answer(module, error_code=s.error_field(ErrorCode.NONE), topics=())

    async with peer(answer) as (_, endpoint), peers() as transport:
        with pytest.raises(ViolationError):
            await transport.call(endpoint, BEGIN, SOON_MS)


async def test_what_kafkas_protocol_lacks_is_not_sent() -> None:
    async with peers() as transport:
        key = ReplicaKey(2, "B" * 21 + "A")
        with pytest.raises(TransportError) as error:
            await transport.checksum_log(
                nobody(), ChecksumLogRequest(CLUSTER, ONE, key, 0, 1), SOON_MS
            )
        assert error.value.kind is TransportKind.NOT_SERVED
        assert LEADER.id != key.id


async def test_a_probe_finds_the_levels_that_a_peer_supports_and_no_name() -> None:
    async with peer() as (node, endpoint), peers() as transport:
        levels = VersionRange(0, 1)
        for features, found in (((), VersionRange(0, 0)), (((KRAFT_VERSION, levels),), levels)):
            node.features = tuple(FeatureDescription(*each, 1) for each in features)
            probe = await transport.call(endpoint, m.ApiVersionsRequest(CLUSTER), SOON_MS)
            assert probe == m.ApiVersionsResponse(ErrorCode.NONE, None, found)
        with pytest.raises(TransportError) as error:
            await transport.call(nobody(), m.ApiVersionsRequest(CLUSTER), SOON_MS)
        assert error.value.kind is TransportKind.REFUSED


async def test_a_probe_of_a_listener_for_brokers_fails() -> None:
    async with peer(serves_voters=False) as (_, endpoint), peers() as transport:
        with pytest.raises(TransportError) as error:
            await transport.call(endpoint, m.ApiVersionsRequest(CLUSTER), SOON_MS)
        assert error.value.kind is TransportKind.NOT_SERVED
