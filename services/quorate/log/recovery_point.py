"""The recovery point while the log is open: the offset below which everything is synced.

It is a line of `recovery-point-offset-checkpoint`, which is Kafka's and may hold lines of other
partitions. Here that line is the first, and its offset has 20 digits: a new offset is written over
the old one, within the file's first sector, so a crash leaves one or the other. It is written after
each sync of the log and never before, so it is never ahead of what is durable; how far it is
behind, after a power failure, its own syncs decide.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from quorate.log.disk import Disk
from quorate.log.offset_files import RECOVERY_POINT_FILE, recovery_point_content


class RecoveryPoint:
    """Any thread may use it. OSError passes through."""

    def __init__(self, directory: Path, disk: Disk, offset: int) -> None:
        """Store `offset`, the end of what is durable now.

        It is written even if the file has it: after a failed sync, the disk may hold another
        offset, and only a new write is certain to be written.
        """
        self._disk = disk
        self._guard = threading.Lock()
        self.offset = offset
        self.is_synced = True
        path = directory / RECOVERY_POINT_FILE
        content, self._position = recovery_point_content(directory, offset)
        if not path.exists() or path.read_bytes() != content:
            disk.replace_file(path, content)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            disk.write_all(self._descriptor, [content], 0)
            disk.sync(self._descriptor)
        except BaseException:
            self.close()
            raise

    def advance(self, offset: int) -> None:
        """Everything before `offset` is synced now. Not durable until `sync`."""
        with self._guard:
            if offset != self.offset:
                self._write(offset)

    def lower(self, offset: int) -> None:
        """Bytes at or after `offset` go next: durable on return."""
        with self._guard:
            if offset < self.offset:
                self._write(offset)
                self._sync()

    def sync(self) -> None:
        with self._guard:
            if not self.is_synced:
                self._sync()

    def _write(self, offset: int) -> None:
        self._disk.write_all(self._descriptor, [b"%020d" % offset], self._position)
        self.offset = offset
        self.is_synced = False

    def _sync(self) -> None:
        self._disk.sync_data(self._descriptor)
        self.is_synced = True

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
