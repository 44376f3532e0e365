"""Tables, audit and dump of checkpoints with gaps between records, and a state machine's state.

A gap may be within a batch and between batches, in the offsets of the log only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from quorate.applications.chunks import index_chunks, state_chunks
from quorate.cli.main import main
from quorate.log.disk import Disk
from quorate.log.metadata_log import create_partition_directory
from quorate.log.snapshots import SnapshotStore
from quorate.raft.types import OffsetAndEpoch
from quorate.records.batch import build_data_batch, keep_base_offset, read_header
from quorate.records.compaction import with_survivors
from quorate.records.metadata import (
    HAS_STATE,
    ApplicationTag,
    ConfigRecord,
    application_record,
)
from quorate.runtime.metadata_batches import build_metadata_batch
from quorate.spark.auditing.inspecting import inspect_file
from quorate.spark.decoding import framing
from quorate.spark.decoding.columns import ChunkOrigin, ledger_rows
from quorate.spark.decoding.envelope import read_records
from quorate.spark.files import find_replicas, opened

from tests.spark.checkpoints import snapshot_findings

END = OffsetAndEpoch(1_000, 3)
KEPT = (101, 103, 200, 301)
CONFIG = ConfigRecord(2, "orders", "retention.ms", "7", version=0)


def batches() -> list[bytearray]:
    """Metadata, a state with its index, and what compaction left of four batches."""
    index, state = index_chunks([(b"d" * 16, 7)]), state_chunks([b"s" * 2_000_000])
    records = [
        *(application_record(ApplicationTag.INDEX_CHUNK, chunk) for chunk in index),
        *(application_record(ApplicationTag.STATE_CHUNK, chunk) for chunk in state),
    ]
    found = [build_metadata_batch([each], 5) for each in (CONFIG, HAS_STATE, *records)]
    for base, count in ((100, 4), (150, 2), (200, 1), (300, 3)):
        batch = build_data_batch([(b"k%d" % number, b"v") for number in range(count)], 5)
        keep_base_offset(batch, base)
        header = read_header(batch)
        kept = with_survivors(batch, header, lambda record, base=base: base + record.offset in KEPT)
        found += [] if kept is None else [kept]
    return found


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    partition = create_partition_directory(tmp_path)
    store = SnapshotStore(partition, Disk())
    store.write(END, 0, None, 5, batches())
    return store.path(END)


def test_records_have_their_offsets(checkpoint: Path) -> None:
    origin = ChunkOrigin("1", str(checkpoint), END.offset)
    offsets: list[int | None] = []
    with opened(checkpoint) as (descriptor, size):
        for chunk in framing.read_chunks(descriptor, 0, size):
            assert chunk.fault is None
            table = ledger_rows(read_records(chunk), origin).to_pydict()
            assert [error for error in table["error"] if error is not None] == []
            offsets += [
                offset
                for offset, kind in zip(table["offset"], table["type"], strict=True)
                if kind == "OPAQUE"
            ]
    assert tuple(offsets) == KEPT


def test_no_rule_is_violated(checkpoint: Path) -> None:
    faults: list[Any] = []
    for rows in inspect_file(ChunkOrigin("1", str(checkpoint), END.offset), 0):
        table = rows.to_pydict()
        faults += [fault for fault in table["fault"] if fault is not None]
        assert all(table["crc_valid"])
    assert faults == []
    assert snapshot_findings(find_replicas([checkpoint.parents[1]])) == []


def test_the_dump_reports_no_gaps(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dump-log", "--cluster-metadata-decoder", "--files", str(checkpoint)]) == 0
    printed = capsys.readouterr().out
    assert "Non-consecutive" not in printed
    assert printed.count("keySize: 2 ") == len(KEPT)
