"""What the audit's tasks find in a file by itself: indexes, producer ids, transactions."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from quorate.raft.batches import LeaderChange
from quorate.records.batch import (
    BatchProducer,
    build_control_batch,
    build_data_batch,
    read_header,
    stamp,
)
from quorate.records.metadata import BeginTransactionRecord, NoOpRecord, encode
from quorate.spark.auditing.index_audit import INDEX_SUFFIX
from quorate.spark.auditing.inspecting import inspect_file
from quorate.spark.decoding.columns import ChunkOrigin

BASE = 1_000
NO_OP = [(None, encode(NoOpRecord()))]
SESSION = BatchProducer(4_000, 0, 7)


def segment(directory: Path, *batches: bytearray) -> Path:
    data, offset = b"", BASE
    for batch in batches:
        stamp(batch, offset, 3)
        data += batch
        offset = read_header(batch).end_offset
    path = directory / f"{BASE:020}.log"
    path.write_bytes(data)
    return path


def rows(path: Path, snapshot: int | None = None) -> list[dict[str, Any]]:
    tables = inspect_file(ChunkOrigin("1", str(path), snapshot), int(path.stem))
    return [row for table in tables for row in table.to_pylist()]


def test_indexes_of_kafka_are_right(golden: Path) -> None:
    paths = [
        path
        for path in golden.rglob("*.log")
        if (index := path.with_suffix(INDEX_SUFFIX)).exists() and index.stat().st_size
    ]
    assert len(paths) >= 6
    for path in paths:
        assert [row["fault"] for row in rows(path) if row["fault"]] == []


@pytest.mark.parametrize(
    ("entries", "wrong"),
    [
        ([(1, "second"), (2, "third"), (0, 0), (0, 0)], None),
        # Older releases name the last offset of an append of several batches.
        ([(2, "second")], None),
        # The node goes on to write.
        ([(1, "second"), (9, 1 << 20)], None),
        ([(1, "second"), (2, 5)], (8, BASE + 2, "no batch begins at byte 5")),
        ([(1, "third")], (0, BASE + 1, f"at byte {{third}}, where offset {BASE + 2} begins")),
        ([(2, "third"), (1, "second")], (8, BASE + 1, f"follows that of offset {BASE + 2}")),
    ],
)
def test_index_entries_name_batches(
    tmp_path: Path, entries: list[tuple[int, Any]], wrong: tuple[int, int, str] | None
) -> None:
    path = segment(tmp_path, *(build_data_batch(NO_OP, 5) for _ in range(3)))
    size = path.stat().st_size // 3
    at = {"second": size, "third": 2 * size}
    index = path.with_suffix(INDEX_SUFFIX)
    index.write_bytes(b"".join(struct.pack(">ii", o, at.get(p, p)) for o, p in entries))
    faults = [row for row in rows(path) if row["fault"]]
    assert [row["base_offset"] for row in rows(path)][:3] == [BASE, BASE + 1, BASE + 2]
    if wrong is None:
        assert faults == []
        return
    (fault,) = faults
    assert (fault["position"], fault["base_offset"], fault["file"]) == (*wrong[:2], str(index))
    assert wrong[2].format(**at) in fault["fault"]


def test_producer_ids_belong_to_sessions_of_applications(tmp_path: Path) -> None:
    session = build_data_batch([(b"k", b"v")], 5, producer=SESSION)
    of_metadata = build_data_batch(NO_OP, 5, producer=SESSION)
    without_sequence = build_data_batch([(b"k", b"v")], 5, producer=BatchProducer(4_000, 0, -1))
    path = segment(tmp_path, session, of_metadata, without_sequence, build_data_batch(NO_OP, 5))
    told = [row["producer_fault"] for row in rows(path)]
    assert [text is not None for text in told] == [False, True, True, False]
    assert "producer id 4000, epoch 0 and sequence number 7" in told[1]
    # In a checkpoint, the field holds an offset.
    assert not any(row["producer_fault"] for row in rows(path, snapshot=BASE + 4))


def test_transactions_are_listed_with_their_offsets(tmp_path: Path) -> None:
    begin = (None, encode(BeginTransactionRecord("x")))
    elected = build_control_batch([LeaderChange(1, (), ())], 5)
    path = segment(tmp_path, elected, build_data_batch([*NO_OP, begin], 5))
    found = [control for row in rows(path) for control in row["controls"] or ()]
    assert [one["type"] for one in found] == ["LEADER_CHANGE", BeginTransactionRecord.TYPE]
    assert json.loads(found[1]["data"]) == {"offset": BASE + 2}
