"""Receiving a checkpoint from the leader (KIP-630, FetchSnapshot).

1. Ranges are written in order into `<id>.checkpoint.part`; after a restart reception goes on where
   that file ends.
2. When all is there, it is synced and read wholly: only a sound checkpoint goes on.
3. It gets its name. From then on the installation is finished when the log is opened.
4. In memory the log begins again at its offset, on the thread that appends and reads; the writer
   drops the segments in order with the appends before and after.
5. Older checkpoints are deleted when that is done.

Steps 2, 3 and 5 take time and may be done by any thread, while the log is read and nothing is
appended to it. `finish` does them all.
"""

from __future__ import annotations

import os
import threading
from typing import Protocol

from quorate.log.disk import FILE_MODE
from quorate.log.errors import DamagedSnapshotError, LogError, write_failure
from quorate.log.recovery import RecoveredLog, recovered_snapshot
from quorate.log.snapshots import SnapshotStore, inspect_snapshot
from quorate.raft.types import OffsetAndEpoch
from quorate.records.primitives import Buffer


class Replaceable(Protocol):
    """The log that a checkpoint replaces: `MetadataLog`."""

    def prepare_replacement(self, snapshot: OffsetAndEpoch) -> None:
        """Before the checkpoint gets its name. Any thread."""

    def replace_by(self, ticket: int | None, snapshot: OffsetAndEpoch) -> threading.Event:
        """Begin again at the checkpoint; set when the old segments are gone, or the log failed.
        The thread that appends.
        """

    def clean_up_before(self, snapshot: OffsetAndEpoch) -> None:
        """After that: LogError if the log failed, else delete older checkpoints. Any thread."""


class SnapshotInstall:
    """One reception. Made by `MetadataLog.begin_install`."""

    def __init__(self, store: SnapshotStore, snapshot: OffsetAndEpoch, log: Replaceable) -> None:
        self.snapshot = snapshot
        self._store = store
        self._log = log
        self._is_gone: threading.Event | None = None
        self._path = store.part_path(snapshot)
        store.delete_parts(keep=snapshot)
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        self._position = os.fstat(self._descriptor).st_size

    @property
    def position(self) -> int:
        """The number of bytes received, which is where the next range begins."""
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

        DamagedSnapshotError and LogFailedError as `verify`.
        """
        recovered = self.verify()
        self.adopt()
        self.replace(ticket)
        self.clean_up()
        return recovered

    def verify(self) -> RecoveredLog:
        """Sync and read what arrived: the log that it will be.

        DamagedSnapshotError when it is not a whole, sound checkpoint: what arrived is deleted, so
        that the next reception begins at 0. LogFailedError when it cannot be synced: it is deleted
        as well, for another sync would succeed without writing it.
        """
        try:
            self._store.disk.sync(self._descriptor)
        except OSError as error:
            self._path.unlink(missing_ok=True)
            raise write_failure(self._path, error) from error
        finally:
            self.close()
        try:
            info = inspect_snapshot(self._path)
        except DamagedSnapshotError:
            self._store.disk.unlink(self._path)
            raise
        return recovered_snapshot(self.snapshot, info)

    def adopt(self) -> None:
        """Give the verified checkpoint its name, durably: there is no way back."""
        try:
            self._log.prepare_replacement(self.snapshot)
            self._store.complete(self._path, self.snapshot)
        except OSError as error:
            raise write_failure(self._path, error) from error

    def replace(self, ticket: int | None = None) -> None:
        """Let the log begin again at the checkpoint; LogFailedError if the log has failed."""
        self._is_gone = self._log.replace_by(ticket, self.snapshot)

    def clean_up(self) -> None:
        """Wait until the old segments are gone, then delete older checkpoints. LogError."""
        if self._is_gone is not None:
            self._is_gone.wait()
            self._log.clean_up_before(self.snapshot)

    def close(self) -> None:
        """Keep what arrived for later."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
