"""The state of a partition's idempotent producers, which detects duplicate batches.

For each producer id, the table keeps its epoch and its last batches, in order. A batch that
continues the sequence is new. One of the kept batches is a duplicate and is answered with its
existing offset. Any other batch is an error. The table depends on the log alone: leader and
followers note the header of each batch that they append, and after a truncation the table is
rebuilt from the remaining headers.

An unknown producer may begin with any sequence number: the table may have evicted it (least
recently used first), or a truncation may have removed its batches.

Source: KIP-98 "Idempotent producer guarantees", KIP-360; Kafka's ProducerStateManager.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import NamedTuple

from quorate.common.batch_layout import NO_PRODUCER_ID, NO_SEQUENCE
from quorate.common.error_codes import ErrorCode
from quorate.records.batch import BatchHeader

BATCHES_MAX = 5
"""The number of batches kept per producer: as many as a Kafka producer may have in flight."""
PRODUCERS_MAX = 10_000
_SEQUENCES = 1 << 31


class Repetition(NamedTuple):
    """A duplicate: the batch is in the log already, at these offsets."""

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
        """Return NONE if a batch may be appended, the offsets of a duplicate, or the error."""
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
        """Note a batch that was appended at `base_offset`."""
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
