"""Records as columns: where each begins in a chunk, its offset, timestamp, key and value.

1. Where records begin: a record's length says where the next one does, so the batches of a chunk
   are walked in step, one record of each at a time. What is left when few batches have records
   left is walked batch by batch.
2. The fields before key and value are varints; all records' are read at once.

No object is made for a record. Everything is checked: a record that passes its batch, offsets that
do not rise, lengths that contradict each other are `DamagedError`s with the batch's offset.

Source: KIP-98 (message format 2), as in `records.batch.iter_records`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quorate.records.batch import HEADER_SIZE, LOG_APPEND_TIME
from quorate.spark.errors import DamagedError
from quorate.spark.framing import Bytes, Chunk, Ints, Mask

LANES_MIN = 64
"""Fewer batches are walked one after the other: a step of numpy costs what so many records do."""
RUN_MIN = 3
"""After so many records of one size more of them are looked for at once."""
_VARINT_BYTES_MAX = 10


def varints(data: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """Unsigned varints of up to 64 bits at each position, and the positions after them."""
    first = data[at]
    value = (first & 0x7F).astype(np.int64)
    after = at + 1
    longer = np.flatnonzero(first >= 0x80)
    shift = 7
    while len(longer):
        byte = data[after[longer]]
        value[longer] |= (byte & 0x7F).astype(np.int64) << shift
        after[longer] += 1
        longer = longer[byte >= 0x80]
        shift += 7
        if shift >= 7 * _VARINT_BYTES_MAX:
            break
    return value, after


def unzigzag(value: Ints) -> Ints:
    return ((value >> 1) & 0x7FFF_FFFF_FFFF_FFFF) ^ -(value & 1)


@dataclass(slots=True)
class Records:
    """The records of a chunk, one place each in every array.

    batch: index of its batch. key_at, value_at: positions of their bytes; key_size, value_size: -1
    for null.
    """

    chunk: Chunk
    data: Bytes
    batch: Ints
    offset: Ints
    timestamp: Ints
    key_at: Ints
    key_size: Ints
    value_at: Ints
    value_size: Ints

    def __len__(self) -> int:
        return len(self.offset)

    def key(self, row: int) -> bytes | None:
        return self._bytes(int(self.key_at[row]), int(self.key_size[row]))

    def value(self, row: int) -> bytes | None:
        return self._bytes(int(self.value_at[row]), int(self.value_size[row]))

    def _bytes(self, at: int, size: int) -> bytes | None:
        return None if size < 0 else bytes(self.chunk.buffer[at : at + size])

    def select(self, keep: Mask) -> Records:
        """Some of the records."""
        return Records(
            self.chunk,
            self.data,
            self.batch[keep],
            self.offset[keep],
            self.timestamp[keep],
            self.key_at[keep],
            self.key_size[keep],
            self.value_at[keep],
            self.value_size[keep],
        )


def read_records(chunk: Chunk) -> Records:
    """All records of a chunk in the order of their offsets. DamagedError."""
    headers = chunk.headers
    if chunk.is_compressed.any():
        first = int(np.argmax(chunk.is_compressed))
        raise _damaged(chunk, first, "its records are compressed, which a metadata log's never are")
    counts = headers["count"].astype(np.int64)
    batch = np.repeat(np.arange(len(counts)), counts)
    data = chunk.data
    begins = record_starts(chunk, counts)
    ends = chunk.ends[batch]
    length, at = varints(data, begins)
    stop = at + (length >> 1)
    timestamp, at = varints(data, _within(at + 1, ends))
    delta, at = varints(data, _within(at, ends))
    delta = unzigzag(delta)
    key_size, key_at = varints(data, _within(at, ends))
    key_size = unzigzag(key_size)
    value_size, value_at = varints(data, _within(key_at + np.maximum(key_size, 0), ends))
    value_size = unzigzag(value_size)
    tail = value_at + np.maximum(value_size, 0)
    plain = data[_within(tail, ends)] == 0
    wrong = (
        ((length & 1) != 0)
        | (stop > ends)
        | (key_size < -1)
        | (value_size < -1)
        | (tail >= stop)
        | (plain & (tail + 1 != stop))
        | (delta > headers["last_offset_delta"][batch])
        | (delta <= _before(delta, batch))
    )
    if wrong.any():
        row = int(np.argmax(wrong))
        raise _damaged(
            chunk,
            int(batch[row]),
            f"record {row - int(np.argmax(batch == batch[row]))} contradicts itself",
        )
    times = headers["base_timestamp"].astype(np.int64)[batch] + unzigzag(timestamp)
    appended = (headers["attributes"] & LOG_APPEND_TIME) != 0
    if appended.any():
        times = np.where(appended[batch], headers["max_timestamp"][batch], times)
    offset = headers["base_offset"].astype(np.int64)[batch] + delta
    return Records(chunk, data, batch, offset, times, key_at, key_size, value_at, value_size)


def _within(at: Ints, ends: Ints) -> Ints:
    """Hostile lengths lead nowhere: what passes the end is read at the end, and refused later."""
    return np.minimum(np.maximum(at, 0), ends)


def _before(delta: Ints, batch: Ints) -> Ints:
    """The offset delta of the record before, -1 for a batch's first."""
    before = np.empty_like(delta)
    before[:1] = -1
    before[1:] = np.where(batch[1:] == batch[:-1], delta[:-1], -1)
    return before


def _damaged(chunk: Chunk, at: int, reason: str) -> DamagedError:
    position = chunk.file_position + int(chunk.starts[at])
    return DamagedError(
        f"the batch at byte {position}, offset {chunk.headers[at]['base_offset']}: {reason}"
    )


def record_starts(chunk: Chunk, counts: Ints) -> Ints:
    """Where each record begins, batch after batch. DamagedError where they do not fill a batch."""
    data, ends = chunk.data, chunk.ends
    place = np.cumsum(counts) - counts
    starts = np.empty(int(counts.sum()), np.int64)
    order = np.argsort(-counts, kind="stable")
    left = counts[order]
    at = (chunk.starts + HEADER_SIZE)[order]
    limit, to = ends[order], place[order]
    step = 0
    lanes = len(order)
    while True:
        while lanes and left[lanes - 1] <= step:
            lanes -= 1
        if lanes < LANES_MIN:
            break
        here = at[:lanes]
        starts[to[:lanes] + step] = here
        size, after = varints(data, here)
        at[:lanes] = _within(after + (size >> 1), limit[:lanes])
        step += 1
    for lane in range(lanes):
        count = int(left[lane])
        begin, end = int(to[lane]), int(limit[lane])
        found, stop = _walk(chunk.buffer, int(at[lane]), end, count - step)
        if found is None:
            raise _damaged(chunk, int(order[lane]), "its records pass its end")
        starts[begin + step : begin + count] = found
        at[lane] = stop
    if (at != limit).any():
        lane = int(np.argmax(at != limit))
        raise _damaged(chunk, int(order[lane]), "its records do not fill it")
    return starts


def _walk(data: bytearray, at: int, end: int, count: int) -> tuple[list[int] | None, int]:
    """Where `count` records begin from `at` on, and where the last one ends; None past `end`.

    Records of one size have the same length bytes at the same distance: a run of them is one step.
    """
    found: list[int] = []
    add = found.append
    last, alike = 0, 0
    while len(found) < count:
        if at >= end:
            return None, end
        begin = at
        add(at)
        size = data[at]
        if size >= 0x80:
            at, size = _length(data, at)
        at += 1 + (size >> 1)
        alike = alike + 1 if size == last else 0
        last = size
        if alike >= RUN_MIN and at < end:
            step = at - begin
            run = _run(data, begin, min(end, begin + step * (count - len(found) + 1)), step)
            found += range(at, begin + step * run, step)
            at = begin + step * run
            alike = 0
    return found, at


def _length(data: bytearray, at: int) -> tuple[int, int]:
    """The length in several bytes at `at`, and where its last byte is."""
    size = data[at] & 0x7F
    shift = 7
    while True:
        at += 1
        byte = data[at]
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80 or shift > 63:
            return at, size


def _run(data: bytearray, begin: int, end: int, step: int) -> int:
    """How many records of `step` bytes, the first one included, follow each other from `begin`."""
    shortest = len(data)
    at = begin
    while True:
        column = data[at:end:step]
        shortest = min(shortest, len(column) - len(column.lstrip(column[:1])))
        if data[at] < 0x80:
            return max(shortest, 1)
        at += 1
