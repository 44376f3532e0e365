"""The quorum's control records as bytes and as Kafka's JSON, from the values of `raft.batches`.

A control record's key is its key version and its type, two 16-bit integers; its value begins with
the version of its schema. Directory ids that are unknown are sixteen zero bytes.

Kafka (up to 4.3) writes LeaderChange at version 0 and decodes every LeaderChange as one: version 1,
which KIP-853 defines with directory ids, is read here, and written when the value asks for it.

Source: KIP-595, LeaderChangeMessage; KIP-630, SnapshotHeaderRecord and SnapshotFooterRecord;
KIP-853, VotersRecord, KRaftVersionRecord and "Log and snapshot control records".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from quorate.common.endpoints import Endpoint
from quorate.common.features import VersionRange
from quorate.common.identifiers import ZERO_UUID
from quorate.raft.batches import (
    ControlRecord,
    KRaftVersion,
    LeaderChange,
    SnapshotFooter,
    SnapshotHeader,
    UnknownControl,
    VotersRecord,
)
from quorate.raft.types import ReplicaKey, Voter, VoterSet
from quorate.records.errors import CorruptBatchError, UnsupportedBatchError
from quorate.records.primitives import Buffer, Reader, Writer

KEY_VERSION = 0
KEY_SIZE = 4

ABORT = 0
COMMIT = 1
LEADER_CHANGE = 2
SNAPSHOT_HEADER = 3
SNAPSHOT_FOOTER = 4
KRAFT_VERSION = 5
KRAFT_VOTERS = 6

TYPE_NAMES = {
    ABORT: "ABORT",
    COMMIT: "COMMIT",
    LEADER_CHANGE: "LEADER_CHANGE",
    SNAPSHOT_HEADER: "SNAPSHOT_HEADER",
    SNAPSHOT_FOOTER: "SNAPSHOT_FOOTER",
    KRAFT_VERSION: "KRAFT_VERSION",
    KRAFT_VOTERS: "KRAFT_VOTERS",
}

LEADER_CHANGE_VERSION_MAX = 1


def encode_control(record: ControlRecord) -> tuple[bytes, bytes]:
    """The key and the value of a control record."""
    if isinstance(record, UnknownControl):
        return _key(record.type), bytes(record.data)
    version = record.version if isinstance(record, LeaderChange) else 0
    if not 0 <= version <= LEADER_CHANGE_VERSION_MAX:
        raise ValueError(f"LeaderChange has no version {version}")
    writer = Writer()
    writer.int16(version)
    match record:
        case LeaderChange():
            kind = LEADER_CHANGE
            _write_leader_change(writer, record)
        case KRaftVersion():
            kind = KRAFT_VERSION
            writer.int16(record.level)
        case VotersRecord():
            kind = KRAFT_VOTERS
            writer.compact_array(record.voters.voters, _write_voter)
        case SnapshotHeader():
            kind = SNAPSHOT_HEADER
            writer.int64(record.last_contained_log_timestamp)
        case SnapshotFooter():
            kind = SNAPSHOT_FOOTER
    writer.tagged_fields()
    return _key(kind), writer.to_bytes()


def _key(kind: int) -> bytes:
    key = Writer()
    key.int16(KEY_VERSION)
    key.int16(kind)
    return key.to_bytes()


def control_type(key: Buffer | None) -> int:
    """The type that a control record's key names; CorruptBatchError when it names none."""
    if key is None or len(key) < KEY_SIZE:
        raise CorruptBatchError(0, "a control record's key has less than four bytes")
    reader = Reader(key)
    version = reader.int16()
    if version < 0:
        raise CorruptBatchError(0, f"a control record's key has version {version}")
    return reader.int16()


def decode_control(key: Buffer | None, value: Buffer | None) -> ControlRecord:
    """The control record that a key and a value encode.

    CorruptBatchError when they do not; UnsupportedBatchError when the schema's version is newer.
    """
    kind = control_type(key)
    known = _KNOWN.get(kind)
    if known is None:
        return UnknownControl(kind, b"" if value is None else bytes(value))
    name = TYPE_NAMES[kind]
    if value is None:
        raise CorruptBatchError(0, f"{name} has no value")
    reader = Reader(value)
    version = reader.int16()
    newest = LEADER_CHANGE_VERSION_MAX if kind == LEADER_CHANGE else 0
    if version < 0:
        raise CorruptBatchError(0, f"{name} has version {version}")
    if version > newest:
        raise UnsupportedBatchError(0, f"{name} has version {version}, newer than {newest}")
    read_fields, make = known
    start = reader.position
    fields = read_fields(reader, version)
    reader.tagged_fields()
    try:
        record: ControlRecord = make(*fields)
    except ValueError as error:
        raise CorruptBatchError(start, str(error)) from error
    reader.expect_end(name)
    return record


def _directory(text: str) -> str | None:
    return None if text == ZERO_UUID else text


def _write_leader_change(writer: Writer, record: LeaderChange) -> None:
    def write_voter(out: Writer, key: ReplicaKey) -> None:
        out.int32(key.id)
        if record.version >= 1:
            out.uuid(key.directory_id or ZERO_UUID)
        out.tagged_fields()

    writer.int32(record.leader_id)
    writer.compact_array(record.voters, write_voter)
    writer.compact_array(record.granting, write_voter)


def _read_leader_change(reader: Reader, version: int) -> tuple[Any, ...]:
    def read_voter(source: Reader) -> ReplicaKey:
        voter_id = source.int32()
        directory = _directory(source.uuid()) if version >= 1 else None
        source.tagged_fields()
        return ReplicaKey(voter_id, directory)

    leader_id = reader.int32()
    voters = tuple(reader.compact_array(read_voter))
    granting = tuple(reader.compact_array(read_voter))
    return leader_id, voters, granting, version


def _write_endpoint(writer: Writer, endpoint: Endpoint) -> None:
    writer.compact_string(endpoint.name)
    writer.compact_string(endpoint.host)
    writer.uint16(endpoint.port)
    writer.tagged_fields()


def _read_endpoint(reader: Reader) -> Endpoint:
    endpoint = Endpoint(reader.compact_string(), reader.compact_string(), reader.uint16())
    reader.tagged_fields()
    return endpoint


def _write_voter(writer: Writer, voter: Voter) -> None:
    writer.int32(voter.id)
    writer.uuid(voter.key.directory_id or ZERO_UUID)
    writer.compact_array(voter.endpoints, _write_endpoint)
    writer.int16(voter.kraft_version.min)
    writer.int16(voter.kraft_version.max)
    writer.tagged_fields()
    writer.tagged_fields()


def _read_voter(reader: Reader) -> Voter:
    key = ReplicaKey(reader.int32(), _directory(reader.uuid()))
    endpoints = tuple(reader.compact_array(_read_endpoint))
    versions = VersionRange(reader.int16(), reader.int16())
    reader.tagged_fields()
    reader.tagged_fields()
    return Voter(key, endpoints, versions)


_KNOWN: dict[int, tuple[Callable[[Reader, int], tuple[Any, ...]], Callable[..., ControlRecord]]] = {
    LEADER_CHANGE: (_read_leader_change, LeaderChange),
    SNAPSHOT_HEADER: (lambda reader, _: (reader.int64(),), SnapshotHeader),
    SNAPSHOT_FOOTER: (lambda _reader, _: (), SnapshotFooter),
    KRAFT_VERSION: (lambda reader, _: (reader.int16(),), KRaftVersion),
    KRAFT_VOTERS: (
        lambda reader, _: (reader.compact_array(_read_voter),),
        lambda voters: VotersRecord(VoterSet.of(voters)),
    ),
}
"""By type: reads the fields before the tagged ones, and makes the record of them."""


def control_json(record: ControlRecord) -> dict[str, Any]:
    """A control record's value as Kafka's JSON converters print it, fields in their order."""
    match record:
        case LeaderChange():
            return {
                "version": record.version,
                "leaderId": record.leader_id,
                "voters": [_leader_voter_json(key, record.version) for key in record.voters],
                "grantingVoters": [
                    _leader_voter_json(key, record.version) for key in record.granting
                ],
            }
        case KRaftVersion():
            return {"version": 0, "kRaftVersion": record.level}
        case VotersRecord():
            return {"version": 0, "voters": [_voter_json(voter) for voter in record.voters]}
        case SnapshotHeader():
            return {"version": 0, "lastContainedLogTimestamp": record.last_contained_log_timestamp}
        case SnapshotFooter():
            return {"version": 0}
        case UnknownControl():
            return {"type": record.type, "data": record.data.hex()}


def _leader_voter_json(key: ReplicaKey, version: int) -> dict[str, Any]:
    if version == 0:
        return {"voterId": key.id}
    return {"voterId": key.id, "voterDirectoryId": key.directory_id or ZERO_UUID}


def _voter_json(voter: Voter) -> dict[str, Any]:
    return {
        "voterId": voter.id,
        "voterDirectoryId": voter.key.directory_id or ZERO_UUID,
        "endpoints": [
            {"name": endpoint.name, "host": endpoint.host, "port": endpoint.port}
            for endpoint in voter.endpoints
        ],
        "kRaftVersionFeature": {
            "minSupportedVersion": voter.kraft_version.min,
            "maxSupportedVersion": voter.kraft_version.max,
        },
    }
