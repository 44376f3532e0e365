"""The part of a snapshot that belongs to applications, which follows the cluster's metadata.

While application.version is 0, it is the batches of their records, as they were appended. From
level 1 on, it consists of

1. APPLICATION_STATE, and, if 2 follows, the key index as of the snapshot's offset, in chunks;
2. the state of a state machine as of some offset before the snapshot's, in chunks, if this node has
   a state machine that writes snapshots, or if its previous snapshot had such a state;
3. the batches of records: all of them, or those from the offset of the state on.

With the policy `compact`, a batch contains only the records that are the last of their key and have
a value, and those with an empty key. The log's last record always stays. After a state, so do null
values whose key has no later record, because the state may have a value of the key. A batch keeps
its base and last offset (`records.compaction`). Records of earlier snapshots whose offset is
unknown stay until a later record of their key is written.

Everything is read and written batch by batch. If level 0 is finalized again, a state is copied with
what precedes it, since no records replace it. Earlier releases reject a snapshot with a state, at
any level, because of a record that they do not know (`records.metadata.HAS_STATE`): they would skip
the state, and their own snapshots would lack it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass

from quorate.applications import (
    NO_OFFSET,
    UNKNOWN_OFFSET,
    ApplicationState,
    digest_of,
    state_records,
)
from quorate.applications.chunks import index_chunks, state_chunks
from quorate.log.errors import LogError
from quorate.log.metadata_log import MetadataLog
from quorate.raft.types import OffsetAndEpoch
from quorate.records.batch import StoredRecord, has_keys, iter_batches, read_header
from quorate.records.compaction import with_survivors
from quorate.records.metadata import (
    HAS_STATE,
    ApplicationTag,
    NoOpRecord,
    application_record,
)
from quorate.records.primitives import Buffer
from quorate.runtime.metadata_batches import application_batches, build_metadata_batch, field_of

READ_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of the log to read at a time while a snapshot is written."""
STATE_TAGS = (ApplicationTag.INDEX_CHUNK, ApplicationTag.STATE_CHUNK)
"""The records of a snapshot that replace records of applications."""


@dataclass(frozen=True, slots=True)
class MachineState:
    """The state of a state machine after everything before `offset`, in chunks."""

    offset: int
    chunks: Iterable[bytes]


@dataclass(frozen=True, slots=True)
class ApplicationPart:
    """What to write."""

    log: MetadataLog
    """The source of the records before `offset`."""
    previous: OffsetAndEpoch | None
    """The previous snapshot."""
    offset: int
    timestamp_ms: int
    applications: ApplicationState | None
    """The state of applications at `offset`, None at level 0."""
    machine: MachineState | None
    """The state that replaces the records before its offset."""
    is_compact: bool
    """Whether the cleanup policy is compaction."""

    def batches(self) -> Iterator[Buffer]:
        """The batches in order, for a checkpoint. Raises LogError, RecordsError."""
        if self.applications is not None:
            yield from self._as_batches(state_records(self.applications))
        if self.machine is not None:
            yield from self._index()
            chunks = state_chunks(self.machine.chunks)
            yield from self._as_batches(map(_state_record, chunks))
            follows_state, begin = True, self.machine.offset
        else:
            follows_state = yield from self._previous()
            begin = 0 if self.previous is None else self.previous.offset
        for batch in self._log_from(begin):
            yield from self._kept(batch, follows_state=follows_state)

    def _as_batches(self, records: Iterable[NoOpRecord]) -> Iterator[Buffer]:
        """Batches of one record each, by which readers recognize them (`field_of`)."""
        for record in records:
            yield build_metadata_batch([record], self.timestamp_ms)

    def _index(self) -> Iterator[Buffer]:
        assert self.applications is not None, "at level 0 an index is copied"
        chunks = index_chunks(self.applications.index.items())
        yield build_metadata_batch([HAS_STATE], self.timestamp_ms)
        yield from self._as_batches(map(_index_record, chunks))

    def _previous(self) -> Generator[Buffer, None, bool]:
        """The part of the previous snapshot; returns whether that has a state."""
        has_state = False
        if self.previous is None:
            return False
        summary: Buffer = b""
        for found in self.log.iter_snapshot_batches(self.previous):
            batch = found.data
            assert isinstance(batch, bytes | memoryview), type(batch)
            if has_keys(batch, read_header(batch)):
                yield from self._kept(batch, follows_state=has_state)
                continue
            tag, _ = field_of(batch) or (None, b"")
            if tag is ApplicationTag.APPLICATION_STATE:
                summary = batch
            elif tag in STATE_TAGS:
                if not has_state and self.applications is None:
                    yield from (
                        build_metadata_batch([HAS_STATE], self.timestamp_ms),
                        summary,
                    )
                elif not has_state:
                    yield from self._index()
                has_state = True
                if self.applications is None or tag is ApplicationTag.STATE_CHUNK:
                    yield batch
        return has_state

    def _log_from(self, begin: int) -> Iterator[Buffer]:
        """The batches of applications in the log from `begin` on, with their offsets kept."""
        position = begin
        while position < self.offset:
            chunks = self.log.read_durable(position, READ_BYTES_MAX, self.offset)
            if not chunks:
                raise LogError(f"the log no longer contains offset {position}")
            for chunk in chunks:
                for header, view in iter_batches(chunk):
                    position = header.end_offset
                    if not header.is_control:
                        yield from application_batches(view, header)

    def _kept(self, batch: Buffer, *, follows_state: bool) -> Iterator[Buffer]:
        """What the policy keeps of a batch whose offset in the log is kept, or unknown."""
        applications = self.applications
        if applications is None or not self.is_compact:
            yield batch
            return
        header = read_header(batch)
        base = header.log_base_offset

        def survives(record: StoredRecord) -> bool:
            offset = UNKNOWN_OFFSET
            if base is not None:
                offset = base + record.offset - header.base_offset
                if offset == applications.last_offset:
                    return True
            if not record.key:
                return True
            last = applications.index.get(digest_of(record.key))
            if record.value is None:
                return follows_state and last == NO_OFFSET
            return offset == last

        kept = with_survivors(batch, header, survives)
        if kept is not None:
            yield kept


def _index_record(chunk: bytes) -> NoOpRecord:
    return application_record(ApplicationTag.INDEX_CHUNK, chunk)


def _state_record(chunk: bytes) -> NoOpRecord:
    return application_record(ApplicationTag.STATE_CHUNK, chunk)
