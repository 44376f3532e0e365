"""Metadata transactions, resolved: what a snapshot may hold of them.

Kafka's controller writes BeginTransaction, records, then EndTransaction or AbortTransaction
(KIP-868). A snapshot is a state, not a history: markers do not belong in it (Kafka refuses to load
one that has them), nor does what was aborted. Markers are records without a key in Kafka's metadata
framing; application data has keys and passes untouched, batch by batch, without a look at its
records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from quorate.records.batch import build_data_batch, iter_batches, iter_records
from quorate.records.metadata import peek

BEGIN_TRANSACTION = 23
END_TRANSACTION = 24
ABORT_TRANSACTION = 25
MARKERS = frozenset({BEGIN_TRANSACTION, END_TRANSACTION, ABORT_TRANSACTION})

Buffer = bytes | bytearray | memoryview
_Record = tuple[bytes | None, bytes]


def without_transactions(batches: Iterable[Buffer]) -> Iterator[Buffer]:
    """The batches with every transaction resolved; those without markers keep their bytes.

    A transaction that is still open at the end is left out: its records are not in force.
    """
    pending: list[Buffer] | None = None
    for batch in batches:
        header, view = next(iter_batches(batch))
        records = [(record.key, record.value or b"") for record in iter_records(view, header)]
        if not any(_marker(record) for record in records):
            if pending is None:
                yield batch
            else:
                pending.append(batch)
            continue
        run: list[_Record] = []
        for record in records:
            marker = _marker(record)
            if not marker:
                run.append(record)
                continue
            pieces = [build_data_batch(run, header.max_timestamp)] if run else []
            run = []
            if pending is None:
                yield from pieces
            else:
                pending.extend(pieces)
            if marker == END_TRANSACTION:
                yield from pending or ()
            pending = [] if marker == BEGIN_TRANSACTION else None
        if run:
            piece = build_data_batch(run, header.max_timestamp)
            if pending is None:
                yield piece
            else:
                pending.append(piece)


def _marker(record: _Record) -> int:
    """The api key of a transaction marker, 0 for any other record."""
    key, value = record
    frame = peek(value) if key is None else None
    return frame[0] if frame is not None and frame[0] in MARKERS else 0
