"""The state of applications at the end of a leader's log, uncommitted records included.

A leader begins it empty at some offset, and is notified of every batch that it appends from there
on. It may be used once the committed state contains everything before that offset. No truncation
changes it: only a replica that no longer leads truncates its log, and that drops the working state.
"""

from __future__ import annotations

from collections import deque

from quorate.applications.changes import BatchChanges
from quorate.applications.key_index import NO_OFFSET
from quorate.applications.sessions import ProducerSessions
from quorate.applications.state import ApplicationState, apply_to_sessions


class WorkingState:
    """Uncommitted changes over the committed state, which callers pass in.

    usable_from: the committed state must contain everything before this offset.
    """

    def __init__(self, usable_from: int) -> None:
        self.usable_from = usable_from
        self._pending: deque[BatchChanges] = deque()
        self._keys: dict[bytes, tuple[int, int]] = {}
        self._last_offset = NO_OFFSET
        self._sessions: ProducerSessions | None = None

    def appended(self, changes: BatchChanges) -> None:
        """Add a batch that this leader has appended to its log."""
        self._pending.append(changes)
        if self._sessions is not None:
            apply_to_sessions(self._sessions, changes)
        for digest, offset in changes.keys.items():
            self._keys[digest] = (changes.end_offset, offset)
        if changes.last_offset != NO_OFFSET:
            self._last_offset = changes.last_offset

    def passed(self, offset: int) -> None:
        """Forget the batches before `offset`: the committed state contains them."""
        while self._pending and self._pending[0].end_offset <= offset:
            changes = self._pending.popleft()
            for digest in changes.keys:
                if self._keys[digest][0] == changes.end_offset:
                    del self._keys[digest]

    def __len__(self) -> int:
        """The number of batches that it remembers."""
        return len(self._pending)

    def last_offset(self, committed: ApplicationState) -> int:
        """The offset of the log's last application record, NO_OFFSET or UNKNOWN_OFFSET."""
        return committed.last_offset if self._last_offset == NO_OFFSET else self._last_offset

    def offset_of(self, digest: bytes, committed: ApplicationState) -> int:
        """The offset of a key's last record, NO_OFFSET or UNKNOWN_OFFSET."""
        found = self._keys.get(digest)
        return committed.index.get(digest) if found is None else found[1]

    def sessions(self, committed: ApplicationState) -> ProducerSessions:
        """The producer sessions. `passed` was called with the offset of the committed state."""
        if self._sessions is None:
            self._sessions = committed.sessions.copy()
            for changes in self._pending:
                apply_to_sessions(self._sessions, changes)
        return self._sessions
