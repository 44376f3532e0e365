"""Compares a checkpoint of an archive with the archived log before it.

The log is replayed from the start of its run: offset 0, or the run's own checkpoint. Compared are

- the epoch in the checkpoint's name with that of the record before its offset;
- kraft.version, the voters, and all entities of the metadata but SCRAM credentials
  (`metadata.entity_comparison`);
- the records of applications (`applications.record_comparison`);
- from application.version 1 on, what nodes derive from these: the producer sessions, the time, the
  offset of the last record, and those of the last records of keys.

Objects are streamed. Held in memory are two images, digests of their entities, and the state of
applications.

Source: `runtime.snapshots`, `runtime.replay`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

from quorate.applications import (
    UNKNOWN_OFFSET,
    ApplicationState,
    ProducerSessions,
    StateLoader,
    changes_of,
    digest_of,
)
from quorate.applications.record_comparison import (
    ComparedRecord,
    content_of,
    record_differences,
)
from quorate.backup.archive import verified_chunks
from quorate.backup.batches import PlacedBatch, batches_in
from quorate.backup.manifest import ArchivedRun, ArchivedSegment, ArchivedSnapshot
from quorate.backup.stores import ObjectStore
from quorate.metadata.config.config_defs import CLEANUP_POLICY
from quorate.metadata.entities import StateReplay
from quorate.metadata.entity_comparison import (
    differences_text,
    differing_names,
    named,
    things_of,
)
from quorate.metadata.image.metadata_image import AnyRecord, ReplayError
from quorate.records.batch import BatchHeader, Record, has_keys, iter_records, snapshot_records
from quorate.records.control import TYPE_NAMES, control_json, control_type, decode_control
from quorate.records.errors import RecordsError
from quorate.records.metadata import HAS_STATE, ConfigRecord, decode
from quorate.runtime.metadata_batches import field_of, holds_metadata, metadata_records


@dataclass(frozen=True, slots=True)
class CheckpointDifference:
    """What is wrong with a checkpoint. position: the byte in it, 0 for the whole checkpoint."""

    offset: int
    text: str
    position: int = 0


Meanwhile = Callable[[], None]


def checkpoint_differences(
    store: ObjectStore,
    runs: Sequence[ArchivedRun],
    snapshot: ArchivedSnapshot,
    meanwhile: Meanwhile = lambda: None,
) -> list[CheckpointDifference]:
    """What differs between a checkpoint and the log that ends at its offset or later.

    runs: runs without a gap between them; only the checkpoint of the first one is trusted.
    meanwhile: called for each batch that is read. What it raises passes through.
    BackupError if an object is missing or not that of the manifest; RecordsError if it is damaged.
    """
    stored = _Checkpoint(store, snapshot, meanwhile)
    log = _Log(store, runs, snapshot.offset, meanwhile, has_state=stored.state is not None)
    # This replays the log.
    records = list(record_differences(stored, log, is_own=False))
    texts: list[str] = []
    if log.epoch != snapshot.epoch:
        texts.append(f"its epoch is {snapshot.epoch}, that of the record before it {log.epoch}")
    differing = differing_names(things_of(stored.replay), things_of(log.replay))
    if differing:
        ours, theirs = named(stored.replay, differing), named(log.replay, differing)
        texts.append(f"{differences_text(ours, theirs)} by the log")
    if stored.state is not None and log.state is not None:
        texts += _of_applications(stored.state, log.state, has_right_records=not records)
    found = [CheckpointDifference(snapshot.offset, text) for text in texts]
    for each in records:
        text = f"{each.text}, by the log"
        found.append(CheckpointDifference(each.offset, text, each.position or 0))
    return found


def _of_applications(
    ours: ApplicationState, theirs: ApplicationState, *, has_right_records: bool
) -> Iterator[str]:
    """What differs, unless a snapshot of an early release does not say it."""
    last = ours.last_offset, theirs.last_offset
    if UNKNOWN_OFFSET not in last and last[0] != last[1]:
        yield f"the offset of the last application record is {last[0]}, but {last[1]} in the log"
    if ours.time_ms != theirs.time_ms:
        yield f"the time of applications is {ours.time_ms}, but {theirs.time_ms} in the log"
    elif ours.sessions != theirs.sessions:
        yield _sessions_text(ours.sessions, theirs.sessions)
    if has_right_records and (keys := _differing_keys(ours, theirs)):
        yield f"the offsets of the last records of {keys} keys are not those of the log"


def _sessions_text(ours: ProducerSessions, theirs: ProducerSessions) -> str:
    found, expected = dict(ours.items()), dict(theirs.items())
    for producer_id in sorted({*found, *expected}):
        one, other = found.get(producer_id), expected.get(producer_id)
        if one != other:
            shown = "missing" if one is None else str(one)
            wanted = "missing" if other is None else str(other)
            return f"producer session {producer_id} is {shown}, but {wanted} in the log"
    return "the producer sessions are in another order than in the log"


def _differing_keys(ours: ApplicationState, theirs: ApplicationState) -> int:
    count = 0
    for digest, offset in ours.index.items():
        expected = theirs.index.get(digest)
        count += UNKNOWN_OFFSET not in (offset, expected) and offset != expected
    known = {digest for digest, _ in ours.index.items()}
    return count + sum(digest not in known for digest, _ in theirs.index.items())


class _Replayed:
    """Entities from replaying batches, and a `RecordSource`."""

    def __init__(self, store: ObjectStore, start: int, meanwhile: Meanwhile) -> None:
        self.start = start
        self.unplaced: set[bytes] = set()
        self.is_compact = False
        self.has_state = False
        self.replay = StateReplay()
        self.state: ApplicationState | None = None
        """The state of applications, None at application.version 0."""
        self._store = store
        self._meanwhile = meanwhile

    @property
    def level(self) -> int:
        """The finalized application.version."""
        return self.replay.image.features.application_version

    def _batches(self, found: ArchivedSegment | ArchivedSnapshot) -> Iterator[PlacedBatch]:
        for placed in batches_in(verified_chunks(self._store, found)):
            self._meanwhile()
            yield placed

    def _add(self, header: BatchHeader, batch: memoryview) -> None:
        """Replay what is not an application's. Records that cannot be decoded are skipped."""
        if header.is_control:
            for control in iter_records(batch, header):
                with suppress(RecordsError):
                    name = TYPE_NAMES.get(control_type(control.key), "")
                    data = control_json(decode_control(control.key, control.value))
                    self.replay.apply_control(name, data, (control.offset,))
        elif holds_metadata(batch, header):
            records = _metadata_of(header, batch)
            for record in records:
                self.has_state |= record == HAS_STATE
                if isinstance(record, ConfigRecord):
                    self.is_compact |= record.name == CLEANUP_POLICY
            place = (header.base_offset,)
            self.replay.apply((record, place, True) for record in records)

    def _add_snapshot(self, snapshot: ArchivedSnapshot) -> Iterator[ComparedRecord]:
        """Replay a checkpoint; yield its records of applications. Sets `state` at the end."""
        loader = StateLoader()
        for position, header, batch in self._batches(snapshot):
            self._add(header, batch)
            if has_keys(batch, header):
                loader.add_batch(batch, header)
            elif (found := field_of(batch)) is not None:
                loader.add_field(*found)
            yield from self._placed(header, batch, position)
        self.state = loader.finish()

    def _placed(
        self, header: BatchHeader, batch: memoryview, position: int
    ) -> Iterator[ComparedRecord]:
        """The records of applications in a batch of a checkpoint; keeps those without an offset."""
        if not has_keys(batch, header):
            return
        for record in snapshot_records(batch, header):
            content = content_of(record.key or b"", record.value, record.timestamp)
            if record.offset is None:
                self.unplaced.add(content)
            else:
                yield _compared(record.offset, record, content, position)


class _Checkpoint(_Replayed):
    """A checkpoint, which is read once at first, and once more for its records of applications."""

    def __init__(
        self, store: ObjectStore, snapshot: ArchivedSnapshot, meanwhile: Meanwhile
    ) -> None:
        super().__init__(store, 0, meanwhile)
        self._snapshot = snapshot
        deque(self._add_snapshot(snapshot), maxlen=0)
        if not self.level:
            self.state = None

    def records(self) -> Iterator[ComparedRecord]:
        for position, header, batch in self._batches(self._snapshot):
            yield from self._placed(header, batch, position)


class _Log(_Replayed):
    """The log up to an offset, which is replayed while its records of applications are read.

    epoch: that of the last record.
    """

    def __init__(
        self,
        store: ObjectStore,
        runs: Sequence[ArchivedRun],
        end: int,
        meanwhile: Meanwhile,
        *,
        has_state: bool,
    ) -> None:
        super().__init__(store, runs[0].start, meanwhile)
        self.epoch = 0
        self._runs = runs
        self._end = end
        self._derives = has_state
        """Whether the state of applications is derived."""

    def records(self) -> Iterator[ComparedRecord]:
        base = self._runs[0].snapshot
        self.state = ApplicationState()
        if base is not None:
            self.epoch = base.epoch
            yield from self._add_snapshot(base)
        for segment in chain.from_iterable(run.segments for run in self._runs):
            if segment.base >= self._end:
                return
            for _, header, batch in self._batches(segment):
                if header.base_offset >= self._end:
                    continue
                self.epoch = header.epoch
                before = self.level
                self._add(header, batch)
                if self._derives and not header.is_control:
                    self._derive(header, batch, before)
                if not header.is_control:
                    yield from _applications_in(header, batch)

    def _derive(self, header: BatchHeader, batch: memoryview, before: int) -> None:
        """Apply a data batch to the state, as nodes do (`runtime.replay`).

        before: the level before the batch.
        """
        assert self.state is not None, "it is set before the first batch"
        self.state.apply(changes_of(batch, header, header.base_offset))
        if self.level and not before:
            self.state.sessions = ProducerSessions(header.max_timestamp)


def _applications_in(header: BatchHeader, batch: memoryview) -> Iterator[ComparedRecord]:
    """The records of applications in a data batch of the log."""
    for record in iter_records(batch, header):
        if record.key is not None:
            content = content_of(record.key, record.value, record.timestamp)
            yield _compared(record.offset, record, content, 0)


def _compared(offset: int, record: Record, content: bytes, position: int) -> ComparedRecord:
    key = digest_of(record.key) if record.key else b""
    return ComparedRecord(offset, key, content, record.value is not None, position)


def _metadata_of(header: BatchHeader, batch: memoryview) -> Sequence[AnyRecord]:
    """The records of a batch of metadata, without those that cannot be decoded."""
    try:
        return metadata_records(batch, header)[1]
    except ReplayError:
        found: list[AnyRecord] = []
        for record in iter_records(batch, header):
            if record.key is None:
                with suppress(RecordsError):
                    found.append(decode(record.value or b""))
        return found
