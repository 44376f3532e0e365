"""Removes records from a batch, and leaves everything else of it as it is.

The batch keeps its base and last offset, and each record that stays keeps its offset delta, its
timestamp and its headers. Only the length, the number of records and the checksum change, so the
deltas of the records that stay may have gaps, and the first and the last may be gone.

Source: Kafka's log compaction (KIP-98, "Compacted topics").
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from quorate.common.batch_layout import (
    COUNT_AT,
    HEADER_SIZE,
    LENGTH_AT,
    PREFIX_SIZE,
)
from quorate.records.batch import BatchHeader, StoredRecord, iter_records, seal
from quorate.records.primitives import Buffer, unzigzag

_LENGTH = struct.Struct(">i")
_COUNT = struct.Struct(">i")


def with_survivors(
    batch: Buffer, header: BatchHeader, survives: Callable[[StoredRecord], bool]
) -> bytearray | None:
    """A copy of a whole data batch with the records for which `survives` holds; None without any.

    Raises what `iter_records` does.
    """
    view = memoryview(batch)
    parts: list[Buffer] = [view[:HEADER_SIZE]]
    start = kept_from = HEADER_SIZE
    count = 0
    for record in iter_records(view, header):
        end = _record_end(view, start)
        if survives(record):
            count += 1
        else:
            parts.append(view[kept_from:start])
            kept_from = end
        start = end
    if count == 0:
        return None
    parts.append(view[kept_from:start])
    kept = bytearray().join(parts)
    if count < header.count:
        _LENGTH.pack_into(kept, LENGTH_AT, len(kept) - PREFIX_SIZE)
        _COUNT.pack_into(kept, COUNT_AT, count)
        seal(kept)
    return kept


def _record_end(batch: memoryview, start: int) -> int:
    """Where the record at `start` ends, whose size `iter_records` has checked."""
    size = shift = 0
    position = start
    while True:
        byte = batch[position]
        position += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return position + unzigzag(size)
