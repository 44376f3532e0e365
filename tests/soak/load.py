"""Clients under the history checker: some append, one reads on, linearizably, all the time.

Every read goes over the last `OVERLAP` offsets again: a record that was read and is not there any
more, or is another, is a violation at once. The last check reads everything from 0, the most of it
from a snapshot, and compares it with what was read before, offset by offset.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence

from quorate.cli.local.workload import Workload
from quorate.linearizability import Rule, Violation
from quorate.rpc.client.quorum_client import ClientError, QuorumClient

NAME = "soak"
OVERLAP = 64
READ_PAUSE_S = 0.2
READ_TIMEOUT_MS = 10_000
BULK = b"bulk"
END_WAIT_S = 60.0


class Load:
    """The clients of one run. committed: (offset, value), as the linearizable reads showed it.

    bulk_bytes_per_s: what is written besides, unchecked, so that logs and caches grow.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        callers: int = 4,
        pause_s: float = 0.01,
        bulk_bytes_per_s: int = 0,
    ) -> None:
        self.writes = Workload(addresses, callers=callers, pause_s=pause_s, name=NAME)
        self.history = self.writes.history
        self.committed: list[tuple[int, str]] = []
        self.read_count = 0
        self.failed_reads = 0
        self._why_failed = ""
        self.bulk_bytes = 0
        self._bulk_bytes_per_s = bulk_bytes_per_s
        self._client = QuorumClient(addresses)
        self._position = 0
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def appended(self) -> int:
        return self.history.begun_count

    @property
    def acknowledged(self) -> int:
        return self.history.acknowledged_count

    async def start(self) -> None:
        await self.writes.start()
        self._tasks = [asyncio.create_task(self._read_on())]
        if self._bulk_bytes_per_s:
            self._tasks.append(asyncio.create_task(self._write_bulk()))

    async def progress(self, count: int, timeout_s: float = 60.0) -> None:
        """Wait until so many more appends are acknowledged."""
        wanted, deadline = self.acknowledged + count, time.monotonic() + timeout_s
        while self.acknowledged < wanted:
            for task in self._tasks:
                if task.done():
                    task.result()
            assert time.monotonic() < deadline, (
                f"{self.acknowledged} acknowledged, {wanted} wanted within {timeout_s:.0f} s"
            )
            await asyncio.sleep(0.05)

    async def _read_on(self) -> None:
        while True:
            await self._read()
            await asyncio.sleep(READ_PAUSE_S)

    async def _read(self) -> bool:
        """One linearizable read of what is new; False if no answer came."""
        token = self.history.begin_read()
        begin = max(0, self._position - OVERLAP)
        try:
            records = await self._values(begin)
        except ClientError as error:
            return self._failed(str(error))
        end = records[-1][0] + 1 if records else begin
        self.history.read(token, end, records, from_offset=begin)
        self.committed += [each for each in records if each[0] >= self._position]
        self._position = max(self._position, end)
        self.read_count += 1
        return True

    def _failed(self, why: str) -> bool:
        self.failed_reads += 1
        self._why_failed = why
        return False

    async def _values(self, begin: int) -> list[tuple[int, str]]:
        prefix = f"{NAME}-".encode()
        found: list[tuple[int, str]] = []
        records = self._client.read(begin, linearizable=True, timeout_ms=READ_TIMEOUT_MS)
        async for record in records:
            value = bytes(record.value or b"")
            if value.startswith(prefix):
                assert record.offset is not None, value
                found.append((record.offset, value.decode()))
        return found

    async def _write_bulk(self) -> None:
        value = BULK.ljust(8192, b".")
        while True:
            began = time.monotonic()
            with contextlib.suppress(ClientError):
                await self._client.append_value(value)
                self.bulk_bytes += len(value)
            due = len(value) / self._bulk_bytes_per_s
            await asyncio.sleep(max(0.0, due - (time.monotonic() - began)))

    async def verify(self) -> list[Violation]:
        """End the load, read everything, and say what breaks the rules."""
        await self.writes.stop()
        for task in self._tasks:
            task.cancel()
        for ended in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended
        try:
            await self._to_the_end()
            shown = len(self.committed)
            whole = await self._values(0)
            # What was under way when the load ended may be committed between two reads.
            await self._to_the_end()
        finally:
            await self._client.close()
        found = self.history.verify(self.committed)
        known = self.committed
        if len(whole) < shown or whole != known[: len(whole)]:
            text = (
                f"the log and its snapshot hold {len(whole)} records, the reads before showed "
                f"{shown} and all of them {len(known)}; first difference at "
                f"{_difference(whole, known)}"
            )
            found.append(Violation(Rule.ONE_HISTORY, text))
        return found

    async def _to_the_end(self) -> None:
        deadline = time.monotonic() + END_WAIT_S
        while not await self._read():
            assert time.monotonic() < deadline, f"no read: {self._why_failed}"
            await asyncio.sleep(READ_PAUSE_S)


def _difference(some: Sequence[object], others: Sequence[object]) -> int:
    pairs = zip(some, others, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(some), len(others)))
