"""Finds the batches in objects that are read in chunks, and cuts a batch at an offset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from quorate.backup.archive import verified_chunks
from quorate.backup.errors import BackupError
from quorate.backup.manifest import ArchivedRun, ArchivedSegment
from quorate.backup.stores import ObjectStore
from quorate.common.batch_layout import HEADER_SIZE
from quorate.records.batch import BatchHeader, first_records, iter_records, read_header
from quorate.records.errors import RecordsError, TruncatedBatchError
from quorate.runtime.metadata_batches import holds_metadata

PlacedBatch = tuple[int, BatchHeader, memoryview]
"""Where a batch begins in its object, its header, and its bytes."""


def batches_in(chunks: Iterable[bytes]) -> Iterator[PlacedBatch]:
    """Yield the batches in an object, without a look at checksums.

    Raises what `read_header` does, and TruncatedBatchError if the object ends inside a batch; the
    positions are those in the object.
    """
    position = 0
    held: list[bytes] = []
    held_bytes, needed_bytes = 0, HEADER_SIZE
    for chunk in chunks:
        held.append(chunk)
        held_bytes += len(chunk)
        # A batch may be longer than many chunks, which are joined once.
        if held_bytes < needed_bytes:
            continue
        view = memoryview(b"".join(held))
        at = 0
        needed_bytes = HEADER_SIZE
        while len(view) - at >= HEADER_SIZE:
            header = _header_at(view, at, position)
            if header.size_bytes > len(view) - at:
                needed_bytes = header.size_bytes
                break
            yield position + at, header, view[at : at + header.size_bytes]
            at += header.size_bytes
        position += at
        held = [bytes(view[at:])]
        held_bytes = len(held[0])
    if held_bytes:
        wanted = f"{held_bytes} of {needed_bytes} bytes are there"
        raise TruncatedBatchError(position, wanted)


def _header_at(view: memoryview, at: int, position: int) -> BatchHeader:
    try:
        return read_header(view, at)
    except RecordsError as error:
        raise type(error)(position + at, getattr(error, "reason", str(error))) from None


@dataclass(frozen=True, slots=True)
class RestorePoint:
    """The end offset of a restore, within one run of the backup."""

    run: ArchivedRun
    end: int


def point_at_offset(store: ObjectStore, runs: Iterable[ArchivedRun], end: int) -> RestorePoint:
    """The point with exactly the records before the offset `end`. BackupError if there is none.

    An offset inside a batch of application records divides the batch. One inside a metadata batch
    is an error, because its records are one change.
    """
    found = None
    for run in runs:
        if run.start <= end <= run.end:
            found = run
    if found is None:
        ranges = ", ".join(f"{run.start} to {run.end}" for run in runs)
        raise BackupError(f"offset {end} is not in the backup: it can restore to offsets {ranges}")
    crossed = _batch_across(store, found, end)
    if crossed is not None and holds_metadata(crossed[1], crossed[0]):
        header = crossed[0]
        raise BackupError(
            f"offset {end} divides the batch of offsets {header.base_offset} to "
            f"{header.last_offset}, which is one change of the metadata: restore to "
            f"{header.base_offset} or {header.end_offset}"
        )
    return RestorePoint(found, end)


def _batch_across(
    store: ObjectStore, run: ArchivedRun, end: int
) -> tuple[BatchHeader, memoryview] | None:
    """The batch that has `end` inside, None if a batch begins or the run ends there."""
    for segment in run.segments:
        if segment.base < end < segment.end:
            for _, header, batch in batches_in(verified_chunks(store, segment)):
                if header.base_offset < end < header.end_offset:
                    return header, batch
    return None


def point_at_time(store: ObjectStore, runs: Iterable[ArchivedRun], time_ms: int) -> RestorePoint:
    """The point before the first record, in log order, that is later than `time_ms`.

    Of a metadata batch with such a record, no record is restored. BackupError if a checkpoint
    already stands for later records.
    """
    found = None
    for run in runs:
        if run.snapshot is None or run.snapshot.last_timestamp <= time_ms:
            found = run
    if found is None:
        raise BackupError("the backup begins later: its first checkpoint has later records")
    for segment in found.segments:
        if segment.last_timestamp > time_ms:
            return RestorePoint(found, _offset_after(store, segment, time_ms))
    return RestorePoint(found, found.end)


def _offset_after(store: ObjectStore, segment: ArchivedSegment, time_ms: int) -> int:
    """The offset of the first record that is later; in a metadata batch, of its first record."""
    for _, header, batch in batches_in(verified_chunks(store, segment)):
        if header.max_timestamp <= time_ms:
            continue
        if holds_metadata(batch, header):
            return header.base_offset
        for record in iter_records(batch, header):
            if record.timestamp > time_ms:
                return record.offset
    return segment.end


def batches_before(store: ObjectStore, point: RestorePoint) -> Iterator[list[memoryview]]:
    """Yield the run's batches before the point, in groups; the last one may be cut.

    Raises BackupError if an object is not that of the manifest, and RecordsError if one is damaged.
    """
    for segment in point.run.segments:
        if segment.base >= point.end:
            return
        group: list[memoryview] = []
        size = 0
        for _, header, batch in batches_in(verified_chunks(store, segment)):
            if header.base_offset >= point.end:
                continue
            kept = batch
            if header.end_offset > point.end:
                kept = memoryview(first_records(batch, header, point.end))
            group.append(kept)
            size += len(kept)
            if size >= GROUP_BYTES:
                yield group
                group, size = [], 0
        if group:
            yield group


GROUP_BYTES = 1 << 20
"""How many bytes of batches are written together."""
