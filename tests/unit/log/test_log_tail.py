"""What follows the last sound batch: torn tails are dropped, lost sectors are remembered."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from quorate.log.config import LogConfig
from quorate.log.disk import Disk
from quorate.log.errors import DamagedLogError, RequiredEndError
from quorate.log.metadata_log import PARTITION_METADATA, PARTITION_METADATA_FILE
from quorate.log.offset_files import write_recovery_point
from quorate.log.recovery import log_recovery
from quorate.log.required_end import RequiredEndFile
from quorate.log.segments import parse_offset_name
from quorate.log.tail import SECTOR_BYTES
from quorate.raft.batches import ControlRecord, KRaftVersion, LeaderChange, VotersRecord
from quorate.raft.types import OffsetAndEpoch, ReplicaKey, RequiredEnd
from quorate.records.batch import build_data_batch, stamp

from tests.unit.log.log_support import (
    ONE,
    PARTITION,
    OpenLog,
    QuickDisk,
    contents,
    control,
    data,
)

WHOLE = LogConfig(tail_cache_bytes=0, preallocate_bytes=0)
CHANGE = LeaderChange(1, (ReplicaKey(1),), (ReplicaKey(1),))


def write(directory: Path, batches: list[bytes], room: int = 20_000) -> Path:
    """A segment as a power failure leaves it: no recovery point."""
    partition = directory / PARTITION
    partition.mkdir(parents=True, exist_ok=True)
    (partition / PARTITION_METADATA_FILE).write_bytes(PARTITION_METADATA)
    file = partition / "00000000000000000000.log"
    file.write_bytes(b"".join(batches) + bytes(room))
    return file


def sized(base: int, size_bytes: int, value: bytes = b"v", last: bytes = b"") -> bytes:
    """A batch of exactly this size, whose record's value ends in `last`."""
    size = size_bytes - 80
    while True:
        content = (value * size)[: size - len(last)] + last
        batch = build_data_batch([(None, content)], 1000)
        if len(batch) == size_bytes:
            stamp(batch, base, 1)
            return bytes(batch)
        assert len(batch) < size_bytes, f"no batch has {size_bytes} bytes"
        size += 1


def zero(file: Path, start: int, end: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(start)
        opened.write(bytes(end - start))


def lose_sector(file: Path, number: int) -> None:
    zero(file, number * SECTOR_BYTES, (number + 1) * SECTOR_BYTES)


def ends(batches: list[bytes]) -> list[int]:
    found = [0]
    for batch in batches:
        found.append(found[-1] + len(batch))
    return found


def tree(directory: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}


def refuse(directory: Path) -> DamagedLogError:
    before = tree(directory)
    with pytest.raises(DamagedLogError) as caught:
        OpenLog(directory, WHOLE)
    assert tree(directory) == before
    return caught.value


def required(directory: Path) -> RequiredEnd | None:
    return RequiredEndFile(directory / PARTITION).read()


@pytest.mark.slow
def test_any_lost_sectors_of_the_last_write_are_a_torn_tail(tmp_path: Path) -> None:
    """One batch of many sectors, every place it can begin at within one."""
    for before in range(SECTOR_BYTES, 2 * SECTOR_BYTES, 3):
        batches = [sized(0, before), data(1, size=2000)]
        start, end = ends(batches)[1:]
        sectors = range(start // SECTOR_BYTES, (end - 1) // SECTOR_BYTES + 1)
        for lost in (sectors[0], sectors[1], sectors[-1]):
            folder = tmp_path / f"{before}-{lost}"
            file = write(folder, batches)
            zero(file, max(start, lost * SECTOR_BYTES), (lost + 1) * SECTOR_BYTES)
            if file.read_bytes()[:end] == b"".join(batches):
                continue  # the sector held a few zero bytes of it
            opened = OpenLog(folder, WHOLE, QuickDisk())
            assert contents(opened.log) == batches[:1]
            assert opened.log.recovered.truncated_bytes > 0
            # One that lost little but its offset is whole, so it may have been acknowledged.
            dropped_end = opened.log.recovered.dropped_end
            if lost != sectors[0] or -start % SECTOR_BYTES >= 12:
                assert dropped_end is None
            else:
                assert dropped_end in (None, OffsetAndEpoch(2, 1))
            assert (required(folder) is None) == (dropped_end is None)
            opened.close()


@pytest.mark.parametrize("room", range(1, 14))
@pytest.mark.parametrize("size", [150, 350, 500, 900, 2500])
def test_a_lost_beginning_is_a_torn_tail(tmp_path: Path, room: int, size: int) -> None:
    """Of a write of which all but its first sector reached the disk."""
    batches = [sized(0, 2 * SECTOR_BYTES - room), sized(1, size)]
    file = write(tmp_path, batches)
    start = len(batches[0])
    zero(file, start, start + room)
    opened = OpenLog(tmp_path, WHOLE, QuickDisk())
    # As many bytes of its offset were zero before.
    is_whole = room < 8
    assert contents(opened.log) == (batches if is_whole else batches[:1])
    opened.close()


def test_a_lost_header_is_a_torn_tail(tmp_path: Path) -> None:
    """The header straddles two sectors, and either was lost alone, or all but the first."""
    for inside in range(1, 61):
        batches = [sized(0, 2 * SECTOR_BYTES - inside), data(1, size=1000)]
        start, end = ends(batches)[1:]
        boundary = start + inside
        for name, (begin, stop) in {
            "first": (start, boundary),
            "second": (boundary, boundary + SECTOR_BYTES),
            "rest": (boundary, end),
        }.items():
            folder = tmp_path / f"{inside}-{name}"
            file = write(folder, batches)
            zero(file, begin, stop)
            if file.read_bytes()[:end] == b"".join(batches):
                continue  # the high bytes of the offset are zero
            opened = OpenLog(folder, WHOLE, QuickDisk())
            assert contents(opened.log) == batches[:1]
            opened.close()


def test_a_sector_that_only_the_next_batch_keeps_from_being_zero(tmp_path: Path) -> None:
    """A batch begins with zero bytes of its offset, and so does what is left of a lost sector."""
    for inside in range(8):
        batches = [data(0, size=400), b"", data(2, size=700)]
        middle = 4 * SECTOR_BYTES - inside
        batches[1] = sized(1, middle - len(batches[0]))
        folder = tmp_path / str(inside)
        file = write(folder, batches)
        # The next batch needs nothing of this sector.
        zero(file, 3 * SECTOR_BYTES, 4 * SECTOR_BYTES)
        opened = OpenLog(folder, WHOLE)
        assert contents(opened.log) == batches[:1]
        assert required(folder) == RequiredEnd(OffsetAndEpoch(3, 1))
        opened.close()


@pytest.mark.parametrize("trailing", [1, 2, 3])
def test_a_batch_that_ends_in_zero_bytes_is_not_taken_for_torn(
    tmp_path: Path, trailing: int
) -> None:
    """Its last bytes lie alone in a sector, and are zero as written: a flipped bit is damage."""
    batches = [sized(0, SECTOR_BYTES), b""]
    batches[1] = sized(1, SECTOR_BYTES + trailing, last=bytes(trailing - 1))
    file = write(tmp_path, batches)
    content = bytearray(file.read_bytes())
    assert not any(content[2 * SECTOR_BYTES :])
    content[2 * SECTOR_BYTES - 9] ^= 1
    file.write_bytes(content)
    refuse(tmp_path)


@pytest.mark.parametrize("lost", [2, 3])
def test_few_lost_bytes_are_a_torn_tail(tmp_path: Path, lost: int) -> None:
    batches = [sized(0, SECTOR_BYTES), sized(1, SECTOR_BYTES + lost)]
    file = write(tmp_path, batches)
    lose_sector(file, 2)
    opened = OpenLog(tmp_path, WHOLE)
    assert contents(opened.log) == batches[:1]
    opened.close()


def test_lost_sectors_before_sound_batches_require_their_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    batches = [data(i, epoch=1 + i // 4, size=900) for i in range(8)]
    file = write(tmp_path, batches)
    lose_sector(file, ends(batches)[2] // SECTOR_BYTES + 1)
    lose_sector(file, ends(batches)[5] // SECTOR_BYTES + 1)
    opened = OpenLog(tmp_path, WHOLE)
    recovered = opened.log.recovered
    assert contents(opened.log) == batches[:2]
    assert recovered.dropped_end == OffsetAndEpoch(8, 2)
    assert recovered.required_end == required(tmp_path) == RequiredEnd(OffsetAndEpoch(8, 2))
    with caplog.at_level(logging.INFO):
        log_recovery(recovered)
    assert "whole batches up to epoch 2, offset 8" in caplog.text
    assert "never acknowledged" not in caplog.text
    opened.close()
    # It stays until the protocol removes it, and a later loss does not lower it.
    file.write_bytes(b"".join([*batches[:2], data(2, size=700), data(3, size=100)]))
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    lose_sector(file, ends(batches)[2] // SECTOR_BYTES + 1)
    opened = OpenLog(tmp_path, WHOLE)
    assert opened.log.recovered.dropped_end == OffsetAndEpoch(4, 1)
    assert opened.log.recovered.required_end == RequiredEnd(OffsetAndEpoch(8, 2))
    opened.close()
    assert required(tmp_path) == RequiredEnd(OffsetAndEpoch(8, 2))


def test_a_torn_tail_requires_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    batches = [data(0), data(1, size=3000)]
    file = write(tmp_path, batches)
    zero(file, 2048, 20_000)
    opened = OpenLog(tmp_path, WHOLE)
    with caplog.at_level(logging.INFO):
        log_recovery(opened.log.recovered)
    opened.close()
    lost = 2048 - len(batches[0])
    assert f"dropped {lost} bytes of an unfinished write behind offset 1" in caplog.text
    assert required(tmp_path) is None


class StoppedError(Exception):
    """The process ends here."""


class StopsAtTruncation(Disk):
    def truncate(self, descriptor: int, size: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if parse_offset_name(path.stem) is not None:
            raise StoppedError
        super().truncate(descriptor, size)


def test_the_required_end_is_stored_before_anything_is_dropped(tmp_path: Path) -> None:
    batches = [data(i, size=900) for i in range(6)]
    file = write(tmp_path, batches)
    lose_sector(file, 4)
    with pytest.raises(StoppedError):
        OpenLog(tmp_path, WHOLE, StopsAtTruncation())
    assert file.stat().st_size > ends(batches)[6]
    assert required(tmp_path) == RequiredEnd(OffsetAndEpoch(6, 1))


@pytest.mark.parametrize(
    ("records", "may_stand"),
    [((CHANGE,), True), ((VotersRecord(ONE),), False), ((CHANGE, KRaftVersion(1)), False)],
)
def test_a_replica_that_may_have_lost_a_voter_set_does_not_stand(
    tmp_path: Path, records: tuple[ControlRecord, ...], may_stand: bool
) -> None:
    batches = [data(0, size=900), data(1, size=1900), control(2, 1, *records)]
    file = write(tmp_path, batches)
    lose_sector(file, ends(batches)[1] // SECTOR_BYTES + 2)
    OpenLog(tmp_path, WHOLE).close()
    found = required(tmp_path)
    assert found is not None
    assert found.may_stand is may_stand


@pytest.mark.parametrize(
    ("lost", "may_stand"),
    [("the middle", True), ("the header", False), ("of a control batch", False)],
)
def test_what_is_lost_may_be_a_voter_set_unless_its_header_says_data(
    tmp_path: Path, lost: str, may_stand: bool
) -> None:
    large = sized(1, 3000)
    if lost == "of a control batch":
        marked = bytearray(large)
        marked[22] |= 0x20
        large = bytes(marked)
    batches = [sized(0, SECTOR_BYTES), large, data(2, size=40)]
    file = write(tmp_path, batches)
    lose_sector(file, 1 if lost == "the header" else 3)
    OpenLog(tmp_path, WHOLE).close()
    assert required(tmp_path) == RequiredEnd(OffsetAndEpoch(3, 1), may_stand)


def test_damage_among_what_would_be_dropped_is_damage(tmp_path: Path) -> None:
    batches = [data(i, size=900) for i in range(8)]
    file = write(tmp_path, batches)
    lose_sector(file, ends(batches)[2] // SECTOR_BYTES + 1)
    content = bytearray(file.read_bytes())
    content[ends(batches)[6] + 300] ^= 4
    file.write_bytes(content)
    assert refuse(tmp_path).expected_offset == 6


@pytest.mark.parametrize("misplaced", [data(3, size=900), data(4, epoch=0, size=900)])
def test_a_misplaced_batch_among_what_would_be_dropped_is_damage(
    tmp_path: Path, misplaced: bytes
) -> None:
    batches = [data(i, size=900) for i in range(4)]
    file = write(tmp_path, [*batches, misplaced])
    lose_sector(file, ends(batches)[2] // SECTOR_BYTES + 1)
    assert refuse(tmp_path).start == ends(batches)[4]


def test_lost_sectors_below_the_recovery_point_are_damage(tmp_path: Path) -> None:
    batches = [data(i, size=900) for i in range(4)]
    file = write(tmp_path, batches)
    write_recovery_point(Disk(), tmp_path, 4)
    lose_sector(file, ends(batches)[2] // SECTOR_BYTES + 1)
    assert refuse(tmp_path).expected_offset == 2


def test_a_required_end_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    write(tmp_path, [data(0)])
    (tmp_path / PARTITION / "required-end").write_bytes(b"\0" * 60)
    before = tree(tmp_path)
    with pytest.raises(RequiredEndError, match="Do not delete the file"):
        OpenLog(tmp_path, WHOLE)
    assert tree(tmp_path) == before


def test_a_batch_behind_a_gap_that_lost_its_offset_is_bounded(tmp_path: Path) -> None:
    """Its offset reads as 0 and no checksum covers it; the next batch lost its end."""
    before = data(0, size=20)
    start = 3 * SECTOR_BYTES - 8
    batches = [before, sized(1, start - len(before)), data(2, size=300), data(3, size=1200)]
    file = write(tmp_path, batches)
    zero(file, start + 8 - SECTOR_BYTES, start + 8)
    zero(file, ends(batches)[-1] - SECTOR_BYTES, ends(batches)[-1])
    opened = OpenLog(tmp_path, WHOLE, QuickDisk())
    assert contents(opened.log) == [before]
    dropped_end = opened.log.recovered.dropped_end
    assert dropped_end is not None
    assert dropped_end.offset >= 3
    opened.close()
