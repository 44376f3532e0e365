"""What follows the last sound batch of a log: an unfinished write, or damage.

A disk writes sectors of 512 bytes: after a power failure, each sector of a write that was not
synced is there or still zero. So every place where batches should be and are not is judged by its
own evidence:

- torn: a part of the batch is missing (the file ends inside it, or only zeros follow), or a sector
  of it is zero. With no sound batch behind it, it is dropped as an unfinished write.
- ambiguous: a sector is zero, and sound batches follow. Either one group commit was cut off by a
  power failure, or the disk lost a sector of what was acknowledged. It is dropped, and the end of
  the last sound batch dropped is what the log must reach again.
- damage: no sector is zero, so power failures do not explain it. DamagedLogError.

A zero piece of a sector counts as evidence only where a sound batch cannot be zero. What the bytes
cannot tell apart: a batch with 512 zero bytes of its own that is damaged elsewhere, and the last
batches of a log when all their sectors are lost; the recovery point covers both.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from crc32c import crc32c

from quorate.common.batch_layout import CRC_START, HEADER_SIZE
from quorate.log.errors import DamagedLogError
from quorate.log.scan import Fits, end_of_data, find_batch, read_range, scan
from quorate.raft.batches import KRaftVersion, VotersRecord
from quorate.raft.types import OffsetAndEpoch
from quorate.records.batch import BatchHeader, decode_control_batch, read_header
from quorate.records.errors import RecordsError

SECTOR_BYTES = 512
_ZERO_SECTOR = bytes(SECTOR_BYTES)
_OFFSET_BYTES = 8
_NEVER_ZERO_BYTES = 12
"""Base offset and length: the length of a batch is not zero."""
_SOLVABLE_BYTES = 3
"""The checksum tells whether so few bytes were lost; of four or more it cannot."""
_MISSING_BYTES = 16
"""A batch that ends in so many zero bytes was not written to its end."""
_TRAILING_ZEROS_MAX = 4096
"""How many zero bytes a batch is expected to end in, when its length is not believed."""


@dataclass(slots=True)
class Tail:
    """What is dropped behind the last sound batch."""

    size: int = 0
    """The bytes up to the last one that is not zero."""
    dropped_end: OffsetAndEpoch | None = None
    """The end of the last sound batch among them; None if there is none."""
    may_stand: bool = True
    """False if it may hold a voter set."""


def judge_tail(  # noqa: PLR0917 - one position in one file
    path: Path, descriptor: int, start: int, end: int, expected: OffsetAndEpoch, fault: str
) -> Tail:
    """Judge the range [start, end) of a segment that no other follows. DamagedLogError for damage.

    expected: the offset that should begin at `start`, and the epoch of the record before it. fault:
    what is wrong there.
    """
    data_end = end_of_data(descriptor, start, end)
    tail = Tail(data_end - start)
    position, epoch = start, expected.epoch
    offsets = _Offsets(expected.offset, expected.offset)
    while position < data_end:
        follows = find_batch(descriptor, position, end, _fits_after(position, offsets))
        if follows is None:
            if not _is_torn(descriptor, position, end, data_end, offsets):
                reason = f"{fault}, and no sector of it is zero as after an unfinished write"
                raise DamagedLogError(path, position, data_end, offsets.low, reason)
            break
        # A batch that follows at once lost nothing but its own first bytes.
        if follows > position and not _has_lost_sector(descriptor, position, follows, offsets):
            reason = f"{fault}; a whole batch follows at byte {follows}"
            raise DamagedLogError(path, position, follows, offsets.low, reason)
        behind_gap = _behind_data(descriptor, position, follows, offsets)
        if behind_gap is None:
            tail.may_stand = False
            behind_gap = _Offsets(offsets.low, offsets.high + follows - position)
        run = _Run(path, descriptor, end, behind_gap, epoch)
        position, fault = run.take(follows, tail)
        offsets, epoch = run.offsets, run.epoch
    return tail


@dataclass(frozen=True, slots=True)
class _Offsets:
    """Bounds of the offset of the next record, both included."""

    low: int
    high: int

    def of(self, position: int, header: BatchHeader) -> _Offsets | None:
        """Bounds of the base offset of a batch at `position`; None if it cannot be there.

        No checksum covers the offset. Where a sector ends inside it, its first bytes may be lost:
        then they are zero, and only the others are believed.
        """
        lost = -position % SECTOR_BYTES
        base = header.base_offset
        kept = 8 * max(_OFFSET_BYTES - lost, 0) if 0 < lost < _NEVER_ZERO_BYTES else 64
        if base >> kept:
            kept = 64
        step = 1 << kept
        low = self.low + (base - self.low) % step
        if low > self.high:
            return None
        return _Offsets(low, low + (self.high - low) // step * step)

    def after(self, header: BatchHeader) -> _Offsets:
        count = header.end_offset - header.base_offset
        return _Offsets(self.low + count, self.high + count)

    def may_begin_with(self, size: int) -> bool:
        """Whether the first `size` bytes of the offset need not all be zero."""
        first = self.high.to_bytes(_OFFSET_BYTES, "big")[:size]
        return any(first)


def _fits_after(start: int, offsets: _Offsets) -> Fits:
    """Whether a batch may follow a gap from `start` on. A record takes more than one byte, so the
    gap holds fewer records than bytes.
    """

    def fits(position: int, header: BatchHeader) -> bool:
        reached = _Offsets(offsets.low, offsets.high + position - start)
        return reached.of(position, header) is not None

    return fits


class _Run:
    """Sound batches one after the other, which are dropped with the gap before them."""

    def __init__(
        self, path: Path, descriptor: int, end: int, offsets: _Offsets, epoch: int
    ) -> None:
        self._path = path
        self._descriptor = descriptor
        self._end = end
        self.offsets = offsets
        self.epoch = epoch

    def take(self, start: int, tail: Tail) -> tuple[int, str]:
        """Add the batches from `start` on to `tail`; return where they end, and the next fault."""
        position = start
        try:
            for at, header, batch, sound in scan(self._descriptor, self._end, start):
                if not sound:
                    return at, "the checksum is wrong"
                self.offsets = self._placed(at, header).after(header)
                self.epoch = header.epoch
                if header.is_control and _may_hold_voters(batch, header):
                    tail.may_stand = False
                position = at + header.size_bytes
        except RecordsError as error:
            return position, str(error)
        finally:
            # Not below the true end: what the log must reach may be too much, never too little.
            tail.dropped_end = OffsetAndEpoch(self.offsets.high, self.epoch)
        return position, ""

    def _placed(self, position: int, header: BatchHeader) -> _Offsets:
        """A sound batch in the wrong place was never torn: something misplaced it."""
        placed = self.offsets.of(position, header)
        if placed is not None and header.epoch >= self.epoch:
            return placed
        reason = (
            f"a whole batch with offset {header.base_offset} and epoch {header.epoch} follows "
            f"epoch {self.epoch} there"
        )
        end = position + header.size_bytes
        raise DamagedLogError(self._path, position, end, self.offsets.low, reason)


def lacks_first_bytes(position: int, header: BatchHeader, expected_offset: int) -> bool:
    """Whether a sound batch has a wrong offset because the sector that it begins in was lost.

    No checksum covers the offset.
    """
    lost = -position % SECTOR_BYTES
    if header.base_offset == expected_offset or not 0 < lost < _NEVER_ZERO_BYTES:
        return False
    kept = 8 * max(_OFFSET_BYTES - lost, 0)
    length_kept = 8 * min(_NEVER_ZERO_BYTES - lost, _NEVER_ZERO_BYTES - _OFFSET_BYTES)
    is_zero = header.base_offset >> kept == 0 and header.length >> length_kept == 0
    return is_zero and header.base_offset == expected_offset & ((1 << kept) - 1)


def _may_hold_voters(batch: memoryview, header: BatchHeader) -> bool:
    try:
        records = decode_control_batch(batch, header)
    except RecordsError:
        return True
    return any(isinstance(record, VotersRecord | KRaftVersion) for record in records)


def _header_at(descriptor: int, position: int, offsets: _Offsets) -> BatchHeader | None:
    """The header at `position`, None unless it can be read and belongs there."""
    try:
        header = read_header(read_range(descriptor, position, HEADER_SIZE))
    except RecordsError:
        return None
    return header if offsets.of(position, header) is not None else None


def _behind_data(descriptor: int, start: int, end: int, offsets: _Offsets) -> _Offsets | None:
    """The offset of the sound batch at `end`, if headers prove that data batches alone fill the gap
    before it.
    """
    following = read_header(read_range(descriptor, end, HEADER_SIZE))
    position = start
    while position < end:
        header = _header_at(descriptor, position, offsets)
        if header is None or header.is_control or header.count == 0:
            return None
        placed = offsets.of(position, header)
        assert placed is not None, "the header belongs there"
        position, offsets = position + header.size_bytes, placed.after(header)
    return offsets.of(end, following) if position == end else None


def _is_torn(descriptor: int, position: int, end: int, data_end: int, offsets: _Offsets) -> bool:
    """Whether an unfinished write explains the batch at `position`, which no sound one follows."""
    header = _header_at(descriptor, position, offsets)
    if header is None:
        # How long it was is unknown.
        is_short = data_end - position < HEADER_SIZE
        return is_short or _has_lost_sector(descriptor, position, data_end, offsets)
    if _is_start_lost(descriptor, position, offsets):
        # The length may be lost as well, or a part of it.
        return True
    if _is_length_damaged(descriptor, position, end, data_end, header):
        return False
    claimed_end = position + header.size_bytes
    if claimed_end > end or claimed_end - data_end >= _MISSING_BYTES:
        return True
    return _has_lost_sector(descriptor, position, claimed_end, offsets)


def _is_length_damaged(
    descriptor: int, position: int, end: int, data_end: int, header: BatchHeader
) -> bool:
    """Whether the checksum is right for another length than the header says."""
    first_end = max(data_end, position + HEADER_SIZE)
    if first_end > end:
        return False
    body = position + CRC_START
    checksum: int = crc32c(read_range(descriptor, body, first_end - body))
    for _ in range(min(end - first_end, _TRAILING_ZEROS_MAX) + 1):
        if checksum == header.crc:
            return True
        checksum = crc32c(b"\0", checksum)
    return False


def _is_start_lost(descriptor: int, start: int, offsets: _Offsets) -> bool:
    """Whether the sector in which a batch begins, shortly before its end, is zero and should not
    be.
    """
    size = -start % SECTOR_BYTES
    if not 0 < size < _NEVER_ZERO_BYTES or not offsets.may_begin_with(size):
        return False
    return read_range(descriptor, start, size) == _ZERO_SECTOR[:size]


def _has_lost_sector(descriptor: int, start: int, end: int, offsets: _Offsets) -> bool:
    """Whether a sector of the range, or the part of one that lies in it, is zero and should not be.

    The range begins with a batch at one of `offsets`, and ends with a batch.
    """
    if _is_start_lost(descriptor, start, offsets):
        return True
    position = start
    while position < end:
        piece_end = min(position - position % SECTOR_BYTES + SECTOR_BYTES, end)
        size = piece_end - position
        is_start = position == start and size < _NEVER_ZERO_BYTES
        if not is_start and read_range(descriptor, position, size) == _ZERO_SECTOR[:size]:
            if piece_end < end or size > _SOLVABLE_BYTES:
                return True
            return _is_end_lost(descriptor, start, end, size, offsets)
        position = piece_end
    return False


def _is_end_lost(descriptor: int, start: int, end: int, lost: int, offsets: _Offsets) -> bool:
    """Whether the checksum of the one batch of a range is right for some other last bytes.

    Batches often end in two or three zero bytes, so that these are zero is no evidence. CRCs are
    linear: the wanted difference must be a sum of the differences that single bits make.
    """
    header = _header_at(descriptor, start, offsets)
    if header is None or start + header.size_bytes != end:
        return False
    body = start + CRC_START
    difference: int = crc32c(read_range(descriptor, body, end - body)) ^ header.crc
    zero: int = crc32c(bytes(lost))
    basis: list[int] = []
    for bit in range(8 * lost):
        vector: int = crc32c((1 << bit).to_bytes(lost, "big")) ^ zero
        for known in basis:
            vector = min(vector, vector ^ known)
        if vector:
            basis.append(vector)
    for known in basis:
        difference = min(difference, difference ^ known)
    return difference == 0
