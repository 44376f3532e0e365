"""A partition's log on disk, its recovery, and the producers it remembers."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from quorate.broker.checkpoints import (
    read_high_watermarks,
    take_clean_shutdown,
    write_clean_shutdown,
    write_high_watermarks,
)
from quorate.broker.client import sequenced
from quorate.broker.producers import ProducerTable, Repetition
from quorate.broker.replica_log import (
    DELETED_SUFFIX,
    STRAY_SUFFIX,
    ReplicaLog,
    delete_directory,
    read_recovery_point,
    read_topic_id,
    set_aside,
)
from quorate.common.error_codes import ErrorCode
from quorate.log.disk import Disk
from quorate.log.errors import DiskFullError, LogError
from quorate.log.meta_properties import random_uuid
from quorate.records.batch import build_data_batch, iter_records, read_header, stamp, verify_crc
from quorate.records.primitives import Buffer
from quorate.rpc.wire.partition_values import ProducerIdentity

from tests.durability.disk import FaultyDisk
from tests.unit.log.log_support import QuickDisk

TOPIC = random_uuid()
SEGMENT_BYTES = 600


def batch(base: int, epoch: int = 0, count: int = 2, size: int = 40) -> bytearray:
    made = build_data_batch([(None, b"%d" % n + b"." * size) for n in range(count)], 0)
    stamp(made, base, epoch)
    return made


def filled(directory: Path, batches: int = 10, *, epochs: int = 1) -> ReplicaLog:
    log = ReplicaLog(directory, TOPIC, segment_bytes_max=SEGMENT_BYTES)
    for number in range(batches):
        log.append([batch(2 * number, number * epochs // batches)])
    return log


def reopen(directory: Path) -> ReplicaLog:
    return ReplicaLog(directory, TOPIC, segment_bytes_max=SEGMENT_BYTES)


def offsets(log: ReplicaLog) -> list[int]:
    found: list[int] = []
    while (end := found[-1] + 1 if found else 0) < log.end_offset:
        for data in log.read(end, 1 << 20, log.end_offset):
            found += [record.offset for record in iter_records(data, read_header(data))]
    return found


def last_segment(directory: Path) -> Path:
    return max(directory.glob("*.log"))


def test_what_was_appended_is_read_across_segments_and_after_a_restart(tmp_path: Path) -> None:
    log = filled(tmp_path / "a-0", epochs=3)
    assert len(list((tmp_path / "a-0").glob("*.log"))) > 1
    assert offsets(log) == list(range(20))
    log.close()
    again = reopen(tmp_path / "a-0")
    assert (again.end_offset, again.torn_bytes) == (20, 0)
    assert again.state.epochs == ((0, 0), (1, 8), (2, 14))
    assert offsets(again) == list(range(20))
    assert read_topic_id(tmp_path / "a-0") == TOPIC


def test_a_read_ends_at_its_limits_and_yields_one_batch_at_least(tmp_path: Path) -> None:
    log = filled(tmp_path / "a-0")
    assert [read_header(d).base_offset for d in log.read(3, 1, 20)] == [2]
    assert [read_header(d).base_offset for d in log.read(0, 1 << 20, 4)] == [0, 2]
    assert log.read(4, 100, 4) == []


def test_truncation_cuts_across_segments_and_appends_go_on(tmp_path: Path) -> None:
    log = filled(tmp_path / "a-0", epochs=2)
    for end in (14, 6, 2):
        log.truncate(end)
        assert (log.end_offset, offsets(log)) == (end, list(range(end)))
    log.append([batch(2, 4)])
    log.close()
    again = reopen(tmp_path / "a-0")
    assert again.state.epochs == ((0, 0), (4, 2))
    assert again.end_offset == 4


def test_opening_flushes_and_a_kill_leaves_the_tail_beyond_the_recovery_point(
    tmp_path: Path,
) -> None:
    log = filled(tmp_path / "a-0", 2)
    assert read_recovery_point(tmp_path / "a-0") == 0
    log.flush_and_save()
    assert read_recovery_point(tmp_path / "a-0") == 4
    log.append([batch(4)])
    # What a process that was killed leaves is opened as it is.
    again = reopen(tmp_path / "a-0")
    assert (again.end_offset, read_recovery_point(tmp_path / "a-0")) == (6, 6)


@pytest.mark.parametrize("cut", [1, 30, 90, 120])
def test_a_torn_tail_is_cut_off_and_later_segments_with_it(tmp_path: Path, cut: int) -> None:
    log = filled(tmp_path / "a-0")
    first = min((tmp_path / "a-0").glob("*.log"))
    size = first.stat().st_size
    with first.open("r+b") as file:
        file.truncate(size - cut)
    again = reopen(tmp_path / "a-0")
    assert again.torn_bytes > 0
    assert again.end_offset < log.end_offset
    assert offsets(again) == list(range(again.end_offset))
    again.append([batch(again.end_offset, 7)])
    again.close()
    assert reopen(tmp_path / "a-0").end_offset == again.end_offset


def test_damage_before_the_recovery_point_is_refused_and_nothing_is_changed(
    tmp_path: Path,
) -> None:
    log = filled(tmp_path / "a-0")
    log.close()
    path = last_segment(tmp_path / "a-0")
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    with pytest.raises(LogError, match="damaged at byte 0"):
        reopen(tmp_path / "a-0")
    assert path.read_bytes() == data


def cut_between_batches(directory: Path) -> None:
    path = last_segment(directory)
    with path.open("r+b") as file:
        file.truncate(read_header(path.read_bytes()).size_bytes)


def empty_last_segment(directory: Path) -> None:
    last_segment(directory).write_bytes(b"")


def delete_last_segment(directory: Path) -> None:
    last_segment(directory).unlink()


def delete_first_segment(directory: Path) -> None:
    min(directory.glob("*.log")).unlink()


def delete_segments(directory: Path) -> None:
    for path in directory.glob("*.log"):
        path.unlink()


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (cut_between_batches, "its log ends at offset 20, but everything before offset 22 was"),
        (empty_last_segment, "its log ends at offset 18, but everything before offset 22 was"),
        (delete_last_segment, "its log ends at offset 18, but everything before offset 22 was"),
        (delete_first_segment, "its log begins at offset 6, but offset 0 is expected"),
        (delete_segments, "it has no log files, but everything before offset 22 was flushed"),
    ],
)
def test_a_log_that_lost_flushed_records_is_refused_and_nothing_is_changed(
    tmp_path: Path, damage: Callable[[Path], None], found: str
) -> None:
    directory = tmp_path / "a-0"
    filled(directory, 11).close()
    damage(directory)
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    for _ in range(2):
        with pytest.raises(LogError, match=found) as refused:
            reopen(directory)
        assert f"{directory} has lost records" in str(refused.value)
        assert "\n" not in str(refused.value)
        assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
    shutil.rmtree(directory)
    assert reopen(directory).end_offset == 0


def test_a_copied_directory_is_opened(tmp_path: Path) -> None:
    filled(tmp_path / "a-0").close()
    shutil.copytree(tmp_path / "a-0", tmp_path / "copy" / "a-0")
    assert offsets(reopen(tmp_path / "copy" / "a-0")) == list(range(20))


class Life:
    """Uses a log until its disk fails. flushed_end: the end that survives any crash."""

    def __init__(self) -> None:
        self.flushed_end = 0

    def live(self, directory: Path, disk: Disk) -> None:
        log = ReplicaLog(directory, TOPIC, segment_bytes_max=SEGMENT_BYTES, disk=disk)
        self._append(log, 8, epoch=1)
        self.flushed_end = log.flush_and_save()
        for end_offset in (8, 0):
            self.flushed_end = min(self.flushed_end, end_offset)
            log.truncate(end_offset)
            self._append(log, 4, epoch=2)
            self.flushed_end = log.flush()
            self._append(log, 2, epoch=2)
            self.flushed_end = log.flush_and_save()
        log.close()
        self.flushed_end = log.end_offset

    @staticmethod
    def _append(log: ReplicaLog, batches: int, epoch: int) -> None:
        for _ in range(batches):
            log.append([batch(log.end_offset, epoch)])


STEPS_MAX = 1_000


@pytest.mark.parametrize("kind", ["kill", "power"])
def test_no_crash_leaves_a_log_that_is_refused(tmp_path: Path, kind: str) -> None:
    """A crash at each step of the disk, and one at some step of the recovery from it."""
    for step in range(1, STEPS_MAX):
        random = Random(step)
        life, directory = Life(), tmp_path / str(step) / "a-0"
        directory.mkdir(parents=True)
        disk = FaultyDisk([directory])
        try:
            disk.fail_at(step, kind, random)
            life.live(directory, disk)
        except (OSError, LogError):
            assert disk.is_down
        else:
            break
        if kind == "power":
            crashed, directory = directory, tmp_path / f"{step}-left" / "a-0"
            disk.crash(random, directory)
            shutil.rmtree(crashed)
        disk.close()
        again = FaultyDisk([directory])
        try:
            again.fail_at(random.randint(1, 8), kind, random)
            ReplicaLog(directory, TOPIC, segment_bytes_max=SEGMENT_BYTES, disk=again)
        except (OSError, LogError):
            assert again.is_down
        if kind == "power" and again.is_down:
            crashed, directory = directory, tmp_path / f"{step}-again" / "a-0"
            again.crash(random, directory)
            shutil.rmtree(crashed)
        again.close()
        log = ReplicaLog(directory, TOPIC, segment_bytes_max=SEGMENT_BYTES, disk=QuickDisk())
        assert log.end_offset >= life.flushed_end, f"step {step}"
        assert offsets(log) == list(range(log.end_offset))
        log.close()
    else:
        raise AssertionError("the log's life has more steps")
    assert step > 50


class FullDisk(Disk):
    """Has room until `is_full`, and then for the first half of what is written."""

    is_full = False

    def write_all(self, descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
        if not self.is_full:
            return super().write_all(descriptor, buffers, position)
        half = memoryview(b"".join(buffers))
        super().write_all(descriptor, [half[: len(half) // 2]], position)
        raise OSError(errno.ENOSPC, "No space left on device")


def test_after_a_write_that_failed_nothing_more_is_said_of_the_log(tmp_path: Path) -> None:
    disk = FullDisk()
    log = ReplicaLog(tmp_path / "a-0", TOPIC, segment_bytes_max=1 << 20, disk=disk)
    log.append([batch(0), batch(2)])
    log.flush_and_save()
    disk.is_full = True
    with pytest.raises(DiskFullError):
        log.append([batch(4), batch(6)])
    log.close()
    assert read_recovery_point(tmp_path / "a-0") == 4
    again = reopen(tmp_path / "a-0")
    assert again.end_offset in (4, 6)
    assert offsets(again) == list(range(again.end_offset))


class FlushingDisk(Disk):
    """Flushes `log` in another thread before each write. ends: the flushed end and the first offset
    that is about to be written, for each write.
    """

    log: ReplicaLog | None = None

    def __init__(self) -> None:
        self.ends: list[tuple[int, int]] = []

    def write_all(self, descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
        if self.log is not None:
            with ThreadPoolExecutor(1) as executor:
                flushed_end = executor.submit(self.log.flush).result()
            self.ends.append((flushed_end, read_header(buffers[0]).base_offset))
        return super().write_all(descriptor, buffers, position)


def test_a_flush_during_an_append_does_not_cover_unwritten_records(tmp_path: Path) -> None:
    disk = FlushingDisk()
    log = ReplicaLog(tmp_path / "a-0", TOPIC, segment_bytes_max=SEGMENT_BYTES, disk=disk)
    disk.log = log
    log.append([batch(2 * number) for number in range(10)])
    assert len(disk.ends) > 1, "the append rolls"
    assert [flushed_end for flushed_end, _ in disk.ends] == [first for _, first in disk.ends]
    assert log.flush() == log.end_offset == 20


def test_a_directory_set_aside_replaces_no_earlier_one(tmp_path: Path) -> None:
    strays: list[Path] = []
    for batches in (1, 2, 3):
        filled(tmp_path / "a-0", batches).close()
        strays.append(set_aside(tmp_path / "a-0"))
    assert all(stray.name.endswith(STRAY_SUFFIX) for stray in strays)
    assert [reopen(stray).end_offset for stray in strays] == [2, 4, 6]


LONG_NAMES = ["t" * 248 + last for last in "ab"]


class StoppingDisk(Disk):
    """Stops a deletion after the rename."""

    def sync_directory(self, directory: Path) -> None:
        raise OSError(errno.EIO, "killed here")


def test_directories_of_the_longest_names_are_deleted(tmp_path: Path) -> None:
    for name in LONG_NAMES:
        filled(tmp_path / f"{name}-99999").delete()
        assert list(tmp_path.iterdir()) == []


def test_deletions_of_names_that_are_shortened_alike_do_not_collide(tmp_path: Path) -> None:
    for name in LONG_NAMES:
        directory = tmp_path / f"{name}-0"
        ReplicaLog(directory, random_uuid()).close()
        with pytest.raises(OSError, match="killed here"):
            delete_directory(directory, StoppingDisk())
    renamed = {path.name for path in tmp_path.iterdir()}
    assert len(renamed) == len(LONG_NAMES)
    assert all(name.endswith(DELETED_SUFFIX) and "-0." in name for name in renamed)


def test_directories_of_the_longest_names_are_set_aside_and_kept(tmp_path: Path) -> None:
    topics = [(name, random_uuid()) for name in LONG_NAMES]
    strays: dict[Path, str] = {}
    for name, topic_id in topics * 3:
        ReplicaLog(tmp_path / f"{name}-10", topic_id).close()
        strays[set_aside(tmp_path / f"{name}-10")] = topic_id
    assert set(tmp_path.iterdir()) == set(strays)
    assert len(strays) == 3 * len(topics)
    for stray, topic_id in strays.items():
        assert stray.name.startswith("ttt")
        assert f"-10.{topic_id}" in stray.name
        assert stray.name.endswith(STRAY_SUFFIX)
        assert read_topic_id(stray) == topic_id


def test_a_directory_of_another_topic_is_refused(tmp_path: Path) -> None:
    filled(tmp_path / "a-0").close()
    with pytest.raises(LogError, match="belongs to topic"):
        ReplicaLog(tmp_path / "a-0", random_uuid())


def test_checkpoints_of_high_watermarks_and_of_a_clean_stop(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    for root in (first, second):
        root.mkdir()
    write_high_watermarks((first, second), {first: [("a", 0, 7), ("b.c", 12, 0)]})
    assert read_high_watermarks((first, second)) == {("a", 0): 7, ("b.c", 12): 0}
    assert take_clean_shutdown((first, second)) == -1
    write_clean_shutdown((first, second), 41)
    assert take_clean_shutdown((first, second)) == 41
    assert take_clean_shutdown((first, second)) == -1, "the note is good for one start"
    write_clean_shutdown((first,), 42)
    assert take_clean_shutdown((first, second)) == -1, "one directory says nothing of the other"


# --- producers ------------------------------------------------------------------------------------


def produced(sequence: int, count: int = 2, epoch: int = 0) -> bytearray:
    identity = ProducerIdentity(ErrorCode.NONE, 9, epoch)
    made = build_data_batch([(None, b"v")] * count, 0)
    return sequenced(made, identity, sequence)


def test_a_sequenced_batch_is_whole() -> None:
    made = produced(7)
    header = read_header(made)
    assert verify_crc(made, 0, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 0, 7)


def test_repetitions_are_known_and_gaps_are_refused() -> None:
    table = ProducerTable()
    for number in range(7):
        header = read_header(produced(2 * number))
        assert table.check(header) is ErrorCode.NONE
        table.note(header, 100 + 2 * number)
    assert table.check(read_header(produced(12))) == Repetition(112, 113)
    assert table.check(read_header(produced(4))) == Repetition(104, 105)
    gone = table.check(read_header(produced(2)))
    assert gone is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert table.check(read_header(produced(15))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert table.check(read_header(produced(14))) is ErrorCode.NONE
    assert table.check(read_header(produced(0, epoch=1))) is ErrorCode.NONE
    assert table.check(read_header(produced(3, epoch=1))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    table.note(read_header(produced(0, epoch=1)), 200)
    assert table.check(read_header(produced(14))) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_the_log_remembers_producers_over_restarts_and_truncations(tmp_path: Path) -> None:
    log = ReplicaLog(tmp_path / "a-0", TOPIC, segment_bytes_max=300)
    for number in range(8):
        made = produced(2 * number)
        stamp(made, 2 * number, 0)
        log.append([made])
    assert log.producers.check(read_header(produced(14))) == Repetition(14, 15)
    log.truncate(10)
    assert log.producers.check(read_header(produced(8))) == Repetition(8, 9)
    assert log.producers.check(read_header(produced(10))) is ErrorCode.NONE
    log.close()
    again = ReplicaLog(tmp_path / "a-0", TOPIC, segment_bytes_max=300)
    assert again.producers.check(read_header(produced(8))) == Repetition(8, 9)
    assert again.producers.check(read_header(produced(10))) is ErrorCode.NONE
