"""The metadata log of one replica: its bytes in memory and on disk, and its checkpoints.

One thread (the driver's) appends, truncates and reads; a writer thread makes durable what it queues
and reports tickets in order; checkpoints are written, received and cleaned up from worker threads.
Offsets here are those of what was handed over; `on_durable` says what of it the disk holds.

Directory: `<metadata.log.dir>/__cluster_metadata-0`, as Kafka lays it out (see `segments`,
`snapshots`, `offset_files`). Opening recovers it (see `recovery`).

Source: KIP-595, KIP-630; KIP-853, "Snapshots".
"""

from __future__ import annotations

import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from quorate.log.config import LogConfig
from quorate.log.disk import DIRECTORY_MODE, Disk
from quorate.log.epochs import EpochHistory
from quorate.log.errors import (
    LogError,
    MissingRecordsError,
    OffsetOutOfRangeError,
    SnapshotNotFoundError,
    write_failure,
)
from quorate.log.install import SnapshotInstall
from quorate.log.offset_files import METADATA_PARTITION, METADATA_TOPIC, read_recovery_point
from quorate.log.recovery import recover
from quorate.log.segments import SegmentList
from quorate.log.snapshots import SnapshotReader, SnapshotStore
from quorate.log.tail_cache import TailCache
from quorate.log.writer import Append, LogWriter, Reset, Truncate
from quorate.raft.batches import Batch
from quorate.raft.types import BOOTSTRAP_SNAPSHOT, OffsetAndEpoch, VoterSet
from quorate.records.batch import read_header
from quorate.records.primitives import Buffer
from quorate.telemetry.histogram import Histogram

PARTITION_DIRECTORY = f"{METADATA_TOPIC}-{METADATA_PARTITION}"
PARTITION_METADATA_FILE = "partition.metadata"
PARTITION_METADATA = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
"""The metadata topic's id is the same in every cluster: Uuid.METADATA_TOPIC_ID."""


def partition_directory(directory: Path) -> Path:
    return directory / PARTITION_DIRECTORY


def create_partition_directory(directory: Path, disk: Disk | None = None) -> Path:
    """The partition's directory below `directory`, created with what Kafka expects in it."""
    disk = disk or Disk()
    partition = partition_directory(directory)
    if not partition.is_dir():
        partition.mkdir(DIRECTORY_MODE, parents=True)
        disk.sync_directory(directory)
    if not (partition / PARTITION_METADATA_FILE).exists():
        disk.replace_file(partition / PARTITION_METADATA_FILE, PARTITION_METADATA)
    return partition


def access_warning(directory: Path) -> str | None:
    """A warning if every user of the machine can read the log, else None.

    directory: `metadata.log.dir`. Those that another program or an earlier version made may be.
    """
    modes = [path.stat().st_mode for path in (directory, partition_directory(directory))]
    if not all(mode & stat.S_IXOTH for mode in modes):
        return None
    return (
        f"every user of this machine can read {directory}, and the log has credentials: "
        f"run chmod -R o= {directory}"
    )


def write_bootstrap_checkpoint(
    directory: Path, voters: VoterSet, kraft_version: int = 1, now_ms: int = 0
) -> None:
    """`0…0-0…0.checkpoint`: the voter set a formatted directory begins with; never replicated.

    directory: `metadata.log.dir`. Source: KIP-853, "Bootstrap snapshot".
    """
    partition = create_partition_directory(directory)
    SnapshotStore(partition, Disk()).write(BOOTSTRAP_SNAPSHOT, kraft_version, voters, now_ms, ())


class MetadataLog:
    """An open log. `recovered` is what was found; attributes below it follow every change."""

    @classmethod
    def open(
        cls,
        directory: Path,
        config: LogConfig,
        *,
        on_durable: Callable[[int], None],
        on_failure: Callable[[BaseException], None],
        disk: Disk | None = None,
    ) -> MetadataLog:
        """Recover the log below `directory` (`metadata.log.dir`), creating what is missing.

        on_durable, on_failure are called from the writer thread. Raises DamagedLogError or another
        LogError, and leaves the directory as it was, when the log cannot be trusted.
        """
        return cls(directory, config, on_durable, on_failure, disk or Disk())

    def __init__(
        self,
        directory: Path,
        config: LogConfig,
        on_durable: Callable[[int], None],
        on_failure: Callable[[BaseException], None],
        disk: Disk,
    ) -> None:
        self.directory = directory
        self.config = config
        self._disk = disk
        recovery_point = read_recovery_point(directory)
        if recovery_point is not None and not partition_directory(directory).exists():
            raise MissingRecordsError(partition_directory(directory), 0, recovery_point)
        self.partition = create_partition_directory(directory, disk)
        self._segments = SegmentList(self.partition, disk)
        self._store = SnapshotStore(self.partition, disk)
        try:
            self._recover(on_durable, on_failure)
        except BaseException:
            self._segments.close()
            raise

    def _recover(
        self, on_durable: Callable[[int], None], on_failure: Callable[[BaseException], None]
    ) -> None:
        directory, config, disk = self.directory, self.config, self._disk
        self.recovered = recover(directory, self._segments, self._store, disk)
        self._start = self.recovered.start
        self._end_offset = self.recovered.end_offset
        active = self._segments.active
        self._stream_end = active.stream_start + active.size
        self._cache = TailCache(config.tail_cache_bytes)
        self._epochs = EpochHistory(self._start, self.recovered.epochs)
        self._operation = 0
        self._maintenance = threading.Lock()
        self._install: SnapshotInstall | None = None
        self._closed = False
        self._writer = LogWriter(
            directory,
            self._segments,
            self._epochs,
            end_offset=self._end_offset,
            segment_bytes_max=config.segment_bytes_max,
            preallocate_bytes=config.preallocate_bytes,
            disk=disk,
            on_durable=on_durable,
            on_failure=on_failure,
        )

    @property
    def start(self) -> OffsetAndEpoch:
        """The first offset that can be read, and the epoch of the record before it."""
        return self._start

    @property
    def start_offset(self) -> int:
        return self._start.offset

    @property
    def end_offset(self) -> int:
        return self._end_offset

    @property
    def last_epoch(self) -> int:
        return self._epochs.last_epoch

    @property
    def size_bytes(self) -> int:
        """The size of all segments, including queued batches but not checkpoints."""
        return self._stream_end - self._segments.stream_start

    @property
    def queued_bytes(self) -> int:
        """Appended and not yet synced: what an overloaded leader limits."""
        return self._writer.queued_bytes

    @property
    def sync_latency(self) -> Histogram:
        """The latency of each sync of the log, in seconds."""
        return self._writer.sync_latency

    @property
    def failure(self) -> BaseException | None:
        """The exception that `on_failure` was called with; None if there was no failure."""
        return self._writer.failure

    # --- the log itself: the driver's thread -----------------------------------------------------

    def append(self, ticket: int, batches: Sequence[Buffer]) -> None:
        """Queue batches that follow each other and the log's end; readable at once.

        The caller gives the bytes away: it must not change them. LogFailedError after a failure.
        """
        views: list[memoryview] = []
        offsets: list[int] = []
        ends: list[int] = []
        end_offset = self._end_offset
        epoch = self._epochs.last_epoch
        for batch in batches:
            view = memoryview(batch)
            header = read_header(view)
            assert header.size_bytes == len(view), "a batch is handed over alone and whole"
            assert header.base_offset == end_offset, (
                f"offset {header.base_offset} is appended to a log that ends at {end_offset}"
            )
            assert header.epoch >= epoch, f"epoch {header.epoch} is appended after epoch {epoch}"
            self._epochs.note(header.epoch, header.base_offset)
            epoch = header.epoch
            views.append(view)
            offsets.append(header.base_offset)
            end_offset = header.end_offset
            ends.append(end_offset)
        operation = self._next_operation()
        stream = self._stream_end
        size = sum(map(len, views))
        self._writer.submit(Append(ticket, operation, end_offset, stream, offsets, views, size))
        for view, offset, end in zip(views, offsets, ends, strict=True):
            self._cache.add(offset, end, self._stream_end, operation, view)
            self._stream_end += len(view)
        self._end_offset = end_offset
        if self._cache.size > self._cache.bytes_max:
            self._cache.evict(self._writer.written)

    def truncate(self, ticket: int, offset: int) -> None:
        """Drop everything from `offset` on, which is where a batch begins, or the end.

        Done in order with the appends around it; reported by its ticket when it is durable.
        """
        if not self.start_offset <= offset <= self._end_offset:
            raise OffsetOutOfRangeError(
                f"truncation to {offset} of a log from {self.start_offset} to {self._end_offset}"
            )
        stream = self._stream_position(offset)
        self._cache.truncate(offset)
        self._epochs.truncate(offset)
        self._end_offset = offset
        self._stream_end = stream
        self._writer.submit(Truncate(ticket, self._next_operation(), offset))

    def read(self, offset: int, max_bytes: int, end_offset: int | None = None) -> list[memoryview]:
        """Whole batches from the one that holds `offset`: about `max_bytes`, at least one batch.

        Never beyond `end_offset` (the log's end by default); [] at the end. OffsetOutOfRangeError
        outside of [start_offset, end_offset].
        """
        limit = self._end_offset if end_offset is None else min(end_offset, self._end_offset)
        if not self.start_offset <= offset <= self._end_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} of a log from {self.start_offset} to {self._end_offset}"
            )
        if offset >= limit:
            return []
        if self._cache.covers(offset):
            return self._cache.read(offset, max_bytes, limit)
        # Behind the cache's start the files may still hold what a queued truncation will drop.
        first = self._cache.first_offset
        return self._segments.read(offset, max_bytes, limit if first is None else min(limit, first))

    def is_cached(self, offset: int) -> bool:
        """Whether `read` from this offset takes the batches from memory; the driver's thread."""
        return self._cache.covers(offset)

    @property
    def durable_end(self) -> int:
        """Everything before this offset is on disk."""
        return self._writer.durable_end

    def read_durable(self, offset: int, max_bytes: int, end_offset: int) -> list[memoryview]:
        """Like `read`, for any thread: `end_offset` must not be beyond `durable_end`."""
        assert end_offset <= self._writer.durable_end, "only what is in the files is read here"
        return self._segments.read(offset, max_bytes, end_offset) if offset < end_offset else []

    def bytes_since(self, offset: int) -> int:
        """The size of the log from the batch that holds `offset` to its end."""
        if offset >= self._end_offset:
            return 0
        return self._stream_end - self._stream_position(max(offset, self.start_offset))

    def _stream_position(self, offset: int) -> int:
        if offset >= self._end_offset:
            return self._stream_end
        if self._cache.covers(offset):
            return self._cache.stream_position(offset)
        return self._segments.stream_position(offset)

    def _next_operation(self) -> int:
        self._operation += 1
        return self._operation

    # --- checkpoints: any thread -----------------------------------------------------------------

    def snapshots(self) -> tuple[OffsetAndEpoch, ...]:
        """All checkpoints, oldest first, the bootstrap one (0@0) included."""
        return self._store.ids()

    def latest_snapshot(self) -> OffsetAndEpoch | None:
        ids = self._store.ids()
        return ids[-1] if ids else None

    def write_snapshot(
        self,
        snapshot: OffsetAndEpoch,
        kraft_version: int,
        voters: VoterSet | None,
        last_timestamp: int,
        batches: Iterable[Buffer],
    ) -> None:
        """Write a checkpoint of the committed log before `snapshot.offset`; durable on return.

        snapshot.epoch is that of the record before it; voters, kraft_version those in force there.
        batches: data batches, whatever their offsets; a bytearray is stamped in place. LogError
        when the id does not fit the log, LogFailedError (DiskFullError) when it cannot be written:
        the log itself is unharmed.
        """
        with self._maintenance:
            if not self.start_offset <= snapshot.offset <= self._end_offset:
                raise LogError(f"no checkpoint at {snapshot}: the log ends at {self._end_offset}")
            if self._epochs.epoch_before(snapshot.offset) != snapshot.epoch:
                raise LogError(f"no checkpoint at {snapshot}: the record before has another epoch")
            if not self._is_boundary(snapshot.offset):
                raise LogError(f"no checkpoint at {snapshot}: the offset is inside a batch")
            try:
                self._store.write(snapshot, kraft_version, voters, last_timestamp, batches)
            except OSError as error:
                raise write_failure(self._store.path(snapshot), error) from error
            self._writer.save_recovery_point()

    def _is_boundary(self, offset: int) -> bool:
        """Whether a batch begins at `offset`, as far as the files tell (any thread may ask)."""
        # A truncation may lower the durable end meanwhile, but never below a committed offset.
        end_offset = self._writer.durable_end
        found = self._segments.read(offset, 1, end_offset) if offset < end_offset else []
        return not found or read_header(found[0]).base_offset == offset

    def open_snapshot(self, snapshot: OffsetAndEpoch) -> SnapshotReader:
        """SnapshotNotFoundError if there is none (any more)."""
        return self._store.open(snapshot)

    def snapshot_file(self, snapshot: OffsetAndEpoch) -> tuple[int, float]:
        """A checkpoint's size in bytes and when it was written, seconds since 1970.
        SnapshotNotFoundError if there is none (any more). For any thread.
        """
        path = self._store.path(snapshot)
        try:
            found = path.stat()
        except FileNotFoundError:
            raise SnapshotNotFoundError(f"there is no checkpoint {path}") from None
        return found.st_size, found.st_mtime

    def iter_snapshot_batches(
        self, snapshot: OffsetAndEpoch, from_offset: int = 0, *, include_control: bool = False
    ) -> Iterator[Batch]:
        """A checkpoint's data batches, without records of applications before `from_offset`.

        include_control: its control batches, too, so that all batches are the file's bytes.
        It is opened at once (SnapshotNotFoundError) and read in any thread to its end, even when it
        is deleted meanwhile. DamagedSnapshotError at the first fault.
        """
        return self._store.batches(snapshot, from_offset, include_control=include_control)

    def begin_install(self, snapshot: OffsetAndEpoch) -> SnapshotInstall:
        """Receive a checkpoint, or go on receiving it: see its `position`. One at a time."""
        if self._install is not None:
            self._install.close()
        self._install = SnapshotInstall(self._store, snapshot, self)
        return self._install

    def prepare_replacement(self, snapshot: OffsetAndEpoch) -> None:
        """A log that ends at `snapshot` is whole from now on. For any thread, while nothing is
        queued. OSError.
        """
        self._writer.begin_reset(snapshot.offset)

    def replace_by(self, ticket: int | None, snapshot: OffsetAndEpoch) -> threading.Event:
        """Begin again at a received checkpoint that has its name; the driver's thread.

        Return what is set when the old segments are gone, or the log failed; LogFailedError if it
        has failed already.
        """
        self._install = None
        reset = Reset(ticket, self._next_operation(), snapshot.offset, self._stream_end)
        self._writer.submit(reset)
        self._cache.clear()
        self._epochs.reset(snapshot)
        self._start = snapshot
        self._end_offset = snapshot.offset
        return reset.done

    def clean_up_before(self, snapshot: OffsetAndEpoch) -> None:
        """Delete the checkpoints that a received one replaced. LogError if the log failed."""
        if self._writer.failure is not None:
            raise LogError(f"checkpoint {snapshot} was not installed: {self._writer.failure}")
        older = [known for known in self._store.ids() if known.offset < snapshot.offset]
        self._store.delete(older)

    def advance_start(self, now_ms: int) -> OffsetAndEpoch:
        """Move the start of the log to what retention covers, and return it; the driver's thread.

        It moves from checkpoint to checkpoint, oldest first, while log and checkpoints together are
        over `retention_bytes`, or the next checkpoint stands for records that are all older than
        `retention_ms`. The newest checkpoint and the active segment always stay. Nothing is deleted
        before `delete_before`. OSError.
        """
        ids = self._store.ids()
        target = self._start
        for candidate in ids:
            if not self.start_offset < candidate.offset <= self._writer.durable_end:
                continue
            if not (self._is_over(target, ids) or self._is_expired(candidate, now_ms)):
                break
            target = candidate
        if target != self._start:
            self._start = target
            self._epochs.advance(target)
        return target

    def delete_before(self, start: OffsetAndEpoch) -> None:
        """Delete the segments and checkpoints before a start of the log. For any thread: a large
        file can take seconds to delete.

        LogFailedError when the disk fails: what was not deleted is, at the next call or start.
        """
        with self._maintenance:
            try:
                self._epochs.flush(self._disk, self._segments)
                self._segments.drop_below(start.offset)
                older = [known for known in self._store.ids() if known.offset < start.offset]
                if older:
                    self._store.delete(older)
            except OSError as error:
                raise write_failure(self.partition, error) from error

    def _is_over(self, start: OffsetAndEpoch, ids: Sequence[OffsetAndEpoch]) -> bool:
        """Whether the log would be too large if it started at `start`."""
        if self.config.retention_bytes < 0:
            return False
        size = self.size_bytes - sum(s.size for s in self._segments.below(start.offset))
        for snapshot in ids:
            if snapshot.offset >= start.offset:
                size += self._store.path(snapshot).stat().st_size
        return size > self.config.retention_bytes

    def _is_expired(self, snapshot: OffsetAndEpoch, now_ms: int) -> bool:
        if self.config.retention_ms < 0:
            return False
        return now_ms - self._store.last_timestamp(snapshot) > self.config.retention_ms

    def close(self) -> None:
        """Finish what is queued, give back unused room, say how far all is synced, release.

        LogFailedError when the last of that fails; all is released nevertheless.
        """
        if self._closed:
            return
        self._closed = True
        self._writer.stop()
        if self._install is not None:
            self._install.close()
        try:
            if self._writer.failure is None:
                self._segments.trim(self._segments.active)
                self._epochs.flush(self._disk, self._segments)
                self._writer.save_recovery_point()
        except OSError as error:
            raise write_failure(self.partition, error) from error
        finally:
            self._writer.close()
            self._segments.close()
