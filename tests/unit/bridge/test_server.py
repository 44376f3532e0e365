"""The listener and the channels, over real sockets."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import struct
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from quorate.bridge.bridge import Bridge, BridgeSettings
from quorate.bridge.framing.frames import Decoder
from quorate.bridge.listener import server as server_module
from quorate.bridge.listener.connections import Connections, KafkaConnection
from quorate.bridge.listener.listening import ListenerSettings, Listening
from quorate.bridge.listener.server import ACCEPTS_MAX, BridgeServer, api_versions
from quorate.bridge.messages import schemas as s
from quorate.bridge.messages import zookeeper_messages as zk
from quorate.bridge.propagation.channels import QUEUE_MAX, Channel
from quorate.bridge.propagation.control_requests import Message, Sender, everything
from quorate.bridge.requests.replication import PEER_CLIENT_ID, PEER_IDLE_S
from quorate.common.error_codes import ErrorCode
from quorate.common.features import VersionRange
from quorate.metadata import describe
from quorate.metadata import requests as r
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.rpc.errors import BadMessageError
from quorate.rpc.framing import frame_stream
from quorate.rpc.framing.frame_stream import FRAME_BYTES_MAX, IDLE_S, INLINE_BYTES, FrameStream
from quorate.rpc.server.response_memory import ROOM_BYTES
from quorate.rpc.wire.convert_metadata import MetadataAnswer

from tests.unit.bridge.bridge_support import Migrating, call
from tests.unit.bridge.client_frames import read_frame, write_frame
from tests.unit.runtime.replicas import CLUSTER, Network, Replica

HOST = "127.0.0.1"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


FEATURES = (
    r.FeatureDescription("kraft.version", VersionRange(0, 1), 0),
    r.FeatureDescription("metadata.version", VersionRange(7, 30), 21),
)


class Busy:
    """Answers every request with NOT_CONTROLLER, except ApiVersions."""

    def frame_bytes_max(self, _connection: KafkaConnection) -> int:
        return FRAME_BYTES_MAX

    def refuse(self, _head: s.Call, _connection: KafkaConnection) -> Any:
        return None

    async def answer(self, call: s.Call, _connection: KafkaConnection) -> Any:
        if call.api_key == s.API_VERSIONS:
            return api_versions(call, FEATURES, 7)
        return s.response_type(call.api_key, call.version)(
            throttle_time=s.milliseconds(),
            error_code=s.error_field(ErrorCode.NOT_CONTROLLER),
            should_shut_down=False,
        )


@pytest.fixture
async def server() -> AsyncIterator[BridgeServer]:
    made = BridgeServer(Busy(), Decoder())
    await made.start(HOST, 0)
    yield made
    await made.stop()


async def dial(server: BridgeServer | Listening) -> Streams:
    return await asyncio.open_connection(*server.addresses[0])


def heartbeat() -> bytes:
    body = s.request_type(s.BROKER_HEARTBEAT, 1)(
        broker_id=1,
        broker_epoch=2,
        current_metadata_offset=3,
        want_fence=False,
        want_shut_down=False,
    )
    return s.write_header(s.BROKER_HEARTBEAT, 1, 5, "b") + s.write(body)


@asynccontextmanager
async def a_bridge(tmp_path: Path) -> AsyncIterator[Bridge]:
    """A bridge that does not listen yet, whose replica does not lead."""

    async def handle(request: Any, _timeout_ms: int) -> MetadataAnswer:
        raise AssertionError(request)

    replica = Replica(tmp_path, Network())
    replica.start()

    async def admit(timeout_ms: int) -> tuple[ErrorCode, str]:
        raise AssertionError(timeout_ms)

    bridge = Bridge(
        BridgeSettings(1, CLUSTER, ListenerSettings("KAFKA", HOST, 0)),
        replica.driver,
        handle,
        lambda read: describe.answer(MetadataImage(), read),
        admit=admit,
    )
    yield bridge
    await replica.close()


async def test_many_connections_that_wait_are_accepted_together() -> None:
    """A turn of the event loop is long while a cluster's brokers connect to a new leader."""
    connections = Connections()
    server = BridgeServer(Busy(), Decoder(), connections=connections)
    await server.start(HOST, 0)
    clients = [socket.create_connection(server.addresses[0]) for _ in range(ACCEPTS_MAX)]
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(connections) == ACCEPTS_MAX
    for each in clients:
        each.close()
    await server.stop()


async def test_requests_of_a_connection_are_answered_in_order(server: BridgeServer) -> None:
    reader, writer = await dial(server)
    for _ in range(3):
        write_frame(writer, heartbeat())
    for _ in range(3):
        frame = await read_frame(reader)
        assert frame is not None
        correlation_id, body = s.read_response(s.BROKER_HEARTBEAT, 1, frame)
        assert (correlation_id, int(body.error_code)) == (5, ErrorCode.NOT_CONTROLLER)
    writer.close()


async def test_a_client_that_sends_many_requests_at_once_is_not_served_alone() -> None:
    answered = 0

    class Counting(Busy):
        async def answer(self, call: s.Call, connection: KafkaConnection) -> Any:
            nonlocal answered
            answered += 1
            return await super().answer(call, connection)

    server = BridgeServer(Counting(), Decoder())
    await server.start(HOST, 0)
    (_, hasty), (reader, writer) = await dial(server), await dial(server)
    await asyncio.sleep(0.05)  # both are accepted
    for _ in range(1_000):
        write_frame(hasty, heartbeat())
    write_frame(writer, heartbeat())
    assert await read_frame(reader)
    assert answered < 100
    await server.stop()


async def test_a_client_that_stops_sending_and_reads_nothing_is_counted_until_it_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    streams: list[FrameStream] = []

    class Noted(FrameStream):
        def __init__(self) -> None:
            super().__init__()
            streams.append(self)

    monkeypatch.setattr(frame_stream, "FRAME_S", 0.3)
    monkeypatch.setattr(server_module, "FrameStream", Noted)
    connections = Connections()
    server = BridgeServer(Busy(), Decoder(), connections=connections)
    await server.start(HOST, 0)
    loop = asyncio.get_running_loop()
    request = s.write_header(s.API_VERSIONS, 0, 1, "")
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        await loop.sock_connect(client, server.addresses[0])
        await until(lambda: streams and streams[0]._transport)
        transport = streams[0].transport
        while not transport.get_write_buffer_size():
            await loop.sock_sendall(client, (len(request).to_bytes(4, "big") + request) * 64)
            await asyncio.sleep(0.001)
        client.shutdown(socket.SHUT_WR)
        await asyncio.sleep(0.1)
        assert len(connections) == 1, "it still has a socket"
        await until(lambda: not len(connections) and streams[0]._closed.done())
    await server.stop()


async def test_requests_are_not_kept_and_answers_that_nobody_reads_are_bounded() -> None:
    frames: list[bytes] = []

    class Keeping(Decoder):
        async def call(self, frame: bytes) -> s.Call:
            frames.append(frame)
            return await super().call(frame)

    class Large(Busy):
        async def answer(self, call: s.Call, _connection: KafkaConnection) -> Any:
            return s.Encoded(s.response_type(call.api_key, call.version), bytes(ROOM_BYTES // 4))

    connections = Connections()
    server = BridgeServer(Large(), Keeping(), connections=connections)
    await server.start(HOST, 0)
    read, *unread = [await dial(server) for _ in range(10)]
    write_frame(read[1], heartbeat())
    assert len(await read_frame(read[0]) or b"") > ROOM_BYTES // 4
    lone = [bytes(len(frames[0]))]
    assert sys.getrefcount(frames.pop()) == sys.getrefcount(lone.pop()), "the listener keeps it"
    await until(lambda: len(connections) == 10)
    for _, writer in unread:
        writer.transport.pause_reading()
        write_frame(writer, heartbeat())
    # Of nine answers three are sent and three wait, until the stalled connections are closed.
    await until(lambda: len(connections) <= 1 + 3 + 3)
    async with asyncio.timeout(10):
        write_frame(read[1], heartbeat())
        assert await read_frame(read[0]), "a stalled connection gives way"
    for _, writer in (read, *unread):
        writer.transport.abort()
    await server.stop()


async def test_a_throttled_connection_is_read_again_after_its_time() -> None:
    throttled_s = 1.0
    answered: list[float] = []

    class Throttling(Busy):
        async def answer(self, call: s.Call, connection: KafkaConnection) -> Any:
            answered.append(time.monotonic())
            connection.throttled_s = throttled_s
            return await super().answer(call, connection)

    server = BridgeServer(Throttling(), Decoder())
    await server.start(HOST, 0)
    reader, writer = await dial(server)
    for _ in range(2):
        write_frame(writer, heartbeat())
    assert await read_frame(reader) is not None
    assert len(answered) == 1, "the response itself does not wait (KIP-219)"
    assert await read_frame(reader) is not None
    assert answered[1] - answered[0] > 0.9 * throttled_s
    writer.close()
    await server.stop()


async def test_a_connection_is_closed_once_it_was_idle_for_its_time() -> None:
    class Hasty(Busy):
        async def answer(self, call: s.Call, connection: KafkaConnection) -> Any:
            connection.idle_s = 0.2
            return await super().answer(call, connection)

    server = BridgeServer(Hasty(), Decoder())
    await server.start(HOST, 0)
    reader, writer = await dial(server)
    write_frame(writer, heartbeat())
    assert await read_frame(reader) is not None
    async with asyncio.timeout(10):
        assert await reader.read() == b""
    writer.close()
    await server.stop()


async def test_connections_of_controllers_may_be_idle_for_a_shorter_time(tmp_path: Path) -> None:
    async with a_bridge(tmp_path) as bridge:
        for client_id, idle_s in ((PEER_CLIENT_ID, PEER_IDLE_S), ("broker-1", IDLE_S)):
            connection = KafkaConnection(HOST)
            request = s.request_type(s.API_VERSIONS, 0)()
            header = s.write_header(s.API_VERSIONS, 0, 5, client_id)
            call = s.read_call(header + s.write(request))
            assert int((await bridge.answer(call, connection)).error_code) == ErrorCode.NONE
            assert connection.idle_s == idle_s


def test_a_client_that_resets_its_connection_while_it_waits_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def reset() -> None:
        has_begun, is_gone = asyncio.Event(), asyncio.Event()

        class Waiting(Busy):
            async def answer(self, call: s.Call, connection: KafkaConnection) -> Any:
                has_begun.set()
                await is_gone.wait()
                return await super().answer(call, connection)

        connections = Connections()
        server = BridgeServer(Waiting(), Decoder(), connections=connections)
        await server.start(HOST, 0)
        client = socket.create_connection(server.addresses[0])
        request = heartbeat()
        client.sendall(len(request).to_bytes(4, "big") + request)
        await has_begun.wait()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        await asyncio.sleep(0.1)  # the transport learns of it
        is_gone.set()
        await asyncio.sleep(0.1)
        assert len(connections) == 0
        await server.stop()

    uvloop.run(reset())
    assert not caplog.records


@pytest.mark.parametrize("version", range(5))
async def test_api_versions_says_what_is_served(server: BridgeServer, version: int) -> None:
    kind = s.request_type(s.API_VERSIONS, version)
    body = s.make(kind, client_software_name="x", client_software_version="1")
    reader, writer = await dial(server)
    write_frame(writer, s.write_header(s.API_VERSIONS, version, 3, "b") + s.write(body))
    frame = await read_frame(reader)
    assert frame is not None
    _, answer = s.read_response(s.API_VERSIONS, version, frame)
    found = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    without = {key: each for key, each in s.SERVED.items() if key not in s.VOTERS_APIS}
    assert found == without
    if version >= 3:
        assert answer.zk_migration_ready
        supported = [(f.name, f.min_version, f.max_version) for f in answer.supported_features]
        assert supported == [("kraft.version", 0, 1)] * (version >= 4) + [
            ("metadata.version", 7, 30)
        ]
        (finalized,) = answer.finalized_features
        assert (finalized.name, finalized.max_version_level) == ("metadata.version", 21)
        assert answer.finalized_features_epoch == 7
    writer.close()


async def test_an_unknown_version_of_api_versions_hears_which_there_are(
    server: BridgeServer,
) -> None:
    reader, writer = await dial(server)
    write_frame(writer, b"\0\x12\0\x63\0\0\0\x09" + b"\xff" * 9)
    frame = await read_frame(reader)
    assert frame is not None
    correlation_id, answer = s.read_response(s.API_VERSIONS, 0, frame)
    assert (correlation_id, int(answer.error_code)) == (9, ErrorCode.UNSUPPORTED_VERSION)
    assert answer.api_keys
    writer.close()


@pytest.mark.parametrize(
    "data",
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        b"\0\0\0\x02\0\0",
        b"\0\0\0\x08\0\x63\0\0\0\0\0\0",
        b"\0\0\0\x08\0\x3f\0\x63\0\0\0\0",
        b"\0\0\0\x0a\0\x3f\0\x01\0\0\0\0\xff\xff",
    ],
)
async def test_nonsense_closes_the_connection_with_one_line(
    server: BridgeServer, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            reader, writer = await dial(server)
            writer.write(data)
            assert await reader.read() == b""
            writer.close()
    assert len(caplog.records) == 1, [record.getMessage() for record in caplog.records]
    assert caplog.records[0].getMessage().startswith("bridge: the connection of 127.0.0.1")
    reader, writer = await dial(server)
    write_frame(writer, heartbeat())
    assert await read_frame(reader) is not None, "others are served"
    writer.close()


def create_topics(count: int) -> bytes:
    """A request with this many topics without a name."""
    module = s.request_module(s.CREATE_TOPICS, 7)
    topic = s.make(
        module.CreatableTopic,
        name="",
        num_partitions=1,
        replication_factor=1,
        assignments=(),
        configs=(),
    )
    length = bytes((count + 1 >> shift & 127 | (128 if shift < 14 else 0)) for shift in (0, 7, 14))
    head = s.write_header(s.CREATE_TOPICS, 7, 1, "x")
    return head + length + s.write(topic) * count + bytes(6)


async def test_a_frame_of_too_many_items_is_refused_by_its_beginning(
    server: BridgeServer, caplog: pytest.LogCaptureFixture
) -> None:
    frame = create_topics(s.ITEMS_MAX + 1)
    reader, writer = await dial(server)
    writer.write(len(frame).to_bytes(4, "big") + frame[:INLINE_BYTES])
    async with asyncio.timeout(10):
        assert await reader.read() == b""
    assert f"more than {s.ITEMS_MAX} items" in caplog.text
    writer.close()


def test_every_beginning_of_a_request_is_accepted() -> None:
    frame = create_topics(20)
    assert len(s.read_call(frame).body.topics) == 20
    for end in range(8, len(frame)):
        s.check_start(frame[:end])


async def test_a_listener_that_cannot_accept_makes_room_and_goes_on(
    server: BridgeServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    evicted, _ = await dial(server)
    await asyncio.sleep(0.05)
    accept, failures = socket.socket.accept, [OSError(errno.EMFILE, "Too many open files")]

    def failing(listening: socket.socket) -> tuple[socket.socket, Any]:
        if failures:
            raise failures.pop()
        return accept(listening)

    monkeypatch.setattr(socket.socket, "accept", failing)
    reader, writer = await dial(server)
    assert await evicted.read() == b""
    write_frame(writer, heartbeat())
    assert await read_frame(reader) is not None
    assert "cannot accept connections: [Errno 24]" in caplog.text
    writer.close()


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(s.SERVED)), st.integers(0, 3), st.binary(max_size=200))
def test_whatever_bytes_come_are_a_request_or_a_bad_message(
    api_key: int, above: int, data: bytes
) -> None:
    low, high = s.SERVED[api_key]
    version = min(high, low + above)
    frame = api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + data
    try:
        found = s.read_call(frame)
    except BadMessageError:
        return
    assert (found.api_key, found.version) == (api_key, version)


async def test_a_closed_bridge_has_no_thread_and_opens_again(tmp_path: Path) -> None:
    async with a_bridge(tmp_path) as bridge:
        others = set(threading.enumerate())
        for _ in range(2):
            await bridge.open()
            reader, writer = await dial(bridge.listening)
            kind = s.request_type(s.API_VERSIONS, 3)
            body = s.make(
                kind, client_software_name="x" * INLINE_BYTES, client_software_version="1"
            )
            write_frame(writer, s.write_header(s.API_VERSIONS, 3, 3, "b") + s.write(body))
            assert await read_frame(reader) is not None
            new = set(threading.enumerate()) - others
            (decoding,) = (each for each in new if each.name.startswith("bridge-decode"))
            writer.close()
            await bridge.close()
            await asyncio.to_thread(decoding.join, 10)
            assert not decoding.is_alive()


# --- channels -------------------------------------------------------------------------------------


class Peer:
    """A broker's listener: it notes what arrives, and answers; `drops` connections break first."""

    def __init__(self, drops: int = 0) -> None:
        self.got: list[int] = []
        self.received = 0
        self.drops = drops
        self.answers = asyncio.Event()
        self.answers.set()
        self.server: asyncio.Server | None = None

    async def start(self, port: int = 0) -> tuple[str, int]:
        self.server = await asyncio.start_server(self._serve, HOST, port)
        host, found = self.server.sockets[0].getsockname()[:2]
        return host, found

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (frame := await read_frame(reader)) is not None:
            self.received += 1
            await self.answers.wait()
            self.got.append(int.from_bytes(frame[:2], "big"))
            if self.drops:
                self.drops -= 1
                break
            response = s.response_type(zk.UPDATE_METADATA, 8)(
                error_code=s.error_field(ErrorCode.NONE)
            )
            correlation_id = int.from_bytes(frame[4:8], "big")
            write_frame(writer, s.write_response(correlation_id, response))
        writer.close()


def metadata() -> Message:
    return everything(Migrating(1).committed, Sender(3001, 1), (1,))[1][0]


async def until(condition: Any) -> None:
    for _ in range(2_000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("not within 20 s")


async def test_a_request_whose_answer_was_lost_is_sent_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    peer = Peer(drops=2)
    address = await peer.start()

    async def renew(_broker: int) -> list[Message]:
        raise AssertionError("nothing was dropped")

    caplog.set_level("INFO", "quorate.bridge.propagation.channels")
    channel = Channel(1, 1, address, "c", renew)
    channel.send([metadata()])
    channel.send([metadata()])
    await until(lambda: not channel.waiting)
    assert peer.got == [zk.UPDATE_METADATA] * 4
    lost = f"bridge: broker 1 at {address[0]}:{address[1]}: the broker closed the connection"
    # A connection without a response does not end the backoff, nor begin another outage.
    assert caplog.messages == [lost, "bridge: broker 1 is reachable again"]
    await channel.close()
    assert peer.server is not None
    peer.server.close()


async def test_a_long_queue_is_replaced_by_everything() -> None:
    peer = Peer()
    peer.answers.clear()
    address = await peer.start()
    renewed: list[int] = []

    async def renew(broker: int) -> list[Message]:
        renewed.append(broker)
        return [metadata()]

    channel = Channel(7, 1, address, "c", renew)
    message = metadata()
    channel.send([message])
    await until(lambda: peer.received == 1)
    channel.send([message] * QUEUE_MAX)
    channel.send([message])
    peer.answers.set()
    await until(lambda: not channel.waiting)
    assert renewed == [7]
    assert len(peer.got) == 2
    await channel.close()
    assert peer.server is not None
    peer.server.close()


def test_a_call_knows_its_header() -> None:
    body = s.make(s.request_type(s.API_VERSIONS, 0))
    found = call(s.API_VERSIONS, 0, body)
    assert (found.correlation_id, found.client_id) == (11, "broker-1")
