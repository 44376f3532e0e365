"""What the protocol knows of the log: its offsets and epochs, and how far it is durable. Never its
bytes.

Every change of the log is an output with a ticket, in order; `durable(ticket)` reports that the
change, and all before it, reached the disk. Until then the replica does not promise those offsets
to anyone.

Source: KIP-595 (leader epoch cache, log reconciliation); KIP-630 (snapshots and the log's start).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable

from quorate.common.value import value
from quorate.raft.batches import Batch
from quorate.raft.errors import CorruptionError, FatalError
from quorate.raft.types import BOOTSTRAP_SNAPSHOT, OffsetAndEpoch


@value
class Valid:
    """The position is in this log: records can be read from there."""


VALID = Valid()


@value
class Diverging:
    """The position is not in this log: the asker truncates to at most `end` and asks again."""

    end: OffsetAndEpoch


@value
class BehindSnapshot:
    """The position lies before this log's start: the asker needs `snapshot`."""

    snapshot: OffsetAndEpoch


class LogState:
    """Offsets, epochs and durability of one replica's log.

    start: the first offset that can be read, and the epoch of the record before it.
    end_offset: where the next record goes. epochs: (epoch, first offset), ascending in both.
    last_epoch: of the last record, of the snapshot if the log is empty, or 0; every Fetch has it.
    is_durable: whether every change is on disk.
    snapshot: the latest one, None if there is none but perhaps the bootstrap checkpoint.
    """

    def __init__(
        self,
        start: OffsetAndEpoch = BOOTSTRAP_SNAPSHOT,
        end_offset: int = 0,
        epochs: Iterable[tuple[int, int]] = (),
        snapshot: OffsetAndEpoch | None = None,
    ) -> None:
        self.start = start
        self.end_offset = end_offset
        self.snapshot = snapshot
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, offset in epochs:
            self._note_epoch(epoch, offset)
        self._know_last_epoch()
        self.durable_end = end_offset
        self.last_ticket = 0
        self._unsynced: deque[tuple[int, int]] = deque()
        self.is_durable = True
        if not start.offset <= end_offset:
            raise CorruptionError(f"the log ends at {end_offset}, before its start {start}")

    @property
    def epochs(self) -> tuple[tuple[int, int], ...]:
        return tuple(zip(self._epochs, self._starts, strict=True))

    def _note_epoch(self, epoch: int, offset: int) -> None:
        if self._epochs and epoch < self._epochs[-1]:
            raise CorruptionError(
                f"the epoch goes back from {self._epochs[-1]} to {epoch} at offset {offset}"
            )
        if not self._epochs or epoch > self._epochs[-1]:
            self._epochs.append(epoch)
            self._starts.append(offset)

    def _know_last_epoch(self) -> None:
        self.last_epoch = self._epochs[-1] if self._epochs else self.start.epoch

    def _new_ticket(self) -> int:
        """How a change other than an append ends."""
        self._know_last_epoch()
        self.is_durable = False
        self.last_ticket += 1
        self._unsynced.append((self.last_ticket, self.end_offset))
        return self.last_ticket

    def append(self, batches: Iterable[Batch]) -> int:
        """Take consecutive batches; return the ticket of the change."""
        end, epochs = self.end_offset, self._epochs
        for batch in batches:
            if batch.base_offset != end:
                text = f"append of offset {batch.base_offset} to a log that ends at {end}"
                raise FatalError(text)
            if not epochs or batch.epoch != epochs[-1]:
                self._note_epoch(batch.epoch, batch.base_offset)
                self._know_last_epoch()
            self.end_offset = end = batch.last_offset + 1
        self.last_ticket = ticket = self.last_ticket + 1
        self._unsynced.append((ticket, end))
        self.is_durable = False
        return ticket

    def truncate(self, end_offset: int) -> int:
        """Drop everything from `end_offset` on; return the ticket."""
        if not self.start.offset <= end_offset <= self.end_offset:
            raise FatalError(
                f"truncation to {end_offset} outside of [{self.start.offset}, {self.end_offset}]"
            )
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()
        self.end_offset = end_offset
        self.durable_end = min(self.durable_end, end_offset)
        self._unsynced = deque((t, min(end, end_offset)) for t, end in self._unsynced)
        return self._new_ticket()

    def reset_to(self, snapshot: OffsetAndEpoch) -> int:
        """Replace the whole log by a snapshot: it starts and ends at the snapshot's offset."""
        self.start = self.snapshot = snapshot
        self.end_offset = snapshot.offset
        self.durable_end = min(self.durable_end, snapshot.offset)
        self._epochs, self._starts = [snapshot.epoch], [snapshot.offset]
        self._unsynced = deque((t, min(end, snapshot.offset)) for t, end in self._unsynced)
        return self._new_ticket()

    def durable(self, ticket: int) -> None:
        """All changes up to this ticket are on disk."""
        while self._unsynced and self._unsynced[0][0] <= ticket:
            self.durable_end = self._unsynced.popleft()[1]
        self.is_durable = not self._unsynced and self.durable_end == self.end_offset

    def advance_start(self, start: OffsetAndEpoch) -> None:
        """Segments before `start` were deleted; `start` is a snapshot's id."""
        if start.offset <= self.start.offset:
            return
        kept = bisect_right(self._starts, start.offset) - 1
        if kept >= 0:
            self._epochs, self._starts = self._epochs[kept:], self._starts[kept:]
            self._starts[0] = max(self._starts[0], start.offset)
        self.start = start
        self._know_last_epoch()

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """The end of the largest epoch in this log that is not above `epoch` (KIP-320)."""
        index = bisect_right(self._epochs, epoch) - 1
        if index < 0:
            return self.start
        is_last = index + 1 == len(self._starts)
        end = self.end_offset if is_last else self._starts[index + 1]
        return OffsetAndEpoch(end, self._epochs[index])

    def epoch_before(self, offset: int) -> int:
        """The epoch of the record before `offset`, which is in [start, end]."""
        index = bisect_right(self._starts, offset - 1) - 1
        return self._epochs[index] if index >= 0 else self.start.epoch

    def validate(self, offset: int, last_epoch: int) -> Valid | Diverging | BehindSnapshot:
        """Where a replica stands whose log ends at `offset` with a record of `last_epoch`.

        A replica with an empty log gets the snapshot if there is one: it is never longer than the
        records it stands for.
        """
        if self.start.offset < offset <= self.end_offset and last_epoch == self.last_epoch:
            return VALID  # as all are that keep up
        if self.snapshot is not None and self.snapshot != BOOTSTRAP_SNAPSHOT:
            at_start_but_other = offset == self.start.offset and last_epoch != self.start.epoch
            before_start = offset < self.start.offset or last_epoch < self.start.epoch
            if before_start or offset == 0 or (self.start.offset > 0 and at_start_but_other):
                return BehindSnapshot(self.snapshot)
        if offset == self.start.offset and last_epoch == self.start.epoch:
            return VALID
        end = self.end_offset_for_epoch(last_epoch)
        if end.epoch != last_epoch or offset > end.offset:
            return Diverging(end)
        return VALID

    def truncation_point(self, diverging: OffsetAndEpoch) -> int:
        """Where to truncate when the leader's log has `diverging` as the end of the epoch in
        question.
        """
        mine = self.end_offset_for_epoch(diverging.epoch)
        return min(mine.offset, diverging.offset) if mine.epoch == diverging.epoch else mine.offset
