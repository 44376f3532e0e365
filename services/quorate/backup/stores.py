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
from quorate.backup.manifest import FOLDERS, is_archived_name
from quorate.log.disk import FILE_MODE, Disk, make_directories
from quorate.log.errors import DirectoryLockedError
from quorate.log.lock import DirectoryLock, lock_holder

CHUNK_BYTES = 4 << 20
"""How much of an object is read at once."""
TEMPORARY_SUFFIX = ".tmp"


class ObjectStore(Protocol):
    """The objects below one URL. Names are `folder/file`. OSError passes through.

    BackupError for a name that would lead elsewhere.
    """

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

    def _path(self, name: str) -> Path:
        """The object's file. BackupError if it is not in a folder of this directory."""
        path = self._root / name
        parts = name.split("/")
        is_plain = len(parts) == 2 and not {"", ".", ".."}.intersection(parts)
        if not is_plain or path.parent.resolve() != self._root.resolve() / parts[0]:
            raise BackupError(f"{self.url}: {name!r} is not the name of an object")
        return path

    def names(self, folder: str) -> list[str]:
        paths = (self._root / folder).glob("*")
        return sorted(f"{folder}/{path.name}" for path in paths if path.suffix != TEMPORARY_SUFFIX)

    def chunks(self, name: str) -> Iterator[bytes]:
        try:
            file = self._path(name).open("rb")
        except FileNotFoundError:
            raise MissingObjectError(name) from None
        with file:
            while data := file.read(CHUNK_BYTES):
                yield data

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        path = self._path(name)
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
        paths = [self._path(name) for name in names]
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
            for folder in FOLDERS:
                for path in (self._root / folder).glob(f"*{TEMPORARY_SUFFIX}"):
                    name = f"{folder}/{path.name.removesuffix(TEMPORARY_SUFFIX)}"
                    if is_archived_name(name):
                        self._disk.unlink(self._path(name + TEMPORARY_SUFFIX))
            yield
