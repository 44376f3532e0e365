"""Converts appends: many records in columns, and their outcome.

Source: proto/quorate/v1/quorum.proto, "Append".
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate

from google.protobuf.message import DecodeError

from quorate.raft.errors import ViolationError
from quorate.rpc import fields as f
from quorate.rpc.wire.limits import BATCH_RECORDS_MAX, CHANGE_TIMEOUT_MS_MAX
from quorate.rpc.wire.values import APPEND_TIMEOUT_MS, AppendOutcome, OpaqueRecord
from quorate.rpc.wire.weighing import varint
from quorate.v1 import quorum_pb2

_CORRELATION_ID_TAG = b"\x08"
"""The first field of a message: encoders write fields in the order of their numbers."""
_UINT64_MAX = (1 << 64) - 1

PACKED_RECORDS_MIN = 4
"""From this many records on, columns cost less than a message for each."""


def encode_append_request(
    correlation_id: int,
    records: Sequence[OpaqueRecord],
    timeout_ms: int,
    trace_parent: str = "",
) -> quorum_pb2.AppendRequest:
    is_packed = len(records) >= PACKED_RECORDS_MIN
    return quorum_pb2.AppendRequest(
        correlation_id=correlation_id,
        records=[] if is_packed else [quorum_pb2.Record(key=k, value=v) for k, v in records],
        packed=_pack(records) if is_packed else None,
        timeout_ms=timeout_ms,
        trace_parent=trace_parent,
    )


def _pack(records: Sequence[OpaqueRecord]) -> quorum_pb2.PackedRecords:
    packed = quorum_pb2.PackedRecords(
        values=b"".join([value for _, value in records]),
        value_sizes=[len(value) for _, value in records],
    )
    if any(key != b"" for key, _ in records):
        packed.keys = b"".join([key for key, _ in records if key])
        packed.key_sizes.extend([-1 if key is None else len(key) for key, _ in records])
    return packed


def _unpack(packed: quorum_pb2.PackedRecords) -> list[OpaqueRecord]:
    """The records. ViolationError if sizes and bytes do not match."""
    count = len(packed.value_sizes)
    values = _cut(packed.values, list(packed.value_sizes), "values")
    keys: Sequence[bytes | None] = (b"",) * count
    if packed.key_sizes or packed.keys:
        sizes = list(packed.key_sizes)
        if len(sizes) != count:
            raise ViolationError(f"{count} records with {len(sizes)} key sizes")
        found = _cut(packed.keys, [max(0, size) for size in sizes], "keys")
        pairs = zip(sizes, found, strict=True)
        keys = [None if size < 0 else key for size, key in pairs]
    return list(zip(keys, values, strict=True))


def _cut(data: bytes, sizes: Sequence[int], what: str) -> Sequence[bytes]:
    ends = list(accumulate(sizes))
    whole = ends[-1] if ends else 0
    if whole != len(data):
        raise ViolationError(f"the {what} have {whole} bytes by their sizes, not {len(data)}")
    if len(set(sizes)) == 1:
        # Most appends have values of one size, and this is several times as fast. Not
        # `struct.unpack`, which caches the format: the sender chooses it.
        return struct.Struct(f"{sizes[0]}s" * len(sizes)).unpack(data)
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def decode_append_request(
    message: quorum_pb2.AppendRequest,
) -> tuple[list[OpaqueRecord], int]:
    """The records and the timeout in milliseconds. ViolationError without records."""
    count = len(message.records) + len(message.packed.value_sizes)
    if count > BATCH_RECORDS_MAX:
        # Checked before any work per record: a message can hold millions.
        raise ViolationError(
            f"an append of {count} records: a batch holds at most {BATCH_RECORDS_MAX}"
        )
    if message.HasField("packed"):
        if message.records:
            raise ViolationError("an append with both packed and single records")
        records = _unpack(message.packed)
    else:
        records = [
            (record.key if record.HasField("key") else None, record.value)
            for record in message.records
        ]
    if not records:
        raise ViolationError("an append without records")
    return records, min(message.timeout_ms or APPEND_TIMEOUT_MS, CHANGE_TIMEOUT_MS_MAX)


def correlation_id_of(data: bytes) -> int:
    """The correlation id of an encoded AppendRequest; 0 if it does not begin with one."""
    if not data.startswith(_CORRELATION_ID_TAG):
        return 0
    try:
        return varint(data, len(_CORRELATION_ID_TAG))[0] & _UINT64_MAX
    except (IndexError, DecodeError):
        return 0


def encode_append_response(
    correlation_id: int, outcome: AppendOutcome
) -> quorum_pb2.AppendResponse:
    return quorum_pb2.AppendResponse(
        correlation_id=correlation_id,
        error_code=f.error_to_wire(outcome.error),
        error_message=outcome.message,
        base_offset=max(0, outcome.base_offset),
        epoch=outcome.leader.epoch,
        current_leader=f.leader_to_wire(outcome.leader),
    )


def decode_append_response(message: quorum_pb2.AppendResponse) -> AppendOutcome:
    error, leader, text = f.answer_from_wire(message)
    return AppendOutcome(error, leader, f.natural(message.base_offset, "the base offset"), text)
