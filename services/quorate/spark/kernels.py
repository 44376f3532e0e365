"""Loops over the bytes of a log, compiled: records found, their frames read, their JSON written.

Numba makes machine code of these functions. They are as plain as C, and keep its rules:

1. Memory is addressed by number: an array that is handed from one compiled function to another is
   counted, which costs several times the work. Who calls keeps the arrays alive.
2. Nothing is read outside [at, end) of what a length promises; every function that reads is given
   the end. It answers where it stands afterwards, and `end` + 1 if the bytes are not what they
   should be. Names and defaults alone are copied in steps of 16 bytes, and have so many behind.
3. Writers write up to 15 bytes more than they answer for: the next one begins there. Who calls
   provides the room (`ROOM_PER_BYTE`).

The first call in a new installation takes some seconds; the code is kept beside this module, in the
user's cache directory or in $NUMBA_CACHE_DIR, as Numba finds one that can be written to. A change
in this file makes it anew, which is why all of it is one file.

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

from quorate.records.batch import HEADER_SIZE, PREFIX_SIZE
from quorate.records.metadata.decoding import STRING_BYTES_MAX
from quorate.records.metadata.registry import API_KEY_MAX, FRAME_VERSION

F = TypeVar("F", bound=Callable[..., Any])
_LENGTH_AT = 8
_OPTIONS = {"nogil": True, "error_model": "numpy"}


def _inner(function: F) -> F:
    """Compiled into those that call it."""
    made: F = numba.njit(**_OPTIONS)(function)
    return made


def _entry(function: F) -> F:
    """Called from Python; what was compiled is kept where there is a place for it."""
    try:
        made: F = numba.njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:  # no directory can be written to
        made = numba.njit(**_OPTIONS)(function)
    return made


# --- memory ---------------------------------------------------------------------------------------


def _loader(bits: int, *, ours: bool = False) -> Callable[[int], int]:
    """Reads a number of so many bits, big-endian unless it is `ours`; not negative below 64."""

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
    """Writes the low bits of a number, the lowest byte first: texts are numbers, too."""

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
    """Copies 16 bytes."""

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
    """Copies what has 15 bytes behind it that may be read; where it ends."""
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
    """An unsigned varint of up to 32 bits, and where it ends."""
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
    """A varint of up to 64 bits, as a signed number, and where it ends."""
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
    """Where each whole batch of the first `size` bytes begins: how many, and where the last ends.

    Ends at the first that the bytes do not hold wholly, or whose length is none.
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
"""What is known of a batch: where its records begin and end in the buffer, and its header."""
BATCH, OFFSET, TIMESTAMP, KEY_AT, KEY_SIZE, VALUE_AT, VALUE_SIZE = range(7)
"""What is found of a record: the index of its batch, positions in the buffer, sizes or -1."""
WHOLE, PASSES_END, CONTRADICTS, DOES_NOT_FILL = range(4)
"""What is wrong with a batch."""


@_entry
def walk(data: int, batches: Any, records: Any) -> tuple[int, int, int]:
    """Fills the columns of `records` with those of the batches in the buffer at `data`.

    (WHOLE, 0, 0), or what is wrong, with the indices of the batch and of its record.
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
            # Headers are passed over; a count of none is the record's last byte.
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
"""What is no metadata record, in place of an api key and version."""
KIND, MESSAGE_AT, MESSAGE_END = range(3)
"""What a record's frame says: api key << 16 | version, CONTROL or OPAQUE; and where its message,
what follows the frame, begins and ends in the buffer."""


@_entry
def read_frames(data: int, records: Any, is_control: Any, frames: Any) -> None:
    """Fills the columns of `frames` (KIP-631, "Record format"). is_control: of each batch."""
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
"""A tagged field of a later version: there is no such thing in this one."""

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
"""How a field is described: so many words. tag: -1 for none. name: `,"name":`, and default: JSON,
both in the literals."""
FIRST, FIRST_TAGGED, AFTER_UNTAGGED, AFTER, NAME_BYTES = range(5)
"""Which fields are a version's, by their indices, and how many bytes their names have together."""
PLACE_BYTES = 16
"""What a tagged field needs while a record is read: where it begins and ends there."""

ROOM_PER_BYTE = 6
"""What a byte of a message becomes at most, besides names: `false,` in a list. The last byte is the
number of tagged fields, and its share the braces'."""


def _number(text: bytes) -> int:
    return int.from_bytes(text, "little")


_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_PAIRS: Any = np.array([_number(bytes((a, b))) for a in _ALPHABET for b in _ALPHABET])
"""The two characters of each twelve bits, as one number."""
_SMALL = 1000
_DIGITS: Any = np.array([_number(str(n).encode()) | len(str(n)) << 24 for n in range(_SMALL)])
"""The characters of small numbers, and in the fourth byte how many they are."""
_IS_SPECIAL: Any = np.array([c < 0x20 or c >= 0x80 or c in b'"\\' for c in range(256)], np.int64)
"""What needs escapes, and what may not be UTF-8: both are left to others."""

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
    if lowest:  # its negative is one too many
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
    """A compact length, -1 for null, and where what is so long begins."""
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
    """One value's JSON: where the text ends, and where the value does."""
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
    """A field's value: where the text ends, and where the value does."""
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
    """Where the tagged fields of [first, after) begin and end, 0 for none; where the last ends."""
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
    """A tagged field, unless it is absent or at its default; 0 if it is not what it claims."""
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
    """A record's JSON: where it ends, 0 if the bytes are not what is declared.

    Its fields are [first, after) in their order in JSON; on the wire, the tagged ones come last.
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
        # Once more from where the first of them belongs.
        to, plain = tagged_to, tagged_at
        for field in range(first_tagged, after, _FIELD_SIZE):
            if _word(field + _TAG) < 0:
                to = _name(to, field, literals)
                to, plain = _field(to, plain, end, field)
            else:
                to = _tagged(to, _place(places, field, first_tagged), field, literals)
                if not to:
                    return 0
    # Every name comes with a comma, and the first one's place is the brace's.
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
    """How many bytes `write_json` may write, besides those that it does not answer for."""
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
    """The JSON objects of messages, one behind the other, at `out`.

    number_of: by api key and version, which of the spans is theirs, -1 for none. fields: of
    FIELD_WORDS, in their order in JSON. places: PLACE_BYTES for each of the fields of a record.
    bounds: where each text begins, and the last one ends. is_written: where there is one; messages
    that are not what is declared, and texts that need escapes, are left to others.
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
