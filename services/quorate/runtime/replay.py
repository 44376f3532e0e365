"""Replays batches of the committed log on the image and on the state of applications.

While application.version is 0, there is no such state, and batches of applications are not looked
at. The state begins with the batch that finalizes a level: it is then derived from everything
before, once. It ends with the batch that finalizes level 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from quorate.applications import (
    ApplicationState,
    BatchChanges,
    ProducerSessions,
    StateLoader,
    changes_of,
    has_chunk,
)
from quorate.log.errors import SnapshotNotFoundError
from quorate.log.metadata_log import MetadataLog
from quorate.metadata.image.delta import MetadataDelta
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.metadata.metadata_version import APPLICATION_VERSION
from quorate.raft.types import OffsetAndEpoch
from quorate.records.batch import BatchHeader, has_keys, iter_batches, read_header
from quorate.records.metadata import EndTransactionRecord, encode
from quorate.runtime.metadata_batches import (
    apply_batch,
    field_of,
    holds_metadata,
    load_batch,
    place,
)

READ_BYTES_MAX = 1024 * 1024
"""Bytes of the log to read at a time."""
KEYS_MAX = 10_000
"""More changed keys than this are applied in a worker thread, to a copy of the state."""

CommittedBatch = tuple[BatchHeader, memoryview]

_FEATURE_NAME = APPLICATION_VERSION.encode()
_END_TRANSACTION = encode(EndTransactionRecord(), 0)[:3]
"""The frame of the record: it may apply a level that its transaction has held back."""


@dataclass(slots=True)
class LoadedSnapshot:
    """What a snapshot contains."""

    image: MetadataImage
    records: int
    """The number of metadata records."""
    has_applications: bool
    """Whether the snapshot has records of applications."""
    applications: ApplicationState | None
    """The state of applications, None if application.version is 0."""


@dataclass(slots=True)
class Replayed:
    """What was replayed."""

    changes: MetadataDelta | None = None
    """The changes of the image."""
    applications: list[BatchChanges] = field(default_factory=list)
    """The batches that change the state of applications."""
    is_dropped: bool = False
    """Whether the state of applications ended."""
    finalized_by: BatchHeader | None = None
    """The last batch, if the state of applications begins with it, else None. The state's
    `end_offset` is the end of the last batch then.
    """


def may_finalize(image: MetadataImage, batches: Sequence[CommittedBatch]) -> bool:
    """Whether a batch may finalize a level of application.version; True if in doubt."""
    # A transaction may also be aborted, and a level follow it.
    markers = (_FEATURE_NAME, _END_TRANSACTION) if image.in_transaction else (_FEATURE_NAME,)
    return any(
        marker in bytes(batch)
        for header, batch in batches
        if not has_keys(batch, header)
        for marker in markers
    )


def replay(image: MetadataImage, batches: Sequence[CommittedBatch]) -> Replayed:
    """Apply batches in order to the image, and gather the changes of the state of applications.

    It stops after a batch that finalizes a level of application.version. Raises ReplayError,
    RecordsError.
    """
    done = Replayed()
    for header, batch in batches:
        before = image.features.application_version
        if holds_metadata(batch, header):
            changes = apply_batch(image, header, batch)
            if done.changes is None:
                done.changes = changes
            else:
                done.changes.add(changes)
        if image.features.application_version:
            if not before:
                done.finalized_by = header
                return done
            done.applications.append(changes_of(batch, header, header.base_offset))
        elif before:
            done.is_dropped = True
            done.applications.clear()
    return done


async def apply_changes(
    state: ApplicationState, changes: Sequence[BatchChanges]
) -> ApplicationState:
    """The state with the changes: the same one, or a copy if there are many."""
    if sum(len(each.keys) for each in changes) <= KEYS_MAX:
        _apply_all(state, changes)
        return state
    copy = state.copy()
    await asyncio.to_thread(_apply_all, copy, changes)
    return copy


def _apply_all(state: ApplicationState, changes: Sequence[BatchChanges]) -> None:
    for each in changes:
        state.apply(each)


async def derive_state(log: MetadataLog, finalized_by: BatchHeader) -> ApplicationState | None:
    """The state of applications at the end of the batch that finalized application.version.

    It is derived from the latest snapshot and the log after it. None if the log no longer contains
    what that takes, because a later snapshot replaced it. Raises LogError, RecordsError.
    """
    end = finalized_by.end_offset
    while True:
        snapshot = log.latest_snapshot()
        position = 0 if snapshot is None else snapshot.offset
        if position > end:
            return None
        try:
            state = await asyncio.to_thread(_state_of_snapshot, log, snapshot)
        except SnapshotNotFoundError:
            continue
        while log.start_offset <= position < end:
            chunks = log.read(position, READ_BYTES_MAX, end)
            position = await asyncio.to_thread(_apply_chunks, state, chunks)
        if position == end:
            # What is left in the log of sessions that an earlier level had differs between nodes.
            state.sessions = ProducerSessions(finalized_by.max_timestamp)
            return state


def _state_of_snapshot(log: MetadataLog, snapshot: OffsetAndEpoch | None) -> ApplicationState:
    loader = StateLoader()
    if snapshot is not None:
        for batch in log.iter_snapshot_batches(snapshot):
            assert isinstance(batch.data, bytes | memoryview), type(batch.data)
            header = read_header(batch.data)
            if not holds_metadata(batch.data, header):
                loader.add_batch(batch.data, header)
            elif (found := field_of(batch.data)) is not None:
                loader.add_field(*found)
    return loader.finish()


def _apply_chunks(state: ApplicationState, chunks: Sequence[memoryview]) -> int:
    """Apply the data batches in chunks of the log; returns the offset after the last batch."""
    end_offset = -1
    for chunk in chunks:
        for header, batch in iter_batches(chunk):
            end_offset = header.end_offset
            if not header.is_control:
                state.apply(changes_of(batch, header, header.base_offset))
    return end_offset


def load_snapshot(log: MetadataLog, snapshot: OffsetAndEpoch) -> LoadedSnapshot:
    """Read a snapshot. This can take seconds: call it in a worker thread.

    Raises LogError, RecordsError, ReplayError, SnapshotNotFoundError.
    """
    image = MetadataImage()
    count = 0
    has_applications = False
    applications: StateLoader | None = None
    for batch in log.iter_snapshot_batches(snapshot):
        assert isinstance(batch.data, bytes | memoryview), type(batch.data)
        view = memoryview(batch.data)
        header = read_header(view)
        records = load_batch(image, header, view)
        count += len(records)
        is_application = has_keys(view, header)
        has_applications = has_applications or is_application or has_chunk(records)
        # The finalized levels are the first records of a snapshot.
        if applications is None and image.features.application_version:
            applications = StateLoader()
        if applications is not None:
            applications.add_records(records)
            if is_application:
                applications.add_batch(view, header)
    place(image, snapshot)
    state = None if applications is None else applications.finish()
    return LoadedSnapshot(image, count, has_applications, state)
