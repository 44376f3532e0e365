"""A disk that knows what fsync means.

It works on real files, which are what the page cache holds, and remembers beside them what is
durable: the bytes of each file as of its last sync and the writes since; the names in each
directory as of its last sync and the changes since. At a step that the test chooses it fails:

- power: everything stops, and `crash` says what is left: of each file, any sectors of the writes
  that were not synced, and a smaller size before, with or after them; of each directory, any prefix
  of its changes, or any of them by name.
- kill: the process stops, a write perhaps half done; the page cache survives.
- eio: one sync of a file fails. As on Linux, its pages are clean afterwards: the page cache still
  has the bytes, and no later sync writes them.

A sector has 512 bytes and is written whole or not at all. A failure comes after a number of steps,
or so many steps after an operation of a certain kind (`TARGETS`), where rules about order matter.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random

from quorate.log.disk import Disk
from quorate.records.primitives import Buffer

SECTOR_BYTES = 512
PAGE_BYTES = 4096
TARGETS = (
    "unlink .log",
    "truncate .log",
    "write quorum-state.tmp",
    "rename",
    "rename .checkpoint",
    "rename quorum-state",
)
Write = tuple[int, bytes]
Names = dict[str, "File"]


class FailureError(OSError):
    """The power or the process is gone."""


class File:
    """durable: the bytes as of the last sync. pending: writes (position, bytes) and sizes (an
    integer) since, in order. older: what each sector held before the sync that replaced it.
    """

    def __init__(self, durable: bytes, descriptor: int) -> None:
        self.durable = bytearray(durable)
        self.pending: list[Write | int] = []
        self.older: dict[int, list[bytes]] = {}
        self.descriptor = descriptor

    def sync(self) -> None:
        touched: set[int] = set()
        for operation in self.pending:
            if isinstance(operation, tuple):
                position, data = operation
                touched.update(_sectors(position, position + len(data)))
        for sector in touched:
            start = sector * SECTOR_BYTES
            before = bytes(self.durable[start : start + SECTOR_BYTES])
            self.older.setdefault(sector, []).append(before.ljust(SECTOR_BYTES, b"\0"))
        for operation in self.pending:
            _apply(self.durable, operation)
        self.pending.clear()

    def forget_writes(self) -> None:
        """A sync failed: the writes are lost, changes of the size are not."""
        self.pending = [
            operation if isinstance(operation, int) else operation[0] + len(operation[1])
            for operation in self.pending
            if isinstance(operation, int) or operation[0] + len(operation[1]) > len(self.durable)
        ]

    def crash(self, random: Random) -> bytes:
        """What the disk may hold after the power failed."""
        mode = random.choice(("none", "all", "prefix", *4 * ("sectors",)))
        if not self.pending or mode == "none":
            return bytes(self.durable)
        found = bytearray(self.durable)
        if mode != "sectors":
            count = len(self.pending)
            for operation in self.pending[: count if mode == "all" else random.randrange(count)]:
                _apply(found, operation)
            return bytes(found)
        kept = random.choice((0.2, 0.5, 0.8))
        group: list[Write] = []
        for operation in self.pending:
            if isinstance(operation, tuple):
                group.append(operation)
                continue
            _some_sectors(found, group, kept, random)
            group = []
            if operation < len(found):
                fate = random.choice(("last", "last", "done", "later"))
                if fate == "last":
                    return bytes(found)
                if fate == "later":
                    # Later writes went to the old blocks, and behind them is what was there.
                    continue
            _apply(found, operation)
        _some_sectors(found, group, kept, random)
        return bytes(found)


def _sectors(start: int, end: int) -> Iterable[int]:
    return range(start // SECTOR_BYTES, (end + SECTOR_BYTES - 1) // SECTOR_BYTES)


def _path_of(descriptor: int) -> str:
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())


def _apply(content: bytearray, operation: Write | int) -> None:
    if isinstance(operation, int):
        if operation < len(content):
            del content[operation:]
        else:
            content.extend(bytes(operation - len(content)))
        return
    position, data = operation
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


def _some_sectors(content: bytearray, writes: Sequence[Write], kept: float, random: Random) -> None:
    """Of each sector the state after some of its writes; the size may be longer than the data."""
    versions: dict[int, list[Write]] = {}
    end = len(content)
    for position, data in writes:
        for sector in _sectors(position, position + len(data)):
            first = max(position, sector * SECTOR_BYTES)
            last = min(position + len(data), (sector + 1) * SECTOR_BYTES)
            versions.setdefault(sector, []).append(
                (first, data[first - position : last - position])
            )
        end = max(end, position + len(data))
    if random.random() < 0.5 and end > len(content):
        content.extend(bytes(end - len(content)))
    edge = random.choice(("", "first lost", "first kept"))
    for number, pieces in enumerate(versions.values()):
        count = sum(random.random() < kept for _ in pieces)
        if edge:
            is_kept = (number == 0) == (edge == "first kept")
            count = len(pieces) if is_kept else len(pieces) - 1
        for piece in pieces[:count]:
            _apply(content, piece)


class FaultyDisk(Disk):
    """The disk of some directories. `fail_at` counts from the next operation."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self._directories = [str(directory) for directory in directories]
        self._files: dict[int, File] = {}
        self._names: dict[str, list[Names]] = {}
        self.steps = 0
        self._fail_at = -1
        self._kind = ""
        self._target = ""
        self._delay = self._wanted = 0
        self._random = Random(0)
        self.failed_sync = ""
        self.is_down = False
        self.on_segment_unlink: Callable[[], None] = lambda: None
        for directory in self._directories:
            self._names[directory] = [self._list(directory, durable=True)]

    def fail_at(
        self, steps: int, kind: str, random: Random, target: str = "", count: int = 1
    ) -> None:
        """After so many more steps: `power`, `kill` or `eio` (of a file's next sync). target: they
        count from the next operation of this kind, or the one after so many.
        """
        self.is_down = False
        self._target, self._delay, self._wanted = target, steps, count
        self._fail_at = -1 if target else self.steps + steps
        self._kind = kind
        self._random = random

    def close(self) -> None:
        for file in self._files.values():
            os.close(file.descriptor)
        self._files.clear()

    # --- what is left -----------------------------------------------------------------------------

    def crash(self, random: Random, target: Path) -> None:
        """Write what a power failure leaves of the first directory into `target`."""
        self.is_down = True
        base = self._directories[0]
        for directory in self._directories:
            self._note(directory)
            folder = target / os.path.relpath(directory, base)
            folder.mkdir(parents=True, exist_ok=True)
            written: dict[int, Path] = {}
            for name, file in self._some_names(directory, random).items():
                first = written.setdefault(id(file), folder / name)
                if first.name == name:
                    first.write_bytes(file.crash(random))
                else:
                    (folder / name).hardlink_to(first)

    def _some_names(self, directory: str, random: Random) -> Names:
        history = self._names[directory]
        chosen = random.random()
        if chosen < 0.4:
            return random.choice(history)
        if chosen < 0.5:
            # A rename adds a name and takes one away.
            return {name: file for names in history for name, file in names.items()}
        found: Names = {}
        for name in sorted({name for names in history for name in names}):
            file = random.choice(history).get(name)
            if file is not None:
                found[name] = file
        return found

    def file(self, path: Path) -> File:
        """What is known of a file that exists."""
        self._note(str(path.parent))
        return self._names[str(path.parent)][-1][path.name]

    def has_unsynced_writes(self, suffix: str) -> bool:
        return any(
            any(isinstance(operation, tuple) for operation in file.pending)
            for directory in self._directories
            for name, file in self._names[directory][-1].items()
            if name.endswith(suffix)
        )

    # --- bookkeeping ------------------------------------------------------------------------------

    def _list(self, directory: str, *, durable: bool = False) -> Names:
        found: Names = {}
        try:
            entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
        except FileNotFoundError:
            return found
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                found[entry.name] = self._known(entry.inode(), entry.path, durable=durable)
        return found

    def _known(self, inode: int, path: str, *, durable: bool = False) -> File:
        file = self._files.get(inode)
        if file is None:
            # Its descriptor keeps the inode from being used again.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            content = os.pread(descriptor, 1 << 30, 0) if durable else b""
            file = self._files[inode] = File(content, descriptor)
        return file

    def _note(self, directory: str) -> None:
        now = self._list(directory)
        if now != self._names[directory][-1]:
            self._names[directory].append(now)

    def _of(self, descriptor: int) -> File:
        return self._known(os.fstat(descriptor).st_ino, f"/proc/self/fd/{descriptor}")

    def _begin(self) -> bool:
        """Whether this step is the one that fails, by power or kill."""
        if self.is_down:
            raise FailureError(errno.EIO, "the power is off")
        self.steps += 1
        return 0 <= self._fail_at <= self.steps and self._kind != "eio"

    def _did(self, operation: str, path: str | int) -> None:
        """Note an operation on a file, given by its path or its descriptor."""
        if not self._target:
            return
        wanted, _, name = self._target.partition(" ")
        if wanted != operation:
            return
        found = path if isinstance(path, str) else _path_of(path)
        if not found.endswith(name):
            return
        self._wanted -= 1
        if self._wanted == 0:
            self._target = ""
            self._fail_at = self.steps + self._delay

    def _fail(self) -> None:
        self.is_down = True
        raise FailureError(errno.EIO, f"the {self._kind} failure of this test")

    # --- operations -------------------------------------------------------------------------------

    def write_all(self, descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
        fails = self._begin()
        file = self._of(descriptor)
        data = b"".join(bytes(buffer) for buffer in buffers)
        if fails:
            pages = (position + len(data)) // PAGE_BYTES - position // PAGE_BYTES
            if pages and self._kind == "kill":
                end = (position // PAGE_BYTES + self._random.randint(1, pages)) * PAGE_BYTES
                data = data[: end - position]
            if self._kind == "power" or self._random.random() < 0.7:
                os.pwrite(descriptor, data, position)
                file.pending.append((position, data))
            self._fail()
        file.pending.append((position, data))
        if data:
            self._did("write", descriptor)
        return super().write_all(descriptor, [data], position)

    def _sync(self, descriptor: int) -> None:
        if self._begin():
            self._fail()
        file = self._of(descriptor)
        if self._kind == "eio" and 0 <= self._fail_at <= self.steps:
            self._fail_at = -1
            self.failed_sync = _path_of(descriptor)
            file.forget_writes()
            raise OSError(errno.EIO, "the failed sync of this test")
        file.sync()

    def sync_data(self, descriptor: int) -> None:
        self._sync(descriptor)

    def sync(self, descriptor: int) -> None:
        self._sync(descriptor)

    def allocate(self, descriptor: int, start: int, length: int) -> None:
        if self._begin():
            self._fail()
        super().allocate(descriptor, start, length)
        self._of(descriptor).pending.append(start + length)

    def truncate(self, descriptor: int, size: int) -> None:
        if self._begin():
            self._fail()
        super().truncate(descriptor, size)
        self._of(descriptor).pending.append(size)
        self._did("truncate", descriptor)

    def rename(self, source: Path, target: Path) -> None:
        fails = self._begin()
        self._note(str(source.parent))
        if not fails or self._random.random() < 0.5:
            super().rename(source, target)
            self._note(str(source.parent))
        if fails:
            self._fail()
        self._did("rename", str(target))

    def unlink(self, path: Path) -> None:
        if path.suffix == ".log":
            self.on_segment_unlink()
        fails = self._begin()
        self._note(str(path.parent))
        if not fails or self._random.random() < 0.5:
            super().unlink(path)
            self._note(str(path.parent))
        if fails:
            self._fail()
        self._did("unlink", str(path))

    def sync_directory(self, directory: Path) -> None:
        fails = self._begin()
        name = str(directory)
        if name not in self._names:
            return
        self._note(name)
        if fails:
            self._fail()
        self._names[name] = [self._names[name][-1]]
