"""Columns as JSON text, as Kafka's dump prints a record's `data`: built by Arrow, record by record.

A record's text is a row of pieces: names as they are, values as columns of text. Fields that the
version lacks, and tagged fields at their defaults, leave no piece. What needs escapes, and floating
point, is rare and left to `records.metadata.as_json`.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quorate.records.metadata import json_text
from quorate.records.metadata.schema import Kind, MetadataRecord
from quorate.spark.fields import Column, Group, Texts, expand
from quorate.spark.framing import Mask

_PLAIN_FROM = 0x20
_ESCAPED = np.zeros(256, np.bool_)
_ESCAPED[:_PLAIN_FROM] = True
_ESCAPED[[ord('"'), ord("\\")]] = True


def group_json(cls: type[MetadataRecord], version: int, group: Group, count: int) -> pa.Array:
    """The JSON objects of a group's records."""
    pieces: list[Any] = []
    pending = "{"
    first = True
    for spec, column in zip(cls.FIELDS, group.columns, strict=True):
        if not spec.exists_in(version):
            continue
        name = f'"{spec.json_name}":'
        if spec.tag is None:
            pending += ("" if first else ",") + name
            pieces += [pending, *_value(column)]
            pending = ""
            first = False
            continue
        if column.present is not None and not column.present.any():
            continue
        if pending:
            pieces.append(pending)
            pending = ""
        pieces.append(tagged_json(column, count))
        first = False
    # Only tagged fields can come after a record's beginning without one before them.
    if pending or not pieces:
        pieces.append(pending)
    pieces.append("}")
    text = join(pieces, count)
    return _without_first_comma(text) if _may_begin_with_tag(cls, version) else text


def _may_begin_with_tag(cls: type[MetadataRecord], version: int) -> bool:
    present = [spec for spec in cls.FIELDS if spec.exists_in(version)]
    return all(spec.tag is not None for spec in present)


def _without_first_comma(text: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(text, r"^\{,", "{")


def join(pieces: list[Any], count: int) -> pa.Array:
    """Texts and columns of texts, joined row by row."""
    if all(isinstance(piece, str) for piece in pieces):
        return pa.repeat(pa.scalar("".join(pieces)), count)
    texts = [pa.scalar(piece) if isinstance(piece, str) else piece for piece in pieces]
    return pc.binary_join_element_wise(*texts, "")


def value_json(column: Column, count: int) -> pa.Array:
    """The values of a field that all records have."""
    return join(_value(column), count)


def tagged_json(column: Column, count: int) -> pa.Array:
    """`,"name":value` for the records that have the field and not at its default, else nothing."""
    inner = column.sizes if column.sizes is not None else column.values
    rows = len(inner.quoted) if isinstance(inner, Texts) else len(inner)
    text = join([f',"{column.spec.json_name}":', *_value(column)], rows)
    shown = ~_at_default(column, rows)
    text = text if shown.all() else pc.if_else(pa.array(shown), text, "")
    return text if column.present is None else expand(text, column.present, pa.scalar(""), count)


def _at_default(column: Column, rows: int) -> Mask:
    """Which of the values that are on the wire are the default nevertheless."""
    default = column.spec.default
    if column.sizes is not None:
        assert column.nulls is not None
        if default is None:
            return column.nulls
        return (
            np.asarray((column.sizes == 0) & ~column.nulls)
            if default == ()
            else (np.zeros(rows, np.bool_))
        )
    if default is None:
        return np.zeros(rows, np.bool_) if column.nulls is None else column.nulls
    plain = column.values.plain() if isinstance(column.values, Texts) else column.values
    equal: Mask = pc.fill_null(pc.equal(plain, default), False).to_numpy(zero_copy_only=False)
    return equal


def _value(column: Column) -> list[Any]:
    """The pieces of a value."""
    kind = column.spec.kind
    assert isinstance(kind, Kind)
    values = _one(kind, column.values)
    if column.sizes is not None:
        return _list(values, column)
    nulls = column.nulls
    if kind in (Kind.STRING, Kind.BYTES):
        if nulls is None or not nulls.any():
            return ['"', values, '"'] if kind is Kind.STRING else [values]
        quoted = join(['"', values, '"'], len(values)) if kind is Kind.STRING else values
        return [pc.if_else(pa.array(~nulls), quoted, "null")]
    return [values]


def _list(values: pa.Array, column: Column) -> list[Any]:
    assert column.sizes is not None
    offsets = np.zeros(len(column.sizes) + 1, np.int32)
    np.cumsum(column.sizes, out=offsets[1:])
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), values), ",")
    if column.nulls is None or not column.nulls.any():
        return ["[", joined, "]"]
    bracketed = join(["[", joined, "]"], len(joined))
    return [pc.if_else(pa.array(~column.nulls), bracketed, "null")]


def _one(kind: Kind, values: Any) -> pa.Array:
    if isinstance(values, Texts):
        return values.json()
    if kind is Kind.BOOL:
        return pc.if_else(values, "true", "false")
    if kind is Kind.STRING:
        return _escaped(values)
    if kind in (Kind.BYTES, Kind.FLOAT64):
        shown = [b64encode(v).decode() if isinstance(v, bytes) else v for v in values.to_pylist()]
        return pa.array([json_text(value) for value in shown], pa.string())
    return values.cast(pa.string())


def _escaped(values: pa.Array) -> pa.Array:
    """Strings with the escapes that JSON wants; usually there are none."""
    content = values.buffers()[2]
    if content is None or not _ESCAPED[np.frombuffer(content, np.uint8)].any():
        return values
    return pa.array(
        [None if value is None else json_text(value)[1:-1] for value in values.to_pylist()],
        pa.string(),
    )
