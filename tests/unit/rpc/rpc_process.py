"""A node in a process of its own, for tests that kill it: prints its port, then serves.

SIGUSR1 lets its loop stand still, while gRPC's threads go on answering pings.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path

from quorate.raft.messages import CurrentLeader

from tests.unit.rpc.rpc_support import Node, serving

ROOT = Path(__file__).resolve().parents[3]


STILL_S = 60.0


async def _serve(delay_s: float) -> None:
    signal.signal(signal.SIGUSR1, lambda *_: time.sleep(STILL_S))
    node = Node(leader=CurrentLeader(3, 1), delay_s=delay_s)
    async with serving(node) as server:
        print(server.ports[0], flush=True)
        await server.wait()


@contextlib.asynccontextmanager
async def running(delay_s: float = 0.0) -> AsyncIterator[tuple[Process, int]]:
    """The process of a leader that waits before it answers, and its port; killed in the end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.unit.rpc.rpc_process",
        str(delay_s),
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT / 'services'}:{ROOT}"},
        stdout=PIPE,
    )
    assert process.stdout is not None
    try:
        yield process, int(await process.stdout.readline())
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


if __name__ == "__main__":
    asyncio.run(_serve(float(sys.argv[1])))
