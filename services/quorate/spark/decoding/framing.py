"""Batches as columns: their positions in a buffer, their headers, and their checksums.

A `Chunk` is a run of whole batches in memory, read once. The headers become one numpy record array
without parsing the records. `PAD` zeros follow the bytes, so that a fixed-size value that numpy
gathers at the last byte stays within the buffer.

Bytes that no writer produces end the chunk. `Chunk.size` and `Chunk.fault` give the position and
the reason, and the caller decides how to proceed.

Source: KIP-98 (message format 2), as in `records.batch`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from quorate.common.batch_layout import (
    COMPRESSION_MASK,
    CONTROL,
    CRC_START,
    HEADER_SIZE,
    MAGIC,
    PREFIX_SIZE,
)
from quorate.log.scan import end_of_data
from quorate.records.primitives import Buffer
from quorate.spark.decoding import kernels

CHUNK_BYTES = 2 << 20
"""The size of one read, small enough for the CPU cache. A larger batch makes a larger chunk."""
PAD = 64

Ints = npt.NDArray[Any]
"""An array of int64."""
Bytes = npt.NDArray[Any]
"""An array of uint8."""
Mask = npt.NDArray[Any]
"""An array of bool."""

HEADER = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("count", ">i4"),
    ]
)
assert HEADER.itemsize == HEADER_SIZE

INCOMPLETE = "incomplete"
"""The prefix of the fault where data ends before the end of the range."""

HOP_BYTES = 1 << 20
_PREFIX = struct.Struct(">qi")


@dataclass(slots=True)
class Chunk:
    """Whole batches. buffer: their bytes, then padding; file_position: that of the first byte.

    starts: the position of each batch in the buffer; headers: parallel to `starts`. fault: what is
    wrong with the bytes at `size`, None if no fault was found.
    """

    buffer: Buffer
    size: int
    file_position: int
    starts: Ints
    headers: npt.NDArray[Any]
    fault: str | None = None

    @property
    def data(self) -> Bytes:
        return np.frombuffer(self.buffer, np.uint8)

    @property
    def ends(self) -> Ints:
        found: Ints = self.starts + self.headers["length"].astype(np.int64) + PREFIX_SIZE
        return found

    @property
    def is_control(self) -> Mask:
        found: Mask = (self.headers["attributes"] & CONTROL) != 0
        return found

    @property
    def is_compressed(self) -> Mask:
        found: Mask = (self.headers["attributes"] & COMPRESSION_MASK) != 0
        return found

    @property
    def last_offsets(self) -> Ints:
        found: Ints = self.headers["base_offset"].astype(np.int64)
        found += self.headers["last_offset_delta"]
        return found

    def crc_valid(self) -> Mask:
        """Whether each batch's checksum is right."""
        view = memoryview(self.buffer)
        begins = (self.starts + CRC_START).tolist()
        sums = [
            crc32c(view[begin:end]) for begin, end in zip(begins, self.ends.tolist(), strict=True)
        ]
        found: Mask = np.array(sums, np.uint32) == self.headers["crc"]
        return found

    def select(self, keep: Mask) -> Chunk:
        """The same buffer with only the batches in `keep`."""
        return Chunk(
            self.buffer,
            self.size,
            self.file_position,
            self.starts[keep],
            self.headers[keep],
            self.fault,
        )


def parse(buffer: Buffer, size: int, file_position: int = 0) -> Chunk:
    """Find the whole batches in the first `size` bytes of a padded buffer.

    `Chunk.size` is the end of the last whole batch. An incomplete batch or a fault may follow.
    """
    data = np.frombuffer(buffer, np.uint8)
    starts = np.empty(size // HEADER_SIZE, np.int64)
    count, position = kernels.find_batches(data.ctypes.data, size, starts)
    begins = starts[:count].copy()
    headers = _headers(data, begins)
    fault: str | None = None
    if size - position >= HEADER_SIZE:
        length: int = _PREFIX.unpack_from(buffer, position)[1]
        if length < HEADER_SIZE - PREFIX_SIZE:
            fault = f"a batch with length {length}"
    bad = _first_bad(headers)
    if bad is not None:
        at, fault = bad
        position, begins, headers = int(begins[at]), begins[:at], headers[:at]
    return Chunk(buffer, position, file_position, begins, headers, fault)


def _headers(data: Bytes, starts: Ints) -> npt.NDArray[Any]:
    if not len(starts):
        return np.empty(0, HEADER)
    windows = np.ndarray((len(data) - HEADER_SIZE + 1,), HEADER, data, 0, (1,))
    return windows[starts]


def _first_bad(headers: npt.NDArray[Any]) -> tuple[int, str] | None:
    """The first header that no writer produces, and what is wrong with it."""
    count, delta = headers["count"], headers["last_offset_delta"].astype(np.int64)
    wrong = (
        (headers["magic"] != MAGIC)
        | (headers["base_offset"] < 0)
        | (headers["epoch"] < -1)
        | (count < 0)
        | (count > delta + 1)
    )
    if not wrong.any():
        return None
    at = int(np.argmax(wrong))
    header = headers[at]
    if header["magic"] != MAGIC:
        return at, f"a batch with magic {header['magic']}"
    if header["base_offset"] < 0 or header["epoch"] < -1:
        return at, f"base offset {header['base_offset']}, epoch {header['epoch']}"
    return at, f"{header['count']} records in {delta[at] + 1} offsets"


def whole(data: bytes | memoryview) -> Chunk:
    """Parse batches in memory, such as those received from the leader."""
    buffer = bytearray(len(data) + PAD)
    buffer[: len(data)] = data
    return parse(buffer, len(data))


def _read(descriptor: int, position: int, size: int) -> tuple[bytearray, int]:
    """Read up to `size` bytes of a file; return a padded buffer and the number of bytes read."""
    buffer = bytearray(size + PAD)
    view = memoryview(buffer)
    got = 0
    while got < size:
        count = os.preadv(descriptor, [view[got:size]], position + got)
        if not count:
            break
        got += count
    view.release()
    return buffer, got


def read_chunks(
    descriptor: int,
    start: int,
    end: int,
    chunk_bytes: int = CHUNK_BYTES,
    *,
    may_be_unwritten: bool = True,
) -> Iterator[Chunk]:
    """Yield the batches of a file between two positions. A batch must begin at `start`.

    If reading ends early, the last chunk's `fault` gives the reason, which begins with `INCOMPLETE`
    if only a part of a batch, or nothing but zeros, follows. may_be_unwritten: zeros at the end are
    preallocated and were never written, as in an active segment, so they are not a fault.
    """
    position = start
    wanted = chunk_bytes
    while position < end:
        buffer, got = _read(descriptor, position, min(wanted, end - position))
        chunk = parse(buffer, got, position)
        if chunk.fault is None and not len(chunk.starts):
            left = end - position
            size = _batch_size(buffer) if got >= HEADER_SIZE else left + 1
            if size <= left and got >= min(wanted, left):
                wanted = size
                continue
            chunk.fault = f"{INCOMPLETE}: {min(got, left)} of a batch's bytes"
        after = position + chunk.size
        is_last = chunk.fault is not None
        if is_last and end_of_data(descriptor, after, end) <= after:
            unwritten = f"{INCOMPLETE}: no data up to byte {end}"
            chunk.fault = None if may_be_unwritten else unwritten
        elif is_last and may_be_unwritten and _was_written(descriptor, chunk, got):
            chunk.fault, is_last = None, False
        if len(chunk.starts) or chunk.fault is not None:
            yield chunk
        if is_last:
            return
        position, wanted = after, chunk_bytes


def _was_written(descriptor: int, chunk: Chunk, size: int) -> bool:
    """Whether a running node has written to the end of a chunk of `size` bytes since it was read.

    The chunk then ended in bytes that were not written yet.
    """
    end = min(chunk.size + HEADER_SIZE, size)
    now, got = _read(descriptor, chunk.file_position + chunk.size, end - chunk.size)
    return now[:got] != chunk.buffer[chunk.size : chunk.size + got]


def _batch_size(buffer: bytearray) -> int:
    length: int = _PREFIX.unpack_from(buffer)[1]
    return length + PREFIX_SIZE


def hop(descriptor: int, size: int, step: int) -> list[tuple[int, int]]:
    """(position, base offset) of the first batch of a file and of one about every `step` bytes.

    For planning: it parses only batch prefixes. Stops at the first bytes that are not a batch.
    """
    found: list[tuple[int, int]] = []
    position = following = 0
    starts = np.empty(HOP_BYTES // HEADER_SIZE, np.int64)
    while size - position >= HEADER_SIZE:
        buffer, got = _read(descriptor, position, min(HOP_BYTES, size - position))
        if got < HEADER_SIZE:
            break
        data = np.frombuffer(buffer, np.uint8)
        count, after = kernels.find_batches(data.ctypes.data, got, starts)
        if not count:
            # The batch is larger than one read, or the torn last one of the file, or no batch.
            if _batch_size(buffer) < HEADER_SIZE:
                break
            starts[0], count, after = 0, 1, _batch_size(buffer)
        while (at := int(np.searchsorted(starts[:count], following - position))) < count:
            begin = int(starts[at])
            found.append((position + begin, _PREFIX.unpack_from(buffer, begin)[0]))
            following = position + begin + step
        position += after
    return found
