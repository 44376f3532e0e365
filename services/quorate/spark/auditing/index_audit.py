"""Checks a segment's offset index (`.index`), which Kafka writes and Quorate does not have.

An entry is an offset relative to the segment's base and the position of a batch, 4 bytes each.
Kafka seeks an offset from the last entry that is not greater, so a batch must begin at the position
and must not begin with a greater offset. Entries of zeros are preallocated. Positions behind the
bytes that were read belong to batches that a running node wrote meanwhile.

Source: Kafka's OffsetIndex and LogSegment.append.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from quorate.spark.decoding.framing import Ints

INDEX_SUFFIX = ".index"
ENTRY_BYTES = 8
_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])


class IndexFault(NamedTuple):
    """A wrong entry: the offset that it names, its position in the index, and what is wrong."""

    offset: int
    position: int
    reason: str


def read_index(segment: Path) -> bytes:
    """The bytes of a segment's index, none without an index."""
    try:
        return segment.with_suffix(INDEX_SUFFIX).read_bytes()
    except FileNotFoundError:
        return b""


def index_fault(
    index: bytes, base: int, size: int, starts: Ints, offsets: Ints
) -> IndexFault | None:
    """Find the first wrong entry of an index.

    base: the segment's base offset. size: the bytes of the segment that were read. starts, offsets:
    where its batches begin, and their base offsets.
    """
    entries = np.frombuffer(index[: len(index) // ENTRY_BYTES * ENTRY_BYTES], _ENTRY)
    positions = entries["position"].astype(np.int64)
    named = entries["offset"].astype(np.int64) + base
    is_used = (entries["offset"] != 0) | (positions != 0)
    at = np.searchsorted(starts, positions)
    is_batch = np.isin(positions, starts)
    begins = offsets[np.minimum(at, max(len(offsets) - 1, 0))] if len(offsets) else named
    is_behind = is_batch & (begins > named)
    last = np.maximum.accumulate(np.where(is_used, named, base - 1))
    is_unsorted = np.append(False, named[1:] <= last[:-1])
    wrong = is_used & (positions < size) & (~is_batch | is_behind | is_unsorted)
    if not wrong.any():
        return None
    row = int(np.argmax(wrong))
    offset, position = int(named[row]), int(positions[row])
    if not is_batch[row]:
        reason = f"no batch begins at byte {position}, where it expects offset {offset}"
    elif is_behind[row]:
        reason = f"it expects offset {offset} at byte {position}, where offset {begins[row]} begins"
    else:
        reason = f"the entry of offset {offset} follows that of offset {last[row - 1]}"
    return IndexFault(offset, row * ENTRY_BYTES, reason)
