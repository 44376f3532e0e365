"""Converts appends: many records in columns, and their outcome.

Source: proto/quorate/v1/quorum.proto, "Append".
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import cast

from google.protobuf.message import DecodeError

from quorate.common.batch_layout import PRODUCER_EPOCH_MAX
from quorate.common.error_codes import ErrorCode
from quorate.raft.errors import ViolationError
from quorate.records.batch import BatchProducer
from quorate.rpc import fields as f
from quorate.rpc.wire.limits import BATCH_RECORDS_MAX, CHANGE_TIMEOUT_MS_MAX
from quorate.rpc.wire.values import (
    APPEND_TIMEOUT_MS,
    NO_CONDITIONS,
    AppendOutcome,
    LogOffsets,
    OpaqueRecord,
)
from quorate.rpc.wire.weighing import varint
from quorate.v1 import quorum_pb2

_CORRELATION_ID_TAG = b"\x08"
"""The first field of a message: encoders write fields in the order of their numbers."""
_UINT64_MAX = (1 << 64) - 1

_KEY = itemgetter(0)
_VALUE = itemgetter(1)

PACKED_RECORDS_MIN = 4
"""From this many records on, columns cost less than a message for each."""
NULL_SIZE = 0xFFFF_FFFF
"""The size of a null value in columns."""
CONDITIONS_MAX = 1_000
"""The most keys whose offsets one append can expect: they are compared in one step."""
NO_RECORD = -1
"""The least offset that an append can expect: there is no record."""


def encode_append_request(
    correlation_id: int,
    records: Sequence[OpaqueRecord],
    timeout_ms: int,
    trace_parent: str = "",
    conditions: LogOffsets = NO_CONDITIONS,
    *,
    producer: BatchProducer | None = None,
) -> quorum_pb2.AppendRequest:
    """The message. producer: the place of the batch in its producer session, None without one."""
    is_plain = producer is None and conditions == NO_CONDITIONS
    if is_plain and len(records) < PACKED_RECORDS_MIN and None not in map(_VALUE, records):
        return quorum_pb2.AppendRequest(
            correlation_id=correlation_id,
            records=[quorum_pb2.Record(key=key, value=value) for key, value in records],
            timeout_ms=timeout_ms,
            trace_parent=trace_parent,
        )
    message = quorum_pb2.AppendRequest(
        correlation_id=correlation_id, timeout_ms=timeout_ms, trace_parent=trace_parent
    )
    if is_plain:
        _pack(message.packed, records)
        return message
    _pack(message.checked, records)
    if conditions.last is not None:
        message.expected_last_offset = conditions.last
    message.expected_key_offsets.extend(_key_offsets(conditions))
    if producer is not None:
        message.producer_id = producer.producer_id
        message.producer_epoch = producer.producer_epoch
        message.base_sequence = producer.base_sequence
    return message


def _key_offsets(offsets: LogOffsets) -> list[quorum_pb2.KeyOffset]:
    return [quorum_pb2.KeyOffset(key=key, offset=offset) for key, offset in offsets.keys]


def _pack(packed: quorum_pb2.PackedRecords, records: Sequence[OpaqueRecord]) -> None:
    """Fill an empty message, in place: a message that is made first would be copied into it."""
    keys, values = list(map(_KEY, records)), list(map(_VALUE, records))
    packed.values, packed.value_sizes[:] = _join(values, NULL_SIZE)
    if keys.count(b"") < len(keys):
        packed.keys, packed.key_sizes[:] = _join(keys, -1)


def _join(parts: list[bytes | None], null: int) -> tuple[bytes, Iterable[int]]:
    """The parts one after the other, and their sizes; a None has the size `null`."""
    joined = b"".join(filter(None, parts))
    if None in parts:
        return joined, [null if part is None else len(part) for part in parts]
    return joined, map(len, cast("list[bytes]", parts))


def _unpack(packed: quorum_pb2.PackedRecords) -> list[OpaqueRecord]:
    """The records. ViolationError if sizes and bytes do not match."""
    sizes = list(packed.value_sizes)
    count = len(sizes)
    values: Sequence[bytes | None]
    if NULL_SIZE in sizes:
        found = _cut(packed.values, [0 if size == NULL_SIZE else size for size in sizes], "values")
        pairs = zip(sizes, found, strict=True)
        values = [None if size == NULL_SIZE else value for size, value in pairs]
    else:
        values = _cut(packed.values, sizes, "values")
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
    rows = message.records
    if message.HasField("packed") or message.HasField("checked"):
        if rows or (message.HasField("packed") and message.HasField("checked")):
            raise ViolationError("an append with records in several forms")
        columns = message.packed if message.HasField("packed") else message.checked
        _check_count(len(columns.value_sizes))
        records = _unpack(columns)
    else:
        _check_count(len(rows))
        records = [(row.key if row.HasField("key") else None, row.value) for row in rows]
    if not records:
        raise ViolationError("an append without records")
    return records, min(message.timeout_ms or APPEND_TIMEOUT_MS, CHANGE_TIMEOUT_MS_MAX)


def _check_count(count: int) -> None:
    """Raises ViolationError for more records than a batch holds.

    Called before any work per record: a message can hold millions.
    """
    if count > BATCH_RECORDS_MAX:
        raise ViolationError(
            f"an append of {count} records: a batch holds at most {BATCH_RECORDS_MAX}"
        )


def decode_conditions(message: quorum_pb2.AppendRequest) -> LogOffsets:
    """What the append expects. ViolationError if it expects what cannot be."""
    if not (message.HasField("checked") or _is_checked(message)):
        return NO_CONDITIONS
    last = message.expected_last_offset if message.HasField("expected_last_offset") else None
    found = message.expected_key_offsets
    if len(found) > CONDITIONS_MAX:
        raise ViolationError(f"{len(found)} conditions; an append can have {CONDITIONS_MAX}")
    conditions = LogOffsets(last, tuple((each.key, each.offset) for each in found))
    if any(not key for key, _ in conditions.keys):
        raise ViolationError("a condition on the empty key, whose offset is not known")
    if min((*(offset for _, offset in conditions.keys), last or 0)) < NO_RECORD:
        raise ViolationError("a condition with an offset below -1")
    if _is_checked(message) != message.HasField("checked"):
        raise ViolationError("an append with conditions or a session has its records in `checked`")
    return conditions


def _is_checked(message: quorum_pb2.AppendRequest) -> bool:
    """Whether the append has conditions or belongs to a session."""
    return (
        message.HasField("producer_id")
        or message.HasField("expected_last_offset")
        or len(message.expected_key_offsets) > 0
    )


def decode_producer(message: quorum_pb2.AppendRequest) -> BatchProducer | None:
    """The place of the batch in its producer session, None without one.

    Raises ViolationError if it cannot be in the header of a batch.
    """
    if not message.HasField("producer_id"):
        return None
    producer = BatchProducer(message.producer_id, message.producer_epoch, message.base_sequence)
    if min(producer) < 0 or producer.producer_epoch > PRODUCER_EPOCH_MAX:
        raise ViolationError(f"no batch has {producer}")
    return producer


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
        epoch=outcome.leader.epoch if outcome.epoch < 0 else outcome.epoch,
        current_leader=f.leader_to_wire(outcome.leader),
        last_offset=outcome.actual.last,
        key_offsets=_key_offsets(outcome.actual) if outcome.actual.keys else (),
    )


def decode_append_response(message: quorum_pb2.AppendResponse) -> AppendOutcome:
    error, leader, text = f.answer_from_wire(message)
    actual = NO_CONDITIONS
    if error is ErrorCode.CONDITION_FAILED:
        last = message.last_offset if message.HasField("last_offset") else None
        actual = LogOffsets(last, tuple((each.key, each.offset) for each in message.key_offsets))
    base_offset = f.natural(message.base_offset, "the base offset")
    return AppendOutcome(error, leader, base_offset, text, actual, message.epoch)
