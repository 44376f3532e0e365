"""Batches that clients have encoded: what is accepted reads like a batch that is encoded here."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from quorate.common.error_codes import ErrorCode
from quorate.records.batch import (
    NO_PRODUCER,
    BatchProducer,
    build_data_batch,
    iter_keys,
    iter_records,
    read_header,
)
from quorate.records.client_batch import (
    RECORDS_MAX,
    RejectedBatchError,
    check_client_batch,
    set_append_time,
)
from quorate.records.primitives import encode_unsigned_varint, zigzag

NOW_MS = 1_700_000_000_000
PRODUCER = BatchProducer(7, 0, 40)
RECORDS = [(b"key", b"value"), (b"", b""), (b"deleted", None)]


def sealed(batch: bytes) -> bytes:
    """With the length and the checksum that these bytes need."""
    made = bytearray(batch)
    struct.pack_into(">i", made, 8, len(made) - 12)
    struct.pack_into(">I", made, 17, crc32c(bytes(made[21:])))
    return bytes(made)


def patched(place: int, form: str, value: int) -> bytes:
    made = bytearray(build_data_batch(RECORDS, NOW_MS, PRODUCER))
    struct.pack_into(form, made, place, value)
    return sealed(made)


def varint(value: int) -> bytes:
    return encode_unsigned_varint(zigzag(value))


def with_record(body: bytes) -> bytes:
    """A batch with one record, whose length precedes `body`."""
    header = build_data_batch([(b"k", b"v")], NOW_MS)[:61]
    return sealed(bytes(header) + varint(len(body)) + body)


def rejected(batch: bytes) -> RejectedBatchError:
    with pytest.raises(RejectedBatchError) as error:
        check_client_batch(batch)
    return error.value


@given(
    st.lists(st.tuples(st.binary(max_size=20), st.none() | st.binary(max_size=200)), min_size=1),
    st.sampled_from([BatchProducer(-1, -1, -1), PRODUCER]),
)
def test_a_batch_is_accepted_as_it_is(
    records: list[tuple[bytes, bytes | None]], producer: BatchProducer
) -> None:
    batch = bytes(build_data_batch(records, NOW_MS, producer))
    header, has_null_values = check_client_batch(batch)
    assert header == read_header(batch)
    assert has_null_values == any(value is None for _, value in records)


def test_headers_and_timestamps_of_records_are_accepted() -> None:
    body = (
        b"\0" + varint(-5) + varint(0) + varint(1) + b"k" + varint(1) + b"v"
        + varint(2) + varint(1) + b"a" + varint(-1) + varint(0) + varint(2) + b"xy"
    )  # fmt: skip
    batch = with_record(body)
    header, has_null_values = check_client_batch(batch)
    assert not has_null_values
    (record,) = iter_records(memoryview(batch), header)
    assert (record.key, record.value) == (b"k", b"v")
    assert record.headers == (("a", None), ("", b"xy"))


@pytest.mark.parametrize(
    ("batch", "error", "text"),
    [
        pytest.param(
            b"", ErrorCode.CORRUPT_MESSAGE, "incomplete batch at byte 0: 0 bytes", id="nothing"
        ),
        pytest.param(
            patched(16, ">b", 1), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, "format 1", id="magic"
        ),
        pytest.param(
            bytes(build_data_batch(RECORDS, NOW_MS)) * 2,
            ErrorCode.INVALID_RECORD,
            "send one batch",
            id="two batches",
        ),
        pytest.param(
            bytes(build_data_batch(RECORDS, NOW_MS))[:-1] + b"\1",
            ErrorCode.CORRUPT_MESSAGE,
            "the checksum is wrong",
            id="checksum",
        ),
        pytest.param(
            patched(21, ">h", 0x20),
            ErrorCode.INVALID_RECORD,
            "control records",
            id="control",
        ),
        pytest.param(
            patched(21, ">h", 0x10), ErrorCode.INVALID_RECORD, "transactions", id="transactional"
        ),
        pytest.param(patched(21, ">h", 0x08), ErrorCode.INVALID_RECORD, "0x8", id="append time"),
        pytest.param(patched(21, ">h", 0x40), ErrorCode.INVALID_RECORD, "0x40", id="horizon"),
        pytest.param(patched(21, ">h", 0x80), ErrorCode.INVALID_RECORD, "0x80", id="unknown bit"),
        pytest.param(
            patched(21, ">h", 4), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd", id="compressed"
        ),
        pytest.param(
            patched(23, ">i", 7), ErrorCode.INVALID_RECORD, "3 records have 8 offsets", id="gap"
        ),
        pytest.param(patched(57, ">i", 0), ErrorCode.INVALID_RECORD, "no records", id="empty"),
        pytest.param(
            patched(53, ">i", -1), ErrorCode.INVALID_RECORD, "(7, 0, -1)", id="no sequence"
        ),
        pytest.param(patched(51, ">h", -1), ErrorCode.INVALID_RECORD, "(7, -1, 40)", id="no epoch"),
        pytest.param(patched(43, ">q", -2), ErrorCode.INVALID_RECORD, "(-2, 0, 40)", id="id"),
    ],
)
def test_the_header_is_checked(batch: bytes, error: ErrorCode, text: str) -> None:
    found = rejected(batch)
    assert (found.error, found.record) == (error, -1)
    assert text in str(found)


ONE = b"\0" + varint(0) + varint(0) + varint(1) + b"k" + varint(1) + b"v" + varint(0)


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        pytest.param(
            bytes(build_data_batch([(None, b"metadata")], NOW_MS)), "needs a key", id="no key"
        ),
        pytest.param(with_record(b"\1" + ONE[1:]), "attributes 0x1", id="attributes"),
        pytest.param(
            with_record(ONE[:2] + varint(1) + ONE[3:]), "offset delta 1", id="offset delta"
        ),
        pytest.param(with_record(ONE + b"\0"), "ends elsewhere", id="too long"),
        pytest.param(with_record(ONE[:-1]), "end of its batch", id="too short"),
        pytest.param(
            with_record(ONE[:5] + varint(-2) + varint(0)), "a value of -2 bytes", id="value"
        ),
        pytest.param(with_record(ONE[:-1] + varint(-1)), "-1 record headers", id="headers"),
        pytest.param(with_record(ONE[:-1] + varint(1) + varint(-1)), "no name", id="header name"),
        pytest.param(
            with_record(ONE[:-1] + varint(1) + varint(0) + varint(-2)), "-2 bytes", id="header"
        ),
        pytest.param(with_record(b"\0" + b"\xff" * 11 + ONE[2:]), "64 bits", id="varint"),
        pytest.param(
            with_record(b"\0" + b"\xff" * 9 + b"\x02" + ONE[2:]), "64 bits", id="timestamp"
        ),
        pytest.param(
            with_record(ONE[:3] + b"\x82\x00" + ONE[4:]), "longer than it must be", id="key size"
        ),
        pytest.param(
            with_record(ONE[:5] + b"\x81\x00" + varint(0)), "longer than it must be", id="null"
        ),
        pytest.param(
            with_record(ONE[:3] + b"\x82\x80\x80\x80\x10" + ONE[4:]), "32 bits", id="size"
        ),
        pytest.param(
            with_record(ONE[:-1] + varint(10_001) + b"\0\1" * 10_001),
            "10001 record headers",
            id="many headers",
        ),
        pytest.param(
            sealed(bytes(build_data_batch([(b"k", b"v")], NOW_MS)) + b"\0"), "too many", id="rest"
        ),
    ],
)
def test_each_record_is_checked(batch: bytes, text: str) -> None:
    found = rejected(batch)
    assert found.error is ErrorCode.INVALID_RECORD
    assert text in str(found)


def test_the_record_at_fault_is_named() -> None:
    mixed = build_data_batch([(b"k", b"v"), (None, b"v")], NOW_MS)
    assert rejected(bytes(mixed)).record == 1


def flip(batch: bytes, place: int, bit: int) -> bytes:
    made = bytearray(batch)
    made[place] ^= 1 << bit
    return sealed(made)


def cut(batch: bytes, place: int, _bit: int) -> bytes:
    return sealed(batch[:place])


def grow(batch: bytes, place: int, bit: int) -> bytes:
    return sealed(batch[:place] + bytes([1 << bit]) + batch[place:])


@given(
    st.sampled_from([flip, cut, grow]),
    st.integers(61, 110),
    st.integers(0, 7),
)
def test_what_is_accepted_can_be_read(
    change: Callable[[bytes, int, int], bytes], place: int, bit: int
) -> None:
    """The readers of the log are the oracle: they agree about every accepted batch."""
    batch = bytes(build_data_batch([*RECORDS, (b"k" * 20, b"v" * 20)], NOW_MS))
    changed = change(batch, min(place, len(batch) - 1), bit)
    try:
        header, has_null_values = check_client_batch(changed)
    except RejectedBatchError:
        return
    records = list(iter_records(memoryview(changed), header))
    assert [record.offset for record in records] == list(range(header.count))
    assert all(record.key is not None for record in records)
    assert has_null_values == any(record.value is None for record in records)
    assert [(d, k) for d, k, _ in iter_keys(changed, header)] == [
        (record.offset, record.key) for record in records
    ]


def test_the_number_of_records_is_limited() -> None:
    assert check_client_batch(bytes(build_data_batch([(b"", b"")] * RECORDS_MAX, NOW_MS)))
    found = rejected(bytes(build_data_batch([(b"", b"")] * (RECORDS_MAX + 1), NOW_MS)))
    assert found.error is ErrorCode.INVALID_RECORD
    assert "50001 records; at most 50000" in str(found)


def test_without_an_id_there_is_no_producer() -> None:
    """Some clients send a sequence number all the same."""
    batch = bytearray(patched(43, ">q", -1))
    check_client_batch(bytes(batch))
    set_append_time(batch, NOW_MS)
    assert read_header(batch).producer == NO_PRODUCER
    assert sealed(batch) == bytes(batch)


def test_the_append_time_replaces_those_of_the_producer() -> None:
    batch = build_data_batch(RECORDS, NOW_MS, PRODUCER)
    set_append_time(batch, NOW_MS + 5)
    header = read_header(batch)
    assert header.is_log_append_time
    assert header.producer == PRODUCER
    assert sealed(batch) == bytes(batch)
    times = {record.timestamp for record in iter_records(memoryview(batch), header)}
    assert times == {NOW_MS + 5}
