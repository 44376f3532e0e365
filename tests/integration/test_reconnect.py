"""A peer that is back is reached by the very next call, however long it was away.

gRPC waits ever longer between its attempts to connect and fails calls meanwhile with the last
attempt's error. A follower that believed it would take a leader that has just started for dead.
"""

from __future__ import annotations

import asyncio

import grpc.aio
import pytest
from quorate.rpc.client.channels import NODE_STATUS, Channels
from quorate.rpc.errors import TransportError, TransportKind
from quorate.rpc.wire.limits import ChannelLimits
from quorate.v1 import quorum_pb2

from tests.integration.support import HOST, free_ports

AWAY_S = 1.5
RETRY_S = 0.05
TIMEOUT_MS = 10_000


async def outcome(channels: Channels, port: int) -> TransportKind:
    """Why a call fails: nobody listens, or somebody who does not serve it."""
    request, reply = quorum_pb2.NodeStatusRequest(), quorum_pb2.NodeStatusResponse
    with channels.use(HOST, port) as link:
        with pytest.raises(TransportError) as failed:
            await channels.unary(link, NODE_STATUS, request, reply, TIMEOUT_MS)
        return failed.value.kind


async def test_a_peer_that_is_back_is_reached_at_once() -> None:
    port = free_ports(1)[0]
    channels = Channels(None, ChannelLimits(), "test")
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    try:
        for _ in range(int(AWAY_S / RETRY_S)):
            assert await outcome(channels, port) is TransportKind.REFUSED
            await asyncio.sleep(RETRY_S)
        assert server.add_insecure_port(f"{HOST}:{port}") == port
        await server.start()
        assert await outcome(channels, port) is TransportKind.NOT_SERVED
        (link,) = channels.addresses
        assert link == f"{HOST}:{port}"
    finally:
        await channels.close()
        await server.stop(None)
