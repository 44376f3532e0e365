"""Batches without some of their records: what stays is where it was, and nothing else changes."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from quorate.common.batch_layout import CRC_START, HEADER_SIZE
from quorate.records.batch import (
    BatchHeader,
    StoredRecord,
    build_data_batch,
    has_keys,
    iter_records,
    keep_base_offset,
    read_header,
    snapshot_records,
    stamp,
    verify_crc,
)
from quorate.records.compaction import with_survivors
from quorate.records.errors import CorruptBatchError

FIELD = st.none() | st.binary(max_size=200)
PAIRS = st.lists(st.tuples(FIELD, FIELD), min_size=1, max_size=20)
COUNT_AT = 57
LENGTH_AT = 8


def all_records(batch: bytes | bytearray) -> list[StoredRecord]:
    return list(iter_records(memoryview(batch), read_header(batch)))


def removed(batch: bytes | bytearray, *offsets: int) -> bytearray | None:
    return with_survivors(batch, read_header(batch), lambda record: record.offset not in offsets)


@given(PAIRS, st.sets(st.integers(0, 19)), st.integers(0, 1 << 40), st.integers(0, 1 << 20))
def test_what_stays_keeps_its_place(
    pairs: list[tuple[bytes | None, bytes | None]], gone: set[int], base: int, epoch: int
) -> None:
    batch = build_data_batch(pairs, 1_700_000_000_000)
    stamp(batch, base, epoch)
    before = bytes(batch)
    header = read_header(batch)
    expected = [record for record in all_records(batch) if record.offset - base not in gone]
    kept = removed(batch, *(base + delta for delta in gone))
    assert bytes(batch) == before, "the batch itself is not changed"
    if kept is None:
        assert not expected
        return
    found = read_header(kept)
    assert found == header._replace(length=len(kept) - 12, count=len(expected), crc=found.crc)
    assert verify_crc(kept, 0, found)
    assert all_records(kept) == expected
    # It can be thinned out again, as the next checkpoint does it, with the same result.
    assert removed(kept, *(base + delta for delta in gone)) == kept


@given(PAIRS, st.sets(st.integers(0, 19)), st.sets(st.integers(0, 19)))
def test_two_removals_are_as_one(
    pairs: list[tuple[bytes | None, bytes | None]], first: set[int], second: set[int]
) -> None:
    batch = build_data_batch(pairs, 5)
    once = removed(batch, *first)
    twice = None if once is None else removed(once, *second)
    assert twice == removed(batch, *first, *second)


def test_a_batch_of_which_all_stays_is_the_same() -> None:
    batch = build_data_batch([(b"a", b"1"), (b"b", None)], 7)
    assert removed(batch) == batch


def test_records_of_a_checkpoint_keep_the_offsets_of_the_log() -> None:
    batch = build_data_batch([(b"a", b"1"), (b"b", b"2"), (b"c", b"3")], 7)
    keep_base_offset(batch, 1_000)
    kept = removed(batch, 0, 2)
    assert kept is not None
    stamp(kept, 77, 3)
    header = read_header(kept)
    assert (header.base_offset, header.end_offset, header.count) == (77, 80, 1)
    assert [r.offset for r in snapshot_records(memoryview(kept), header)] == [1_001]
    assert has_keys(kept, header)


def test_headers_and_timestamps_of_records_stay() -> None:
    """No writer of Quorate makes such records, but the log of another one may have them."""
    record = b"\x00\x06\x02\x02k\x02v\x02\x02h\x02x"  # 3 ms after the first, offset delta 1
    plain = b"\x00\x00\x00\x02k\x02w\x00"
    body = b"".join(bytes([2 * len(each)]) + each for each in (plain, record))
    batch = bytearray(build_data_batch([(b"k", b"w"), (b"k", b"w")], 50)[:HEADER_SIZE]) + body
    struct.pack_into(">i", batch, LENGTH_AT, len(batch) - 12)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[CRC_START:]))
    (first, second) = all_records(batch)
    assert (second.timestamp, second.headers) == (first.timestamp + 3, (("h", b"x"),))
    kept = removed(batch, 0)
    assert kept is not None
    assert all_records(kept) == [second]


@pytest.mark.parametrize("at", [HEADER_SIZE, HEADER_SIZE + 3])
def test_records_that_contradict_their_batch_are_an_error(at: int) -> None:
    batch = build_data_batch([(b"a", b"1"), (b"b", b"2")], 7)
    batch[at] ^= 0x7E
    with pytest.raises(CorruptBatchError):
        removed(batch)


def test_a_batch_may_not_have_more_records_than_offsets() -> None:
    batch = build_data_batch([(b"a", b"1"), (b"b", b"2")], 7)
    struct.pack_into(">i", batch, COUNT_AT, 3)
    with pytest.raises(CorruptBatchError):
        read_header(batch)
    assert isinstance(read_header(build_data_batch([(b"", b"")], 1)), BatchHeader)
