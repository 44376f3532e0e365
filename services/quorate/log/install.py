"""Receiving a checkpoint from the leader (KIP-630, FetchSnapshot).

1. Ranges are written in order into `<id>.checkpoint.part`; after a restart reception goes on where
   that file ends.
2. When all is there, it is synced and read wholly: only a sound checkpoint goes on.
3. In order with the appends before it, it gets its name, and then the log is dropped and begins
   again at its offset. A crash in between is finished when the log is opened.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from quorate.log.errors import DamagedSnapshotError, LogError, write_failure
from quorate.log.recovery import RecoveredLog, recovered_snapshot
from quorate.log.snapshots import SnapshotStore, inspect_snapshot
from quorate.raft.types import OffsetAndEpoch
from quorate.records.primitives import Buffer

Replace = Callable[[int | None, OffsetAndEpoch, Callable[[], None]], None]


class SnapshotInstall:
    """One reception. Made by `MetadataLog.begin_install`."""

    def __init__(self, store: SnapshotStore, snapshot: OffsetAndEpoch, replace: Replace) -> None:
        self.snapshot = snapshot
        self._store = store
        self._replace = replace
        self._path = store.part_path(snapshot)
        store.delete_parts(keep=snapshot)
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._position = os.fstat(self._descriptor).st_size

    @property
    def position(self) -> int:
        """How many bytes are there: where the next range begins."""
        return self._position

    def write(self, position: int, data: Buffer) -> None:
        """Take the range that begins at `position`, which must be the one awaited.

        LogError for any other; LogFailedError (DiskFullError) when it cannot be written.
        """
        if self._descriptor < 0:
            raise LogError(f"the reception of checkpoint {self.snapshot} has ended")
        if position != self._position:
            raise LogError(
                f"checkpoint {self.snapshot}: bytes from {position} arrived, those from "
                f"{self._position} are awaited"
            )
        try:
            self._position = self._store.disk.write_all(self._descriptor, [data], position)
        except OSError as error:
            raise write_failure(self._path, error) from error

    def finish(self, ticket: int | None = None) -> RecoveredLog:
        """Verify what arrived and let it replace the log; durable on return, and then reported.

        DamagedSnapshotError when it is not a whole, sound checkpoint: what arrived is deleted, so
        that the next reception begins at 0. LogFailedError when it cannot be synced.
        """
        try:
            self._store.disk.sync(self._descriptor)
        except OSError as error:
            # What was not stored cannot be told from what was: receive all of it again.
            self._path.unlink(missing_ok=True)
            raise write_failure(self._path, error) from error
        finally:
            self.close()
        try:
            info = inspect_snapshot(self._path)
        except DamagedSnapshotError:
            self._store.disk.unlink(self._path)
            raise

        def complete() -> None:
            self._store.complete(self._path, self.snapshot)

        self._replace(ticket, self.snapshot, complete)
        return recovered_snapshot(self.snapshot, info)

    def abandon(self) -> None:
        """Delete what arrived."""
        self.close()
        self._store.disk.unlink(self._path)

    def close(self) -> None:
        """Keep what arrived for later."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
