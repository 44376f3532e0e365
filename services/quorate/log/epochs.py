"""The epochs of the log with the offset at which each starts (KIP-101's leader epoch cache).

Kept in step with appends and truncations; `leader-epoch-checkpoint` follows lazily, for Kafka only:
at every start the epochs are taken from the log itself.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from quorate.log.disk import Disk
from quorate.log.offset_files import write_epochs
from quorate.log.segments import SegmentList
from quorate.raft.types import OffsetAndEpoch


def clip_epochs(epochs: Iterable[OffsetAndEpoch], start: int) -> list[OffsetAndEpoch]:
    """Epochs as Kafka keeps them for a log that starts at `start`: the first begins there."""
    kept: list[OffsetAndEpoch] = []
    before: OffsetAndEpoch | None = None
    for entry in epochs:
        if entry.offset >= start:
            kept.append(entry)
        else:
            before = entry
    if before is not None and (not kept or kept[0].offset > start):
        kept.insert(0, OffsetAndEpoch(start, before.epoch))
    return kept


class EpochHistory:
    """Shared by the appending thread, the writer and the cleaner; every method is atomic."""

    def __init__(self, start: OffsetAndEpoch, entries: Iterable[OffsetAndEpoch]) -> None:
        self._guard = threading.Lock()
        self._file_guard = threading.Lock()
        self._start = start
        self._entries = list(entries)
        self._changed = False

    def entries(self) -> tuple[OffsetAndEpoch, ...]:
        with self._guard:
            return tuple(self._entries)

    @property
    def last_epoch(self) -> int:
        entries = self._entries
        return entries[-1].epoch if entries else self._start.epoch

    def note(self, epoch: int, base_offset: int) -> None:
        """A batch was appended; nothing changes unless its epoch is new."""
        if self._entries and self._entries[-1].epoch == epoch:
            return
        with self._guard:
            self._entries.append(OffsetAndEpoch(base_offset, epoch))
            self._changed = True

    def truncate(self, end_offset: int) -> None:
        with self._guard:
            while self._entries and self._entries[-1].offset >= end_offset:
                self._entries.pop()
                self._changed = True

    def advance(self, start: OffsetAndEpoch) -> None:
        with self._guard:
            self._entries = clip_epochs(self._entries, start.offset)
            self._start = start
            self._changed = True

    def reset(self, start: OffsetAndEpoch) -> None:
        with self._guard:
            self._entries.clear()
            self._start = start
            self._changed = True

    def epoch_before(self, offset: int) -> int:
        """The epoch of the record before `offset`, which is in the log."""
        with self._guard:
            found = self._start.epoch
            for entry in self._entries:
                if entry.offset >= offset:
                    break
                found = entry.epoch
            return found

    def flush(self, disk: Disk, segments: SegmentList) -> None:
        """Bring the file up to date, if anything changed."""
        if not self._changed:
            return
        with self._file_guard:
            with self._guard:
                entries = tuple(self._entries)
                self._changed = False
            write_epochs(disk, segments.directory, entries)
