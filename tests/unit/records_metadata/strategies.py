"""Hypothesis strategies for every declared record, derived from the declarations."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from quorate.common.identifiers import uuid_from_bytes
from quorate.records.metadata import RECORD_TYPES, MetadataRecord, Structure
from quorate.records.metadata.schema import FieldSpec, Kind

VERSIONS = [
    (cls, version)
    for cls in RECORD_TYPES.values()
    for version in range(cls.VERSIONS.min, cls.VERSIONS.max + 1)
]
"""Every declared class with each of its versions."""

TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
UNKNOWN_TAGS = st.dictionaries(
    st.integers(100, 0xFFFF_FFFF), st.binary(max_size=20), max_size=3
).map(lambda tags: tuple(sorted(tags.items())))

_KINDS: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.BOOL: st.booleans(),
    Kind.INT8: st.integers(-(1 << 7), (1 << 7) - 1),
    Kind.INT16: st.integers(-(1 << 15), (1 << 15) - 1),
    Kind.UINT16: st.integers(0, (1 << 16) - 1),
    Kind.INT32: st.integers(-(1 << 31), (1 << 31) - 1),
    Kind.INT64: st.integers(-(1 << 63), (1 << 63) - 1),
    Kind.FLOAT64: st.floats(allow_nan=False),
    Kind.STRING: TEXT,
    Kind.BYTES: st.binary(max_size=300),
    Kind.UUID: st.binary(min_size=16, max_size=16).map(uuid_from_bytes),
}


def field_values(
    spec: FieldSpec, version: int, unknown_tags: bool = True
) -> st.SearchStrategy[Any]:
    if isinstance(spec.kind, Kind):
        values = _KINDS[spec.kind]
    else:
        values = structures(spec.kind, version, unknown_tags)
    if spec.is_array:
        values = st.lists(values, max_size=40 if isinstance(spec.kind, Kind) else 4).map(tuple)
    if spec.nullable:
        values = st.none() | values
    # The default often, because fields with tags then vanish.
    return st.just(spec.default) | values


def structures(
    cls: type[Structure], version: int, unknown_tags: bool = True
) -> st.SearchStrategy[Any]:
    """Objects of `cls` that `version` can hold; unknown tagged fields too if wanted."""
    fields = {
        spec.name: field_values(spec, version, unknown_tags)
        for spec in cls.FIELDS
        if spec.exists_in(version)
    }
    if unknown_tags:
        fields["unknown_tags"] = st.just(()) | UNKNOWN_TAGS
    return st.builds(cls, **fields)


def records() -> st.SearchStrategy[tuple[MetadataRecord, int]]:
    """A record with a version that can hold it."""
    return st.sampled_from(VERSIONS).flatmap(
        lambda chosen: structures(*chosen).map(lambda record: (record, chosen[1]))
    )
