"""The records of a batch as parts to join: what is between their values, and the values.

Rules:
1. The bytes before a value follow from the key, the value's size and the record's number in the
   batch. In most batches, all keys and sizes are the same; these bytes are then kept for the next
   batch of such records, which takes less than half of the time.
2. What is kept is bounded: `KEPT_MAX` combinations, for the first `ALIKE_MAX` records of a batch
   and keys of at most `KEY_BYTES_MAX`. Others are built record by record.

Source: KIP-98 (message format 2).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import Final

from quorate.records.primitives import encode_unsigned_varint

KeyValue = tuple[bytes | None, bytes | None]

ALIKE_MIN: Final = 8
"""For fewer records, looking for the kept bytes takes longer than building them."""
ALIKE_MAX: Final = 4_096
KEY_BYTES_MAX: Final = 64
KEPT_MAX: Final = 16

_VARINTS_COUNT = 8192
_VARINTS = tuple(encode_unsigned_varint(value << 1) for value in range(_VARINTS_COUNT))
"""Zig-zag varints of the non-negative numbers that take up to two bytes."""
_NO_HEADERS = b"\x00"
_NULL = b"\x01"
"""The varint of the size -1."""
_KEY = itemgetter(0)
_VALUE = itemgetter(1)


def varint(value: int) -> bytes:
    """The zig-zag varint of a number that is not negative."""
    return _VARINTS[value] if value < _VARINTS_COUNT else encode_unsigned_varint(value << 1)


def record_parts(records: Sequence[KeyValue], before: bytes) -> list[bytes]:
    """The encoded records in parts, after the part `before`."""
    if ALIKE_MIN <= len(records) <= ALIKE_MAX:
        alike = _alike_parts(records, before)
        if alike is not None:
            return alike
    parts = [before]
    add = parts.append
    # A record begins with its size, then attributes and the timestamp's delta, which are zero
    # bytes, then its own delta. The size is that of the record before it as long as key, size of
    # the value and length of the delta are the same, which they mostly are.
    last: tuple[bytes | None, int, int] | None = None
    head = tail = b""
    for delta, (key, value) in enumerate(records):
        number = _VARINTS[delta] if delta < _VARINTS_COUNT else varint(delta)
        size = -1 if value is None else len(value)
        shape = (key, size, len(number))
        if shape != last:
            last = shape
            tail = varint(len(key)) + key if key else _NULL if key is None else b"\x00"
            tail += _NULL if value is None else varint(size)
            head = varint(2 + len(number) + len(tail) + max(0, size) + 1) + b"\x00\x00"
        add(head + number + tail)
        if value:
            add(value)
        add(_NO_HEADERS)
    return parts


def _alike_parts(records: Sequence[KeyValue], before: bytes) -> list[bytes] | None:
    """The parts of records that differ in nothing but their values; None if others do."""
    keys, values = set(map(_KEY, records)), list(map(_VALUE, records))
    if len(keys) > 1 or None in values:
        return None
    sizes = set(map(len, values))
    key = keys.pop()
    if len(sizes) > 1 or len(key or b"") > KEY_BYTES_MAX:
        return None
    room = 1 << (len(values) - 1).bit_length()
    heads = _heads(key, sizes.pop(), room)
    return [before, *chain.from_iterable(zip(heads, values, strict=False)), _NO_HEADERS]


@lru_cache(maxsize=KEPT_MAX)
def _heads(key: bytes | None, size: int, count: int) -> list[bytes]:
    """What is before each of `count` values of that size, with the end of the record before."""
    tail = (_NULL if key is None else varint(len(key)) + key) + varint(size)
    heads = [
        _NO_HEADERS + varint(2 + len(number) + len(tail) + size + 1) + b"\x00\x00" + number + tail
        for number in map(varint, range(count))
    ]
    heads[0] = heads[0][len(_NO_HEADERS) :]
    return heads
