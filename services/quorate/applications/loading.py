"""The state of applications in snapshots, both directions.

Between the metadata records and the records of applications, a snapshot has NoOpRecords whose
tagged fields contain what the records of applications alone do not say. They are in batches of
their own, so a reader recognizes them by a batch's first record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from quorate.applications.changes import changes_of
from quorate.applications.chunks import index_entries
from quorate.applications.key_index import NO_OFFSET
from quorate.applications.sessions import ProducerSessions
from quorate.applications.state import ApplicationState
from quorate.records.batch import BatchHeader
from quorate.records.metadata import (
    ApplicationSummary,
    ApplicationTag,
    MetadataRecord,
    NoOpRecord,
    UnknownRecord,
    application_field,
    application_record,
)
from quorate.records.primitives import Buffer


def state_records(state: ApplicationState) -> Iterator[NoOpRecord]:
    """The records of a snapshot, which precede its records of applications."""
    summary = ApplicationSummary(state.last_offset, state.time_ms)
    yield application_record(ApplicationTag.APPLICATION_STATE, summary.to_bytes())
    for chunk in state.sessions.encode():
        yield application_record(ApplicationTag.SESSIONS_CHUNK, chunk)


def has_chunk(records: Sequence[MetadataRecord | UnknownRecord]) -> bool:
    """Whether the records of a batch belong to a state, which replaces records of applications."""
    found = application_field(records[0]) if records else None
    return found is not None and found[0] in (
        ApplicationTag.INDEX_CHUNK,
        ApplicationTag.STATE_CHUNK,
    )


class StateLoader:
    """Derives the state from a snapshot's batches, which must be passed in order."""

    def __init__(self) -> None:
        self._state = ApplicationState()
        self._summary: ApplicationSummary | None = None
        self._sessions: list[bytes] = []

    def add_records(self, records: Sequence[MetadataRecord | UnknownRecord]) -> None:
        """Take the records of a metadata batch. Raises RecordsError."""
        for record in records:
            found = application_field(record)
            if found is None:
                return
            self.add_field(*found)

    def add_field(self, tag: ApplicationTag, content: bytes) -> None:
        """Take what a record says of applications. Raises RecordsError."""
        if tag is ApplicationTag.APPLICATION_STATE:
            self._summary = ApplicationSummary.from_bytes(content)
        elif tag is ApplicationTag.SESSIONS_CHUNK:
            self._sessions.append(content)
        elif tag is ApplicationTag.INDEX_CHUNK:
            self._state.index.update(dict(index_entries(content)))

    def add_batch(self, batch: Buffer, header: BatchHeader) -> None:
        """Take a batch of records of applications. Raises RecordsError."""
        self._state.apply(changes_of(batch, header, header.log_base_offset))

    def finish(self) -> ApplicationState:
        """The state as of the snapshot's offset. Raises RecordsError."""
        # Without a summary, no timestamp counts yet: the level was finalized later.
        summary = self._summary or ApplicationSummary(self._state.last_offset)
        if self._state.last_offset == NO_OFFSET:
            self._state.last_offset = summary.last_offset
        # At level 0, a summary is copied with a state, and later records follow.
        self._state.last_offset = max(self._state.last_offset, summary.last_offset)
        self._state.sessions = ProducerSessions.decode(self._sessions, summary.time_ms)
        return self._state
