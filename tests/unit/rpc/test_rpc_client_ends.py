"""What ends the calls of a client: a timeout, which is positive, or the end of the client."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from quorate.common.endpoints import Endpoint
from quorate.raft.errors import MisuseError
from quorate.raft.types import ReplicaKey
from quorate.rpc.client.channels import Channels, Link
from quorate.rpc.client.quorum_client import QuorumClient, UnreachableError
from quorate.rpc.errors import ClientError, TransportError, TransportKind
from quorate.rpc.wire.limits import ChannelLimits

from tests.processes import free_ports
from tests.unit.rpc.rpc_support import HOST, NO_HANG_S, Pair

VOTER = ReplicaKey(7, "AAAAAAAAAAAAAAAAAAAABw")
ENDPOINTS = (Endpoint("CONTROLLER", "seven", 9093),)


async def test_closing_a_client_ends_reads_that_look_for_a_leader(pair: Pair) -> None:
    pair.lead(None, 4)
    client = QuorumClient(pair.addresses, request_timeout_ms=600_000)
    index = asyncio.create_task(client.read_index())
    await pair.nodes[1].begun.wait()
    await client.close()
    async with asyncio.timeout(NO_HANG_S):
        with pytest.raises(UnreachableError, match="the client is closed"):
            await index


async def test_closing_a_client_ends_calls_that_connect() -> None:
    """To a host that accepts connections and says nothing."""
    accepted = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set()
        try:
            await reader.read()
        finally:
            writer.close()

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        client = QuorumClient([f"127.0.0.1:{port}"], request_timeout_ms=600_000)

        async def read() -> None:
            async for _ in client.read():
                pass

        calls = [
            asyncio.create_task(client.read_index()),
            asyncio.create_task(client.append([(b"", b"value")])),
            asyncio.create_task(client.add_voter(VOTER, ENDPOINTS)),
            asyncio.create_task(client.describe_quorum()),
            asyncio.create_task(read()),
        ]
        async with asyncio.timeout(NO_HANG_S):
            await accepted.wait()
            await client.close()
            errors = await asyncio.gather(*calls, return_exceptions=True)
    for error in errors:
        assert isinstance(error, ClientError)
        assert re.search("the client (is|was) closed", str(error))


@pytest.mark.parametrize("timeout_ms", [0, -5])
async def test_a_timeout_is_positive(pair: Pair, timeout_ms: int) -> None:
    """Zero is not the default, nor for ever."""
    with pytest.raises(MisuseError, match="must be positive"):
        QuorumClient(pair.addresses, request_timeout_ms=timeout_ms)
    async with QuorumClient(pair.addresses) as client:
        for call in (
            client.append([(b"", b"value")], timeout_ms=timeout_ms),
            client.read_index(timeout_ms=timeout_ms),
            client.add_voter(VOTER, ENDPOINTS, timeout_ms=timeout_ms),
            client.transfer_leadership(VOTER, timeout_ms=timeout_ms),
        ):
            with pytest.raises(MisuseError, match="must be positive"):
                await call
        for follow in (False, True):
            with pytest.raises(MisuseError, match="must be positive"):
                client.read(follow=follow, timeout_ms=timeout_ms)
    assert [node.asked for node in pair.nodes] == [[], []]


class LateReason(Channels):
    """Channels whose call for the reason of a failed connection has no answer in time."""

    async def unary(self, link: Link, *_: Any) -> Any:
        raise TransportError(TransportKind.TIMEOUT, link.address, "no answer in time")


async def test_a_call_that_was_never_sent_certainly_did_nothing() -> None:
    channels = LateReason(None, ChannelLimits(), "test")
    try:
        link = channels.acquire(HOST, free_ports(1)[0])
        with pytest.raises(TransportError, match="no answer in time") as failed:
            await channels.connected(link, NO_HANG_S * 1_000)
        assert failed.value.nothing_done
    finally:
        await channels.close()
