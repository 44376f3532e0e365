"""Runs in a pod: appends all the time and tells, twice a second, how it goes; one JSON line each.

A line: {"at": seconds since the epoch, "acknowledged", "gap_ms": the longest time without an
acknowledgement since SIGUSR1, "unknown", "refused"}. At SIGTERM it stops appending, reads the whole
log linearizably and checks its history against what is its own there (others may have written
before); the last line says what was lost: {"violations", "acknowledged", …}.

The file runs as it is, over what the controllers' image contains.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from quorate.cli.local.workload import Workload
from quorate.linearizability import Violation
from quorate.rpc.client.quorum_client import ClientError, QuorumClient
from quorate.rpc.tls import TlsConfig
from quorate.rpc.wire.limits import ChannelLimits

TLS = Path("/tls")
IS_TLS = TLS.exists()
NAME = os.environ.get("HOSTNAME", "w")
PAUSE_S = float(os.environ.get("PAUSE_S", "0.01"))
"""Of each of the callers, between two appends."""
VERIFY_ATTEMPTS = 20
SHOWN_AFTER_S = 90
"""The check takes a few seconds: after so many, what still goes on is shown."""
LIMITS = ChannelLimits(connect_timeout_ms=500, keepalive_ms=1_500, keepalive_timeout_ms=400)
"""A pod that vanishes closes no connection: what was sent and is not acknowledged by its machine in
keepalive_timeout_ms is given up.
"""


async def verify(load: Workload, client: QuorumClient) -> list[Violation]:
    token = load.history.begin_read()
    end_offset, own = 0, []
    async for record in client.read(0, metadata=False):
        assert record.offset is not None
        end_offset = record.offset + 1
        if record.value is None:
            continue
        value = bytes(record.value).decode()
        if value.startswith(f"{NAME}-"):
            own.append((record.offset, value))
    load.history.read(token, end_offset, own)
    return load.history.verify(own)


def tell(**line: Any) -> None:
    print(json.dumps(line), flush=True)


def show() -> None:
    for task in asyncio.all_tasks():
        task.print_stack()


async def main() -> None:
    servers = os.environ["BOOTSTRAP"].split(",")
    load = Workload(servers, callers=4, pause_s=PAUSE_S, name=NAME)
    tls = TlsConfig(TLS / "tls.crt", TLS / "tls.key", TLS / "ca.crt") if IS_TLS else None
    await load.client.close()
    load.client = QuorumClient(servers, tls=tls, limits=LIMITS)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGUSR1, load.measure)
    await load.start()
    load.measure()
    while not stop.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), 0.5)
        tell(
            at=time.time(),
            acknowledged=load.acknowledged_count,
            gap_ms=round(load.longest_gap_s * 1000),
            unknown=load.unknown_count,
            refused=load.refused_count,
        )
    loop.call_later(SHOWN_AFTER_S, show)
    faulthandler.dump_traceback_later(SHOWN_AFTER_S + 10)  # also where the loop stands still
    await load.stop()
    client = QuorumClient(servers, tls=tls, limits=LIMITS)
    for attempt in range(VERIFY_ATTEMPTS):
        try:
            violations = await verify(load, client)
            break
        except ClientError as error:
            tell(verifying=str(error), attempt=attempt)
            await asyncio.sleep(1)
    else:
        violations = None
    tell(
        violations=None if violations is None else [str(each) for each in violations],
        acknowledged=load.acknowledged_count,
        unknown=load.unknown_count,
        refused=load.refused_count,
    )
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
