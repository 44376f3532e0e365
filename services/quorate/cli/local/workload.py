"""A continuous write load: unique values, checked acknowledgements, the longest wait.

Several callers append values one after the other through one client. An append whose outcome is
unknown is not retried, and the history allows both outcomes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from quorate.linearizability import HistoryChecker, Rule, Violation
from quorate.rpc.cancellation import cancel_tasks
from quorate.rpc.client.quorum_client import ClientError, OutcomeUnknownError, QuorumClient

VALUE_BYTES = 64


class Workload:
    """Callers that append unique values, and the history of the responses.

    pause_s: the pause of a caller between two appends, seconds.
    """

    def __init__(
        self,
        bootstrap: Sequence[str],
        *,
        callers: int = 8,
        pause_s: float = 0.004,
        name: str = "w",
    ) -> None:
        self.history: HistoryChecker[str] = HistoryChecker()
        self.client = QuorumClient(bootstrap)
        self._callers = callers
        self._pause_s = pause_s
        self._name = name
        self._next = 0
        self._under_way = 0
        self._idle = asyncio.Event()
        self._go = asyncio.Event()
        self._go.set()
        self._tasks: list[asyncio.Task[None]] = []
        self._last_ack_s = 0.0
        self._longest_gap_s = 0.0
        self.unknown_count = 0
        self.refused_count = 0

    @property
    def acknowledged_count(self) -> int:
        return self.history.acknowledged_count

    async def start(self) -> None:
        self._last_ack_s = time.monotonic()
        self._tasks = [asyncio.create_task(self._call()) for _ in range(self._callers)]

    async def use(self, client: QuorumClient) -> None:
        """Switch to another client, after all appends in flight on the old one have ended."""
        await self._pause()
        old, self.client = self.client, client
        self._go.set()
        await old.close()

    async def _pause(self) -> None:
        self._go.clear()
        if self._under_way:
            self._idle.clear()
            await self._idle.wait()

    async def stop(self) -> None:
        """Cancel the callers, with their appends in flight, then close the client."""
        tasks, self._tasks = self._tasks, []
        await cancel_tasks(*tasks)
        await self.client.close()

    async def _call(self) -> None:
        while True:
            await self._go.wait()
            self._next += 1
            value = f"{self._name}-{self._next:08d}".ljust(VALUE_BYTES, ".")
            self.history.begin(value)
            self._under_way += 1
            try:
                offset = await self.client.append_value(value.encode())
            except OutcomeUnknownError:
                self.history.unknown(value)
                self.unknown_count += 1
            except ClientError:
                self.history.refused(value)
                self.refused_count += 1
            else:
                self.history.acknowledged(value, offset)
                self._acknowledged()
            finally:
                self._under_way -= 1
                if not self._under_way:
                    self._idle.set()
            await asyncio.sleep(self._pause_s)

    def _acknowledged(self) -> None:
        now = time.monotonic()
        self._longest_gap_s = max(self._longest_gap_s, now - self._last_ack_s)
        self._last_ack_s = now

    def measure(self) -> None:
        """Start a new measurement of `longest_gap_s`."""
        self._longest_gap_s = 0.0
        self._last_ack_s = time.monotonic()

    @property
    def longest_gap_s(self) -> float:
        """The longest time without an acknowledgement since `measure`, seconds."""
        return max(self._longest_gap_s, time.monotonic() - self._last_ack_s)

    async def verify(self) -> list[Violation]:
        """Pause the callers, read the whole log linearizably, and check the history against it."""
        await self._pause()
        try:
            token = self.history.begin_read()
            committed: list[tuple[int, str]] = []
            unknown: list[Violation] = []
            async for record in self.client.read(0, metadata=False):
                if record.value is None:
                    continue
                value = bytes(record.value).decode()
                if record.offset is None:
                    text = f"{value!r} was read without its offset"
                    unknown.append(Violation(Rule.ONE_HISTORY, text))
                else:
                    committed.append((record.offset, value))
            end_offset = committed[-1][0] + 1 if committed else 0
            self.history.read(token, end_offset, committed)
            return unknown + self.history.verify(committed)
        finally:
            self._last_ack_s = time.monotonic()
            self._go.set()
