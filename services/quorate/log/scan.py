"""Reading batches from a file without trusting it: the scan, and the search for life after damage.

Shared by recovery, by the verification of checkpoints and by `dump-log`. Memory is bounded by a
window plus the largest batch that really is in the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from quorate.records.batch import (
    CRC_START,
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    read_header,
    verify_crc,
)
from quorate.records.errors import RecordsError, TruncatedBatchError

WINDOW_BYTES = 1 << 20
_MAGIC_AT = 16


def read_range(descriptor: int, position: int, size: int) -> bytes:
    """Up to `size` bytes from `position`; fewer only at the end of the file."""
    chunk = os.pread(descriptor, size, position)
    if len(chunk) in (0, size):
        return chunk
    parts = [chunk]
    got = len(chunk)
    while got < size:
        chunk = os.pread(descriptor, size - got, position + got)
        if not chunk:
            break
        parts.append(chunk)
        got += len(chunk)
    return b"".join(parts)


def scan(
    descriptor: int, size: int, start: int = 0
) -> Iterator[tuple[int, BatchHeader, memoryview, bool]]:
    """Position, header, bytes and "the checksum is right" of each batch between `start` and `size`.

    Raises, with the position in the file, what `read_header` raises, and TruncatedBatchError for
    a batch that the file does not hold wholly.
    """
    buffer = memoryview(b"")
    base = position = start
    while position < size:
        offset = position - base
        if len(buffer) - offset < HEADER_SIZE:
            base, offset = position, 0
            wanted = min(WINDOW_BYTES, size - position)
            buffer = memoryview(read_range(descriptor, position, wanted))
        try:
            header = read_header(buffer, offset)
        except RecordsError as error:
            raise _placed(error, position) from error
        length = header.size_bytes
        if length > size - position:
            raise TruncatedBatchError(position, f"{size - position} of {length} bytes are there")
        if offset + length > len(buffer):
            base, offset = position, 0
            wanted = min(max(WINDOW_BYTES, length), size - position)
            buffer = memoryview(read_range(descriptor, position, wanted))
            if length > len(buffer):
                raise TruncatedBatchError(position, f"{len(buffer)} of {length} bytes are there")
        yield position, header, buffer[offset : offset + length], verify_crc(buffer, offset, header)
        position += length


def _placed(error: RecordsError, position: int) -> RecordsError:
    """The same error, with the position in the file."""
    reason = getattr(error, "reason", str(error))
    return type(error)(position, reason)  # type: ignore[call-arg]


def is_zero(descriptor: int, start: int, end: int) -> bool:
    """Whether the bytes of a range are all zero: room that was allocated and never written."""
    while start < end:
        chunk = read_range(descriptor, start, min(WINDOW_BYTES, end - start))
        if not chunk:
            return True
        if chunk.count(0) != len(chunk):
            return False
        start += len(chunk)
    return True


def find_batch(descriptor: int, start: int, end: int, expected_offset: int) -> int | None:
    """Where a sound batch begins in a range, at any byte, that could follow `expected_offset`.

    A record takes at least seven bytes, so an offset that lies further on than the range has bytes
    is no successor: this keeps chance and foreign bytes out. The checksum decides.
    """
    offset_max = expected_offset + (end - start)
    while start + HEADER_SIZE <= end:
        window = read_range(descriptor, start, min(WINDOW_BYTES, end - start))
        if len(window) < HEADER_SIZE:
            return None
        last = len(window) - HEADER_SIZE
        at = window.find(MAGIC, _MAGIC_AT, last + _MAGIC_AT + 1)
        while at >= 0:
            candidate = at - _MAGIC_AT
            if _is_batch(descriptor, window, candidate, start, end, expected_offset, offset_max):
                return start + candidate
            at = window.find(MAGIC, at + 1, last + _MAGIC_AT + 1)
        start += last + 1
    return None


def _is_batch(
    descriptor: int,
    window: bytes,
    candidate: int,
    start: int,
    end: int,
    expected_offset: int,
    offset_max: int,
) -> bool:
    try:
        header = read_header(window, candidate)
    except RecordsError:
        return False
    position = start + candidate
    if not expected_offset <= header.base_offset <= offset_max:
        return False
    if position + header.size_bytes > end or header.count == 0:
        return False
    if candidate + header.size_bytes <= len(window):
        return verify_crc(window, candidate, header)
    batch = read_range(descriptor, position, header.size_bytes)
    return len(batch) > CRC_START and verify_crc(batch, 0, header)
