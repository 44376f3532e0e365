"""Holds the records of applications of checkpoints and logs, for their comparison.

`applications.record_comparison` compares them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from quorate.applications import digest_of
from quorate.applications.record_comparison import CONTENT_BYTES, ComparedRecord, content_of
from quorate.common.batch_layout import NO_SEQUENCE
from quorate.metadata.config.config_defs import CLEANUP_POLICY
from quorate.metadata.image.metadata_image import AnyRecord
from quorate.records.metadata import HAS_STATE, ConfigRecord
from quorate.spark.decoding.envelope import Records

_DIGEST = np.dtype(("S", CONTENT_BYTES))
_RECORD = np.dtype(
    [
        ("offset", np.int64),
        ("key", _DIGEST),
        ("content", _DIGEST),
        ("has_value", np.bool_),
        ("position", np.int64),
    ]
)
"""The fields of `ComparedRecord`."""
Table = npt.NDArray[Any]
"""An array of _RECORD, by rising offset."""
_ROWS_HELD_MAX = 1 << 16


@dataclass(slots=True)
class ApplicationRecords:
    """The records of applications in some files, in 50 bytes each: a `RecordSource`."""

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
        content = content_of(key, value, int(records.timestamp[row]))
        if offset is None:
            self.unplaced.add(content)
            return
        position = records.chunk.file_position + int(records.chunk.starts[batch])
        digest = digest_of(key) if key else b""
        self._rows.append((offset, digest, content, value is not None, position))
        if len(self._rows) >= _ROWS_HELD_MAX:
            self._flush()

    def note(self, record: AnyRecord) -> None:
        """Take from a metadata record whether records of applications may be missing."""
        if record == HAS_STATE:
            self.has_state = True
        elif isinstance(record, ConfigRecord):
            self.is_compact |= record.name == CLEANUP_POLICY

    def records(self) -> Iterator[ComparedRecord]:
        """The records whose offset is known. Of several at an offset, the last one added."""
        table = self._table()
        for at in range(0, len(table), _ROWS_HELD_MAX):
            rows = table[at : at + _ROWS_HELD_MAX].tolist()
            for offset, key, content, has_value, position in rows:
                # numpy strips zeros at the end.
                whole = content.ljust(CONTENT_BYTES, b"\0")
                yield ComparedRecord(offset, key, whole, has_value, position)

    def _table(self) -> Table:
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
