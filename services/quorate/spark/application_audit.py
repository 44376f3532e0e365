"""Compares the records of applications in a checkpoint with those in the log.

A checkpoint has all of them, at their offsets in the log, except those that

- compaction removed: a later record has the same key, or the value is null. The empty key is not
  compacted;
- the state of a state machine replaces: those before the first record that follows the state.

Checkpoints of early releases do not contain the offsets; such records are compared by content.

Source: `runtime.application_snapshots`, which writes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from quorate.applications import digest_of
from quorate.common.batch_layout import NO_SEQUENCE
from quorate.metadata.config.config_defs import CLEANUP_POLICY
from quorate.metadata.image.metadata_image import AnyRecord
from quorate.records.metadata import HAS_STATE, ConfigRecord
from quorate.spark.envelope import Records
from quorate.spark.framing import Mask

DIGEST_BYTES = 16
_NO_KEY = b"\0" * DIGEST_BYTES
_DIGEST = np.dtype(("S", DIGEST_BYTES))
_RECORD = np.dtype(
    [
        ("offset", np.int64),
        ("key", _DIGEST),
        ("content", _DIGEST),
        ("has_value", np.bool_),
        ("position", np.int64),
    ]
)
"""A record in place of its bytes. key: its digest, `_NO_KEY` for the empty key.

position: the byte at which its batch begins.
"""
Table = npt.NDArray[Any]
"""An array of _RECORD, by rising offset."""
_ROWS_HELD_MAX = 1 << 16


class ApplicationDifference(NamedTuple):
    """One kind of difference. position: in the checkpoint, None if nothing is there."""

    offset: int
    text: str
    position: int | None


@dataclass(slots=True)
class ApplicationRecords:
    """The records of applications in some files, in 50 bytes each.

    unplaced: the contents of those whose offset in the log is unknown. start: the offset from which
    on no record of the log is missing. is_compact: whether a record sets the policy, so that
    records may have been compacted. has_state: whether a state replaces records.
    """

    start: int = 0
    unplaced: set[bytes] = field(default_factory=set)
    is_compact: bool = False
    has_state: bool = False
    _rows: list[tuple[int, bytes, bytes, bool, int]] = field(default_factory=list)
    _arrays: list[Table] = field(default_factory=list)

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
        digest = digest_of(key) if key else _NO_KEY
        self._rows.append((offset, digest, content, value is not None, position))
        if len(self._rows) >= _ROWS_HELD_MAX:
            self._flush()

    def note(self, record: AnyRecord) -> None:
        """Take from a metadata record whether records of applications may be missing."""
        if record == HAS_STATE:
            self.has_state = True
        elif isinstance(record, ConfigRecord):
            self.is_compact |= record.name == CLEANUP_POLICY

    def table(self) -> Table:
        """The records whose offset is known. Of several at an offset, the last one added."""
        self._flush()
        whole = np.concatenate(self._arrays) if self._arrays else np.empty(0, _RECORD)
        ordered = whole[np.argsort(whole["offset"], kind="stable")]
        is_last = np.append(np.diff(ordered["offset"]) != 0, np.ones(min(1, len(ordered)), bool))
        self._arrays = [ordered[is_last]]
        return self._arrays[0]

    def _flush(self) -> None:
        if self._rows:
            self._arrays.append(np.array(self._rows, _RECORD))
            self._rows = []


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
    ours, theirs = stored.table(), expected.table()
    _, in_ours, in_theirs = np.intersect1d(
        ours["offset"], theirs["offset"], assume_unique=True, return_indices=True
    )
    is_changed = ours["content"][in_ours] != theirs["content"][in_theirs]
    added = np.delete(ours, in_ours)
    for found, what in (
        (ours[in_ours][is_changed], "differ"),
        (added[added["offset"] >= expected.start], "are superfluous"),
        (_missing(stored, expected, np.delete(theirs, in_theirs), is_own=is_own), "are missing"),
    ):
        if len(found):
            first = int(found["offset"][0])
            text = f"application records {what}: {len(found)}, from offset {first} on"
            position = None if what == "are missing" else int(found["position"][0])
            yield ApplicationDifference(first, text, position)
    if expected.start == 0 and stored.unplaced:
        known = {content.ljust(DIGEST_BYTES, b"\0") for content in theirs["content"].tolist()}
        if forged := stored.unplaced - expected.unplaced - known:
            text = f"application records are superfluous: {len(forged)}"
            yield ApplicationDifference(0, text, None)


def _missing(
    stored: ApplicationRecords, expected: ApplicationRecords, lacking: Table, *, is_own: bool
) -> Table:
    """Those of the records that the checkpoint lacks that it should have."""
    ours = stored.table()
    if stored.has_state:
        lacking = lacking[lacking["offset"] >= ours["offset"][0]] if len(ours) else lacking[:0]
    if stored.unplaced and len(lacking):
        unplaced = np.array(list(stored.unplaced), _DIGEST)
        lacking = lacking[~np.isin(lacking["content"], unplaced)]
    may_be_compacted = stored.is_compact or expected.is_compact
    may_be_compacted |= expected.start > 0 and not is_own
    if not may_be_compacted or not len(lacking):
        return lacking
    is_needed = lacking["has_value"] & _is_last(lacking, (ours, expected.table()))
    found: Table = lacking[is_needed | (lacking["key"] == _NO_KEY)]
    return found


def _is_last(lacking: Table, tables: tuple[Table, Table]) -> Mask:
    """Whether no later record in the tables has the key of each of the records."""
    keys, places = np.unique(lacking["key"], return_inverse=True)
    last = np.full(len(keys), -1, np.int64)
    for table in tables:
        at = np.minimum(np.searchsorted(keys, table["key"]), len(keys) - 1)
        is_wanted = keys[at] == table["key"]
        np.maximum.at(last, at[is_wanted], table["offset"][is_wanted])
    found: Mask = last[places] == lacking["offset"]
    return found
