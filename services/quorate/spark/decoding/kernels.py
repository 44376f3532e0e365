"""Compiled loops over the bytes of a log: find records, read their frames, write their JSON.

Numba compiles these functions to machine code. They are as plain as C and follow these rules:

1. Functions pass memory as integer addresses. Passing an array between compiled functions updates
   its reference count, which costs several times the work itself. The caller keeps the arrays
   alive.
2. Functions never read outside [at, end), whatever a length claims. Every function that reads
   takes the end. It returns the position after what it read, or `end` + 1 if the bytes are
   malformed. Only field names are copied in steps of 16 bytes; padding follows the literals.
3. Writers may write up to 15 bytes past the position that they return. The next writer starts at
   that position. The caller provides the space (`ROOM_PER_BYTE`).

The first call in a new installation takes some seconds. Numba caches the machine code in the first
writable directory of: $NUMBA_CACHE_DIR, beside this module, the user's cache directory. A change of
this file invalidates the cache, which is why all compiled functions are in one file.

Source: KIP-98 (message format 2), KIP-482 (flexible versions), KIP-631 (the frame of a record);
RFC 4648, section 5, for UUIDs; RFC 8259 for what needs escapes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from quorate.common.batch_layout import HEADER_SIZE, PREFIX_SIZE
from quorate.records.metadata.decoding import STRING_BYTES_MAX
from quorate.records.metadata.registry import API_KEY_MAX, FRAME_VERSION

F = TypeVar("F", bound=Callable[..., Any])
_LENGTH_AT = 8
_OPTIONS = {"nogil": True, "error_model": "numpy"}


def _inner(function: F) -> F:
    """Compile a function that only compiled functions call."""
    made: F = numba.njit(**_OPTIONS)(function)
    return made


def _entry(function: F) -> F:
    """Compile a function that Python calls, and cache the code if a directory is writable."""
    try:
        made: F = numba.njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:  # no cache directory is writable
        made = numba.njit(**_OPTIONS)(function)
    return made


# --- memory ---------------------------------------------------------------------------------------


def _loader(bits: int, *, ours: bool = False) -> Callable[[int], int]:
    """Return an intrinsic that loads `bits` bits: big-endian, or in native byte order if `ours`.

    Numbers of less than 64 bits are zero-extended.
    """

    def load(_: Any, at: Any) -> Any:
        def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
            kind = ir.IntType(bits)
            found = builder.load(builder.inttoptr(arguments[0], kind.as_pointer()))
            found.align = 1
            if bits > 8 and not ours:
                found = builder.bswap(found)
            return found if bits == 64 else builder.zext(found, ir.IntType(64))

        return types.int64(types.int64), generate

    made: Callable[[int], int] = intrinsic(load)
    return made


def _storer(bits: int) -> Callable[[int, int], None]:
    """Return an intrinsic that stores the low `bits` bits of a number, lowest byte first.

    It also stores short texts, which are encoded as numbers.
    """

    def store(_: Any, at: Any, number: Any) -> Any:
        def generate(context: Any, builder: Any, __: Any, arguments: Any) -> Any:
            kind = ir.IntType(bits)
            number = arguments[1] if bits == 64 else builder.trunc(arguments[1], kind)
            done = builder.store(number, builder.inttoptr(arguments[0], kind.as_pointer()))
            done.align = 1
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    made: Callable[[int, int], None] = intrinsic(store)
    return made


def _copier() -> Callable[[int, int], None]:
    """Return an intrinsic that copies 16 bytes."""

    def copy(_: Any, to: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, __: Any, arguments: Any) -> Any:
            kind = ir.VectorType(ir.IntType(8), 16).as_pointer()
            found = builder.load(builder.inttoptr(arguments[1], kind))
            found.align = 1
            done = builder.store(found, builder.inttoptr(arguments[0], kind))
            done.align = 1
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    made: Callable[[int, int], None] = intrinsic(copy)
    return made


_u8, _be16, _be32, _be64 = (_loader(bits) for bits in (8, 16, 32, 64))
_word = _loader(64, ours=True)
_copy16 = _copier()
_put8, _put32, _put64 = (_storer(bits) for bits in (8, 32, 64))


@_inner
def _copy(to: int, at: int, size: int) -> int:
    """Copy `size` bytes and return the end of the copy.

    Up to 15 bytes after the source must be readable.
    """
    _copy16(to, at)
    for done in range(16, size, 16):
        _copy16(to + done, at + done)
    return to + size


@_inner
def _are_same(at: int, other: int, size: int) -> bool:
    for i in range(size):
        if _u8(at + i) != _u8(other + i):
            return False
    return True


@_inner
def _varint(at: int, end: int) -> tuple[int, int]:
    """Read an unsigned varint of up to 32 bits; return it and its end."""
    if at < end:
        byte = _u8(at)
        if byte < 0x80:
            return byte, at + 1
        value, after = _varlong(at, end)
        if after - at <= 5 and 0 <= value < 1 << 32:
            return value, after
    return 0, end + 1


@_inner
def _varlong(at: int, end: int) -> tuple[int, int]:
    """Read a varint of up to 64 bits; return it as a signed number, and its end."""
    value = 0
    shift = 0
    while at < end and shift < 70:
        byte = _u8(at)
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return 0, end + 1


@_inner
def _unzigzag(value: int) -> int:
    return ((value >> 1) & 0x7FFF_FFFF_FFFF_FFFF) ^ -(value & 1)


@_inner
def _signed(value: int, bits: int) -> int:
    return (value << (64 - bits)) >> (64 - bits)


# --- records --------------------------------------------------------------------------------------


@_entry
def find_batches(data: int, size: int, starts: Any) -> tuple[int, int]:
    """Store the start of each whole batch in the first `size` bytes in `starts`.

    Returns the number of batches and the end of the last one. Stops at the first batch that is
    incomplete or has an invalid length.
    """
    count = position = 0
    while size - position >= HEADER_SIZE:
        length = _signed(_be32(data + position + _LENGTH_AT), 32)
        after = position + PREFIX_SIZE + length
        if length < HEADER_SIZE - PREFIX_SIZE or after > size:
            break
        starts[count] = position
        count += 1
        position = after
    return count, position


START, END, COUNT, BASE_OFFSET, LAST_DELTA, BASE_TIMESTAMP = range(6)
"""Rows of `batches`: the start and end of a batch's records in the buffer, and header fields."""
BATCH, OFFSET, TIMESTAMP, KEY_AT, KEY_SIZE, VALUE_AT, VALUE_SIZE = range(7)
"""Rows of `records`: the index of the record's batch, its offset and timestamp, positions in the
buffer, and sizes, -1 for null."""
WHOLE, PASSES_END, CONTRADICTS, DOES_NOT_FILL = range(4)
"""The result of `walk` for a batch."""


@_entry
def walk(data: int, batches: Any, records: Any) -> tuple[int, int, int]:
    """Fill the columns of `records` with the records of the batches in the buffer at `data`.

    Returns (WHOLE, 0, 0), or an error with the index of the batch and of the record in it.
    """
    row = 0
    for index in range(batches.shape[1]):
        at = data + batches[START, index]
        end = data + batches[END, index]
        before = -1
        for number in range(batches[COUNT, index]):
            if at >= end:
                return PASSES_END, index, number
            length, at = _varint(at, end)
            stop = at + (length >> 1)
            if at > end or length & 1 or stop > end:
                return CONTRADICTS, index, number
            since, at = _varlong(at + 1, stop)
            delta, at = _varint(at, stop)
            delta = _unzigzag(delta)
            key_size, key_at = _varint(at, stop)
            key_size = _unzigzag(key_size)
            if key_size < -1 or key_size > stop - key_at:
                return CONTRADICTS, index, number
            value_size, value_at = _varint(key_at + max(key_size, 0), stop)
            value_size = _unzigzag(value_size)
            if value_size < -1 or value_size > stop - value_at:
                return CONTRADICTS, index, number
            at = value_at + max(value_size, 0)
            # Headers are skipped. If their count is 0, it must be the record's last byte.
            if (
                at >= stop
                or (_u8(at) == 0 and at + 1 != stop)
                or delta > batches[LAST_DELTA, index]
                or delta <= before
            ):
                return CONTRADICTS, index, number
            before = delta
            records[BATCH, row] = index
            records[OFFSET, row] = batches[BASE_OFFSET, index] + delta
            records[TIMESTAMP, row] = batches[BASE_TIMESTAMP, index] + _unzigzag(since)
            records[KEY_AT, row] = key_at - data
            records[KEY_SIZE, row] = key_size
            records[VALUE_AT, row] = value_at - data
            records[VALUE_SIZE, row] = value_size
            row += 1
            at = stop
        if at != end:
            return DOES_NOT_FILL, index, 0
    return WHOLE, 0, 0


CONTROL, OPAQUE = -1, -2
"""The KIND of records that are not metadata records: control records, and application data."""
KIND, MESSAGE_AT, MESSAGE_END = range(3)
"""Rows of `frames`. KIND: api key << 16 | version, or CONTROL or OPAQUE. The others: the start and
end of the message, which follows the frame, in the buffer."""


@_entry
def read_frames(data: int, records: Any, is_control: Any, frames: Any) -> None:
    """Fill the columns of `frames` (KIP-631, "Record format"). is_control: one flag per batch."""
    for row in range(records.shape[1]):
        at = data + records[VALUE_AT, row]
        size = records[VALUE_SIZE, row]
        end = at + max(size, 0)
        kind = OPAQUE
        if is_control[records[BATCH, row]]:
            kind = CONTROL
        elif records[KEY_SIZE, row] < 0 and size > 2:
            frame, after = _varint(at, end)
            api_key, after = _varint(after, end)
            version, after = _varint(after, end)
            if (
                after <= end
                and frame == FRAME_VERSION
                and api_key <= API_KEY_MAX
                and version <= API_KEY_MAX
            ):
                kind = (api_key << 16) | version
                at = after
        frames[KIND, row] = kind
        frames[MESSAGE_AT, row] = at - data
        frames[MESSAGE_END, row] = end - data


# --- JSON -----------------------------------------------------------------------------------------

BOOL, INT8, INT16, UINT16, INT32, INT64, STRING, UUID = range(8)
REFUSED = -1
"""The kind of a tagged field that the version does not have. A record that has it is rejected."""

FIELD_WORDS = 8
(
    _KIND,
    _IS_ARRAY,
    _NULLABLE,
    _TAG,
    _NAME_AT,
    _NAME_SIZE,
    _DEFAULT_AT,
    _DEFAULT_SIZE,
) = range(0, FIELD_WORDS * 8, 8)
_FIELD_SIZE = FIELD_WORDS * 8
"""FIELD_WORDS words describe a field. tag: -1 for none. name: `,"name":`, and default: its JSON.
Both are ranges of the literals."""
FIRST, FIRST_TAGGED, AFTER_UNTAGGED, AFTER, NAME_BYTES = range(5)
"""Columns of `spans`: the field indices of a version, and the total bytes of their names."""
PLACE_BYTES = 16
"""Working memory per tagged field while a record is read: the field's start and end."""

ROOM_PER_BYTE = 6
"""The maximum number of JSON bytes per message byte, not counting names: `false,` in a list. The
share of the byte that counts the tagged fields covers the braces."""


def _number(text: bytes) -> int:
    return int.from_bytes(text, "little")


_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_PAIRS: Any = np.array([_number(bytes((a, b))) for a in _ALPHABET for b in _ALPHABET])
"""The two base64 characters for each 12-bit value, as one number."""
_SMALL = 1000
_DIGITS: Any = np.array([_number(str(n).encode()) | len(str(n)) << 24 for n in range(_SMALL)])
"""The digits of small numbers, with their count in the fourth byte."""
_IS_SPECIAL: Any = np.array([c < 0x20 or c >= 0x80 or c in b'"\\' for c in range(256)], np.int64)
"""Bytes that need escapes or may not be valid UTF-8. Such texts are not written here."""

_LOWEST = -(1 << 63)
_DIGITS_MAX = 19
_NULL, _TRUE, _FALS = (_number(text) for text in (b"null", b"true", b"fals"))
_QUOTE, _COMMA, _MINUS, _ZERO, _E, _OPEN, _CLOSE, _BEGIN, _END = (ord(c) for c in '",-0e[]{}')


@_inner
def _integer(to: int, number: int) -> int:
    if 0 <= number < _SMALL:
        known: int = _DIGITS[number]
        _put32(to, known)
        return to + (known >> 24)
    lowest = number == _LOWEST
    if number < 0:
        _put8(to, _MINUS)
        to += 1
        number = -(number + lowest)
    size, limit = 1, 10
    while size < _DIGITS_MAX and number >= limit:
        size += 1
        limit *= 10
    for place in range(to + size - 1, to - 1, -1):
        _put8(place, _ZERO + number % 10)
        number //= 10
    if lowest:  # the loop wrote the digits of 2**63 - 1
        _put8(to + size - 1, _ZERO + 8)
    return to + size


@_inner
def _uuid(to: int, at: int) -> int:
    high = _be64(at)
    low = _be64(at + 8)
    _put8(to, _QUOTE)
    _put64(
        to + 1,
        _PAIRS[(high >> 52) & 0xFFF]
        | _PAIRS[(high >> 40) & 0xFFF] << 16
        | _PAIRS[(high >> 28) & 0xFFF] << 32
        | _PAIRS[(high >> 16) & 0xFFF] << 48,
    )
    _put64(
        to + 9,
        _PAIRS[(high >> 4) & 0xFFF]
        | _PAIRS[(high & 0xF) << 8 | ((low >> 56) & 0xFF)] << 16
        | _PAIRS[(low >> 44) & 0xFFF] << 32
        | _PAIRS[(low >> 32) & 0xFFF] << 48,
    )
    _put64(
        to + 17,
        _PAIRS[(low >> 20) & 0xFFF]
        | _PAIRS[(low >> 8) & 0xFFF] << 16
        | _PAIRS[(low & 0xFF) << 4] << 32
        | _QUOTE << 48,
    )
    return to + 24


@_inner
def _length(at: int, end: int, nullable: int) -> tuple[int, int]:
    """Read a compact length, -1 for null; return it and the start of the content."""
    size, at = _varint(at, end)
    return size - 1, end + 1 if size == 0 and not nullable else at


@_inner
def _string(to: int, at: int, end: int, nullable: int) -> tuple[int, int]:
    size, at = _length(at, end, nullable)
    if at > end or size > end - at or size > STRING_BYTES_MAX:
        return to, end + 1
    if size < 0:
        _put32(to, _NULL)
        return to + 4, at
    _put8(to, _QUOTE)
    to += 1
    special = 0
    for i in range(size):
        byte = _u8(at + i)
        special |= _IS_SPECIAL[byte]
        _put8(to + i, byte)
    if special:
        return to, end + 1
    _put8(to + size, _QUOTE)
    return to + size + 1, at + size


@_inner
def _value(to: int, at: int, end: int, kind: int, nullable: int) -> tuple[int, int]:
    """Write one value's JSON; return the end of the text and the end of the value."""
    if kind == INT32:
        if end - at >= 4:
            return _integer(to, _signed(_be32(at), 32)), at + 4
    elif kind == UUID:
        if end - at >= 16:
            return _uuid(to, at), at + 16
    elif kind == STRING:
        return _string(to, at, end, nullable)
    elif kind == BOOL:
        if at < end:
            if _u8(at):
                _put32(to, _TRUE)
                return to + 4, at + 1
            _put32(to, _FALS)
            _put8(to + 4, _E)
            return to + 5, at + 1
    elif kind == INT8:
        if at < end:
            return _integer(to, _signed(_u8(at), 8)), at + 1
    elif kind == INT16:
        if end - at >= 2:
            return _integer(to, _signed(_be16(at), 16)), at + 2
    elif kind == UINT16:
        if end - at >= 2:
            return _integer(to, _be16(at)), at + 2
    elif kind == INT64 and end - at >= 8:
        return _integer(to, _be64(at)), at + 8
    return to, end + 1


@_inner
def _field(to: int, at: int, end: int, field: int) -> tuple[int, int]:
    """Write a field's value as JSON; return the end of the text and the end of the value."""
    kind = _word(field + _KIND)
    nullable = _word(field + _NULLABLE)
    if not _word(field + _IS_ARRAY):
        return _value(to, at, end, kind, nullable)
    size, at = _length(at, end, nullable)
    if at > end:
        return to, at
    if size < 0:
        _put32(to, _NULL)
        return to + 4, at
    _put8(to, _OPEN)
    to += 1
    for _ in range(size):
        to, at = _value(to, at, end, kind, 0)
        if at > end:
            return to, at
        _put8(to, _COMMA)
        to += 1
    if size:
        to -= 1
    _put8(to, _CLOSE)
    return to + 1, at


@_inner
def _name(to: int, field: int, literals: int) -> int:
    return _copy(to, literals + _word(field + _NAME_AT), _word(field + _NAME_SIZE))


@_inner
def _place(places: int, field: int, first: int) -> int:
    return places + (field - first) // _FIELD_SIZE * PLACE_BYTES


@_inner
def _find_tags(at: int, end: int, count: int, first: int, after: int, places: int) -> int:
    """Store the start and end of each tagged field of [first, after) in `places`.

    The start of an absent field is 0. Returns the end of the last tagged field.
    """
    for field in range(first, after, _FIELD_SIZE):
        _put64(_place(places, field, first), 0)
    before = -1
    for _ in range(count):
        tag, at = _varint(at, end)
        size, at = _varint(at, end)
        if at > end or tag <= before or size > end - at:
            return end + 1
        before = tag
        for field in range(first, after, _FIELD_SIZE):
            if _word(field + _TAG) == tag:
                if _word(field + _KIND) == REFUSED:
                    return end + 1
                place = _place(places, field, first)
                _put64(place, at)
                _put64(place + 8, at + size)
                break
        at += size
    return at


@_inner
def _tagged(to: int, place: int, field: int, literals: int) -> int:
    """Write a tagged field, unless it is absent or has its default.

    Returns the end of the text, 0 if the value does not match its declared size.
    """
    at = _word(place)
    end = _word(place + 8)
    if at == 0:
        return to
    begin = _name(to, field, literals)
    stop, at = _field(begin, at, end, field)
    if at != end:
        return 0
    size = _word(field + _DEFAULT_SIZE)
    default = literals + _word(field + _DEFAULT_AT)
    return to if stop - begin == size and _are_same(begin, default, size) else stop


@_inner
def _record(
    to: int,
    at: int,
    end: int,
    first: int,
    first_tagged: int,
    after_untagged: int,
    after: int,
    literals: int,
    places: int,
) -> int:
    """Write a record's JSON; return its end, 0 if the bytes do not match the declaration.

    The record's fields are [first, after), in JSON order. On the wire, tagged fields come last.
    """
    begin = to
    tagged_to, tagged_at = to, at
    for field in range(first, after_untagged, _FIELD_SIZE):
        if field == first_tagged:
            tagged_to, tagged_at = to, at
        if _word(field + _TAG) < 0:
            to = _name(to, field, literals)
            to, at = _field(to, at, end, field)
            if at > end:
                return 0
    if first_tagged >= after_untagged:
        tagged_to, tagged_at = to, at
    count, at = _varint(at, end)
    if count and at <= end:
        at = _find_tags(at, end, count, first_tagged, after, places)
    if at != end:
        return 0
    if count:
        # Write again from the position of the first tagged field.
        to, plain = tagged_to, tagged_at
        for field in range(first_tagged, after, _FIELD_SIZE):
            if _word(field + _TAG) < 0:
                to = _name(to, field, literals)
                to, plain = _field(to, plain, end, field)
            else:
                to = _tagged(to, _place(places, field, first_tagged), field, literals)
                if not to:
                    return 0
    # Every name starts with a comma. The opening brace overwrites the first one.
    to = max(to, begin + 1)
    _put8(begin, _BEGIN)
    _put8(to, _END)
    return to + 1


@_inner
def _program(kind: int, number_of: Any) -> int:
    api_key, version = kind >> 16, kind & 0xFFFF
    if kind < 0 or api_key >= number_of.shape[0] or version >= number_of.shape[1]:
        return -1
    number: int = number_of[api_key, version]
    return number


@_entry
def json_room(frames: Any, number_of: Any, spans: Any) -> int:
    """The maximum size of the JSON that `write_json` writes, without the excess of rule 3."""
    room = 0
    for row in range(frames.shape[1]):
        number = _program(frames[KIND, row], number_of)
        if number >= 0:
            size = frames[MESSAGE_END, row] - frames[MESSAGE_AT, row]
            room += ROOM_PER_BYTE * size + spans[number, NAME_BYTES]
    return room


@_entry
def write_json(
    data: int,
    frames: Any,
    number_of: Any,
    spans: Any,
    fields: int,
    literals: int,
    places: int,
    out: int,
    bounds: Any,
    is_written: Any,
) -> None:
    """Write the JSON objects of messages at `out`, one after the other.

    number_of: the index of the span for an api key and version, -1 for none. fields: FIELD_WORDS
    each, in JSON order. places: PLACE_BYTES for each field of a record. bounds: receives the start
    of each text and the end of the last one. is_written: receives whether a record's text was
    written. Messages that do not match the declaration, or whose strings need escapes, are skipped.
    """
    to = out
    count = frames.shape[1]
    for row in range(count):
        bounds[row] = to - out
        is_written[row] = False
        number = _program(frames[KIND, row], number_of)
        if number >= 0:
            after = _record(
                to,
                data + frames[MESSAGE_AT, row],
                data + frames[MESSAGE_END, row],
                fields + spans[number, FIRST] * _FIELD_SIZE,
                fields + spans[number, FIRST_TAGGED] * _FIELD_SIZE,
                fields + spans[number, AFTER_UNTAGGED] * _FIELD_SIZE,
                fields + spans[number, AFTER] * _FIELD_SIZE,
                literals,
                places,
            )
            if after:
                is_written[row] = True
                to = after
    bounds[count] = to - out
