"""Records that look alike as JSON: each distinct part of them is made once, not once a record.

A log repeats itself: thousands of records of a type have their fields at the same places, and most
fields have few values. So, of the records of one type, version and size:

1. Their bytes become a matrix, a record a row. The first row is walked field by field. Where the
   rows have the same bytes at the places that say how long things are (lengths, counts and numbers
   of tags), all have their fields where the first one has them. Others wait for their own round.
2. Fields that are the same in all rows are text once. The others form groups of neighbours that
   have together hardly more values than one of them alone; a sample of the rows decides, once for
   each shape. The distinct values of a group become text, by the same code as for columns
   (`fields`, `text`), and are remembered; a row keeps a number, the code of its value.
3. Nearly every value different: no codes, the group's text is made of all rows.
4. The rows' texts are joined from those of their groups.

What does not look alike, what is rare, and what is no record of the type at all is left to
`fields`, whose answer is the same, only slower.

Source: KIP-482, KIP-631, the declarations in `records.metadata`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quorate.records.metadata.decoding import STRING_BYTES_MAX
from quorate.records.metadata.schema import FieldSpec, Kind, MetadataRecord
from quorate.spark.fields import FIXED, UUID_BYTES, is_flat, read_field
from quorate.spark.framing import PAD, Bytes, Ints, Mask
from quorate.spark.text import join, tagged_json, value_json

ROWS_MIN = 256
"""Fewer are left to `fields`: a shape costs about as much as so many records there."""
ROUNDS_MAX = 8
"""How many shapes are looked for among records of one size."""
_VARINT_SHIFT_MAX = 28
_BYTE, _LONG = 1, 8
SAMPLE_ROWS = 512
FEW = 64
"""So few values are always worth having in one group."""
_PLANS_MAX = 1024
_TEXT_BYTES_MAX = 32 << 20
_TEXT_OVERHEAD_BYTES = 200

Matrix = npt.NDArray[np.uint8]


_PLANS: dict[Any, tuple[_Group, ...]] = {}
"""What was decided for a shape; any decision gives the same texts."""


class _Memory:
    """Texts by group and value, None for what is no value; forgotten all at once when too large."""

    def __init__(self) -> None:
        self._groups: dict[Any, dict[bytes, str | None]] = {}
        self._size = 0

    def of(self, key: Any) -> dict[bytes, str | None]:
        if self._size > _TEXT_BYTES_MAX:
            self._groups.clear()
            self._size = 0
        return self._groups.setdefault(key, {})

    def note(self, texts: pa.Array) -> None:
        self._size += texts.nbytes + len(texts) * _TEXT_OVERHEAD_BYTES


_MEMORY = _Memory()


class _OtherwiseError(Exception):
    """A row is not what its type declares: it has no shape."""


@dataclass(frozen=True, slots=True)
class Span:
    """Where a field lies in a row, its length with it. index: of the field in its class."""

    index: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Shape:
    """Where the fields lie, in the order of the declaration. same: what two rows must share."""

    spans: tuple[Span, ...]
    same: Ints


class _Walk:
    """One row, read from its beginning to its end."""

    def __init__(self, row: bytes) -> None:
        self.row = row
        self.at = 0
        self.same: list[int] = []

    def varint(self) -> int:
        value = shift = 0
        while self.at < len(self.row) and shift <= _VARINT_SHIFT_MAX:
            byte = self.row[self.at]
            self.same.append(self.at)
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                if value >> 32:
                    break
                return value
        raise _OtherwiseError

    def skip(self, size: int) -> None:
        self.at += size
        if self.at > len(self.row):
            raise _OtherwiseError

    def field(self, spec: FieldSpec) -> None:
        kind = spec.kind
        assert isinstance(kind, Kind)
        width = UUID_BYTES if kind is Kind.UUID else FIXED[kind][1] if kind in FIXED else 1
        if (kind in FIXED or kind is Kind.UUID) and not spec.is_array:
            self.skip(width)
            return
        size = self.varint() - 1
        if (size < 0 and not spec.nullable) or (kind is Kind.STRING and size > STRING_BYTES_MAX):
            raise _OtherwiseError
        self.skip(max(size, 0) * width)


def shape_of(cls: type[MetadataRecord], version: int, row: bytes) -> Shape | None:
    """The shape of a message (what follows the frame); None if it is not what is declared."""
    walk = _Walk(row)
    spans: list[Span] = []
    try:
        for index, spec in enumerate(cls.FIELDS):
            if spec.tag is None and spec.exists_in(version):
                begin = walk.at
                walk.field(spec)
                spans.append(Span(index, begin, walk.at))
        _walk_tags(cls, version, walk, spans)
    except _OtherwiseError:
        return None
    if walk.at != len(row):
        return None
    spans.sort(key=lambda span: span.index)
    if any(left.begin > right.begin for left, right in pairwise(spans)):
        return None  # its text is not in the order of its bytes
    return Shape(tuple(spans), np.array(walk.same, np.int64))


def _walk_tags(cls: type[MetadataRecord], version: int, walk: _Walk, spans: list[Span]) -> None:
    tags = {spec.tag: (i, spec) for i, spec in enumerate(cls.FIELDS) if spec.tag is not None}
    last = -1
    for _ in range(walk.varint()):
        tag, size = walk.varint(), walk.varint()
        begin = walk.at
        if tag <= last:
            raise _OtherwiseError
        last = tag
        if tag not in tags:
            walk.skip(size)
            continue
        index, spec = tags[tag]
        if not spec.exists_in(version):
            raise _OtherwiseError
        walk.field(spec)
        if walk.at != begin + size:
            raise _OtherwiseError
        spans.append(Span(index, begin, walk.at))


@dataclass(frozen=True, slots=True)
class _Group:
    """Neighbours in bytes and in text: spans of a shape, from its `first`-th on."""

    first: int
    spans: tuple[Span, ...]

    @property
    def begin(self) -> int:
        return self.spans[0].begin

    @property
    def end(self) -> int:
        return self.spans[-1].end


def alike_json(
    cls: type[MetadataRecord], version: int, data: Bytes, at: Ints, ends: Ints
) -> Iterator[tuple[Ints, pa.Array]]:
    """JSON of those of the messages [at, ends) that look alike: their places, and their texts.

    Each place comes at most once; what is left out is for others to decode.
    """
    if len(at) < ROWS_MIN or not is_flat(cls) or _may_begin_with_tag(cls, version):
        return
    sizes = ends - at
    distinct, counts = np.unique(sizes, return_counts=True)
    for size in distinct[(counts >= ROWS_MIN) & (distinct > 0)].tolist():
        places = np.flatnonzero(sizes == size)
        windows = np.ndarray((len(data) - size + 1,), f"V{size}", data, 0, (1,))
        rows: Matrix = windows[at[places]].view(np.uint8).reshape(len(places), size)
        for _ in range(ROUNDS_MAX):
            shape = shape_of(cls, version, rows[0].tobytes())
            if shape is None:
                mine = np.zeros(len(places), np.bool_)
                mine[0] = True
            else:
                mine = (rows[:, shape.same] == rows[0, shape.same]).all(axis=1)
                every = bool(mine.all())
                chosen, matrix = (places, rows) if every else (places[mine], rows[mine])
                if len(chosen) >= ROWS_MIN:
                    yield from _texts(cls, shape, chosen, matrix)
                if every:
                    break
            places, rows = places[~mine], rows[~mine]
            if len(places) < ROWS_MIN:
                break


def _may_begin_with_tag(cls: type[MetadataRecord], version: int) -> bool:
    """Then a comma may be one too many; such types are rare."""
    return all(spec.tag is not None for spec in cls.FIELDS if spec.exists_in(version))


def _texts(
    cls: type[MetadataRecord], shape: Shape, places: Ints, rows: Matrix
) -> Iterator[tuple[Ints, pa.Array]]:
    varies = (rows != rows[0]).any(axis=0)
    bad = np.zeros(len(rows), np.bool_)
    parts: list[Any] = ["{"]
    for group in _groups(cls, shape, rows, varies):
        begin, end = group.begin, group.end
        columns = np.flatnonzero(varies[begin:end]) + begin
        if not len(columns):
            texts, wrong = _remembered(cls, group, rows[:1, begin:end])
            bad |= wrong[0]
            parts.append(texts[0].as_py())
            continue
        codes, count = _codes(rows[:, int(columns[0]) : int(columns[-1]) + 1])
        if count > len(rows) // 2:
            texts, wrong = _group_texts(cls, group, rows[:, begin:end])
            parts.append(texts)
        else:
            texts, wrong = _remembered(cls, group, rows[_first_rows(codes, count), begin:end])
            parts.append(texts.take(pa.array(codes)))
            wrong = wrong[codes] if wrong.any() else wrong[:0]
        if wrong.any():
            bad |= wrong
    parts.append("}")
    text = join(list(_neighbours(parts)), len(rows))
    if bad.any():
        good = ~bad
        yield places[good], text.filter(pa.array(good))
    else:
        yield places, text


def _neighbours(parts: list[Any]) -> Iterator[Any]:
    """Constant texts that follow each other as one."""
    pending = ""
    for part in parts:
        if isinstance(part, str):
            pending += part
            continue
        if pending:
            yield pending
        pending = ""
        yield part
    yield pending


def _groups(
    cls: type[MetadataRecord], shape: Shape, rows: Matrix, varies: Mask
) -> tuple[_Group, ...]:
    """The fields of a shape, put together by what a sample of the rows has in common."""
    which = tuple(bool(varies[span.begin : span.end].any()) for span in shape.spans)
    key = (cls, shape.spans, which)
    known = _PLANS.get(key)
    if known is None:
        if len(_PLANS) >= _PLANS_MAX:
            _PLANS.clear()
        known = _PLANS[key] = tuple(_planned(shape, rows[:: -(-len(rows) // SAMPLE_ROWS)], which))
    return known


def _planned(shape: Shape, sample: Matrix, varies: tuple[bool, ...]) -> Iterator[_Group]:
    current: list[Span] = []
    first = values = 0
    for number, span in enumerate(shape.spans):
        alone = _distinct(sample[:, span.begin : span.end]) if varies[number] else 1
        if current and (alone > 1 and values > 1):
            both = _distinct(sample[:, current[0].begin : span.end])
            if both > max(alone, values, FEW) + len(sample) // FEW:
                yield _Group(first, tuple(current))
                current, first, values = [span], number, alone
                continue
            values = both
        current.append(span)
        values = max(values, alone)
    if current:
        yield _Group(first, tuple(current))


def _distinct(values: Matrix) -> int:
    return len({row.tobytes() for row in values})


def _remembered(cls: type[MetadataRecord], group: _Group, values: Matrix) -> tuple[pa.Array, Mask]:
    """The texts of distinct values, from what was made for others like them before."""
    known = _MEMORY.of((cls, group))
    raw = [value.tobytes() for value in values]
    missing = [number for number, value in enumerate(raw) if value not in known]
    if missing:
        texts, wrong = _group_texts(cls, group, values[missing])
        _MEMORY.note(texts)
        for number, text, is_wrong in zip(missing, texts.to_pylist(), wrong, strict=True):
            known[raw[number]] = None if is_wrong else text
    found = [known[value] for value in raw]
    bad = np.array([text is None for text in found])
    return pa.array([text or "" for text in found], pa.string()), bad


def _group_texts(cls: type[MetadataRecord], group: _Group, values: Matrix) -> tuple[pa.Array, Mask]:
    """The text of each row of a group's bytes, and which rows are not what they should be."""
    parts: list[Any] = []
    bad = np.zeros(len(values), np.bool_)
    for number, span in enumerate(group.spans, group.first):
        spec = cls.FIELDS[span.index]
        if spec.tag is None:
            parts.append(("," if number else "") + f'"{spec.json_name}":')
        begin = span.begin - group.begin
        text, wrong = _field_texts(spec, values[:, begin : begin + span.end - span.begin])
        bad |= wrong
        parts.append(text)
    return join(parts, len(values)), bad


def _field_texts(spec: FieldSpec, values: Matrix) -> tuple[pa.Array, Mask]:
    """The text of each value, a row each, and which are no values."""
    count, width = values.shape
    data = np.zeros(count * width + PAD, np.uint8)
    data[: count * width] = values.reshape(-1)
    at = np.arange(count) * width
    column, bad = read_field(spec, data, at, at + width)
    text = value_json if spec.tag is None else tagged_json
    return text(column, count), bad


def _codes(values: Matrix) -> tuple[Ints, int]:
    """A number for each row's value, rising from 0 without gaps, and how many there are."""
    count, width = values.shape
    if width == _BYTE:
        return _dense(values[:, 0], 1 << 8)
    if width <= _LONG:
        packed = np.zeros((count, _LONG), np.uint8)
        packed[:, :width] = values
        found = pa.array(packed.view(np.int64).reshape(-1)).dictionary_encode()
    else:
        content = pa.py_buffer(np.ascontiguousarray(values))
        fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), count, [None, content])
        found = fixed.dictionary_encode()
    return found.indices.to_numpy(), len(found.dictionary)


def _dense(numbers: Ints, limit: int) -> tuple[Ints, int]:
    """Small numbers as codes, by a table of those that occur."""
    occurs = np.zeros(limit, np.bool_)
    occurs[numbers] = True
    table = np.cumsum(occurs, dtype=np.int32) - 1
    return table[numbers], int(table[-1]) + 1


def _first_rows(codes: Ints, count: int) -> Ints:
    """One row that has each code."""
    found = np.empty(count, np.int64)
    found[codes] = np.arange(len(codes))
    return found
