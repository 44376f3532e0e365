"""`describe_quorum` of nodes that are late: real gRPC, and a node whose delays the test sets."""

from __future__ import annotations

import asyncio

import pytest
from quorate.rpc.client import quorum_client
from quorate.rpc.client.quorum_client import QuorumClient, UnreachableError
from quorate.rpc.wire.values import NodeStatus

from tests.unit.rpc.rpc_support import NO_HANG_S, Node, address_of, serving


class SlowAtFirst(Node):
    """A node that does not answer its first requests in time."""

    unanswered = 3

    async def node_status(self) -> NodeStatus:
        self.unanswered -= 1
        if self.unanswered >= 0:
            await asyncio.sleep(NO_HANG_S)
        return await super().node_status()


async def test_a_node_that_is_late_is_asked_again_within_the_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quorum_client, "STATUS_TIMEOUT_MS", 200)
    monkeypatch.setattr(quorum_client, "LEADER_WAIT_MS", 300)
    node = SlowAtFirst()
    async with serving(node) as server, QuorumClient([address_of(server)]) as client:
        assert (await client.describe_quorum()).is_leaders_view
        assert node.unanswered < 0
        node.unanswered = 1_000
        client.request_timeout_ms = 1_000
        with pytest.raises(UnreachableError, match="no answer in time"):
            await client.describe_quorum()
        assert 1_000 - node.unanswered > 2, "asked again until the timeout"
