"""Frames, messages and answers that a client of gRPC would not send, or not take.

Real controllers without TLS: nobody is refused for who they are. What each of them may hold is told
by `VmHWM`; that the client beside them is served, by its appends.
"""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from quorate.rpc.client.quorum_client import QuorumClient
from quorate.rpc.wire.limits import MESSAGE_BYTES_MAX
from quorate.rpc.wire.methods import RPC_METHODS
from quorate.v1 import metadata_pb2, quorum_pb2

from tests.pressure import http2
from tests.pressure.measuring import CORES, attackers
from tests.pressure.share import Share, make_share
from tests.pressure.target import Target

pytestmark = pytest.mark.timeout(120)

PEAK_MIB_MAX = 256
ATTACK_S = 3.0
APPEND_S = 20.0
APPENDS = 20
"""Each by a new client, so by a new call."""
READ_S = 40.0
LARGE_BYTES = 7 * 1024 * 1024


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    made = Target(tmp_path, tls=False)
    made.start()
    yield made
    made.node.kill()


@pytest.fixture
def share() -> Iterator[Share]:
    """Of the attackers, so that the client beside them has time to take its answers."""
    made = make_share(CORES)
    yield made
    made.close()


async def append(target: Target) -> None:
    async with QuorumClient([target.aim.address]) as client:
        await asyncio.wait_for(client.append_value(b"meanwhile"), APPEND_S)


@pytest.mark.parametrize("name", ["continuation", "rapid-reset", "settings", "pings"])
async def test_frames_without_end_are_cut_off(target: Target, share: Share, name: str) -> None:
    async with attackers(name, target.aim, share) as found:
        for _ in range(APPENDS):
            await append(target)
    assert found.ended["frames"] > 0
    assert target.peak_mib < PEAK_MIB_MAX
    assert "Traceback" not in target.node.said()


async def test_half_sent_messages_hold_little(target: Target, share: Share) -> None:
    async with attackers("half-sent-messages", target.aim, share) as found:
        await append(target)
        await asyncio.sleep(ATTACK_S)
    assert found.ended.total()
    target.node.wait_said("bytes of incomplete messages")
    assert target.peak_mib < PEAK_MIB_MAX


async def test_answers_that_nobody_takes_hold_little(target: Target, share: Share) -> None:
    """And who takes them is served."""
    async with attackers("slow-readers", target.aim, share) as found:
        await append(target)
        async with QuorumClient([target.aim.address]) as client:
            async with asyncio.timeout(READ_S):
                sizes = [len(record.value) async for record in client.read(0)]
        assert LARGE_BYTES in sizes
    assert found.ended["asked"] > 100
    target.node.wait_said("does not read its responses")
    assert target.peak_mib < PEAK_MIB_MAX


async def test_compressed_messages_are_refused(target: Target, share: Share) -> None:
    async with grpc.aio.insecure_channel(target.aim.address) as channel:
        ask = channel.unary_unary(RPC_METHODS["Append"].path)
        data = bytes(MESSAGE_BYTES_MAX - 64)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(data, compression=grpc.Compression.Gzip, timeout=10)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    async with attackers("gzip-bombs", target.aim, share):
        await append(target)
    assert target.peak_mib < PEAK_MIB_MAX
    # Bytes that say they are compressed and do not say how.
    made = await http2.Connection.open(target.aim)
    headers = http2.call_headers(RPC_METHODS["Append"].path)
    whole = http2.message(gzip.compress(bytes(1 << 20)), is_compressed=True)
    await made.send(
        http2.frame(http2.HEADERS, http2.END_HEADERS, 1, headers) + http2.data_frames(1, whole)
    )
    await append(target)
    await made.close()
    assert "Traceback" not in target.node.said()


def names_request(method: str, count: int) -> Any:
    names = [f"n{number:08x}" for number in range(count)]
    if method == "DescribeUserScramCredentials":
        users = metadata_pb2.DescribeUserScramCredentialsRequest()
        users.users.values.extend(names)
        return users
    topics = metadata_pb2.CreatePartitionsRequest()
    for name in names:
        topics.topics.add(name=name, count=1)
    return topics


@pytest.mark.parametrize("method", ["DescribeUserScramCredentials", "CreatePartitions"])
async def test_many_names_cost_as_much_as_they_are(target: Target, method: str) -> None:
    """Ten times as many: about ten times as long, not a hundred times."""
    rpc = RPC_METHODS[method]
    took: dict[int, float] = {}
    async with grpc.aio.insecure_channel(target.aim.address) as channel:
        ask = channel.unary_unary(
            rpc.path,
            request_serializer=rpc.request.SerializeToString,
            response_deserializer=rpc.response.FromString,
        )
        for count in (1_200, 12_000) * 3:
            request = names_request(method, count)
            began = time.monotonic()
            answer = await ask(request, timeout=30)
            assert answer.error_code == 0, answer.error_message
            took[count] = min(took.get(count, 60.0), time.monotonic() - began)
    assert took[12_000] < 40 * took[1_200], took


async def test_too_many_names_are_refused(target: Target) -> None:
    rpc = RPC_METHODS["DescribeUserScramCredentials"]
    async with grpc.aio.insecure_channel(target.aim.address) as channel:
        ask = channel.unary_unary(rpc.path, response_deserializer=rpc.response.FromString)
        request = names_request(rpc.name, 80_000)
        answer = await ask(request.SerializeToString(), timeout=30)
    assert "too many parts" in answer.error_message


async def test_a_million_tiny_appends_wait_for_others(target: Target) -> None:
    """Many in flight on a stream that is not read: its own messages wait, not those of others."""
    async with grpc.aio.insecure_channel(target.aim.address) as channel:
        call = channel.stream_stream("/quorate.v1.Quorum/AppendStream")()
        sent = 0

        async def send() -> None:
            nonlocal sent
            request = quorum_pb2.AppendRequest(records=[{"key": b"k", "value": b"v"}])
            while sent < 1_000_000:
                sent += 1
                request.correlation_id = sent
                await call.write(request.SerializeToString())

        task = asyncio.create_task(send())
        await asyncio.sleep(ATTACK_S)
        for _ in range(5):
            await append(target)
        task.cancel()
        await asyncio.wait([task])
        call.cancel()
    assert sent > 100
    assert target.peak_mib < PEAK_MIB_MAX
