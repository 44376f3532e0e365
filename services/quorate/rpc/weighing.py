"""What a message would cost to decode, from its bytes alone.

A message of a few MiB can hold millions of parts, and a decoder makes an object of each. The weight
of a message is the sum of:

1. `MESSAGE_WEIGHT` for each message within it, and for each text of a field that takes many: each
   of those is answered by itself,
2. 1 for each other field, known or not,
3. 1 for each `PACKED_BYTES` bytes of packed numbers, `PACKED_FIXED32_BYTES` where all have 32 bits.

So a message weighs at most `WEIGHT_PER_BYTE_MAX` for each of its bytes.

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
"""An empty message takes two bytes."""

VARINT_BYTES_MAX = 10
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Shape = dict[int, Any]
"""Of a message type, by the tag of a field with a length: the Shape of the messages in it, `TEXT`
for one of many texts, or how many bytes of packed numbers weigh 1.
"""
TEXT = "text"

_FIXED32_TYPES = (
    FieldDescriptor.TYPE_FIXED32,
    FieldDescriptor.TYPE_SFIXED32,
    FieldDescriptor.TYPE_FLOAT,
)
_TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


def shape_of(descriptor: Any, known: dict[str, Shape]) -> Shape:
    """The shape of a message type. known: shapes by name, completed."""
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


def weigh(data: bytes, shape: Shape, limit: int) -> int:
    """The weight of an encoded message; once it exceeds `limit`, any number that does.

    DecodeError where the bytes are no message. Nothing is decoded, and few objects are made.
    """
    try:
        return _weigh(data, shape, limit)
    except IndexError:
        raise DecodeError("the message is cut off") from None


def _weigh(data: bytes, shape: Shape, limit: int) -> int:
    weight = position = 0
    end = len(data)
    around: list[tuple[int, Shape]] = []
    while True:
        while position < end:
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
                    raise DecodeError("a field is longer than what it is in")
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
                raise DecodeError(f"a field of the wire type {kind}")
            if weight > limit:
                return weight
        if position != end:
            raise DecodeError("a field is longer than what it is in")
        if not around:
            return weight
        end, shape = around.pop()


def varint(data: bytes, position: int) -> tuple[int, int]:
    """The number that begins there, and where it ends. IndexError, DecodeError."""
    value = 0
    for shift in range(0, 7 * VARINT_BYTES_MAX, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise DecodeError(f"a number of more than {VARINT_BYTES_MAX} bytes")
