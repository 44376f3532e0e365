"""Compares the records of applications in a checkpoint with those in the log.

A checkpoint has all of them, at their offsets in the log, except those that

- compaction removed: a later record has the same key, or the value is null. The empty key is not
  compacted;
- the state of a state machine replaces: those before the first record that follows the state.

Checkpoints of early releases do not contain the offsets; such records are compared by content.

Source: `runtime.application_snapshots`, which writes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from quorate.applications import digest_of
from quorate.metadata.config.config_defs import CLEANUP_POLICY
from quorate.metadata.image.metadata_image import AnyRecord
from quorate.records.batch import NO_SEQUENCE
from quorate.records.metadata import HAS_STATE, ConfigRecord
from quorate.spark.envelope import Records

DIGEST_BYTES = 16


class ApplicationRecord(NamedTuple):
    """A record in place of its bytes. key: a digest; None for the empty key.

    position: the byte at which its batch begins.
    """

    key: bytes | None
    content: bytes
    has_value: bool
    position: int


class ApplicationDifference(NamedTuple):
    """One kind of difference. position: in the checkpoint, None if nothing is there."""

    offset: int
    text: str
    position: int | None


@dataclass(slots=True)
class ApplicationRecords:
    """The records of applications in some files, by their offset in the log.

    unplaced: the contents of those whose offset is unknown. start: the offset from which on no
    record of the log is missing. is_compact: whether a record sets the policy, so that records may
    have been compacted. has_state: whether a state replaces records.
    """

    start: int = 0
    by_offset: dict[int, ApplicationRecord] = field(default_factory=dict)
    unplaced: set[bytes] = field(default_factory=set)
    is_compact: bool = False
    has_state: bool = False

    def add(self, records: Records, row: int, *, in_snapshot: bool) -> None:
        """Add a record that has a key."""
        key, value = records.key(row) or b"", records.value(row)
        batch = int(records.batch[row])
        header = records.chunk.headers[batch]
        offset: int | None = int(records.offset[row])
        if in_snapshot:
            # See `BatchHeader.log_base_offset`.
            is_known = header["producer_id"] >= 0 and header["base_sequence"] == NO_SEQUENCE
            moved = int(header["producer_id"]) - int(header["base_offset"])
            offset = int(records.offset[row]) + moved if is_known else None
        content = _digest(key, value, int(records.timestamp[row]))
        if offset is None:
            self.unplaced.add(content)
            return
        position = records.chunk.file_position + int(records.chunk.starts[batch])
        self.by_offset[offset] = ApplicationRecord(
            digest_of(key) if key else None, content, value is not None, position
        )

    def note(self, record: AnyRecord) -> None:
        """Take from a metadata record whether records of applications may be missing."""
        if record == HAS_STATE:
            self.has_state = True
        elif isinstance(record, ConfigRecord):
            self.is_compact |= record.name == CLEANUP_POLICY

    def contents(self) -> set[bytes]:
        return self.unplaced | {record.content for record in self.by_offset.values()}


def _digest(key: bytes, value: bytes | None, timestamp: int) -> bytes:
    state = blake2b(digest_size=DIGEST_BYTES)
    for part in (key, b"" if value is None else b"\1" + value):
        state.update(len(part).to_bytes(8, "big"))
        state.update(part)
    state.update(timestamp.to_bytes(8, "big", signed=True))
    return state.digest()


def differences(
    stored: ApplicationRecords, expected: ApplicationRecords, *, is_own: bool
) -> Iterator[ApplicationDifference]:
    """Compare a checkpoint's records with those before its end in the log.

    is_own: whether `expected` comes from the replica that wrote the checkpoint. Another one may
    have kept records that this one compacted while the policy was another.
    """
    ours, theirs = stored.by_offset, expected.by_offset
    changed = sorted(
        offset
        for offset in ours.keys() & theirs.keys()
        if ours[offset].content != theirs[offset].content
    )
    added = sorted(offset for offset in ours.keys() - theirs.keys() if offset >= expected.start)
    missing = sorted(_missing(stored, expected, is_own=is_own))
    for offsets, what in (
        (changed, "differ"),
        (added, "are superfluous"),
        (missing, "are missing"),
    ):
        if offsets:
            first = offsets[0]
            text = f"application records {what}: {len(offsets)}, from offset {first} on"
            position = ours[first].position if first in ours else None
            yield ApplicationDifference(first, text, position)
    forged = stored.unplaced - expected.contents() if expected.start == 0 else ()
    if forged:
        yield ApplicationDifference(0, f"application records are superfluous: {len(forged)}", None)


def _missing(
    stored: ApplicationRecords, expected: ApplicationRecords, *, is_own: bool
) -> Iterable[int]:
    may_be_compacted = stored.is_compact or expected.is_compact
    may_be_compacted |= expected.start > 0 and not is_own
    last: dict[bytes | None, int] = {}
    for offset, record in (*expected.by_offset.items(), *stored.by_offset.items()):
        last[record.key] = max(offset, last.get(record.key, -1))
    begin = min(stored.by_offset, default=None) if stored.has_state else 0
    for offset in expected.by_offset.keys() - stored.by_offset.keys():
        record = expected.by_offset[offset]
        if begin is None or offset < begin or record.content in stored.unplaced:
            continue
        is_last = record.has_value and last[record.key] == offset
        if may_be_compacted and record.key is not None and not is_last:
            continue
        yield offset
