"""What one batch of the log changes in the state of applications."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from quorate.applications.key_index import NO_OFFSET, UNKNOWN_OFFSET, digest_of
from quorate.common.batch_layout import NO_SEQUENCE
from quorate.records.batch import BatchHeader, BatchProducer, iter_keys, iter_records
from quorate.records.errors import RecordsError
from quorate.records.metadata import (
    ApplicationTag,
    OpenedSession,
    application_field,
    application_record,
    decode,
    encode,
)
from quorate.records.primitives import Buffer

_SESSION = encode(application_record(ApplicationTag.PRODUCER_SESSION, b""), 0)[:-1]
"""How a record begins that opens a session: everything before the size of the field."""


@dataclass(slots=True)
class BatchChanges:
    """What one batch changes in the state of applications."""

    end_offset: int
    """The end offset of the batch in the log."""
    last_offset: int
    """The offset of the last record with a key, NO_OFFSET if the batch has none."""
    time_ms: int
    """The largest timestamp of the batch."""
    keys: dict[bytes, int] = field(default_factory=dict)
    """The offset of the last record of each key, by the key's digest; NO_OFFSET if its value is
    null.
    """
    producer: BatchProducer | None = None
    """The place of the batch in a producer session, None without one."""
    count: int = 0
    """The number of records in the producer session, 0 without one."""
    opened: Sequence[tuple[int, OpenedSession]] = ()
    """The (offset, record) of each session that the batch opens."""


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
    changes = BatchChanges(end_offset, last_offset, header.max_timestamp, keys)
    if last_delta < 0:
        changes.opened = _opened(batch, header, base_offset)
    elif header.base_sequence != NO_SEQUENCE:
        changes.producer, changes.count = header.producer, header.count
    return changes


def _opened(
    batch: Buffer, header: BatchHeader, base_offset: int
) -> Sequence[tuple[int, OpenedSession]]:
    """The sessions that a batch of metadata opens."""
    if _SESSION not in bytes(batch):
        return ()
    opened: list[tuple[int, OpenedSession]] = []
    for record in iter_records(memoryview(batch), header):
        if record.value is not None and record.value.startswith(_SESSION):
            found = application_field(decode(record.value))
            if found is None or found[0] is not ApplicationTag.PRODUCER_SESSION:
                continue
            # Earlier releases let clients append such a record with any content: it opens none.
            with suppress(RecordsError):
                session = OpenedSession.from_bytes(found[1])
                opened.append((record.offset - header.base_offset + base_offset, session))
    return opened
