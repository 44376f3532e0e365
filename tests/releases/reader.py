"""Prints the offset and value of each record of applications; release 0.1.0 can run it, too.

python tests/releases/reader.py ADDRESSES
"""

from __future__ import annotations

import asyncio
import sys

from quorate.rpc.client import QuorumClient


async def read(addresses: str) -> None:
    async with QuorumClient(addresses.split(",")) as client:
        async for record in client.read(0):
            if record.key is not None:
                print(record.offset, (record.value or b"").decode())


if __name__ == "__main__":
    asyncio.run(read(sys.argv[1]))
