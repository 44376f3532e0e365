"""Converts a chunk of batches to the rows of a layer: Arrow record batches of the schemas below.

- `batches`: one row per batch, from headers and checksums alone;
- `ledger`: one row per record, decoded, with its fields as JSON;
- `raw`: the bytes of the chunk in one row, for the functions `batches` and `ledger` of `layers`;
- a record type's name: one row per record of that type, with its fields as typed columns.

If a record cannot be decoded, its row in the ledger has the reason in `error`, and reading
continues, as in Kafka's dump tool. Snapshots have their own offsets: `snapshot` is the end offset
of a row's checkpoint, null for rows of the log. For application records in a checkpoint, the ledger
shows the offset in the log (`BatchHeader.log_base_offset`), null if it is unknown.

The last column of each layer is `committed`: true if the record, or the whole batch, is certainly
committed, else null, for unknown (see `committed`). Everything in a checkpoint is committed. In the
layer `raw`, whose rows contain many records, the column is `committed_end`: the offset before which
the records are committed. Of several clusters (the source's option `clusters`), another column
follows it: `cluster`, the cluster's id.

Sources: `framing`, `envelope`, `rendering`, `fields`; record types from `records.metadata`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quorate.common.batch_layout import NO_SEQUENCE
from quorate.records.control import TYPE_NAMES as CONTROL_NAMES
from quorate.records.control import control_json, control_type, decode_control
from quorate.records.errors import RecordsError
from quorate.records.metadata import (
    API_KEYS,
    RECORD_TYPES,
    MetadataRecord,
    UnknownRecord,
    decode,
    json_text,
    to_json,
    type_name,
)
from quorate.records.metadata.schema import FieldSpec, Kind, Structure
from quorate.spark.decoding import kernels
from quorate.spark.decoding.envelope import Records, damaged, read_records
from quorate.spark.decoding.fields import arrow_type, decode_group, is_flat, slices
from quorate.spark.decoding.framing import Chunk, Ints, Mask
from quorate.spark.decoding.rendering import render
from quorate.spark.errors import DamagedError

OPAQUE = "OPAQUE"
"""The type of application data: a record with a key or without a valid metadata frame."""

TIME = pa.timestamp("us", tz="UTC")

BATCHES_SCHEMA = pa.schema(
    [
        ("replica", pa.string()),
        ("snapshot", pa.int64()),
        ("base_offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("records", pa.int32()),
        ("epoch", pa.int32()),
        ("is_control", pa.bool_()),
        ("base_timestamp", TIME),
        ("max_timestamp", TIME),
        ("attributes", pa.int32()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int32()),
        ("base_sequence", pa.int32()),
        ("crc", pa.int64()),
        ("crc_valid", pa.bool_()),
        ("file", pa.string()),
        ("position", pa.int64()),
        ("size", pa.int32()),
        ("committed", pa.bool_()),
    ]
)
LEDGER_SCHEMA = pa.schema(
    [
        ("replica", pa.string()),
        ("snapshot", pa.int64()),
        ("offset", pa.int64()),
        ("epoch", pa.int32()),
        ("timestamp", TIME),
        ("is_control", pa.bool_()),
        ("type", pa.string()),
        ("version", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("data", pa.string()),
        ("error", pa.string()),
        ("committed", pa.bool_()),
    ]
)
RAW_SCHEMA = pa.schema(
    [
        ("replica", pa.string()),
        ("snapshot", pa.int64()),
        ("file", pa.string()),
        ("position", pa.int64()),
        ("data", pa.binary()),
        ("committed_end", pa.int64()),
    ]
)
_TYPE_NAMES = (OPAQUE, *API_KEYS)
_TYPE_CODES = np.zeros(max(RECORD_TYPES) + 2, np.int32)
"""The index in `_TYPE_NAMES` by api key + 1. Entry 0 is for records without an api key."""
_TYPE_CODES[np.array(list(API_KEYS.values())) + 1] = np.arange(1, len(_TYPE_NAMES))
_TYPED_HEAD = [LEDGER_SCHEMA.field(i) for i in range(5)] + [LEDGER_SCHEMA.field("version")]
_COMMITTED = LEDGER_SCHEMA.field("committed")

CLUSTER = "cluster"
CLUSTER_FIELD = pa.field(CLUSTER, pa.string())

BATCHES, LEDGER, RAW = "batches", "ledger", "raw"
LAYERS = (BATCHES, LEDGER, RAW, *API_KEYS)


def layer_schema(layer: str, *, has_cluster: bool = False) -> pa.Schema:
    """The columns of a layer or a record type, by name. Raises KeyError for an unknown name."""
    fixed = {BATCHES: BATCHES_SCHEMA, LEDGER: LEDGER_SCHEMA, RAW: RAW_SCHEMA}.get(layer)
    found = typed_schema(RECORD_TYPES[API_KEYS[layer]]) if fixed is None else fixed
    return found.append(CLUSTER_FIELD) if has_cluster else found


def typed_schema(cls: type[MetadataRecord]) -> pa.Schema:
    """The columns of a record type: the position in the log, the record's own, `committed`."""
    fields = [pa.field(column_name(spec), arrow_type(spec)) for spec in cls.FIELDS]
    return pa.schema([*_TYPED_HEAD, *fields, _COMMITTED])


def column_name(spec: FieldSpec) -> str:
    """Kafka's name of a field, with the prefix `field_` if it collides with a common column."""
    taken = any(field.name == spec.json_name for field in (*_TYPED_HEAD, _COMMITTED))
    return f"field_{spec.json_name}" if taken else spec.json_name


@dataclass(frozen=True, slots=True)
class ChunkOrigin:
    """Where a chunk comes from. replica: "id-directoryId" or a name; snapshot: its end offset.

    committed_end: the offset before which the records of the log are certainly committed. cluster:
    the value of the rows' last column, `cluster`; None for rows without it.
    """

    replica: str
    file: str
    snapshot: int | None = None
    committed_end: int = 0
    cluster: str | None = None


def rows(
    layer: str, chunk: Chunk, origin: ChunkOrigin, start: int, end: int, *, verify: bool = True
) -> pa.RecordBatch:
    """A chunk's rows with offsets in [start, end), as one RecordBatch."""
    found = _rows(layer, chunk, origin, start, end, verify=verify)
    if origin.cluster is None:
        return found
    names = pa.repeat(pa.scalar(origin.cluster, CLUSTER_FIELD.type), found.num_rows)
    schema = layer_schema(layer, has_cluster=True)
    return pa.RecordBatch.from_arrays([*found.columns, names], schema=schema)


def _rows(
    layer: str, chunk: Chunk, origin: ChunkOrigin, start: int, end: int, *, verify: bool
) -> pa.RecordBatch:
    if layer == BATCHES:
        return batch_rows(_overlapping(chunk, start, end), origin)
    if layer == RAW:
        return raw_rows(chunk, origin)
    records = records_between(chunk, origin, start, end, verify=verify)
    if layer == LEDGER:
        return ledger_rows(records, origin)
    return typed_rows(RECORD_TYPES[API_KEYS[layer]], records, origin)


def records_between(
    chunk: Chunk, origin: ChunkOrigin, start: int, end: int, *, verify: bool = True
) -> Records:
    """A chunk's records with offsets in [start, end). Raises DamagedError for a damaged chunk."""
    chunk = _overlapping(chunk, start, end)
    try:
        if verify:
            _verify(chunk)
        records = read_records(chunk)
    except DamagedError as error:
        raise DamagedError(f"{origin.file}: {error.reason}") from None
    inside = (records.offset >= start) & (records.offset < end)
    return records if inside.all() else records.select(inside)


def _overlapping(chunk: Chunk, start: int, end: int) -> Chunk:
    keep = (chunk.last_offsets >= start) & (chunk.headers["base_offset"] < end)
    return chunk if keep.all() else chunk.select(keep)


def _verify(chunk: Chunk) -> None:
    valid = chunk.crc_valid()
    if not valid.all():
        raise damaged(chunk, int(np.argmax(~valid)), "the checksum is wrong")


def _native(values: Any, form: Any) -> pa.Array:
    return pa.array(values.astype(form))


def _repeat(value: Any, kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)


def _timestamps(milliseconds: Ints) -> pa.Array:
    """Convert to Spark's timestamps in microseconds; null for negative or too large values."""
    fits = (milliseconds >= 0) & (milliseconds < 1 << 53)
    micros = np.where(fits, milliseconds, 0) * 1000
    return pa.array(micros, mask=~fits).cast(TIME)


def _committed(offsets: Ints, origin: ChunkOrigin) -> pa.Array:
    """True for offsets that are certainly committed, else null."""
    if origin.snapshot is not None:
        return _repeat(True, pa.bool_(), len(offsets))
    is_committed = offsets < origin.committed_end
    return pa.array(is_committed, mask=~is_committed)


def batch_rows(chunk: Chunk, origin: ChunkOrigin) -> pa.RecordBatch:
    h = chunk.headers
    count = len(h)
    columns = [
        _repeat(origin.replica, pa.string(), count),
        _repeat(origin.snapshot, pa.int64(), count),
        _native(h["base_offset"], np.int64),
        pa.array(chunk.last_offsets),
        _native(h["count"], np.int32),
        _native(h["epoch"], np.int32),
        pa.array(chunk.is_control),
        _timestamps(h["base_timestamp"].astype(np.int64)),
        _timestamps(h["max_timestamp"].astype(np.int64)),
        _native(h["attributes"], np.int32),
        _native(h["producer_id"], np.int64),
        _native(h["producer_epoch"], np.int32),
        _native(h["base_sequence"], np.int32),
        _native(h["crc"], np.int64),
        pa.array(chunk.crc_valid()),
        _repeat(origin.file, pa.string(), count),
        pa.array(chunk.starts + chunk.file_position),
        pa.array((chunk.ends - chunk.starts).astype(np.int32)),
        _committed(chunk.last_offsets, origin),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=BATCHES_SCHEMA)


def raw_rows(chunk: Chunk, origin: ChunkOrigin) -> pa.RecordBatch:
    bounds = pa.py_buffer(np.array([0, chunk.size], np.int32))
    data = pa.BinaryArray.from_buffers(pa.binary(), 1, [None, bounds, pa.py_buffer(chunk.buffer)])
    columns = [
        pa.array([origin.replica], pa.string()),
        pa.array([origin.snapshot], pa.int64()),
        pa.array([origin.file], pa.string()),
        pa.array([chunk.file_position], pa.int64()),
        data,
        pa.array([origin.committed_end], pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RAW_SCHEMA)


def read_frames(records: Records) -> Ints:
    """Read the frame of each record: the rows `kernels.KIND`, `MESSAGE_AT` and `MESSAGE_END`."""
    found = np.empty((3, len(records)), np.int64)
    kernels.read_frames(records.data.ctypes.data, records.found, records.chunk.is_control, found)
    return found


def ledger_rows(records: Records, origin: ChunkOrigin) -> pa.RecordBatch:
    """One row per record."""
    count = len(records)
    frames = read_frames(records)
    kind = frames[kernels.KIND]
    data, is_written = render(records.data, frames)
    types = _TYPE_CODES.take((kind >> 16) + 1, mode="clip")
    error = pa.nulls(count, pa.string())
    names = _TYPE_NAMES
    others = np.flatnonzero(~is_written & (kind != kernels.OPAQUE))
    if len(others):
        found = [_one_by_one(records, int(kind[row]), row) for row in others.tolist()]
        data = _replaced(data, others, [text for _, text, _ in found])
        error = _replaced(error, others, [error for *_, error in found])
        names += tuple(sorted({name for name, *_ in found} - set(names)))
        number_of = {name: number for number, name in enumerate(names)}
        types[others] = [number_of[name] for name, *_ in found]
    batch = records.batch
    columns = [
        _repeat(origin.replica, pa.string(), count),
        _repeat(origin.snapshot, pa.int64(), count),
        _log_offsets(records, origin, kind == kernels.OPAQUE),
        _native(records.chunk.headers["epoch"], np.int32).take(pa.array(batch)),
        _timestamps(records.timestamp),
        pa.array(records.chunk.is_control[batch]),
        pa.array(names, pa.string()).take(pa.array(types)),
        pa.array((kind & 0xFFFF).astype(np.int32), mask=kind < 0),
        _keys(records),
        _opaque_values(records, kind == kernels.OPAQUE),
        data,
        error,
        _committed(records.offset, origin),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=LEDGER_SCHEMA)


def _log_offsets(records: Records, origin: ChunkOrigin, is_opaque: Mask) -> pa.Array:
    """Each record's offset; for application records in a checkpoint, the offset in the log."""
    if origin.snapshot is None or not is_opaque.any():
        return pa.array(records.offset)
    base = records.chunk.headers["base_offset"].astype(np.int64)
    # See `BatchHeader.log_base_offset`.
    is_kept = records.chunk.headers["base_sequence"] == NO_SEQUENCE
    log_base = np.where(is_kept, records.chunk.headers["producer_id"].astype(np.int64), -1)
    moved = records.offset + (log_base - base)[records.batch]
    is_unknown = is_opaque & (log_base < 0)[records.batch]
    return pa.array(np.where(is_opaque, moved, records.offset), mask=is_unknown)


def _replaced(column: pa.Array, rows: Ints, texts: list[str | None]) -> pa.Array:
    """Replace the texts of a few rows of a column."""
    others = pa.array(texts, pa.string())
    if others.null_count == len(others) and column.null_count == len(column):
        return column
    pieces = []
    begin = 0
    for number, row in enumerate(rows.tolist()):
        pieces += [column.slice(begin, row - begin), others.slice(number, 1)]
        begin = row + 1
    return pa.concat_arrays([*pieces, column.slice(begin)])


def _keys(records: Records) -> pa.Array:
    """The keys of data records. A control record's key only repeats its type."""
    shown = (records.key_size >= 0) & ~records.chunk.is_control[records.batch]
    return _some(records, shown, records.key_at, records.key_size)


def _opaque_values(records: Records, shown: Mask) -> pa.Array:
    """The values of opaque records, which no other column shows."""
    shown = shown & (records.value_size >= 0)
    return _some(records, shown, records.value_at, records.value_size)


def _some(records: Records, shown: Mask, at: Ints, size: Ints) -> pa.Array:
    if not shown.any():
        return pa.nulls(len(records), pa.binary())
    values = slices(records.data, at, np.maximum(size, 0))
    if shown.all():
        return values
    return pc.if_else(pa.array(shown), values, pa.scalar(None, pa.binary()))


def _one_by_one(records: Records, kind: int, row: int) -> tuple[str, str | None, str | None]:
    """A record's type, JSON and error."""
    if kind == kernels.CONTROL:
        return _control(records.key(row), records.value(row))
    name = type_name(kind >> 16)
    try:
        return name, json_text(to_json(decode(records.value(row) or b""))["data"]), None
    except RecordsError as error:
        return name, None, str(error)


def _control(key: bytes | None, value: bytes | None) -> tuple[str, str | None, str | None]:
    name = "UNKNOWN_CONTROL"
    try:
        kind = control_type(key)
        name = CONTROL_NAMES.get(kind, f"UNKNOWN_CONTROL_{kind}")
        content = control_json(decode_control(key, value))
        return name, json.dumps(content, separators=(",", ":")), None
    except RecordsError as error:
        return name, None, str(error)


@dataclass(slots=True)
class _Parts:
    """Columns of groups of rows, to be merged in record order. A None column is all nulls."""

    kinds: list[pa.DataType]
    rows: list[Ints]
    columns: list[list[pa.Array | None]]

    @classmethod
    def of(cls, kinds: list[pa.DataType]) -> _Parts:
        return cls(kinds, [], [[] for _ in kinds])

    def add(self, rows: Ints, *columns: pa.Array | None) -> None:
        self.rows.append(rows)
        for place, column in zip(self.columns, columns, strict=True):
            place.append(column)

    def together(self, count: int) -> list[pa.Array]:
        order = np.empty(count, np.int64)
        order[np.concatenate(self.rows)] = np.arange(count)
        places = None if len(self.rows) == 1 else pa.array(order)
        return [
            self._column(kind, parts, places, count)
            for kind, parts in zip(self.kinds, self.columns, strict=True)
        ]

    def _column(
        self, kind: pa.DataType, parts: list[pa.Array | None], places: pa.Array, count: int
    ) -> pa.Array:
        if all(part is None for part in parts):
            return pa.nulls(count, kind)
        whole = [
            pa.nulls(len(rows), kind) if part is None else part
            for rows, part in zip(self.rows, parts, strict=True)
        ]
        return whole[0] if places is None else pa.concat_arrays(whole).take(places)


def typed_rows(cls: type[MetadataRecord], records: Records, origin: ChunkOrigin) -> pa.RecordBatch:
    """One row per record of the type, in any version. Raises DamagedError if one is undecodable."""
    frames = read_frames(records)
    kind = frames[kernels.KIND]
    wanted = kind >> 16 == cls.API_KEY
    schema = typed_schema(cls)
    if not wanted.any():
        return pa.RecordBatch.from_pylist([], schema=schema)
    parts = _Parts.of([arrow_type(spec) for spec in cls.FIELDS])
    for key in np.unique(kind[wanted]).tolist():
        mine = np.flatnonzero(kind == key)
        version = key & 0xFFFF
        columns: list[pa.Array] | None = None
        if is_flat(cls) and cls.VERSIONS.min <= version <= cls.VERSIONS.max:
            ends = frames[kernels.MESSAGE_END][mine]
            group = decode_group(cls, version, records.data, frames[kernels.MESSAGE_AT][mine], ends)
            if not group.irregular.any():
                columns = [column.array(len(mine)) for column in group.columns]
        if columns is None:
            columns = _objects(cls, records, mine, origin)
        parts.add(mine, *columns)
    chosen = np.flatnonzero(wanted)
    ranks = np.cumsum(wanted) - 1
    parts.rows = [ranks[rows] for rows in parts.rows]
    batch = records.batch[chosen]
    count = len(chosen)
    head = [
        _repeat(origin.replica, pa.string(), count),
        _repeat(origin.snapshot, pa.int64(), count),
        pa.array(records.offset[chosen]),
        _native(records.chunk.headers["epoch"][batch], np.int32),
        _timestamps(records.timestamp[chosen]),
        _native(kind[chosen] & 0xFFFF, np.int32),
    ]
    tail = _committed(records.offset[chosen], origin)
    return pa.RecordBatch.from_arrays([*head, *parts.together(count), tail], schema=schema)


def _objects(
    cls: type[MetadataRecord], records: Records, mine: Ints, origin: ChunkOrigin
) -> list[pa.Array]:
    """Columns of records that are decoded one by one."""
    found: list[MetadataRecord] = []
    for row in mine.tolist():
        offset = records.offset[row]
        try:
            record = decode(records.value(row) or b"")
        except RecordsError as error:
            raise DamagedError(f"{origin.file}: offset {offset}: {error}") from None
        if isinstance(record, UnknownRecord):
            text = f"{cls.TYPE} version {record.version} at offset {offset} is unknown"
            raise DamagedError(f"{origin.file}: {text}")
        found.append(record)
    return [
        pa.array([_plain(spec, getattr(record, spec.name)) for record in found], arrow_type(spec))
        for spec in cls.FIELDS
    ]


def _plain(spec: FieldSpec, value: Any) -> Any:
    """Convert a decoded value to a form that Arrow accepts."""
    if value is None or isinstance(spec.kind, Kind):
        return list(value) if isinstance(value, tuple) else value
    return [_struct(one) for one in value] if spec.is_array else _struct(value)


def _struct(value: Structure) -> dict[str, Any]:
    return {s.json_name: _plain(s, getattr(value, s.name)) for s in value.FIELDS}
