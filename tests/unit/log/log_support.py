"""What the tests of the log share: batches, open logs that remember what they reported, disks."""

from __future__ import annotations

import errno
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

from quorate.common.endpoints import Endpoint
from quorate.log.config import LogConfig
from quorate.log.disk import Disk
from quorate.log.metadata_log import MetadataLog
from quorate.raft.batches import ControlRecord
from quorate.raft.types import ReplicaKey, Voter, VoterSet
from quorate.records.batch import build_control_batch, build_data_batch, read_header, stamp
from quorate.records.primitives import Buffer

PARTITION = "__cluster_metadata-0"
SMALL = LogConfig(segment_bytes_max=400, tail_cache_bytes=0, preallocate_bytes=0)
WAIT_S = 20

DIRECTORY_1 = "Rigw3vfNRMmcl9pdbu4hDQ"
DIRECTORY_2 = "xtkV4Apmyk8T6_K1BRD_yQ"


def voter(voter_id: int, directory: str) -> Voter:
    endpoint = Endpoint("CONTROLLER", "127.0.0.1", 9000 + voter_id)
    return Voter(ReplicaKey(voter_id, directory), (endpoint,))


ONE = VoterSet.of([voter(1, DIRECTORY_1)])
TWO = VoterSet.of([voter(1, DIRECTORY_1), voter(2, DIRECTORY_2)])


def data(base: int, epoch: int = 1, count: int = 1, size: int = 20, timestamp: int = 1000) -> bytes:
    """A batch of `count` records at `base`."""
    values = [(None, bytes([65 + (base + i) % 26]) * size) for i in range(count)]
    batch = build_data_batch(values, timestamp)
    stamp(batch, base, epoch)
    return bytes(batch)


def control(base: int, epoch: int, *records: ControlRecord) -> bytes:
    batch = build_control_batch(records, 1000)
    stamp(batch, base, epoch)
    return bytes(batch)


class OpenLog:
    """A log, and what it reported."""

    def __init__(
        self, directory: Path, config: LogConfig = SMALL, disk: Disk | None = None
    ) -> None:
        self.tickets: list[int] = []
        self.failures: list[BaseException] = []
        self._reported = threading.Condition()
        self._ticket = 0
        self.log = MetadataLog.open(
            directory, config, on_durable=self._durable, on_failure=self._failed, disk=disk
        )

    def _durable(self, ticket: int) -> None:
        with self._reported:
            self.tickets.append(ticket)
            self._reported.notify_all()

    def _failed(self, error: BaseException) -> None:
        with self._reported:
            self.failures.append(error)
            self._reported.notify_all()

    def wait(self, ticket: int) -> None:
        with self._reported:
            done = self._reported.wait_for(
                lambda: self.failures or (self.tickets and self.tickets[-1] >= ticket), WAIT_S
            )
        assert done, f"ticket {ticket} was not reported"
        assert not self.failures, self.failures

    def wait_failure(self) -> BaseException:
        with self._reported:
            assert self._reported.wait_for(lambda: self.failures, WAIT_S), "no failure"
        return self.failures[0]

    def queue(self, *batches: Buffer) -> int:
        self._ticket += 1
        self.log.append(self._ticket, batches)
        return self._ticket

    def append(self, *batches: Buffer) -> None:
        """One sync for each batch."""
        for batch in batches:
            self.wait(self.queue(batch))

    def truncate(self, offset: int) -> None:
        self._ticket += 1
        self.log.truncate(self._ticket, offset)
        self.wait(self._ticket)

    def close(self) -> None:
        self.log.close()


def fill(opened: OpenLog, until: int, epoch: int = 1) -> None:
    """Append one record a batch up to the offset."""
    base = opened.log.end_offset
    opened.wait(opened.queue(*(data(offset, epoch) for offset in range(base, until))))


def contents(log: MetadataLog, max_bytes: int = 300) -> list[bytes]:
    """Every batch from the log's start to its end, read in pieces."""
    found: list[bytes] = []
    offset = log.start_offset
    while offset < log.end_offset:
        batches = log.read(offset, max_bytes)
        assert batches, f"nothing at {offset}"
        found += [bytes(batch) for batch in batches]
        offset = read_header(batches[-1]).end_offset
    return found


def segment_files(directory: Path) -> list[Path]:
    return sorted((directory / PARTITION).glob("*.log"))


def crashed(directory: Path, target: Path) -> Path:
    """What a process that is killed now leaves behind."""
    # The writer may be about to rename a small checkpoint into place.
    return shutil.copytree(directory, target, ignore=shutil.ignore_patterns("*-checkpoint.tmp"))


class QuickDisk(Disk):
    """The real disk for tests that open hundreds of logs: nothing waits for a sync."""

    def sync(self, descriptor: int) -> None:
        """Not waited for."""

    def sync_data(self, descriptor: int) -> None:
        """Not waited for."""

    def sync_directory(self, directory: Path) -> None:
        """Not waited for."""


def is_segment(descriptor: int) -> bool:
    return Path(f"/proc/self/fd/{descriptor}").readlink().suffix == ".log"


class CountingDisk(Disk):
    """The real disk; counts what segments get, and can hold their syncs back until `let` is set."""

    def __init__(self) -> None:
        self.writes: list[int] = []
        self.syncs = 0
        self.reached = threading.Event()
        self.let = threading.Event()
        self.let.set()

    def write_all(self, descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
        if is_segment(descriptor):
            self.writes.append(len(buffers))
        return super().write_all(descriptor, buffers, position)

    def sync_data(self, descriptor: int) -> None:
        if is_segment(descriptor):
            self.syncs += 1
            self.reached.set()
            assert self.let.wait(WAIT_S)
        super().sync_data(descriptor)


class BrokenDisk(Disk):
    """The real disk until it breaks: then writes or syncs of data fail with `code`."""

    def __init__(self, code: int, *, on_write: bool) -> None:
        self.code = code
        self.on_write = on_write
        self.broken = False

    def _fail(self) -> None:
        raise OSError(self.code, errno.errorcode[self.code])

    def write_all(self, descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
        if self.broken and self.on_write:
            self._fail()
        return super().write_all(descriptor, buffers, position)

    def allocate(self, descriptor: int, start: int, length: int) -> None:
        if self.broken:
            self._fail()
        super().allocate(descriptor, start, length)

    def sync_data(self, descriptor: int) -> None:
        if self.broken:
            self._fail()
        super().sync_data(descriptor)


class StoppingDisk(Disk):
    """The real disk until the operation number `stop_at` that changes names: there it dies.

    Whatever comes after fails too, as for a process that was killed.
    """

    def __init__(self, stop_at: int) -> None:
        self.left = stop_at
        self.stopped = False

    def _step(self) -> None:
        if self.left == 0 or self.stopped:
            self.stopped = True
            raise OSError(errno.EIO, "killed here")
        self.left -= 1

    def rename(self, source: Path, target: Path) -> None:
        self._step()
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        if path.exists():
            self._step()
        super().unlink(path)

    def truncate(self, descriptor: int, size: int) -> None:
        self._step()
        super().truncate(descriptor, size)
