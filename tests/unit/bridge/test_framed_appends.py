"""The listener that takes appends in frames: its limits, its answers, who may append."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest
from quorate.bridge.listener.connections import Connections
from quorate.common.error_codes import ErrorCode
from quorate.metadata.authorizer import AclAuthorizer
from quorate.rpc.framing import frame_stream
from quorate.rpc.server import framed_appends
from quorate.rpc.wire.frames import OPENING, FramesOpened, encode_opening
from quorate.rpc.wire.limits import ServerLimits
from quorate.runtime.authorizer import NodeAuthorizer, PeerIdentity
from quorate.v1 import quorum_pb2

from tests.unit.bridge.frames_support import (
    SOON_S,
    Changing,
    Lab,
    a_lab,
    answer,
    fast,
    is_closed,
    lab,
    request,
    until,
)
from tests.unit.rpc.rpc_support import CLUSTER, HOST

__all__ = ["fast", "lab"]


# --- the listener ---------------------------------------------------------------------------------


async def test_messages_are_answered_as_they_are_done(lab: Lab) -> None:
    stream, opened = await lab.opened()
    assert opened == FramesOpened(ErrorCode.NONE, "", CLUSTER, 1)
    for number in (7, 9):
        await stream.send(request(number))
    found = {(await answer(stream)).correlation_id for _ in range(2)}
    assert found == {7, 9}
    stream.abort()


async def test_a_client_of_another_cluster_is_told(lab: Lab) -> None:
    stream, opened = await lab.opened(encode_opening("another"))
    assert opened.error is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert opened.cluster_id == CLUSTER
    assert await stream.frame(SOON_S) is None


async def test_a_client_that_knows_no_cluster_learns_it(lab: Lab) -> None:
    stream, opened = await lab.opened(encode_opening(""))
    assert opened == FramesOpened(ErrorCode.NONE, "", CLUSTER, 1)
    stream.abort()


@pytest.mark.parametrize("junk", [b"\xff\xff\xff", b"\n" + bytes(2_000)])
async def test_an_opening_that_is_none_is_rejected(lab: Lab, junk: bytes) -> None:
    stream, opened = await lab.opened(OPENING + junk)
    assert opened.error is ErrorCode.INVALID_REQUEST
    assert await stream.frame(SOON_S) is None


async def test_bytes_that_are_no_message_end_the_connection_after_the_answers(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    lab.leader.delay_s = 0.05
    stream, _ = await lab.opened()
    await stream.send(request(1))
    await stream.send(b"\xff\xff\xff\xff")
    assert (await answer(stream)).error_code == ErrorCode.NONE
    assert await stream.frame(SOON_S) is None
    await until(lambda: not len(lab.connections))
    assert "not an AppendRequest" in caplog.text
    assert not lab.messages[2:]


@pytest.mark.parametrize("length", [-1, framed_appends.APPENDING.bytes_max + 1])
async def test_a_frame_beyond_the_limit_ends_the_connection(lab: Lab, length: int) -> None:
    stream, _ = await lab.opened()
    stream.transport.write(length.to_bytes(4, "big", signed=True) + b"x")
    assert await is_closed(stream)
    await until(lambda: not len(lab.connections))


async def test_long_frames_count_until_they_are_complete(lab: Lab) -> None:
    stream, _ = await lab.opened()
    data = request(1, bytes(3_000_000))
    stream.transport.write(len(data).to_bytes(4, "big") + data[:-1])
    await until(lambda: lab.unfinished.bytes > 2_000_000)
    stream.transport.write(data[-1:])
    assert (await answer(stream)).error_code == ErrorCode.NONE
    assert lab.unfinished.bytes == 0
    assert lab.leader.values == [bytes(3_000_000)]
    stream.abort()


async def test_unfinished_frames_of_many_connections_are_bounded() -> None:
    async with a_lab(bytes_max=4_000_000) as lab:
        streams = [(await lab.opened())[0] for _ in range(4)]
        for stream in streams:
            stream.transport.write((8_000_000).to_bytes(4, "big") + bytes(1_900_000))
            await asyncio.sleep(0.05)
        await until(lambda: len(lab.connections) == 2)
        assert lab.unfinished.bytes <= 4_000_000
        for stream in streams:
            stream.abort()


async def test_the_rest_of_a_frame_must_arrive_in_time(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_stream, "FRAME_S", 0.2)
    stream, _ = await lab.opened()
    stream.transport.write((1_000).to_bytes(4, "big") + b"x")
    await until(lambda: not len(lab.connections))
    stream.abort()


async def test_a_client_that_reads_no_answers_is_cut_off(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_stream, "FRAME_S", 0.2)
    stream, _ = await lab.opened()
    stream.transport.pause_reading()
    (served,) = lab.connections._open
    lab.leader.append_error = ErrorCode.INVALID_RECORD  # the answers are long, the appends short
    lab.leader.message = "x" * 100_000
    for number in range(200):
        if not len(lab.connections):
            break
        stream.transport.write(len(data := request(number)).to_bytes(4, "big") + data)
        await asyncio.sleep(0.005)
    await until(lambda: served not in lab.connections._open)
    stream.abort()


async def test_a_connection_with_appends_in_flight_is_not_evicted() -> None:
    async with a_lab(connections=Connections(2)) as lab:
        busy, _ = await lab.opened()
        lab.leader.until = asyncio.Event()
        await busy.send(request(1))
        await lab.leader.begun.wait()
        idle, _ = await lab.opened()
        another, opened = await lab.opened()
        assert opened.error is ErrorCode.NONE
        assert await is_closed(idle)
        lab.leader.until.set()
        assert (await answer(busy)).error_code == ErrorCode.NONE
        third, _ = await lab.opened()
        assert await is_closed(another)  # it has been idle for longer than the first one
        for stream in (busy, third):
            stream.abort()


async def test_messages_in_flight_are_bounded() -> None:
    async with a_lab(limits=ServerLimits(append_messages_in_flight_max=3)) as lab:
        lab.leader.until = asyncio.Event()
        stream, _ = await lab.opened()
        for number in range(10):
            await stream.send(request(number))
        await asyncio.sleep(0.1)
        assert len(lab.messages) == 3
        lab.leader.until.set()
        assert {(await answer(stream)).correlation_id for _ in range(10)} == set(range(10))
        stream.abort()


async def test_a_listener_that_stops_answers_what_is_in_flight(lab: Lab) -> None:
    lab.leader.delay_s = 0.03
    stream, _ = await lab.opened()
    await stream.send(request(1))
    await lab.leader.begun.wait()
    await lab.listener.stop()
    assert (await answer(stream)).error_code == ErrorCode.NONE
    assert await stream.frame(SOON_S) is None


async def test_an_append_outlives_its_connection(lab: Lab) -> None:
    lab.leader.until = asyncio.Event()
    stream, _ = await lab.opened()
    await stream.send(request(1, b"kept"))
    await lab.leader.begun.wait()
    sock = stream.transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
    stream.abort()
    await until(lambda: not len(lab.connections))
    lab.leader.until.set()
    await until(lambda: lab.leader.values == [b"kept"])


async def test_a_client_that_stops_sending_gets_its_answers(lab: Lab) -> None:
    lab.leader.delay_s = 0.05
    reader, writer = await asyncio.open_connection(HOST, lab.frames_port)
    for data in (encode_opening(CLUSTER), request(1)):
        writer.write(len(data).to_bytes(4, "big") + data)
    writer.write_eof()
    received = await asyncio.wait_for(reader.read(), SOON_S)
    size = int.from_bytes(received[:4], "big")
    response = quorum_pb2.AppendResponse.FromString(received[8 + size :])
    assert (response.correlation_id, response.error_code) == (1, ErrorCode.NONE)
    writer.close()


# --- authorization --------------------------------------------------------------------------------


async def test_every_message_is_authorized() -> None:
    rules = Changing()
    async with a_lab(authorizer=rules) as lab:
        stream, opened = await lab.opened()
        assert opened.error is ErrorCode.NONE
        await stream.send(request(1))
        assert (await answer(stream)).error_code == ErrorCode.NONE
        rules.denies = True
        await stream.send(request(2))
        assert (await answer(stream)).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert {each.principal for each in rules.callers} == {"User:ANONYMOUS"}
        assert lab.leader.values == [b"v"]
        stream.abort()


async def test_a_caller_that_may_not_append_cannot_open() -> None:
    rules = NodeAuthorizer(identity=PeerIdentity.OFF, authorizer=AclAuthorizer(["User:root"]))
    async with a_lab(authorizer=rules) as lab:
        stream, opened = await lab.opened()
        assert opened.error is not ErrorCode.NONE
        assert await stream.frame(SOON_S) is None
        assert not lab.leader.values
