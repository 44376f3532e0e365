"""The response streams of reads that follow the log: who may read, and who takes nothing."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

import grpc.aio
import pytest
from quorate.common.error_codes import ErrorCode
from quorate.raft.messages import CurrentLeader
from quorate.rpc.client.quorum_client import AdminError
from quorate.rpc.principals import Caller
from quorate.rpc.server import watch_stream
from quorate.rpc.server.authorizer import Context, Denial
from quorate.rpc.server.grpc_server import start_server
from quorate.rpc.server.handler import SharedChunk
from quorate.rpc.wire.codecs import CODECS
from quorate.rpc.wire.values import ReadChunk, ReadRequest

from tests.unit.runtime.replicas import alone, until
from tests.unit.runtime.test_runtime_watchers import append, follow, take
from tests.unit.runtime.watch_support import HOST, Served, served, service_of

READ = CODECS["Read"]


class Rights:
    """A `CallAuthorizer` that allows Read until the test takes the right away."""

    def __init__(self) -> None:
        self.may_read = True

    def caller(self, context: Context) -> Caller:
        return Caller(None, "127.0.0.1", frozenset(), has_certificate=False)

    def refusal(self, caller: Caller, name: str, request: object = None) -> Denial | None:
        if name != "Read" or self.may_read:
            return None
        return Denial(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no longer")

    def authorize(self, caller: Caller, name: str, request: object) -> Denial:
        raise AssertionError(name)


@pytest.mark.parametrize("is_idle", [False, True])
async def test_a_stream_ends_when_its_caller_may_no_longer_read(
    tmp_path: Path, is_idle: bool
) -> None:
    rights = Rights()
    async with alone(tmp_path / "a") as replica:
        times = {"keepalive_s": 0.1, "tick_s": 0.02} if is_idle else {}
        async with service_of(replica, **times) as node:
            server = await start_server([f"{HOST}:0"], node.service, authorizer=rights)
            checked = Served(replica, node.service, server)
            async with node.client() as writer, checked.client() as client:
                appended = await append(writer, 0, 2)
                async with aclosing(client.read(follow=True)) as records:
                    assert await take(records, 2) == appended
                    rights.may_read = False
                    if not is_idle:
                        await append(writer, 2, 1)
                    with pytest.raises(AdminError, match="AUTHORIZATION_FAILED: no longer"):
                        await take(records, 1)
                with pytest.raises(AdminError, match="AUTHORIZATION_FAILED: no longer"):
                    await anext(client.read(follow=True))
            await until("the watchers are gone", lambda: node.hub.count == 0)
            await server.stop(0)


@pytest.mark.parametrize("has_guard", [False, True])
async def test_a_client_that_takes_nothing_loses_its_stream(
    tmp_path: Path, has_guard: bool
) -> None:
    async with served(tmp_path / "a", stalled_s=0.3, tick_s=0.05) as node, node.client() as client:
        ended: list[str] = []
        if has_guard:
            node.server.watch_memory.end = lambda peer, reason: ended.append(reason)
        async with grpc.aio.insecure_channel(node.address) as channel:
            call = READ.method.stub(channel)(READ.encode_request(follow(0)))
            await call.read()
            for _ in range(200):  # more than the windows of HTTP/2 hold
                await client.append([(b"", bytes(60_000))])
            if has_guard:
                await until("its connection is closed", lambda: ended)
                assert "has not taken a response to Read" in ended[0]
            else:
                await until("its stream ends", lambda: node.hub.count == 0)
            call.cancel()
        await until("the watcher is gone", lambda: node.hub.count == 0)


async def test_a_client_that_leaves_is_forgotten(tmp_path: Path) -> None:
    async with served(tmp_path / "a") as node:
        for _ in range(3):
            async with grpc.aio.insecure_channel(node.address) as channel:
                calls = [READ.method.stub(channel)(READ.encode_request(follow(0))) for _ in "abc"]
                for call in calls:
                    await call.read()
                assert node.hub.count == 3
                calls[0].cancel()
                await until("one left", lambda: node.hub.count == 2)
            await until("all left", lambda: node.hub.count == 0)


async def test_a_large_batch_reaches_every_watcher(tmp_path: Path) -> None:
    """Responses wait for room, which those of several clients do not have at once."""
    async with served(tmp_path / "a") as node, AsyncExitStack() as stack:
        client, *others = [await stack.enter_async_context(node.client()) for _ in range(13)]
        begin = await client.append_value(b"first")
        readers = [each.read(begin + 1, follow=True, max_records=2) for each in others]
        tasks = [asyncio.create_task(_sizes(reader)) for reader in readers]
        await until("all wait", lambda: node.hub.count == 12)
        for size in (7_000_000, 6_000_000):
            await client.append([(b"", bytes(size))])
        assert await asyncio.gather(*tasks) == 12 * [[7_000_000, 6_000_000]]
        assert node.server.watch_memory.bytes == 0
        assert node.server.response_memory.bytes == 0


async def _sizes(records: object) -> list[int]:
    return [len(record.value) async for record in records]  # type: ignore[attr-defined]


@pytest.mark.parametrize("size", [10, 2 << 20])
async def test_a_shared_chunk_is_encoded_once(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    encodings = 0
    encode = watch_stream.encode_chunk

    async def counted(chunk: ReadChunk) -> bytes:
        nonlocal encodings
        encodings += 1
        return await encode(chunk)

    monkeypatch.setattr(watch_stream, "encode_chunk", counted)
    chunk = ReadChunk(ErrorCode.NONE, CurrentLeader(1), records=bytes(size), next_offset=4)
    shared = SharedChunk(chunk, 1)
    found = await asyncio.gather(*(watch_stream.encoded(shared) for _ in range(20)))
    assert encodings == 1
    assert len({id(data) for data in found}) == 1
    decoded = READ.decode_response(READ.method.response.FromString(found[0]))
    assert (decoded.next_offset, len(decoded.records)) == (4, size)


def test_a_request_to_follow_is_encoded() -> None:
    request = ReadRequest(7, 3, linearizable=False, follow=True)
    assert READ.decode_request(READ.encode_request(request)) == request
