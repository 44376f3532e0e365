"""`bootstrap.checkpoint`: the metadata records that a formatted directory begins with.

Kafka's file: a checkpoint outside of the log, with SnapshotHeader, one data batch, SnapshotFooter.
The first controller that is active in a log without metadata appends its records; after that it
means nothing. The voters are not in it: they are in the checkpoint 0@0 of the log's directory.

Source: KIP-778, "Initialize with KRaft"; Kafka's BootstrapDirectory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from quorate.log.disk import Disk
from quorate.log.snapshots import restamped, scan_snapshot
from quorate.raft.types import OffsetAndEpoch
from quorate.records.batch import BatchHeader
from quorate.records.primitives import Buffer

BOOTSTRAP_METADATA_FILE = "bootstrap.checkpoint"


def write_bootstrap_metadata(directory: Path, batches: Sequence[Buffer]) -> None:
    """Durable on return. directory: `metadata.log.dir`. batches: of metadata records."""
    content = b"".join(restamped(OffsetAndEpoch(0, 0), 0, None, 0, batches))
    Disk().replace_file(directory / BOOTSTRAP_METADATA_FILE, content)


def read_bootstrap_metadata(directory: Path) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the file's data batches; none without a file. Raises DamagedSnapshotError, OSError."""
    path = directory / BOOTSTRAP_METADATA_FILE
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        size = os.fstat(descriptor).st_size
        for header, batch, control in scan_snapshot(path, descriptor, size):
            if not control:
                yield header, batch
    finally:
        os.close(descriptor)
