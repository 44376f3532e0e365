"""Metadata records in batches: which batches hold them, decoding them, and writing them.

A data batch of the log is the controller's or an application's: metadata records have no key, the
records of applications have one (which may be empty). A batch is all of one kind, as `Append` sees
to, so the first record's key tells which, and batches of applications are not looked into. Should
metadata and keys stand in one batch that begins with metadata, each is taken for what it is.

Source: KIP-631 (metadata records have no key); proto/quorate/v1/quorum.proto, OpaqueRecord.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from quorate.metadata.changes import Changes
from quorate.metadata.image import AnyRecord, MetadataImage, ReplayError
from quorate.raft.types import OffsetAndEpoch
from quorate.records.batch import HEADER_SIZE as HEADER
from quorate.records.batch import BatchHeader, build_data_batch, iter_records
from quorate.records.errors import RecordsError
from quorate.records.metadata import decode, encode
from quorate.records.primitives import Buffer

SNAPSHOT_BATCH_RECORDS = 1_000
"""Records in one batch of a snapshot; a reader holds one batch in memory."""
SNAPSHOT_BATCH_BYTES = 1024 * 1024
"""A snapshot's batch is closed once its values are as large, bytes."""


def holds_metadata(batch: Buffer, header: BatchHeader) -> bool:
    """Whether the first record has no key. `batch` is whole and its checksum was checked."""
    if header.is_control or header.count == 0:
        return False
    position = HEADER
    # Length, attributes, and the deltas of timestamp and offset lie before the key's length.
    for skipped in (0, 1, 0):
        position += skipped
        while batch[position] & 0x80:
            position += 1
        position += 1
    return bool(batch[position] == 1)


def metadata_values(batch: memoryview, header: BatchHeader) -> list[tuple[int, bytes]]:
    """(offset, value) of the batch's metadata records. ReplayError where the batch is broken."""
    quick = _plain_values(batch, header)
    if quick is not None:
        return quick
    try:
        return [
            (record.offset, record.value or b"")
            for record in iter_records(batch, header)
            if record.key is None
        ]
    except RecordsError as error:
        raise ReplayError(header.base_offset, str(error)) from error


def _plain_values(batch: memoryview, header: BatchHeader) -> list[tuple[int, bytes]] | None:
    """The same for a batch as Kafka and Quorate write them: no keys, no headers, no gaps, short
    varints. None for any other, which `iter_records` reads, or refuses.
    """
    data = bytes(batch)
    if header.compression or len(data) != header.size_bytes:
        return None
    found: list[tuple[int, bytes]] = []
    position = HEADER
    first = header.base_offset
    try:
        for expected in range(header.count):
            # The three numbers are read in place where they are short: a call costs as much as
            # the rest of a record.
            length, second = data[position], data[position + 1]
            if length & 1:
                return None  # it is negative
            if length < 0x80:
                length >>= 1
                position += 1
            elif second < 0x80:
                length = (length + ((second - 1) << 7)) >> 1
                position += 2
            else:
                length, position = _short_varint(data, position)
            end = position + length
            # Attributes, then the timestamp's delta.
            at = position + (2 if data[position + 1] < 0x80 else 3)
            delta, second = data[at], data[at + 1]
            if delta & 1:
                return None
            if delta < 0x80:
                delta >>= 1
                at += 1
            elif second < 0x80:
                delta = (delta + ((second - 1) << 7)) >> 1
                at += 2
            else:
                delta, at = _short_varint(data, at)
            if delta != expected or data[at] != 1:
                return None
            size, second = data[at + 1], data[at + 2]
            if size & 1:
                return None
            if size < 0x80:
                size >>= 1
                at += 2
            elif second < 0x80:
                size = (size + ((second - 1) << 7)) >> 1
                at += 3
            else:
                size, at = _short_varint(data, at + 1)
            position = at + size + 1
            if position != end or data[position - 1] != 0:
                return None
            found.append((first + delta, data[at : at + size]))
    except (IndexError, ValueError):
        return None
    return found if position == len(data) else None


def _short_varint(data: bytes, position: int) -> tuple[int, int]:
    """A zig-zag varint of at most three bytes that is not negative. ValueError for others."""
    value = data[position]
    if value >= 0x80:
        second = data[position + 1]
        value += (second - 1) << 7
        position += 1
        if second >= 0x80:
            third = data[position + 1]
            if third >= 0x80:
                raise ValueError
            value += (third - 1) << 14
            position += 1
    if value & 1:
        raise ValueError
    return value >> 1, position + 1


def decode_values(values: Iterable[tuple[int, bytes]]) -> list[AnyRecord]:
    """The records. ReplayError with the offset of the first that cannot be read."""
    records: list[AnyRecord] = []
    append = records.append
    offset = -1
    try:
        for offset, value in values:  # noqa: B007 - the error tells the last
            append(decode(value))
    except RecordsError as error:
        raise ReplayError(offset, str(error)) from error
    return records


def apply_batch(image: MetadataImage, header: BatchHeader, batch: memoryview) -> Changes:
    """Replay one batch, all of it or nothing. ReplayError."""
    values = metadata_values(batch, header)
    if not values:
        return Changes()
    records = decode_values(values)
    return image.apply_batch(records, values[0][0], header.epoch, header.max_timestamp)


def place(image: MetadataImage, snapshot: OffsetAndEpoch) -> None:
    """Let an image that was read from a snapshot be as of that snapshot."""
    image.offset, image.epoch = snapshot.offset - 1, snapshot.epoch


def application_batch(batch: Buffer, header: BatchHeader) -> Buffer | None:
    """What a batch holds for applications: itself, a batch without its metadata, or nothing."""
    if not holds_metadata(batch, header):
        return batch
    kept = [
        (record.key, record.value)
        for record in iter_records(memoryview(batch), header)
        if record.key is not None
    ]
    return build_data_batch(kept, header.max_timestamp) if kept else None


def build_metadata_batch(records: Sequence[AnyRecord], now_ms: int) -> bytearray:
    """One batch of new records, each at the version that it names, else at the latest."""
    return build_data_batch([(None, encode(record, record.version)) for record in records], now_ms)


def snapshot_batches(records: Iterable[AnyRecord], timestamp_ms: int) -> Iterator[bytearray]:
    """The records of an image as batches for a snapshot."""
    values: list[tuple[bytes | None, bytes | None]] = []
    size = 0
    for record in records:
        value = encode(record, record.version)
        values.append((None, value))
        size += len(value)
        if len(values) >= SNAPSHOT_BATCH_RECORDS or size >= SNAPSHOT_BATCH_BYTES:
            yield build_data_batch(values, timestamp_ms)
            values, size = [], 0
    if values:
        yield build_data_batch(values, timestamp_ms)
