"""Kafka's primitive types: known bytes, every value both ways, and nothing but typed errors."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quorate.common.identifiers import ZERO_UUID, uuid_from_bytes, uuid_to_bytes
from quorate.records.errors import CorruptBatchError
from quorate.records.primitives import Reader, Writer

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)

VALUES = {
    "boolean": st.booleans(),
    "int8": st.integers(-128, 127),
    "uint8": st.integers(0, 255),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": INT32,
    "uint32": st.integers(0, 2**32 - 1),
    "int64": INT64,
    "float64": st.floats(allow_nan=False),
    "varint": INT32,
    "varlong": INT64,
    "unsigned_varint": st.integers(0, 2**32 - 1),
    "unsigned_varlong": st.integers(0, 2**64 - 1),
    "uuid": st.binary(min_size=16, max_size=16).map(uuid_from_bytes),
    "compact_string": st.text(st.characters(exclude_categories=["Cs"])),
    "compact_nullable_string": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
    "compact_bytes": st.binary(),
    "compact_nullable_bytes": st.none() | st.binary(),
    "tagged_fields": st.dictionaries(st.integers(0, 2**32 - 1), st.binary(), max_size=4),
}


def varint(value: int) -> bytes:
    writer = Writer()
    writer.varint(value)
    return writer.to_bytes()


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (300, "d804")],
)
def test_zigzag_varints_have_kafkas_bytes(value: int, encoded: str) -> None:
    assert varint(value).hex() == encoded
    assert Reader(bytes.fromhex(encoded)).varint() == value


def test_extreme_varints() -> None:
    assert varint(2**31 - 1).hex() == "feffffff0f"
    assert varint(-(2**31)).hex() == "ffffffff0f"
    assert Reader(bytes.fromhex("ffffffffffffffffff01")).varlong() == -(2**63)
    with pytest.raises(CorruptBatchError, match="longer than 32 bits"):
        Reader(bytes.fromhex("ffffffffff01")).varint()
    with pytest.raises(CorruptBatchError, match="larger than 32 bits"):
        Reader(bytes.fromhex("ffffffff1f")).varint()


def test_uuids() -> None:
    assert uuid_to_bytes(ZERO_UUID) == bytes(16)
    assert uuid_from_bytes(bytes(15) + b"\x01") == "AAAAAAAAAAAAAAAAAAAAAQ"
    for wrong in ("", "A" * 21, "A" * 23, "A" * 21 + "!", "A" * 21 + "B", "A" * 21 + "="):
        with pytest.raises(ValueError, match="UUID"):
            uuid_to_bytes(wrong)


@given(st.lists(st.sampled_from(sorted(VALUES)), max_size=6), st.data())
def test_what_is_written_is_read(kinds: list[str], data: st.DataObject) -> None:
    values = [(kind, data.draw(VALUES[kind])) for kind in kinds]
    writer = Writer()
    for kind, value in values:
        getattr(writer, kind)(value)
    for buffer in (writer.to_bytes(), memoryview(writer.data)):
        reader = Reader(buffer)
        assert [(kind, getattr(reader, kind)()) for kind, _ in values] == values
        assert reader.at_end
        reader.expect_end("the test")


@given(st.binary(max_size=40), st.lists(st.sampled_from(sorted(VALUES)), max_size=8))
def test_hostile_bytes_give_a_value_or_a_typed_error(data: bytes, kinds: list[str]) -> None:
    reader = Reader(data)
    with contextlib.suppress(CorruptBatchError):
        for kind in kinds:
            value = getattr(reader, kind)()
            if isinstance(value, (bytes, str)) and kind != "uuid":
                assert len(value) <= len(data)
    assert reader.position <= reader.end


def test_a_list_longer_than_what_is_left_is_refused_before_memory_is_taken() -> None:
    writer = Writer()
    writer.compact_array_length(2_000_000_000)
    with pytest.raises(CorruptBatchError, match="list of 2000000000"):
        Reader(writer.to_bytes()).compact_array(lambda reader: reader.int8())


def test_arrays_and_null() -> None:
    writer = Writer()
    writer.compact_array([1, 2, 3], Writer.int32)
    writer.compact_nullable_array(None, Writer.int32)
    reader = Reader(writer.data)
    assert reader.compact_array(Reader.int32) == [1, 2, 3]
    assert reader.compact_nullable_array(Reader.int32) is None
    with pytest.raises(CorruptBatchError, match="null where a string"):
        Reader(b"\x00").compact_string()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int8", 128),
        ("uint8", -1),
        ("int16", 2**15),
        ("uint16", -1),
        ("int32", 2**31),
        ("int64", 2**63),
        ("varint", 2**31),
        ("unsigned_varint", -1),
    ],
)
def test_values_out_of_range_are_not_written(kind: str, value: int) -> None:
    with pytest.raises(ValueError, match=r"fit|range"):
        getattr(Writer(), kind)(value)


def test_a_reader_stays_within_its_range() -> None:
    reader = Reader(b"abcdef", 2, 4)
    assert reader.raw(2) == b"cd"
    with pytest.raises(CorruptBatchError):
        reader.int8()
    with pytest.raises(ValueError, match="no range"):
        Reader(b"abc", 2, 7)
    with pytest.raises(CorruptBatchError, match="tag 1 follows tag 1"):
        Reader(bytes([2, 1, 0, 1, 0])).tagged_fields()
