"""The attacks by name. Each goes on until it is cancelled, and counts how its calls and connections
end. What they know: the ports, and where there is TLS a certificate without rights.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import itertools
import os
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
from quorate.bridge.messages import schemas as s
from quorate.common.error_codes import ErrorCode
from quorate.rpc.fields import directory_to_wire
from quorate.rpc.wire.limits import MESSAGE_BYTES_MAX
from quorate.rpc.wire.methods import RPC_METHODS
from quorate.rpc.wire.weighing import MESSAGE_WEIGHT
from quorate.v1 import common_pb2, metadata_pb2, quorum_pb2, raft_pb2

from tests.flood import be_greedy
from tests.integration.support import CLUSTER, HOST
from tests.pressure import http2
from tests.pressure.target import Aim

Ended = Counter[str]
Behave = Callable[[Aim, Ended], Coroutine[Any, Any, None]]

MIB = 1024 * 1024
DESCRIBE = "/quorate.v1.Quorum/DescribeQuorum"
PAUSE_S = 0.05
"""After a refused connection: an attacker that asks without a pause has no time to attack."""


@dataclass(frozen=True, slots=True)
class Attack:
    """tls: whether the controller has TLS. settings: of the controller besides. seconds: how long
    it goes on before the client is timed.
    """

    behave: Behave
    what: str
    tls: bool = False
    seconds: float = 1.0
    settings: tuple[tuple[str, object], ...] = ()


ATTACKS: dict[str, Attack] = {}


def attack(name: str, what: str, **fields: Any) -> Callable[[Behave], Behave]:
    def add(behave: Behave) -> Behave:
        ATTACKS[name] = Attack(behave, what, **fields)
        return behave

    return add


async def together(*parts: Coroutine[Any, Any, None]) -> None:
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def again(ended: Ended, act: Callable[[], Awaitable[object]], pause_s: float = 0.0) -> None:
    """One act after the other; counts how each ends."""
    while True:
        try:
            result = await act()
            ended[str(result or "OK")] += 1
        except grpc.aio.AioRpcError as error:
            ended[error.code().name] += 1
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                await asyncio.sleep(PAUSE_S)
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            ended[type(error).__name__] += 1
            await asyncio.sleep(PAUSE_S)
        await asyncio.sleep(pause_s)


@contextlib.asynccontextmanager
async def connection(
    port: int, context: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(HOST, port, ssl=context)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def kept(ended: Ended, count: int, port: int, first: bytes) -> None:
    """Connections that send a few bytes and wait, and come again when they are closed."""

    async def one() -> str:
        async with connection(port) as (reader, writer):
            ended["connected"] += 1
            writer.write(first)
            while await reader.read(65_536):
                pass
            return "closed"

    await together(*(again(ended, one, PAUSE_S) for _ in range(count)))


# --- connections ----------------------------------------------------------------------------------


@attack("idle-connections", "1,000 clients of gRPC connect and ask nothing", seconds=5)
async def idle_connections(aim: Aim, ended: Ended) -> None:
    channels = [aim.channel() for _ in range(1_000)]
    try:
        for channel in channels:
            await channel.channel_ready()
            ended["connected"] += 1
        await asyncio.Event().wait()
    finally:
        await asyncio.gather(*(channel.close() for channel in channels))


@attack("silent-connections", "4,000 TCP connections to gRPC say nothing", seconds=5)
async def silent_connections(aim: Aim, ended: Ended) -> None:
    await kept(ended, 4_000, aim.grpc, b"")


@attack("connects", "connections to gRPC, closed at once, one after the other")
async def connects(aim: Aim, ended: Ended) -> None:
    async def one() -> None:
        async with connection(aim.grpc):
            pass

    await together(*(again(ended, one) for _ in range(4)))


@attack("slow-http", "300 connections to the probes' listener send one byte")
async def slow_http(aim: Aim, ended: Ended) -> None:
    await kept(ended, 300, aim.http, b"G")


@attack("metrics", "/metrics without a pause, 16 at a time")
async def metrics(aim: Aim, ended: Ended) -> None:
    async def one() -> str:
        async with connection(aim.http) as (reader, writer):
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            return (await reader.read()).split(b" ", 2)[1].decode()

    await together(*(again(ended, one) for _ in range(16)))


@attack("http-heads", "endless header lines to the probes' listener, 64 at a time")
async def http_heads(aim: Aim, ended: Ended) -> None:
    async def one() -> str:
        async with connection(aim.http) as (reader, writer):
            writer.write(b"GET /healthz HTTP/1.1\r\n")
            for number in itertools.count():
                writer.write(f"x-{number}: ".encode() + b"y" * 1_000 + b"\r\n")
                await writer.drain()
                if number > 16:
                    break
            return (await reader.read()).split(b" ", 2)[1].decode()

    await together(*(again(ended, one) for _ in range(64)))


# --- TLS ------------------------------------------------------------------------------------------


def client_hello(aim: Aim) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cafile=aim.authority)
    context.set_alpn_protocols(["h2"])
    session = context.wrap_bio(incoming, outgoing, server_hostname=HOST)
    with contextlib.suppress(ssl.SSLWantReadError):
        session.do_handshake()
    return outgoing.read()


async def hellos(ended: Ended, hello: bytes, port: int) -> None:
    """ClientHello, then the connection is dropped when the server's costly answer arrives."""

    async def one() -> str:
        async with connection(port) as (reader, writer):
            writer.write(hello)
            return "answered" if await reader.read(65_536) else "closed"

    await together(*(again(ended, one) for _ in range(8)))


@attack("tls-hellos-grpc", "TLS handshakes with gRPC, dropped after the ClientHello", tls=True)
async def tls_hellos_grpc(aim: Aim, ended: Ended) -> None:
    await hellos(ended, client_hello(aim), aim.grpc)


@attack("tls-hellos-kafka", "the same with the listener for Kafka's brokers", tls=True)
async def tls_hellos_kafka(aim: Aim, ended: Ended) -> None:
    await hellos(ended, client_hello(aim), aim.kafka)


@attack("tls-handshakes", "whole TLS handshakes with gRPC, one after the other", tls=True)
async def tls_handshakes(aim: Aim, ended: Ended) -> None:
    context = aim.client_context()

    async def one() -> None:
        async with connection(aim.grpc, context):
            pass

    await together(*(again(ended, one) for _ in range(8)))


@attack("tls-half", "500 connections to gRPC send half a ClientHello", tls=True, seconds=3)
async def tls_half(aim: Aim, ended: Ended) -> None:
    await kept(ended, 500, aim.grpc, client_hello(aim)[:100])


# --- HTTP/2 ---------------------------------------------------------------------------------------


async def frames(
    aim: Aim, ended: Ended, make: Callable[[int], bytes], before: bytes = b"", count: int = 2
) -> None:
    """Frames without a pause; make: a hundred, of the stream with this number on."""

    async def one() -> str:
        made = await http2.Connection.open(aim)
        try:
            await made.send(before)
            for stream in itertools.count(1, 200):
                if made.is_closed:
                    break
                await made.send(make(stream))
                ended["frames"] += 100
                await asyncio.sleep(0)
            return "closed"
        finally:
            await made.close()

    await together(*(again(ended, one, PAUSE_S) for _ in range(count)))


@attack("rapid-reset", "calls that are reset at once (CVE-2023-44487)")
async def rapid_reset(aim: Aim, ended: Ended) -> None:
    headers = http2.call_headers(DESCRIBE)

    def make(first: int) -> bytes:
        return b"".join(
            http2.frame(http2.HEADERS, http2.END_HEADERS, stream, headers)
            + http2.data_frames(stream, http2.message(b""))
            + http2.frame(http2.RST_STREAM, 0, stream, http2.CANCEL.to_bytes(4, "big"))
            for stream in range(first, first + 200, 2)
        )

    await frames(aim, ended, make)


@attack("continuation", "one HEADERS frame and CONTINUATION without end (CVE-2024-27316)")
async def continuation(aim: Aim, ended: Ended) -> None:
    begin = http2.frame(http2.HEADERS, 0, 1, http2.call_headers(DESCRIBE))
    more = http2.frame(http2.CONTINUATION, 0, 1, http2.field("a", "b" * 1_000)) * 100
    await frames(aim, ended, lambda _: more, begin)


@attack("pings", "PING frames without a pause")
async def pings(aim: Aim, ended: Ended) -> None:
    data = http2.frame(http2.PING, 0, 0, b"12345678") * 100
    await frames(aim, ended, lambda _: data)


@attack("settings", "SETTINGS frames without a pause")
async def settings(aim: Aim, ended: Ended) -> None:
    data = http2.settings(_3=100) * 100
    await frames(aim, ended, lambda _: data)


@attack("window-updates", "window updates of one byte, and empty DATA frames")
async def window_updates(aim: Aim, ended: Ended) -> None:
    headers = http2.frame(http2.HEADERS, http2.END_HEADERS, 1, http2.call_headers(DESCRIBE))
    pair = http2.frame(http2.WINDOW_UPDATE, 0, 0, b"\0\0\0\1") + http2.frame(http2.DATA, 0, 1)
    await frames(aim, ended, lambda _: pair * 50, headers)


@attack("large-headers", "calls with 10,000 headers, and with one of 15,000 bytes")
async def large_headers(aim: Aim, ended: Ended) -> None:
    many = [(f"x-{number}", "y") for number in range(10_000)]
    large = [("x-large", "y" * 15_000)]

    async def one(metadata: list[tuple[str, str]]) -> None:
        async with aim.channel() as channel:
            call = channel.unary_unary(DESCRIBE)
            for _ in range(10):
                try:
                    await call(b"", metadata=metadata, timeout=5)
                    ended["OK"] += 1
                except grpc.aio.AioRpcError as error:
                    ended[error.code().name] += 1

    await together(*(again(ended, lambda m=m: one(m)) for m in (many, large)))  # type: ignore[misc]


@attack("open-streams", "4 connections with 1,024 calls each that send no message", seconds=3)
async def open_streams(aim: Aim, ended: Ended) -> None:
    headers = http2.call_headers(DESCRIBE)

    async def one() -> str:
        made = await http2.Connection.open(aim)
        try:
            for number in range(1_024):
                stream = 2 * number + 1
                await made.send(http2.frame(http2.HEADERS, http2.END_HEADERS, stream, headers))
                ended["calls"] += 1
            await made.closed()
            return "closed"
        finally:
            await made.close()

    await together(*(again(ended, one, PAUSE_S) for _ in range(4)))


# --- messages -------------------------------------------------------------------------------------


@attack("greedy-calls", "200 clients ask in tight loops and park Fetches", seconds=3)
async def greedy_calls(aim: Aim, ended: Ended) -> None:
    await together(*(be_greedy(aim.address, number, ended) for number in range(200)))


@attack("too-large-messages", "messages of 16 MiB and one byte, 4 at a time")
async def too_large_messages(aim: Aim, ended: Ended) -> None:
    data = bytes(MESSAGE_BYTES_MAX + 1)
    async with aim.channel() as channel:
        call = channel.unary_unary(DESCRIBE)
        await together(*(again(ended, lambda: call(data, timeout=10)) for _ in range(4)))


@attack("half-sent-messages", "200 calls send 16 MiB but for the last byte", seconds=5)
async def half_sent_messages(aim: Aim, ended: Ended) -> None:
    headers = http2.call_headers("/quorate.v1.Quorum/Append")
    data = http2.message(bytes(MESSAGE_BYTES_MAX))[:-1]

    async def one() -> str:
        made = await http2.Connection.open(aim)
        try:
            for stream in range(1, 51, 2):
                await made.send(http2.frame(http2.HEADERS, http2.END_HEADERS, stream, headers))
                await made.send_data(stream, data, ends=False)
                ended["half sent"] += 1
            await made.closed()
            return "closed"
        finally:
            await made.close()

    await together(*(again(ended, one, PAUSE_S) for _ in range(8)))


@attack("amplified-messages", "requests of millions of empty items, as many as allowed, and more")
async def amplified_messages(aim: Aim, ended: Ended) -> None:
    names = ("CreateTopics", "DeleteTopics", "CreatePartitions", "AlterPartition", "Append")
    requests = []
    for rpc in (RPC_METHODS[name] for name in names):
        number = next(each.number for each in rpc.request.DESCRIPTOR.fields if each.is_repeated)
        item = bytes((number << 3 | 2, 0))
        counts = [(MESSAGE_BYTES_MAX - 64) // 2]
        if rpc.values is not None:
            counts.append(rpc.weight_max // MESSAGE_WEIGHT)
        requests += [(rpc, item * count) for count in counts]
    turn = itertools.cycle(requests)
    async with aim.channel() as channel:

        async def one() -> str:
            rpc, data = next(turn)
            call = channel.unary_unary(rpc.path, response_deserializer=rpc.response.FromString)
            answer: Any = await call(data, timeout=30)
            return ErrorCode(answer.error_code).name

        await together(*(again(ended, one) for _ in range(2)))


@attack("quadratic-requests", "as many different names as a request may have")
async def quadratic_requests(aim: Aim, ended: Ended) -> None:
    users = metadata_pb2.DescribeUserScramCredentialsRequest()
    users.users.values.extend(f"n{number:x}" for number in range(120_000))
    topics = metadata_pb2.CreatePartitionsRequest()
    for number in range(12_000):
        topics.topics.add(name=f"n{number:x}", count=1)
    turn = itertools.cycle([("DescribeUserScramCredentials", users), ("CreatePartitions", topics)])
    async with aim.channel() as channel:

        async def one() -> str:
            name, request = next(turn)
            rpc = RPC_METHODS[name]
            call = channel.unary_unary(rpc.path, response_deserializer=rpc.response.FromString)
            answer: Any = await call(request.SerializeToString(), timeout=30)
            return ErrorCode(answer.error_code).name

        await together(*(again(ended, one) for _ in range(2)))


@attack("gzip-bombs", "messages of 16 MiB compressed to 16 KiB")
async def gzip_bombs(aim: Aim, ended: Ended) -> None:
    data = gzip.compress(bytes(MESSAGE_BYTES_MAX - 64))
    headers = http2.call_headers("/quorate.v1.Quorum/Append", {"grpc-encoding": "gzip"})
    whole = http2.message(data, is_compressed=True)

    async def one() -> str:
        made = await http2.Connection.open(aim)
        try:
            for stream in itertools.count(1, 2):
                if made.is_closed:
                    break
                await made.send(http2.frame(http2.HEADERS, http2.END_HEADERS, stream, headers))
                await made.send_data(stream, whole, ends=True)
                ended["messages"] += 1
                await asyncio.sleep(0.001)
            return "closed"
        finally:
            await made.close()

    await together(*(again(ended, one, PAUSE_S) for _ in range(4)))


@attack("tiny-appends", "AppendStream with messages of one record of one byte, without a pause")
async def tiny_appends(aim: Aim, ended: Ended) -> None:
    request = quorum_pb2.AppendRequest(records=[{"key": b"k", "value": b"v"}])

    async def one() -> None:
        async with aim.channel() as channel:
            call = channel.stream_stream(
                "/quorate.v1.Quorum/AppendStream",
                response_deserializer=quorum_pb2.AppendResponse.FromString,
            )()

            async def send() -> None:
                for number in itertools.count(1):
                    request.correlation_id = number
                    await call.write(request.SerializeToString())

            async def take() -> None:
                while (answer := await call.read()) is not grpc.aio.EOF:
                    ended[ErrorCode(answer.error_code).name] += 1

            await together(send(), take())

    await together(*(again(ended, one) for _ in range(4)))


@attack("observers", "invented observers with large endpoints")
async def observers(aim: Aim, ended: Ended) -> None:
    number = itertools.count(1_000)
    async with aim.channel() as channel:
        fetch = channel.unary_unary(
            "/quorate.v1.Raft/Fetch",
            request_serializer=raft_pb2.FetchRequest.SerializeToString,
            response_deserializer=raft_pb2.FetchResponse.FromString,
        )

        async def one(host_size: int) -> str:
            ends = [common_pb2.Endpoint(name=f"C{n}", host="h" * host_size, port=1) for n in (1, 2)]
            answer = await fetch(
                raft_pb2.FetchRequest(
                    cluster_id=CLUSTER,
                    epoch=1,
                    replica=common_pb2.ReplicaKey(id=next(number), directory_id=os.urandom(16)),
                    endpoints=ends,
                ),
                timeout=30,
            )
            return ErrorCode(answer.error_code).name

        sizes = [255, 30_000] * 10
        await together(*(again(ended, lambda size=size: one(size)) for size in sizes))  # type: ignore[misc]


@attack("slow-readers", "800 streams ask for records of 7 MiB and take nothing", seconds=5)
async def slow_readers(aim: Aim, ended: Ended) -> None:
    async with aim.channel() as channel:
        append = channel.unary_unary(
            "/quorate.v1.Quorum/Append",
            request_serializer=quorum_pb2.AppendRequest.SerializeToString,
            response_deserializer=quorum_pb2.AppendResponse.FromString,
        )
        large = quorum_pb2.AppendRequest(records=[{"key": b"k", "value": bytes(7 * MIB)}])
        answer: Any = await append(large, timeout=30)
    offset = answer.base_offset
    read = quorum_pb2.ReadRequest(from_offset=offset, linearizable=False).SerializeToString()

    def fetch(number: int) -> bytes:
        key = common_pb2.ReplicaKey(id=number, directory_id=directory_to_wire("A" * 21 + "Q"))
        return raft_pb2.FetchRequest(
            cluster_id=CLUSTER, replica=key, epoch=1, offset=offset, last_epoch=1
        ).SerializeToString()

    async def one(first: int) -> str:
        made = await http2.Connection.open(aim)
        try:
            for number in range(100):
                stream = 2 * number + 1
                is_read = number % 2 == 0
                path = "/quorate.v1.Quorum/Read" if is_read else "/quorate.v1.Raft/FetchStream"
                headers = http2.call_headers(path)
                data = http2.message(read if is_read else fetch(first + number))
                await made.send(
                    http2.frame(http2.HEADERS, http2.END_HEADERS, stream, headers)
                    + http2.data_frames(stream, data, ends=is_read)
                )
                ended["asked"] += 1
                await asyncio.sleep(0.001)
            before = 0
            while not made.is_closed:
                await asyncio.sleep(0.1)
                ended["reset"] += made.resets - before
                before = made.resets
            return "closed"
        finally:
            await made.close()

    await together(*(again(ended, lambda n=n: one(n), PAUSE_S) for n in range(1_000, 1_800, 100)))  # type: ignore[misc]


@attack("watchers", "20 connections follow the log 200 times each and take nothing", seconds=5)
async def watchers(aim: Aim, ended: Ended) -> None:
    request = quorum_pb2.ReadRequest(linearizable=False, follow=True).SerializeToString()
    headers = http2.call_headers("/quorate.v1.Quorum/Read")

    async def one() -> str:
        made = await http2.Connection.open(aim)
        try:
            for number in range(200):
                stream = 2 * number + 1
                await made.send(
                    http2.frame(http2.HEADERS, http2.END_HEADERS, stream, headers)
                    + http2.data_frames(stream, http2.message(request), ends=True)
                )
                ended["asked"] += 1
                await asyncio.sleep(0.001)
            await made.closed()
            return "closed"
        finally:
            await made.close()

    await together(*(again(ended, one, PAUSE_S) for _ in range(20)))


# --- the listener for Kafka's brokers -------------------------------------------------------------


@attack("kafka-partial-frames", "150 frames of 8 MiB but for the last byte", seconds=3)
async def kafka_partial_frames(aim: Aim, ended: Ended) -> None:
    first = (8 * MIB).to_bytes(4, "big")
    body = bytes(8 * MIB - 1)

    async def one() -> str:
        async with connection(aim.kafka) as (reader, writer):
            ended["connected"] += 1
            writer.write(first)
            writer.write(body)
            while await reader.read(65_536):
                pass
            return "closed"

    await together(*(again(ended, one, PAUSE_S) for _ in range(150)))


@attack("kafka-empty-items", "frames of 8 MiB of empty topics")
async def kafka_empty_items(aim: Aim, ended: Ended) -> None:
    module = s.request_module(s.CREATE_TOPICS, 7)
    topic = s.make(
        module.CreatableTopic,
        name="",
        num_partitions=1,
        replication_factor=1,
        assignments=(),
        configs=(),
    )
    one = s.write(topic)
    count = (8 * MIB - 100) // len(one)
    length = bytes((count + 1 >> shift & 127 | (128 if shift < 14 else 0)) for shift in (0, 7, 14))
    frame = s.write_header(s.CREATE_TOPICS, 7, 1, "x") + length + one * count + bytes(6)
    data = len(frame).to_bytes(4, "big") + frame

    async def ask() -> str:
        async with connection(aim.kafka) as (reader, writer):
            writer.write(data)
            return "answered" if await reader.read(65_536) else "closed"

    await together(*(again(ended, ask) for _ in range(4)))


@attack("kafka-connections", "2,000 connections to the listener for Kafka's brokers", seconds=3)
async def kafka_connections(aim: Aim, ended: Ended) -> None:
    await kept(ended, 2_000, aim.kafka, b"")
