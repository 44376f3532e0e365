"""A node that takes appends in frames: a real gRPC server, a real listener, a log in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from quorate.applications.sessions import ProducerSessions
from quorate.bridge.framing.frames import Decoder, Unfinished
from quorate.bridge.listener.connections import Connections
from quorate.bridge.listener.server import BridgeServer
from quorate.common.error_codes import ErrorCode
from quorate.raft.messages import CurrentLeader
from quorate.records.batch import BatchProducer
from quorate.rpc.client import framed_call
from quorate.rpc.client.appending import AppendConnection
from quorate.rpc.client.framed_call import FramedCall
from quorate.rpc.client.quorum_client import QuorumClient
from quorate.rpc.framing.frame_stream import FrameStream, connect
from quorate.rpc.principals import Caller
from quorate.rpc.server.authorizer import CallAuthorizer, Denial
from quorate.rpc.server.framed_appends import FramedAppends
from quorate.rpc.server.grpc_server import RpcServer, start_server
from quorate.rpc.tls import TlsConfig
from quorate.rpc.wire.frames import FramesOpened, decode_opened, encode_opening
from quorate.rpc.wire.limits import ServerLimits
from quorate.rpc.wire.values import NO_CONDITIONS, AppendOutcome, LogOffsets, NodeStatus
from quorate.v1 import quorum_pb2

from tests.unit.bridge.test_server import Busy
from tests.unit.rpc.rpc_support import CLUSTER, DIRECTORY, HOST, Node, address_of, endpoint_of

SOON_S = 5.0


@dataclass
class Leader(Node):
    """A leader with producer sessions. port: what its status announces. until: appends wait, and
    go on in the order of their arrival. message: of rejected appends, in place of a short one.
    """

    port: int = 0
    message: str = ""
    values: list[bytes | None] = field(default_factory=list)
    until: asyncio.Event | None = None
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def append(
        self,
        records: Any,
        timeout_ms: int,
        _conditions: LogOffsets = NO_CONDITIONS,
        producer: BatchProducer | None = None,
    ) -> AppendOutcome:
        self.begun.set()
        if self.until is not None:
            # The event alone lets a task pass that starts between `set` and the others' wake-up.
            async with self.turn:
                await self.until.wait()
        outcome = await super().append(records, timeout_ms, _conditions, producer)
        return outcome._replace(message=self.message or outcome.message)

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
        1, leader, limits or ServerLimits(), authorizer, lambda: messages.append(None)
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
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
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
