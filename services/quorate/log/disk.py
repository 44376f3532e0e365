"""The few operations on which durability rests, in one place.

`Disk` is what the log writes and syncs through; the simulation's disk is another class with these
methods. Rules: a file is replaced by temporary file, sync, rename, sync of the directory; a name
that must survive is followed by a sync of its directory.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from quorate.records.primitives import Buffer

VECTORS_MAX = 1024
"""IOV_MAX on Linux: how many buffers one writev takes."""
DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
"""The log has SCRAM keys and secret settings as plain text: its user alone reads it."""


class Disk:
    """Writes and syncs on the real file system. OSError passes through."""

    def write_all(self, descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
        """Write all buffers from `position` on; return where they end."""
        for first in range(0, len(buffers), VECTORS_MAX):
            group = buffers[first : first + VECTORS_MAX]
            expected = sum(map(len, group))
            written = os.pwritev(descriptor, group, position)
            position += written
            if written < expected:
                rest = memoryview(b"".join(group))[written:]
                while rest:
                    written = os.pwrite(descriptor, rest, position)
                    position += written
                    rest = rest[written:]
        return position

    def sync_data(self, descriptor: int) -> None:
        os.fdatasync(descriptor)

    def sync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def allocate(self, descriptor: int, start: int, length: int) -> None:
        os.posix_fallocate(descriptor, start, length)

    def truncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def rename(self, source: Path, target: Path) -> None:
        source.rename(target)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def sync_directory(self, directory: Path) -> None:
        """Make the creations, renames and deletions in a directory durable."""
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def replace_file(self, path: Path, content: bytes) -> None:
        """Let `path` have this content, or its old one: nothing in between survives a crash."""
        temporary = path.with_name(path.name + ".tmp")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(temporary, flags, FILE_MODE)
        try:
            self.write_all(descriptor, [content], 0)
            self.sync(descriptor)
        finally:
            os.close(descriptor)
        self.rename(temporary, path)
        self.sync_directory(path.parent)


def make_directories(directory: Path) -> None:
    """Create a directory that only its user may enter, and its parents; durable on return."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    directory.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
    for created in missing:
        Disk().sync_directory(created.parent)
