"""Appends records until SIGTERM, or a number of them; release 0.1.0 can run it, too.

    python tests/releases/appender.py NAME ADDRESSES [COUNT]

For each acknowledged record it prints its offset and value. For each append that failed, whose
record may be in the log, it prints "failed" and the value, and the error to stderr. After SIGTERM
it awaits the appends that are under way.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
import sys

from quorate.rpc.client import QuorumClient
from quorate.rpc.errors import ClientError

CALLERS = 4
PAUSE_S = 0.02


async def append(name: str, addresses: str, count: int | None) -> None:
    numbers = iter(range(count)) if count is not None else itertools.count()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)

    async def call(client: QuorumClient) -> None:
        while not stop.is_set() and (number := next(numbers, None)) is not None:
            value = f"{name}-{number:06}"
            try:
                offset = await client.append_value(value.encode())
            except ClientError as error:
                print("failed", value, flush=True)
                print(repr(error), file=sys.stderr, flush=True)
            else:
                print(offset, value, flush=True)
            await asyncio.sleep(PAUSE_S)

    async with QuorumClient(addresses.split(","), request_timeout_ms=10_000) as client:
        await asyncio.gather(*(call(client) for _ in range(CALLERS)))


if __name__ == "__main__":
    asyncio.run(append(sys.argv[1], sys.argv[2], int(sys.argv[3]) if sys.argv[3:] else None))
