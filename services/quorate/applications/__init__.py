"""State that is derived from the records of applications, while application.version is finalized.

`ApplicationState` is the committed state, which every node has. `WorkingState` adds what a leader
has appended since. Both are changed by `BatchChanges`, and `StateLoader` reads them from a
snapshot. All of it is pure: no I/O, no clock.
"""

from quorate.applications.changes import BatchChanges, changes_of
from quorate.applications.key_index import NO_OFFSET, UNKNOWN_OFFSET, KeyIndex, digest_of
from quorate.applications.loading import StateLoader, has_chunk, state_records
from quorate.applications.sessions import Duplicate, ProducerSessions
from quorate.applications.state import ApplicationState
from quorate.applications.working_state import WorkingState

__all__ = [
    "NO_OFFSET",
    "UNKNOWN_OFFSET",
    "ApplicationState",
    "BatchChanges",
    "Duplicate",
    "KeyIndex",
    "ProducerSessions",
    "StateLoader",
    "WorkingState",
    "changes_of",
    "digest_of",
    "has_chunk",
    "state_records",
]
