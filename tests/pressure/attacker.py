"""The process that attacks: `python -m tests.pressure.attacker NAME AIM`, with AIM as JSON.

It says `ready` once all modules are loaded, begins at the first line of its input, and ends at the
next one with one line of JSON: how its calls ended, by number.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from collections import Counter

from tests.pressure.attacks import ATTACKS
from tests.pressure.target import Aim


async def main(name: str, aim: Aim) -> Counter[str]:
    ended: Counter[str] = Counter()
    task = asyncio.create_task(ATTACKS[name].behave(aim, ended))
    stopped = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
    await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
        raise AssertionError(f"{name} ended by itself")
    found = +ended
    print(json.dumps(found), flush=True)
    return found


if __name__ == "__main__":
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print("ready", flush=True)
    if sys.stdin.readline():
        asyncio.run(main(sys.argv[1], Aim(**json.loads(sys.argv[2]))))
