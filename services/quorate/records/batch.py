"""Record batches of magic 2 as bytes, both ways.

    0  base offset          int64    23  last offset delta   int32
    8  length after byte 12 int32    27  base timestamp      int64   (milliseconds since 1970)
    12 leader epoch         int32    35  max timestamp       int64
    16 magic                int8     43  producer id         int64
    17 CRC-32C of byte 21.. uint32   51  producer epoch      int16
    21 attributes           int16    53  base sequence       int32
                                     57  number of records   int32, then the records

Rules: the base offset, the epoch and the length lie before the part that the CRC covers, so a
leader stamps a batch without touching what the producer's checksum promises; whoever stores batches
must check offsets and epochs against their neighbours. Records are parsed only where they are used:
replication, reading and recovery look at headers and decode control batches alone. Compressed
batches are refused: the metadata log has none.

Source: KIP-98 (message format 2), KIP-595 (the metadata log uses it unchanged).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c

from quorate.common.batch_layout import (
    BATCH_BYTES_MAX,
    COMPRESSION_MASK,
    COMPRESSION_NAMES,
    CONTROL,
    CRC_AT,
    CRC_START,
    DELETE_HORIZON,
    EPOCH_AT,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    PREFIX_SIZE,
    PRODUCER_AT,
    SEQUENCE_MODULUS,
    TRANSACTIONAL,
)
from quorate.raft.batches import Batch, ControlRecord
from quorate.records.control import decode_control, encode_control
from quorate.records.errors import (
    CorruptBatchError,
    RecordsError,
    TruncatedBatchError,
    UnsupportedBatchError,
)
from quorate.records.primitives import Buffer
from quorate.records.record_parts import record_parts, varint

_HEADER = struct.Struct(">qiibIhiqqqhii")
_BASE_OFFSET = struct.Struct(">q")
_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_PRODUCER = struct.Struct(">qhi")
_ROOM_FOR_HEADER = bytes(HEADER_SIZE)


class BatchProducer(NamedTuple):
    """The fields of a header that identify the batch among those of its producer session."""

    producer_id: int
    """The producer id of the session."""
    producer_epoch: int
    base_sequence: int
    """The sequence number of the first record, which counts the records of the session modulo
    2^31.
    """


NO_PRODUCER = BatchProducer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)
"""The producer of a batch that belongs to no session."""


class BatchHeader(NamedTuple):
    """The 61 bytes before a batch's records. `length` counts the bytes after the first twelve."""

    base_offset: int
    length: int
    epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # the number of records, not tuple's method

    @property
    def size_bytes(self) -> int:
        """The whole batch, header included."""
        return self.length + PREFIX_SIZE

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def producer(self) -> BatchProducer:
        """The place of a batch of the log in a producer session."""
        return BatchProducer(self.producer_id, self.producer_epoch, self.base_sequence)

    @property
    def log_base_offset(self) -> int | None:
        """The base offset in the log of a batch in a checkpoint; None if unknown.

        See `keep_base_offset`. Release 0.1.0 copies batches from the log as they are: those of a
        producer session then still have sequence numbers, and the session's id.
        """
        is_kept = self.producer_id >= 0 and self.base_sequence == NO_SEQUENCE
        return self.producer_id if is_kept else None

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def compression(self) -> int:
        """The codec's number, 0 for none (see COMPRESSION_NAMES)."""
        return self.attributes & COMPRESSION_MASK

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % SEQUENCE_MODULUS


@dataclass(slots=True)
class Record:
    """One record. Sizes are -1 for null, as Kafka's dump prints them; `sequence` -1 for none.

    Example:
        async for record in client.read():
            print(record.offset, record.timestamp, record.key, record.value)
    """

    offset: int | None
    """The offset in the log; None for a record of a snapshot whose offset in the log is not
    known.
    """
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    sequence: int = NO_SEQUENCE

    @property
    def key_size(self) -> int:
        return -1 if self.key is None else len(self.key)

    @property
    def value_size(self) -> int:
        return -1 if self.value is None else len(self.value)


@dataclass(slots=True)
class StoredRecord(Record):
    """A record as it lies in a file."""

    offset: int
    """The offset in that file."""


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`, checked for what it says of itself; the records may be missing.

    TruncatedBatchError when fewer than 61 bytes are left, UnsupportedBatchError for an older
    magic, CorruptBatchError for numbers that no writer produces.
    """
    try:
        fields = _HEADER.unpack_from(buffer, position)
    except struct.error:
        left = len(buffer) - position
        raise TruncatedBatchError(position, f"{left} bytes of a header") from None
    base_offset, length, epoch, magic, _, _, last_offset_delta, *_, count = fields
    if (
        magic == MAGIC
        and length >= HEADER_SIZE - PREFIX_SIZE
        and base_offset >= 0
        and epoch >= -1
        and 0 <= count <= last_offset_delta + 1
    ):
        return tuple.__new__(BatchHeader, fields)
    raise _refusal(BatchHeader._make(fields), position)


def _refusal(header: BatchHeader, position: int) -> RecordsError:
    """What is wrong with a header that `read_header` does not take."""
    if header.magic in (0, 1):
        return UnsupportedBatchError(position, f"message format {header.magic}")
    if header.magic != MAGIC:
        return CorruptBatchError(position, f"magic {header.magic}")
    if header.length < HEADER_SIZE - PREFIX_SIZE:
        return CorruptBatchError(position, f"length {header.length}")
    if header.base_offset < 0 or header.epoch < -1:
        return CorruptBatchError(
            position, f"base offset {header.base_offset}, epoch {header.epoch}"
        )
    return CorruptBatchError(
        position, f"{header.count} records in {header.last_offset_delta + 1} offsets"
    )


def verify_crc(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    """Whether the whole batch is there and its checksum is right."""
    end = position + header.size_bytes
    if end > len(buffer):
        return False
    crc: int = crc32c(memoryview(buffer)[position + CRC_START : end])
    return crc == header.crc


def iter_batches(data: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Each batch's header and bytes, without a look at checksums.

    Raises what `read_header` does, and TruncatedBatchError when the last batch is not whole.
    """
    view = memoryview(data)
    position = 0
    size = len(view)
    while position < size:
        header = read_header(view, position)
        end = position + header.size_bytes
        if end > size:
            raise TruncatedBatchError(
                position, f"{size - position} of {header.size_bytes} bytes are there"
            )
        yield header, view[position:end]
        position = end


def has_keys(batch: Buffer, header: BatchHeader) -> bool:
    """Whether the first record has a key, which tells the records of applications from metadata.

    `batch` is whole and its checksum was checked. False for control batches and without records.
    """
    if header.is_control or header.count == 0:
        return False
    position = HEADER_SIZE
    # Length, attributes, and the deltas of timestamp and offset lie before the key's length.
    for skipped in (0, 1, 0):
        position += skipped
        while batch[position] & 0x80:
            position += 1
        position += 1
    return bool(batch[position] != 1)


def iter_records(batch: memoryview, header: BatchHeader) -> Iterator[StoredRecord]:
    """The records of one batch (its header's bytes included), bounds checked.

    CorruptBatchError with the byte within the batch; UnsupportedBatchError if it is compressed.
    """
    if header.compression:
        codec = COMPRESSION_NAMES.get(header.compression, str(header.compression))
        raise UnsupportedBatchError(0, f"records compressed with {codec}")
    if len(batch) < header.size_bytes:
        raise TruncatedBatchError(0, f"{len(batch)} of {header.size_bytes} bytes are there")
    append_time = header.is_log_append_time
    data = bytes(batch[: header.size_bytes])
    size = len(data)
    position = HEADER_SIZE
    last_delta = -1
    for _ in range(header.count):
        start = position
        try:
            length, position = read_varint(data, position)
            end = position + length
            if length < 0 or end > size:
                raise CorruptBatchError(start, f"a record of {length} bytes")
            # The attributes of a record are one byte, unused in this format.
            timestamp, position = read_varint(data, position + 1)
            delta, position = read_varint(data, position)
            key, position = _read_sized(data, position, end)
            value, position = _read_sized(data, position, end)
            headers: tuple[tuple[str, bytes | None], ...] = ()
            if data[position] == 0:
                position += 1
            else:
                headers, position = _read_headers(data, position, end)
        except IndexError:
            raise CorruptBatchError(start, "a record passes the end of its batch") from None
        if position != end:
            raise CorruptBatchError(start, f"a record of {length} bytes ends elsewhere")
        if not last_delta < delta <= header.last_offset_delta:
            raise CorruptBatchError(start, f"offset delta {delta} after {last_delta}")
        last_delta = delta
        sequence = header.base_sequence
        if sequence != NO_SEQUENCE:
            sequence = (sequence + delta) % SEQUENCE_MODULUS
        timestamp = header.max_timestamp if append_time else header.base_timestamp + timestamp
        yield StoredRecord(header.base_offset + delta, timestamp, key, value, headers, sequence)
    if position != size:
        raise CorruptBatchError(position, f"{size - position} bytes too many in the batch")


def iter_keys(batch: Buffer, header: BatchHeader) -> Iterator[tuple[int, bytes | None, bool]]:
    """(offset delta, key, whether it has a value) of each record of a batch that was verified.

    This takes a fraction of the time of `iter_records`. CorruptBatchError if a record passes the
    end of its batch.
    """
    data = bytes(batch)
    size = len(data)
    position = HEADER_SIZE
    try:
        for _ in range(header.count):
            start = position
            length, position = read_varint(data, position)
            end = position + length
            # One byte of attributes; the delta of the timestamp is mostly one byte, too.
            position += 1
            while data[position] & 0x80:
                position += 1
            delta, position = read_varint(data, position + 1)
            key, position = _read_sized(data, position, end)
            if not position < end <= size:
                raise CorruptBatchError(start, f"a record of {length} bytes")
            yield delta, key, data[position] != 1  # the size of a null is -1, the varint 1
            position = end
    except IndexError:
        raise CorruptBatchError(size, "a record passes the end of its batch") from None


def snapshot_records(batch: memoryview, header: BatchHeader) -> Iterator[Record]:
    """The records of a checkpoint's batch, with their offsets in the log, None if unknown.

    Raises what `iter_records` does.
    """
    base = header.log_base_offset
    for record in iter_records(batch, header):
        placed: Record = record
        placed.offset = None if base is None else record.offset + base - header.base_offset
        # Release 0.1.0 leaves the sequence of a session in the header.
        placed.sequence = NO_SEQUENCE
        yield placed


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """A zig-zag varint of up to 64 bits, and where it ends.

    IndexError at the end of `data`, CorruptBatchError for a longer varint.
    """
    value = data[position]
    position += 1
    if value >= 0x80:
        value &= 0x7F
        shift = 7
        while True:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift >= 64:
                raise CorruptBatchError(position, "a varint is longer than 64 bits")
    return (value >> 1) ^ -(value & 1), position


def _read_sized(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    size, start = read_varint(data, position)
    if size < 0:
        return None, start
    if size > end - start:
        raise CorruptBatchError(position, f"{size} bytes in a record that ends {end - start} on")
    return data[start : start + size], start + size


def _read_headers(
    data: bytes, position: int, end: int
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    start = position
    count, position = read_varint(data, position)
    if not 0 <= count <= end - position:
        raise CorruptBatchError(start, f"{count} record headers")
    headers = []
    for _ in range(count):
        name, position = _read_sized(data, position, end)
        if name is None:
            raise CorruptBatchError(start, "a record header has no name")
        value, position = _read_sized(data, position, end)
        headers.append((name.decode("utf-8", "replace"), value))
    return tuple(headers), position


def build_data_batch(
    records: Sequence[tuple[bytes | None, bytes | None]],
    timestamp_ms: int,
    producer: BatchProducer = NO_PRODUCER,
) -> bytearray:
    """A batch of (key, value) pairs with base offset 0 and epoch 0, for `stamp`; CRC done.

    ValueError when `records` is empty or the batch would pass 2 GiB.
    """
    parts = record_parts(records, _ROOM_FOR_HEADER)
    return _finish(parts, len(records), 0, timestamp_ms, producer)


def build_control_batch(records: Sequence[ControlRecord], timestamp_ms: int) -> bytearray:
    """A control batch with base offset 0 and epoch 0, for `stamp`; CRC done."""
    parts = [_ROOM_FOR_HEADER]
    for delta, record in enumerate(records):
        key, value = encode_control(record)
        body = b"".join(
            (b"\x00\x00", varint(delta), varint(len(key)), key, varint(len(value)), value)
        )
        parts.append(varint(len(body) + 1) + body + b"\x00")
    return _finish(parts, len(records), CONTROL, timestamp_ms)


def _finish(
    parts: list[bytes],
    count: int,
    attributes: int,
    timestamp_ms: int,
    producer: BatchProducer = NO_PRODUCER,
) -> bytearray:
    if count == 0:
        raise ValueError("a batch holds at least one record")
    batch = bytearray().join(parts)
    if len(batch) > BATCH_BYTES_MAX:
        raise ValueError(f"a batch of {len(batch)} bytes is over {BATCH_BYTES_MAX}")
    _HEADER.pack_into(
        batch,
        0,
        0,
        len(batch) - PREFIX_SIZE,
        0,
        MAGIC,
        0,
        attributes,
        count - 1,
        timestamp_ms,
        timestamp_ms,
        *producer,
        count,
    )
    seal(batch)
    return batch


def seal(batch: bytearray) -> None:
    """Write the checksum of what a whole batch has now."""
    # The view must be gone before the caller may resize the bytearray.
    with memoryview(batch) as view:
        _CRC.pack_into(batch, CRC_AT, crc32c(view[CRC_START:]))


def stamp(batch: bytearray, base_offset: int, epoch: int) -> None:
    """Give a batch its place in the log; its CRC stays right."""
    _BASE_OFFSET.pack_into(batch, 0, base_offset)
    _EPOCH.pack_into(batch, EPOCH_AT, epoch)


def keep_base_offset(batch: bytearray, base_offset: int) -> None:
    """Write a batch's base offset in the log into a batch for a checkpoint; its CRC is new.

    A checkpoint has consecutive offsets of its own. The producer id, which the batches of a
    checkpoint do not use otherwise, keeps the one that the log gave; the batch no longer says to
    which producer session it belongs. Whoever copies the batch into the next checkpoint, of any
    version, copies it too.
    """
    _PRODUCER.pack_into(batch, PRODUCER_AT, base_offset, NO_PRODUCER_EPOCH, NO_SEQUENCE)
    seal(batch)


def first_records(batch: memoryview, header: BatchHeader, end_offset: int) -> bytearray:
    """The batch with only its records before `end_offset`, their bytes unchanged; its CRC is new.

    Its offsets end at `end_offset`. ValueError if that is not inside the batch, or no record would
    stay. Raises what `iter_records` does.
    """
    if not header.base_offset < end_offset < header.end_offset:
        raise ValueError(f"offset {end_offset} is not inside the batch")
    kept = [record for record in iter_records(batch, header) if record.offset < end_offset]
    if not kept:
        raise ValueError(f"the batch has no record before offset {end_offset}")
    data = bytes(batch)
    position = HEADER_SIZE
    for _ in kept:
        length, position = read_varint(data, position)
        position += length
    short = bytearray(data[:position])
    cut = header._replace(
        length=position - PREFIX_SIZE,
        last_offset_delta=end_offset - 1 - header.base_offset,
        max_timestamp=max(record.timestamp for record in kept),
        count=len(kept),
    )
    _HEADER.pack_into(short, 0, *cut)
    seal(short)
    return short


def decode_control_batch(batch: memoryview, header: BatchHeader) -> tuple[ControlRecord, ...]:
    """The control records of a control batch, in order."""
    return tuple(decode_control(record.key, record.value) for record in iter_records(batch, header))


def parse_batches(data: bytes | memoryview, *, verify: bool = True) -> tuple[Batch, ...]:
    """Consecutive batches as values, control records decoded; `data` of each is a view.

    A partial batch at the end is dropped: a fetch ends at a number of bytes. CorruptBatchError
    for a wrong checksum (if `verify`), a broken control record, or batches that do not follow each
    other in offset and epoch; positions count from the beginning of `data`.
    """
    parsed: list[Batch] = []
    position = 0
    try:
        for header, batch in iter_batches(data):
            if verify and not verify_crc(batch, 0, header):
                raise CorruptBatchError(position, "the checksum is wrong")
            _check_order(parsed, header, position)
            control: tuple[ControlRecord, ...] = ()
            if header.is_control:
                control = _control_at(batch, header, position)
            parsed.append(
                Batch(header.base_offset, header.last_offset, header.epoch, control, batch)
            )
            position += header.size_bytes
    except TruncatedBatchError:
        pass
    return tuple(parsed)


def _check_order(parsed: list[Batch], header: BatchHeader, position: int) -> None:
    if not parsed:
        return
    last = parsed[-1]
    if header.base_offset != last.end_offset:
        raise CorruptBatchError(position, f"offset {header.base_offset} follows {last.last_offset}")
    if header.epoch < last.epoch:
        raise CorruptBatchError(position, f"epoch {header.epoch} follows {last.epoch}")


def _control_at(batch: memoryview, header: BatchHeader, position: int) -> tuple[ControlRecord, ...]:
    """Decode, with errors placed in the caller's buffer."""
    try:
        return decode_control_batch(batch, header)
    except UnsupportedBatchError as error:
        raise UnsupportedBatchError(position, error.reason) from error
    except RecordsError as error:
        raise CorruptBatchError(position, f"a control batch is broken: {error}") from error
