"""Finds, decodes and encodes the batches with metadata records.

A data batch of the log belongs to the controller or to an application: metadata records have no
key, application records have one, which may be empty. `Append` ensures that a batch contains only
one kind, so the key of the first record identifies it, and the batches of applications are not
decoded. If a batch that begins with metadata contains both, each record is treated as its own kind.

Source: KIP-631 (metadata records have no key); proto/quorate/v1/quorum.proto, OpaqueRecord.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from quorate.metadata.image.delta import MetadataDelta
from quorate.metadata.image.metadata_image import AnyRecord, MetadataImage, ReplayError
from quorate.raft.types import OffsetAndEpoch
from quorate.records.batch import (
    BatchHeader,
    StoredRecord,
    build_data_batch,
    has_keys,
    iter_records,
    keep_base_offset,
    read_header,
)
from quorate.records.errors import RecordsError
from quorate.records.metadata import (
    ApplicationTag,
    NoOpRecord,
    application_field,
    decode,
    encode,
    peek,
)
from quorate.records.metadata.in_batches import plain_records
from quorate.records.primitives import Buffer

SNAPSHOT_BATCH_RECORDS = 1_000
"""The most records in one batch of a snapshot; a reader holds one batch in memory."""
SNAPSHOT_BATCH_BYTES = 1024 * 1024
"""A batch of a snapshot is complete once its values reach this size, bytes."""


def holds_metadata(batch: Buffer, header: BatchHeader) -> bool:
    """Whether the first record has no key. `batch` must be complete, its checksum verified."""
    return not header.is_control and header.count > 0 and not has_keys(batch, header)


def metadata_values(batch: memoryview, header: BatchHeader) -> list[tuple[int, bytes]]:
    """(offset, value) of the batch's metadata records. ReplayError if the batch is damaged."""
    try:
        return [
            (record.offset, record.value or b"")
            for record in iter_records(batch, header)
            if record.key is None
        ]
    except RecordsError as error:
        raise ReplayError(header.base_offset, str(error)) from error


def metadata_records(batch: memoryview, header: BatchHeader) -> tuple[int, Sequence[AnyRecord]]:
    """The batch's metadata records, and the offset of the first.

    Raises ReplayError with the offset of the first record that cannot be decoded.
    """
    quick = plain_records(bytes(batch), header)
    if quick is not None:
        return header.base_offset, quick
    values = metadata_values(batch, header)
    return (values[0][0] if values else header.base_offset), decode_values(values)


def decode_values(values: Iterable[tuple[int, bytes]]) -> list[AnyRecord]:
    """Decode (offset, value) pairs. ReplayError with the first offset that cannot be decoded."""
    records: list[AnyRecord] = []
    append = records.append
    offset = -1
    try:
        for offset, value in values:  # noqa: B007 - the error names the last
            append(decode(value))
    except RecordsError as error:
        raise ReplayError(offset, str(error)) from error
    return records


def apply_batch(image: MetadataImage, header: BatchHeader, batch: memoryview) -> MetadataDelta:
    """Replay one batch completely or not at all; returns the changes. Raises ReplayError."""
    first, records = metadata_records(batch, header)
    if not records:
        return MetadataDelta()
    return image.apply_batch(records, first, header.epoch, header.max_timestamp)


def load_batch(image: MetadataImage, header: BatchHeader, batch: memoryview) -> Sequence[AnyRecord]:
    """Replay one batch of a snapshot into an image without listeners.

    Returns its metadata records. Raises ReplayError.
    """
    if not holds_metadata(batch, header):
        return ()
    first, records = metadata_records(batch, header)
    if records:
        image.load_batch(records, first, header.epoch, header.max_timestamp)
    return records


def field_of(batch: Buffer) -> tuple[ApplicationTag, bytes] | None:
    """What a batch of a snapshot says of applications, and its tag; None for any other batch.

    Such batches have one record each. `batch` is whole, and its checksum was verified. Raises
    RecordsError.
    """
    header = read_header(batch)
    if header.is_control or header.count != 1:
        return None
    (record,) = iter_records(memoryview(batch), header)
    if record.key is not None or peek(record.value or b"") != (NoOpRecord.API_KEY, 0):
        return None
    return application_field(decode(record.value or b""))


def place(image: MetadataImage, snapshot: OffsetAndEpoch) -> None:
    """Set the offset and epoch of an image that was read from a snapshot."""
    image.offset, image.epoch = snapshot.offset - 1, snapshot.epoch


def application_batches(batch: Buffer, header: BatchHeader) -> Iterator[bytearray]:
    """The application records of a batch, as batches for a checkpoint that keep their offsets.

    This is the batch itself, or nothing; or, if application records follow metadata, one batch for
    each run of consecutive offsets.
    """
    if not holds_metadata(batch, header):
        whole = bytearray(batch)
        keep_base_offset(whole, header.base_offset)
        yield whole
        return
    run: list[StoredRecord] = []
    for record in iter_records(memoryview(batch), header):
        if record.key is None:
            continue
        if run and record.offset != run[-1].offset + 1:
            yield _run_batch(run, header)
            run = []
        run.append(record)
    if run:
        yield _run_batch(run, header)


def _run_batch(run: Sequence[StoredRecord], header: BatchHeader) -> bytearray:
    batch = build_data_batch([(record.key, record.value) for record in run], header.max_timestamp)
    keep_base_offset(batch, run[0].offset)
    return batch


def build_metadata_batch(records: Sequence[AnyRecord], now_ms: int) -> bytearray:
    """One batch of new records, each in the version that it specifies, else in the latest."""
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
