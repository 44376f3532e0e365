"""The committed state of applications, up to an offset of the log.

All nodes derive the same state from the same log: from all records of applications, and from the
timestamps of all records from the one that finalized application.version on. Timestamps before it
do not count, because snapshots do not keep those of metadata records.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from quorate.applications.changes import BatchChanges
from quorate.applications.key_index import NO_OFFSET, KeyIndex

NO_TIME = -1


@dataclass(slots=True)
class ApplicationState:
    """last_offset: of the last application record, NO_OFFSET if there is none, UNKNOWN_OFFSET if
    the snapshot does not say. time_ms: the largest timestamp, in milliseconds since 1970, NO_TIME
    before the first record.
    """

    last_offset: int = NO_OFFSET
    time_ms: int = NO_TIME
    index: KeyIndex = field(default_factory=KeyIndex)

    def apply(self, changes: BatchChanges) -> None:
        """Apply the next data batch of the log."""
        if changes.last_offset != NO_OFFSET:
            self.last_offset = changes.last_offset
        self.time_ms = max(self.time_ms, changes.time_ms)
        self.index.update(changes.keys)

    def copy(self) -> ApplicationState:
        """An independent copy, in constant time (see `KeyIndex`)."""
        return ApplicationState(self.last_offset, self.time_ms, self.index.copy())
