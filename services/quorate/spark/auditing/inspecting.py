"""Inspects every byte of a replica without trusting any: the input of the audit.

The data source stops at the first fault. This module reports the faulty bytes, searches for the
next whole batch, and continues there. It adds control records as JSON. It runs in Spark's workers,
one file per task.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from quorate.common.batch_layout import NO_PRODUCER_ID
from quorate.log.scan import find_batch, may_follow, read_range
from quorate.records.batch import BatchHeader, iter_records, read_header
from quorate.records.control import TYPE_NAMES, control_json, control_type, decode_control
from quorate.records.errors import RecordsError
from quorate.records.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
from quorate.spark.auditing.index_audit import ENTRY_BYTES, INDEX_SUFFIX, index_fault, read_index
from quorate.spark.decoding import framing, kernels
from quorate.spark.decoding.columns import BATCHES_SCHEMA, ChunkOrigin, batch_rows, read_frames
from quorate.spark.decoding.envelope import Records, read_records
from quorate.spark.decoding.framing import Chunk, Ints, Mask
from quorate.spark.errors import DamagedError
from quorate.spark.files import opened

CONTROLS = pa.list_(pa.field("element", pa.struct([("type", pa.string()), ("data", pa.string())])))
INSPECTED_SCHEMA = pa.schema(
    [
        *BATCHES_SCHEMA,
        ("segment", pa.int64()),
        ("fault", pa.string()),
        ("controls", CONTROLS),
        ("producer_fault", pa.string()),
    ]
)
"""segment: the offset in the file's name. fault: what is wrong with the bytes. If they are not a
batch, base_offset is the offset expected there, and the row has no other fields of a batch header.
controls: the records of a control batch, and of a log also those that begin or end a transaction.
producer_fault: what is wrong with the producer id of a batch of the log."""

TRANSACTION_MARKERS = {
    cls.API_KEY: cls.TYPE
    for cls in (BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord)
}

FILES_SCHEMA = pa.schema(
    [
        ("replica", pa.string()),
        ("file", pa.string()),
        ("segment", pa.int64()),
        ("snapshot", pa.int64()),
    ]
)


def inspect_files(found: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Map rows of FILES_SCHEMA to rows of INSPECTED_SCHEMA."""
    for batch in found:
        for row in batch.to_pylist():
            origin = ChunkOrigin(row["replica"], row["file"], row["snapshot"])
            yield from inspect_file(origin, row["segment"])


def inspect_file(origin: ChunkOrigin, segment: int) -> Iterator[pa.RecordBatch]:
    """Yield every batch of a file, and every run of bytes that is not a batch."""
    is_log = origin.snapshot is None
    expected = segment if is_log else 0
    # The index is read first: a running node appends to it after the segment.
    index = read_index(Path(origin.file)) if is_log else b""
    starts: list[Ints] = []
    offsets: list[Ints] = []
    with opened(origin.file) as (descriptor, size):
        position = 0
        while position < size:
            resume = size
            for chunk in framing.read_chunks(descriptor, position, size, may_be_unwritten=False):
                if len(chunk.starts):
                    yield _rows(chunk, origin, segment)
                    if index:
                        starts.append(chunk.starts + chunk.file_position)
                        offsets.append(chunk.headers["base_offset"].astype(np.int64))
                    expected = int(chunk.last_offsets[-1]) + 1
                if chunk.fault is None:
                    continue
                begin = chunk.file_position + chunk.size
                found = find_batch(descriptor, begin, size, may_follow(expected, size - begin))
                resume = size if found is None else found
                yield _fault(origin, segment, (begin, resume), expected, chunk.fault)
            position = resume
    none = [np.empty(0, np.int64)]
    found_at = np.concatenate(starts or none), np.concatenate(offsets or none)
    wrong = index_fault(index, segment, size, *found_at)
    if wrong is not None:
        of_index = replace(origin, file=str(Path(origin.file).with_suffix(INDEX_SUFFIX)))
        span = wrong.position, wrong.position + ENTRY_BYTES
        yield _fault(of_index, segment, span, wrong.offset, wrong.reason)


def _rows(chunk: Chunk, origin: ChunkOrigin, segment: int) -> pa.RecordBatch:
    plain = batch_rows(chunk, origin)
    count = len(chunk.starts)
    faults: list[str | None] = [None] * count
    controls: list[list[dict[str, str]] | None] = [None] * count
    keyless = np.zeros(count, np.bool_)
    valid = plain.column("crc_valid").to_pylist()
    try:
        records = read_records(chunk)
        sound = True
        if origin.snapshot is None:
            keyless[records.batch[records.key_size < 0]] = True
            _add_markers(controls, records)
    except DamagedError:
        sound = False
    for at, (start, end) in enumerate(zip(chunk.starts.tolist(), chunk.ends.tolist(), strict=True)):
        is_control = bool(chunk.is_control[at])
        if sound and not is_control:
            continue
        view = memoryview(chunk.buffer)[start:end]
        try:
            header = read_header(view)
            if is_control:
                controls[at] = control_records(view, header)
            else:
                for _ in iter_records(view, header):
                    pass
        except RecordsError as error:
            if valid[at]:
                faults[at] = f"its records cannot be read: {error}"
        finally:
            view.release()
    is_log = origin.snapshot is None
    producers = _producer_faults(chunk, keyless) if is_log else pa.nulls(count, pa.string())
    more = [
        pa.repeat(pa.scalar(segment, pa.int64()), count),
        pa.array(faults, pa.string()),
        pa.array(controls, CONTROLS),
        producers,
    ]
    return pa.RecordBatch.from_arrays([*plain.columns, *more], schema=INSPECTED_SCHEMA)


def _add_markers(controls: list[list[dict[str, str]] | None], records: Records) -> None:
    """Add the metadata records that begin or end a transaction, with their offsets."""
    keys = read_frames(records)[kernels.KIND] >> 16
    for row in np.flatnonzero(np.isin(keys, list(TRANSACTION_MARKERS))).tolist():
        batch = int(records.batch[row])
        found = controls[batch] or []
        data = json.dumps({"offset": int(records.offset[row])})
        controls[batch] = [*found, {"type": TRANSACTION_MARKERS[int(keys[row])], "data": data}]


def _producer_faults(chunk: Chunk, keyless: Mask) -> pa.Array:
    """What is wrong with producer ids: only sessions of applications have them (KIP-98)."""
    fields = [
        chunk.headers[name].astype(np.int64)
        for name in ("producer_id", "producer_epoch", "base_sequence")
    ]
    has_none = np.logical_and.reduce([values == NO_PRODUCER_ID for values in fields])
    has_all = np.logical_and.reduce([values >= 0 for values in fields])
    wrong = ~has_none & (~has_all | chunk.is_control | keyless)
    texts: list[str | None] = [None] * len(wrong)
    for at in np.flatnonzero(wrong).tolist():
        producer, epoch, sequence = (int(values[at]) for values in fields)
        texts[at] = (
            f"the batch has producer id {producer}, epoch {epoch} and sequence number {sequence}, "
            "which only batches of an application's session have"
        )
    return pa.array(texts, pa.string())


def control_records(view: memoryview, header: BatchHeader) -> list[dict[str, str]]:
    """The type and the JSON of each record of a control batch. Raises RecordsError."""
    found = []
    for record in iter_records(view, header):
        kind = control_type(record.key)
        content = control_json(decode_control(record.key, record.value))
        name = TYPE_NAMES.get(kind, f"UNKNOWN_CONTROL_{kind}")
        found.append({"type": name, "data": json.dumps(content, separators=(",", ":"))})
    return found


def _fault(
    origin: ChunkOrigin, segment: int, span: tuple[int, int], expected: int, reason: str
) -> pa.RecordBatch:
    begin, end = span
    row = {
        "replica": origin.replica,
        "snapshot": origin.snapshot,
        "base_offset": expected,
        "file": origin.file,
        "position": begin,
        "size": min(end - begin, (1 << 31) - 1),
        "segment": segment,
        "fault": reason,
    }
    return pa.RecordBatch.from_pylist([row], schema=INSPECTED_SCHEMA)


def sample(file: str, position: int, size: int) -> bytes:
    """Read some bytes of a file for display, none if the file does not exist."""
    if not file or not Path(file).is_file():
        return b""
    with opened(file) as (descriptor, _):
        return read_range(descriptor, position, size)
