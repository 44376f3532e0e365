"""Appends in frames: a client that finds them, the listener that takes them, what breaks between.

The node has a real gRPC server and a real listener for Kafka's protocol; the log is in memory.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from quorate.applications.sessions import ProducerSessions
from quorate.bridge.framing.frames import Decoder, Unfinished
from quorate.bridge.listener.connections import Connections
from quorate.bridge.listener.server import BridgeServer
from quorate.common.error_codes import ErrorCode
from quorate.metadata.authorizer import AclAuthorizer
from quorate.raft.messages import CurrentLeader
from quorate.records.batch import BatchProducer
from quorate.rpc.client import client_stream, framed_call
from quorate.rpc.client.appending import AppendConnection
from quorate.rpc.client.framed_call import FramedCall
from quorate.rpc.client.quorum_client import OutcomeUnknownError, QuorumClient
from quorate.rpc.framing import frame_stream
from quorate.rpc.framing.frame_stream import FrameStream, connect
from quorate.rpc.principals import Caller
from quorate.rpc.server import framed_appends
from quorate.rpc.server.authorizer import CallAuthorizer, Denial
from quorate.rpc.server.framed_appends import FramedAppends
from quorate.rpc.server.grpc_server import RpcServer, start_server
from quorate.rpc.tls import TlsConfig
from quorate.rpc.wire.frames import OPENING, FramesOpened, decode_opened, encode_opening
from quorate.rpc.wire.limits import ChannelLimits, ServerLimits
from quorate.rpc.wire.values import NO_CONDITIONS, AppendOutcome, LogOffsets, NodeStatus
from quorate.rpc.wire.values import OpaqueRecord as Record
from quorate.runtime.authorizer import NodeAuthorizer, PeerIdentity
from quorate.v1 import quorum_pb2

from tests.certificates import make_authority, make_certificate
from tests.unit.bridge.test_server import Busy
from tests.unit.rpc.rpc_support import CLUSTER, DIRECTORY, HOST, Node, address_of, endpoint_of

SOON_S = 5.0


@dataclass
class Leader(Node):
    """A leader with producer sessions. port: what its status announces. until: appends wait."""

    port: int = 0
    values: list[bytes | None] = field(default_factory=list)
    until: asyncio.Event | None = None

    async def append(
        self,
        records: Any,
        timeout_ms: int,
        _conditions: LogOffsets = NO_CONDITIONS,
        producer: BatchProducer | None = None,
    ) -> AppendOutcome:
        self.begun.set()
        if self.until is not None:
            await self.until.wait()
        return await super().append(records, timeout_ms, _conditions, producer)

    def store(self, records: Any) -> int:
        base = super().store(records)
        self.values += [value for key, value in records if key is not None]
        return base

    async def node_status(self) -> NodeStatus:
        return NodeStatus(
            self.id, True, self.cluster_id, DIRECTORY, "leader", frames_port=self.port
        )


@dataclass
class Lab:
    """A node and its two listeners."""

    leader: Leader
    rpc: RpcServer
    listener: BridgeServer
    connections: Connections
    unfinished: Unfinished
    messages: list[None] = field(default_factory=list)

    @property
    def frames_port(self) -> int:
        return int(self.listener.addresses[0][1])

    def client(self, **options: Any) -> QuorumClient:
        return QuorumClient([address_of(self.rpc)], **options)

    async def raw(self) -> FrameStream:
        """A connection that has sent nothing."""
        return await connect(FrameStream(), HOST, self.frames_port)

    async def opened(self, first: bytes | None = None) -> tuple[FrameStream, FramesOpened]:
        stream = await self.raw()
        await stream.send(encode_opening(CLUSTER) if first is None else first)
        answer = await stream.frame(SOON_S)
        assert answer is not None
        return stream, decode_opened(answer)


@asynccontextmanager
async def a_lab(
    *,
    tls: TlsConfig | None = None,
    authorizer: CallAuthorizer | None = None,
    limits: ServerLimits | None = None,
    connections: Connections | None = None,
    bytes_max: int = 1 << 26,
) -> AsyncIterator[Lab]:
    leader = Leader(sessions=ProducerSessions(0))
    rpc = await start_server([f"{HOST}:0"], leader, tls, limits, authorizer=authorizer)
    messages: list[None] = []
    appends = FramedAppends(
        leader, limits or ServerLimits(), authorizer, lambda: messages.append(None)
    )
    connections = connections or Connections()
    unfinished = Unfinished(bytes_max)
    listener = BridgeServer(
        Busy(),
        Decoder(),
        connections=connections,
        unfinished=unfinished,
        tls=tls,
        appends=appends,
    )
    await listener.start(HOST, 0)
    leader.leader = CurrentLeader(3, 1, (endpoint_of(rpc),))
    lab = Lab(leader, rpc, listener, connections, unfinished, messages)
    leader.port = lab.frames_port
    try:
        yield lab
    finally:
        await listener.stop()
        await rpc.stop(0)


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with a_lab() as made:
        yield made


@pytest.fixture
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again soon."""
    monkeypatch.setattr(framed_call, "RETRY_S", 0.02)
    monkeypatch.setattr(framed_call, "RETRY_MAX_S", 0.1)


def connection_of(client: QuorumClient) -> AppendConnection:
    (found,) = [each for each in client._appender._connections.values() if each.is_open]
    return found


def is_framed(client: QuorumClient) -> bool:
    return isinstance(connection_of(client)._call, FramedCall)


async def is_closed(stream: FrameStream) -> bool:
    """Whether the listener closes it without another frame."""
    try:
        return await stream.frame(SOON_S) is None
    except OSError:
        return True


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def until_framed(client: QuorumClient) -> None:
    await client.append_value(b"first")
    await until(lambda: is_framed(client))


def request(number: int, value: bytes = b"v", **fields: Any) -> bytes:
    record = quorum_pb2.Record(key=b"k", value=value)
    return quorum_pb2.AppendRequest(
        correlation_id=number, records=[record], **fields
    ).SerializeToString()


async def answer(stream: FrameStream) -> quorum_pb2.AppendResponse:
    frame = await stream.frame(SOON_S)
    assert frame is not None
    return quorum_pb2.AppendResponse.FromString(frame)


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


@pytest.mark.usefixtures("_fast")
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


@pytest.mark.usefixtures("_fast")
async def test_a_refused_port_is_tried_again(lab: Lab) -> None:
    lab.leader.port = 1
    async with lab.client() as client:
        await client.append_value(b"first")
        await asyncio.sleep(0.1)
        lab.leader.port = lab.frames_port
        await until(lambda: is_framed(client))


@pytest.mark.usefixtures("_fast")
async def test_a_port_that_never_answers_is_tried_once(lab: Lab) -> None:
    accepted: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(lambda _reader, writer: accepted.append(writer), HOST, 0)
    lab.leader.port = silent.sockets[0].getsockname()[1]
    limits = ChannelLimits(connect_timeout_ms=100)
    async with silent, lab.client(limits=limits) as client:
        await client.append_value(b"first")
        await asyncio.sleep(0.5)
        await client.append_value(b"second")
        assert not is_framed(client)
        for writer in accepted:
            writer.close()
    assert len(accepted) == 1


@pytest.mark.usefixtures("_fast")
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


# --- the listener ---------------------------------------------------------------------------------


async def test_messages_are_answered_as_they_are_done(lab: Lab) -> None:
    stream, opened = await lab.opened()
    assert opened == FramesOpened(ErrorCode.NONE, cluster_id=CLUSTER)
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
    assert opened == FramesOpened(ErrorCode.NONE, cluster_id=CLUSTER)
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


class Changing:
    """Denies appends while `denies`; gRPC's calls are those of nobody in particular."""

    def __init__(self) -> None:
        self.denies = False
        self.callers: list[Caller] = []

    def caller(self, _context: Any) -> Caller:
        return Caller("User:grpc")

    def refusal(self, caller: Caller, name: str, _request: object = None) -> Denial | None:
        if name != "AppendStream":
            return None
        self.callers.append(caller)
        denied = Denial(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not you")
        return denied if self.denies else None

    def authorize(self, caller: Caller, name: str, request: Any) -> Any:
        raise AssertionError


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


@pytest.mark.usefixtures("_fast")
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


@pytest.mark.usefixtures("_fast")
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
