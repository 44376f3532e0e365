"""The client library against real servers: the leader, what is repeated and what never is."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.raft.errors import MisuseError, ViolationError
from quorate.raft.messages import AdminResponse, CurrentLeader
from quorate.raft.types import ReplicaKey, Voter, VoterSet
from quorate.rpc.client import appending
from quorate.rpc.client.channels import Channels
from quorate.rpc.client.quorum_client import (
    AdminError,
    ClientError,
    NoLeaderError,
    OutcomeUnknownError,
    QuorumClient,
    UnreachableError,
)
from quorate.rpc.client.routing import Address, LeaderSearch, Route
from quorate.rpc.errors import TransportError
from quorate.rpc.wire.limits import BATCH_BYTES_MAX, ChannelLimits
from quorate.rpc.wire.values import (
    AppendOutcome,
    AppendResult,
    FormatMode,
    FormatRequest,
    OpaqueRecord,
    UpgradeType,
)
from quorate.v1 import quorum_pb2

from tests.processes import free_ports
from tests.unit.rpc.rpc_process import begun, running
from tests.unit.rpc.rpc_support import (
    CLUSTER,
    DIRECTORY,
    HOST,
    KEEPALIVE_S,
    KEY,
    NO_HANG_S,
    Node,
    Pair,
    Unformatted,
    address_of,
    serving,
)

VOTER = ReplicaKey(7, "AAAAAAAAAAAAAAAAAAAABw")
ENDPOINTS = (Endpoint("CONTROLLER", "seven", 9093),)
READY = grpc.ChannelConnectivity.READY


def unused_address() -> str:
    return f"{HOST}:{free_ports(1)[0]}"


# --- the leader -----------------------------------------------------------------------------------


async def test_a_follower_names_the_leader_and_the_client_goes_there(pair: Pair) -> None:
    async with QuorumClient(pair.addresses[:1]) as client:
        await client.add_voter(VOTER, ENDPOINTS)
        assert pair.nodes[1].voters.get(7) == Voter(VOTER, ENDPOINTS)
        asked = len(pair.nodes[0].asked)
        await client.remove_voter(VOTER)
        assert len(pair.nodes[0].asked) == asked, "the leader is remembered"
        assert pair.nodes[1].voters == VoterSet()


async def test_a_new_leader_is_followed(pair: Pair) -> None:
    async with QuorumClient(pair.addresses) as client:
        await client.append_value(b"one")
        pair.lead(0, 4)
        await client.append_value(b"two")
        assert [len(node.appended) for node in pair.nodes] == [1, 1]


async def test_the_client_waits_for_an_election(pair: Pair) -> None:
    pair.lead(None, 4)
    async with QuorumClient(pair.addresses) as client:
        started = time.monotonic()
        asyncio.get_running_loop().call_later(0.3, pair.lead, 0, 5)
        await client.append_value(b"value")
        assert 0.25 < time.monotonic() - started < NO_HANG_S


async def test_without_a_leader_the_client_says_what_the_nodes_say(pair: Pair) -> None:
    async with QuorumClient(pair.addresses, request_timeout_ms=2_000) as client:
        await client.describe_features()  # connects to both
        pair.lead(None, 4)
        errors = await asyncio.gather(
            client.append_value(b"value"),
            client.add_voter(VOTER, ENDPOINTS),
            anext(client.read()),
            return_exceptions=True,
        )
    assert [type(error) for error in errors] == [NoLeaderError] * 3
    assert isinstance(errors[0], NoLeaderError)
    assert "reports no leader for epoch 4" in str(errors[0])
    assert set(errors[0].attempts) == set(pair.addresses)


async def test_a_dead_leader_is_passed_over_for_the_one_that_others_name(pair: Pair) -> None:
    dead = unused_address()
    async with QuorumClient([dead, *pair.addresses]) as client:
        await client.append_value(b"value")
        assert len(pair.nodes[1].appended) == 1


async def test_where_nobody_answers_the_client_lists_whom_it_asked() -> None:
    addresses = [unused_address(), unused_address()]
    async with QuorumClient(addresses, request_timeout_ms=300) as client:
        for attempt in (
            client.append_value(b"value"),
            client.describe_quorum(),
            client.describe_features(),
            client.node_status(addresses[0]),
        ):
            with pytest.raises(UnreachableError, match="refused") as failed:
                await attempt
            assert set(failed.value.attempts) <= set(addresses)


def test_a_client_needs_an_address() -> None:
    with pytest.raises(MisuseError):
        QuorumClient([])


# --- administration -------------------------------------------------------------------------------


async def test_the_leaders_view_is_preferred(pair: Pair) -> None:
    pair.nodes[1].voters = VoterSet((Voter(VOTER, ENDPOINTS),))
    async with QuorumClient(pair.addresses[:1]) as client:
        view = await client.describe_quorum()
    assert view.is_leaders_view
    assert view.answered_by == pair.addresses[1]
    assert view.cluster_id == CLUSTER
    assert view.response.voter_set == pair.nodes[1].voters


async def test_without_a_leader_the_view_of_the_node_with_the_highest_epoch_is_given(
    pair: Pair,
) -> None:
    pair.nodes[0].leader, pair.nodes[1].leader = CurrentLeader(6), CurrentLeader(5)
    async with QuorumClient([*pair.addresses, unused_address()]) as client:
        started = time.monotonic()
        view = await client.describe_quorum()
        assert time.monotonic() - started < NO_HANG_S
    assert not view.is_leaders_view
    assert view.response.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (view.answered_by, view.response.leader.epoch) == (pair.addresses[0], 6)


async def test_a_node_that_hangs_does_not_hang_the_description(pair: Pair) -> None:
    pair.nodes[1].delay_s = 60
    async with QuorumClient(pair.addresses) as client:
        started = time.monotonic()
        view = await client.describe_quorum()
        assert time.monotonic() - started < NO_HANG_S
    assert view.answered_by == pair.addresses[0]
    assert view.response.leader.id == 2


async def test_a_refusal_is_an_error_with_its_code(pair: Pair) -> None:
    async with QuorumClient(pair.addresses) as client:
        with pytest.raises(AdminError, match="VOTER_NOT_FOUND: no voter") as failed:
            await client.remove_voter(VOTER)
        assert failed.value.code is ErrorCode.VOTER_NOT_FOUND
        await client.add_voter(VOTER, ENDPOINTS)
        with pytest.raises(AdminError, match="DUPLICATE_VOTER"):
            await client.add_voter(VOTER, ENDPOINTS)


async def test_a_change_whose_answer_was_lost_is_repeated_and_found_done(pair: Pair) -> None:
    """The first leader resigns while it is at it; its successor has the voter already."""
    first, second = pair.nodes
    pair.lead(0, 3)
    handle = first.handle

    async def resigning(request: Any) -> Any:
        pair.lead(1, 4)
        await second.handle(request)
        text = "the leader of epoch 3 resigned while committing"
        return AdminResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, first.leader, text)

    first.handle = resigning  # type: ignore[method-assign]
    async with QuorumClient(pair.addresses) as client:
        await client.add_voter(VOTER, ENDPOINTS)
        assert VOTER in second.voters
        first.handle = handle  # type: ignore[method-assign]
        with pytest.raises(AdminError, match="DUPLICATE_VOTER"):
            await client.add_voter(VOTER, ENDPOINTS)


async def test_a_change_without_answer_in_time_says_that_it_may_be_done(pair: Pair) -> None:
    pair.nodes[1].delay_s = 60
    async with QuorumClient(pair.addresses, request_timeout_ms=1_000) as client:
        with pytest.raises(AdminError, match="may still succeed") as failed:
            await client.transfer_leadership(VOTER)
    assert failed.value.code is ErrorCode.REQUEST_TIMED_OUT


async def test_features_are_described_and_updated(pair: Pair) -> None:
    async with QuorumClient(pair.addresses) as client:
        answer = await client.describe_features()
        assert [(f.name, f.finalized_level) for f in answer.features] == [("kraft.version", 1)]
        await client.update_features("kraft.version", 1, upgrade_type=UpgradeType.UPGRADE)
        with pytest.raises(AdminError, match="0 to 1") as failed:
            await client.update_features("kraft.version", 2, validate_only=True)
        assert failed.value.code is ErrorCode.INVALID_UPDATE_VERSION


async def test_a_node_is_asked_for_its_status_and_formatted() -> None:
    request = FormatRequest(CLUSTER, FormatMode.STANDALONE)
    async with (
        serving(Unformatted()) as empty,
        serving(Node()) as full,
        QuorumClient([address_of(full)]) as client,
    ):
        assert not (await client.node_status(address_of(empty))).formatted
        formatted = await client.format_node(address_of(empty), request)
        assert (formatted.cluster_id, formatted.directory_id) == (CLUSTER, DIRECTORY)
        with pytest.raises(AdminError, match="formatted already"):
            await client.format_node(address_of(full), request)
        with pytest.raises(UnreachableError):
            await client.format_node(unused_address(), request)


async def append_until_known(client: QuorumClient) -> None:
    """Append once more if gRPC lost the status of a stream that ended during a write."""
    for _ in range(5):
        with contextlib.suppress(OutcomeUnknownError):
            await client.append_value(b"value")


async def test_an_unformatted_node_is_passed_over(pair: Pair) -> None:
    async with serving(Unformatted()) as empty:
        async with QuorumClient([address_of(empty), *pair.addresses]) as client:
            assert (await client.describe_quorum()).is_leaders_view
            await client.append_value(b"value")
        async with QuorumClient([address_of(empty)], request_timeout_ms=2_000) as client:
            with pytest.raises(NoLeaderError, match="not formatted"):
                await append_until_known(client)


# --- appends --------------------------------------------------------------------------------------


async def test_a_batch_is_one_message_and_its_result_says_where_it_begins(pair: Pair) -> None:
    records: list[OpaqueRecord] = [(b"k", b"1"), (None, b"\x01\x0c\x00"), (b"", b"")]
    async with QuorumClient(pair.addresses) as client:
        assert await client.append(records) == AppendResult(0, 3)
        assert await client.append(records[:1]) == AppendResult(3, 3)
        with pytest.raises(MisuseError):
            await client.append([])
    assert pair.nodes[1].appended == [records, records[:1]]


async def test_callers_at_once_travel_together_and_each_gets_its_offset(pair: Pair) -> None:
    leader = pair.nodes[1]
    leader.delay_s = 0.01
    async with QuorumClient(pair.addresses) as client:

        async def caller(number: int) -> list[tuple[int, bytes]]:
            done = []
            for turn in range(5):
                value = b"%d of %d" % (turn, number)
                done.append((await client.append_value(value), value))
            return done

        results = await asyncio.gather(*(caller(number) for number in range(64)))
    pairs = sorted(pair for result in results for pair in result)
    written = [value for batch in leader.appended for _, value in batch]
    assert pairs == list(enumerate(written)), "each offset is that of its caller's value"
    assert len(written) == 320
    assert len(leader.appended) <= 15, "at least as many in a message as there are callers, nearly"
    assert leader.most_under_way <= appending.MESSAGES_IN_FLIGHT_MAX
    assert all(key == b"" for batch in leader.appended for key, _ in batch), "opaque"


async def test_a_message_of_values_is_bounded(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appending, "MESSAGE_BYTES_MAX", 1_000)
    monkeypatch.setattr(appending, "MESSAGE_RECORDS_MAX", 10)
    async with QuorumClient(pair.addresses) as client:
        await asyncio.gather(*(client.append_value(bytes(10)) for _ in range(50)))
        await asyncio.gather(*(client.append_value(bytes(400)) for _ in range(10)))
        await client.append_value(bytes(5_000))
    sizes = [len(batch) for batch in pair.nodes[1].appended]
    assert max(sizes) == 10
    assert sizes[-6:] == [2, 2, 2, 2, 2, 1]


async def test_more_waiting_values_than_fit_hold_up_their_callers(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appending, "WAITING_BYTES_MAX", 500)
    monkeypatch.setattr(appending, "MESSAGE_BYTES_MAX", 200)
    async with QuorumClient(pair.addresses) as client:
        offsets = await asyncio.gather(*(client.append_value(bytes(100)) for _ in range(100)))
    assert sorted(offsets) == list(range(100))


async def test_a_value_over_the_limit_is_refused_and_harms_no_other(pair: Pair) -> None:
    async with QuorumClient(pair.addresses) as client:
        big = client.append_value(bytes(BATCH_BYTES_MAX))
        results = await asyncio.gather(big, client.append_value(b"small"), return_exceptions=True)
        assert isinstance(results[0], AdminError)
        assert results[0].code is ErrorCode.MESSAGE_TOO_LARGE
        assert str(BATCH_BYTES_MAX) in results[0].message
        assert results[1] == 0
        with pytest.raises(AdminError, match="MESSAGE_TOO_LARGE"):
            await client.append([(b"", bytes(BATCH_BYTES_MAX))])
        assert await client.append_value(bytes(BATCH_BYTES_MAX - 100)) == 1


async def test_a_caller_that_gives_up_harms_no_other(pair: Pair) -> None:
    pair.nodes[1].delay_s = 0.1
    async with QuorumClient(pair.addresses) as client:
        gone = asyncio.create_task(client.append_value(b"gone"))
        stays = asyncio.create_task(client.append_value(b"stays"))
        batch = asyncio.create_task(client.append([(b"", b"batch")]))
        await asyncio.sleep(0.05)
        gone.cancel()
        batch.cancel()
        offset = await stays
        await asyncio.sleep(0.1)
        written = [value for batch in pair.nodes[1].appended for _, value in batch]
        assert written[offset] == b"stays"
        assert sorted(written) == [b"batch", b"gone", b"stays"], "what was sent is not called back"


@pytest.mark.parametrize(
    "error",
    [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.FENCED_LEADER_EPOCH],
    ids=lambda error: error.name,
)
async def test_an_append_that_may_have_been_done_is_not_repeated(
    pair: Pair, error: ErrorCode
) -> None:
    pair.nodes[1].append_error = error
    async with QuorumClient(pair.addresses) as client:
        values = [client.append_value(b"value") for _ in range(3)]
        results = await asyncio.gather(*values, return_exceptions=True)
    assert [type(result) for result in results] == [OutcomeUnknownError] * 3
    assert len({id(result) for result in results}) == 3
    assert error.name in str(results[0])
    assert len(pair.nodes[1].asked) == 1


async def test_a_refused_append_is_an_error_with_its_code(pair: Pair) -> None:
    pair.nodes[1].append_error = ErrorCode.INVALID_RECORD
    async with QuorumClient(pair.addresses) as client:
        with pytest.raises(AdminError, match="INVALID_RECORD: as told"):
            await client.append_value(b"value")
    assert len(pair.nodes[1].asked) == 1


async def test_a_throttled_append_is_tried_again(pair: Pair) -> None:
    leader = pair.nodes[1]
    leader.append_error = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    async with QuorumClient(pair.addresses) as client:
        append = asyncio.create_task(client.append_value(b"value"))
        async with asyncio.timeout(NO_HANG_S):
            for _ in range(2):
                await leader.begun.wait()
                leader.begun.clear()
        assert not append.done()
        leader.append_error = None
        assert await append == 0
        leader.append_error = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        with pytest.raises(AdminError, match="THROTTLING_QUOTA_EXCEEDED"):
            await client.append([(b"", b"value")], timeout_ms=2_500)


async def test_a_throttled_append_is_called_that_also_where_time_is_up_before_the_next_round() -> (
    None
):
    search = LeaderSearch(Route([(HOST, 1)]))
    throttled = AppendOutcome(
        ErrorCode.THROTTLING_QUOTA_EXCEEDED, CurrentLeader(1, 1), message="slow down"
    )

    async def call(_address: Address, _left_ms: float) -> AppendOutcome:
        time.sleep(0.1)  # noqa: ASYNC251 - the loop stands still, as under load
        return throttled

    assert await search.ask(call, 50, may_repeat=False) is throttled


async def test_an_address_that_accepts_and_says_nothing_is_passed_over(pair: Pair) -> None:
    with socket.socket() as silent:
        silent.bind((HOST, 0))
        silent.listen()
        address = f"{HOST}:{silent.getsockname()[1]}"
        async with QuorumClient([address, *pair.addresses]) as client:
            started = time.monotonic()
            await client.append_value(b"value")
            assert (await client.describe_quorum()).is_leaders_view
            assert time.monotonic() - started < NO_HANG_S
        async with QuorumClient([address], request_timeout_ms=500) as client:
            with pytest.raises(UnreachableError, match=address):
                await client.append_value(b"value")


async def test_the_outcome_is_unknown_where_the_leader_dies_under_an_append() -> None:
    """And the next append does not hang on the connection that broke."""
    async with (
        running(delay_s=30) as (process, port),
        serving(Node(id=2)) as other,
        QuorumClient([f"{HOST}:{port}", address_of(other)]) as client,
    ):
        await client.node_status(address_of(other))  # connects
        append = asyncio.create_task(client.append_value(b"one"))
        batch = asyncio.create_task(client.append([(b"", b"two")]))
        await asyncio.wait_for(begun(process, 2), NO_HANG_S)
        process.kill()
        died = time.monotonic()
        for waiting in (append, batch):
            with pytest.raises(OutcomeUnknownError, match="may or may not be committed"):
                await waiting
        assert time.monotonic() - died < KEEPALIVE_S
        # On a busy machine gRPC takes it onto the connection just before that is closed.
        with pytest.raises((NoLeaderError, OutcomeUnknownError)):
            await client.append([(b"", b"three")], timeout_ms=1_500)


async def test_a_process_that_is_stopped_is_noticed() -> None:
    """Its kernel goes on acknowledging what is sent; only the ping's answer is missing."""
    limits = ChannelLimits(keepalive_ms=1_000, keepalive_timeout_ms=500)
    async with (
        running() as (process, port),
        QuorumClient([f"{HOST}:{port}"], limits=limits) as client,
    ):
        await client.append_value(b"one")
        process.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        with pytest.raises(OutcomeUnknownError, match="may or may not be committed"):
            await client.append_value(b"two")
        assert time.monotonic() - stopped < NO_HANG_S / 2


SILENCE = ChannelLimits(silence_ms=2_000)


async def test_a_leader_whose_loop_stands_still_is_left(pair: Pair) -> None:
    """It is asked first, and gRPC in it answers pings. An append that is under way there is not
    repeated; all else goes to the node that leads now.
    """
    async with (
        running(delay_s=60) as (process, port),
        QuorumClient([f"{HOST}:{port}", *pair.addresses], limits=SILENCE) as client,
    ):
        append = asyncio.create_task(client.append_value(b"one"))
        await asyncio.wait_for(begun(process), NO_HANG_S)
        process.send_signal(signal.SIGUSR1)
        pair.lead(1, 4)
        with pytest.raises(OutcomeUnknownError, match="no response for 2000 ms"):
            await asyncio.wait_for(append, NO_HANG_S)
        assert await asyncio.wait_for(client.append_value(b"two"), NO_HANG_S) == 0
        assert pair.nodes[1].appended == [[(b"", b"two")]]


async def test_reads_and_changes_are_repeated_where_the_leader_is_silent(pair: Pair) -> None:
    pair.lead(1, 4)
    pair.nodes[1].store([(b"", b"there")])
    asks: list[Callable[[QuorumClient], Awaitable[Any]]] = [
        lambda client: client.describe_features(),
        lambda client: client.add_voter(KEY, ()),
        lambda client: anext(client.read()),
    ]
    async with AsyncExitStack() as stack:
        process, port = await stack.enter_async_context(running())
        clients = [
            await stack.enter_async_context(
                QuorumClient([f"{HOST}:{port}", *pair.addresses], limits=SILENCE)
            )
            for _ in asks
        ]
        for client in clients:
            await client.describe_features()
        process.send_signal(signal.SIGUSR1)
        await asyncio.sleep(0.2)
        async with asyncio.timeout(NO_HANG_S):
            await asyncio.gather(*(ask(c) for ask, c in zip(asks, clients, strict=True)))


async def test_a_leader_that_takes_its_time_is_not_silent() -> None:
    async with (
        running(delay_s=4.0) as (_, port),
        QuorumClient([f"{HOST}:{port}"], limits=ChannelLimits(silence_ms=3_000)) as client,
    ):
        offset, features = await asyncio.gather(
            client.append_value(b"one"), client.describe_features()
        )
        assert offset == 0
        assert features.error is ErrorCode.NONE


async def test_an_idle_stream_that_breaks_is_no_ones_error(pair: Pair) -> None:
    async with (
        running() as (process, port),
        QuorumClient([f"{HOST}:{port}", *pair.addresses]) as client,
    ):
        assert await client.append_value(b"one") == 0
        stream = client._appender._connections[HOST, port]
        process.kill()
        await process.wait()
        async with asyncio.timeout(NO_HANG_S):
            # Until then a value may be sent into the dead connection.
            while stream.is_open or stream._link.channel.get_state() is READY:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        pair.lead(1, 4)
        assert await client.append_value(b"two") == 0
        assert len(pair.nodes[1].appended) == 1


async def test_an_append_without_answer_in_time_has_an_unknown_outcome(pair: Pair) -> None:
    async with QuorumClient(pair.addresses) as client:
        await client.append([(b"", b"value")])  # connects
        pair.nodes[1].delay_s = 60
        with pytest.raises(OutcomeUnknownError):
            await client.append([(b"", b"value")], timeout_ms=500)


async def test_closing_a_client_ends_appends_that_look_for_a_leader(pair: Pair) -> None:
    pair.lead(None, 4)
    client = QuorumClient(pair.addresses)
    values = [asyncio.create_task(client.append_value(b"value")) for _ in range(3)]
    batch = asyncio.create_task(client.append([(b"", b"batch")]))
    await pair.nodes[1].begun.wait()
    started = time.monotonic()
    await client.close()
    results = await asyncio.gather(*values, batch, return_exceptions=True)
    assert time.monotonic() - started < NO_HANG_S
    assert all(isinstance(result, ClientError) for result in results)
    await asyncio.sleep(0.2)  # what was on its way still arrives
    asked = len(pair.nodes[1].asked)
    await asyncio.sleep(0.6)
    assert len(pair.nodes[1].asked) == asked, "nobody goes on asking"
    with pytest.raises(MisuseError):
        await client.append_value(b"late")


async def test_closing_a_client_ends_its_appends(pair: Pair) -> None:
    pair.nodes[1].delay_s = 60
    client = QuorumClient(pair.addresses)
    append = asyncio.create_task(client.append_value(b"value"))
    await pair.nodes[1].begun.wait()
    await client.close()
    with pytest.raises(OutcomeUnknownError):
        await append


def test_the_servers_outcome_may_be_a_plain_tuple() -> None:
    assert AppendOutcome(*(ErrorCode.NONE, CurrentLeader(1), 5, "")).base_offset == 5


SLOW = ChannelLimits(connect_timeout_ms=20_000)


@pytest.mark.parametrize("turns", range(6))
async def test_an_append_ends_with_its_stream_however_soon(pair: Pair, turns: int) -> None:
    """Before its message has gone nothing was done, and whoever sent it may go elsewhere."""
    channels = Channels(None, SLOW, "test")
    link = channels.acquire(HOST, pair.servers[0].ports[0])
    await channels.connected(link, 20_000)
    connection = appending.AppendConnection(link, channels)
    pair.nodes[0].delay_s = 60
    append = asyncio.create_task(connection.send([(b"", b"one")], 30_000))
    for _ in range(turns):
        await asyncio.sleep(0)
    await connection.close()
    with pytest.raises(TransportError) as failed:
        await append
    assert failed.value.nothing_done or turns > 1
    if failed.value.nothing_done:
        await asyncio.sleep(0.1)
        assert pair.nodes[0].asked == []
    assert connection.is_idle
    await channels.close()


async def test_an_answer_that_makes_no_sense_ends_the_stream_for_all_who_wait(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(message: quorum_pb2.AppendResponse) -> AppendOutcome:
        raise ViolationError(f"no such error: {message.error_code}")

    monkeypatch.setattr(appending, "decode_append_response", refuse)
    channels = Channels(None, SLOW, "test")
    link = channels.acquire(HOST, pair.servers[0].ports[0])
    await channels.connected(link, 20_000)
    connection = appending.AppendConnection(link, channels)
    appends = [connection.send([(b"", b"one")], 30_000) for _ in range(3)]
    async with asyncio.timeout(NO_HANG_S):
        ends = await asyncio.gather(*appends, return_exceptions=True)
    assert [type(end) for end in ends] == [TransportError] * 3
    assert all("no such error" in str(end) for end in ends)
    assert not connection.is_open
    await connection.close()
    await channels.close()


async def test_an_append_whose_turn_never_came_has_done_nothing(pair: Pair) -> None:
    channels = Channels(None, SLOW, "test")
    link = channels.acquire(HOST, pair.servers[1].ports[0])
    await channels.connected(link, 20_000)
    connection = appending.AppendConnection(link, channels)
    async with connection._writing:
        with pytest.raises(TransportError, match="before this was sent") as failed:
            await connection.send([(b"", b"one")], 1)
    assert failed.value.nothing_done
    assert (await connection.send([(b"", b"two")], 10_000)).error is ErrorCode.NONE
    assert [[value for _, value in asked] for asked in pair.nodes[1].appended] == [[b"two"]]
    await connection.close()
    await channels.close()
