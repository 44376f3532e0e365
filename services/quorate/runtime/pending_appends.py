"""Clients that wait for the commit of what they appended.

Waiters stand in the order of their offsets, so a commit answers a prefix of the queue. A leader
that loses its office answers all of them with "unknown": what they appended may still be committed.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from quorate.raft.errors import ErrorCode
from quorate.telemetry.histogram import Histogram

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class Outcome(StrEnum):
    """How the wait for a commit ended."""

    COMMITTED = "committed"
    LEADERSHIP_LOST = "the leader lost leadership before it was committed; the outcome is unknown"
    TIMED_OUT = "not committed within the request's timeout; the outcome is unknown"


Commit = tuple[int, Outcome]
"""The offset of the first record that was appended, and how the wait for its commit ended."""


@dataclass(slots=True)
class PendingAppend:
    """One batch on its way: `base_offset` is -1 until it is appended. Times in ms, sizes in
    bytes. appended_s: when it was appended, by `time.perf_counter`. span: of who follows it.
    """

    count: int
    batch: bytearray
    deadline_ms: int
    future: asyncio.Future[Commit | ErrorCode]
    base_offset: int = -1
    appended_s: float = 0.0
    span: Span | None = None

    def end(self, outcome: Outcome | ErrorCode) -> None:
        """Answer whoever waits, once."""
        if not self.future.done():
            self.future.set_result(
                outcome if isinstance(outcome, ErrorCode) else (self.base_offset, outcome)
            )


class CommitQueue:
    """Appends by offset. `pending_bytes` is what was appended and is not committed yet.

    latency: gets the seconds that each commit took.
    """

    def __init__(self, latency: Histogram) -> None:
        self._latency = latency
        self._pending: deque[PendingAppend] = deque()
        self.pending_bytes = 0

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, pending: PendingAppend) -> None:
        """Wait for the commit of an append; offsets only grow."""
        pending.appended_s = time.perf_counter()
        self._pending.append(pending)
        self.pending_bytes += len(pending.batch)

    def committed(self, high_watermark: int) -> None:
        queue = self._pending
        now_s = time.perf_counter()
        while queue and queue[0].base_offset + queue[0].count <= high_watermark:
            pending = queue.popleft()
            self._latency.observe(now_s - pending.appended_s)
            self._end(pending, Outcome.COMMITTED)

    def leadership_lost(self) -> None:
        while self._pending:
            self._end(self._pending.popleft(), Outcome.LEADERSHIP_LOST)

    def expire(self, now_ms: int) -> None:
        """Answer those whose time is up; they keep their place, for their bytes are still
        pending.
        """
        for pending in self._pending:
            if pending.deadline_ms <= now_ms:
                pending.end(Outcome.TIMED_OUT)

    def _end(self, pending: PendingAppend, outcome: Outcome) -> None:
        self.pending_bytes -= len(pending.batch)
        pending.end(outcome)
