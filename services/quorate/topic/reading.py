"""Reads of the log that leave out what is not a record of an application.

Control records and metadata have offsets among those of the records. A consumer skips missing
offsets, as after compaction. Where it finds nothing else, it gets a batch that it skips, so that it
does not ask for the same offsets again.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from quorate.log.errors import OffsetOutOfRangeError
from quorate.log.metadata_log import MetadataLog
from quorate.records.batch import has_keys, iter_batches, read_header
from quorate.runtime.driver import Bytes

READ_BYTES = 256 * 1024
"""Bytes that one read takes from the log; a larger batch is read alone."""


class RecordBatches(NamedTuple):
    """Batches of application records, and the offset up to which there are no others."""

    batches: tuple[Bytes, ...]
    end_offset: int

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.batches))


def read_records(log: MetadataLog, offset: int, end_offset: int, bytes_max: int) -> RecordBatches:
    """What one read of the log finds from `offset` on: batches of up to `bytes_max` bytes, or one.

    Without a batch, there are no application records before the `end_offset` of the result. Raises
    OffsetOutOfRangeError before the log start, and what `MetadataLog.read` raises.
    """
    wanted: list[Bytes] = []
    size = 0
    if offset >= end_offset:
        return RecordBatches((), offset)
    for view in log.read(offset, READ_BYTES, end_offset):
        for header, batch in iter_batches(view):
            if has_keys(batch, header):
                if wanted and size + len(batch) > bytes_max:
                    return RecordBatches(tuple(wanted), offset)
                wanted.append(batch)
                size += len(batch)
            offset = header.end_offset
    return RecordBatches(tuple(wanted), offset)


async def offset_of_time(
    log: MetadataLog, end_offset: int, timestamp_ms: int
) -> tuple[int, int] | None:
    """The first offset whose batch is not older than `timestamp_ms`, and the batch's time; None if
    all are.

    The search is binary, so it expects that times increase. They are those of the leaders, whose
    clocks may differ.
    """
    low, high = log.start_offset, end_offset
    found: tuple[int, int] | None = None
    while low < high:
        middle = (low + high) // 2
        batches = log.read(middle, 1, end_offset)
        if not batches:
            raise OffsetOutOfRangeError(f"the log ends before offset {end_offset}")
        header = read_header(batches[0])
        if header.max_timestamp >= timestamp_ms:
            found = max(header.base_offset, log.start_offset), header.max_timestamp
            high = header.base_offset
        else:
            low = header.end_offset
        await asyncio.sleep(0)  # each read may come from the disk
        low = max(low, log.start_offset)
    return found
