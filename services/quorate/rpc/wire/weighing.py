"""Estimates the cost of decoding a message from its encoded bytes alone.

A message of a few MiB can hold millions of parts, and a decoder creates an object for each. The
weight of a message is the sum of:

1. `MESSAGE_WEIGHT` for each nested message, and for each element of a repeated string or bytes
   field: the server answers each of those separately,
2. 1 for each other field, known or unknown,
3. 1 for each `PACKED_BYTES` bytes of packed numbers, `PACKED_FIXED32_BYTES` if all have 32 bits.

A message therefore weighs at most `WEIGHT_PER_BYTE_MAX` per byte.

Source: the Protocol Buffers encoding specification.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError

MESSAGE_WEIGHT = 8
PACKED_BYTES = 8
PACKED_FIXED32_BYTES = 32
WEIGHT_PER_BYTE_MAX = MESSAGE_WEIGHT // 2
"""An empty nested message takes two bytes."""

SLICE_BYTES = 16 * 1024
"""Fields of this size in all are decoded without interruption."""

VARINT_BYTES_MAX = 10
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Shape = dict[int, Any]
"""The length-delimited fields of a message type, by tag.

A value is the Shape of a nested message, `TEXT` for a repeated string or bytes field, or how many
bytes of packed numbers weigh 1.
"""
TEXT = "text"

_FIXED32_TYPES = (
    FieldDescriptor.TYPE_FIXED32,
    FieldDescriptor.TYPE_SFIXED32,
    FieldDescriptor.TYPE_FLOAT,
)
_TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


def shape_of(descriptor: Any, known: dict[str, Shape]) -> Shape:
    """The shape of a message type. known: shapes by full name, to which this adds new ones."""
    shape = known.get(descriptor.full_name)
    if shape is not None:
        return shape
    shape = known[descriptor.full_name] = {}
    for field in descriptor.fields:
        tag = field.number << 3 | _BYTES
        if field.message_type is not None:
            shape[tag] = shape_of(field.message_type, known)
        elif field.is_repeated and field.type in _TEXTS:
            shape[tag] = TEXT
        elif field.is_repeated:
            is_fixed32 = field.type in _FIXED32_TYPES
            shape[tag] = PACKED_FIXED32_BYTES if is_fixed32 else PACKED_BYTES
    return shape


def weigh(data: bytes, shape: Shape, limit: int, slices: list[int] | None = None) -> int:
    """The weight of an encoded message; above `limit`, any number that exceeds it.

    slices: receives the positions between two fields of the message itself, in ascending order, at
    which `data` can be cut into slices of about `SLICE_BYTES`.

    Raises DecodeError if the bytes are not a message. Decodes nothing and creates few objects.
    """
    try:
        return _weigh(data, shape, limit, [] if slices is None else slices)
    except IndexError:
        raise DecodeError("the message is truncated") from None


def _weigh(data: bytes, shape: Shape, limit: int, slices: list[int]) -> int:
    weight = position = 0
    end, next_slice = len(data), SLICE_BYTES
    around: list[tuple[int, Shape]] = []
    while True:
        while position < end:
            if position >= next_slice and not around:
                slices.append(position)
                next_slice = position + SLICE_BYTES
            tag = data[position]
            position += 1
            if tag >= 0x80:
                tag, position = varint(data, position - 1)
            kind = tag & 7
            weight += 1
            if kind == _BYTES:
                size = data[position]
                position += 1
                if size >= 0x80:
                    size, position = varint(data, position - 1)
                stop = position + size
                if stop > end:
                    raise DecodeError("a field extends beyond its message")
                inner = shape.get(tag)
                if inner.__class__ is dict:
                    weight += MESSAGE_WEIGHT - 1
                    if size:
                        around.append((end, shape))
                        end, shape = stop, inner
                else:
                    if inner is TEXT:
                        weight += MESSAGE_WEIGHT - 1
                    elif inner is not None:
                        weight += size // inner
                    position = stop
            elif kind == _VARINT:
                if data[position] >= 0x80:
                    _, position = varint(data, position)
                else:
                    position += 1
            elif kind == _FIXED32:
                position += 4
            elif kind == _FIXED64:
                position += 8
            else:
                raise DecodeError(f"a field with the invalid wire type {kind}")
            if weight > limit:
                return weight
        if position != end:
            raise DecodeError("a field extends beyond its message")
        if not around:
            return weight
        end, shape = around.pop()


def varint(data: bytes, position: int) -> tuple[int, int]:
    """The varint at `position`, and the position after it. Raises IndexError, DecodeError."""
    value = 0
    for shift in range(0, 7 * VARINT_BYTES_MAX, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise DecodeError(f"a varint of more than {VARINT_BYTES_MAX} bytes")
