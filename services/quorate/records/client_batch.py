"""Batches of clients that encode and decode them themselves.

What `build_data_batch` guarantees of a batch has to be checked of a client's before a leader
appends it: the whole log trusts it afterwards. Only the records of applications are accepted, so
each of them needs a key.

Source: KIP-98 (message format 2); Kafka's LogValidator.
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from quorate.common.batch_layout import (
    ATTRIBUTES_AT,
    COMPRESSION_NAMES,
    CONTROL,
    CRC_AT,
    CRC_START,
    HEADER_SIZE,
    LAST_DELTA_AT,
    LOG_APPEND_TIME,
    MAX_TIMESTAMP_AT,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TRANSACTIONAL,
)
from quorate.common.error_codes import ErrorCode
from quorate.records.batch import (
    NO_PRODUCER,
    BatchHeader,
    build_data_batch,
    read_header,
    read_varint,
    stamp,
    verify_crc,
)
from quorate.records.errors import CorruptBatchError, RecordsError, UnsupportedBatchError

_NULL = -1
_ATTRIBUTES = struct.Struct(">h")
_LAST_DELTA = struct.Struct(">i")
_TIMESTAMP = struct.Struct(">q")
_CRC = struct.Struct(">I")
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
    """Give all records of a batch the time at which it is appended; its CRC is new.

    The timestamps of its producer stay in the records, but readers ignore them. Source: Kafka's
    message.timestamp.type=LogAppendTime.
    """
    attributes = read_header(batch).attributes | LOG_APPEND_TIME
    _ATTRIBUTES.pack_into(batch, ATTRIBUTES_AT, attributes)
    _TIMESTAMP.pack_into(batch, MAX_TIMESTAMP_AT, timestamp_ms)
    _seal(batch)


def placeholder_batch(base_offset: int, end_offset: int, epoch: int) -> bytes:
    """A batch that consumers skip, for the offsets from `base_offset` to before `end_offset`.

    It has one record, the marker that ends a transaction, which every Kafka client knows. A batch
    without records is valid too, but librdkafka takes it for a record above its limit of bytes.
    Source: KIP-98 ("Control Messages").
    """
    batch = build_data_batch([_MARKER], NO_TIMESTAMP)
    _ATTRIBUTES.pack_into(batch, ATTRIBUTES_AT, CONTROL | TRANSACTIONAL)
    _LAST_DELTA.pack_into(batch, LAST_DELTA_AT, end_offset - base_offset - 1)
    _seal(batch)
    stamp(batch, base_offset, epoch)
    return bytes(batch)


def _seal(batch: bytearray) -> None:
    """Write the checksum of what it covers now."""
    with memoryview(batch) as view:
        _CRC.pack_into(batch, CRC_AT, crc32c(view[CRC_START:]))


def _fault_of_header(header: BatchHeader) -> str:
    if header.attributes & CONTROL:
        return "clients cannot append control records"
    if header.attributes & TRANSACTIONAL:
        return "transactions are not supported"
    if header.attributes != header.compression:
        return f"the attributes of the batch are {header.attributes:#x}"
    if header.count == 0:
        return "the batch has no records"
    if header.count != header.last_offset_delta + 1:
        return f"{header.count} records have {header.last_offset_delta + 1} offsets"
    if header.producer_id == NO_PRODUCER_ID and header.producer == NO_PRODUCER:
        return ""
    # In the log, a producer id without a sequence number has another meaning.
    if min(header.producer) < 0:
        return f"the producer is {tuple(header.producer)}: id, epoch and sequence number"
    return ""


def _has_null_values(data: bytes, header: BatchHeader) -> bool:
    """Check the records; returns whether one has a null value. Raises RejectedBatchError."""
    has_null_values = False
    position = HEADER_SIZE
    index = 0
    size = len(data)
    try:
        for index in range(header.count):
            length, start = read_varint(data, position)
            end = start + length
            if not start < end <= size:
                raise CorruptBatchError(position, f"a record of {length} bytes")
            if data[start]:
                raise CorruptBatchError(start, f"the record has the attributes {data[start]:#x}")
            _, position = read_varint(data, start + 1)
            delta, position = read_varint(data, position)
            if delta != index:
                raise CorruptBatchError(start, f"the record has the offset delta {delta}")
            key_size, position = read_varint(data, position)
            if key_size < 0:
                text = "a record of this topic needs a key"
                raise RejectedBatchError(ErrorCode.INVALID_RECORD, text, index)
            value_size, position = read_varint(data, position + key_size)
            if value_size >= 0:
                position += value_size
            elif value_size == _NULL:
                has_null_values = True
            else:
                raise CorruptBatchError(position, f"a value of {value_size} bytes")
            count, position = read_varint(data, position)
            if count:
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
    if not 0 < count <= len(data) - position:
        raise CorruptBatchError(position, f"{count} record headers")
    for _ in range(count):
        name_size, position = read_varint(data, position)
        if name_size < 0:
            raise CorruptBatchError(position, "a record header has no name")
        value_size, position = read_varint(data, position + name_size)
        if value_size < _NULL:
            raise CorruptBatchError(position, f"the value of a header has {value_size} bytes")
        position += max(0, value_size)
    return position
