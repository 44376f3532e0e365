"""Retention: which runs of an archive are kept, and where a run is divided to let older ones go.

Everything since a point in time stays restorable, as with a recovery window of other databases. A
restore needs the checkpoint at the start of its run, so only whole runs are dropped. A run that
never ends could never be dropped. It is therefore divided at a later checkpoint of the quorum.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from quorate.backup.archive import verified_chunks
from quorate.backup.batches import batches_in
from quorate.backup.manifest import ArchivedRun, ArchivedSegment, ArchivedSnapshot
from quorate.backup.stores import ObjectStore
from quorate.records.batch import BatchHeader

DAY_MS = 24 * 60 * 60 * 1000
DIVIDED_MS = DAY_MS
"""A run is divided once its records cover this time."""


def is_long(run: ArchivedRun) -> bool:
    """Whether a run covers enough time to be divided. One from offset 0 always does."""
    begin_ms = 0 if run.snapshot is None else run.snapshot.last_timestamp
    return run.last_timestamp - begin_ms >= DIVIDED_MS


def divide(
    store: ObjectStore, run: ArchivedRun, snapshot: ArchivedSnapshot
) -> tuple[ArchivedRun, ArchivedRun] | None:
    """The run up to a checkpoint's offset, and one that begins with the checkpoint.

    Writes the two halves of a segment that has the offset inside. None if no batch ends at the
    offset, or if the record before it is of another epoch than the checkpoint.
    """
    before: list[ArchivedSegment] = []
    after: list[ArchivedSegment] = []
    for segment in run.segments:
        if segment.end <= snapshot.offset:
            before.append(segment)
        elif segment.base >= snapshot.offset:
            after.append(segment)
        else:
            halves = _halves(store, segment, snapshot.offset)
            if halves is None:
                return None
            before.append(halves[0])
            after.append(halves[1])
    first = replace(run, segments=tuple(before))
    if (first.end, first.last_epoch) != (snapshot.offset, snapshot.epoch):
        return None
    return first, ArchivedRun(snapshot, tuple(after))


def _halves(
    store: ObjectStore, segment: ArchivedSegment, offset: int
) -> tuple[ArchivedSegment, ArchivedSegment] | None:
    placed = [
        (header, bytes(batch)) for _, header, batch in batches_in(verified_chunks(store, segment))
    ]
    at = next((n for n, (header, _) in enumerate(placed) if header.base_offset == offset), None)
    if at is None:
        return None
    return _put(store, placed[:at], segment.merges), _put(store, placed[at:], segment.merges)


def _put(
    store: ObjectStore, placed: Sequence[tuple[BatchHeader, bytes]], merges: int
) -> ArchivedSegment:
    headers = [header for header, _ in placed]
    data = b"".join(batch for _, batch in placed)
    segment = ArchivedSegment(
        headers[0].base_offset,
        headers[-1].end_offset,
        headers[0].epoch,
        headers[-1].epoch,
        max(0, *(header.max_timestamp for header in headers)),
        len(data),
        hashlib.sha256(data).hexdigest(),
        merges,
    )
    store.put(segment.name, [data])
    return segment
