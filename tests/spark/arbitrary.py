"""Arbitrary records from a seed: every type and version, defaults and tagged fields often."""

from __future__ import annotations

import random
from typing import Any

from quorate.common.identifiers import uuid_from_bytes
from quorate.records.metadata import RECORD_TYPES, MetadataRecord, Structure
from quorate.records.metadata.schema import FieldSpec, Kind

VERSIONS = [
    (cls, version)
    for cls in RECORD_TYPES.values()
    for version in range(cls.VERSIONS.min, cls.VERSIONS.max + 1)
]
_BITS = {Kind.INT8: 8, Kind.INT16: 16, Kind.INT32: 32, Kind.INT64: 64}
_LETTERS = 'abc-_.09 "\\/\n\u0001äß€𝄞'


def _one(rng: random.Random, kind: Kind | type[Structure], version: int) -> Any:
    if not isinstance(kind, Kind):
        return _structure(rng, kind, version)
    if kind in _BITS:
        edge = 1 << (_BITS[kind] - 1)
        return rng.choice((0, -1, 1, edge - 1, -edge, rng.randrange(-edge, edge)))
    match kind:
        case Kind.BOOL:
            return rng.random() < 0.5
        case Kind.UINT16:
            return rng.randrange(1 << 16)
        case Kind.FLOAT64:
            return rng.choice((0.0, 25.5, 1e-9, 1e300, -3.25, rng.random()))
        case Kind.UUID:
            return uuid_from_bytes(rng.randbytes(16))
        case Kind.BYTES:
            return rng.randbytes(rng.choice((0, 1, 32, 130)))
        case _:
            return "".join(rng.choices(_LETTERS, k=rng.choice((0, 1, 5, 20, 127, 200))))


def _value(rng: random.Random, spec: FieldSpec, version: int) -> Any:
    if rng.random() < 0.3:
        return spec.default
    if spec.nullable and rng.random() < 0.3:
        return None
    if spec.is_array:
        size = rng.choice((0, 1, 3, 5, 130)) if isinstance(spec.kind, Kind) else rng.randrange(3)
        return tuple(_one(rng, spec.kind, version) for _ in range(size))
    return _one(rng, spec.kind, version)


def _structure(rng: random.Random, cls: type[Structure], version: int) -> Any:
    fields = {
        spec.name: _value(rng, spec, version) for spec in cls.FIELDS if spec.exists_in(version)
    }
    if rng.random() < 0.1:
        fields["unknown_tags"] = ((100, rng.randbytes(3)), (1 << 20, b""))
    return cls(**fields)


def record(rng: random.Random) -> tuple[MetadataRecord, int]:
    """A record, and a version that can hold it."""
    cls, version = rng.choice(VERSIONS)
    return of(rng, cls, version), version


def of(rng: random.Random, cls: type[MetadataRecord], version: int) -> MetadataRecord:
    made: MetadataRecord = _structure(rng, cls, version)
    return made


def records(rng: random.Random, count: int) -> list[tuple[MetadataRecord, int]]:
    return [record(rng) for _ in range(count)]
