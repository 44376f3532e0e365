"""Inspects every byte of a replica without trusting any: the input of the audit.

The data source stops at the first fault. This module reports the faulty bytes, searches for the
next whole batch, and continues there. It adds control records as JSON. It runs in Spark's workers,
one file per task.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from quorate.log.scan import find_batch, may_follow, read_range
from quorate.records.batch import BatchHeader, iter_records, read_header
from quorate.records.control import TYPE_NAMES, control_json, control_type, decode_control
from quorate.records.errors import RecordsError
from quorate.spark import framing
from quorate.spark.columns import BATCHES_SCHEMA, ChunkOrigin, batch_rows
from quorate.spark.envelope import read_records
from quorate.spark.errors import DamagedError
from quorate.spark.files import opened
from quorate.spark.framing import Chunk

CONTROLS = pa.list_(pa.field("element", pa.struct([("type", pa.string()), ("data", pa.string())])))
INSPECTED_SCHEMA = pa.schema(
    [*BATCHES_SCHEMA, ("segment", pa.int64()), ("fault", pa.string()), ("controls", CONTROLS)]
)
"""segment: the offset in the file's name. fault: what is wrong with the bytes. If they are not a
batch, base_offset is the offset expected there, and the row has no other fields of a batch header.
controls: the records of a control batch."""

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
    expected = 0 if origin.snapshot is not None else segment
    with opened(origin.file) as (descriptor, size):
        position = 0
        while position < size:
            resume = size
            for chunk in framing.read_chunks(descriptor, position, size, may_be_unwritten=False):
                if len(chunk.starts):
                    yield _rows(chunk, origin, segment)
                    expected = int(chunk.last_offsets[-1]) + 1
                if chunk.fault is None:
                    continue
                begin = chunk.file_position + chunk.size
                found = find_batch(descriptor, begin, size, may_follow(expected, size - begin))
                resume = size if found is None else found
                yield _fault(origin, segment, (begin, resume), expected, chunk.fault)
            position = resume


def _rows(chunk: Chunk, origin: ChunkOrigin, segment: int) -> pa.RecordBatch:
    plain = batch_rows(chunk, origin)
    faults: list[str | None] = [None] * len(chunk.starts)
    controls: list[list[dict[str, str]] | None] = [None] * len(chunk.starts)
    valid = plain.column("crc_valid").to_pylist()
    try:
        read_records(chunk)
        sound = True
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
    count = len(chunk.starts)
    more = [
        pa.repeat(pa.scalar(segment, pa.int64()), count),
        pa.array(faults, pa.string()),
        pa.array(controls, CONTROLS),
    ]
    return pa.RecordBatch.from_arrays([*plain.columns, *more], schema=INSPECTED_SCHEMA)


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
