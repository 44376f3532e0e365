"""An audit that remembers finds what one without memory finds, and reads less."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from quorate.records.batch import build_data_batch, iter_batches, stamp
from quorate.records.metadata import NoOpRecord, encode
from quorate.spark.audit import audit
from quorate.spark.auditing.memory import (
    Memory,
    Skipped,
    Span,
    joins,
    marks_of,
    read_memory,
    remember,
    skipped,
    write_memory,
)
from quorate.spark.auditing.rules import LEADER_CHANGE, ControlBatch
from quorate.spark.files import LogReplica, find_replica, find_replicas

from tests.spark.conftest import writable_copy
from tests.spark.faults import FAULTS, PARTITION, Victim
from tests.spark.test_audit import CONTROLLERS

BASES = (0, 100, 200, 300)
NAMES = ("a", "b")


def log(directory: Path, *bases: int) -> Path:
    (directory / PARTITION).mkdir(parents=True, exist_ok=True)
    for base in bases:
        (directory / PARTITION / f"{base:020}.log").write_bytes(b"%d" % base)
    return directory


def spans_of(replica: LogReplica) -> Iterator[Span]:
    for segment in replica.segments:
        base = segment.base_offset
        yield Span(replica.name, str(segment.path), 1 + base // 200, base, base + 99)


def elected(replica: LogReplica) -> ControlBatch:
    change: dict[str, Any] = {"leaderId": 1, "voters": [], "grantingVoters": []}
    file = str(replica.partition / f"{200:020}.log")
    return ControlBatch(replica.name, file, 0, 90, 200, 2, None, ((LEADER_CHANGE, change),))


@pytest.fixture
def replicas(tmp_path: Path) -> list[LogReplica]:
    for name in NAMES:
        directory = log(tmp_path / name, *BASES)
        (directory / PARTITION / f"{150:020}-{1:010}.checkpoint").write_bytes(b"state")
    return again(tmp_path)


def again(root: Path) -> list[LogReplica]:
    return [find_replica(root / name) for name in NAMES]


def remembered(replicas: list[LogReplica], differs_at: int | None = None) -> Memory:
    spans = [span for replica in replicas for span in spans_of(replica)]
    controls = [elected(replica) for replica in replicas]
    return remember(replicas, marks_of(replicas), spans, controls, differs_at)


def skip_of(memory: Memory, replicas: list[LogReplica]) -> Skipped | None:
    return skipped(memory, replicas, marks_of(replicas))


def test_a_memory_outlives_its_file(replicas: list[LogReplica], tmp_path: Path) -> None:
    path = tmp_path / "new" / "memory"
    assert read_memory(path) is None
    write_memory(path, remembered(replicas))
    assert read_memory(path) == remembered(replicas)
    assert list(path.parent.iterdir()) == [path]
    for damaged in (b"", b"[]", path.read_bytes()[:-9], b'{"version": 2}', b'{"version": 1}'):
        path.write_bytes(damaged)
        assert read_memory(path) is None


def test_complete_segments_and_checkpoints_are_skipped(replicas: list[LogReplica]) -> None:
    skip = skip_of(remembered(replicas), replicas)
    assert skip is not None
    for replica in replicas:
        skips = [str(segment.path) in skip.files for segment in replica.segments]
        assert skips == [True, True, True, False]
    assert len(skip.files) == 8
    assert skip.judged == {150}
    assert skip.ends == {replica.name: 300 for replica in replicas}
    assert [span.first for span in skip.spans if span.replica == replicas[0].name] == [0, 100, 200]
    assert skip.controls == tuple(elected(replica) for replica in replicas)


def test_what_differs_or_lags_is_read_again(replicas: list[LogReplica], tmp_path: Path) -> None:
    skip = skip_of(remembered(replicas, differs_at=150), replicas)
    assert skip is not None
    assert skip.ends == {replica.name: 100 for replica in replicas}
    replicas[1].segments[3].path.unlink()
    replicas[1].segments[2].path.unlink()
    lagging = again(tmp_path)
    skip = skip_of(remembered(lagging), lagging)
    assert skip is not None
    assert skip.ends == {replica.name: 100 for replica in replicas}


def test_what_a_log_deletes_is_forgotten(replicas: list[LogReplica], tmp_path: Path) -> None:
    memory = remembered(replicas)
    replicas[0].segments[0].path.unlink()
    replicas[0].snapshots[0].path.unlink()
    moved = again(tmp_path)
    skip = skip_of(memory, moved)
    assert skip is not None
    assert [span.first for span in skip.spans if span.replica == moved[0].name] == [100, 200]
    assert skip.judged == {150}


def test_a_new_checkpoint_is_judged_with_its_copies(
    replicas: list[LogReplica], tmp_path: Path
) -> None:
    replicas[0].snapshots[0].path.unlink()
    memory = remembered(again(tmp_path))
    (tmp_path / "a" / PARTITION / f"{150:020}-{1:010}.checkpoint").write_bytes(b"other")
    skip = skip_of(memory, again(tmp_path))
    assert skip is not None
    assert skip.judged == set()


@pytest.mark.parametrize("change", ["bytes", "time", "index", "gap", "directory", "name"])
def test_everything_is_audited_after_a_change(
    replicas: list[LogReplica], tmp_path: Path, change: str
) -> None:
    memory = remembered(replicas)
    segment = replicas[1].segments[1].path
    now = replicas
    if change == "bytes":
        segment.write_bytes(b"999")
    elif change == "time":
        os.utime(segment, ns=(1, 1))
    elif change == "index":
        segment.with_suffix(".index").write_bytes(b"")
    elif change == "gap":
        segment.unlink()
    elif change == "directory":
        now = [replicas[0]]
    else:
        now = [replicas[0], replace(replicas[1], name="c")]
    now = again(tmp_path) if change == "gap" else now
    assert skip_of(memory, now) is None


def test_epochs_must_continue_from_what_was_skipped(replicas: list[LogReplica]) -> None:
    (one, _), controls = replicas, [elected(replica) for replica in replicas]
    spans = list(spans_of(one))
    assert joins(spans, controls)
    assert not joins(spans, [])
    assert not joins([*spans[:2], spans[2]._replace(epoch=0), spans[3]], controls)


def in_segments(directory: Path, *starts: int) -> None:
    """Cut the only segment of a log at batches."""
    partition = directory / PARTITION
    whole = partition / f"{0:020}.log"
    batches = [bytes(batch) for _, batch in iter_batches(whole.read_bytes())]
    headers = [header for header, _ in iter_batches(whole.read_bytes())]
    for begin, end in pairwise([*starts, len(batches)]):
        path = partition / f"{headers[begin].base_offset:020}.log"
        path.write_bytes(b"".join(batches[begin:end]))
    whole.with_suffix(".index").unlink()


def append(directory: Path, value: bytes = b"") -> None:
    last = max((directory / PARTITION).glob("*.log"))
    data = last.read_bytes()
    header = [header for header, _ in iter_batches(data)][-1]
    records = [(None, encode(NoOpRecord()))] if not value else [(b"k", value)]
    batch = build_data_batch(records, header.max_timestamp)
    stamp(batch, header.end_offset, header.epoch)
    last.write_bytes(data + batch)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_findings_are_those_of_an_audit_without_memory(
    spark: Any, golden: Path, tmp_path: Path
) -> None:
    copies = [writable_copy(golden / "full-history" / n, tmp_path / n) for n in CONTROLLERS]
    for copy in copies:
        in_segments(copy, 0, 30, 60)
    memory = tmp_path / "memory"

    def found(memory: Path | None = memory) -> list[Any]:
        return audit(spark, find_replicas(copies), memory=memory).collect()

    assert found() == []
    done = memory.read_bytes()
    for copy in copies:
        append(copy)
    assert found() == []
    # The last segments are read again until others follow.
    assert memory.read_bytes() == done
    # In the new part, of a record that is committed.
    append(copies[0], b"mine")
    append(copies[1], b"other")
    append(copies[2], b"other")
    told = found()
    assert [row.rule for row in told] == ["log matching"]
    assert told == found(None)
    # In the old part.
    planted = FAULTS["flipped bit"][1](Victim(copies[1]))
    told = found()
    assert [row.rule for row in told] == [planted.rules[0].text, "log matching"]
    assert told == found(None)
