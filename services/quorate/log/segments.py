"""The files of the log: segments named by their first offset, and the list of them.

A segment's bytes are appended by the writer thread and read by anyone with `pread`. Each has a
sparse index in memory, one entry for every 4 KiB or so; what lies between is found by headers.

"Stream positions" count the bytes of the log across segments, so that the bytes between two
offsets are a subtraction. Kafka's own index files beside a segment are deleted before the segment
is changed: Kafka rebuilds what is missing, but believes what is there.

Rules: the list is changed and descriptors are closed only under `guard`, and reads hold it too;
of all syncs only those of a reset do. Files that go are unlinked newest first on truncation and
oldest first on cleaning, each followed by a sync of the directory: after a crash in between, what
is left has no gap.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path

from quorate.common.batch_layout import HEADER_SIZE
from quorate.log.disk import FILE_MODE, Disk
from quorate.log.scan import read_range
from quorate.records.batch import read_header
from quorate.records.primitives import Buffer

LOG_SUFFIX = ".log"
INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")
PRODUCER_SNAPSHOT_SUFFIX = ".snapshot"
INDEX_INTERVAL_BYTES = 4096
GROUP_BYTES_MAX = 16 << 20
"""What may be written between two syncs, a larger batch excepted."""
REWRITE_BYTES = 1 << 20


def offset_name(offset: int) -> str:
    """Twenty digits, as Kafka names files by offset."""
    return f"{offset:020d}"


def parse_offset_name(name: str) -> int | None:
    return int(name) if len(name) == 20 and name.isascii() and name.isdigit() else None


class Segment:
    """One file. size: bytes of batches; allocated: bytes of the file, which may end in zeros."""

    def __init__(self, path: Path, base_offset: int, stream_start: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.stream_start = stream_start
        self.size = 0
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        self.allocated = os.fstat(self.descriptor).st_size
        self._index: list[tuple[int, int]] = []

    def note(self, base_offset: int, position: int) -> None:
        """A batch begins at `position`; called for each, in order."""
        if not self._index or position - self._index[-1][1] >= INDEX_INTERVAL_BYTES:
            self._index.append((base_offset, position))

    def indexed(self, offset: int) -> int:
        """Where to begin to look for the batch that holds `offset`."""
        at = bisect_right(self._index, offset, key=lambda entry: entry[0]) - 1
        return self._index[at][1] if at >= 0 else 0

    def locate(self, offset: int) -> int:
        """Where the batch that holds `offset` begins; the segment's size if none does."""
        start = position = self.indexed(offset)
        window = b""
        while position < self.size:
            if position - start + HEADER_SIZE > len(window):
                start = position
                wanted = min(2 * INDEX_INTERVAL_BYTES, self.size - position)
                window = read_range(self.descriptor, position, wanted)
            header = read_header(window, position - start)
            if offset < header.end_offset:
                break
            position += header.size_bytes
        return position

    def read(self, offset: int, max_bytes: int, end_offset: int) -> list[memoryview]:
        """Whole batches from the one that holds `offset`: at least one, none beyond end_offset."""
        position = self.locate(offset)
        wanted = min(max(max_bytes, HEADER_SIZE), self.size - position)
        view = memoryview(read_range(self.descriptor, position, wanted))
        found: list[memoryview] = []
        at = 0
        while len(view) - at >= HEADER_SIZE:
            header = read_header(view, at)
            end = at + header.size_bytes
            if header.end_offset > end_offset:
                break
            if end > len(view):
                if not found:
                    whole = read_range(self.descriptor, position, header.size_bytes)
                    found.append(memoryview(whole))
                break
            found.append(view[at:end])
            at = end
        return found

    def cut_index(self, size: int) -> None:
        while self._index and self._index[-1][1] >= size:
            self._index.pop()

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class SegmentList:
    """All segments by rising base offset; the last one is active. Never empty once opened."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self.directory = directory
        self.disk = disk
        self.guard = threading.RLock()
        self.segments: list[Segment] = []

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def stream_start(self) -> int:
        return self.segments[0].stream_start

    def path_of(self, base_offset: int) -> Path:
        return self.directory / (offset_name(base_offset) + LOG_SUFFIX)

    def find(self, offset: int) -> Segment:
        """The segment that holds `offset`, if it is in the log."""
        at = bisect_right(self.segments, offset, key=lambda segment: segment.base_offset) - 1
        return self.segments[max(at, 0)]

    def read(self, offset: int, max_bytes: int, end_offset: int) -> list[memoryview]:
        with self.guard:
            return self.find(offset).read(offset, max_bytes, end_offset)

    def stream_position(self, offset: int) -> int:
        """The stream position of the batch that contains `offset`, which must be in the files."""
        with self.guard:
            segment = self.find(offset)
            return segment.stream_start + segment.locate(offset)

    def add(self, base_offset: int, stream_start: int) -> Segment:
        """A new, empty, active segment, its name durable."""
        segment = Segment(self.path_of(base_offset), base_offset, stream_start)
        try:
            self.disk.truncate(segment.descriptor, 0)
            segment.allocated = 0
            self.drop_indexes(segment)
            self.disk.sync(segment.descriptor)
            self.disk.sync_directory(self.directory)
        except BaseException:
            segment.close()
            raise
        with self.guard:
            self.segments.append(segment)
        return segment

    def append(
        self, segment: Segment, offsets: Sequence[int], batches: Sequence[Buffer], step: int
    ) -> None:
        """Write batches at the end of the active segment; not synced. step: bytes to allocate."""
        position = segment.size
        end = position + sum(map(len, batches))
        if end > segment.allocated and step > 0:
            self._allocate(segment, end, step)
        self.disk.write_all(segment.descriptor, batches, position)
        for offset, batch in zip(offsets, batches, strict=True):
            segment.note(offset, position)
            position += len(batch)
        segment.size = position
        segment.allocated = max(segment.allocated, position)

    def _allocate(self, segment: Segment, end: int, step: int) -> None:
        target = end + step
        try:
            self.disk.allocate(segment.descriptor, segment.allocated, target - segment.allocated)
        except OSError:
            # A nearly full disk, or a file system without allocation: the write itself decides.
            return
        segment.allocated = target

    def trim(self, segment: Segment) -> None:
        """Give back what was allocated and not used, and sync."""
        if segment.allocated > segment.size:
            self.disk.truncate(segment.descriptor, segment.size)
            segment.allocated = segment.size
        self.disk.sync(segment.descriptor)

    def rewrite(self, offset: int) -> None:
        """Write the batches from `offset` on once more, in place.

        Full segments are synced; the active one is left to the caller.
        """
        for segment, following in zip(self.segments, [*self.segments[1:], None], strict=True):
            if following is not None and following.base_offset <= offset:
                continue
            position = segment.locate(max(offset, segment.base_offset))
            while position < segment.size:
                chunk = read_range(
                    segment.descriptor, position, min(REWRITE_BYTES, segment.size - position)
                )
                position = self.disk.write_all(segment.descriptor, [chunk], position)
            if following is not None:
                self.disk.sync(segment.descriptor)

    def truncate(self, end_offset: int) -> None:
        """Drop all batches from `end_offset` on, durably. It is the base offset of a batch."""
        while (segment := self._take_newest(end_offset)) is not None:
            self._unlink(segment)
        active = self.active
        size = active.locate(end_offset)
        # No read may look for batches in a file that is shorter already.
        with self.guard:
            active.size = size
            active.cut_index(size)
        self.drop_indexes(active)
        self.disk.truncate(active.descriptor, size)
        self.disk.sync(active.descriptor)
        active.allocated = size
        self._drop_producer_snapshots(end_offset)
        self.disk.sync_directory(self.directory)

    def _take_newest(self, end_offset: int) -> Segment | None:
        with self.guard:
            if len(self.segments) < 2 or self.active.base_offset < end_offset:
                return None
            segment = self.segments.pop()
            segment.close()
            return segment

    def reset(self, offset: int, stream_start: int) -> None:
        """Drop everything; begin again with an empty segment at `offset`, durably.

        Newest first: until the last one is gone, what is left is a log that ends below the
        checkpoint that replaces it.
        """
        while self.segments:
            with self.guard:
                segment = self.segments.pop()
                segment.close()
                self._unlink(segment)
                if not self.segments:
                    self._drop_producer_snapshots(-1)
                    self.add(offset, stream_start)
                    return
        self.add(offset, stream_start)

    def below(self, offset: int) -> list[Segment]:
        """Segments that hold only records before `offset`; never the active one."""
        with self.guard:
            followers = self.segments[1:]
            pairs = zip(self.segments, followers, strict=False)
            return [old for old, following in pairs if following.base_offset <= offset]

    def drop_below(self, offset: int) -> None:
        """Delete the segments that hold only records before `offset`, oldest first.

        The writer may truncate meanwhile: each step looks at what is there.
        """
        while (segment := self._take_oldest(offset)) is not None:
            self._unlink(segment)

    def _take_oldest(self, offset: int) -> Segment | None:
        with self.guard:
            if len(self.segments) < 2 or self.segments[1].base_offset > offset:
                return None
            segment = self.segments.pop(0)
            segment.close()
            return segment

    def _unlink(self, segment: Segment) -> None:
        self.disk.unlink(segment.path)
        self.drop_indexes(segment)
        self.disk.unlink(segment.path.with_suffix(PRODUCER_SNAPSHOT_SUFFIX))
        self.disk.sync_directory(self.directory)

    def drop_indexes(self, segment: Segment) -> None:
        for suffix in INDEX_SUFFIXES:
            self.disk.unlink(segment.path.with_suffix(suffix))

    def _drop_producer_snapshots(self, above: int) -> None:
        """Kafka's producer snapshots of offsets that are gone."""
        for path in files_by_offset(self.directory, PRODUCER_SNAPSHOT_SUFFIX):
            if int(path.stem) > above:
                self.disk.unlink(path)

    def close(self) -> None:
        with self.guard:
            for segment in self.segments:
                segment.close()


def files_by_offset(directory: Path, suffix: str) -> Iterator[Path]:
    """Files named by twenty digits and this suffix, by rising offset."""
    for path in sorted(directory.glob("*" + suffix)):
        if parse_offset_name(path.stem) is not None:
            yield path
