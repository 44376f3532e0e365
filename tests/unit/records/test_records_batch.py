"""Record batches: known bytes, both ways, and what damage, hostility and misplacement lead to."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quorate.common.batch_layout import HEADER_SIZE
from quorate.raft.batches import KRaftVersion, LeaderChange, SnapshotHeader
from quorate.raft.types import ReplicaKey
from quorate.records.batch import (
    BatchHeader,
    BatchProducer,
    build_control_batch,
    build_data_batch,
    iter_batches,
    iter_records,
    keep_base_offset,
    parse_batches,
    read_header,
    snapshot_records,
    stamp,
    verify_crc,
)
from quorate.records.errors import (
    CorruptBatchError,
    RecordsError,
    TruncatedBatchError,
    UnsupportedBatchError,
)

# A checkpoint's first batch as Kafka 4.3 wrote it: SnapshotHeader with timestamp 0.
KAFKAS_HEADER = bytes.fromhex(
    "00000000000000000000004700000000"
    "02b2bb03c1002000000000000001a1fc"
    "2a428a000001a1fc2a428affffffffff"
    "ffffffffffffffffff000000012a0000"
    "00080000000316000000000000000000"
    "000000"
)

FIELD = st.none() | st.binary(max_size=80)
PAIRS = st.lists(st.tuples(FIELD, FIELD), min_size=1, max_size=8)
BASE_OFFSET_OR_EPOCH = frozenset([*range(8), *range(12, 16)])


def batch_of(*values: bytes, base: int = 0, epoch: int = 1) -> bytes:
    batch = build_data_batch([(None, value) for value in values], 1000)
    stamp(batch, base, epoch)
    return bytes(batch)


def test_a_control_batch_has_kafkas_bytes() -> None:
    header = read_header(KAFKAS_HEADER)
    assert header.size_bytes == len(KAFKAS_HEADER) == 83
    assert (header.crc, header.is_control, header.count) == (2998600641, True, 1)
    assert build_control_batch([SnapshotHeader(0)], header.base_timestamp) == KAFKAS_HEADER
    (batch,) = parse_batches(KAFKAS_HEADER)
    assert batch.control == (SnapshotHeader(0),)


def test_a_data_batch_is_laid_out_as_documented() -> None:
    batch = build_data_batch([(b"k", b"value"), (None, None)], 1_700_000_000_000)
    stamp(batch, 7, 3)
    header = read_header(batch)
    assert header == BatchHeader(
        base_offset=7,
        length=len(batch) - 12,
        epoch=3,
        magic=2,
        crc=header.crc,
        attributes=0,
        last_offset_delta=1,
        base_timestamp=1_700_000_000_000,
        max_timestamp=1_700_000_000_000,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        count=2,
    )
    assert (header.last_offset, header.end_offset, header.size_bytes) == (8, 9, len(batch))
    assert (header.is_control, header.is_transactional, header.compression) == (False, False, 0)
    assert batch[HEADER_SIZE:].hex() == "18000000026b0a76616c756500" + "0c000002010100"


@given(PAIRS, st.integers(0, 2**62), st.integers(0, 2**31 - 1), st.integers(0, 2**62))
def test_what_is_built_is_read(
    pairs: list[tuple[bytes | None, bytes | None]], base: int, epoch: int, timestamp: int
) -> None:
    batch = build_data_batch(pairs, timestamp)
    stamp(batch, base, epoch)
    header = read_header(batch)
    assert verify_crc(batch, 0, header)
    assert (header.base_offset, header.epoch, header.count) == (base, epoch, len(pairs))
    records = list(iter_records(memoryview(batch), header))
    assert [(record.key, record.value) for record in records] == pairs
    assert [record.offset for record in records] == list(range(base, base + len(pairs)))
    assert {record.timestamp for record in records} == {timestamp}
    (parsed,) = parse_batches(bytes(batch))
    assert (parsed.base_offset, parsed.end_offset) == (base, base + len(pairs))
    assert parsed.epoch == epoch
    assert parsed.control == ()
    assert parsed.data == batch


def test_sizes_around_the_fast_path_of_varints() -> None:
    for size in (0, 1, 50, 60, 63, 64, 127, 4000, 8100, 8180, 8191, 8192, 70_000):
        batch = build_data_batch([(None, bytes(size)), (bytes(size), b"")], 5)
        records = list(iter_records(memoryview(batch), read_header(batch)))
        assert [(r.key_size, r.value_size) for r in records] == [(-1, size), (size, 0)]
    many = build_data_batch([(None, b"x")] * 10_000, 5)
    assert sum(1 for _ in iter_records(memoryview(many), read_header(many))) == 10_000


def test_a_batch_is_never_empty() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        build_data_batch([], 0)


def test_every_flipped_bit_is_detected() -> None:
    """By the batch itself, except in offset and epoch: those its neighbours give away."""
    batches = [batch_of(b"first", base=0), batch_of(b"second", b"x", base=1), batch_of(b"", base=3)]
    middle = len(batches[0])
    data = b"".join(batches)
    for bit in range(8 * len(batches[1])):
        damaged = bytearray(data)
        damaged[middle + bit // 8] ^= 1 << bit % 8
        try:
            parsed = parse_batches(bytes(damaged))
        except RecordsError:
            continue
        # A length that grew makes the batch look incomplete: the rest is dropped, not believed.
        assert [batch.data for batch in parsed] == [batches[0]]
        assert bit // 8 in range(8, 12)


def test_only_offset_and_epoch_are_outside_of_the_checksum() -> None:
    batch = batch_of(b"value")
    for bit in range(8 * len(batch)):
        damaged = bytearray(batch)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            header = read_header(damaged)
            detected = not verify_crc(damaged, 0, header) or header.size_bytes != len(batch)
        except RecordsError:
            detected = True
        assert detected or bit // 8 in BASE_OFFSET_OR_EPOCH


@given(st.binary(max_size=200))
def test_random_bytes_give_only_typed_errors(data: bytes) -> None:
    consume(data)


@settings(max_examples=300)
@given(PAIRS, st.data())
def test_damaged_batches_give_only_typed_errors(
    pairs: list[tuple[bytes | None, bytes | None]], data: st.DataObject
) -> None:
    """Without the checksum's protection: it may be right by chance, or by malice."""
    batch = build_data_batch(pairs, 1)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(batch) - 1))
        batch[at] = data.draw(st.integers(0, 255))
    consume(bytes(batch[: data.draw(st.integers(0, len(batch)))]))


def consume(data: bytes) -> None:
    try:
        parse_batches(data, verify=False)
        for header, batch in iter_batches(data):
            size = sum(
                max(record.key_size, 0) + max(record.value_size, 0)
                for record in iter_records(batch, header)
            )
            assert size <= len(data)
    except RecordsError:
        pass


def test_a_count_that_the_bytes_do_not_hold_is_refused_without_taking_memory() -> None:
    batch = build_data_batch([(None, b"x")], 1)
    batch[23:27] = batch[57:61] = (2**31 - 1).to_bytes(4, "big")
    with pytest.raises(RecordsError):
        list(iter_records(memoryview(batch), read_header(batch)))


def test_a_partial_batch_at_the_end_is_dropped() -> None:
    whole = batch_of(b"one", base=5)
    following = batch_of(b"two", base=6)
    for cut in range(len(following)):
        assert [b.data for b in parse_batches(whole + following[:cut])] == [whole]
    assert parse_batches(b"") == ()
    with pytest.raises(TruncatedBatchError) as caught:
        list(iter_batches(whole + following[:-1]))
    assert caught.value.position == len(whole)


def test_batches_must_follow_each_other() -> None:
    first = batch_of(b"a", b"b", base=4, epoch=2)
    with pytest.raises(CorruptBatchError, match="offset 7 follows 5") as caught:
        parse_batches(first + batch_of(b"c", base=7, epoch=2))
    assert caught.value.position == len(first)
    with pytest.raises(CorruptBatchError, match="epoch 1 follows 2"):
        parse_batches(first + batch_of(b"c", base=6, epoch=1))
    assert len(parse_batches(first + batch_of(b"c", base=6, epoch=3))) == 2


def test_control_batches_become_values() -> None:
    change = LeaderChange(2, (ReplicaKey(2),), (ReplicaKey(2),))
    batch = build_control_batch([change, KRaftVersion(1)], 9)
    stamp(batch, 40, 6)
    (parsed,) = parse_batches(memoryview(batch))
    assert parsed.control == (change, KRaftVersion(1))
    assert (parsed.base_offset, parsed.last_offset, parsed.epoch) == (40, 41, 6)


def test_a_broken_control_record_is_placed_in_the_data() -> None:
    first = batch_of(b"a", base=0, epoch=1)
    control = build_control_batch([KRaftVersion(1)], 9)
    stamp(control, 1, 1)
    control[-3] ^= 0xFF
    with pytest.raises(CorruptBatchError, match="checksum") as caught:
        parse_batches(first + control)
    assert caught.value.position == len(first)
    control[-2] = 0x7F
    with pytest.raises(CorruptBatchError, match="control batch is broken") as caught:
        parse_batches(first + control, verify=False)
    assert caught.value.position == len(first)


def test_foreign_formats_are_unsupported_not_corrupt() -> None:
    batch = bytearray(batch_of(b"a"))
    batch[16] = 1
    with pytest.raises(UnsupportedBatchError, match="message format 1"):
        read_header(batch)
    batch[16] = 9
    with pytest.raises(CorruptBatchError, match="magic 9"):
        read_header(batch)
    compressed = bytearray(batch_of(b"a"))
    compressed[22] = 4
    header = read_header(compressed)
    assert header.compression == 4
    with pytest.raises(UnsupportedBatchError, match="zstd"):
        list(iter_records(memoryview(compressed), header))


def test_a_batch_says_to_which_session_it_belongs() -> None:
    producer = BatchProducer(1 << 40, 0, (1 << 31) - 1)
    batch = build_data_batch([(b"", b"a"), (b"", b"b")], 5, producer)
    stamp(batch, 10, 3)
    header = read_header(batch)
    assert verify_crc(batch, 0, header)
    assert header[9:12] == producer
    assert [record.sequence for record in iter_records(memoryview(batch), header)] == [
        (1 << 31) - 1,
        0,
    ]
    assert header.last_sequence == 0


def test_a_snapshot_forgets_the_session_of_a_batch() -> None:
    batch = build_data_batch([(b"k", b"a")], 5, BatchProducer(77, 0, 3))
    keep_base_offset(batch, 1234)
    header = read_header(batch)
    assert verify_crc(batch, 0, header)
    assert header[9:12] == (1234, -1, -1)
    (record,) = snapshot_records(memoryview(batch), header)
    assert (record.offset, record.sequence) == (1234, -1)


def test_the_id_of_a_session_in_a_snapshot_of_release_0_1_0_is_no_offset() -> None:
    """That release copies batches from the log as they are."""
    batch = build_data_batch([(b"k", b"a")], 5, BatchProducer(1234, 0, 3))
    (record,) = snapshot_records(memoryview(batch), read_header(batch))
    assert (record.offset, record.sequence) == (None, -1)
