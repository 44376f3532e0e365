"""Opening what a crash, a bad disk or Kafka left: torn tails are cut, damage is refused."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from quorate.log.config import LogConfig
from quorate.log.disk import Disk
from quorate.log.errors import DamagedLogError, LogError
from quorate.log.metadata_log import MetadataLog
from quorate.log.offset_files import write_recovery_point
from quorate.log.snapshots import SnapshotStore
from quorate.raft.batches import KRaftVersion, LeaderChange, UnknownControl, VotersRecord
from quorate.raft.types import OffsetAndEpoch, ReplicaKey
from quorate.records.primitives import Buffer

from tests.unit.log.log_support import (
    ONE,
    PARTITION,
    SMALL,
    OpenLog,
    QuickDisk,
    contents,
    control,
    crashed,
    data,
    fill,
    segment_files,
)

WHOLE = LogConfig(tail_cache_bytes=0, preallocate_bytes=0)


def tree(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def open_files(directory: Path) -> list[str]:
    """The files below `directory` that this process has open. Other entries come and go."""
    targets = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            targets.append(str(entry.readlink()))
    return sorted(target for target in targets if target.startswith(f"{directory}/"))


def refuse(directory: Path, config: LogConfig = WHOLE) -> DamagedLogError:
    """Opening must fail, name its remedy, leave every byte as it is, and close its files."""
    before, descriptors = tree(directory), open_files(directory)
    with pytest.raises(DamagedLogError) as caught:
        OpenLog(directory, config)
    assert tree(directory) == before
    assert open_files(directory) == descriptors
    for part in ("remove-controller", "storage format", "rebuilt from the leader"):
        assert part in str(caught.value)
    return caught.value


def forget_recovery_point(directory: Path) -> None:
    (directory / "recovery-point-offset-checkpoint").unlink(missing_ok=True)


@pytest.fixture
def batches() -> list[bytes]:
    return [
        control(0, 1, LeaderChange(1, (ReplicaKey(1),), (ReplicaKey(1),)), KRaftVersion(1)),
        control(2, 1, VotersRecord(ONE)),
        data(3, count=3),
        data(6, epoch=2, size=60),
        data(7, epoch=2, count=2),
    ]


@pytest.fixture
def template(tmp_path: Path, batches: list[bytes]) -> Path:
    """A log of one segment, as a process that was killed leaves it."""
    opened = OpenLog(tmp_path / "live", WHOLE)
    opened.append(*batches)
    copy = crashed(tmp_path / "live", tmp_path / "template")
    opened.close()
    return copy


def test_what_is_recovered(template: Path, batches: list[bytes]) -> None:
    opened = OpenLog(template, WHOLE)
    recovered = opened.log.recovered
    assert (recovered.start_offset, recovered.end_offset) == (0, 9)
    assert recovered.epochs == (OffsetAndEpoch(0, 1), OffsetAndEpoch(6, 2))
    assert recovered.voters == ((2, ONE),)
    assert recovered.kraft_versions == ((1, 1),)
    assert recovered.latest_snapshot is None
    assert recovered.last_timestamp == 1000
    assert recovered.truncated_bytes == 0
    assert contents(opened.log) == batches
    opened.close()


@pytest.mark.slow
def test_a_log_cut_at_any_byte_recovers_to_a_batch_boundary(
    tmp_path: Path, template: Path, batches: list[bytes]
) -> None:
    whole = b"".join(batches)
    for cut in range(len(whole)):
        folder = tmp_path / "cut"
        shutil.copytree(template, folder)
        forget_recovery_point(folder)
        (file,) = segment_files(folder)
        file.write_bytes(whole[:cut])
        opened = OpenLog(folder, WHOLE, QuickDisk())
        kept = contents(opened.log)
        assert kept == batches[: len(kept)]
        size = sum(map(len, kept))
        assert len(kept) == len(batches) or cut < size + len(batches[len(kept)])
        torn = whole[size:cut].rstrip(b"\0")
        assert opened.log.recovered.truncated_bytes == len(torn)
        end = opened.log.end_offset
        opened.append(data(end, epoch=5))
        assert contents(opened.log) == [*kept, data(end, epoch=5)]
        opened.close()
        shutil.rmtree(folder)


def test_a_cut_below_the_recovery_point_is_damage(template: Path, batches: list[bytes]) -> None:
    write_recovery_point(Disk(), template, 9)
    (file,) = segment_files(template)
    whole = b"".join(batches)
    assert file.read_bytes() == whole
    file.write_bytes(whole[:-5])
    error = refuse(template)
    assert error.start == len(whole) - len(batches[-1])
    assert error.expected_offset == 7
    assert "everything before offset 9 was synced" in str(error)
    file.write_bytes(whole[: error.start])
    assert "was synced and is gone" in str(refuse(template))
    file.unlink()
    refuse(template)


@pytest.mark.slow
def test_a_flipped_byte_with_a_batch_after_it_is_damage(
    tmp_path: Path, template: Path, batches: list[bytes]
) -> None:
    whole = b"".join(batches)
    last = len(whole) - len(batches[-1])
    boundaries = [0]
    for batch in batches:
        boundaries.append(boundaries[-1] + len(batch))
    offsets = [0, 2, 3, 6, 7]
    for at in range(last):
        folder = tmp_path / "flip"
        shutil.copytree(template, folder)
        forget_recovery_point(folder)
        (file,) = segment_files(folder)
        damaged = bytearray(whole)
        damaged[at] ^= 0x40
        file.write_bytes(damaged)
        error = refuse(folder)
        index = next(i for i in range(len(batches)) if boundaries[i + 1] > at)
        # An epoch that was raised is noticed at the batch after it.
        assert error.start in boundaries[index : index + 2]
        assert error.expected_offset in offsets[index : index + 2]
        assert error.end > error.start
        assert str(file) in str(error)
        shutil.rmtree(folder)


@pytest.mark.slow
def test_a_flipped_byte_in_the_last_batch_is_damage(
    tmp_path: Path, template: Path, batches: list[bytes]
) -> None:
    """No unfinished write looks like this, so the batch may have been acknowledged."""
    whole = b"".join(batches)
    last = len(whole) - len(batches[-1])
    for room in (0, 5000):
        for at in range(last, len(whole)):
            if last + 12 <= at < last + 16:
                continue  # the epoch, which no checksum covers
            folder = tmp_path / "flip"
            shutil.copytree(template, folder)
            forget_recovery_point(folder)
            (file,) = segment_files(folder)
            damaged = bytearray(whole)
            damaged[at] ^= 0x20
            file.write_bytes(bytes(damaged) + bytes(room))
            error = refuse(folder)
            assert (error.start, error.expected_offset) == (last, 7)
            shutil.rmtree(folder)


def test_damage_in_a_segment_that_has_a_successor(tmp_path: Path) -> None:
    opened = OpenLog(tmp_path / "live")
    fill(opened, 12)
    folder = crashed(tmp_path / "live", tmp_path / "copy")
    opened.close()
    forget_recovery_point(folder)
    files = segment_files(folder)
    assert len(files) == 3
    original = files[1].read_bytes()
    files[1].write_bytes(original[:-1])
    error = refuse(folder, SMALL)
    assert error.path == files[1]
    assert f"a later segment, {files[2].name}, follows" in str(error)
    files[1].unlink()
    assert "the segment begins at offset 8" in str(refuse(folder, SMALL))
    files[1].write_bytes(original)
    # A segment whose batches were misplaced as a whole.
    files[2].write_bytes(data(4, 1))
    assert "a whole batch with offset 4 lies there" in str(refuse(folder, SMALL))


@pytest.mark.parametrize(
    ("misplaced", "text"),
    [
        (data(12, epoch=2), "a whole batch with offset 12 lies there"),
        (data(8, epoch=2), "a whole batch with offset 8 lies there"),
        (data(9, epoch=1), "a whole batch of epoch 1 follows epoch 2"),
    ],
)
def test_a_whole_batch_in_the_wrong_place_is_damage_even_at_the_end(
    template: Path, misplaced: bytes, text: str
) -> None:
    (file,) = segment_files(template)
    file.write_bytes(file.read_bytes() + misplaced)
    assert text in str(refuse(template))


def test_allocated_room_is_no_damage(template: Path, batches: list[bytes]) -> None:
    (file,) = segment_files(template)
    size = file.stat().st_size
    for room in (1, 60, 61, 5000):
        file.write_bytes(b"".join(batches) + bytes(room))
        opened = OpenLog(template, WHOLE)
        assert contents(opened.log) == batches
        assert opened.log.recovered.truncated_bytes == 0
        opened.close()
        assert file.stat().st_size == size


def test_a_torn_write_within_allocated_room(template: Path, batches: list[bytes]) -> None:
    forget_recovery_point(template)
    (file,) = segment_files(template)
    torn = data(9, epoch=2, size=100)[:90]
    file.write_bytes(b"".join(batches) + torn + bytes(9000))
    opened = OpenLog(template, WHOLE)
    assert contents(opened.log) == batches
    assert opened.log.recovered.truncated_bytes == len(torn.rstrip(b"\0"))
    opened.close()


def test_kafkas_truncation_is_believed(template: Path, batches: list[bytes]) -> None:
    """Kafka had the directory last, as its index shows: our recovery point means nothing then."""
    write_recovery_point(Disk(), template, 9)
    (file,) = segment_files(template)
    file.write_bytes(b"".join(batches[:3]))
    file.with_suffix(".index").write_bytes(b"")
    file.with_suffix(".timeindex").write_bytes(b"")
    opened = OpenLog(template, WHOLE)
    assert opened.log.end_offset == 6
    fill(opened, 8, epoch=3)
    copy = crashed(template, template.with_name("again"))
    opened.close()
    assert not list((template / PARTITION).glob("*index"))
    OpenLog(copy, WHOLE).close()


def test_control_records_of_a_newer_version_are_not_called_damage(template: Path) -> None:
    batch = control(9, 2, UnknownControl(6, b"\0\x07rest"))
    (file,) = segment_files(template)
    file.write_bytes(file.read_bytes() + batch)
    with pytest.raises(LogError, match="start the version that wrote them") as caught:
        OpenLog(template, WHOLE)
    assert not isinstance(caught.value, DamagedLogError)


def test_a_log_that_begins_late_needs_a_checkpoint(template: Path) -> None:
    (file,) = segment_files(template)
    file.rename(file.with_name("00000000000000000009.log"))
    (template / PARTITION / "00000000000000000009.log").write_bytes(data(9, 2))
    with pytest.raises(LogError, match="begins at offset 9 and no checkpoint stands"):
        OpenLog(template, WHOLE)


def test_leftovers_are_removed(template: Path) -> None:
    partition = template / PARTITION
    leftovers = [
        "00000000000000000000.log.deleted",
        "00000000000000000007-0000000002-123456.checkpoint.part",
        "00000000000000000007-0000000002-writing.checkpoint.part",
        "00000000000000000007-0000000002.checkpoint.deleted",
    ]
    for name in leftovers:
        (partition / name).write_bytes(b"x")
    OpenLog(template, WHOLE).close()
    assert not [name for name in leftovers if (partition / name).exists()]


def test_a_clean_end_needs_no_repair(template: Path) -> None:
    OpenLog(template, WHOLE).close()
    before = tree(template)
    opened = OpenLog(template, WHOLE)
    assert isinstance(opened.log, MetadataLog)
    opened.close()
    assert tree(template) == before


class FailingDisk(Disk):
    """The real disk until its operation number `fail_at`, which fails, as do those after it."""

    def __init__(self, fail_at: int) -> None:
        self.left = fail_at

    def _step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def write_all(self, descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
        self._step()
        return super().write_all(descriptor, buffers, position)

    def sync(self, descriptor: int) -> None:
        self._step()

    def truncate(self, descriptor: int, size: int) -> None:
        self._step()
        super().truncate(descriptor, size)

    def rename(self, source: Path, target: Path) -> None:
        self._step()
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self._step()
        super().unlink(path)

    def sync_directory(self, directory: Path) -> None:
        self._step()


def empty(_: Path) -> None:
    """A directory without a log."""


def torn(directory: Path) -> None:
    """A log that ends inside a batch."""
    opened = OpenLog(directory, disk=QuickDisk())
    fill(opened, 20)
    opened.close()
    forget_recovery_point(directory)
    with segment_files(directory)[-1].open("ab") as file:
        file.write(data(20)[:50])


def replaced(directory: Path) -> None:
    """A log that a checkpoint replaces, because the process ended before it could."""
    opened = OpenLog(directory, disk=QuickDisk())
    fill(opened, 20)
    opened.close()
    store = SnapshotStore(directory / PARTITION, QuickDisk())
    store.write(OffsetAndEpoch(30, 2), 1, ONE, 1000, ())


@pytest.mark.parametrize("prepare", [empty, torn, replaced])
def test_a_log_that_cannot_be_opened_closes_its_files(
    tmp_path: Path, prepare: Callable[[Path], None]
) -> None:
    failures = 0
    while True:
        folder = tmp_path / str(failures)
        folder.mkdir()
        prepare(folder)
        before = open_files(folder)
        try:
            opened = OpenLog(folder, disk=FailingDisk(failures))
        except OSError:
            assert open_files(folder) == before, f"after {failures} operations"
            failures += 1
        else:
            with contextlib.suppress(LogError):
                opened.close()
            assert open_files(folder) == before
            break
    assert failures > 10


def test_a_log_without_a_writer_closes_its_files(
    template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    before = open_files(template)
    monkeypatch.setattr(threading.Thread, "start", refuse_thread)
    with pytest.raises(RuntimeError, match="new thread"):
        OpenLog(template, WHOLE)
    assert open_files(template) == before
