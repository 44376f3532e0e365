"""Columns against records decoded one by one: the same values, for every type, version and fault.

Needs no Spark: what turns bytes into Arrow batches is tested by itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quorate.records.batch import build_data_batch, iter_batches, iter_records, stamp
from quorate.records.metadata import (
    RECORD_TYPES,
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
    decode,
    encode,
    json_text,
    to_json,
)
from quorate.spark import framing
from quorate.spark.columns import LEDGER, Origin, layer_schema, rows
from quorate.spark.errors import DamagedError
from quorate.spark.options import OFFSET_MAX

from tests.spark.conftest import GOLDEN
from tests.unit.records_metadata.strategies import records as versioned_records

HERE = Origin("1-x", "log")


def log_of(batches: Sequence[Sequence[tuple[bytes | None, bytes | None]]]) -> bytes:
    data = bytearray()
    offset = 0
    for records in batches:
        batch = build_data_batch(list(records), 1_795_231_990_458)
        stamp(batch, offset, 3)
        data += batch
        offset += len(records)
    return bytes(data)


def ledger(data: bytes) -> list[dict[str, object]]:
    batch = rows(LEDGER, framing.whole(data), HERE, 0, OFFSET_MAX)
    batch.validate(full=True)
    assert batch.schema == layer_schema(LEDGER)
    found: list[dict[str, object]] = batch.to_pylist()
    return found


@given(st.lists(st.lists(versioned_records(), min_size=1, max_size=12), min_size=1, max_size=8))
@settings(max_examples=40, deadline=None)
def test_any_records_are_what_decoding_one_by_one_says(
    batches: list[list[tuple[MetadataRecord, int]]],
) -> None:
    values = [[encode(record, version) for record, version in batch] for batch in batches]
    found = ledger(log_of([[(None, value) for value in batch] for batch in values]))
    flat = [value for batch in values for value in batch]
    assert [row["offset"] for row in found] == list(range(len(flat)))
    for row, value in zip(found, flat, strict=True):
        expected = to_json(decode(value))
        assert (row["type"], row["version"]) == (expected["type"], expected["version"])
        assert (row["data"], row["error"]) == (json_text(expected["data"]), None)


@given(st.lists(versioned_records(), min_size=1, max_size=20))
@settings(max_examples=20, deadline=None)
def test_typed_columns_hold_the_fields(records: list[tuple[MetadataRecord, int]]) -> None:
    data = log_of([[(None, encode(record, version)) for record, version in records]])
    for cls in {type(record) for record, _ in records}:
        batch = rows(cls.TYPE, framing.whole(data), HERE, 0, OFFSET_MAX)
        batch.validate(full=True)
        assert batch.schema == layer_schema(cls.TYPE)
        mine = [
            decode(encode(record, version)) for record, version in records if type(record) is cls
        ]
        for spec in cls.FIELDS:
            name = spec.json_name if spec.json_name in batch.schema.names else ""
            name = name if name and spec.json_name != "epoch" else f"field_{spec.json_name}"
            found = batch.column(name).to_pylist()
            wanted = [plain(getattr(record, spec.name)) for record in mine]
            assert (
                found == pytest.approx(wanted, nan_ok=True)
                if _has_floats(wanted)
                else (found == wanted)
            )


def _has_floats(values: list[object]) -> bool:
    return any(isinstance(value, float) for value in values)


def plain(value: object) -> object:
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if hasattr(value, "FIELDS"):
        return {spec.json_name: plain(getattr(value, spec.name)) for spec in value.FIELDS}
    return value


@given(st.binary(max_size=80), st.integers(0, 29), st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_hostile_values_are_told_and_hurt_no_others(tail: bytes, key: int, version: int) -> None:
    good = encode(TopicRecord("a", "q4-87cwrTP20I1r4Xtfj7g"))
    hostile = bytes([1, key, version]) + tail
    found = ledger(log_of([[(None, good), (None, hostile), (None, good)]]))
    assert found[0]["data"] == found[2]["data"] == json_text(to_json(decode(good))["data"])
    try:
        expected = json_text(to_json(decode(hostile))["data"])
    except Exception:
        assert found[1]["data"] is None
        assert found[1]["error"]
    else:
        assert (found[1]["data"], found[1]["error"]) == (expected, None)


@given(st.binary(max_size=400), st.integers(0, 400))
@settings(max_examples=60, deadline=None)
def test_hostile_bytes_end_in_a_typed_error_or_in_rows(noise: bytes, at: int) -> None:
    data = bytearray(log_of([[(None, encode(NoOpRecord()))] * 5, [(b"k", b"v")] * 3]))
    data[at : at + len(noise)] = noise[: max(0, len(data) - at)]
    with contextlib.suppress(DamagedError):
        ledger(bytes(data))


def test_application_data_keeps_key_and_value() -> None:
    found = ledger(log_of([[(b"k", b"v"), (b"", b""), (None, encode(NoOpRecord())), (b"k", None)]]))
    assert [(r["type"], r["key"], r["value"]) for r in found] == [
        ("OPAQUE", b"k", b"v"),
        ("OPAQUE", b"", b""),
        ("NO_OP_RECORD", None, None),
        ("OPAQUE", b"k", None),
    ]


def test_texts_are_escaped_as_in_kafka() -> None:
    values = ['"\\', "ä\u0001\n", "plain", "", None]
    records = [ConfigRecord(2, "t", "n", value) for value in values]
    found = ledger(log_of([[(None, encode(record)) for record in records]]))
    assert [row["data"] for row in found] == [json_text(to_json(r)["data"]) for r in records]


def test_records_of_tagged_fields_alone() -> None:
    records = [
        BeginTransactionRecord("x"),
        BeginTransactionRecord(),
        AbortTransactionRecord("why"),
        PartitionChangeRecord(1, isr=(), leader=-1),
        PartitionRecord(1, replicas=(1, 2), eligible_leader_replicas=(3,)),
    ]
    found = ledger(log_of([[(None, encode(record)) for record in records]]))
    assert [row["data"] for row in found] == [json_text(to_json(r)["data"]) for r in records]


def test_many_batches_are_walked_in_step() -> None:
    batches = [[(None, encode(NoOpRecord()))] * (index % 7 + 1) for index in range(300)]
    batches.append([(None, encode(ConfigRecord(2, "t", "n", "v" * 9000)))] * 3)
    found = ledger(log_of(batches))
    assert [row["offset"] for row in found] == list(range(sum(map(len, batches))))


def test_a_range_of_offsets_cuts_batches() -> None:
    data = log_of([[(None, encode(NoOpRecord()))] * 10] * 3)
    batch = rows(LEDGER, framing.whole(data), HERE, 7, 13)
    assert batch.column("offset").to_pylist() == list(range(7, 13))


def test_a_file_is_read_in_chunks_of_any_size(tmp_path: Path) -> None:
    data = log_of([[(None, encode(ConfigRecord(2, "t", "n", "v" * n)))] * 4 for n in range(200)])
    path = tmp_path / "log"
    path.write_bytes(data + bytes(5000))
    for size in (100, 333, 4096, 1 << 20):
        with path.open("rb") as file:
            found: list[int] = []
            for chunk in framing.read_chunks(file.fileno(), 0, path.stat().st_size, size):
                assert chunk.fault is None
                found += rows(LEDGER, chunk, HERE, 0, OFFSET_MAX).column("offset").to_pylist()
        assert found == list(range(800))


def test_golden_files_batch_by_batch() -> None:
    """The reader that replication uses sees the same records in Kafka's own segments."""
    if not GOLDEN.exists():
        pytest.skip(f"Kafka's golden directories are not in {GOLDEN} (set QUORATE_SHARED)")
    for path in sorted(GOLDEN.rglob("*.log")):
        data = path.read_bytes()
        expected = [
            (record.offset, header.epoch, record.timestamp)
            for header, batch in iter_batches(data)
            for record in iter_records(batch, header)
        ]
        found = [
            (row["offset"], row["epoch"], round(row["timestamp"].timestamp() * 1000))
            for row in ledger(data)
        ]
        assert found == expected


def test_every_type_is_declared_for_columns() -> None:
    for cls in RECORD_TYPES.values():
        names = layer_schema(cls.TYPE).names
        assert len(names) == len(set(names)) == 6 + len(cls.FIELDS)
