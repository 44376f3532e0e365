"""Kafka's primitive types as bytes: big-endian integers, varints, compact strings, tagged fields.

`Reader` takes hostile bytes: it yields a value or raises `CorruptBatchError` with the byte at
which it failed, and never allocates more than the input holds. `Writer` is its mirror. Both speak
the flexible encoding of KIP-482, which metadata records (KIP-631) and the quorum's control records
(KIP-595, KIP-630, KIP-853) use.

UUIDs are sixteen bytes on disk, and in text 22 characters of unpadded url-safe base64
(`org.apache.kafka.common.Uuid`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NoReturn, TypeVar

from quorate.common.identifiers import UUID_BYTES, uuid_from_bytes, uuid_to_bytes
from quorate.records.errors import CorruptBatchError

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")

COMPACT_LENGTH_MAX = 0x7FFF_FFFE
"""Lengths are stored plus one in 32 bits, and Java's arrays end at 2^31-1."""

_INT8 = struct.Struct(">b")
_UINT8 = struct.Struct(">B")
_INT16 = struct.Struct(">h")
_UINT16 = struct.Struct(">H")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_INT64 = struct.Struct(">q")
_FLOAT64 = struct.Struct(">d")


def zigzag(value: int) -> int:
    """A signed integer of up to 64 bits as the unsigned one that its varint form holds."""
    return value << 1 if value >= 0 else (-value << 1) - 1


def unzigzag(value: int) -> int:
    return (value >> 1) ^ -(value & 1)


def encode_unsigned_varint(value: int) -> bytes:
    """Seven bits a byte, the least significant first; the high bit says that more follow."""
    if value < 0x80:
        return value.to_bytes(1, "big")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class Reader:
    """A bounded cursor over a buffer: `position` moves on with each read and never passes `end`."""

    __slots__ = ("buffer", "end", "position")

    def __init__(self, buffer: Buffer, position: int = 0, end: int | None = None) -> None:
        limit = len(buffer) if end is None else end
        if not 0 <= position <= limit <= len(buffer):
            raise ValueError(f"no range of {len(buffer)} bytes: {position} to {limit}")
        self.buffer = buffer
        self.position = position
        self.end = limit

    @property
    def remaining(self) -> int:
        return self.end - self.position

    @property
    def at_end(self) -> bool:
        return self.position >= self.end

    def expect_end(self, what: str) -> None:
        """Raise unless everything has been read."""
        if self.position != self.end:
            raise CorruptBatchError(self.position, f"{self.remaining} bytes too many in {what}")

    def _advance(self, size: int) -> int:
        position = self.position
        if size < 0 or size > self.end - position:
            raise CorruptBatchError(
                position, f"{size} bytes are expected and {self.end - position} are left"
            )
        self.position = position + size
        return position

    def raw(self, size: int) -> bytes:
        """A copy of the next `size` bytes."""
        start = self._advance(size)
        return bytes(self.buffer[start : start + size])

    def skip(self, size: int) -> None:
        self._advance(size)

    def boolean(self) -> bool:
        return self.buffer[self._advance(1)] != 0

    def int8(self) -> int:
        value = self.buffer[self._advance(1)]
        return value - 256 if value > 127 else value

    def uint8(self) -> int:
        return self.buffer[self._advance(1)]

    def int16(self) -> int:
        value: int = _INT16.unpack_from(self.buffer, self._advance(2))[0]
        return value

    def uint16(self) -> int:
        value: int = _UINT16.unpack_from(self.buffer, self._advance(2))[0]
        return value

    def int32(self) -> int:
        value: int = _INT32.unpack_from(self.buffer, self._advance(4))[0]
        return value

    def uint32(self) -> int:
        value: int = _UINT32.unpack_from(self.buffer, self._advance(4))[0]
        return value

    def int64(self) -> int:
        value: int = _INT64.unpack_from(self.buffer, self._advance(8))[0]
        return value

    def float64(self) -> float:
        value: float = _FLOAT64.unpack_from(self.buffer, self._advance(8))[0]
        return value

    def _unsigned(self, bits: int) -> int:
        start = self.position
        value = shift = 0
        while True:
            byte = self.buffer[self._advance(1)]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift >= bits:
                raise CorruptBatchError(start, f"a varint is longer than {bits} bits")
        if value >> bits:
            raise CorruptBatchError(start, f"a varint is larger than {bits} bits")
        return value

    def unsigned_varint(self) -> int:
        """Up to 32 bits."""
        return self._unsigned(32)

    def unsigned_varlong(self) -> int:
        """Up to 64 bits."""
        return self._unsigned(64)

    def varint(self) -> int:
        """Zig-zag, up to 32 bits."""
        return unzigzag(self._unsigned(32))

    def varlong(self) -> int:
        """Zig-zag, up to 64 bits."""
        return unzigzag(self._unsigned(64))

    def uuid(self) -> str:
        """22 characters; "unknown" is `raft.types.ZERO_UUID`."""
        return uuid_from_bytes(self.raw(UUID_BYTES))

    def _compact_length(self, what: str) -> int | None:
        start = self.position
        length = self._unsigned(32) - 1
        if length < 0:
            return None
        # Each element takes at least a byte, so memory stays bounded by the input.
        if length > self.remaining:
            raise CorruptBatchError(
                start, f"a {what} of {length} is announced and {self.remaining} bytes are left"
            )
        return length

    def _text(self, size: int) -> str:
        start = self._advance(size)
        try:
            return str(self.buffer[start : start + size], "utf-8")
        except UnicodeDecodeError as error:
            raise CorruptBatchError(start, "a string is not UTF-8") from error

    def compact_nullable_string(self) -> str | None:
        length = self._compact_length("string")
        return None if length is None else self._text(length)

    def compact_string(self) -> str:
        start = self.position
        value = self.compact_nullable_string()
        if value is None:
            raise CorruptBatchError(start, "null where a string must be")
        return value

    def compact_nullable_bytes(self) -> bytes | None:
        length = self._compact_length("byte string")
        return None if length is None else self.raw(length)

    def compact_bytes(self) -> bytes:
        start = self.position
        value = self.compact_nullable_bytes()
        if value is None:
            raise CorruptBatchError(start, "null where bytes must be")
        return value

    def compact_nullable_array_length(self) -> int | None:
        return self._compact_length("list")

    def compact_array_length(self) -> int:
        start = self.position
        length = self._compact_length("list")
        if length is None:
            raise CorruptBatchError(start, "null where a list must be")
        return length

    def compact_array(self, element: Callable[[Reader], T]) -> list[T]:
        return [element(self) for _ in range(self.compact_array_length())]

    def compact_nullable_array(self, element: Callable[[Reader], T]) -> list[T] | None:
        length = self.compact_nullable_array_length()
        return None if length is None else [element(self) for _ in range(length)]

    def tagged_fields(self) -> dict[int, bytes]:
        """The tagged fields that follow, undecoded, by tag; tags must rise (KIP-482)."""
        count = self._unsigned(32)
        if count == 0:
            return {}
        fields: dict[int, bytes] = {}
        last = -1
        for _ in range(count):
            start = self.position
            tag = self._unsigned(32)
            if tag <= last:
                raise CorruptBatchError(start, f"tag {tag} follows tag {last}")
            last = tag
            fields[tag] = self.raw(self._unsigned(32))
        return fields


class Writer:
    """Appends Kafka's primitive types to `data`. Values out of range raise ValueError."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data = bytearray()

    def __len__(self) -> int:
        return len(self.data)

    def to_bytes(self) -> bytes:
        return bytes(self.data)

    def _pack(self, form: struct.Struct, value: float) -> None:
        try:
            self.data += form.pack(value)
        except struct.error as error:
            raise ValueError(f"{value} does not fit: {error}") from error

    def raw(self, value: Buffer) -> None:
        self.data += value

    def boolean(self, value: bool) -> None:
        self.data.append(1 if value else 0)

    def int8(self, value: int) -> None:
        self._pack(_INT8, value)

    def uint8(self, value: int) -> None:
        self._pack(_UINT8, value)

    def int16(self, value: int) -> None:
        self._pack(_INT16, value)

    def uint16(self, value: int) -> None:
        self._pack(_UINT16, value)

    def int32(self, value: int) -> None:
        self._pack(_INT32, value)

    def uint32(self, value: int) -> None:
        self._pack(_UINT32, value)

    def int64(self, value: int) -> None:
        self._pack(_INT64, value)

    def float64(self, value: float) -> None:
        self._pack(_FLOAT64, value)

    def _unsigned(self, value: int, bits: int) -> None:
        if value < 0 or value >> bits:
            _out_of_range(value)
        self.data += encode_unsigned_varint(value)

    def unsigned_varint(self, value: int) -> None:
        self._unsigned(value, 32)

    def unsigned_varlong(self, value: int) -> None:
        self._unsigned(value, 64)

    def varint(self, value: int) -> None:
        self._unsigned(zigzag(value), 32)

    def varlong(self, value: int) -> None:
        self._unsigned(zigzag(value), 64)

    def uuid(self, value: str) -> None:
        self.data += uuid_to_bytes(value)

    def compact_nullable_string(self, value: str | None) -> None:
        self.compact_nullable_bytes(None if value is None else value.encode("utf-8"))

    def compact_string(self, value: str) -> None:
        self.compact_nullable_string(value)

    def compact_nullable_bytes(self, value: Buffer | None) -> None:
        self.compact_nullable_array_length(None if value is None else len(value))
        if value is not None:
            self.data += value

    def compact_bytes(self, value: Buffer) -> None:
        self.compact_nullable_bytes(value)

    def compact_nullable_array_length(self, value: int | None) -> None:
        if value is not None and value > COMPACT_LENGTH_MAX:
            _out_of_range(value)
        self._unsigned(0 if value is None else value + 1, 32)

    def compact_array_length(self, value: int) -> None:
        self.compact_nullable_array_length(value)

    def compact_array(self, values: Sequence[T], element: Callable[[Writer, T], None]) -> None:
        self.compact_array_length(len(values))
        for value in values:
            element(self, value)

    def compact_nullable_array(
        self, values: Sequence[T] | None, element: Callable[[Writer, T], None]
    ) -> None:
        if values is None:
            self.compact_nullable_array_length(None)
        else:
            self.compact_array(values, element)

    def tagged_fields(
        self, fields: Mapping[int, Buffer] | Iterable[tuple[int, Buffer]] = ()
    ) -> None:
        """The number of fields, then each one's tag, size and bytes, by rising tag."""
        ordered = sorted(dict(fields).items())
        self._unsigned(len(ordered), 32)
        for tag, value in ordered:
            self._unsigned(tag, 32)
            self._unsigned(len(value), 32)
            self.data += value


def _out_of_range(value: int) -> NoReturn:
    raise ValueError(f"{value} is out of range")
