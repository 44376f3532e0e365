"""Renders a record's JSON as Kafka's dump prints its `data`: the tables for `kernels.write_json`.

Each version of each record type is a run of fields in one table. Types that the table cannot
describe (nested structures, bytes, floating point) have no entry. They are rare, and their records
are decoded one by one, as are records that do not match the declaration or need escapes.

Source: the declarations in `records.metadata`; `records.metadata.as_json` for the text.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from quorate.records.metadata import RECORD_TYPES, MetadataRecord, json_text
from quorate.records.metadata.schema import FieldSpec, Kind
from quorate.spark.decoding import kernels
from quorate.spark.decoding.framing import PAD, Bytes, Ints, Mask
from quorate.spark.errors import DamagedError

_KINDS = {
    Kind.BOOL: kernels.BOOL,
    Kind.INT8: kernels.INT8,
    Kind.INT16: kernels.INT16,
    Kind.UINT16: kernels.UINT16,
    Kind.INT32: kernels.INT32,
    Kind.INT64: kernels.INT64,
    Kind.STRING: kernels.STRING,
    Kind.UUID: kernels.UUID,
}
_TEXT_BYTES_MAX = np.iinfo(np.int32).max
_NONE = -1


@dataclass(frozen=True, slots=True)
class Declared:
    """The declarations in the form that `kernels.write_json` takes."""

    number_of: Ints
    spans: Ints
    fields: Ints
    literals: Bytes

    def write(self, data: Bytes, frames: Ints, out: Bytes, bounds: Ints, is_written: Mask) -> None:
        """Call `kernels.write_json`. out: 15 bytes or more above `kernels.json_room`."""
        places = np.empty(len(self.fields) * kernels.PLACE_BYTES, np.uint8)
        kernels.write_json(
            data.ctypes.data,
            frames,
            self.number_of,
            self.spans,
            self.fields.ctypes.data,
            self.literals.ctypes.data,
            places.ctypes.data,
            out.ctypes.data,
            bounds,
            is_written,
        )


class _Builder:
    def __init__(self) -> None:
        self.literals = bytearray()
        self.fields: list[tuple[int, ...]] = []
        self.spans: list[tuple[int, ...]] = []

    def _literal(self, text: str) -> tuple[int, int]:
        at = len(self.literals)
        self.literals += text.encode("ascii")
        return at, len(self.literals) - at

    def add(self, cls: type[MetadataRecord], version: int) -> int:
        """Add a version's fields in JSON order; return the index of its span."""
        # Tagged fields of other versions have an entry, so that records with them are rejected.
        found = [spec for spec in cls.FIELDS if spec.tag is not None or spec.exists_in(version)]
        first = len(self.fields)
        for spec in found:
            self._add(spec, version)
        after = len(self.fields)
        tagged = [first + i for i, spec in enumerate(found) if spec.tag is not None]
        untagged = [first + i for i, spec in enumerate(found) if spec.tag is None]
        after_untagged = max(untagged, default=first - 1) + 1
        names = sum(len(f',"{spec.json_name}":') for spec in found)
        self.spans.append((first, min(tagged, default=after), after_untagged, after, names))
        return len(self.spans) - 1

    def _add(self, spec: FieldSpec, version: int) -> None:
        assert isinstance(spec.kind, Kind)
        kind = _KINDS[spec.kind] if spec.exists_in(version) else kernels.REFUSED
        name = self._literal(f',"{spec.json_name}":')
        tag, default = _NONE, (0, 0)
        if spec.tag is not None:
            tag, default = spec.tag, self._literal(json_text(spec.default))
        self.fields.append((kind, spec.is_array, spec.nullable, tag, *name, *default))


@lru_cache(1)
def declared() -> Declared:
    """Build the tables of every version of each type that they can describe."""
    builder = _Builder()
    versions = max(cls.VERSIONS.max for cls in RECORD_TYPES.values()) + 1
    number_of = np.full((max(RECORD_TYPES) + 1, versions), _NONE, np.int64)
    for cls in RECORD_TYPES.values():
        if all(spec.kind in _KINDS for spec in cls.FIELDS):
            for version in range(cls.VERSIONS.min, cls.VERSIONS.max + 1):
                number_of[cls.API_KEY, version] = builder.add(cls, version)
    return Declared(
        number_of,
        np.array(builder.spans, np.int64),
        np.array(builder.fields, np.int64),
        np.frombuffer(bytes(builder.literals) + bytes(PAD), np.uint8),
    )


def render(data: Bytes, frames: Ints) -> tuple[pa.Array, Mask]:
    """Render metadata records as JSON, null if not written; return it and which were written.

    data: a chunk's buffer; frames: as filled by `kernels.read_frames`. Raises DamagedError if the
    text could exceed the capacity of a string column, which takes hundreds of megabytes of records.
    """
    tables = declared()
    room = kernels.json_room(frames, tables.number_of, tables.spans)
    if room > _TEXT_BYTES_MAX:
        raise DamagedError(f"{len(data)} bytes in one chunk are too many to render as text")
    count = frames.shape[1]
    out = np.empty(room + PAD, np.uint8)
    bounds = np.empty(count + 1, np.int32)
    is_written = np.empty(count, np.bool_)
    tables.write(data, frames, out, bounds, is_written)
    out.resize(int(bounds[-1]), refcheck=False)  # frees the unused space
    valid = None if is_written.all() else pa.py_buffer(np.packbits(is_written, bitorder="little"))
    text = pa.StringArray.from_buffers(count, pa.py_buffer(bounds), pa.py_buffer(out), valid)
    return text, is_written
