"""What a partition remembers of idempotent producers, so that a repeated batch is not doubled.

For each producer id: its epoch and its last batches, in order. A batch that continues the sequence
is new; one of those remembered is a repetition and is answered with the offset it has; anything
else is an error. The table follows from the log alone: whoever appends, leader or follower, notes
the batch's header, and after a truncation the table is built again from the headers that are left.

An unknown producer may begin with any sequence: it may have been forgotten here (the least recent
go first), or its batches may lie before a truncation.

Source: KIP-98 "Idempotent producer guarantees", KIP-360; Kafka's ProducerStateManager.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import NamedTuple

from quorate.raft.errors import ErrorCode
from quorate.records.batch import NO_PRODUCER_ID, NO_SEQUENCE, BatchHeader

BATCHES_MAX = 5
"""How many batches of a producer are remembered: as many as Kafka's may have under way."""
PRODUCERS_MAX = 10_000
_SEQUENCES = 1 << 31


class Repetition(NamedTuple):
    """The batch is in the log already, at these offsets."""

    base_offset: int
    last_offset: int


@dataclass(slots=True)
class _Producer:
    epoch: int
    last_sequence: int
    batches: deque[tuple[int, int, int, int]] = field(
        default_factory=lambda: deque(maxlen=BATCHES_MAX)
    )
    """First and last sequence, first and last offset."""


class ProducerTable:
    """The producers of one partition."""

    def __init__(self) -> None:
        self._producers: OrderedDict[int, _Producer] = OrderedDict()

    def check(self, header: BatchHeader) -> Repetition | ErrorCode:
        """Whether a batch may be appended: NONE, the offsets it has, or why not."""
        if header.producer_id == NO_PRODUCER_ID:
            return ErrorCode.NONE
        if header.producer_epoch < 0 or header.base_sequence < 0:
            return ErrorCode.INVALID_RECORD
        known = self._producers.get(header.producer_id)
        if known is None:
            return ErrorCode.NONE
        if header.producer_epoch < known.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if header.producer_epoch > known.epoch:
            is_first = header.base_sequence == 0
            return ErrorCode.NONE if is_first else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        for first, last, base, end in known.batches:
            if (first, last) == (header.base_sequence, header.last_sequence):
                return Repetition(base, end)
        if header.base_sequence == (known.last_sequence + 1) % _SEQUENCES:
            return ErrorCode.NONE
        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def note(self, header: BatchHeader, base_offset: int) -> None:
        """A batch was appended at `base_offset`."""
        if header.producer_id == NO_PRODUCER_ID or header.base_sequence == NO_SEQUENCE:
            return
        known = self._producers.get(header.producer_id)
        if known is None or known.epoch != header.producer_epoch:
            known = self._producers[header.producer_id] = _Producer(header.producer_epoch, 0)
            if len(self._producers) > PRODUCERS_MAX:
                self._producers.popitem(last=False)
        self._producers.move_to_end(header.producer_id)
        known.last_sequence = header.last_sequence
        last_offset = base_offset + header.last_offset_delta
        known.batches.append((header.base_sequence, header.last_sequence, base_offset, last_offset))

    def copy(self) -> ProducerTable:
        """An independent copy."""
        other = ProducerTable()
        for producer_id, known in self._producers.items():
            batches = deque(known.batches, maxlen=BATCHES_MAX)
            other._producers[producer_id] = _Producer(known.epoch, known.last_sequence, batches)
        return other

    def __len__(self) -> int:
        return len(self._producers)
