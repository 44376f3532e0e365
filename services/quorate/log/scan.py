"""Reading batches from a file without trusting it: the scan, and the search for life after damage.

Shared by recovery, by the verification of checkpoints and by `dump-log`. Memory is bounded by a
window plus the largest batch that really is in the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from quorate.common.batch_layout import HEADER_SIZE, MAGIC
from quorate.records.batch import BatchHeader, read_header, verify_crc
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
    return type(error)(position, reason)


def end_of_data(descriptor: int, start: int, end: int) -> int:
    """Where the last byte that is not zero ends; `start` if all of the range is zero."""
    position = data_end = start
    while position < end:
        chunk = read_range(descriptor, position, min(WINDOW_BYTES, end - position))
        if not chunk:
            break
        kept = chunk.rstrip(b"\0")
        if kept:
            data_end = position + len(kept)
        position += len(chunk)
    return data_end


Fits = Callable[[int, BatchHeader], bool]
"""Whether a batch may begin at a position, by its header."""


def may_follow(expected_offset: int, size: int) -> Fits:
    """Whether a batch in a range of `size` bytes may follow `expected_offset`.

    A record takes at least seven bytes, so an offset that lies further on than the range has bytes
    is no successor.
    """
    offset_max = expected_offset + size
    return lambda _position, header: expected_offset <= header.base_offset <= offset_max


def find_batch(descriptor: int, start: int, end: int, fits: Fits) -> int | None:
    """Where a sound batch begins in a range, at any byte, whose position and header fit.

    `fits` keeps chance and foreign bytes out. The checksum decides.
    """
    while start + HEADER_SIZE <= end:
        window = read_range(descriptor, start, min(WINDOW_BYTES, end - start))
        if len(window) < HEADER_SIZE:
            return None
        last = len(window) - HEADER_SIZE
        at = window.find(MAGIC, _MAGIC_AT, last + _MAGIC_AT + 1)
        while at >= 0:
            candidate = at - _MAGIC_AT
            header = _header(window, candidate)
            if (
                header is not None
                and fits(start + candidate, header)
                and header.size_bytes <= end - start - candidate
                and _is_sound(descriptor, start + candidate, header)
            ):
                return start + candidate
            at = window.find(MAGIC, at + 1, last + _MAGIC_AT + 1)
        start += last + 1
    return None


def _header(window: bytes, position: int) -> BatchHeader | None:
    try:
        header = read_header(window, position)
    except RecordsError:
        return None
    return header if header.count > 0 else None


def _is_sound(descriptor: int, position: int, header: BatchHeader) -> bool:
    return verify_crc(read_range(descriptor, position, header.size_bytes), 0, header)
