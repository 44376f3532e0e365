"""Checks that the batches of a log hold each requested offset once, in order.

Each part of a file begins where the part before it ended, and each segment where the segment before
it ended. Only requested offsets count: a fault outside of them affects no row.

Batches of the log hold a record at each of their offsets. In a checkpoint, which has offsets of its
own, a batch may lack records that compaction removed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quorate.raft.batches import SnapshotFooter
from quorate.records.batch import decode_control_batch, read_header
from quorate.records.errors import RecordsError
from quorate.spark.decoding.framing import Chunk, Ints
from quorate.spark.errors import DataLossError


@dataclass(slots=True)
class Coverage:
    """Follows the batches of a part. start, end: the requested offsets [start, end).

    expected: the offset of the next batch. position: that of the next byte. is_snapshot: whether
    the part is a whole checkpoint.
    """

    file: str
    start: int
    end: int
    expected: int
    position: int
    is_snapshot: bool = False
    has_footer: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether all requested offsets have been found."""
        return self.expected >= self.end

    def check(self, chunk: Chunk) -> None:
        """Check the next batches. Raises DataLossError."""
        if len(chunk.starts):
            self._check_order(chunk)
            if not self.is_snapshot:
                self._check_counts(chunk)
            self.has_footer = self.is_snapshot and _ends_with_footer(chunk)
            self.expected = int(chunk.last_offsets[-1]) + 1
        self.position = chunk.file_position + chunk.size

    def finish(self, next_offset: int | None) -> None:
        """Check the end. next_offset: the first offset after the part, None if unknown.

        Raises DataLossError.
        """
        if self.is_snapshot and not self.has_footer:
            raise self._error(
                self.position, f"the checkpoint ends at offset {self.expected} without its footer"
            )
        if next_offset is None:
            return
        found, wanted = self._clipped(self.expected), self._clipped(next_offset)
        if found < wanted:
            raise self._error(self.position, _missing(self.expected, next_offset))
        if found > wanted:
            raise self._error(
                self.position,
                f"offsets {next_offset} to {self.expected - 1} occur here and again later",
            )

    def _check_order(self, chunk: Chunk) -> None:
        bases = chunk.headers["base_offset"].astype(np.int64)
        expected = np.concatenate(([self.expected], chunk.last_offsets[:-1] + 1))
        wrong = self._clipped(bases) != self._clipped(expected)
        if not wrong.any():
            return
        at = int(np.argmax(wrong))
        base, wanted = int(bases[at]), int(expected[at])
        text = (
            _missing(wanted, base)
            if base > wanted
            else f"offset {base} follows offset {wanted - 1}"
        )
        raise self._error(chunk.file_position + int(chunk.starts[at]), text)

    def _check_counts(self, chunk: Chunk) -> None:
        bases = chunk.headers["base_offset"].astype(np.int64)
        offsets = chunk.last_offsets + 1 - bases
        is_wanted = self._clipped(chunk.last_offsets + 1) > self._clipped(bases)
        wrong = is_wanted & (chunk.headers["count"] != offsets)
        if wrong.any():
            at = int(np.argmax(wrong))
            text = (
                f"the batch of offsets {bases[at]} to {chunk.last_offsets[at]} has "
                f"{chunk.headers['count'][at]} records"
            )
            raise self._error(chunk.file_position + int(chunk.starts[at]), text)

    def _clipped(self, offsets: int | Ints) -> Ints:
        found: Ints = np.clip(offsets, self.start, self.end)
        return found

    def _error(self, position: int, text: str) -> DataLossError:
        return DataLossError(
            f"{self.file} at byte {position}: {text}. failOnDataLoss=false reads what is there"
        )


def _missing(start: int, end: int) -> str:
    return f"offsets {start} to {end - 1} are missing"


def _ends_with_footer(chunk: Chunk) -> bool:
    if not chunk.is_control[-1]:
        return False
    batch = memoryview(chunk.buffer)[int(chunk.starts[-1]) : int(chunk.ends[-1])]
    try:
        controls = decode_control_batch(batch, read_header(batch))
    except RecordsError:
        return False
    finally:
        batch.release()
    return bool(controls) and isinstance(controls[-1], SnapshotFooter)
