"""Records as columns: the batch, offset, timestamp, key and value of each record in a chunk.

`kernels.walk` steps through the records without creating an object for each. It checks everything:
a record that exceeds its batch, offsets that do not increase, or contradictory lengths raise a
`DamagedError` with the batch's offset.

Source: KIP-98 (message format 2), as in `records.batch.iter_records`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from quorate.common.batch_layout import HEADER_SIZE, LOG_APPEND_TIME
from quorate.spark.decoding import kernels
from quorate.spark.decoding.framing import Bytes, Chunk, Ints, Mask
from quorate.spark.errors import DamagedError


@dataclass(slots=True)
class Records:
    """The records of a chunk. found: the rows `kernels.BATCH` to `kernels.VALUE_SIZE`."""

    chunk: Chunk
    data: Bytes
    found: Ints
    batch: Ints = field(init=False)
    """The index of each record's batch."""
    offset: Ints = field(init=False)
    timestamp: Ints = field(init=False)
    key_at: Ints = field(init=False)
    key_size: Ints = field(init=False)
    """-1 for null, as in `value_size`."""
    value_at: Ints = field(init=False)
    value_size: Ints = field(init=False)

    def __post_init__(self) -> None:
        self.batch, self.offset, self.timestamp = self.found[: kernels.KEY_AT]
        self.key_at, self.key_size, self.value_at, self.value_size = self.found[kernels.KEY_AT :]

    def __len__(self) -> int:
        return int(self.found.shape[1])

    def key(self, row: int) -> bytes | None:
        return self._bytes(int(self.key_at[row]), int(self.key_size[row]))

    def value(self, row: int) -> bytes | None:
        return self._bytes(int(self.value_at[row]), int(self.value_size[row]))

    def _bytes(self, at: int, size: int) -> bytes | None:
        return None if size < 0 else bytes(self.chunk.buffer[at : at + size])

    def select(self, keep: Mask) -> Records:
        """The records in `keep`."""
        return Records(self.chunk, self.data, np.ascontiguousarray(self.found[:, keep]))


def read_records(chunk: Chunk) -> Records:
    """Read all records of a chunk, in log order.

    Raises DamagedError if the records are compressed or inconsistent.
    """
    headers = chunk.headers
    if chunk.is_compressed.any():
        first = int(np.argmax(chunk.is_compressed))
        raise damaged(
            chunk, first, "its records are compressed, but metadata logs are never compressed"
        )
    batches = np.empty((6, len(headers)), np.int64)
    batches[kernels.START] = chunk.starts + HEADER_SIZE
    batches[kernels.END] = chunk.ends
    batches[kernels.COUNT] = headers["count"]
    batches[kernels.BASE_OFFSET] = headers["base_offset"]
    batches[kernels.LAST_DELTA] = headers["last_offset_delta"]
    batches[kernels.BASE_TIMESTAMP] = headers["base_timestamp"]
    room = (batches[kernels.END] - batches[kernels.START]) // _RECORD_BYTES_MIN
    if (batches[kernels.COUNT] > room).any():
        at = int(np.argmax(batches[kernels.COUNT] > room))
        raise damaged(chunk, at, _REASONS[kernels.PASSES_END])
    data = chunk.data
    found = np.empty((7, int(batches[kernels.COUNT].sum())), np.int64)
    wrong, at, number = kernels.walk(data.ctypes.data, batches, found)
    if wrong != kernels.WHOLE:
        raise damaged(chunk, at, _REASONS[wrong].format(number))
    appended = (headers["attributes"] & LOG_APPEND_TIME) != 0
    if appended.any():
        batch, timestamp = found[kernels.BATCH], found[kernels.TIMESTAMP]
        latest = headers["max_timestamp"].astype(np.int64)
        found[kernels.TIMESTAMP] = np.where(appended[batch], latest[batch], timestamp)
    return Records(chunk, data, found)


_RECORD_BYTES_MIN = 7
"""Length, attributes, timestamp, offset, two sizes, header count: at least one byte each."""
_REASONS = {
    kernels.PASSES_END: "its records extend past its end",
    kernels.CONTRADICTS: "record {} is inconsistent",
    kernels.DOES_NOT_FILL: "its records do not fill it",
}


def damaged(chunk: Chunk, at: int, reason: str) -> DamagedError:
    """The error for a damaged batch of a chunk."""
    position = chunk.file_position + int(chunk.starts[at])
    return DamagedError(
        f"the batch at byte {position}, offset {chunk.headers[at]['base_offset']}: {reason}"
    )
