"""A producer session as its client sees it, and the batches in it.

The rules are those of `idempotent`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from quorate.common.batch_layout import SEQUENCE_MODULUS
from quorate.records.batch import BatchProducer
from quorate.rpc.client.routing import now_ms
from quorate.rpc.errors import ClientError, OutcomeUnknownError, renewed
from quorate.rpc.wire.values import APPEND_TIMEOUT_MS, AppendResult, LogOffsets, OpaqueRecord


@dataclass(eq=False, slots=True)
class SessionBatch:
    """A batch of one caller."""

    records: Sequence[OpaqueRecord]
    conditions: LogOffsets
    deadline_ms: float
    result: asyncio.Future[AppendResult]
    """What the caller awaits, until `deadline_ms`."""
    trace_parent: str
    producer: BatchProducer | None = None
    """The place of the batch in the session, None before it is sent."""
    ordinal: int = 0
    """How many batches of the session were numbered before."""
    is_doubtful: bool = False
    """Whether the outcome of an attempt is unknown: see rule 2."""
    is_barred: bool = False
    """Whether the batch is certainly not in the log: see rule 3."""

    @property
    def is_absent(self) -> bool:
        """Whether it is certainly not in the log."""
        return self.is_barred or not self.is_doubtful

    @property
    def left_ms(self) -> float:
        """How long the leader should wait for the commit: after the deadline, as long as usual."""
        left_ms = self.deadline_ms - now_ms()
        return APPEND_TIMEOUT_MS if self.result.done() or left_ms <= 0 else left_ms

    def fail(self, error: Exception) -> None:
        if not self.result.done():
            error = renewed(error) if isinstance(error, ClientError) else error
            self.result.set_exception(error)

    def fail_in_doubt(self, why: object) -> None:
        count = len(self.records)
        text = f"an append of {count} records may or may not be committed: {why}"
        self.fail(OutcomeUnknownError(text))


@dataclass(eq=False, slots=True)
class ClientSession:
    """An open session."""

    producer_id: int
    producer_epoch: int
    next_sequence: int = 0
    next_ordinal: int = 0
    is_ending: bool = False
    """Whether further batches get no number in the session."""

    def number(self, batch: SessionBatch) -> None:
        """Give a batch the next numbers."""
        batch.producer = BatchProducer(self.producer_id, self.producer_epoch, self.next_sequence)
        batch.ordinal = self.next_ordinal
        self.next_sequence = (self.next_sequence + len(batch.records)) % SEQUENCE_MODULUS
        self.next_ordinal += 1

    def take_back(self, batch: SessionBatch) -> None:
        """Use the numbers of the last batch again."""
        assert batch.producer is not None, "it was sent"
        self.next_sequence, self.next_ordinal = batch.producer.base_sequence, batch.ordinal
        batch.producer = None
