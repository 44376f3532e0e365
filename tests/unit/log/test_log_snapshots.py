"""Checkpoints: written, read, received, cleaned up, and every crash in between."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import pytest
from quorate.common.batch_layout import NO_PRODUCER_ID
from quorate.log.config import LogConfig
from quorate.log.disk import Disk
from quorate.log.errors import (
    DamagedSnapshotError,
    LogError,
    LogFailedError,
    SnapshotNotFoundError,
)
from quorate.log.metadata_log import create_partition_directory, write_bootstrap_checkpoint
from quorate.log.offset_files import read_epochs, read_recovery_point
from quorate.log.snapshots import inspect_snapshot
from quorate.raft.batches import KRaftVersion, SnapshotFooter, SnapshotHeader, VotersRecord
from quorate.raft.types import BOOTSTRAP_SNAPSHOT, OffsetAndEpoch
from quorate.records.batch import iter_batches, iter_records, parse_batches, read_header

from tests.durability.disk import FaultyDisk
from tests.logs.cleaning import clean
from tests.unit.log.log_support import (
    ONE,
    PARTITION,
    TWO,
    WAIT_S,
    OpenLog,
    QuickDisk,
    StoppingDisk,
    contents,
    control,
    crashed,
    data,
    fill,
    segment_files,
)

AT_10 = OffsetAndEpoch(10, 1)
TEN = "00000000000000000010-0000000001.checkpoint"
ONE_BYTE = LogConfig(
    segment_bytes_max=400, tail_cache_bytes=0, preallocate_bytes=0, retention_bytes=1
)


def snapshot_bytes(opened: OpenLog, snapshot: OffsetAndEpoch) -> bytes:
    with opened.log.open_snapshot(snapshot) as reader:
        pieces = []
        while len(b"".join(pieces)) < reader.size:
            pieces.append(reader.read(len(b"".join(pieces)), 37))
        assert reader.read(reader.size, 10) == b""
    return b"".join(pieces)


@pytest.fixture
def received(tmp_path: Path) -> bytes:
    """A leader's checkpoint at 10@1, kraft.version 1, with two data batches."""
    leader = OpenLog(tmp_path / "leader")
    fill(leader, 12)
    leader.log.write_snapshot(AT_10, 1, TWO, 900, [data(0, count=3), data(77, count=2)])
    whole = snapshot_bytes(leader, AT_10)
    leader.close()
    return whole


def test_a_checkpoint_is_laid_out_as_kafkas(received: bytes) -> None:
    batches = parse_batches(received)
    assert [(b.base_offset, b.last_offset, b.epoch) for b in batches] == [
        (0, 2, 1),
        (3, 5, 1),
        (6, 7, 1),
        (8, 8, 1),
    ]
    assert batches[0].control == (SnapshotHeader(900), KRaftVersion(1), VotersRecord(TWO))
    assert batches[3].control == (SnapshotFooter(),)
    headers = [header for header, _ in iter_batches(received)]
    assert [header.log_base_offset for header in headers] == [None] * 4
    assert {header.producer_id for header in headers} == {NO_PRODUCER_ID}
    values = []
    for batch in batches[1:3]:
        assert isinstance(batch.data, memoryview)
        records = iter_records(batch.data, read_header(batch.data))
        values += [record.value for record in records if record.value]
    assert [value[:1] for value in values] == [b"A", b"B", b"C", b"Z", b"A"]


def test_a_checkpoint_at_kraft_version_0_has_no_voters(tmp_path: Path) -> None:
    opened = OpenLog(tmp_path)
    fill(opened, 3)
    snapshot = OffsetAndEpoch(3, 1)
    opened.log.write_snapshot(snapshot, 0, None, 5, [])
    batches = parse_batches(snapshot_bytes(opened, snapshot))
    assert [b.control for b in batches] == [(SnapshotHeader(5),), (SnapshotFooter(),)]
    opened.close()
    opened = OpenLog(tmp_path)
    assert (opened.log.recovered.voters, opened.log.recovered.kraft_versions) == ((), ())
    opened.close()


def test_checkpoints_are_listed_read_and_missed(tmp_path: Path) -> None:
    opened = OpenLog(tmp_path)
    fill(opened, 12)
    assert opened.log.snapshots() == ()
    assert opened.log.latest_snapshot() is None
    for offset in (5, 10):
        opened.log.write_snapshot(OffsetAndEpoch(offset, 1), 1, ONE, 1, [data(0, count=4)])
    assert opened.log.snapshots() == (OffsetAndEpoch(5, 1), AT_10)
    assert opened.log.latest_snapshot() == AT_10
    (batch,) = opened.log.iter_snapshot_batches(AT_10)
    assert (batch.base_offset, batch.last_offset, batch.control) == (3, 6, ())
    for call in (opened.log.open_snapshot, opened.log.iter_snapshot_batches):
        with pytest.raises(SnapshotNotFoundError):
            call(OffsetAndEpoch(9, 1))
    # One that is deleted while it is read can be read to its end.
    reader = opened.log.open_snapshot(AT_10)
    (tmp_path / PARTITION / TEN).unlink()
    assert len(reader.read(0, 1 << 20)) == reader.size
    reader.close()
    opened.close()


def test_a_checkpoint_must_fit_the_log(tmp_path: Path) -> None:
    opened = OpenLog(tmp_path)
    fill(opened, 5, epoch=1)
    fill(opened, 8, epoch=2)
    for wrong in (OffsetAndEpoch(9, 2), OffsetAndEpoch(6, 1), OffsetAndEpoch(5, 2)):
        with pytest.raises(LogError, match="no checkpoint at"):
            opened.log.write_snapshot(wrong, 1, ONE, 1, [])
    opened.log.write_snapshot(OffsetAndEpoch(5, 1), 1, ONE, 1, [])
    assert read_recovery_point(tmp_path) == 8
    opened.close()


def test_a_checkpoint_ends_between_batches(tmp_path: Path) -> None:
    opened = OpenLog(tmp_path)
    opened.wait(opened.queue(data(0, count=3), data(3, count=3), data(6, count=3)))
    for inside in (1, 5, 8):
        with pytest.raises(LogError, match=f"no checkpoint at {inside}@1: .* inside a batch"):
            opened.log.write_snapshot(OffsetAndEpoch(inside, 1), 1, ONE, 1, [])
    for boundary in (3, 9):
        opened.log.write_snapshot(OffsetAndEpoch(boundary, 1), 1, ONE, 1, [])
    opened.close()


def test_the_newest_checkpoint_and_what_follows_make_the_history(tmp_path: Path) -> None:
    write_bootstrap_checkpoint(tmp_path, ONE)
    opened = OpenLog(tmp_path)
    recovered = opened.log.recovered
    assert recovered.voters == ((-1, ONE),)
    assert recovered.kraft_versions == ((-1, 1),)
    assert recovered.latest_snapshot == BOOTSTRAP_SNAPSHOT
    assert (recovered.start_offset, recovered.end_offset) == (0, 0)
    opened.append(control(0, 1, KRaftVersion(1), VotersRecord(ONE)))
    fill(opened, 6)
    opened.append(control(6, 1, VotersRecord(TWO)), data(7))
    opened.close()
    opened = OpenLog(tmp_path)
    assert opened.log.recovered.voters == ((-1, ONE), (1, ONE), (6, TWO))
    opened.log.write_snapshot(OffsetAndEpoch(6, 1), 1, ONE, 1, [])
    opened.close()
    opened = OpenLog(tmp_path)
    assert opened.log.recovered.voters == ((5, ONE), (6, TWO))
    assert opened.log.recovered.kraft_versions == ((5, 1),)
    assert opened.log.recovered.latest_snapshot == OffsetAndEpoch(6, 1)
    opened.close()


def install(opened: OpenLog, whole: bytes, ticket: int | None = 50) -> None:
    reception = opened.log.begin_install(AT_10)
    while reception.position < len(whole):
        at = reception.position
        reception.write(at, whole[at : at + 100])
    info = reception.finish(ticket)
    assert (info.start, info.end_offset) == (AT_10, 10)
    assert info.voters == ((9, TWO),)
    assert info.kraft_versions == ((9, 1),)
    assert info.last_timestamp == 900


@pytest.mark.parametrize("had", [0, 5, 30])
def test_a_received_checkpoint_replaces_the_log(tmp_path: Path, received: bytes, had: int) -> None:
    """Whether it was shorter or, in another epoch, longer."""
    opened = OpenLog(tmp_path / "follower")
    fill(opened, had)
    install(opened, received)
    opened.wait(50)
    log = opened.log
    assert (log.start, log.end_offset, log.size_bytes) == (AT_10, 10, 0)
    assert log.snapshots() == (AT_10,)
    assert log.last_epoch == 1
    assert snapshot_bytes(opened, AT_10) == received
    opened.append(data(10, epoch=1), data(11, epoch=2))
    opened.close()
    assert [path.name for path in segment_files(tmp_path / "follower")] == [
        "00000000000000000010.log"
    ]
    partition = tmp_path / "follower" / PARTITION
    assert read_epochs(partition) == (OffsetAndEpoch(10, 1), OffsetAndEpoch(11, 2))
    opened = OpenLog(tmp_path / "follower")
    recovered = opened.log.recovered
    assert (recovered.start, recovered.end_offset) == (AT_10, 12)
    assert recovered.voters == ((9, TWO),)
    assert contents(opened.log) == [data(10, epoch=1), data(11, epoch=2)]
    opened.close()


def test_reception_goes_on_after_a_restart(tmp_path: Path, received: bytes) -> None:
    folder = tmp_path / "follower"
    opened = OpenLog(folder)
    reception = opened.log.begin_install(AT_10)
    assert reception.position == 0
    reception.write(0, received[:150])
    with pytest.raises(LogError, match="bytes from 100 arrived, those from 150 are awaited"):
        reception.write(100, received[100:])
    opened.close()
    opened = OpenLog(folder)
    assert opened.log.begin_install(AT_10).position == 150
    install(opened, received, ticket=None)
    opened.close()
    assert not list((folder / PARTITION).glob("*.part"))


def test_another_reception_drops_the_one_before(tmp_path: Path, received: bytes) -> None:
    opened = OpenLog(tmp_path / "follower")
    opened.log.begin_install(OffsetAndEpoch(8, 1)).write(0, b"half")
    install(opened, received)
    assert not list((tmp_path / "follower" / PARTITION).glob("*.part"))
    reception = opened.log.begin_install(OffsetAndEpoch(20, 3))
    reception.write(0, b"x")
    reception.close()
    with pytest.raises(LogError, match="has ended"):
        reception.write(1, b"x")
    opened.close()


def test_a_damaged_checkpoint_is_never_installed(tmp_path: Path, received: bytes) -> None:
    opened = OpenLog(tmp_path / "follower")
    fill(opened, 4)
    before = contents(opened.log)
    footer = len(received) - 75
    candidates = [received[:cut] for cut in (0, 10, 61, footer, len(received) - 1)]
    candidates += [received + b"\0", received + received[-75:], received[footer:]]
    for at in range(0, len(received), 5):
        flipped = bytearray(received)
        flipped[at] ^= 0x10
        candidates.append(bytes(flipped))
    # Flipped epochs go unnoticed: nothing in a checkpoint depends on them.
    sizes = [len(b.data) for b in parse_batches(received)]  # type: ignore[arg-type]
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    epochs = {start + i for start in starts for i in range(12, 16)}
    for candidate in candidates:
        changed = [i for i, (a, b) in enumerate(zip(candidate, received, strict=False)) if a != b]
        if len(candidate) == len(received) and set(changed) <= epochs:
            continue
        reception = opened.log.begin_install(AT_10)
        assert reception.position == 0
        reception.write(0, candidate)
        with pytest.raises(DamagedSnapshotError):
            reception.finish(9)
    assert opened.log.snapshots() == ()
    assert contents(opened.log) == before
    assert 9 not in opened.tickets
    opened.close()


def test_a_crash_at_any_step_of_an_install(tmp_path: Path, received: bytes) -> None:
    """Either the log as it was, or the checkpoint; always a log that opens and goes on."""
    template = tmp_path / "template"
    opened = OpenLog(template)
    fill(opened, 30, epoch=0)
    opened.close()
    outcomes = set()
    for step in range(100):
        folder = tmp_path / "follower"
        shutil.copytree(template, folder)
        disk = StoppingDisk(step)
        opened = OpenLog(folder, disk=disk)
        reception = opened.log.begin_install(AT_10)
        reception.write(0, received)
        for call in (partial(reception.finish, 50), opened.close):
            try:
                call()
            except LogError:
                assert disk.stopped
        again = OpenLog(folder)
        end = again.log.end_offset
        assert end in (10, 30)
        if opened.tickets:
            assert end == 10
        outcomes.add(end)
        if end == 10:
            assert again.log.recovered.start == AT_10
            assert again.log.recovered.voters == ((9, TWO),)
        again.append(data(end, epoch=2))
        again.close()
        final = OpenLog(folder)
        assert final.log.end_offset == end + 1
        final.close()
        shutil.rmtree(folder)
        if not disk.stopped:
            break
    assert outcomes == {10, 30}
    assert step > 8


@pytest.mark.slow
def test_a_power_failure_after_a_crash_of_an_install(tmp_path: Path, received: bytes) -> None:
    """A segment that the killed process deleted must not come back beside the one that the next
    process creates.
    """
    template = tmp_path / "template"
    opened = OpenLog(template, disk=QuickDisk())
    fill(opened, 4, epoch=0)
    opened.close()
    random = Random(1)
    outcomes = set()
    for killed_at in range(100):
        for failed_at in range(1, 100):
            folder, left = tmp_path / "follower", tmp_path / "left"
            shutil.copytree(template, folder)
            disk = FaultyDisk([folder, folder / PARTITION])
            opened = OpenLog(folder, disk=disk)
            disk.fail_at(killed_at, "kill", random)
            reception = opened.log.begin_install(AT_10)
            for call in (partial(reception.write, 0, received), partial(reception.finish, 50)):
                with contextlib.suppress(LogError, OSError):
                    call()
            was_killed = disk.is_down
            with contextlib.suppress(LogError, OSError):
                opened.close()
            disk.fail_at(failed_at, "power", random)
            with contextlib.suppress(LogError, OSError):
                OpenLog(folder, disk=disk).close()
            has_failed = disk.is_down
            disk.crash(random, left)
            disk.close()
            again = OpenLog(left, disk=QuickDisk())
            assert again.log.end_offset in (4, 10)
            outcomes.add(again.log.end_offset)
            again.close()
            shutil.rmtree(folder)
            shutil.rmtree(left)
            if not has_failed:
                break
        if not was_killed:
            break
    assert outcomes == {4, 10}
    assert killed_at > 8


@pytest.mark.parametrize("had", [4, 30])
def test_a_log_that_its_checkpoint_replaced_is_dropped_at_open(
    tmp_path: Path, received: bytes, had: int
) -> None:
    """The state between the checkpoint's rename and the log's removal."""
    opened = OpenLog(tmp_path / "follower")
    fill(opened, had, epoch=0)
    folder = crashed(tmp_path / "follower", tmp_path / "crashed")
    opened.close()
    (folder / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    (folder / PARTITION / TEN).write_bytes(received)
    opened = OpenLog(folder)
    assert (opened.log.start, opened.log.end_offset) == (AT_10, 10)
    opened.close()


def test_a_log_that_lost_its_end_is_not_mistaken_for_a_replaced_one(
    tmp_path: Path, received: bytes
) -> None:
    opened = OpenLog(tmp_path / "live")
    fill(opened, 30)
    opened.log.write_snapshot(AT_10, 1, TWO, 1, [])
    opened.close()
    for path in segment_files(tmp_path / "live")[1:]:
        path.unlink()
    with pytest.raises(LogError, match="everything before 30 was synced and is gone"):
        OpenLog(tmp_path / "live")


def test_a_damaged_newest_checkpoint_is_refused(tmp_path: Path) -> None:
    opened = OpenLog(tmp_path)
    fill(opened, 12)
    opened.log.write_snapshot(AT_10, 1, TWO, 1, [data(0)])
    opened.close()
    path = tmp_path / PARTITION / TEN
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(LogError, match="newest one, so its log cannot be trusted"):
        OpenLog(tmp_path)


def test_a_full_disk_spares_the_log_when_a_checkpoint_fails(tmp_path: Path) -> None:
    opened = OpenLog(tmp_path)
    fill(opened, 12)

    def failing() -> list[bytes]:
        raise OSError(28, "No space left on device")

    with pytest.raises(LogFailedError, match="no space is left"):
        opened.log.write_snapshot(AT_10, 1, TWO, 1, (failing() for _ in range(1)))
    assert opened.log.snapshots() == ()
    assert not list((tmp_path / PARTITION).glob("*.part"))
    opened.append(data(12))
    opened.close()


def test_cleaning_moves_the_start_from_checkpoint_to_checkpoint(tmp_path: Path) -> None:
    write_bootstrap_checkpoint(tmp_path, ONE)
    opened = OpenLog(tmp_path, ONE_BYTE)
    fill(opened, 12, epoch=1)
    fill(opened, 30, epoch=2)
    assert clean(opened.log, 0) == 0
    opened.log.write_snapshot(OffsetAndEpoch(6, 1), 1, ONE, 1, [])
    opened.log.write_snapshot(OffsetAndEpoch(18, 2), 1, ONE, 1, [])
    opened.log.write_snapshot(OffsetAndEpoch(22, 2), 1, ONE, 1, [])
    before = contents(opened.log)
    size = opened.log.size_bytes
    assert clean(opened.log, 0) == 22
    assert opened.log.start == OffsetAndEpoch(22, 2)
    assert opened.log.snapshots() == (OffsetAndEpoch(22, 2),)
    assert segment_files(tmp_path)[0].name == "00000000000000000020.log"
    assert opened.log.size_bytes < size
    assert contents(opened.log) == before[22:]
    assert read_epochs(tmp_path / PARTITION) == (OffsetAndEpoch(22, 2),)
    assert clean(opened.log, 0) == 22
    fill(opened, 33, epoch=2)
    opened.close()
    opened = OpenLog(tmp_path, ONE_BYTE)
    assert opened.log.recovered.start == OffsetAndEpoch(22, 2)
    assert opened.log.recovered.epochs == (OffsetAndEpoch(22, 2),)
    assert opened.log.end_offset == 33
    assert opened.log.bytes_since(0) == opened.log.bytes_since(22)
    opened.close()


def test_cleaning_stops_when_enough_is_gone(tmp_path: Path) -> None:
    config = LogConfig(
        segment_bytes_max=400, tail_cache_bytes=0, preallocate_bytes=0, retention_bytes=2500
    )
    opened = OpenLog(tmp_path, config)
    fill(opened, 30)
    assert opened.log.size_bytes < 3000
    for offset in (5, 10, 25):
        opened.log.write_snapshot(OffsetAndEpoch(offset, 1), 0, None, 1, [])
    assert clean(opened.log, 0) == 10
    assert opened.log.snapshots() == (OffsetAndEpoch(10, 1), OffsetAndEpoch(25, 1))
    opened.close()


def test_cleaning_by_age_and_not_at_all(tmp_path: Path) -> None:
    for retention_ms, start in ((100, 10), (-1, 0)):
        folder = create_partition_directory(tmp_path / str(retention_ms)).parent
        config = LogConfig(
            segment_bytes_max=400,
            tail_cache_bytes=0,
            preallocate_bytes=0,
            retention_bytes=-1,
            retention_ms=retention_ms,
        )
        opened = OpenLog(folder, config)
        fill(opened, 30)
        opened.log.write_snapshot(AT_10, 0, None, 1000, [])
        opened.log.write_snapshot(OffsetAndEpoch(20, 1), 0, None, 2000, [])
        assert clean(opened.log, 1050) == 0
        assert clean(opened.log, 1200) == start
        assert OffsetAndEpoch(20, 1) in opened.log.snapshots()
        opened.close()


def test_a_crash_at_any_step_of_cleaning(tmp_path: Path) -> None:
    template = tmp_path / "template"
    opened = OpenLog(template)
    fill(opened, 30)
    for offset in (6, 18):
        opened.log.write_snapshot(OffsetAndEpoch(offset, 1), 1, ONE, 1, [])
    opened.close()
    for step in range(100):
        folder = tmp_path / "copy"
        shutil.copytree(template, folder)
        disk = StoppingDisk(step)
        opened = OpenLog(folder, ONE_BYTE, disk)
        for call in (partial(clean, opened.log, 0), opened.close):
            try:
                call()
            except LogFailedError:
                assert disk.stopped
        again = OpenLog(folder, ONE_BYTE)
        assert again.log.end_offset == 30
        assert again.log.start_offset in (0, 6, 18)
        assert again.log.snapshots()[-1] == OffsetAndEpoch(18, 1)
        assert contents(again.log)[-1] == data(29)
        assert clean(again.log, 0) == 18
        again.close()
        shutil.rmtree(folder)
        if not disk.stopped:
            break
    assert step > 5


def test_the_bootstrap_checkpoint_is_kafkas(tmp_path: Path) -> None:
    write_bootstrap_checkpoint(tmp_path, ONE, 1, now_ms=5)
    path = tmp_path / PARTITION / "00000000000000000000-0000000000.checkpoint"
    batches = parse_batches(path.read_bytes())
    assert [batch.control for batch in batches] == [
        (SnapshotHeader(5), KRaftVersion(1), VotersRecord(ONE)),
        (SnapshotFooter(),),
    ]
    assert [(batch.base_offset, batch.epoch) for batch in batches] == [(0, 0), (3, 0)]
    info = inspect_snapshot(path)
    assert (info.kraft_version, info.voters) == (1, ONE)


class CrossingDisk(Disk):
    """The real disk; lets `cross` run, once, before a segment of this name is deleted."""

    def __init__(self) -> None:
        self.name = ""
        self.cross: Callable[[], None] = lambda: None

    def unlink(self, path: Path) -> None:
        if path.name == self.name:
            self.name = ""
            self.cross()
        super().unlink(path)


@pytest.mark.parametrize("first", ["cleaning", "truncation"])
def test_cleaning_and_truncation_to_the_same_offset_cross(tmp_path: Path, first: str) -> None:
    """A checkpoint stands for all of the log, which is truncated to it at a segment's boundary."""
    disk = CrossingDisk()
    opened = OpenLog(tmp_path, ONE_BYTE, disk)
    fill(opened, 9)
    opened.log.write_snapshot(OffsetAndEpoch(8, 1), 1, ONE, 1, [])
    if first == "cleaning":
        disk.name = "00000000000000000000.log"
        disk.cross = lambda: opened.truncate(8)
        assert clean(opened.log, 1) == 8
    else:
        disk.name = "00000000000000000008.log"
        disk.cross = lambda: (clean(opened.log, 1), None)[1]
        opened.truncate(8)
    assert (opened.log.start_offset, opened.log.end_offset) == (8, 8)
    opened.append(data(8, epoch=2))
    assert contents(opened.log) == [data(8, epoch=2)]
    opened.close()
    opened = OpenLog(tmp_path, ONE_BYTE)
    assert contents(opened.log) == [data(8, epoch=2)]
    opened.close()


class TruncatingDisk(Disk):
    """The real disk; the next truncation, once `is_armed`, ends when `may_end` is set."""

    def __init__(self) -> None:
        self.is_armed = False
        self.is_shorter = threading.Event()
        self.may_end = threading.Event()

    def truncate(self, descriptor: int, size: int) -> None:
        super().truncate(descriptor, size)
        if self.is_armed:
            self.is_armed = False
            self.is_shorter.set()
            assert self.may_end.wait(WAIT_S)


class Gate:
    """A lock; lets `cross` run, once, before it is taken."""

    def __init__(self, cross: Callable[[], None]) -> None:
        self._lock = threading.RLock()
        self._crossings = [cross]

    def __enter__(self) -> None:
        if self._crossings:
            self._crossings.pop()()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_a_checkpoint_and_a_truncation_to_its_offset_cross(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is shorter already when the checkpoint's place is looked up."""
    disk = TruncatingDisk()
    opened = OpenLog(tmp_path, LogConfig(tail_cache_bytes=0, preallocate_bytes=0), disk)
    fill(opened, 12)

    def truncate() -> None:
        disk.is_armed = True
        opened.log.truncate(50, 8)
        assert disk.is_shorter.wait(WAIT_S)

    monkeypatch.setattr(opened.log._segments, "guard", Gate(truncate))
    opened.log.write_snapshot(OffsetAndEpoch(8, 1), 1, ONE, 1, [])
    disk.may_end.set()
    opened.wait(50)
    assert opened.log.snapshots()[-1] == OffsetAndEpoch(8, 1)
    opened.append(data(8, epoch=2))
    assert contents(opened.log) == [*(data(offset) for offset in range(8)), data(8, epoch=2)]
    opened.close()
