"""Metadata records as columns: decodes all records of one type and version in a chunk at once.

1. Each record has a cursor. Each step reads one field of all records, in declaration order:
   fixed-size values by a strided gather, lengths as varints, lists and strings as ranges that are
   gathered once all of them are known.
2. For tagged fields, step n reads the n-th tag of all records that have one. It stores the position
   of a known tag, from which the field is then read as in 1, and skips an unknown tag.
3. A record is marked if its cursor does not end at the end of its value, or if it violates the
   declaration. `records.metadata` decodes marked records one by one and reports their errors.

Types with nested structures or lists of strings (registrations, quotas, tokens) are rare and always
decoded one by one.

Source: KIP-482, KIP-631, the declarations in `records.metadata`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from quorate.records.metadata.decoding import STRING_BYTES_MAX
from quorate.records.metadata.schema import FieldSpec, Kind, MetadataRecord
from quorate.spark.decoding.framing import Bytes, Ints, Mask

FIXED: dict[Kind, tuple[str, int]] = {
    Kind.BOOL: ("u1", 1),
    Kind.INT8: ("i1", 1),
    Kind.INT16: (">i2", 2),
    Kind.UINT16: (">u2", 2),
    Kind.INT32: (">i4", 4),
    Kind.INT64: (">i8", 8),
    Kind.FLOAT64: (">f8", 8),
    Kind.UUID: ("V16", 16),
}
"""The form and the width of the kinds of fixed size."""
_ARROW: dict[Kind, pa.DataType] = {
    Kind.BOOL: pa.bool_(),
    Kind.INT8: pa.int32(),
    Kind.INT16: pa.int32(),
    Kind.UINT16: pa.int32(),
    Kind.INT32: pa.int32(),
    Kind.INT64: pa.int64(),
    Kind.FLOAT64: pa.float64(),
    Kind.STRING: pa.string(),
    Kind.BYTES: pa.binary(),
    Kind.UUID: pa.string(),
}
UUID_CHARACTERS = 22

_ALPHABET = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", np.uint8
)
_PAIRS_OF = np.stack([np.repeat(_ALPHABET, 64), np.tile(_ALPHABET, 64)], axis=1)
_PAIRS_OF = np.ascontiguousarray(_PAIRS_OF).view(np.uint16).ravel()
"""The two base64 characters for each 12-bit value, as one uint16."""

NULL = -1
_VARINT_BYTES_MAX = 10


def arrow_type(spec: FieldSpec) -> pa.DataType:
    """The Arrow type of a field. Nested fields have Kafka's names."""
    if isinstance(spec.kind, Kind):
        one = _ARROW[spec.kind]
    else:
        one = pa.struct(
            [pa.field(inner.json_name, arrow_type(inner)) for inner in spec.kind.FIELDS]
        )
    return pa.list_(pa.field("element", one)) if spec.is_array else one


def is_flat(cls: type[MetadataRecord]) -> bool:
    """Whether the type is decoded in columns: no nested structures, no string or bytes lists."""
    return all(
        isinstance(spec.kind, Kind)
        and not (spec.is_array and spec.kind in (Kind.STRING, Kind.BYTES))
        for spec in cls.FIELDS
    )


def uuid_texts(raw: npt.NDArray[np.uint8]) -> pa.Array:
    """n x 16 bytes as url-safe base64."""
    count = len(raw)
    wide = np.ascontiguousarray(raw.T).astype(np.uint16)
    pairs = np.empty((UUID_CHARACTERS // 2, count), np.uint16)
    for group in range(5):
        first, second, third = wide[3 * group : 3 * group + 3]
        _PAIRS_OF.take((first << 4) | (second >> 4), out=pairs[2 * group], mode="clip")
        _PAIRS_OF.take(((second & 0xF) << 8) | third, out=pairs[2 * group + 1], mode="clip")
    _PAIRS_OF.take(wide[15] << 4, out=pairs[10], mode="clip")
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(UUID_CHARACTERS)
    characters = np.ascontiguousarray(pairs.T)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(characters))


@dataclass(slots=True)
class Column:
    """One field of all records. values: an Arrow array without gaps (for a list: its elements).

    sizes: the length of each record's list, None for a single value. present: which records have
    the field on the wire, None for all; the others have the default. nulls: which of the fields on
    the wire are null.
    """

    spec: FieldSpec
    values: Any
    sizes: Ints | None = None
    present: Mask | None = None
    nulls: Mask | None = None

    def array(self, count: int) -> pa.Array:
        """The field as a column of its type, with defaults filled in."""
        values = self.values
        wanted = arrow_type(self.spec)
        if self.sizes is not None:
            values = _lists(values, self.sizes, self.nulls, wanted)
        elif self.nulls is not None and self.nulls.any():
            values = pc.if_else(pa.array(~self.nulls), values, pa.scalar(None, values.type))
        if self.present is None:
            return values
        return expand(values, self.present, _default(self.spec), count)


def _lists(values: pa.Array, sizes: Ints, nulls: Mask | None, wanted: pa.DataType) -> pa.Array:
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    mask = None if nulls is None or not nulls.any() else pa.array(nulls)
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=wanted, mask=mask)


def expand(values: pa.Array, present: Mask, default: pa.Scalar, count: int) -> pa.Array:
    """Spread `values` over the rows in `present`, with the default in the other rows."""
    if not len(values):
        return pa.repeat(default, count)
    both = pa.concat_arrays([values, pa.array([default.as_py()], values.type)])
    return both.take(pa.array(np.where(present, np.cumsum(present) - 1, len(values))))


def _default(spec: FieldSpec) -> pa.Scalar:
    value = spec.default
    return pa.scalar(list(value) if isinstance(value, tuple) else value, arrow_type(spec))


@dataclass(slots=True)
class Group:
    """Decoded records of one type and version. irregular: those to be decoded one by one."""

    columns: list[Column]
    irregular: Mask


def varints(data: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """Read an unsigned varint of up to 64 bits at each position; return values and their ends."""
    first = data[at]
    value = (first & 0x7F).astype(np.int64)
    after = at + 1
    longer = np.flatnonzero(first >= 0x80)
    shift = 7
    while len(longer):
        byte = data[after[longer]]
        value[longer] |= (byte & 0x7F).astype(np.int64) << shift
        after[longer] += 1
        longer = longer[byte >= 0x80]
        shift += 7
        if shift >= 7 * _VARINT_BYTES_MAX:
            break
    return value, after


class _Cursor:
    """The read position in each record. `bad` marks malformed records."""

    def __init__(self, data: Bytes, at: Ints, ends: Ints) -> None:
        self.data = data
        self.at = at
        self.ends = ends
        self.bad = np.zeros(len(at), np.bool_)

    def advance(self, to: Ints) -> None:
        passed = to > self.ends
        self.bad |= passed
        self.at = np.where(passed, self.ends, to)

    def varint(self) -> Ints:
        value, after = varints(self.data, self.at)
        self.bad |= value >> 32 != 0
        self.advance(after)
        return value

    def length(self, width: int) -> tuple[Ints, Ints]:
        """Read a compact length and skip its content; return the size or NULL, and the start."""
        size = self.varint() - 1
        begin = self.at
        too_long = size * width > self.ends - begin
        self.bad |= too_long
        size = np.where(too_long, 0, size)
        self.advance(begin + np.maximum(size, 0) * width)
        return size, begin


def gather(data: Bytes, at: Ints, form: str, width: int) -> npt.NDArray[Any]:
    """Read a fixed-size value at each position. Padding allows the last one to pass the end."""
    windows: npt.NDArray[Any] = np.ndarray((len(data) - width + 1,), form, data, 0, (1,))
    return windows[at]


def slices(data: Bytes, at: Ints, sizes: Ints) -> pa.Array:
    """Ranges of the buffer as one binary column. Their positions must increase."""
    count = len(at)
    if not count:
        return pa.array([], pa.binary())
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = at
    bounds[1::2] = at + np.maximum(sizes, 0)
    # `both` alternates between the ranges and the gaps between them. Take every other entry.
    both = pa.BinaryArray.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )
    return both.take(pa.array(np.arange(0, 2 * count, 2)))


def _flat_positions(at: Ints, sizes: Ints, width: int) -> Ints:
    """The position of each element of lists that begin at `at`."""
    total = int(sizes.sum())
    before = np.cumsum(sizes) - sizes
    index = np.arange(total) - np.repeat(before, sizes)
    found: Ints = np.repeat(at, sizes) + index * width
    return found


def decode_group(
    cls: type[MetadataRecord], version: int, data: Bytes, at: Ints, ends: Ints
) -> Group:
    """Decode the fields of records between `at` (after the frame) and `ends`."""
    cursor = _Cursor(data, at, ends)
    columns: dict[str, Column] = {}
    absent = np.zeros(len(at), np.bool_)
    tagged: list[FieldSpec] = []
    for spec in cls.FIELDS:
        if not spec.exists_in(version):
            columns[spec.name] = Column(spec, pa.array([], arrow_type(spec)), present=absent)
        elif spec.tag is None:
            columns[spec.name] = _read(spec, cursor)
        else:
            tagged.append(spec)
    positions = _tags(cls, tagged, cursor)
    for spec in tagged:
        found, stops = positions[spec.name]
        present = found >= 0
        rows = np.flatnonzero(present)
        if not len(rows):
            columns[spec.name] = Column(spec, pa.array([], arrow_type(spec)), present=absent)
            continue
        inner = _Cursor(data, found[rows], stops[rows])
        column = _read(spec, inner)
        column.present = None if present.all() else present
        columns[spec.name] = column
        cursor.bad[rows] |= inner.bad | (inner.at != inner.ends)
    irregular = cursor.bad | (cursor.at != ends)
    return Group([columns[spec.name] for spec in cls.FIELDS], irregular)


def _tags(
    cls: type[MetadataRecord], tagged: list[FieldSpec], cursor: _Cursor
) -> dict[str, tuple[Ints, Ints]]:
    """The start and end of each tagged field in each record. The start of an absent one is -1."""
    count = len(cursor.at)
    found = {
        spec.name: (np.full(count, NULL, np.int64), np.zeros(count, np.int64)) for spec in tagged
    }
    numbers = {spec.tag: spec.name for spec in tagged}
    later = [spec.tag for spec in cls.FIELDS if spec.tag is not None and spec.tag not in numbers]
    left = cursor.varint()
    last = np.full(count, NULL, np.int64)
    rows = np.flatnonzero((left > 0) & ~cursor.bad)
    while len(rows):
        inner = _Cursor(cursor.data, cursor.at[rows], cursor.ends[rows])
        tag = inner.varint()
        size = inner.varint()
        begin = inner.at
        inner.advance(begin + size)
        inner.bad |= (tag <= last[rows]) | np.isin(tag, later)
        last[rows] = tag
        for number, name in numbers.items():
            here = rows[tag == number]
            where, stops = found[name]
            where[here] = begin[tag == number]
            stops[here] = inner.at[tag == number]
        cursor.at[rows] = inner.at
        cursor.bad[rows] |= inner.bad
        left[rows] -= 1
        rows = rows[(left[rows] > 0) & ~inner.bad]
    return found


def _read(spec: FieldSpec, cursor: _Cursor) -> Column:
    """Read one field of all records at the cursor."""
    kind = spec.kind
    assert isinstance(kind, Kind)
    is_fixed = kind in FIXED
    width = FIXED[kind][1] if is_fixed else 1
    if is_fixed and not spec.is_array:
        at = cursor.at
        cursor.advance(at + width)
        return Column(spec, _values(kind, cursor.data, np.minimum(at, cursor.ends)))
    sizes, begin = cursor.length(width)
    nulls = sizes < 0
    if not spec.nullable:
        cursor.bad |= nulls
    if is_fixed:
        sizes = np.maximum(sizes, 0)
        values = _values(kind, cursor.data, _flat_positions(begin, sizes, width))
        return Column(spec, values, sizes, None, nulls)
    assert not spec.is_array, spec
    values = slices(cursor.data, begin, sizes)
    if kind is Kind.STRING:
        cursor.bad |= sizes > STRING_BYTES_MAX
        values = _utf8(values, cursor.bad)
    return Column(spec, values, None, None, nulls)


def _values(kind: Kind, data: Bytes, at: Ints) -> Any:
    form, width = FIXED[kind]
    values = gather(data, at, form, width)
    if kind is Kind.UUID:
        return uuid_texts(np.ascontiguousarray(values).view(np.uint8).reshape(len(at), width))
    if kind is Kind.BOOL:
        return pa.array(values != 0)
    if kind is Kind.FLOAT64:
        return pa.array(values.astype(np.float64))
    return pa.array(values.astype(np.int64 if kind is Kind.INT64 else np.int32))


def _utf8(values: pa.Array, bad: Mask) -> pa.Array:
    """Convert to strings. Records with invalid UTF-8 are marked in `bad` and get empty strings."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts: list[str] = []
        for row, value in enumerate(values.to_pylist()):
            try:
                texts.append(value.decode("utf-8"))
            except UnicodeDecodeError:
                bad[row] = True
                texts.append("")
        return pa.array(texts, pa.string())
