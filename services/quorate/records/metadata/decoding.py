"""Builds the functions that decode a declared class at one version.

1. Fields that are not tagged are read in the order of the declaration, by source that is put
   together from it. Neighbours of fixed size are read at once.
2. A count of tagged fields follows. Zero is the usual case and costs one comparison; otherwise
   each field is read within its size, by rising tag, and unknown ones are kept as they are.
3. The object is made and its fields are set, without a call of its initializer.

A `Step` appends what it reads at `position` to a list and returns the position after it. Steps
work on `bytes`, whole values at a time: a record is small and a log holds millions. They raise
CorruptBatchError; besides that, IndexError and struct.error say that the bytes end too early,
which `registry.decode` translates. Nothing is allocated that the bytes do not pay for.

Source: KIP-482; limits as Kafka's generated readers have them.
"""

from __future__ import annotations

import binascii
import dataclasses
import struct
from collections.abc import Callable
from functools import lru_cache
from itertools import groupby
from typing import Any

from quorate.common.identifiers import UUID_BYTES, UUID_CHARACTERS
from quorate.records.errors import CorruptBatchError
from quorate.records.metadata.schema import FieldSpec, Kind, MetadataRecord, Structure, UnknownTags

Step = Callable[[bytes, int, list[Any]], int]

STRING_BYTES_MAX = 0x7FFF
FIXED_FORMATS = {
    Kind.BOOL: "?",
    Kind.INT8: "b",
    Kind.INT16: "h",
    Kind.UINT16: "H",
    Kind.INT32: "i",
    Kind.INT64: "q",
    Kind.FLOAT64: "d",
}
UUIDS_REMEMBERED = 4096
_SHORT_LISTS = 32
_URL_SAFE = bytes.maketrans(b"+/", b"-_")


@lru_cache(UUIDS_REMEMBERED)
def uuid_text(raw: bytes) -> str:
    """As primitives.uuid_from_bytes, for the few UUIDs that a log repeats in every record."""
    return binascii.b2a_base64(raw)[:UUID_CHARACTERS].translate(_URL_SAFE).decode("ascii")


@lru_cache(UUIDS_REMEMBERED)
def uuid_texts(raw: bytes) -> tuple[str, ...]:
    """The texts of consecutive UUIDs, cached because partitions share their directories."""
    return tuple([uuid_text(raw[i : i + UUID_BYTES]) for i in range(0, len(raw), UUID_BYTES)])


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """An unsigned varint of up to 32 bits, and the position after it."""
    value = shift = 0
    start = position
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= 35:
            raise CorruptBatchError(start, "a varint is longer than 32 bits")
    if value >> 32:
        raise CorruptBatchError(start, "a varint is larger than 32 bits")
    return value, position


def has_fixed_size(spec: FieldSpec) -> bool:
    return not spec.is_array and spec.kind in FIXED_FORMATS


def structure_step(cls: type[Structure], version: int) -> Step:
    """The step that reads a whole object of `cls`.

    Its source is put together from the fields, so that a record is read without a call for each.
    """
    present = [spec for spec in cls.FIELDS if spec.exists_in(version)]
    untagged = [spec for spec in present if spec.tag is None]
    tagged = [spec for spec in present if spec.tag is not None]
    rest = [spec for spec in cls.FIELDS if spec.tag is not None or not spec.exists_in(version)]
    code = _Source(version)
    code.read(untagged)
    read_tags = _tag_reader(cls, tagged, version, [spec.name for spec in rest])
    names = {**code.names, "cls": cls, "new": object.__new__, "read_tags": read_tags}
    names["defaults"] = [spec.default for spec in rest]
    places = {spec.name: f"defaults[{i}]" for i, spec in enumerate(rest)}
    places |= {spec.name: name for spec, name in zip(untagged, code.values, strict=True)}
    places["unknown_tags"] = "()"
    if issubclass(cls, MetadataRecord):
        places["version"] = str(version)
    # As the class's own initializer, at a third of its time.
    assert not hasattr(cls, "__post_init__"), cls
    assert {field.name for field in dataclasses.fields(cls)} == set(places), cls
    made = [f"made.{name} = {value}" for name, value in places.items()]
    tagged_places = [f"made.{spec.name} = last[{i}]" for i, spec in enumerate(rest)]
    source = [
        "def step(data, position, out):",
        *(f"    {line}" for line in code.lines),
        "    made = new(cls)",
        *(f"    {line}" for line in made),
        "    out.append(made)",
        "    if data[position] == 0:",
        "        return position + 1",
        "    last = list(defaults)",
        "    position, made.unknown_tags = read_tags(data, position, last)",
        *(f"    {line}" for line in tagged_places),
        "    return position",
    ]
    exec("\n".join(source), names)  # noqa: S102 - of names and numbers from the declarations alone
    step: Step = names["step"]
    return step


class _Source:
    """The lines that read fields in turn, the names of their values, what the lines refer to."""

    def __init__(self, version: int) -> None:
        self.lines: list[str] = []
        self.values: list[str] = []
        self.names: dict[str, Any] = {"uuid_text": uuid_text, "uuid_texts": uuid_texts}
        self._version = version

    def read(self, specs: list[FieldSpec]) -> None:
        for is_fixed, run in groupby(specs, has_fixed_size):
            if is_fixed:
                self._fixed(list(run))
            else:
                for spec in run:
                    self._one(spec)

    def _name(self) -> str:
        self.values.append(f"v{len(self.values)}")
        return self.values[-1]

    def _refer(self, thing: Any) -> str:
        name = f"r{len(self.names)}"
        self.names[name] = thing
        return name

    def _fixed(self, run: list[FieldSpec]) -> None:
        """Neighbours of fixed size, at once."""
        form = struct.Struct(">" + "".join(FIXED_FORMATS[spec.kind] for spec in run))  # type: ignore[index]
        values = "".join(f"{self._name()}, " for _ in run)
        self.lines += [
            f"{values}= {self._refer(form.unpack_from)}(data, position)",
            f"position += {form.size}",
        ]

    def _one(self, spec: FieldSpec) -> None:
        """A field; what is usual of a list's or a UUID's bytes is read in place."""
        name = self._name()
        if spec.kind is Kind.UUID and not spec.is_array:
            self.lines += [
                f"raw = data[position : position + {UUID_BYTES}]",
                f"if len(raw) < {UUID_BYTES}:",
                "    raise IndexError",
                f"{name} = uuid_text(raw)",
                f"position += {UUID_BYTES}",
            ]
            return
        step = self._refer(_field_step(spec, self._version))
        general = ["one = []", f"position = {step}(data, position, one)", f"{name} = one[0]"]
        if spec.is_array and spec.kind is Kind.UUID:
            size = UUID_BYTES
            usual = [
                f"raw = data[position : position + count * {size}]",
                f"if len(raw) < count * {size}:",
                "    raise IndexError",
                f"{name} = uuid_texts(raw)",
            ]
        elif spec.is_array and spec.kind in FIXED_FORMATS:
            formats = FIXED_FORMATS[spec.kind]
            size = struct.calcsize(">" + formats)
            usual = [f"{name} = {self._refer(_unpackers(formats))}[count](data, position)"]
        elif spec.kind is Kind.STRING and not spec.is_array:
            self._string(name, general)
            return
        else:
            self.lines += general
            return
        self.lines += [
            "count = data[position] - 1",
            f"if 0 <= count < {_SHORT_LISTS}:",
            "    position += 1",
            *(f"    {line}" for line in usual),
            f"    position += count * {size}",
            "else:",
            *(f"    {line}" for line in general),
        ]

    def _string(self, name: str, general: list[str]) -> None:
        """A short one in place; what is wrong with it is found in general."""
        self.lines += [
            "end = position + data[position]",
            f"if position < end < position + {0x80}:",
            "    raw = data[position + 1 : end]",
            "    if len(raw) != end - position - 1:",
            "        raise IndexError",
            "    try:",
            f"        {name} = raw.decode()",
            "        position = end",
            "    except UnicodeDecodeError:",
            *(f"        {line}" for line in general),
            "else:",
            *(f"    {line}" for line in general),
        ]


def _tag_reader(
    cls: type[Structure], tagged: list[FieldSpec], version: int, rest: list[str]
) -> Callable[[bytes, int, list[Any]], tuple[int, UnknownTags]]:
    """Reads the tagged fields into the places of `values`, which run parallel to `rest`."""
    known = {spec.tag: (rest.index(spec.name), _field_step(spec, version)) for spec in tagged}
    not_yet = {spec.tag for spec in cls.FIELDS if spec.tag is not None} - set(known)

    def read(data: bytes, position: int, values: list[Any]) -> tuple[int, UnknownTags]:
        count, position = read_varint(data, position)
        unknown: list[tuple[int, bytes]] = []
        last = -1
        for _ in range(count):
            start = position
            tag, position = read_varint(data, position)
            if tag <= last:
                raise CorruptBatchError(start, f"tag {tag} follows tag {last}")
            last = tag
            size, position = read_varint(data, position)
            end = position + size
            if end > len(data):
                raise CorruptBatchError(start, f"tag {tag} of {size} bytes passes the end")
            if tag in known:
                place, step = known[tag]
                one: list[Any] = []
                if step(data, position, one) != end:
                    raise CorruptBatchError(start, f"tag {tag} does not fill its {size} bytes")
                values[place] = one[0]
            elif tag in not_yet:
                raise CorruptBatchError(start, f"tag {tag} is not valid in version {version}")
            else:
                unknown.append((tag, data[position:end]))
            position = end
        return position, tuple(unknown)

    return read


def _field_step(spec: FieldSpec, version: int) -> Step:
    if not spec.is_array:
        return _value_step(spec.kind, spec.nullable, version)
    if isinstance(spec.kind, Kind) and spec.kind in FIXED_FORMATS:
        return _fixed_array(FIXED_FORMATS[spec.kind], spec.nullable)
    if spec.kind is Kind.UUID:
        return _uuid_array(spec.nullable)
    return _array(_value_step(spec.kind, False, version), spec.nullable)


def _value_step(kind: Kind | type[Structure], nullable: bool, version: int) -> Step:
    if not isinstance(kind, Kind):
        return structure_step(kind, version)
    if kind is Kind.STRING:
        return _string_step(nullable)
    if kind is Kind.BYTES:
        return _bytes_step(nullable)
    if kind is Kind.UUID:
        return _uuid
    return _fixed(FIXED_FORMATS[kind])


def _fixed(formats: str) -> Step:
    """Consecutive values of fixed size."""
    form = struct.Struct(">" + formats)
    unpack, size = form.unpack_from, form.size

    def step(data: bytes, position: int, out: list[Any]) -> int:
        out += unpack(data, position)
        return position + size

    return step


def _uuid(data: bytes, position: int, out: list[Any]) -> int:
    end = position + UUID_BYTES
    if end > len(data):
        raise CorruptBatchError(position, "a UUID passes the end")
    out.append(uuid_text(data[position:end]))
    return end


def _length(data: bytes, position: int, what: str, nullable: bool) -> tuple[int, int]:
    """A compact length, -1 for null, and where the content begins; it must be able to fit."""
    length = data[position]
    at = position + 1
    if length >= 0x80:
        length, at = read_varint(data, position)
    if length - 1 > len(data) - at:
        raise CorruptBatchError(position, f"a {what} of {length - 1} passes the end")
    if length == 0 and not nullable:
        raise CorruptBatchError(position, f"null where a {what} must be")
    return length - 1, at


def _string_step(nullable: bool) -> Step:
    def step(data: bytes, position: int, out: list[Any]) -> int:
        length = data[position]
        if 0 < length < 0x80:
            at = position + 1
            end = position + length
            if end > len(data):
                raise CorruptBatchError(position, f"a string of {length - 1} passes the end")
        else:
            length, at = _length(data, position, "string", nullable)
            if length < 0:
                out.append(None)
                return at
            if length > STRING_BYTES_MAX:
                raise CorruptBatchError(position, f"a string of {length} bytes")
            end = at + length
        try:
            out.append(str(data[at:end], "utf-8"))
        except UnicodeDecodeError as error:
            raise CorruptBatchError(at, "a string is not UTF-8") from error
        return end

    return step


def _bytes_step(nullable: bool) -> Step:
    def step(data: bytes, position: int, out: list[Any]) -> int:
        length, at = _length(data, position, "byte string", nullable)
        if length < 0:
            out.append(None)
            return at
        end = at + length
        out.append(data[at:end])
        return end

    return step


def _array(element: Step, nullable: bool) -> Step:
    def step(data: bytes, position: int, out: list[Any]) -> int:
        length, at = _length(data, position, "list", nullable)
        if length < 0:
            out.append(None)
            return at
        items: list[Any] = []
        for _ in range(length):
            at = element(data, at, items)
        out.append(tuple(items))
        return at

    return step


@lru_cache(None)
def _unpackers(formats: str) -> tuple[Callable[[bytes, int], tuple[Any, ...]], ...]:
    """Those of the short lists, by length."""
    return tuple(struct.Struct(f">{n}{formats}").unpack_from for n in range(_SHORT_LISTS))


def _fixed_array(formats: str, nullable: bool) -> Step:
    size = struct.calcsize(">" + formats)
    unpackers = _unpackers(formats)

    def step(data: bytes, position: int, out: list[Any]) -> int:
        length = data[position]
        if 0 < length <= _SHORT_LISTS:
            out.append(unpackers[length - 1](data, position + 1))
            return position + 1 + (length - 1) * size
        length, at = _length(data, position, "list", nullable)
        if length < 0:
            out.append(None)
            return at
        end = at + length * size
        if end > len(data):
            raise CorruptBatchError(position, f"a list of {length} passes the end")
        out.append(struct.unpack_from(f">{length}{formats}", data, at))
        return end

    return step


def _uuid_array(nullable: bool) -> Step:
    def step(data: bytes, position: int, out: list[Any]) -> int:
        length, at = _length(data, position, "list", nullable)
        if length < 0:
            out.append(None)
            return at
        end = at + length * UUID_BYTES
        if end > len(data):
            raise CorruptBatchError(position, f"a list of {length} passes the end")
        out.append(uuid_texts(data[at:end]))
        return end

    return step
