"""Calls between replicas, the stream to the leader, and how soon a dead peer is noticed."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.raft.errors import MisuseError
from quorate.raft.messages import (
    AddVoterRequest,
    AdminResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    DescribeQuorumRequest,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchResponse,
    FetchSnapshotResponse,
    RemoveVoterRequest,
    UpdateVoterRequest,
    VoteRequest,
    VoteResponse,
)
from quorate.raft.types import OffsetAndEpoch, Voter, VoterSet
from quorate.rpc.client.transport import FetchStream, PeerTransport, TransportError, TransportKind
from quorate.rpc.wire.limits import ChannelLimits, ServerLimits

from tests.processes import free_ports
from tests.unit.rpc.rpc_process import running
from tests.unit.rpc.rpc_support import (
    CLUSTER,
    HOST,
    KEEPALIVE_S,
    KEY,
    NO_HANG_S,
    Node,
    Unformatted,
    endpoint_of,
    fetch_request,
    serving,
    snapshot_request,
)

VOTE = VoteRequest(CLUSTER, 4, KEY, KEY, 0, 0, pre_vote=True)

SLOW_MS = 20_000
"""For calls that succeed, and the connection before them, on a busy machine too."""
LIMITS = ChannelLimits(connect_timeout_ms=SLOW_MS)


@pytest.fixture
async def transport() -> AsyncIterator[PeerTransport]:
    transport = PeerTransport(CLUSTER, limits=LIMITS)
    yield transport
    await transport.close()


def nobody() -> Endpoint:
    """An endpoint that refuses connections."""
    return Endpoint("CONTROLLER", HOST, free_ports(1)[0])


@pytest.mark.parametrize(
    ("request_", "response"),
    [
        (VOTE, VoteResponse),
        (BeginQuorumEpochRequest(CLUSTER, 3, KEY, (), KEY), BeginQuorumEpochResponse),
        (EndQuorumEpochRequest(CLUSTER, 3, KEY, (KEY,)), EndQuorumEpochResponse),
        (fetch_request(max_wait_ms=0, max_bytes=1_000), FetchResponse),
        (snapshot_request(), FetchSnapshotResponse),
        (UpdateVoterRequest(CLUSTER, 3, Voter(KEY)), AdminResponse),
        (ApiVersionsRequest(CLUSTER), ApiVersionsResponse),
        (AddVoterRequest(CLUSTER, KEY, ()), AdminResponse),
        (RemoveVoterRequest(CLUSTER, KEY), AdminResponse),
    ],
    ids=lambda value: type(value).__name__ if dataclasses.is_dataclass(value) else "",
)
async def test_a_request_is_answered_with_its_response(
    transport: PeerTransport, request_: Any, response: type
) -> None:
    node = Node(voters=VoterSet((Voter(KEY),)), snapshot=b"bytes")
    async with serving(node) as server:
        answer = await transport.call(endpoint_of(server), request_, SLOW_MS)
    assert isinstance(answer, response)
    assert node.asked == [request_]


async def test_a_fetch_outside_of_a_stream_gets_no_more_than_64_kib(
    transport: PeerTransport,
) -> None:
    node = Node(voters=VoterSet((Voter(KEY),)))
    async with serving(node) as server:
        await transport.call(endpoint_of(server), fetch_request(max_wait_ms=0), SLOW_MS)
    assert node.asked == [fetch_request(max_wait_ms=0, max_bytes=64 * 1024)]


async def test_what_peers_do_not_say_to_each_other_is_misuse(transport: PeerTransport) -> None:
    wrong: Any = DescribeQuorumRequest(CLUSTER)
    with pytest.raises(MisuseError, match="DescribeQuorumRequest"):
        await transport.call(nobody(), wrong, 100)


async def test_a_snapshot_range_is_put_together(transport: PeerTransport) -> None:
    snapshot = bytes(range(256)) * 20_000
    async with serving(Node(snapshot=snapshot)) as server:
        request = snapshot_request(1_000, 3 << 20)
        answer = await transport.call(endpoint_of(server), request, SLOW_MS)
    assert isinstance(answer, FetchSnapshotResponse)
    assert answer.data == snapshot[1_000 : 1_000 + (3 << 20)]
    assert (answer.position, answer.size) == (1_000, len(snapshot))
    assert answer.snapshot == OffsetAndEpoch(10, 2)


# --- failures -------------------------------------------------------------------------------------


async def test_a_refused_connection_is_known_at_once(transport: PeerTransport) -> None:
    started = time.monotonic()
    with pytest.raises(TransportError) as failed:
        await transport.call(nobody(), VOTE, 5_000)
    assert time.monotonic() - started < NO_HANG_S
    assert failed.value.kind is TransportKind.REFUSED
    assert failed.value.refused
    assert failed.value.nothing_done


async def test_a_name_without_address_is_unreachable(transport: PeerTransport) -> None:
    with pytest.raises(TransportError) as failed:
        await transport.call(Endpoint("C", "no-such-host.invalid", 9093), VOTE, 3_000)
    assert failed.value.kind in (TransportKind.UNREACHABLE, TransportKind.TIMEOUT)
    assert not failed.value.refused


async def test_a_slow_peer_is_a_timeout(transport: PeerTransport) -> None:
    node = Node()
    async with serving(node) as server:
        await transport.call(endpoint_of(server), VOTE, SLOW_MS)  # connects
        node.delay_s = 2
        with pytest.raises(TransportError) as failed:
            await transport.call(endpoint_of(server), VOTE, 100)
    assert failed.value.kind is TransportKind.TIMEOUT
    assert not failed.value.refused
    assert not failed.value.nothing_done


async def test_an_unformatted_peer_does_not_serve(transport: PeerTransport) -> None:
    async with serving(Unformatted()) as server:
        with pytest.raises(TransportError, match="not formatted") as failed:
            await transport.call(endpoint_of(server), VOTE, SLOW_MS)
    assert failed.value.kind is TransportKind.NOT_SERVED
    assert failed.value.nothing_done


async def test_a_peer_that_serves_enough_already_says_so(transport: PeerTransport) -> None:
    limits = ServerLimits(concurrent_rpcs_max=1)
    async with serving(Node(delay_s=0.3), limits=limits) as server:
        calls = [transport.call(endpoint_of(server), VOTE, 2_000) for _ in range(3)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
    failed = [answer for answer in answers if isinstance(answer, TransportError)]
    assert {error.kind for error in failed} == {TransportKind.OVERLOADED}


async def test_a_successor_at_the_same_address_is_found_soon(transport: PeerTransport) -> None:
    """The backoff after refused connections is short: a restarted process is back in a second."""
    endpoint = nobody()
    for _ in range(20):
        with pytest.raises(TransportError):
            await transport.call(endpoint, VOTE, 500)
        await asyncio.sleep(0.05)
    async with serving(Node(), port=endpoint.port):
        started = time.monotonic()
        while True:
            try:
                await transport.call(endpoint, VOTE, 500)
                break
            except TransportError:
                await asyncio.sleep(0.02)
        assert time.monotonic() - started < NO_HANG_S


# --- channels -------------------------------------------------------------------------------------


async def test_a_channel_that_nobody_uses_is_closed_and_dialled_again() -> None:
    transport = PeerTransport(CLUSTER, limits=dataclasses.replace(LIMITS, channel_idle_ms=100))
    async with serving(Node()) as server:
        endpoint = endpoint_of(server)
        stream = await transport.open_fetch_stream(endpoint, lambda _: None)
        await stream.fetch(fetch_request(max_wait_ms=0))
        await asyncio.sleep(0.3)
        assert len(transport.addresses) == 1, "in use by the stream"
        await stream.close()
        await asyncio.sleep(0.3)
        assert transport.addresses == []
        assert isinstance(await transport.call(endpoint, VOTE, SLOW_MS), VoteResponse)
        await transport.close()


async def test_calls_to_one_address_share_a_channel(transport: PeerTransport) -> None:
    async with serving(Node()) as server:
        endpoint = endpoint_of(server)
        await asyncio.gather(*(transport.call(endpoint, VOTE, SLOW_MS) for _ in range(5)))
        assert transport.addresses == [f"{HOST}:{endpoint.port}"]


# --- the stream to the leader ---------------------------------------------------------------------


class Broken:
    """Collects what on_broken says, and when."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.at = 0.0
        self.happened = asyncio.Event()

    def __call__(self, reason: str) -> None:
        self.reasons.append(reason)
        self.at = time.monotonic()
        self.happened.set()


async def open_stream(transport: PeerTransport, endpoint: Endpoint) -> tuple[FetchStream, Broken]:
    broken = Broken()
    return await transport.open_fetch_stream(endpoint, broken), broken


async def test_a_stream_carries_one_fetch_after_the_other(transport: PeerTransport) -> None:
    node = Node()
    node.store([(b"", b"one"), (b"", b"two")])
    async with serving(node) as server:
        stream, broken = await open_stream(transport, endpoint_of(server))
        for _ in range(3):
            answer = await stream.fetch(fetch_request())
            assert [bytes(batch.data) for batch in answer.batches] == [node.batches[0]]  # type: ignore[call-overload]
        assert (await stream.fetch(fetch_request(2, max_wait_ms=10))).batches == ()
        await stream.close()
        await asyncio.sleep(0.05)
    assert broken.reasons == [], "its own close is no news"
    with pytest.raises(TransportError, match="closed"):
        await stream.fetch(fetch_request())


async def test_two_fetches_at_once_on_a_stream_are_misuse(transport: PeerTransport) -> None:
    async with serving(Node()) as server:
        stream, _ = await open_stream(transport, endpoint_of(server))
        first = asyncio.create_task(stream.fetch(fetch_request(max_wait_ms=200)))
        await asyncio.sleep(0.05)
        with pytest.raises(MisuseError):
            await stream.fetch(fetch_request())
        assert (await first).error is ErrorCode.NONE


async def test_closing_a_stream_ends_the_fetch_under_way(transport: PeerTransport) -> None:
    async with serving(Node()) as server:
        stream, broken = await open_stream(transport, endpoint_of(server))
        fetch = asyncio.create_task(stream.fetch(fetch_request(max_wait_ms=5_000)))
        await asyncio.sleep(0.05)
        await stream.close()
        with pytest.raises(TransportError, match="closed"):
            await fetch
    assert broken.reasons == []


@pytest.mark.parametrize("turns", range(6))
async def test_a_fetch_ends_with_its_stream_however_soon(
    transport: PeerTransport, turns: int
) -> None:
    """gRPC lets a write wait for ever whose call ends before it has begun."""
    async with serving(Node()) as server:
        stream, broken = await open_stream(transport, endpoint_of(server))
        fetch = asyncio.create_task(stream.fetch(fetch_request(max_wait_ms=5_000)))
        for _ in range(turns):
            await asyncio.sleep(0)
        await stream.close()
        with pytest.raises(TransportError, match="closed"):
            await fetch
    assert broken.reasons == []


async def test_a_fetch_that_is_given_up_ends_its_stream(transport: PeerTransport) -> None:
    """Its answer would be taken for that to the next request."""
    async with serving(Node()) as server:
        stream, broken = await open_stream(transport, endpoint_of(server))
        with pytest.raises(TransportError) as failed:
            await stream.fetch(fetch_request(max_wait_ms=5_000), 50)
        assert failed.value.kind is TransportKind.TIMEOUT
        assert not stream.is_open

        stream, broken = await open_stream(transport, endpoint_of(server))
        fetch = asyncio.create_task(stream.fetch(fetch_request(max_wait_ms=5_000)))
        await asyncio.sleep(0.05)
        fetch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetch
        assert not stream.is_open
    assert broken.reasons == []


async def test_a_stream_to_nobody_is_broken(transport: PeerTransport) -> None:
    stream, broken = await open_stream(transport, nobody())
    with pytest.raises(TransportError) as failed:
        await stream.fetch(fetch_request())
    assert failed.value.refused
    await asyncio.wait_for(broken.happened.wait(), NO_HANG_S)
    assert len(broken.reasons) == 1


async def test_a_server_that_stops_breaks_the_stream(transport: PeerTransport) -> None:
    async with serving(Node()) as server:
        stream, broken = await open_stream(transport, endpoint_of(server))
        await stream.fetch(fetch_request(max_wait_ms=0))
    await asyncio.wait_for(broken.happened.wait(), NO_HANG_S)
    assert len(broken.reasons) == 1


@pytest.mark.parametrize("is_parked", [False, True], ids=["between fetches", "with a fetch parked"])
async def test_a_killed_leader_is_noticed_within_milliseconds(
    transport: PeerTransport, is_parked: bool
) -> None:
    async with running() as (process, port):
        stream, broken = await open_stream(transport, Endpoint("CONTROLLER", HOST, port))
        await stream.fetch(fetch_request(max_wait_ms=0))
        fetch = None
        if is_parked:
            fetch = asyncio.create_task(stream.fetch(fetch_request(max_wait_ms=60_000)))
            await asyncio.sleep(0.1)
        process.kill()
        await process.wait()
        dead = time.monotonic()
        await asyncio.wait_for(broken.happened.wait(), NO_HANG_S)
        assert broken.at - dead < KEEPALIVE_S
        assert len(broken.reasons) == 1
        if fetch is not None:
            with pytest.raises(TransportError) as failed:
                await fetch
            assert failed.value.refused
        assert not stream.is_open
