"""Appending, group commit, reading, truncating, rolling, and what happens when the disk fails."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from quorate.log.config import LogConfig
from quorate.log.disk import Disk
from quorate.log.errors import (
    DiskFullError,
    LogFailedError,
    MissingRecordsError,
    OffsetOutOfRangeError,
)
from quorate.log.lock import DirectoryLock
from quorate.log.metadata_log import access_warning, write_bootstrap_checkpoint
from quorate.log.offset_files import read_epochs, read_recovery_point, write_recovery_point
from quorate.log.quorum_state import QuorumStateFile
from quorate.raft.types import ElectionState, OffsetAndEpoch
from quorate.records.batch import read_header
from quorate.records.primitives import Buffer

from tests.unit.log.log_support import (
    ONE,
    PARTITION,
    SMALL,
    BrokenDisk,
    CountingDisk,
    OpenLog,
    contents,
    crashed,
    data,
    fill,
    segment_files,
)

CACHED = LogConfig(segment_bytes_max=400, tail_cache_bytes=1 << 20, preallocate_bytes=0)


def test_a_fresh_directory_gets_what_kafka_expects(tmp_path: Path) -> None:
    opened = OpenLog(tmp_path)
    assert (opened.log.start_offset, opened.log.end_offset, opened.log.size_bytes) == (0, 0, 0)
    assert opened.log.recovered.latest_snapshot is None
    assert opened.log.read(0, 100) == []
    opened.close()
    partition = tmp_path / PARTITION
    assert (partition / "partition.metadata").read_bytes() == (
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    )
    assert sorted(path.name for path in partition.iterdir()) == [
        "00000000000000000000.log",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]


def test_only_its_user_reads_a_log(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        opened = OpenLog(tmp_path)
        fill(opened, 20)
        opened.close()
        write_bootstrap_checkpoint(tmp_path, ONE)
        QuorumStateFile(tmp_path / PARTITION).write(ElectionState(1))
        DirectoryLock(tmp_path).release()
    finally:
        os.umask(mask)
    made = sorted(tmp_path.rglob("*"))
    assert len(segment_files(tmp_path)) > 1
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in made}
    assert modes.pop(PARTITION) == 0o700
    assert set(modes.values()) == {0o600}, modes
    (tmp_path / PARTITION).chmod(0o755)
    tmp_path.chmod(0o755)
    assert f"chmod -R o= {tmp_path}" in (access_warning(tmp_path) or "")
    for closed in (tmp_path, tmp_path / PARTITION):
        closed.chmod(0o770)
        assert access_warning(tmp_path) is None
        closed.chmod(0o755)


def test_what_is_queued_is_readable_before_it_is_durable(tmp_path: Path) -> None:
    disk = CountingDisk()
    opened = OpenLog(tmp_path, disk=disk)
    disk.let.clear()
    ticket = opened.queue(data(0), data(1))
    assert opened.log.end_offset == 2
    assert [bytes(b) for b in opened.log.read(0, 10_000)] == [data(0), data(1)]
    assert opened.log.queued_bytes == opened.log.size_bytes == len(data(0)) * 2
    assert opened.tickets == []
    disk.let.set()
    opened.wait(ticket)
    assert opened.log.queued_bytes == 0
    opened.close()


def test_everything_that_waits_for_a_sync_shares_the_next_one(tmp_path: Path) -> None:
    disk = CountingDisk()
    opened = OpenLog(tmp_path, LogConfig(), disk)
    disk.let.clear()
    opened.queue(data(0))
    assert disk.reached.wait(20)
    disk.writes.clear()
    for offset in range(1, 101):
        opened.queue(data(offset))
    disk.let.set()
    opened.wait(101)
    assert opened.tickets == [1, 101]
    assert disk.syncs == 2
    assert disk.writes.count(100) == 1
    opened.close()


def test_reads_are_the_same_from_memory_and_from_files(tmp_path: Path) -> None:
    batches = [data(0, count=3), data(3, size=150), data(4), data(5, epoch=2, count=2), data(7, 2)]
    for config in (SMALL, CACHED, LogConfig(tail_cache_bytes=150)):
        folder = tmp_path / str(config.tail_cache_bytes)
        folder.mkdir()
        opened = OpenLog(folder, config)
        opened.append(*batches)
        log = opened.log
        assert contents(log, 1) == batches
        assert contents(log, 10_000) == batches
        # Offsets within a batch give that batch, and at least one batch comes whatever its size.
        assert bytes(log.read(1, 1)[0]) == batches[0]
        assert bytes(log.read(2, 1)[0]) == batches[0]
        assert bytes(log.read(3, 1)[0]) == batches[1]
        assert [bytes(b) for b in log.read(3, len(batches[1]) + 1)] == [batches[1]]
        # Nothing beyond the end asked for, not even a part of a batch.
        assert log.read(0, 10_000, end_offset=2) == []
        assert [bytes(b) for b in log.read(0, 10_000, end_offset=4)] == batches[:2]
        assert log.read(8, 10) == []
        for outside in (-1, 9):
            with pytest.raises(OffsetOutOfRangeError):
                log.read(outside, 10)
        sizes = [len(batch) for batch in batches]
        assert log.bytes_since(0) == log.size_bytes == sum(sizes)
        assert log.bytes_since(4) == sum(sizes[2:])
        assert log.bytes_since(6) == sum(sizes[3:])
        assert log.bytes_since(8) == 0
        opened.close()


def test_sparse_index_finds_every_offset(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes_max=60_000, tail_cache_bytes=0)
    opened = OpenLog(tmp_path, config)
    batches = [data(offset, size=10 + offset * 7 % 300) for offset in range(1000)]
    opened.wait(opened.queue(*batches))
    fresh = data(1000)
    opened.append(fresh)
    for round_trip in range(2):
        for offset in range(0, 1001, 7):
            got = opened.log.read(offset, 1)
            assert read_header(got[0]).base_offset == offset
        assert contents(opened.log, 9000) == [*batches, fresh]
        if round_trip == 0:
            opened.close()
            opened = OpenLog(tmp_path, config)
    opened.close()


def test_segments_roll_and_are_found_again(tmp_path: Path) -> None:
    opened = OpenLog(tmp_path)
    fill(opened, 20)
    opened.append(data(20, size=1000), data(21))
    names = [path.name for path in segment_files(tmp_path)]
    assert names[:3] == [
        "00000000000000000000.log",
        "00000000000000000004.log",
        "00000000000000000008.log",
    ]
    assert "00000000000000000020.log" in names
    assert names[-1] == "00000000000000000021.log"
    assert all(path.stat().st_size <= 1200 for path in segment_files(tmp_path))
    assert read_recovery_point(tmp_path) == 22
    before = contents(opened.log)
    size = opened.log.size_bytes
    opened.close()
    assert read_recovery_point(tmp_path) == 22
    opened = OpenLog(tmp_path)
    assert contents(opened.log) == before
    assert opened.log.size_bytes == size
    assert opened.log.recovered.truncated_bytes == 0
    opened.close()


def test_room_is_allocated_ahead_and_given_back(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes_max=100_000, preallocate_bytes=8192)
    opened = OpenLog(tmp_path, config)
    opened.append(data(0))
    (file,) = segment_files(tmp_path)
    assert file.stat().st_size > 8192
    fill(opened, 300)
    assert opened.log.size_bytes == 300 * len(data(0))
    opened.close()
    assert file.stat().st_size == 300 * len(data(0))


@pytest.mark.parametrize("config", [SMALL, CACHED])
def test_truncation_goes_back_over_segments_and_epochs(tmp_path: Path, config: LogConfig) -> None:
    opened = OpenLog(tmp_path, config)
    fill(opened, 10, epoch=1)
    fill(opened, 20, epoch=2)
    assert opened.log.last_epoch == 2
    kept = contents(opened.log)[:9]
    opened.truncate(9)
    assert opened.log.end_offset == 9
    assert opened.log.last_epoch == 1
    assert contents(opened.log) == kept
    assert opened.log.size_bytes == sum(map(len, kept))
    assert read_recovery_point(tmp_path) <= 9
    assert [path.name for path in segment_files(tmp_path)][-1] == "00000000000000000008.log"
    opened.append(data(9, epoch=3), data(10, epoch=3, size=300))
    assert contents(opened.log) == [*kept, data(9, epoch=3), data(10, epoch=3, size=300)]
    opened.close()
    assert read_epochs(tmp_path / PARTITION) == (OffsetAndEpoch(0, 1), OffsetAndEpoch(9, 3))
    opened = OpenLog(tmp_path, config)
    assert opened.log.recovered.epochs == (OffsetAndEpoch(0, 1), OffsetAndEpoch(9, 3))
    assert contents(opened.log) == [*kept, data(9, epoch=3), data(10, epoch=3, size=300)]
    opened.close()


@pytest.mark.parametrize("config", [SMALL, CACHED])
def test_a_truncation_is_ordered_with_the_appends_around_it(
    tmp_path: Path, config: LogConfig
) -> None:
    disk = CountingDisk()
    opened = OpenLog(tmp_path, config, disk)
    fill(opened, 6)
    disk.let.clear()
    disk.reached.clear()
    opened.queue(data(6))
    assert disk.reached.wait(20)
    opened.queue(data(7))
    opened.log.truncate(100, 4)
    opened.log.append(101, [data(4, epoch=2), data(5, epoch=2)])
    assert opened.log.end_offset == 6
    # Readable at once, though the files still hold what was truncated.
    assert [bytes(b) for b in opened.log.read(4, 1000)] == [
        data(4, epoch=2),
        data(5, epoch=2),
    ]
    found = [bytes(b) for b in opened.log.read(3, 1000)]
    assert found[0] == data(3)
    assert found[1:] in ([], [data(4, epoch=2), data(5, epoch=2)])
    disk.let.set()
    opened.wait(101)
    assert opened.tickets == sorted(opened.tickets)
    assert 100 in opened.tickets
    expected = [*(data(offset) for offset in range(4)), data(4, epoch=2), data(5, epoch=2)]
    assert contents(opened.log) == expected
    opened.close()
    opened = OpenLog(tmp_path, config)
    assert contents(opened.log) == expected
    opened.close()


def test_truncation_to_the_ends(tmp_path: Path) -> None:
    opened = OpenLog(tmp_path)
    fill(opened, 10)
    opened.truncate(10)
    assert len(contents(opened.log)) == 10
    opened.truncate(0)
    assert contents(opened.log) == []
    fill(opened, 5, epoch=4)
    assert contents(opened.log) == [data(offset, 4) for offset in range(5)]
    with pytest.raises(OffsetOutOfRangeError):
        opened.log.truncate(99, 6)
    opened.close()


@pytest.mark.parametrize("on_write", [True, False])
@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (errno.EIO, LogFailedError, "check the disk, then restart"),
        (errno.ENOSPC, DiskFullError, "no space is left"),
        (errno.EDQUOT, DiskFullError, "no space is left"),
    ],
)
def test_after_a_failure_nothing_is_reported_durable(
    tmp_path: Path, on_write: bool, code: int, kind: type[LogFailedError], text: str
) -> None:
    disk = BrokenDisk(code, on_write=on_write)
    opened = OpenLog(tmp_path, LogConfig(), disk)
    opened.append(data(0))
    disk.broken = True
    opened.queue(data(1))
    error = opened.wait_failure()
    assert type(error) is kind
    assert text in str(error)
    disk.broken = False
    with pytest.raises(LogFailedError, match="takes nothing any more"):
        opened.queue(data(2))
    assert opened.tickets == [1]
    assert opened.log.failure is error
    assert len(opened.failures) == 1
    opened.close()
    assert read_recovery_point(tmp_path) <= 1
    opened = OpenLog(tmp_path)
    assert opened.log.end_offset in (1, 2)
    assert contents(opened.log)[0] == data(0)
    opened.close()


def test_a_nearly_full_disk_that_cannot_allocate_ahead_still_takes_appends(tmp_path: Path) -> None:
    class NoRoomAhead(Disk):
        def allocate(self, descriptor: int, start: int, length: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    opened = OpenLog(tmp_path, LogConfig(), NoRoomAhead())
    fill(opened, 50)
    opened.close()
    assert segment_files(tmp_path)[0].stat().st_size == 50 * len(data(0))


def test_what_does_not_follow_is_refused(tmp_path: Path) -> None:
    opened = OpenLog(tmp_path)
    opened.append(data(0, epoch=3))
    for wrong in (data(2, 3), data(0, 3), data(1, epoch=2), data(1, 3) + data(2, 3)):
        with pytest.raises(AssertionError):
            opened.queue(wrong)
    assert opened.log.end_offset == 1
    opened.append(data(1, epoch=3))
    opened.close()


class PointDisk(Disk):
    """The real disk; `synced` is the recovery point that the disk holds."""

    def __init__(self) -> None:
        self.synced = -1
        self.at_reports: list[int] = []

    def _note(self, descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.name.startswith("recovery-point"):
            self.synced = int(path.read_text().split()[4])

    def sync_data(self, descriptor: int) -> None:
        super().sync_data(descriptor)
        self._note(descriptor)

    def sync(self, descriptor: int) -> None:
        super().sync(descriptor)
        self._note(descriptor)


def test_the_recovery_point_follows_every_sync(tmp_path: Path) -> None:
    disk = PointDisk()
    opened = OpenLog(tmp_path, SMALL, disk)
    assert disk.synced == 0
    opened.append(data(0))
    assert disk.synced == 1
    for offset in range(1, 5):
        opened.append(data(offset))
        assert read_recovery_point(tmp_path) == offset + 1
    opened.truncate(2)
    assert (disk.synced, read_recovery_point(tmp_path)) == (2, 2)
    opened.close()
    assert disk.synced == 2


@pytest.mark.parametrize("is_busy", [True, False])
def test_the_recovery_point_is_synced_by_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_busy: bool
) -> None:
    monkeypatch.setattr("quorate.log.writer.RECOVERY_POINT_PERIOD_S", 0.2)
    disk = PointDisk()
    opened = OpenLog(tmp_path, SMALL, disk)
    opened.append(data(0), data(1), data(2))
    deadline = time.monotonic() + 20
    while disk.synced < 3:
        assert time.monotonic() < deadline
        if is_busy:
            opened.append(data(opened.log.end_offset))
        time.sleep(0.01)
    opened.close()


def test_a_log_that_lost_files_is_refused(tmp_path: Path) -> None:
    opened = OpenLog(tmp_path / "live")
    fill(opened, 10)
    for lost in ("last segment", "all segments", "directory"):
        folder = crashed(tmp_path / "live", tmp_path / lost)
        if lost == "directory":
            shutil.rmtree(folder / PARTITION)
        else:
            for path in segment_files(folder)[-1 if lost == "last segment" else 0 :]:
                path.unlink()
        before = sorted(folder.rglob("*"))
        end = 8 if lost == "last segment" else 0
        with pytest.raises(MissingRecordsError, match="is gone: files were deleted") as caught:
            OpenLog(folder)
        assert f"ends at offset {end}, but everything before 10 was synced" in str(caught.value)
        assert sorted(folder.rglob("*")) == before
    opened.close()


def test_a_log_that_lost_all_files_before_its_first_second_is_refused(tmp_path: Path) -> None:
    OpenLog(tmp_path / "live").close()
    for lost in ("all segments", "directory"):
        folder = crashed(tmp_path / "live", tmp_path / lost)
        if lost == "directory":
            shutil.rmtree(folder / PARTITION)
        else:
            for path in segment_files(folder):
                path.unlink()
        before = sorted(folder.rglob("*"))
        with pytest.raises(MissingRecordsError, match="it has a recovery point and no segment"):
            OpenLog(folder)
        assert sorted(folder.rglob("*")) == before


class RewriteDisk(Disk):
    """The real disk; counts the bytes that are written to segments, and names what is synced."""

    def __init__(self) -> None:
        self.rewritten = 0
        self.synced: list[str] = []

    def _name(self, descriptor: int) -> str:
        return Path(f"/proc/self/fd/{descriptor}").readlink().name

    def write_all(self, descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
        if self._name(descriptor).endswith(".log"):
            self.rewritten += sum(map(len, buffers))
        return super().write_all(descriptor, buffers, position)

    def sync(self, descriptor: int) -> None:
        self.synced.append(self._name(descriptor))
        super().sync(descriptor)

    def sync_directory(self, directory: Path) -> None:
        self.synced.append(directory.name)
        super().sync_directory(directory)


@pytest.mark.parametrize("point", [0, 3, 6, 12])
def test_opening_makes_durable_what_it_finds(tmp_path: Path, point: int) -> None:
    opened = OpenLog(tmp_path / "live")
    fill(opened, 12)
    folder = crashed(tmp_path / "live", tmp_path / "killed")
    opened.close()
    write_recovery_point(Disk(), folder, point)
    disk = RewriteDisk()
    opened = OpenLog(folder, SMALL, disk)
    assert disk.rewritten == (12 - point) * len(data(0))
    names = [path.name for path in segment_files(folder)]
    expected = names[point // 4 :] or names[-1:]
    assert disk.synced[:2] == [PARTITION, "killed"]
    assert disk.synced[2 : 2 + len(expected)] == expected
    assert contents(opened.log) == [data(offset) for offset in range(12)]
    opened.close()
