"""A node in a process of its own, for tests that kill it: prints its port, then serves, and prints
a line for each request as it begins.

SIGUSR1 lets its loop stand still, while gRPC's threads go on answering pings.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator

from quorate.common.error_codes import ErrorCode
from quorate.raft.messages import CurrentLeader

from tests.processes import running_module
from tests.unit.rpc.rpc_support import Node, serving

STILL_S = 60.0


class Announcing(Node):
    """Says what it is asked."""

    async def _refusal(self, request: object) -> ErrorCode:
        print("begun", flush=True)
        return await super()._refusal(request)


async def _serve(delay_s: float) -> None:
    signal.signal(signal.SIGUSR1, lambda *_: time.sleep(STILL_S))
    node = Announcing(leader=CurrentLeader(3, 1), delay_s=delay_s)
    async with serving(node) as server:
        print(server.ports[0], flush=True)
        await server.wait()


@contextlib.asynccontextmanager
async def running(delay_s: float = 0.0) -> AsyncIterator[tuple[Process, int]]:
    """The process of a leader that waits before it answers, and its port; killed in the end."""
    async with running_module("tests.unit.rpc.rpc_process", delay_s) as process:
        assert process.stdout is not None
        yield process, int(await process.stdout.readline())


async def begun(process: Process, requests: int = 1) -> None:
    """Wait until it has begun with this many further requests."""
    assert process.stdout is not None
    for _ in range(requests):
        assert await process.stdout.readline() == b"begun\n"


if __name__ == "__main__":
    asyncio.run(_serve(float(sys.argv[1])))
