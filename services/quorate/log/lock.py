"""One process on a directory: Kafka's `.lock` file, locked as Java's FileLock locks it.

Java takes a POSIX record lock on the whole file, so Kafka and Quorate exclude each other. Such
locks belong to the process, not to the descriptor: closing any descriptor of the file drops them,
and a second lock by the same process succeeds. Hence the list of directories held here.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
import threading
from pathlib import Path
from types import TracebackType

from quorate.log.disk import FILE_MODE
from quorate.log.errors import DirectoryLockedError

LOCK_FILE = ".lock"

# struct flock of Linux: l_type, l_whence, l_start, l_len, l_pid, in native alignment.
_FLOCK = struct.Struct("hhqqi")
_held: set[Path] = set()
_held_guard = threading.Lock()


class DirectoryLock:
    """Held from construction until `release` (or the end of the process).

    DirectoryLockedError when another process, or this one, holds it already.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory.resolve() / LOCK_FILE
        self._descriptor: int | None = None
        with _held_guard:
            if self.path in _held:
                raise DirectoryLockedError(_refusal(self.path, os.getpid()))
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                holder = _holder(descriptor)
                os.close(descriptor)
                raise DirectoryLockedError(_refusal(self.path, holder)) from None
            self._descriptor = descriptor
            _held.add(self.path)

    def release(self) -> None:
        """Let others have the directory. The file stays, as Kafka's does."""
        with _held_guard:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None
                _held.discard(self.path)

    def __enter__(self) -> DirectoryLock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def lock_holder(directory: Path) -> int | None:
    """The process that holds the lock on `directory`, None if none does or it cannot be told."""
    path = directory.resolve() / LOCK_FILE
    with _held_guard:
        if path in _held:
            # Closing another descriptor of the file would drop the lock.
            return os.getpid()
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            return _holder(descriptor)
        finally:
            os.close(descriptor)


def _holder(descriptor: int) -> int | None:
    """The process that holds the lock, None if the system does not tell."""
    if sys.platform != "linux":
        return None
    question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        answer = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, question))
    except OSError:
        return None
    kind, pid = answer[0], answer[4]
    return pid if kind != fcntl.F_UNLCK and pid > 0 else None


def _refusal(path: Path, pid: int | None) -> str:
    who = "another process" if pid is None else f"process {pid}"
    if pid == os.getpid():
        who = "this process"
    return (
        f"{path.parent} is in use: {who} holds {path}. Stop it first, or give this node "
        "a directory of its own"
    )
