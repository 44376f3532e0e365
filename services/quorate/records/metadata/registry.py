"""The registry of metadata records, and their frame in the log.

A value in the metadata log is the frame version (1), the record's api key and its version, each an
unsigned varint, then the message in its flexible encoding, and nothing after it. Records of an api
key or a version that is not declared here are kept as they are, so that a log written by a later
release can be copied, dumped and filtered.

Source: KIP-631, "Record format"; Kafka's MetadataRecordSerde.
"""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from quorate.records.errors import CorruptBatchError, RecordsError, UnsupportedBatchError
from quorate.records.metadata import cluster, nodes, partitions, security
from quorate.records.metadata.as_json import Json, structure_json
from quorate.records.metadata.decoding import Step, read_varint, structure_step
from quorate.records.metadata.encoding import Put, UnsupportedVersionError, structure_put, varint
from quorate.records.metadata.from_json import json_reader
from quorate.records.metadata.schema import MetadataRecord
from quorate.records.primitives import Buffer

FRAME_VERSION = 1
API_KEY_MAX = 0x7FFF

_MODULES = (cluster, nodes, partitions, security)
"""Where records are declared. A declaration is all that a new type needs here."""


def _declared() -> list[type[MetadataRecord]]:
    """By rising api key."""
    found = [
        each
        for module in _MODULES
        for each in vars(module).values()
        if isinstance(each, type)
        and issubclass(each, MetadataRecord)
        and each.__module__ == module.__name__
    ]
    return sorted(found, key=lambda cls: cls.API_KEY)


_DECLARED = _declared()

RECORD_TYPES: Final[Mapping[int, type[MetadataRecord]]] = MappingProxyType(
    {cls.API_KEY: cls for cls in _DECLARED}
)
"""The declared classes by api key."""

API_KEYS: Final[Mapping[str, int]] = MappingProxyType({cls.TYPE: cls.API_KEY for cls in _DECLARED})
"""The api keys by type name, such as "TOPIC_RECORD"."""

_VERSIONS = [
    (cls, version) for cls in _DECLARED for version in range(cls.VERSIONS.min, cls.VERSIONS.max + 1)
]
_STEPS: dict[tuple[int, int], Step] = {}
"""By api key and version, made when the first record of that kind is read."""

_PUTS: dict[tuple[int, int], tuple[bytes, Put]] = {
    (cls.API_KEY, version): (
        varint(FRAME_VERSION) + varint(cls.API_KEY) + varint(version),
        structure_put(cls, version),
    )
    for cls, version in _VERSIONS
}
_TO_JSON: dict[tuple[int, int], Callable[[MetadataRecord], Json]] = {
    (cls.API_KEY, version): structure_json(cls, version) for cls, version in _VERSIONS
}
_FROM_JSON: dict[str, Callable[[Json], Any]] = {}
"""By type name, made when the first record of that type is read."""


@dataclass(frozen=True, slots=True)
class UnknownRecord:
    """A record that is not declared here. `data` is what follows the frame's three numbers."""

    api_key: int
    version: int
    data: bytes


def type_name(api_key: int) -> str:
    """Kafka's name of a record's type; "UNKNOWN_RECORD_6" when api key 6 is not declared."""
    cls = RECORD_TYPES.get(api_key)
    return f"UNKNOWN_RECORD_{api_key}" if cls is None else cls.TYPE


def decode(value: Buffer) -> MetadataRecord | UnknownRecord:
    """The record in a value of the metadata log.

    CorruptBatchError, with the byte within the value, when the bytes are not what they claim to
    be; UnsupportedBatchError for another frame version.
    """
    data = value if type(value) is bytes else bytes(value)
    try:
        if len(data) > 2 and data[0] == FRAME_VERSION and data[1] < 0x80 and data[2] < 0x80:
            api_key, version, position = data[1], data[2], 3
        else:
            api_key, version, position = _read_frame(data)
        step = _STEPS.get((api_key, version)) or _step_of(api_key, version)
        if step is None:
            return UnknownRecord(api_key, version, data[position:])
        out: list[Any] = []
        position = step(data, position, out)
    except (IndexError, struct.error) as error:
        raise CorruptBatchError(len(data), "a metadata record ends too early") from error
    if position != len(data):
        raise CorruptBatchError(
            position, f"{len(data) - position} bytes too many in {type_name(api_key)}"
        )
    record: MetadataRecord = out[0]
    return record


def step_at(data: bytes, position: int) -> Step | None:
    """What reads the record of the value at `position`, behind a frame of three bytes; None for a
    longer frame, and for what is not declared. IndexError.

    The step knows no other end than that of `data`: where it ended must be compared.
    """
    api_key, version = data[position + 1], data[position + 2]
    if data[position] != FRAME_VERSION or api_key >= 0x80 or version >= 0x80:
        return None
    return _STEPS.get((api_key, version)) or _step_of(api_key, version)


def _step_of(api_key: int, version: int) -> Step | None:
    """None for what is not declared."""
    cls = RECORD_TYPES.get(api_key)
    if cls is None or not cls.VERSIONS.min <= version <= cls.VERSIONS.max:
        return None
    step = _STEPS[api_key, version] = structure_step(cls, version)
    return step


def _read_frame(data: bytes) -> tuple[int, int, int]:
    """Api key, version, and where the message begins."""
    frame_version, position = read_varint(data, 0)
    if frame_version != FRAME_VERSION:
        raise UnsupportedBatchError(0, f"metadata record with frame version {frame_version}")
    api_key, position = read_varint(data, position)
    version, position = read_varint(data, position)
    if api_key > API_KEY_MAX or version > API_KEY_MAX:
        raise CorruptBatchError(1, f"api key {api_key}, version {version}")
    return api_key, version, position


def peek(value: Buffer) -> tuple[int, int] | None:
    """(api key, version) of a value, None if it has no valid frame; the message is not read."""
    if len(value) > 2 and value[0] == FRAME_VERSION and value[1] < 0x80 and value[2] < 0x80:
        return value[1], value[2]
    try:
        # Three varints have at most fifteen bytes.
        api_key, version, _ = _read_frame(bytes(value[:15]))
    except (IndexError, RecordsError):
        return None
    return api_key, version


def encode(record: MetadataRecord | UnknownRecord, version: int | None = None) -> bytes:
    """A value for the metadata log, at the latest version unless another is given.

    `encode(record, record.version)` writes a decoded record as it was. UnsupportedVersionError
    when the version is not declared or lacks a field that is not at its default; ValueError when
    a value is not one of its field's type.
    """
    if isinstance(record, UnknownRecord):
        if version not in (None, record.version):
            raise UnsupportedVersionError(f"api key {record.api_key} is not declared")
        head = varint(FRAME_VERSION) + varint(record.api_key) + varint(record.version)
        return head + record.data
    chosen = record.VERSIONS.max if version is None else version
    found = _PUTS.get((record.API_KEY, chosen))
    if found is None:
        raise _undeclared(record, chosen)
    prefix, put = found
    out = [prefix]
    try:
        put(record, out)
    except (struct.error, TypeError, AttributeError) as error:
        raise ValueError(f"{record!r} cannot be written: {error}") from error
    return b"".join(out)


def _undeclared(record: MetadataRecord, version: int) -> UnsupportedVersionError:
    return UnsupportedVersionError(f"{record.TYPE} has versions {record.VERSIONS}, not {version}")


def to_json(record: MetadataRecord | UnknownRecord, version: int | None = None) -> Json:
    """The JSON form of a record at the version given, else that it was decoded from, else the
    latest. An unknown record's data is `{"bytes": base64}`.
    """
    if isinstance(record, UnknownRecord):
        return {
            "type": type_name(record.api_key),
            "version": record.version,
            "data": {"bytes": b64encode(record.data).decode("ascii")},
        }
    if version is None:
        version = record.VERSIONS.max if record.version is None else record.version
    convert = _TO_JSON.get((record.API_KEY, version))
    if convert is None:
        raise _undeclared(record, version)
    return {"type": record.TYPE, "version": version, "data": convert(record)}


def from_json(type_name: str, data: Json) -> MetadataRecord:
    """The record of a declared type whose `to_json` has that data, at the type's latest version.
    KeyError for a type that is not declared; TypeError and ValueError for other data.
    """
    read = _FROM_JSON.get(type_name)
    if read is None:
        read = _FROM_JSON[type_name] = json_reader(RECORD_TYPES[API_KEYS[type_name]])
    record: MetadataRecord = read(data)
    return record


def decode_json(value: Buffer) -> Json:
    """Return what Kafka's dump tool prints for a value: `{"type": …, "version": …, "data": {…}}`.

    Raises what `decode` does. `json_text` makes Kafka's text of it.
    """
    return to_json(decode(value))
