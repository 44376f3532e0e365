"""The one thread that writes a log: group commit.

1. Take everything that is queued.
2. Write the batches of consecutive appends with one `writev`, rolling to a new segment where one is
   full, and sync once. A truncation or a reset is done where it stands in the queue.
3. Report the ticket of the last append that this sync covers.
4. What nobody waits for comes after: `leader-epoch-checkpoint`.

The recovery point is written after every sync and before the report. It is synced before the first
report, and from then on every second while there are writes, busy or idle.

A failure ends it: it is reported once, and nothing is reported durable after it. What the disk
holds is then unknown until the log is opened again (a page that failed to sync may read as clean).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from quorate.log.disk import Disk
from quorate.log.epochs import EpochHistory
from quorate.log.errors import LogFailedError, write_failure
from quorate.log.recovery_point import RecoveryPoint
from quorate.log.segments import GROUP_BYTES_MAX, Segment, SegmentList
from quorate.telemetry.histogram import Histogram

LOGGER = logging.getLogger(__name__)

RECOVERY_POINT_PERIOD_S = 1.0
"""How far the recovery point on the disk may be behind, seconds."""

SLOW_SYNC_S = 1.0
SLOW_SYNC_PERIOD_S = 10.0
"""A sync that takes longer than the first is logged, once in the second, seconds."""


@dataclass(slots=True)
class Append:
    """Batches with their base offsets."""

    ticket: int
    operation: int
    end_offset: int
    stream: int
    """The stream position of the first batch."""
    offsets: Sequence[int]
    batches: Sequence[memoryview]
    size: int


@dataclass(slots=True)
class Truncate:
    ticket: int
    operation: int
    end_offset: int


@dataclass(slots=True)
class Reset:
    """Begin again at a received checkpoint's offset; the checkpoint is durable. ticket None: only
    `done` is set.
    """

    ticket: int | None
    operation: int
    offset: int
    stream: int
    done: threading.Event = field(default_factory=threading.Event)


Operation = Append | Truncate | Reset


class LogWriter:
    """Executes operations in order on a thread of its own, from construction to `stop`.

    written: the number of the last operation whose bytes are in the files, synced or not.
    durable_end: the end of what is known to be synced.
    sync_latency: of each group's sync, seconds.
    """

    def __init__(
        self,
        directory: Path,
        segments: SegmentList,
        epochs: EpochHistory,
        *,
        end_offset: int,
        segment_bytes_max: int,
        preallocate_bytes: int,
        disk: Disk,
        on_durable: Callable[[int], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._directory = directory
        self._segments = segments
        self._epochs = epochs
        self._segment_bytes_max = segment_bytes_max
        self._preallocate_bytes = preallocate_bytes
        self._disk = disk
        self._on_durable = on_durable
        self._on_failure = on_failure
        self._queue: deque[Operation] = deque()
        self._taken: Sequence[Operation] = ()
        self._ready = threading.Condition()
        self._stopping = False
        self._recovery_point = RecoveryPoint(directory, disk, end_offset)
        self._point_synced_s = -RECOVERY_POINT_PERIOD_S
        self._durable_guard = threading.Lock()
        self.queued_bytes = 0
        self.written = 0
        self.durable_end = end_offset
        self.failure: BaseException | None = None
        self.sync_latency = Histogram()
        self._slow_logged_s = -SLOW_SYNC_PERIOD_S
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def submit(self, operation: Operation) -> None:
        """Queue an operation. LogFailedError once the writer has failed."""
        with self._ready:
            if self.failure is not None:
                raise LogFailedError(f"the log takes nothing any more: {self.failure}")
            assert not self._stopping, "the log is closed"
            self._queue.append(operation)
            if isinstance(operation, Append):
                self.queued_bytes += operation.size
            self._ready.notify()

    def stop(self) -> None:
        """Finish what is queued, then end."""
        with self._ready:
            self._stopping = True
            self._ready.notify()
        self._join()

    def close(self) -> None:
        """Release the recovery point's file, after `stop`."""
        self._recovery_point.close()

    def _start(self) -> None:
        name = "quorate-log-writer"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _join(self) -> None:
        self._thread.join()

    def begin_reset(self, offset: int) -> None:
        """A log that ends at `offset` is whole from now on, for a checkpoint there is about to get
        its name. For any thread, while nothing is queued. OSError.
        """
        self._lower_recovery_point(offset)

    def _run(self) -> None:
        while self._turn(self._take):
            pass

    def _turn(self, take: Callable[[], Sequence[Operation]]) -> bool:
        """Execute what is taken; False when nothing is, or after a failure."""
        try:
            self._taken = take()
            if not self._taken:
                return False
            self._execute(self._taken)
            self._epochs.flush(self._disk, self._segments)
            if self._point_wait_s() == 0:
                self._sync_recovery_point()
        except OSError as error:
            self._fail(write_failure(self._segments.directory, error))
        except BaseException as error:
            self._fail(error)
        return self.failure is None

    def _fail(self, error: BaseException) -> None:
        with self._ready:
            self.failure = error
            unfinished = [*self._taken, *self._queue]
            self._queue.clear()
        try:
            self._on_failure(error)
        finally:
            for operation in unfinished:
                if isinstance(operation, Reset):
                    operation.done.set()

    def _take(self) -> list[Operation]:
        """Take the queued operations, up to the group's limit; [] when stopping with none left."""
        while True:
            with self._ready:
                if not self._queue and not self._stopping:
                    self._ready.wait(self._point_wait_s())
                if self._queue:
                    return self._take_group()
                if self._stopping:
                    return []
            if self._point_wait_s() == 0:
                self._sync_recovery_point()

    def _take_group(self) -> list[Operation]:
        taken: list[Operation] = []
        size = 0
        while self._queue:
            operation = self._queue[0]
            if isinstance(operation, Append):
                size += operation.size
                if taken and size > GROUP_BYTES_MAX:
                    break
            taken.append(self._queue.popleft())
        return taken

    def _execute(self, operations: Sequence[Operation]) -> None:
        group: list[Append] = []
        for operation in operations:
            if isinstance(operation, Append):
                group.append(operation)
                continue
            self._commit(group)
            group = []
            if isinstance(operation, Truncate):
                self._lower_recovery_point(operation.end_offset)
                self._segments.truncate(operation.end_offset)
            else:
                self._reset(operation)
            self.written = operation.operation
            if isinstance(operation, Reset):
                operation.done.set()
            if operation.ticket is not None:
                self._on_durable(operation.ticket)
        self._commit(group)

    def _reset(self, operation: Reset) -> None:
        """The checkpoint is durable before anything of the log goes."""
        self._lower_recovery_point(operation.offset)
        self._segments.reset(operation.offset, operation.stream)
        self._mark_durable(operation.offset)
        self._sync_recovery_point()

    def _commit(self, group: Sequence[Append]) -> None:
        """Write, sync, report."""
        if not group:
            return
        segment = self._segments.active
        offsets: list[int] = []
        batches: list[memoryview] = []
        size = segment.size
        stream = group[0].stream
        for append in group:
            for offset, batch in zip(append.offsets, append.batches, strict=True):
                if size + len(batch) > self._segment_bytes_max and size > 0:
                    self._write(segment, offsets, batches)
                    offsets, batches, size = [], [], 0
                    segment = self._roll(segment, offset, stream)
                offsets.append(offset)
                batches.append(batch)
                size += len(batch)
                stream += len(batch)
        self._write(segment, offsets, batches)
        self.written = group[-1].operation
        self._sync(segment)
        self._mark_durable(group[-1].end_offset)
        if self._point_synced_s < 0:
            self._sync_recovery_point()
        written = sum(append.size for append in group)
        with self._ready:
            self.queued_bytes -= written
        self._on_durable(group[-1].ticket)

    def _sync(self, segment: Segment) -> None:
        began_s = time.perf_counter()
        self._disk.sync_data(segment.descriptor)
        ended_s = time.perf_counter()
        self.sync_latency.observe(ended_s - began_s)
        if ended_s - began_s > SLOW_SYNC_S and ended_s - self._slow_logged_s >= SLOW_SYNC_PERIOD_S:
            self._slow_logged_s = ended_s
            LOGGER.warning(
                "the disk of %s is slow: one sync took %.1f s, and every commit waits for one",
                self._directory,
                ended_s - began_s,
            )

    def _write(
        self, segment: Segment, offsets: Sequence[int], batches: Sequence[memoryview]
    ) -> None:
        room = self._segment_bytes_max - segment.allocated
        step = min(self._preallocate_bytes, max(room, 0))
        self._segments.append(segment, offsets, batches, step)

    def _roll(self, segment: Segment, base_offset: int, stream: int) -> Segment:
        """Sync the full segment before a newer one exists: recovery relies on it."""
        self._segments.trim(segment)
        self._mark_durable(base_offset)
        return self._segments.add(base_offset, stream)

    def _mark_durable(self, offset: int) -> None:
        """Everything before `offset` is synced."""
        with self._durable_guard:
            self.durable_end = offset
            self._recovery_point.advance(offset)

    def _point_wait_s(self) -> float | None:
        """How long the recovery point may stay as it is on the disk, seconds; None for ever."""
        if self._recovery_point.is_synced:
            return None
        return max(self._point_synced_s + RECOVERY_POINT_PERIOD_S - self._now_s(), 0)

    def _sync_recovery_point(self) -> None:
        self._recovery_point.sync()
        self._point_synced_s = self._now_s()

    def _now_s(self) -> float:
        return time.monotonic()

    def save_recovery_point(self) -> None:
        """Let the disk say how far all is synced. For any thread."""
        self._recovery_point.sync()

    def _lower_recovery_point(self, offset: int) -> None:
        """Before bytes at or after `offset` go; it stays below until they are synced again."""
        with self._durable_guard:
            self.durable_end = min(self.durable_end, offset)
            self._recovery_point.lower(offset)
