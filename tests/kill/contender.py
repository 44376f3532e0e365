"""A process that takes a lock again and again, and says on stdout when it believes to hold it.

    python -m tests.kill.contender NAME TTL_S ADDRESS...

Each line is a JSON array of an event, the token and the time: "hold", then "use" several times,
then "end". A "use" is printed unless the lock is known to be lost. It ends when stdin is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
import time

from quorate.recipes import Lock
from quorate.rpc.client.quorum_client import QuorumClient
from quorate.rpc.errors import ClientError

KEY = b"locks/resource"
USE_S = 0.02


def say(event: str, token: int) -> None:
    print(json.dumps([event, token, time.monotonic()]), flush=True)


async def hold(lock: Lock, uses: int) -> None:
    token = await lock.acquire()
    say("hold", token)
    for _ in range(uses):
        if lock.is_lost.is_set():
            break
        say("use", token)
        await asyncio.sleep(USE_S)
    say("end", token)
    await lock.release()


async def contend(name: str, ttl_s: float, addresses: list[str], stop: asyncio.Event) -> None:
    chance = random.Random(name)
    async with QuorumClient(addresses, request_timeout_ms=10_000) as client:
        lock = Lock(client, KEY, owner=name, ttl_s=ttl_s)
        while not stop.is_set():
            try:
                await hold(lock, chance.randint(20, 60))
            except ClientError as error:
                print(error, file=sys.stderr, flush=True)
                with contextlib.suppress(ClientError):
                    await lock.release()
            await asyncio.sleep(chance.uniform(0, 0.1))


async def main(name: str, ttl_s: str, *addresses: str) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: _Stdin(stop), sys.stdin)
    contending = asyncio.create_task(contend(name, float(ttl_s), list(addresses), stop))
    await stop.wait()
    contending.cancel()
    await asyncio.gather(contending, return_exceptions=True)


class _Stdin(asyncio.Protocol):
    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop

    def connection_lost(self, _error: Exception | None) -> None:
        self._stop.set()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
