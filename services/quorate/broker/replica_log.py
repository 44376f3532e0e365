"""The on-disk log of one partition replica: `<log dir>/<topic>-<partition>/`, in Kafka's layout.

    00000000000000000000.log, …   segments of record batches
    partition.metadata            the topic's id
    leader-epoch-checkpoint       leader epochs and their start offsets
    recovery-point                Quorate's own file: everything before this offset was flushed

Rules:
1. An append completes when the operating system has the data. A process crash loses nothing; a
   machine crash may lose unflushed data. `flush` makes all earlier appends durable and may run on
   any thread.
2. Opening a log scans all segments. A fault at or beyond the recovery point truncates the log
   there, because nothing after it was flushed. Replication then restores the records that other
   replicas have: a broker that restarts with such a log is in no ISR, unless it is the last member.
   A fault before the recovery point is damage and raises LogError: truncation could drop
   acknowledged records. So does a log that ends before the recovery point or does not start at
   offset 0: its files were deleted or cut. No crash has that result, because the recovery point is
   raised after a flush and lowered before a truncation, and the first segment is never removed.
3. After opening, the remaining log is flushed and the recovery point is saved.
4. After a failed write or flush, no recovery point is saved: only a scan when the log is opened
   again determines what the disk holds.
5. A single thread appends, truncates and reads.

A log is only deleted as a whole: there is no retention, and every log starts at offset 0.

Source: Kafka's UnifiedLog and LogLoader; KIP-101.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from quorate.broker.producers import ProducerTable
from quorate.log.disk import DIRECTORY_MODE, Disk
from quorate.log.errors import LogError, write_failure
from quorate.log.offset_files import write_epochs
from quorate.log.scan import scan
from quorate.log.segments import LOG_SUFFIX, Segment, SegmentList, files_by_offset
from quorate.raft import LogState
from quorate.raft.types import BOOTSTRAP_SNAPSHOT, OffsetAndEpoch
from quorate.records.batch import BatchHeader, read_header
from quorate.records.errors import RecordsError
from quorate.records.primitives import Buffer

RECOVERY_POINT_FILE = "recovery-point"
PARTITION_METADATA_FILE = "partition.metadata"
DELETED_SUFFIX = "-deleted"
STRAY_SUFFIX = "-stray"
NAME_BYTES_MAX = 255
"""NAME_MAX on Linux: the longest name of a directory."""
SEGMENT_BYTES_MAX = 1 << 30


def read_topic_id(directory: Path) -> str | None:
    """Return the id of the topic that a partition directory belongs to, None if unknown."""
    try:
        lines = (directory / PARTITION_METADATA_FILE).read_text("ascii").splitlines()
    except (OSError, ValueError):
        return None
    found = [line.partition(":")[2].strip() for line in lines if line.startswith("topic_id:")]
    return found[0] if found else None


def read_recovery_point(directory: Path) -> int:
    """Return the saved recovery point, 0 if there is none. LogError if the file is malformed."""
    try:
        return int((directory / RECOVERY_POINT_FILE).read_text("ascii"))
    except FileNotFoundError:
        return 0
    except ValueError as error:
        raise LogError(
            f"{directory / RECOVERY_POINT_FILE} does not contain an offset ({error}); delete it if "
            "the log in this directory may be truncated at its first fault"
        ) from error


@dataclass(slots=True)
class _Found:
    """The contents of the segments that were scanned so far."""

    end_offset: int
    epochs: list[tuple[int, int]]
    producers: ProducerTable
    torn_bytes: int = 0

    def follows(self, header: BatchHeader) -> str | None:
        """Return why a batch cannot follow the scanned ones, None if it can."""
        if header.base_offset != self.end_offset:
            return f"a batch with offset {header.base_offset} lies there"
        if self.epochs and header.epoch < self.epochs[-1][0]:
            return f"epoch {header.epoch} follows epoch {self.epochs[-1][0]}"
        return None

    def take(self, header: BatchHeader) -> None:
        if not self.epochs or header.epoch > self.epochs[-1][0]:
            self.epochs.append((header.epoch, header.base_offset))
        self.producers.note(header, header.base_offset)
        self.end_offset = header.end_offset


class ReplicaLog:
    """An open log. Opening it cut off `torn_bytes` bytes."""

    def __init__(
        self,
        directory: Path,
        topic_id: str,
        *,
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
        disk: Disk | None = None,
    ) -> None:
        """Open the log in `directory`; create it if it is missing. LogError if it is damaged."""
        self.directory = directory
        self._disk = disk or Disk()
        self._segment_bytes_max = segment_bytes_max
        self._create(topic_id)
        self._segments = SegmentList(directory, self._disk)
        self._recovery_point = read_recovery_point(directory)
        found = self._recover()
        self.torn_bytes = found.torn_bytes
        self.producers = found.producers
        self._at_roll = ProducerTable() if len(self._segments.segments) == 1 else None
        self._end_offset = found.end_offset
        self._epochs = found.epochs
        self._first_unflushed = 0
        self._generation = 0
        self._flushing = threading.Lock()
        self._is_closed = False
        self._has_failed = False
        self.flush_and_save()

    @property
    def state(self) -> LogState:
        """Offsets and epochs, from which the replica's state machine starts."""
        return LogState(BOOTSTRAP_SNAPSHOT, self._end_offset, self._epochs)

    @property
    def end_offset(self) -> int:
        return self._end_offset

    @property
    def generation(self) -> int:
        """Incremented by each truncation, which invalidates the result of a flush in flight."""
        return self._generation

    @property
    def has_rolled(self) -> bool:
        """Whether a segment before the active one is not flushed yet."""
        return self._first_unflushed < self._segments.active.base_offset

    def _create(self, topic_id: str) -> None:
        if not self.directory.is_dir():
            self.directory.mkdir(DIRECTORY_MODE, parents=True)
            self._disk.sync_directory(self.directory.parent)
        known = read_topic_id(self.directory)
        if known is None:
            content = f"version: 0\ntopic_id: {topic_id}".encode("ascii")
            self._disk.replace_file(self.directory / PARTITION_METADATA_FILE, content)
        elif known != topic_id:
            raise LogError(
                f"{self.directory} belongs to topic {known}, not to {topic_id}: move it away"
            )

    # --- opening ----------------------------------------------------------------------------------

    def _recover(self) -> _Found:
        segments = self._segments
        paths = list(files_by_offset(self.directory, LOG_SUFFIX))
        if paths and int(paths[0].stem) > 0:
            raise self._refusal(
                f"{self.directory} has lost records: its log begins at offset "
                f"{int(paths[0].stem)}, but offset 0 is expected"
            )
        if not paths and self._recovery_point > 0:
            raise self._lost_end("it has no log files")
        for path in paths:
            segments.segments.append(Segment(path, int(path.stem), 0))
        if not paths:
            segments.add(0, 0)
        found = _Found(0, [], ProducerTable())
        try:
            for index, segment in enumerate(list(segments.segments)):
                fault = self._scan(found, segment)
                if fault is not None:
                    self._cut(found, index, fault)
                    break
            if found.end_offset < self._recovery_point:
                raise self._lost_end(f"its log ends at offset {found.end_offset}")
        except BaseException:
            segments.close()
            raise
        return found

    def _lost_end(self, what: str) -> LogError:
        return self._refusal(
            f"{self.directory} has lost records: {what}, but everything before offset "
            f"{self._recovery_point} was flushed"
        )

    def _refusal(self, problem: str) -> LogError:
        return LogError(
            f"{problem}. Nothing was changed. Restore {self.directory} or, if another in-sync "
            "replica has the partition, delete it: it is replicated again"
        )

    def _scan(self, found: _Found, segment: Segment) -> str | None:
        """Add a segment's batches to `found`; return the fault that stopped the scan, if any."""
        if segment.base_offset != found.end_offset:
            return f"the segment begins at offset {segment.base_offset}"
        try:
            for position, header, _, sound in scan(segment.descriptor, segment.allocated):
                fault = "the checksum is wrong" if not sound else found.follows(header)
                if fault is not None:
                    return fault
                found.take(header)
                segment.note(header.base_offset, position)
                segment.size = position + header.size_bytes
        except RecordsError as error:
            return str(error)
        return None

    def _cut(self, found: _Found, index: int, fault: str) -> None:
        """Truncate the log at a fault (rule 2). LogError if that would drop flushed records."""
        segment = self._segments.segments[index]
        if found.end_offset < self._recovery_point:
            raise self._refusal(
                f"{segment.path} is damaged at byte {segment.size}, where offset "
                f"{found.end_offset} is expected: {fault}; everything before offset "
                f"{self._recovery_point} was flushed"
            )
        found.torn_bytes = segment.allocated - segment.size
        for later in self._segments.segments[index + 1 :]:
            found.torn_bytes += later.allocated
        while len(self._segments.segments) > index + 1:
            last = self._segments.segments.pop()
            last.close()
            self._disk.unlink(last.path)
        if segment.size == 0 and index > 0:
            # The name of this empty segment may not match the offset of the next append.
            self._segments.segments.pop()
            segment.close()
            self._disk.unlink(segment.path)
        else:
            self._disk.truncate(segment.descriptor, segment.size)
            segment.allocated = segment.size
        self._disk.sync_directory(self.directory)

    # --- use --------------------------------------------------------------------------------------

    def append(self, batches: Sequence[Buffer]) -> None:
        """Append complete batches, each with its offset and epoch, that continue the log."""
        segment = self._segments.active
        offsets: list[int] = []
        views: list[Buffer] = []
        size = segment.size
        end_offset = self._end_offset
        for batch in batches:
            header = read_header(batch)
            assert header.size_bytes == len(batch), "a batch is handed over alone and whole"
            assert header.base_offset == end_offset, (header.base_offset, end_offset)
            if size + len(batch) > self._segment_bytes_max and size > 0:
                self._write(segment, offsets, views, end_offset)
                offsets, views, size = [], [], 0
                segment = self._segments.add(header.base_offset, 0)
                self._at_roll = self.producers.copy()
            if not self._epochs or header.epoch > self._epochs[-1][0]:
                self._epochs.append((header.epoch, header.base_offset))
            self.producers.note(header, header.base_offset)
            offsets.append(header.base_offset)
            views.append(batch)
            size += len(batch)
            end_offset = header.end_offset
        self._write(segment, offsets, views, end_offset)

    def _write(
        self, segment: Segment, offsets: Sequence[int], views: Sequence[Buffer], end_offset: int
    ) -> None:
        if not views:
            return
        try:
            self._segments.append(segment, offsets, views, 0)
        except OSError as error:
            self._has_failed = True
            raise write_failure(segment.path, error) from error
        # A concurrent flush reports this offset as durable, so the write must come first.
        self._end_offset = end_offset

    def truncate(self, end_offset: int) -> None:
        """Durably drop everything from `end_offset` on."""
        if end_offset >= self._end_offset:
            return
        with self._flushing:
            self._truncate(end_offset)

    def _truncate(self, end_offset: int) -> None:
        self._generation += 1
        if self._recovery_point > end_offset:
            self.save_recovery_point(end_offset)
        was_active = self._segments.active.base_offset
        self._segments.truncate(end_offset)
        self._end_offset = end_offset
        while self._epochs and self._epochs[-1][1] >= end_offset:
            self._epochs.pop()
        self._first_unflushed = min(self._first_unflushed, self._segments.active.base_offset)
        if self._segments.active.base_offset != was_active:
            self._at_roll = None
        self._rebuild_producers()

    def _rebuild_producers(self) -> None:
        """Rebuild the table from its state at the last roll if known, else from the whole log."""
        segments = self._segments.segments
        if self._at_roll is not None:
            table, segments = self._at_roll.copy(), segments[-1:]
        else:
            table = ProducerTable()
        for segment in segments:
            for _, header, _, _ in scan(segment.descriptor, segment.size):
                table.note(header, header.base_offset)
        self.producers = table

    def read(self, offset: int, max_bytes: int, end_offset: int) -> list[memoryview]:
        """Return complete batches, starting with the one that contains `offset`.

        At least one is returned, whatever `max_bytes` is, and none beyond `end_offset`. [] if there
        is none.
        """
        limit = min(end_offset, self._end_offset)
        if offset >= limit:
            return []
        return self._segments.read(offset, max_bytes, limit)

    # --- durability -------------------------------------------------------------------------------

    def flush(self) -> int:
        """Flush the log; return the durable end offset. Runs on any thread. LogFailedError."""
        with self._flushing:
            return self._flush()

    def flush_and_save(self) -> int:
        """Flush the log like `flush`, and save the recovery point."""
        with self._flushing:
            end = self._flush()
            if not self._is_closed and not self._has_failed:
                self.save_recovery_point(end)
            return end

    def _flush(self) -> int:
        end = self._end_offset
        with self._segments.guard:
            if self._is_closed:
                return end
            waiting = [
                (segment.base_offset, os.dup(segment.descriptor))
                for segment in self._segments.segments
                if segment.base_offset >= self._first_unflushed
            ]
        try:
            for base, descriptor in waiting:
                self._disk.sync_data(descriptor)
                self._first_unflushed = base
        except OSError as error:
            self._has_failed = True
            raise write_failure(self.directory, error) from error
        finally:
            for _, descriptor in waiting:
                os.close(descriptor)
        return end

    def save_recovery_point(self, end_offset: int) -> None:
        """Record on disk that everything before `end_offset` is flushed."""
        if end_offset != self._recovery_point:
            self._disk.replace_file(
                self.directory / RECOVERY_POINT_FILE, str(end_offset).encode("ascii")
            )
            self._recovery_point = end_offset

    def close(self) -> None:
        """Flush the log, save its epochs and recovery point, and close its files."""
        if self._is_closed:
            return
        try:
            if self._has_failed:
                return
            epochs = [OffsetAndEpoch(start, epoch) for epoch, start in self._epochs]
            write_epochs(self._disk, self.directory, epochs)
            self.flush_and_save()
        finally:
            with self._segments.guard:
                self._is_closed = True
                self._segments.close()

    def delete(self) -> None:
        """Remove the directory: the topic was deleted or the partition reassigned."""
        with self._segments.guard:
            self._is_closed = True
            self._segments.close()
        delete_directory(self.directory, self._disk)


def _renamed(directory: Path, suffix: str) -> Path:
    """Return the path `<topic>-<partition>.<topic id><suffix>` for a partition directory.

    The topic's name is shortened where the file system's limit requires it, as in Kafka. The
    topic's id, which stays whole, keeps topics with the same short name apart.
    """
    topic, dash, index = directory.name.rpartition("-")
    end = f"{dash}{index}.{read_topic_id(directory)}{suffix}"
    return directory.with_name(topic[: NAME_BYTES_MAX - len(end)] + end)


def delete_directory(directory: Path, disk: Disk | None = None) -> None:
    """Rename the directory, so that a partial one is never opened as a replica, then remove it."""
    gone = _renamed(directory, DELETED_SUFFIX)
    shutil.rmtree(gone, ignore_errors=True)
    directory.rename(gone)
    (disk or Disk()).sync_directory(directory.parent)
    shutil.rmtree(gone, ignore_errors=True)


def set_aside(directory: Path, disk: Disk | None = None) -> Path:
    """Rename a partition directory that belongs to no replica; an operator decides its fate.

    An earlier stray directory of the same partition is kept: the new name gets a number.
    """
    stray = _renamed(directory, STRAY_SUFFIX)
    number = 1
    while stray.exists():
        number += 1
        stray = _renamed(directory, f".{number}{STRAY_SUFFIX}")
    directory.rename(stray)
    (disk or Disk()).sync_directory(directory.parent)
    return stray
