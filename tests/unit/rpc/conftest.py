"""What several modules about the client need."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from tests.unit.rpc.rpc_support import Node, Pair, serving


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        nodes = [Node(id=1), Node(id=2)]
        servers = [await stack.enter_async_context(serving(node)) for node in nodes]
        pair = Pair(nodes, servers)
        pair.lead(1, 3)
        yield pair
