"""The bytes of one partition's replica: `<log dir>/<topic>-<partition>/`, as Kafka lays it out.

    00000000000000000000.log, …   segments of record batches
    partition.metadata            the topic's id
    leader-epoch-checkpoint       epochs and where they begin
    recovery-point                ours: everything before this offset was flushed

Rules:
1. An append is done when the operating system has it: a process that dies loses nothing, a machine
   may lose what was not flushed. `flush` makes durable what was appended before, from any thread.
2. Opening scans all segments. A fault at or beyond the recovery point is where the log ends now,
   for what follows was never flushed: replication brings back what others have (the broker that
   comes back so is in no ISR but where it is the last member). A fault before it is damage, and
   raises: cutting there could drop what was acknowledged.
3. What is left after opening is flushed, and the recovery point says so.
4. After a write or a flush that failed nothing more is said of the log: what the disk holds is
   found out when it is opened again.
5. One thread appends, truncates and reads.

Nothing of a log is deleted but with its topic: there is no retention, and every log starts at 0.

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
SEGMENT_BYTES_MAX = 1 << 30


def read_topic_id(directory: Path) -> str | None:
    """Which topic a partition's directory belongs to; None if it does not say."""
    try:
        lines = (directory / PARTITION_METADATA_FILE).read_text("ascii").splitlines()
    except (OSError, ValueError):
        return None
    found = [line.partition(":")[2].strip() for line in lines if line.startswith("topic_id:")]
    return found[0] if found else None


def read_recovery_point(directory: Path) -> int:
    """Everything before this offset was flushed; 0 if nothing is known."""
    try:
        return int((directory / RECOVERY_POINT_FILE).read_text("ascii"))
    except FileNotFoundError:
        return 0
    except ValueError as error:
        raise LogError(
            f"{directory / RECOVERY_POINT_FILE} is no offset ({error}); delete it if the log beside"
            " it may be cut at its first fault"
        ) from error


@dataclass(slots=True)
class _Found:
    """What the segments hold so far."""

    end_offset: int
    epochs: list[tuple[int, int]]
    producers: ProducerTable
    torn_bytes: int = 0

    def follows(self, header: BatchHeader) -> str | None:
        """Why a batch does not belong here; None if it does."""
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
    """An open log. `state` is what the protocol starts from; `torn_bytes` were cut when opening."""

    def __init__(
        self,
        directory: Path,
        topic_id: str,
        *,
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
        disk: Disk | None = None,
    ) -> None:
        """Open the log in `directory`, created if it is not there. LogError when it is damaged."""
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
        """Offsets and epochs, as found."""
        return LogState(BOOTSTRAP_SNAPSHOT, self._end_offset, self._epochs)

    @property
    def end_offset(self) -> int:
        return self._end_offset

    @property
    def generation(self) -> int:
        """Changes with each truncation: a flush that began before one says nothing after it."""
        return self._generation

    @property
    def has_rolled(self) -> bool:
        """Whether a segment before the active one waits to be flushed."""
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
        for path in files_by_offset(self.directory, LOG_SUFFIX):
            segments.segments.append(Segment(path, int(path.stem), 0))
        if not segments.segments:
            segments.add(0, 0)
        found = _Found(segments.segments[0].base_offset, [], ProducerTable())
        try:
            for index, segment in enumerate(list(segments.segments)):
                fault = self._scan(found, segment)
                if fault is not None:
                    self._cut(found, index, fault)
                    break
        except BaseException:
            segments.close()
            raise
        return found

    def _scan(self, found: _Found, segment: Segment) -> str | None:
        """Take a segment's batches; the reason where it does not end well."""
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
        """Let the log end at a fault (rule 2)."""
        segment = self._segments.segments[index]
        if found.end_offset < self._recovery_point:
            raise LogError(
                f"{segment.path} is damaged at byte {segment.size}, where offset "
                f"{found.end_offset} is expected: {fault}; everything before offset "
                f"{self._recovery_point} was flushed. Nothing was changed. If another in-sync "
                f"replica has the partition, delete {self.directory}: it is replicated again"
            )
        found.torn_bytes = segment.allocated - segment.size
        for later in self._segments.segments[index + 1 :]:
            found.torn_bytes += later.allocated
        while len(self._segments.segments) > index + 1:
            last = self._segments.segments.pop()
            last.close()
            self._disk.unlink(last.path)
        if segment.size == 0 and index > 0:
            # An empty segment of another name would not fit what is appended next.
            self._segments.segments.pop()
            segment.close()
            self._disk.unlink(segment.path)
        else:
            self._disk.truncate(segment.descriptor, segment.size)
            segment.allocated = segment.size
        self._disk.sync_directory(self.directory)

    # --- use --------------------------------------------------------------------------------------

    def append(self, batches: Sequence[Buffer]) -> None:
        """Append whole batches, each with its offset and epoch, that follow the end."""
        segment = self._segments.active
        offsets: list[int] = []
        views: list[Buffer] = []
        size = segment.size
        for batch in batches:
            header = read_header(batch)
            assert header.size_bytes == len(batch), "a batch is handed over alone and whole"
            assert header.base_offset == self._end_offset, (header.base_offset, self._end_offset)
            if size + len(batch) > self._segment_bytes_max and size > 0:
                self._write(segment, offsets, views)
                offsets, views, size = [], [], 0
                segment = self._segments.add(header.base_offset, 0)
                self._at_roll = self.producers.copy()
            if not self._epochs or header.epoch > self._epochs[-1][0]:
                self._epochs.append((header.epoch, header.base_offset))
            self.producers.note(header, header.base_offset)
            offsets.append(header.base_offset)
            views.append(batch)
            size += len(batch)
            self._end_offset = header.end_offset
        self._write(segment, offsets, views)

    def _write(self, segment: Segment, offsets: Sequence[int], views: Sequence[Buffer]) -> None:
        if not views:
            return
        try:
            self._segments.append(segment, offsets, views, 0)
        except OSError as error:
            self._has_failed = True
            raise write_failure(segment.path, error) from error

    def truncate(self, end_offset: int) -> None:
        """Drop everything from `end_offset` on, durably."""
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
        """From the active segment if it is known what preceded it, else from the whole log."""
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
        """Whole batches from the one that holds `offset`: at least one, none beyond `end_offset`.

        [] when there is none.
        """
        limit = min(end_offset, self._end_offset)
        if offset >= limit:
            return []
        return self._segments.read(offset, max_bytes, limit)

    # --- durability -------------------------------------------------------------------------------

    def flush(self) -> int:
        """Make durable what is appended now; where that ends. Any thread. LogFailedError."""
        with self._flushing:
            return self._flush()

    def flush_and_save(self) -> int:
        """The same, and say so on disk."""
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
        """Say on disk that everything before `end_offset` is flushed."""
        if end_offset != self._recovery_point:
            self._disk.replace_file(
                self.directory / RECOVERY_POINT_FILE, str(end_offset).encode("ascii")
            )
            self._recovery_point = end_offset

    def close(self) -> None:
        """Flush, say so, release."""
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
        """Remove the directory: the topic is gone, or the partition went to other brokers."""
        with self._segments.guard:
            self._is_closed = True
            self._segments.close()
        delete_directory(self.directory, self._disk)


def delete_directory(directory: Path, disk: Disk | None = None) -> None:
    """Rename, so that no half of it is ever taken for a replica, then remove."""
    gone = directory.with_name(directory.name + DELETED_SUFFIX)
    shutil.rmtree(gone, ignore_errors=True)
    directory.rename(gone)
    (disk or Disk()).sync_directory(directory.parent)
    shutil.rmtree(gone, ignore_errors=True)


def set_aside(directory: Path, disk: Disk | None = None) -> Path:
    """Rename a partition's directory that nobody claims: a person decides what becomes of it."""
    stray = directory.with_name(f"{directory.name}.{read_topic_id(directory)}{STRAY_SUFFIX}")
    shutil.rmtree(stray, ignore_errors=True)
    directory.rename(stray)
    (disk or Disk()).sync_directory(directory.parent)
    return stray
