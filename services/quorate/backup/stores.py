"""Where the objects of an archive are: a local directory, or a bucket of an S3-compatible store.

An object appears under its name whole or not at all. Local files are written to a temporary file,
synced and renamed, and only their user may read them, because the log contains credentials.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from quorate.backup.errors import BackupError, MissingObjectError
from quorate.log.disk import DIRECTORY_MODE, FILE_MODE, Disk
from quorate.log.errors import DirectoryLockedError
from quorate.log.lock import DirectoryLock, lock_holder

CHUNK_BYTES = 4 << 20
"""How much of an object is read at once."""
TEMPORARY_SUFFIX = ".tmp"


class ObjectStore(Protocol):
    """The objects below one URL. Names are `folder/file`. OSError passes through."""

    @property
    def url(self) -> str:
        """The URL, for messages."""

    def names(self, folder: str) -> list[str]:
        """The names of all objects in a folder, sorted; empty if there are none."""

    def chunks(self, name: str) -> Iterator[bytes]:
        """The object's bytes in order. MissingObjectError."""

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        """Write an object; durable on return. Replaces an object of that name."""

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects, those that are missing already included."""

    def writing(self) -> AbstractContextManager[None]:
        """Prepare the store for one writer at a time. BackupError if there is another one."""


class LocalStore:
    """Objects as files below a directory."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._disk = Disk()

    @property
    def url(self) -> str:
        return str(self._root)

    def names(self, folder: str) -> list[str]:
        paths = (self._root / folder).glob("*")
        return sorted(f"{folder}/{path.name}" for path in paths if path.suffix != TEMPORARY_SUFFIX)

    def chunks(self, name: str) -> Iterator[bytes]:
        try:
            file = (self._root / name).open("rb")
        except FileNotFoundError:
            raise MissingObjectError(name) from None
        with file:
            while data := file.read(CHUNK_BYTES):
                yield data

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        path = self._root / name
        make_directories(path.parent)
        temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, FILE_MODE)
        try:
            position = 0
            for chunk in chunks:
                position = self._disk.write_all(descriptor, [chunk], position)
            self._disk.sync(descriptor)
        finally:
            os.close(descriptor)
        self._disk.rename(temporary, path)
        self._disk.sync_directory(path.parent)

    def delete(self, names: Iterable[str]) -> None:
        paths = [self._root / name for name in names]
        for path in paths:
            self._disk.unlink(path)
        for directory in {path.parent for path in paths}:
            self._disk.sync_directory(directory)

    @contextmanager
    def writing(self) -> Iterator[None]:
        make_directories(self._root)
        try:
            lock = DirectoryLock(self._root)
        except DirectoryLockedError:
            pid = lock_holder(self._root)
            who = "another process" if pid is None else f"process {pid}"
            raise BackupError(f"{self.url} is in use: {who} writes a backup to it") from None
        with lock:
            # A run that was killed may have left them.
            for path in self._root.glob(f"*/*{TEMPORARY_SUFFIX}"):
                self._disk.unlink(path)
            yield


def make_directories(directory: Path) -> None:
    """Create a directory that only its user may enter, and its parents; durable on return."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    directory.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
    for created in missing:
        Disk().sync_directory(created.parent)
