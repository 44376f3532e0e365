"""Builds the functions that encode an object of a declared class at one version.

1. A field that the version lacks must hold its default, as Kafka demands: dropping what somebody
   said is never silent.
2. Fields that are not tagged are written in the order of the declaration, neighbours of fixed
   size at once.
3. Tagged fields that differ from their defaults follow by rising tag, merged with the unknown
   ones that decoding kept.

A `Put` appends the bytes of a value to a list. Values out of range raise ValueError or
struct.error, missing ones TypeError or AttributeError, which `registry.encode` translates.

Source: KIP-482; limits as Kafka's generated writers have them.
"""

from __future__ import annotations

import binascii
import struct
from collections.abc import Callable
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Any

from quorate.common.identifiers import UUID_BYTES, UUID_CHARACTERS
from quorate.records.errors import RecordsError
from quorate.records.metadata.decoding import (
    FIXED_FORMATS,
    STRING_BYTES_MAX,
    UUIDS_REMEMBERED,
    has_fixed_size,
)
from quorate.records.metadata.schema import FieldSpec, Kind, Structure
from quorate.records.primitives import COMPACT_LENGTH_MAX, encode_unsigned_varint

Put = Callable[[Any, list[bytes]], None]

VARINTS = tuple(encode_unsigned_varint(value) for value in range(4096))
_SHORT_LISTS = 32
_NULL = b"\x00"
_NO_TAGS = b"\x00"
# From the url-safe alphabet to the plain one, whose own two characters are not welcome here.
_PLAIN = bytes.maketrans(b"-_+/", b"+/!!")
_LAST_CHARACTERS = frozenset("AQgw")
"""A UUID's last character holds two bits."""


class UnsupportedVersionError(RecordsError, ValueError):
    """A record cannot be written at the version asked for."""


def varint(value: int) -> bytes:
    """An unsigned varint of up to 32 bits."""
    if 0 <= value < 4096:
        return VARINTS[value]
    if not 0 <= value < 1 << 32:
        raise ValueError(f"{value} is out of range")
    return encode_unsigned_varint(value)


@lru_cache(UUIDS_REMEMBERED)
def uuid_bytes(text: str) -> bytes:
    """As primitives.uuid_to_bytes, for the few UUIDs that a log repeats in every record."""
    if len(text) == UUID_CHARACTERS and text[-1] in _LAST_CHARACTERS:
        try:
            raw = binascii.a2b_base64(
                text.encode("ascii").translate(_PLAIN) + b"==", strict_mode=True
            )
        except (binascii.Error, UnicodeEncodeError):
            raw = b""
        if len(raw) == UUID_BYTES:
            return raw
    raise ValueError(f"not a UUID of {UUID_CHARACTERS} url-safe characters: {text!r}")


def structure_put(cls: type[Structure], version: int) -> Put:
    """Writes a whole object of `cls`."""
    absent = [spec for spec in cls.FIELDS if not spec.exists_in(version)]
    present = [spec for spec in cls.FIELDS if spec.exists_in(version)]
    puts = _puts([spec for spec in present if spec.tag is None], version)
    put_tags = _tag_writer(cls, [spec for spec in present if spec.tag is not None], version)

    def put(value: Any, out: list[bytes]) -> None:
        if absent:
            _check_absence(value, absent, version)
        for get, put_field in puts:
            put_field(get(value), out)
        put_tags(value, out)

    return put


def _check_absence(value: Any, absent: list[FieldSpec], version: int) -> None:
    for spec in absent:
        if not spec.is_default(getattr(value, spec.name)):
            raise UnsupportedVersionError(
                f"{type(value).__name__} has no {spec.name} in version {version}, "
                f"and it is not the default: {getattr(value, spec.name)!r}"
            )


def _tag_writer(cls: type[Structure], tagged: list[FieldSpec], version: int) -> Put:
    ordered = sorted(tagged, key=lambda spec: spec.tag or 0)
    fields = [(spec, spec.tag, _field_put(spec, version)) for spec in ordered]
    reserved = {spec.tag for spec in cls.FIELDS}
    get_all = attrgetter(*(spec.name for spec in ordered), "unknown_tags")
    nothing: Any = (*(spec.default for spec in ordered), ()) if ordered else ()

    def put(value: Any, out: list[bytes]) -> None:
        if get_all(value) == nothing:
            out.append(_NO_TAGS)
            return
        written: list[tuple[int, bytes]] = []
        for spec, tag, put_field in fields:
            content = getattr(value, spec.name)
            if not spec.is_default(content):
                parts: list[bytes] = []
                put_field(content, parts)
                assert tag is not None
                written.append((tag, b"".join(parts)))
        if value.unknown_tags:
            tags = [tag for tag, _ in value.unknown_tags]
            if len(set(tags)) < len(tags) or not reserved.isdisjoint(tags):
                raise ValueError(f"unknown tags {tags} repeat, or are known")
            written = sorted([*written, *value.unknown_tags])
        out.append(varint(len(written)))
        for tag, field in written:
            out += (varint(tag), varint(len(field)), field)

    return put


def _puts(specs: list[FieldSpec], version: int) -> list[tuple[Callable[[Any], Any], Put]]:
    puts: list[tuple[Callable[[Any], Any], Put]] = []
    for is_fixed, run in groupby(specs, has_fixed_size):
        if is_fixed:
            puts.append(_fixed_run(list(run)))
        else:
            puts += [(attrgetter(spec.name), _field_put(spec, version)) for spec in run]
    return puts


def _format(specs: list[FieldSpec]) -> str:
    return "".join(FIXED_FORMATS[spec.kind] for spec in specs if isinstance(spec.kind, Kind))


def _fixed_run(specs: list[FieldSpec]) -> tuple[Callable[[Any], Any], Put]:
    get = attrgetter(*(spec.name for spec in specs))
    if len(specs) == 1:
        return get, _fixed(_format(specs))
    pack = struct.Struct(">" + _format(specs)).pack

    def put(values: Any, out: list[bytes]) -> None:
        out.append(pack(*values))

    return get, put


def _field_put(spec: FieldSpec, version: int) -> Put:
    if not spec.is_array:
        return _value_put(spec.kind, spec.nullable, version)
    if isinstance(spec.kind, Kind) and spec.kind in FIXED_FORMATS:
        return _fixed_array(FIXED_FORMATS[spec.kind], spec.nullable)
    if spec.kind is Kind.UUID:
        return _nullable(_uuid_array) if spec.nullable else _uuid_array
    return _array(_value_put(spec.kind, False, version), spec.nullable)


def _value_put(kind: Kind | type[Structure], nullable: bool, version: int) -> Put:
    if not isinstance(kind, Kind):
        return structure_put(kind, version)
    if kind is Kind.STRING:
        return _nullable(_string) if nullable else _string
    if kind is Kind.BYTES:
        return _nullable(_bytes) if nullable else _bytes
    if kind is Kind.UUID:
        return _uuid
    return _fixed(FIXED_FORMATS[kind])


def _nullable(put_value: Put) -> Put:
    def put(value: Any, out: list[bytes]) -> None:
        if value is None:
            out.append(_NULL)
        else:
            put_value(value, out)

    return put


def _fixed(formats: str) -> Put:
    pack = struct.Struct(">" + formats).pack

    def put(value: Any, out: list[bytes]) -> None:
        out.append(pack(value))

    return put


def _uuid(value: str, out: list[bytes]) -> None:
    out.append(uuid_bytes(value))


def _uuid_array(value: Any, out: list[bytes]) -> None:
    out.append(_compact_length(len(value)))
    out += [uuid_bytes(text) for text in value]


def _string(value: str, out: list[bytes]) -> None:
    data = value.encode("utf-8")
    if len(data) > STRING_BYTES_MAX:
        raise ValueError(f"a string of {len(data)} bytes is over {STRING_BYTES_MAX}")
    out.append(_compact_length(len(data)) + data)


def _bytes(value: bytes, out: list[bytes]) -> None:
    out.append(_compact_length(len(value)))
    out.append(value)


def _compact_length(length: int) -> bytes:
    if length < 4095:
        return VARINTS[length + 1]
    if length > COMPACT_LENGTH_MAX:
        raise ValueError(f"a length of {length} is over {COMPACT_LENGTH_MAX}")
    return varint(length + 1)


def _array(element: Put, nullable: bool) -> Put:
    def put(value: Any, out: list[bytes]) -> None:
        out.append(_compact_length(len(value)))
        for item in value:
            element(item, out)

    return _nullable(put) if nullable else put


@lru_cache(None)
def _packers(formats: str) -> tuple[Callable[..., bytes], ...]:
    """Those of the short lists, by length."""
    return tuple(struct.Struct(f">{n}{formats}").pack for n in range(_SHORT_LISTS))


def _fixed_array(formats: str, nullable: bool) -> Put:
    packers = _packers(formats)

    def put(value: Any, out: list[bytes]) -> None:
        length = len(value)
        if length < _SHORT_LISTS:
            out.append(VARINTS[length + 1] + packers[length](*value))
        else:
            out.append(_compact_length(length) + struct.pack(f">{length}{formats}", *value))

    return _nullable(put) if nullable else put
