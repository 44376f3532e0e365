"""The committed state of applications, up to an offset of the log.

All nodes derive the same state from the same log: from all records of applications, and from the
timestamps of all records from the one that finalized application.version on. Timestamps before it
do not count, because snapshots do not keep those of metadata records.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from quorate.applications.changes import BatchChanges
from quorate.applications.key_index import NO_OFFSET, KeyIndex
from quorate.applications.sessions import ProducerSessions


@dataclass(slots=True)
class ApplicationState:
    """What a node derives from the records of applications."""

    last_offset: int = NO_OFFSET
    """The offset of the last application record, NO_OFFSET if there is none, UNKNOWN_OFFSET if the
    snapshot does not say.
    """
    index: KeyIndex = field(default_factory=KeyIndex)
    sessions: ProducerSessions = field(default_factory=ProducerSessions)
    """The producer sessions, and the time."""

    @property
    def time_ms(self) -> int:
        """The largest timestamp, in milliseconds since 1970, NO_TIME before the first record."""
        return self.sessions.time_ms

    def apply(self, changes: BatchChanges) -> None:
        """Apply the next data batch of the log."""
        if changes.last_offset != NO_OFFSET:
            self.last_offset = changes.last_offset
        self.index.update(changes.keys)
        apply_to_sessions(self.sessions, changes)

    def copy(self) -> ApplicationState:
        """An independent copy (see `KeyIndex`). It takes a millisecond with all sessions open."""
        return ApplicationState(self.last_offset, self.index.copy(), self.sessions.copy())


def apply_to_sessions(sessions: ProducerSessions, changes: BatchChanges) -> None:
    """Apply the next data batch of the log."""
    sessions.advance(changes.time_ms)
    for producer_id, opened in changes.opened:
        sessions.open(producer_id, opened.expiration_ms)
    if changes.producer is not None:
        base_offset = changes.end_offset - changes.count
        sessions.appended(changes.producer, changes.count, base_offset)
