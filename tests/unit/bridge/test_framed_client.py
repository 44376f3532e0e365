"""A client that finds out that a node takes appends in frames, and what breaks between them."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from pathlib import Path
from typing import Any

import pytest
from quorate.raft.messages import CurrentLeader
from quorate.rpc.client import client_stream, framed_call
from quorate.rpc.client.framed_call import FramedCall
from quorate.rpc.client.quorum_client import OutcomeUnknownError
from quorate.rpc.tls import TlsConfig
from quorate.rpc.wire.limits import ChannelLimits
from quorate.rpc.wire.values import NodeStatus
from quorate.rpc.wire.values import OpaqueRecord as Record

from tests.certificates import make_authority, make_certificate
from tests.unit.bridge.frames_support import (
    Changing,
    Lab,
    a_lab,
    connection_of,
    fast,
    is_framed,
    lab,
    until,
    until_framed,
)
from tests.unit.rpc.rpc_support import HOST

__all__ = ["fast", "lab"]


# --- the client -----------------------------------------------------------------------------------


async def test_a_client_finds_the_frames_and_uses_them(lab: Lab) -> None:
    async with lab.client() as client:
        await until_framed(client)
        messages = len(lab.messages)
        offset = await client.append_value(b"second")
        batch = await client.append([(b"k", b"third"), (b"k", None)])
        assert batch.base_offset == offset + 1
        assert lab.leader.values == [b"first", b"second", b"third", None]
        assert len(lab.messages) == messages + 2


async def test_the_first_append_does_not_wait_for_them(lab: Lab) -> None:
    lab.leader.port = 1  # nothing listens there
    async with lab.client() as client:
        await client.append_value(b"first")
        assert not is_framed(client)


async def test_a_client_may_insist_on_grpc(lab: Lab) -> None:
    async with lab.client(transport="grpc") as client:
        await client.append_value(b"first")
        await asyncio.sleep(0.1)
        assert not is_framed(client)
        assert not lab.messages


@pytest.mark.usefixtures("fast")
async def test_frames_that_are_announced_later_are_used(lab: Lab) -> None:
    lab.leader.port = 0
    async with lab.client() as client:
        await client.append_value(b"first")
        await asyncio.sleep(0.1)
        assert not is_framed(client)
        lab.leader.port = lab.frames_port
        await until(lambda: is_framed(client))
        await client.append_value(b"second")
        assert lab.leader.values == [b"first", b"second"]


@pytest.mark.usefixtures("fast")
async def test_a_refused_port_is_tried_again(lab: Lab) -> None:
    lab.leader.port = 1
    async with lab.client() as client:
        await client.append_value(b"first")
        await asyncio.sleep(0.1)
        lab.leader.port = lab.frames_port
        await until(lambda: is_framed(client))


async def test_a_port_that_never_answers_is_seldom_tried(lab: Lab) -> None:
    accepted: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(lambda _reader, writer: accepted.append(writer), HOST, 0)
    lab.leader.port = silent.sockets[0].getsockname()[1]
    limits = ChannelLimits(connect_timeout_ms=100)
    async with silent, lab.client(limits=limits) as client:
        await client.append_value(b"first")
        await asyncio.sleep(1.5)
        await client.append_value(b"second")
        assert not is_framed(client)
        for writer in accepted:
            writer.close()
    assert len(accepted) == 1


@pytest.mark.usefixtures("fast")
async def test_a_listener_that_takes_no_frames_leaves_the_stream_alone(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    lab.listener._appends = None
    async with lab.client() as client:
        await client.append_value(b"first")
        await asyncio.sleep(0.2)
        await client.append_value(b"second")
        assert not is_framed(client)
    lines = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert len(lines) == 1, lines  # limited, however often the client tries
    assert "API key -16" in lines[0]


@pytest.mark.usefixtures("fast")
async def test_another_node_at_the_port_is_not_used(lab: Lab) -> None:
    lab.leader.id = 2
    lab.leader.leader = CurrentLeader(3, 2, lab.leader.leader.endpoints)
    async with lab.client() as client:
        await client.append_value(b"first")
        await asyncio.sleep(0.2)
        await client.append_value(b"second")
        assert not is_framed(client)
        (place,) = client._appender._framed_calls._places.values()  # type: ignore[union-attr]
        assert place.is_barred


async def test_connections_that_do_not_last_are_opened_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(framed_call, "RETRY_MAX_S", 60.0)
    place = framed_call._Place()
    assert place.begin(0.0) == 0.0
    waits = []
    now_s = 0.0
    for _ in range(12):
        place.note_attempt(now_s)
        place.opened_s = now_s
        now_s += 1.0  # it is closed after a second
        waits.append(place.begin(now_s))
        now_s += waits[-1]
    assert waits[0] == 0.0
    assert all(30.0 - 1.0 <= wait <= 60.0 for wait in waits[8:])
    place.note_attempt(now_s)
    place.opened_s = now_s
    assert place.begin(now_s + 60.0) == 0.0, "one that lasted is replaced at once"


async def test_no_message_overtakes_another_when_the_call_changes(lab: Lab) -> None:
    values = [b"%d" % number for number in range(300)]
    async with lab.client() as client:
        appends = []
        for number, value in enumerate(values):
            appends.append(asyncio.create_task(client.append([(b"k", value)])))
            if number % 10 == 0:
                await asyncio.sleep(0.002)
        results = await asyncio.gather(*appends)
        await until(lambda: is_framed(client))
    assert lab.leader.values == values
    offsets = [each.base_offset for each in results]
    assert offsets == sorted(offsets)


async def test_a_stream_under_load_changes_its_call(lab: Lab) -> None:
    async with lab.client() as client:
        is_over = False

        async def caller() -> None:
            while not is_over:
                await client.append_value(b"v")

        async with asyncio.TaskGroup() as group:
            for _ in range(16):
                group.create_task(caller())
            await until(lambda: bool(client._appender._connections) and is_framed(client))
            is_over = True


async def test_appends_that_take_long_do_not_hold_up_the_next(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_stream, "CHANGE_S", 0.05)
    lab.leader.sessions = None  # whose first batch is sent alone
    lab.leader.until = asyncio.Event()
    async with lab.client() as client:
        first = asyncio.create_task(client.append([(b"k", b"first")]))
        await until(lambda: bool(client._appender._connections))
        await until(lambda: connection_of(client)._offered is not None)
        second = asyncio.create_task(client.append([(b"k", b"second")]))
        await until(lambda: len(connection_of(client)._pending) == 2)
        assert not is_framed(client)
        lab.leader.until.set()
        await asyncio.gather(first, second)
        await client.append([(b"k", b"third")])
        assert is_framed(client)
    assert lab.leader.values == [b"first", b"second", b"third"]


async def test_a_stream_that_ends_closes_what_was_offered(lab: Lab) -> None:
    lab.leader.until = asyncio.Event()
    async with lab.client(request_timeout_ms=500) as client:
        append = asyncio.create_task(client.append([(b"k", b"first")]))
        await until(lambda: bool(client._appender._connections))
        connection = connection_of(client)
        await until(lambda: connection._offered is not None)
        await until(lambda: len(lab.connections) == 1)
        await connection.close()
        await until(lambda: len(lab.connections) == 0)
        lab.leader.until.set()
        await append


async def test_the_kernel_watches_the_connection(lab: Lab) -> None:
    async with lab.client() as client:
        await until_framed(client)
        call = connection_of(client)._call
        assert isinstance(call, FramedCall)
        sock = call._stream.transport.get_extra_info("socket")
        limits = ChannelLimits()
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle_s = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        assert idle_s * 1000 == limits.keepalive_ms
        unacknowledged_ms = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        assert unacknowledged_ms == limits.keepalive_timeout_ms
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_a_silent_node_ends_the_call(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    async with lab.client(limits=ChannelLimits(silence_ms=400)) as client:
        await until_framed(client)

        async def never() -> NodeStatus:
            await asyncio.sleep(60)
            raise AssertionError

        lab.leader.until = asyncio.Event()
        monkeypatch.setattr(lab.leader, "node_status", never)
        connection = connection_of(client)
        append = asyncio.create_task(client.append_value(b"second"))
        await until(lambda: not connection.is_open)
        lab.leader.until.set()
        await append
    assert lab.leader.values == [b"first", b"second"]


async def test_a_broken_connection_is_replaced_and_the_append_repeated(lab: Lab) -> None:
    async with lab.client() as client:
        await until_framed(client)
        lab.leader.begun.clear()
        lab.leader.until = asyncio.Event()
        append = asyncio.create_task(client.append_value(b"second"))
        await lab.leader.begun.wait()
        for each in list(lab.connections._open):
            each.end("a test")
        await asyncio.sleep(0.05)
        lab.leader.until.set()
        await append
        await until(lambda: is_framed(client))
    assert lab.leader.values == [b"first", b"second"]


async def test_without_a_session_the_outcome_is_unknown(lab: Lab) -> None:
    lab.leader.sessions = None
    async with lab.client() as client:
        await until_framed(client)
        lab.leader.begun.clear()
        lab.leader.until = asyncio.Event()
        append = asyncio.create_task(client.append_value(b"second"))
        await lab.leader.begun.wait()
        for each in list(lab.connections._open):
            each.end("a test")
        with pytest.raises(OutcomeUnknownError):
            await append
        lab.leader.until.set()


# --- TLS ------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> dict[str, TlsConfig]:
    authority = make_authority(tmp_path, "authority")
    server = make_certificate(tmp_path, "controller", authority)
    client = make_certificate(tmp_path, "client", authority)
    return {
        "server": TlsConfig(*server, authority[0]),
        "client": TlsConfig(*client, authority[0]),
    }


async def test_with_tls_the_caller_is_that_of_the_certificate(
    files: dict[str, TlsConfig],
) -> None:
    rules = Changing()
    async with a_lab(tls=files["server"], authorizer=rules) as lab:
        async with lab.client(tls=files["client"]) as client:
            await until_framed(client)
            await client.append_value(bytes(200_000))
        assert rules.callers[-1].principal == "User:CN=client"
        assert rules.callers[-1].has_certificate
    assert lab.leader.values == [b"first", bytes(200_000)]


@pytest.mark.usefixtures("fast")
async def test_with_tls_a_plaintext_port_is_not_used(files: dict[str, TlsConfig]) -> None:
    async with a_lab(tls=files["server"]) as lab, a_lab() as clear:
        lab.leader.port = clear.frames_port
        async with lab.client(tls=files["client"]) as client:
            await client.append_value(b"first")
            await asyncio.sleep(0.2)
            assert not is_framed(client)
            await client.append_value(b"second")
        assert not clear.leader.values


# --- chance ---------------------------------------------------------------------------------------


class Proxy:
    """Between client and node: cuts connections after a random number of bytes, either way."""

    def __init__(self, port: int, chance: random.Random) -> None:
        self.port = port
        self.chance = chance
        self.cuts = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection(HOST, self.port)
        left = self.chance.randrange(200, 3_000)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, ours, left))
                group.create_task(self._pump(theirs, writer, left))
        except* ConnectionError:
            self.cuts += 1
        finally:
            for each in (writer, ours):
                each.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int
    ) -> None:
        while data := await reader.read(self.chance.randrange(1, 400)):
            if self.chance.random() < 0.2:
                await asyncio.sleep(self.chance.random() * 0.003)
            writer.write(data[:left])
            left -= len(data)
            if left <= 0:
                raise ConnectionResetError
            await writer.drain()
        raise ConnectionResetError


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("seed", range(6))
async def test_each_append_is_in_the_log_once_whatever_breaks(lab: Lab, seed: int) -> None:
    chance = random.Random(seed)
    proxy = Proxy(lab.frames_port, chance)
    server = await asyncio.start_server(proxy.serve, HOST, 0)
    lab.leader.port = server.sockets[0].getsockname()[1]
    lab.leader.delay_s = 0.001
    values = [b"%d" % number for number in range(400)]
    async with server, lab.client() as client:
        appends: list[asyncio.Task[Any]] = []
        for value in values:
            record: Record = (b"k", value + bytes(chance.randrange(30)))
            appends.append(asyncio.create_task(client.append([record])))
            await asyncio.sleep(chance.random() * 0.004)
        await asyncio.gather(*appends)
    assert [(each or b"").rstrip(b"\0") for each in lab.leader.values] == values
    assert proxy.cuts > 1
