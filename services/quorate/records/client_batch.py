"""Batches of clients that encode and decode them themselves.

What `build_data_batch` guarantees of a batch has to be checked of a client's before a leader
appends it: the whole log trusts it afterwards. Only the records of applications are accepted, so
each of them needs a key.

Source: KIP-98 (message format 2); Kafka's LogValidator.
"""

from __future__ import annotations

import struct

from quorate.common.batch_layout import (
    ATTRIBUTES_AT,
    COMPRESSION_NAMES,
    CONTROL,
    HEADER_SIZE,
    LAST_DELTA_AT,
    LOG_APPEND_TIME,
    MAX_TIMESTAMP_AT,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    PRODUCER_AT,
    TRANSACTIONAL,
)
from quorate.common.error_codes import ErrorCode
from quorate.records.batch import (
    NO_PRODUCER,
    BatchHeader,
    build_data_batch,
    read_header,
    read_varint,
    seal,
    stamp,
    verify_crc,
)
from quorate.records.errors import CorruptBatchError, RecordsError, UnsupportedBatchError

RECORDS_MAX = 50_000
"""Records in a batch. They are gone through one by one on every node, which delays its commits."""
HEADERS_MAX = 10_000
"""Record headers in a batch, for the same reason."""

_NULL = -1
_MORE = 0x80
"""Set in each byte of a varint except the last."""
_ATTRIBUTES = struct.Struct(">h")
_LAST_DELTA = struct.Struct(">i")
_TIMESTAMP = struct.Struct(">q")
_PRODUCER = struct.Struct(">qhi")
_MARKER = struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 0)
"""Key and value of the marker that commits a transaction: versions, a type, a coordinator's epoch.
"""


class RejectedBatchError(Exception):
    """The batch is not appended. record: the index of the record that is the reason, -1 if none is.

    The text is for the client.
    """

    def __init__(self, error: ErrorCode, text: str, record: int = -1) -> None:
        super().__init__(text)
        self.error = error
        self.record = record


def check_client_batch(data: bytes) -> tuple[BatchHeader, bool]:
    """The header of a valid batch, and whether a record of it has a null value.

    Raises RejectedBatchError.
    """
    try:
        header = read_header(data)
    except UnsupportedBatchError as error:
        raise RejectedBatchError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, str(error)) from None
    except RecordsError as error:
        raise RejectedBatchError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    if header.size_bytes != len(data):
        text = f"the batch has {header.size_bytes} bytes, but {len(data)} were sent: send one batch"
        raise RejectedBatchError(ErrorCode.INVALID_RECORD, text)
    if not verify_crc(data, 0, header):
        raise RejectedBatchError(ErrorCode.CORRUPT_MESSAGE, "the checksum is wrong")
    if fault := _fault_of_header(header):
        raise RejectedBatchError(ErrorCode.INVALID_RECORD, fault)
    if header.compression:
        codec = COMPRESSION_NAMES.get(header.compression, str(header.compression))
        text = f"the log has no compressed records, but these are compressed with {codec}"
        raise RejectedBatchError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, text)
    return header, _has_null_values(data, header)


def set_append_time(batch: bytearray, timestamp_ms: int) -> None:
    """Give all records of a valid batch the time at which it is appended; its CRC is new.

    The timestamps of its producer stay in the records, but readers ignore them. A batch without a
    producer id also loses the rest of a producer, which some clients send. Source: Kafka's
    message.timestamp.type=LogAppendTime.
    """
    header = read_header(batch)
    _ATTRIBUTES.pack_into(batch, ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME)
    _TIMESTAMP.pack_into(batch, MAX_TIMESTAMP_AT, timestamp_ms)
    if header.producer_id == NO_PRODUCER_ID:
        _PRODUCER.pack_into(batch, PRODUCER_AT, *NO_PRODUCER)
    seal(batch)


def placeholder_batch(base_offset: int, end_offset: int, epoch: int) -> bytes:
    """A batch that consumers skip, for the offsets from `base_offset` to before `end_offset`.

    It has one record, the marker that ends a transaction, which every Kafka client knows. A batch
    without records is valid too, but librdkafka takes it for a record above its limit of bytes.
    Source: KIP-98 ("Control Messages").
    """
    batch = build_data_batch([_MARKER], NO_TIMESTAMP)
    _ATTRIBUTES.pack_into(batch, ATTRIBUTES_AT, CONTROL | TRANSACTIONAL)
    _LAST_DELTA.pack_into(batch, LAST_DELTA_AT, end_offset - base_offset - 1)
    seal(batch)
    stamp(batch, base_offset, epoch)
    return bytes(batch)


def _fault_of_header(header: BatchHeader) -> str:
    if header.attributes & CONTROL:
        return "clients cannot append control records"
    if header.attributes & TRANSACTIONAL:
        return "transactions are not supported"
    if header.attributes != header.compression:
        return f"the attributes of the batch are {header.attributes:#x}"
    if header.count == 0:
        return "the batch has no records"
    if header.count > RECORDS_MAX:
        return f"the batch has {header.count} records; at most {RECORDS_MAX}"
    if header.count != header.last_offset_delta + 1:
        return f"{header.count} records have {header.last_offset_delta + 1} offsets"
    # In checkpoints, a producer id without a sequence number has another meaning.
    if header.producer_id != NO_PRODUCER_ID and min(header.producer) < 0:
        return f"the producer is {tuple(header.producer)}: id, epoch and sequence number"
    return ""


def _has_null_values(data: bytes, header: BatchHeader) -> bool:
    """Check the records; returns whether one has a null value. Raises RejectedBatchError."""
    has_null_values = False
    header_count = 0
    position = HEADER_SIZE
    index = 0
    size = len(data)
    try:
        for index in range(header.count):
            length, start = _read_int(data, position)
            end = start + length
            if not start < end <= size:
                raise CorruptBatchError(position, f"a record of {length} bytes")
            if data[start]:
                raise CorruptBatchError(start, f"the record has the attributes {data[start]:#x}")
            _, position = _read_long(data, start + 1)
            delta, position = _read_int(data, position)
            if delta != index:
                raise CorruptBatchError(start, f"the record has the offset delta {delta}")
            key_size, position = _read_int(data, position)
            if key_size < 0:
                text = "a record of this topic needs a key"
                raise RejectedBatchError(ErrorCode.INVALID_RECORD, text, index)
            value_size, position = _read_int(data, position + key_size)
            if value_size >= 0:
                position += value_size
            elif value_size == _NULL:
                has_null_values = True
            else:
                raise CorruptBatchError(position, f"a value of {value_size} bytes")
            count, position = _read_int(data, position)
            if count:
                header_count += count
                if not 0 < count <= header_count <= HEADERS_MAX:
                    text = f"{count} record headers; at most {HEADERS_MAX} in a batch"
                    raise CorruptBatchError(position, text)
                position = _after_headers(data, position, count)
            if position != end:
                raise CorruptBatchError(start, f"a record of {length} bytes ends elsewhere")
    except CorruptBatchError as error:
        raise RejectedBatchError(ErrorCode.INVALID_RECORD, str(error), index) from None
    except IndexError:
        text = "a record passes the end of its batch"
        raise RejectedBatchError(ErrorCode.INVALID_RECORD, text, index) from None
    if position != size:
        text = f"{size - position} bytes too many in the batch"
        raise RejectedBatchError(ErrorCode.INVALID_RECORD, text)
    return has_null_values


def _after_headers(data: bytes, position: int, count: int) -> int:
    """Where `count` record headers end. Raises CorruptBatchError, IndexError."""
    for _ in range(count):
        name_size, position = _read_int(data, position)
        if name_size < 0:
            raise CorruptBatchError(position, "a record header has no name")
        value_size, position = _read_int(data, position + name_size)
        if value_size < _NULL:
            raise CorruptBatchError(position, f"the value of a header has {value_size} bytes")
        position += max(0, value_size)
    return position


def _read_int(data: bytes, position: int) -> tuple[int, int]:
    """A zig-zag varint of 32 bits in its only form, and where it ends.

    The readers of the log agree about no other form: to some, a longer one is an error. Raises
    CorruptBatchError, IndexError.
    """
    value = data[position]
    if value < _MORE:
        return (value >> 1) ^ -(value & 1), position + 1
    value, end = read_varint(data, position)
    _check_form(data, position, end)
    if not -(1 << 31) <= value < 1 << 31:
        raise CorruptBatchError(position, f"{value} has more than 32 bits")
    return value, end


def _read_long(data: bytes, position: int) -> tuple[int, int]:
    """The same of 64 bits."""
    value, end = read_varint(data, position)
    _check_form(data, position, end)
    if not -(1 << 63) <= value < 1 << 63:
        raise CorruptBatchError(position, f"{value} has more than 64 bits")
    return value, end


def _check_form(data: bytes, position: int, end: int) -> None:
    if end - position > 1 and data[end - 1] == 0:
        raise CorruptBatchError(position, "a varint is longer than it must be")
