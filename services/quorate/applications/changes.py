"""What one batch of the log changes in the state of applications."""

from __future__ import annotations

from dataclasses import dataclass, field

from quorate.applications.key_index import NO_OFFSET, UNKNOWN_OFFSET, digest_of
from quorate.records.batch import BatchHeader, iter_keys
from quorate.records.primitives import Buffer


@dataclass(slots=True)
class BatchChanges:
    """end_offset: of the batch in the log. last_offset: of its last record with a key, NO_OFFSET if
    it has none. time_ms: its largest timestamp. keys: digests of keys to the offsets of their last
    records, NO_OFFSET if their value is null.
    """

    end_offset: int
    last_offset: int
    time_ms: int
    keys: dict[bytes, int] = field(default_factory=dict)


def changes_of(batch: Buffer, header: BatchHeader, base_offset: int | None) -> BatchChanges:
    """The changes by a data batch whose checksum was verified. Raises RecordsError.

    base_offset: of the batch in the log, None if unknown; the header's may be another one.
    """
    keys: dict[bytes, int] = {}
    last_delta = -1
    for delta, key, has_value in iter_keys(batch, header):
        if key is None:
            continue
        last_delta = delta
        if not key:
            continue
        if not has_value:
            keys[digest_of(key)] = NO_OFFSET
        else:
            known = UNKNOWN_OFFSET if base_offset is None else base_offset + delta
            keys[digest_of(key)] = known
    if base_offset is None:
        last_offset = NO_OFFSET if last_delta < 0 else UNKNOWN_OFFSET
        return BatchChanges(UNKNOWN_OFFSET, last_offset, header.max_timestamp, keys)
    last_offset = NO_OFFSET if last_delta < 0 else base_offset + last_delta
    end_offset = base_offset + header.last_offset_delta + 1
    return BatchChanges(end_offset, last_offset, header.max_timestamp, keys)
