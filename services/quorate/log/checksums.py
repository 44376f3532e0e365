"""Checksums of ranges of the log, so that replicas can be compared while they run.

The bytes of a committed batch are the same on every replica: the leader makes them once, and
followers append what they fetched. So equal ranges have equal checksums, and a difference means
that a disk, or this software, changed committed records.
"""

from __future__ import annotations

from dataclasses import dataclass

from crc32c import crc32c

from quorate.log.errors import LogError, OffsetOutOfRangeError
from quorate.log.metadata_log import MetadataLog
from quorate.records.batch import read_header, verify_crc

READ_BYTES = 1 << 20
"""How much is read from a segment at a time, bytes."""


class DamagedBatchError(LogError):
    """A batch that was sound when it was written does not match its checksum any more.

    next_offset: where the batch after it begins.
    """

    def __init__(self, log: MetadataLog, base_offset: int, next_offset: int) -> None:
        super().__init__(
            f"the log in {log.partition} is damaged: the batch with offsets {base_offset} to "
            f"{next_offset - 1} does not match its checksum. Remove this replica from the quorum "
            "(metadata-quorum remove-controller), format an empty directory and add it again"
        )
        self.next_offset = next_offset


@dataclass(frozen=True, slots=True)
class RangeChecksum:
    """The checksum of a range of the log."""

    crc: int
    """CRC-32C of the batches' bytes, headers included."""
    size: int
    """The length of the range, bytes."""
    end_offset: int
    """The offset after the last one of the range."""


def checksum_range(
    log: MetadataLog, start_offset: int, end_offset: int, bytes_max: int
) -> RangeChecksum:
    """Read the batches from `start_offset` on, as the files hold them; for any thread.

    Stops before the batch that would end after `end_offset`, which must not be beyond the durable
    end, and after the one with which `bytes_max` is reached. OffsetOutOfRangeError where the log
    does not reach back to the start any more; DamagedBatchError; OSError.
    """
    crc, size, position = 0, 0, start_offset
    while position < end_offset and size < bytes_max:
        views = log.read_durable(position, READ_BYTES, end_offset)
        if not views:
            break
        for view in views:
            header = read_header(view)
            if header.base_offset > position:
                raise OffsetOutOfRangeError(f"the log begins after offset {position}")
            if not verify_crc(view, 0, header):
                raise DamagedBatchError(log, header.base_offset, header.end_offset)
            crc = crc32c(view, crc)
            size += len(view)
            position = header.end_offset
            if size >= bytes_max:
                break
    return RangeChecksum(crc, size, position)
