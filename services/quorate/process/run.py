"""Runs a node as a process: event loop, logging, interpreter tuning, exit status."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from quorate.log.errors import LogError
from quorate.process.node_config import NodeConfig
from quorate.process.shutdown import NodeError, Shutdown
from quorate.raft.errors import RaftError
from quorate.records.errors import RecordsError
from quorate.rpc.errors import RpcError
from quorate.runtime.gc_tuning import allow_freezing, collect_briefly
from quorate.runtime.malloc_tuning import tune_malloc
from quorate.runtime.thread_switching import switch_soon
from quorate.telemetry import logs
from quorate.telemetry.extra import TelemetryError
from quorate.telemetry.logs import NodeContext

ENDINGS: tuple[type[Exception], ...] = (
    NodeError,
    LogError,
    RecordsError,
    RaftError,
    RpcError,
    TelemetryError,
)
"""The errors that end the process with a one-line message."""


def run_node(
    config: NodeConfig,
    run: Callable[[NodeContext, Shutdown], Coroutine[Any, Any, None]],
    endings: tuple[type[Exception], ...] = (),
) -> int:
    """Run until `run` returns, and return the exit status.

    run: gets the shutdown that SIGTERM and SIGINT request. endings: further errors that end the
    process with a one-line message.
    """
    context = logs.configure(config.role, config.node_id, config.log_format, level=config.log_level)
    tune_malloc()
    allow_freezing()

    async def run_until_signal() -> None:
        shutdown = Shutdown()
        shutdown.handle_signals()
        await run(context, shutdown)

    try:
        uvloop.run(run_until_signal())
    except ENDINGS + endings as error:
        print(f"quorate: error: {error}", file=sys.stderr)
        return 1
    return 0


def tune_for_serving() -> None:
    """Tune the interpreter for low latency. Call it once the node has loaded its log."""
    # Loaded objects stay alive: scanning them in each garbage collection would delay commits.
    collect_briefly()
    switch_soon()
