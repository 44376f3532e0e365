"""Columns against records decoded one by one: the same values, for every type, version and fault.

Needs no Spark: what turns bytes into Arrow batches is tested by itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from quorate.records.batch import (
    NO_PRODUCER,
    BatchProducer,
    build_data_batch,
    iter_batches,
    iter_records,
    keep_base_offset,
    stamp,
)
from quorate.records.errors import RecordsError
from quorate.records.metadata import (
    RECORD_TYPES,
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
    decode,
    encode,
    json_text,
    to_json,
)
from quorate.spark.decoding import framing
from quorate.spark.decoding.columns import LEDGER, ChunkOrigin, column_name, layer_schema, rows
from quorate.spark.errors import DamagedError
from quorate.spark.options import OFFSET_MAX

from tests.spark import arbitrary
from tests.spark.conftest import GOLDEN

HERE = ChunkOrigin("1-x", "log")


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


@pytest.mark.parametrize("seed", range(12))
def test_any_records_are_what_decoding_one_by_one_says(seed: int) -> None:
    rng = random.Random(seed)
    batches = [arbitrary.records(rng, rng.randint(1, 30)) for _ in range(rng.choice((1, 9, 90)))]
    values = [[encode(record, version) for record, version in batch] for batch in batches]
    found = ledger(log_of([[(None, value) for value in batch] for batch in values]))
    flat = [value for batch in values for value in batch]
    assert [row["offset"] for row in found] == list(range(len(flat)))
    for row, value in zip(found, flat, strict=True):
        expected = to_json(decode(value))
        assert (row["type"], row["version"]) == (expected["type"], expected["version"])
        assert (row["data"], row["error"]) == (json_text(expected["data"]), None)


@pytest.mark.parametrize("seed", range(4))
def test_typed_columns_hold_the_fields(seed: int) -> None:
    made = arbitrary.records(random.Random(seed), 400)
    data = log_of([[(None, encode(record, version)) for record, version in made]])
    for cls in RECORD_TYPES.values():
        batch = rows(cls.TYPE, framing.whole(data), HERE, 0, OFFSET_MAX)
        batch.validate(full=True)
        assert batch.schema == layer_schema(cls.TYPE)
        mine = [decode(encode(r, version)) for r, version in made if type(r) is cls]
        for spec in cls.FIELDS:
            found = batch.column(column_name(spec)).to_pylist()
            assert found == [plain(getattr(record, spec.name)) for record in mine]


def plain(value: object) -> object:
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if hasattr(value, "FIELDS"):
        return {spec.json_name: plain(getattr(value, spec.name)) for spec in value.FIELDS}
    return value


def alike(rng: random.Random, count: int) -> list[bytes]:
    """Values of records of few shapes: a record with some of its fields exchanged for others'."""
    cls, version = rng.choice(arbitrary.VERSIONS)
    pool = [arbitrary.of(rng, cls, version) for _ in range(9)]
    bases = [encode(record, version) for record in pool[:3]]
    values: list[bytes] = []
    for _ in range(count):
        record = rng.choice(pool[:3])
        for spec in rng.choices(cls.FIELDS, k=rng.randrange(3)) if cls.FIELDS else ():
            record = dataclasses.replace(
                record, **{spec.name: getattr(rng.choice(pool), spec.name)}
            )
        values.append(encode(record, version) if rng.random() < 0.8 else rng.choice(bases))
    return values


@pytest.mark.parametrize("seed", range(40))
def test_records_that_look_alike_are_what_decoding_one_by_one_says(seed: int) -> None:
    rng = random.Random(seed)
    values = alike(rng, 300)
    if seed % 2:
        for at in rng.sample(range(len(values)), 40):
            value = bytearray(values[at])
            for _ in range(rng.randint(1, 2)):
                value[rng.randrange(3, len(value))] = rng.randrange(256)
            values[at] = bytes(value[: rng.choice((len(value), rng.randint(3, len(value))))])
    found = ledger(log_of([[(None, value) for value in values]]))
    for row, value in zip(found, values, strict=True):
        assert (row["data"], row["error"]) == one_by_one(value)


def test_every_byte_as_zero_is_told_as_decoding_one_by_one_does() -> None:
    """Nulls where none may be among them: a length of zero."""
    rng = random.Random(4)
    values = []
    for cls, version in arbitrary.VERSIONS:
        value = encode(arbitrary.of(rng, cls, version), version)[:300]
        values += [value[:at] + b"\0" + value[at + 1 :] for at in range(3, len(value))]
    refused = 0
    for row, value in zip(
        ledger(log_of([[(None, value) for value in values]])), values, strict=True
    ):
        told = one_by_one(value)
        refused += told[0] is None
        assert (row["data"], row["error"]) == told
    assert refused > 100


def test_runs_of_records_of_one_size_and_others() -> None:
    rng = random.Random(8)
    batches = []
    for _ in range(40):
        batch: list[tuple[bytes | None, bytes | None]] = []
        for _ in range(rng.randint(1, 40)):
            value = rng.randbytes(rng.choice((0, 3, 56, 57, 60, 120, 9000, 20000)))
            batch += [(None, value)] * rng.choice((1, 2, 5, 70, 200))
        batches.append(batch)
    found = ledger(log_of(batches))
    assert [row["value"] for row in found] == [
        None if row["type"] != "OPAQUE" else value
        for row, (_, value) in zip(found, (r for b in batches for r in b), strict=True)
    ]


def one_by_one(value: bytes) -> tuple[str | None, str | None]:
    try:
        return json_text(to_json(decode(value))["data"]), None
    except RecordsError as error:
        return None, str(error)


def test_hostile_values_are_told_and_hurt_no_others() -> None:
    rng = random.Random(5)
    good = encode(TopicRecord("a", "q4-87cwrTP20I1r4Xtfj7g"))
    values = [good]
    for record, version in arbitrary.records(rng, 600):
        value = bytearray(encode(record, version))
        for _ in range(rng.randint(1, 3)):
            value[rng.randrange(3, len(value))] = rng.randrange(256)
        values += [bytes(value[: rng.randint(3, len(value))]), good]
    found = ledger(log_of([[(None, value) for value in values]]))
    refused = 0
    for row, value in zip(found, values, strict=True):
        told = one_by_one(value)
        refused += told[0] is None
        assert (row["data"], row["error"]) == told
    assert refused > 100


@pytest.mark.parametrize("seed", range(5))
def test_hostile_bytes_end_in_a_typed_error_or_in_rows(seed: int) -> None:
    rng = random.Random(seed)
    whole = log_of([[(None, encode(NoOpRecord()))] * 5, [(b"k", b"v")] * 3] * 40)
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data))
            noise = rng.randbytes(rng.randint(1, 12))
            data[at : at + len(noise)] = noise[: len(data) - at]
        chunk = framing.whole(bytes(data))
        with contextlib.suppress(DamagedError):
            rows(LEDGER, chunk, HERE, 0, OFFSET_MAX, verify=False).validate(full=True)


def test_application_data_keeps_key_and_value() -> None:
    found = ledger(log_of([[(b"k", b"v"), (b"", b""), (None, encode(NoOpRecord())), (b"k", None)]]))
    assert [(r["type"], r["key"], r["value"]) for r in found] == [
        ("OPAQUE", b"k", b"v"),
        ("OPAQUE", b"", b""),
        ("NO_OP_RECORD", None, None),
        ("OPAQUE", b"k", None),
    ]


def test_application_data_of_a_checkpoint_has_the_offsets_of_the_log() -> None:
    data = bytearray(log_of([[(None, encode(NoOpRecord()))] * 2]))
    # Release 0.1.0 copies batches of producer sessions as they are in the log.
    of_session = BatchProducer(1_000, 0, 7)
    for place, base, count in ((2, 40, 2), (4, None, 1), (5, 70, 1)):
        producer = of_session if base is None else NO_PRODUCER
        batch = build_data_batch([(b"", b"v")] * count, 1_795_231_990_458, producer)
        if base is not None:
            keep_base_offset(batch, base)
        stamp(batch, place, 3)
        data += batch
    for origin, wanted in (
        (ChunkOrigin("1-x", "checkpoint", 100), [0, 1, 40, 41, None, 70]),
        (HERE, [0, 1, 2, 3, 4, 5]),
    ):
        found = rows(LEDGER, framing.whole(bytes(data)), origin, 0, OFFSET_MAX)
        found.validate(full=True)
        assert found.column("offset").to_pylist() == wanted


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


def test_many_batches_of_different_sizes() -> None:
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
        assert len(names) == len(set(names)) == 7 + len(cls.FIELDS)
