"""Checksums of ranges of the log: equal for equal bytes, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest
from quorate.log.checksums import DamagedBatchError, RangeChecksum, checksum_range
from quorate.log.errors import OffsetOutOfRangeError
from quorate.raft.types import OffsetAndEpoch

from tests.logs.cleaning import clean
from tests.unit.log.log_support import ONE, SMALL, OpenLog, data, fill, segment_files

ALL = 1 << 20


def _written(directory: Path, *batches: bytes) -> OpenLog:
    directory.mkdir()
    opened = OpenLog(directory)
    opened.append(*batches)
    return opened


def _checksum(opened: OpenLog, start: int = 0, bytes_max: int = ALL) -> RangeChecksum:
    return checksum_range(opened.log, start, opened.log.end_offset, bytes_max)


def test_replicas_with_the_same_batches_have_the_same_checksum(tmp_path: Path) -> None:
    batches = [data(0), data(1, count=3), data(4, epoch=2)]
    one, two = _written(tmp_path / "one", *batches), _written(tmp_path / "two", *batches)
    found = _checksum(one)
    assert found == _checksum(two)
    assert (found.size, found.end_offset) == (sum(map(len, batches)), 5)
    one.close()
    two.close()


@pytest.mark.parametrize(
    "other",
    [
        pytest.param([data(0), data(1, size=21)], id="another value"),
        pytest.param([data(0), data(1, epoch=2)], id="another epoch in the header"),
        pytest.param([data(0, count=2)], id="other batch boundaries"),
    ],
)
def test_replicas_that_differ_have_different_checksums(tmp_path: Path, other: list[bytes]) -> None:
    one = _written(tmp_path / "one", data(0), data(1))
    two = _written(tmp_path / "two", *other)
    assert _checksum(one) != _checksum(two)
    one.close()
    two.close()


def test_ranges_go_on_where_the_last_one_ended_over_all_segments(tmp_path: Path) -> None:
    opened = OpenLog(tmp_path, SMALL)
    fill(opened, 40)
    assert len(segment_files(tmp_path)) > 3
    position, sizes = 0, []
    while position < 40:
        found = _checksum(opened, position, len(data(0)) * 3)
        sizes.append(found.size)
        position = found.end_offset
    assert sum(sizes) == opened.log.size_bytes
    assert len(sizes) == 14
    opened.close()


def test_a_range_ends_before_the_batch_that_would_exceed_it(tmp_path: Path) -> None:
    opened = _written(tmp_path / "log", data(0), data(1, count=5))
    found = checksum_range(opened.log, 0, 3, ALL)
    assert (found.size, found.end_offset) == (len(data(0)), 1)
    opened.close()


def test_a_batch_that_changed_on_disk_is_found(tmp_path: Path) -> None:
    opened = _written(tmp_path / "log", data(0), data(1), data(2))
    with segment_files(tmp_path / "log")[0].open("r+b") as file:
        file.seek(len(data(0)) + 70)
        file.write(b"\xff")
    with pytest.raises(DamagedBatchError, match="offsets 1 to 1 does not match") as raised:
        _checksum(opened)
    assert raised.value.next_offset == 2
    assert _checksum(opened, 2).end_offset == 3
    opened.close()


def test_a_range_that_was_deleted_is_refused(tmp_path: Path) -> None:
    opened = OpenLog(tmp_path, SMALL)
    fill(opened, 40)
    opened.log.write_snapshot(OffsetAndEpoch(30, 1), 1, ONE, 1000, ())
    opened.log.config = type(SMALL)(retention_bytes=0)
    assert clean(opened.log, 0) == 30
    with pytest.raises(OffsetOutOfRangeError, match="begins after offset 0"):
        _checksum(opened)
    opened.close()


def test_a_range_starts_inside_of_a_batch_only_where_batches_differ(tmp_path: Path) -> None:
    """Then the bytes of the whole batch are taken, and the sizes differ."""
    opened = _written(tmp_path / "log", data(0, count=3))
    assert _checksum(opened, 1).size == len(data(0, count=3))
    opened.close()
