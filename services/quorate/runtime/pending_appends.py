"""Appends that wait for their commit.

The queue is in offset order, so a commit completes a prefix of it. A leader that loses leadership
completes all of them with LEADERSHIP_LOST: their records may still be committed.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from quorate.common.error_codes import ErrorCode
from quorate.telemetry.histogram import Histogram

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class CommitOutcome(StrEnum):
    """How the wait for a commit ended."""

    COMMITTED = "committed"
    LEADERSHIP_LOST = "leadership_lost"
    TIMED_OUT = "timed_out"

    @property
    def text(self) -> str:
        """The error message for the client, "" for COMMITTED."""
        return _OUTCOME_TEXTS.get(self, "")


_OUTCOME_TEXTS = {
    CommitOutcome.LEADERSHIP_LOST: "the leader lost leadership before it was committed; "
    "the outcome is unknown",
    CommitOutcome.TIMED_OUT: "not committed within the request's timeout; the outcome is unknown",
}


Commit = tuple[int, CommitOutcome]
"""The offset of the first appended record, and how the wait for its commit ended."""


@dataclass(slots=True)
class PendingAppend:
    """One batch that is being appended and committed."""

    count: int
    """The number of records in the batch."""
    batch: bytearray
    deadline_ms: int
    """The deadline, by the driver's clock."""
    future: asyncio.Future[Commit | ErrorCode]
    base_offset: int = -1
    """The offset of the first record, -1 until the batch is appended."""
    appended_s: float = 0.0
    """When the batch was appended, by `time.perf_counter`."""
    span: Span | None = None
    """The trace span of the append, if it is traced."""

    def end(self, outcome: CommitOutcome | ErrorCode) -> None:
        """Complete the future, unless it is already done."""
        if not self.future.done():
            self.future.set_result(
                outcome if isinstance(outcome, ErrorCode) else (self.base_offset, outcome)
            )


class CommitQueue:
    """Appends in offset order. `pending_bytes` is the size of those that are not committed yet.

    latency: records how many seconds each commit took.
    """

    def __init__(self, latency: Histogram) -> None:
        self._latency = latency
        self._pending: deque[PendingAppend] = deque()
        self.pending_bytes = 0

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, pending: PendingAppend) -> None:
        """Add an append; its offset must be higher than those of all earlier ones."""
        pending.appended_s = time.perf_counter()
        self._pending.append(pending)
        self.pending_bytes += len(pending.batch)

    def committed(self, high_watermark: int) -> None:
        queue = self._pending
        now_s = time.perf_counter()
        while queue and queue[0].base_offset + queue[0].count <= high_watermark:
            pending = queue.popleft()
            self._latency.observe(now_s - pending.appended_s)
            self._end(pending, CommitOutcome.COMMITTED)

    def leadership_lost(self) -> None:
        while self._pending:
            self._end(self._pending.popleft(), CommitOutcome.LEADERSHIP_LOST)

    def expire(self, now_ms: int) -> None:
        """Complete the appends whose deadline has passed.

        They stay in the queue, because their bytes are still pending.
        """
        for pending in self._pending:
            if pending.deadline_ms <= now_ms:
                pending.end(CommitOutcome.TIMED_OUT)

    def _end(self, pending: PendingAppend, outcome: CommitOutcome) -> None:
        self.pending_bytes -= len(pending.batch)
        pending.end(outcome)
