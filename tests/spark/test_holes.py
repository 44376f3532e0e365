"""Logs with holes, repetitions and swaps: readers raise an error that says where. No Spark session.

The log has three segments of ten batches with four records each.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from quorate.log.disk import Disk
from quorate.log.meta_properties import MetaProperties
from quorate.log.metadata_log import create_partition_directory
from quorate.log.snapshots import SnapshotStore
from quorate.raft.types import OffsetAndEpoch
from quorate.records.batch import build_data_batch, read_header, stamp
from quorate.records.compaction import with_survivors
from quorate.records.metadata import ConfigRecord, encode
from quorate.spark.errors import (
    CompactedError,
    DamagedError,
    DataLossError,
    FileGoneError,
    explain,
    is_file_gone,
)
from quorate.spark.options import SourceOptions
from quorate.spark.source.data_source import QuorateReader, QuorateStreamReader

from tests.spark.make_log import CLUSTER

RECORDS, BATCHES, SEGMENTS = 4, 10, 3
PER_SEGMENT = RECORDS * BATCHES
END = PER_SEGMENT * SEGMENTS
FIRST, MIDDLE, ACTIVE = (PER_SEGMENT * number for number in range(SEGMENTS))


def batch(base: int) -> bytearray:
    records = [ConfigRecord(2, "orders", "retention.ms", str(base + n)) for n in range(RECORDS)]
    found = build_data_batch([(None, encode(record)) for record in records], 1_795_231_990_458)
    stamp(found, base, 3)
    return found


class Log:
    """A node's directory, whose segments are lists of batches until `write`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.partition = create_partition_directory(directory)
        MetaProperties(CLUSTER, 1, "AQEBAQEBAQEBAQEBAQEBAQ").write(directory)
        self.segments = {
            start: [batch(start + n * RECORDS) for n in range(BATCHES)]
            for start in (FIRST, MIDDLE, ACTIVE)
        }
        self.write()

    def path(self, start: int) -> Path:
        return self.partition / f"{start:020}.log"

    def write(self) -> None:
        for path in self.partition.glob("*.log"):
            path.unlink()
        for start, batches in self.segments.items():
            self.path(start).write_bytes(b"".join(batches))

    def read(self, **options: str) -> list[int]:
        """The offsets in the ledger, in the order of the files."""
        given = {"path": str(self.directory), "pieceBytes": "300", **options}
        reader = QuorateReader(SourceOptions.of(given))
        found: list[int] = []
        for part in reader.partitions():
            for rows in reader.read(part):
                found += rows.column("offset").to_pylist()
        return found

    def place(self, start: int, number: int) -> int:
        """The byte at which a batch of a segment begins."""
        return sum(map(len, self.segments[start][:number]))


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "node")


Fault = tuple[int, int, str]
"""The segment and byte position of the error, and a part of its text."""


def no_middle_segment(log: Log) -> Fault:
    size = log.path(FIRST).stat().st_size
    del log.segments[MIDDLE]
    log.write()
    return FIRST, size, f"offsets {MIDDLE} to {ACTIVE - 1} are missing"


def cut_middle_segment(log: Log) -> Fault:
    del log.segments[MIDDLE][7:]
    log.write()
    text = f"offsets {MIDDLE + 28} to {ACTIVE - 1} are missing"
    return MIDDLE, log.path(MIDDLE).stat().st_size, text


def no_first_batch(log: Log) -> Fault:
    del log.segments[MIDDLE][0]
    log.write()
    return MIDDLE, 0, f"offsets {MIDDLE} to {MIDDLE + 3} are missing"


def no_inner_batch(log: Log) -> Fault:
    del log.segments[ACTIVE][4]
    log.write()
    return ACTIVE, log.place(ACTIVE, 4), f"offsets {ACTIVE + 16} to {ACTIVE + 19} are missing"


def stale_segment(log: Log) -> Fault:
    log.segments[MIDDLE + 20] = log.segments[MIDDLE][5:]
    log.segments = dict(sorted(log.segments.items()))
    log.write()
    text = f"offsets {MIDDLE + 20} to {ACTIVE - 1} occur here and again later"
    return MIDDLE, log.path(MIDDLE).stat().st_size, text


def batch_twice(log: Log) -> Fault:
    log.segments[MIDDLE].insert(4, log.segments[MIDDLE][3])
    log.write()
    text = f"offset {MIDDLE + 12} follows offset {MIDDLE + 15}"
    return MIDDLE, log.place(MIDDLE, 4), text


def swapped_batches(log: Log) -> Fault:
    batches = log.segments[MIDDLE]
    batches[3], batches[4] = batches[4], batches[3]
    log.write()
    text = f"offsets {MIDDLE + 12} to {MIDDLE + 15} are missing"
    return MIDDLE, log.place(MIDDLE, 3), text


def no_inner_record(log: Log) -> Fault:
    batches = log.segments[ACTIVE]
    kept = with_survivors(batches[2], read_header(batches[2]), lambda r: r.offset % RECORDS != 1)
    assert kept is not None
    batches[2] = kept
    log.write()
    text = f"the batch of offsets {ACTIVE + 8} to {ACTIVE + 11} has 3 records"
    return ACTIVE, log.place(ACTIVE, 2), text


LOSSES: list[Callable[[Log], Fault]] = [
    no_middle_segment,
    cut_middle_segment,
    no_first_batch,
    no_inner_batch,
    stale_segment,
    batch_twice,
    swapped_batches,
    no_inner_record,
]


@pytest.mark.parametrize("plant", LOSSES)
@pytest.mark.parametrize("piece_bytes", ["1", "1000000"])
def test_lost_and_repeated_offsets_are_errors(
    log: Log, plant: Callable[[Log], Fault], piece_bytes: str
) -> None:
    segment, position, text = plant(log)
    with pytest.raises(DataLossError) as raised:
        log.read(pieceBytes=piece_bytes)
    if piece_bytes == "1":  # the batch before may then be the one that is not followed
        assert re.search(r"at byte \d+: .*offset", raised.value.reason)
        return
    assert raised.value.reason.startswith(f"{log.path(segment)} at byte {position}: {text}. ")


@pytest.mark.parametrize("plant", LOSSES)
def test_without_fail_on_data_loss_readers_return_what_is_there(
    log: Log, plant: Callable[[Log], Fault]
) -> None:
    plant(log)
    there = [
        (header.base_offset, header.count)
        for batches in log.segments.values()
        for header in map(read_header, batches)
    ]
    found = log.read(failOnDataLoss="false")
    assert len(found) == sum(count for _, count in there)
    assert {base for base, _ in there} <= set(found)


@pytest.mark.parametrize("plant", LOSSES)
def test_a_fault_outside_of_the_requested_offsets_is_none(
    log: Log, plant: Callable[[Log], Fault]
) -> None:
    plant(log)
    assert log.read(endOffset=str(MIDDLE)) == list(range(MIDDLE))
    assert log.read(startOffset=str(ACTIVE + 20)) == list(range(ACTIVE + 20, END))
    assert log.read(startOffset="6", endOffset="13") == list(range(6, 13))


def test_offsets_in_disorder_are_errors_in_any_range(log: Log) -> None:
    batches = log.segments[MIDDLE]
    batches[2:7] = [batches[6], batches[2], batches[3], batches[4], batches[5]]
    log.write()
    for start in range(MIDDLE, MIDDLE + 27, 3):
        for end in range(start + 1, MIDDLE + 28, 5):
            for piece_bytes in ("1", "500"):
                given = {"startOffset": str(start), "endOffset": str(end)}
                try:
                    found = log.read(**given, pieceBytes=piece_bytes)
                except DataLossError:
                    continue
                assert found == list(range(start, end))


def zeroed(log: Log, start: int, position: int) -> None:
    path = log.path(start)
    data = path.read_bytes()
    path.write_bytes(data[:position] + bytes(len(data) - position))


def test_zeros_are_the_end_of_the_active_segment_only(log: Log) -> None:
    zeroed(log, ACTIVE, log.place(ACTIVE, 6))
    assert log.read() == list(range(ACTIVE + 24))
    zeroed(log, MIDDLE, position := log.place(MIDDLE, 6))
    wanted = re.escape(f"{log.path(MIDDLE)} is damaged at byte {position}, where offset 64 is")
    with pytest.raises(DamagedError, match=wanted):
        log.read()
    assert log.read(failOnDataLoss="false") == [*range(64), *range(ACTIVE, ACTIVE + 24)]


def test_what_a_running_node_writes_during_a_read_is_no_damage(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The active segment is preallocated; the node fills it after the reader has seen zeros."""
    path, position = log.path(ACTIVE), log.place(ACTIVE, 6)
    whole = path.read_bytes()
    zeroed(log, ACTIVE, position)
    reader = QuorateReader(SourceOptions.of({"path": str(log.directory)}))
    part = list(reader.partitions())[-1]
    preadv = os.preadv

    def read_then_write(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        count = preadv(descriptor, buffers, offset)
        with path.open("r+b") as file:
            file.write(whole)
        return count

    monkeypatch.setattr(os, "preadv", read_then_write)
    found = [o for rows in reader.read(part) for o in rows.column("offset").to_pylist()]
    assert found == list(range(ACTIVE, END))


def test_zeros_after_a_complete_segment_are_damage(log: Log) -> None:
    size = log.path(MIDDLE).stat().st_size
    log.path(MIDDLE).write_bytes(log.path(MIDDLE).read_bytes() + bytes(100))
    with pytest.raises(DamagedError, match=f"is damaged at byte {size}, where offset {ACTIVE} is"):
        log.read()


def test_a_torn_batch_ends_the_active_segment_only(log: Log) -> None:
    for start in (ACTIVE, MIDDLE):
        path = log.path(start)
        path.write_bytes(path.read_bytes()[:-9])
        if start == ACTIVE:
            assert log.read() == list(range(END - RECORDS))
    with pytest.raises(DamagedError, match=f"byte {log.place(MIDDLE, 9)}, where offset 76 is"):
        log.read()


def test_a_wrong_length_does_not_hide_the_rest_of_the_log(log: Log) -> None:
    position = log.place(ACTIVE, 3)
    data = bytearray(log.path(ACTIVE).read_bytes())
    data[position + 8] = 0x40
    log.path(ACTIVE).write_bytes(data)
    follows = f"a whole batch follows at byte {log.place(ACTIVE, 4)}"
    with pytest.raises(DamagedError, match=f"is damaged at byte {position}, .*{follows}"):
        log.read()


def test_a_log_whose_start_moved(log: Log) -> None:
    del log.segments[FIRST]
    log.write()
    assert log.read() == list(range(MIDDLE, END))
    with pytest.raises(CompactedError, match=f"the log begins at {MIDDLE}"):
        log.read(startOffset="7")
    assert log.read(startOffset="7", failOnDataLoss="false") == list(range(MIDDLE, END))


def test_a_checkpoint_must_be_whole(log: Log) -> None:
    store = SnapshotStore(log.partition, Disk())
    snapshot = OffsetAndEpoch(MIDDLE, 3)
    store.write(snapshot, 0, None, 5, [batch(0), batch(RECORDS), batch(2 * RECORDS)])
    whole = store.path(snapshot).read_bytes()
    for path in (log.path(FIRST), log.path(MIDDLE), log.path(ACTIVE)):
        path.unlink()
    assert log.read(snapshots="all") == list(range(3 * RECORDS + 2))
    begin = read_header(whole).size_bytes
    first, second = begin + len(batch(0)), begin + len(batch(0)) + len(batch(RECORDS))
    third = second + len(batch(2 * RECORDS))
    for data, text in (
        (whole[:third], "without its footer"),
        (whole[:first] + whole[second:], "offsets 5 to 8 are missing"),
    ):
        store.path(snapshot).write_bytes(data)
        with pytest.raises(DataLossError, match=text):
            log.read(snapshots="all")


def test_a_stream_reads_all_offsets_that_it_announced(log: Log) -> None:
    stream = QuorateStreamReader(SourceOptions.of({"path": str(log.directory)}))
    end = stream.latestOffset()
    assert end == {"offset": END}
    del log.segments[ACTIVE][8:]
    log.write()
    (part,) = stream.partitions({"offset": ACTIVE}, end)
    with pytest.raises(DataLossError, match=f"offsets {END - 8} to {END - 1} are missing"):
        list(stream.read(part))


def test_a_file_that_goes_between_plan_and_read(log: Log) -> None:
    reader = QuorateReader(SourceOptions.of({"path": str(log.directory)}))
    parts = reader.partitions()
    log.path(FIRST).unlink()
    with pytest.raises(FileGoneError, match="its node is running"):
        list(reader.read(parts[0]))


def test_a_file_that_goes_is_recognized_in_the_words_of_spark() -> None:
    text = "Task failed\nquorate.spark.errors.FileGoneError: quorate: x.log was deleted\n  at java"
    assert explain(RuntimeError(text)) == "x.log was deleted"
    assert is_file_gone(RuntimeError(text))
    assert is_file_gone(FileGoneError("x.log was deleted"))
    for other in (DamagedError("x"), RuntimeError("x"), RuntimeError(text.replace("Gone", ""))):
        assert not is_file_gone(other)
    unreachable = "quorate.spark.errors.QuorumUnreachableError: quorate: nobody answers"
    assert explain(RuntimeError(unreachable)) == "nobody answers"
