"""The initial copy as batches of records: one metadata transaction, from Begin to End.

The copy takes effect atomically: the first batch begins the transaction, and the last one sets the
state MIGRATION and ends the transaction. The batches in between are bounded and generated lazily,
so that their memory does not grow with the tree.

Source: KIP-866, "Metadata Transactions"; KIP-868.
"""

from __future__ import annotations

from collections.abc import Iterator

from quorate.metadata.metadata_version import at_level
from quorate.migration.reading import NewId, read_all
from quorate.migration.znodes import Tree
from quorate.records.metadata import (
    BeginTransactionRecord,
    EndTransactionRecord,
    MetadataRecord,
    ZkMigrationState,
    ZkMigrationStateRecord,
)

BATCH_RECORDS_MAX = 1_000
"""The most records per batch."""
NAME = "ZK Migration"


def copy(
    tree: Tree, new_id: NewId, level: int, batch_records_max: int = BATCH_RECORDS_MAX
) -> Iterator[list[MetadataRecord]]:
    """Batches to append in order, in the record versions of metadata.version `level`.

    Raises ZNodeError.
    """
    yield [BeginTransactionRecord(NAME, version=0)]
    batch: list[MetadataRecord] = []
    for records in read_all(tree, new_id):
        batch += [at_level(record, level) for record in records]
        while len(batch) >= batch_records_max:
            yield batch[:batch_records_max]
            batch = batch[batch_records_max:]
    if batch:
        yield batch
    yield [
        ZkMigrationStateRecord(ZkMigrationState.MIGRATION, version=0),
        EndTransactionRecord(version=0),
    ]
