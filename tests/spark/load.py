"""Writers of metadata records, while readers of the log are tested."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

from quorate.records.metadata import ConfigRecord, encode
from quorate.rpc.client.quorum_client import QuorumClient
from quorate.rpc.errors import ClientError

WAIT_S = 0.5
CONFIGS = 20
"""The records of one append."""


class Load:
    """A writer in a thread of its own, until it is stopped. acknowledged: how many records.

    brokers: for how many brokers it writes configs. must_wait: whether a reader is too far behind
    so many acknowledged records. pause_s: between two appends.
    """

    def __init__(
        self,
        addresses: str,
        *,
        brokers: int = 1,
        must_wait: Callable[[int], bool] = lambda _: False,
        pause_s: float = 0.0,
    ) -> None:
        self._addresses = addresses.split(",")
        self._brokers = brokers
        self._must_wait = must_wait
        self._pause_s = pause_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._write()))
        self.acknowledged = 0

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    async def _write(self) -> None:
        async with QuorumClient(self._addresses, request_timeout_ms=5_000) as client:
            number = 0
            while not self._over.is_set():
                if self._must_wait(self.acknowledged):
                    await asyncio.sleep(WAIT_S)
                    continue
                number += 1
                broker = f"{1 + number % self._brokers}"
                records = [ConfigRecord(4, broker, f"n{i}", f"{number}") for i in range(CONFIGS)]
                with contextlib.suppress(ClientError):
                    await client.append([(None, encode(record)) for record in records])
                    self.acknowledged += CONFIGS
                await asyncio.sleep(self._pause_s)
