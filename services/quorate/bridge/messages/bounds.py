"""Walks over an encoded message before it is decoded: counts its items, finds unknown tags.

kio creates an object for every item, and a frame of 8 MiB can contain more than a million. This
module walks over the bytes, adds up the lengths of arrays, and stops when there are too many. kio
also rejects a message with a tagged field that it does not know, which KIP-482 asks to skip:
`Walked.known` is the message without such fields.

Rules:
1. An item is an element of an array, at any depth, or a tagged field. The length of an array is
   counted before its elements are walked, so that the limit on items also bounds the walk.
2. Bytes that do not match the schema raise ValueError, as they raise an error in decoding. A
   message that ends too early raises TruncatedError, so the start of one can be checked as well.

Source: Kafka's protocol guide ("Protocol Primitive Types"); KIP-482.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import cache
from typing import Any, Final, get_args

from quorate.common.identifiers import UUID_BYTES, uuid_from_bytes
from quorate.records.primitives import encode_unsigned_varint

FIXED: Final[dict[str, int]] = {
    "int8": 1, "uint8": 1, "bool": 1,
    "int16": 2, "uint16": 2, "error_code": 2,
    "int32": 4, "uint32": 4, "timedelta_i32": 4,
    "int64": 8, "uint64": 8, "float64": 8, "timedelta_i64": 8, "datetime_i64": 8,
    "uuid": 16,
}  # fmt: skip
"""Sizes of the types with a fixed size, bytes."""


class TruncatedError(ValueError):
    """The message ends within a value."""


class Walk:
    """A walk over consecutive messages in `data`, from byte `at` on.

    at: the current position. left: the items that it may still find. removed: the bytes by which
    `known` is shorter so far.
    """

    __slots__ = ("_edits", "at", "data", "items_max", "left", "removed")

    def __init__(self, data: bytes | bytearray, at: int, items_max: int) -> None:
        self.data = data
        self.at = at
        self.items_max = self.left = items_max
        self.removed = 0
        self._edits: list[tuple[int, int, bytes]] = []

    def over(self, kind: Any) -> None:
        """Walk over a message of kio's class `kind`.

        Raises ValueError if there are more than `items_max` items, or if the bytes do not match
        the schema.
        """
        _entity(kind)(self)

    def replace(self, start: int, end: int, content: bytes = b"") -> None:
        """Let `known` have these bytes in place of those from `start` to `end`."""
        self._edits.append((start, end, content))
        self.removed += end - start - len(content)

    @property
    def known(self) -> bytes:
        """The data without the tagged fields that kio does not know."""
        if not self._edits:
            return bytes(self.data)
        parts: list[bytes] = []
        at = 0
        for start, end, content in sorted(self._edits):
            parts += (bytes(self.data[at:start]), content)
            at = end
        return b"".join((*parts, self.data[at:]))

    def skip(self, size: int) -> None:
        self.at += size
        if self.at > len(self.data):
            raise TruncatedError("the message is truncated")

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        start = self.at
        self.skip(size)
        return bytes(self.data[start : self.at])

    def view(self, size: int) -> memoryview:
        """The next `size` bytes, not copied."""
        start = self.at
        self.skip(size)
        return memoryview(self.data)[start : self.at]

    def length(self) -> int:
        """The length of a compact array that is not nullable; its items are counted."""
        items = self.count(self.varint() - 1)
        if items < 0:
            raise ValueError("an array is null")
        return items

    def uuid(self) -> str:
        return uuid_from_bytes(self.take(UUID_BYTES))

    def tagged(self) -> Iterator[tuple[int, int]]:
        """Tag and size of each tagged field of a message or part of one.

        The caller takes the field or skips its size before it asks for the next one.
        """
        for _ in range(self.count(self.varint())):
            yield self.varint(), self.varint()

    def skip_tagged(self) -> None:
        """Skip the tagged fields at the end of a message or part of one that knows none."""
        if self.data[self.at : self.at + 1] == b"\0":
            self.at += 1
        else:
            _walk_tagged(self, {})

    def number(self, size: int) -> int:
        start = self.at
        self.skip(size)
        return int.from_bytes(self.data[start : self.at], "big", signed=True)

    def varint(self) -> int:
        if self.at < len(self.data) and (value := self.data[self.at]) < 0x80:
            self.at += 1
            return value
        value = 0
        for shift in range(0, 35, 7):
            start = self.at
            self.skip(1)
            byte = self.data[start]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError("a number of more than five bytes")

    def count(self, items: int) -> int:
        """Count items (rule 1); returns `items`. Raises ValueError beyond the limit."""
        self.left -= max(0, items)
        if self.left < 0:
            raise ValueError(f"more than {self.items_max} items")
        return items


_Step = Callable[[Walk], None]


@cache
def _entity(kind: Any) -> _Step:
    plain: list[_Step] = []
    tagged: dict[int, _Step] = {}
    is_header = kind.__name__ == "RequestHeader"
    for field in fields(kind):
        # The client id in a request header is a non-flexible string in every version (KIP-482).
        step = _field(field, kind.__flexible__ and not (is_header and field.name == "client_id"))
        if "tag" in field.metadata:
            tagged[field.metadata["tag"]] = step
        else:
            plain.append(step)
    steps = tuple(plain)

    def walk(found: Walk) -> None:
        for step in steps:
            step(found)
        if kind.__flexible__:
            _walk_tagged(found, tagged)

    return walk


def _walk_tagged(found: Walk, steps: dict[int, _Step]) -> None:
    """Walk over the tagged fields at the end of a message or part of one."""
    count_at = found.at
    count = found.count(found.varint())
    count_end, unknown = found.at, 0
    for _ in range(count):
        start = found.at
        tag = found.varint()
        size_at = found.at
        size = found.varint()
        size_end, removed = found.at, found.removed
        if (step := steps.get(tag)) is None:
            found.skip(size)
            found.replace(start, found.at)
            unknown += 1
            continue
        step(found)
        if found.removed > removed:
            found.replace(
                size_at, size_end, encode_unsigned_varint(size - (found.removed - removed))
            )
    if unknown:
        found.replace(count_at, count_end, encode_unsigned_varint(count - unknown))


def _field(field: Any, flexible: bool) -> _Step:
    inner, is_array, is_optional = _unwrapped(field.type)
    if hasattr(inner, "__dataclass_fields__"):
        item = _entity(inner)
        if is_optional and not is_array and "tag" not in field.metadata:
            item = _nullable(item)
    else:
        item = _primitive(field.metadata["kafka_type"], flexible)
    if not is_array:
        return item
    return _array(item, FIXED.get(field.metadata.get("kafka_type", "")), flexible)


def _unwrapped(kind: Any) -> tuple[Any, bool, bool]:
    """The type of a field or of its items, whether it is an array, and whether it is nullable."""
    is_optional = is_array = False
    arguments = get_args(kind)
    if type(None) in arguments:
        is_optional = True
        kind = next(each for each in arguments if each is not type(None))
        arguments = get_args(kind)
    if Ellipsis in arguments:
        is_array = True
        kind = arguments[0]
        kind = next((each for each in get_args(kind) if each is not type(None)), kind)
    return kind, is_array, is_optional


def _primitive(kafka_type: str, flexible: bool) -> _Step:
    size = FIXED.get(kafka_type)
    if size is not None:
        return lambda found: found.skip(size)
    if flexible:
        return lambda found: found.skip(max(0, found.varint() - 1))
    width = 2 if kafka_type == "string" else 4
    return lambda found: found.skip(max(0, found.number(width)))


def _nullable(step: _Step) -> _Step:
    def walk(found: Walk) -> None:
        if found.number(1) >= 0:
            step(found)

    return walk


def _array(item: _Step, size: int | None, flexible: bool) -> _Step:
    def walk(found: Walk) -> None:
        count = found.count(found.varint() - 1 if flexible else found.number(4))
        if size is not None:
            found.skip(max(0, count) * size)
            return
        for _ in range(count):
            item(found)

    return walk
