"""Directories of running controllers under load: what readers return is contiguous, or an error.

Small segments and frequent snapshots: the active segment grows, and old ones go, while it is read.
Without Spark, whose tasks do the same (`read_part`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from quorate.spark.errors import CompactedError, FileGoneError, UnknownCommitError
from quorate.spark.options import SourceOptions
from quorate.spark.source.data_source import QuorateReader, QuorateStreamReader

from tests.integration.support import PARTITION, Node, Quorum
from tests.spark.load import Load

SETTINGS = {
    "metadata.log.max.record.bytes.between.snapshots": 20_000,
    "metadata.max.retention.bytes": 40_000,
    "internal.metadata.log.segment.bytes": 10_000,
}
READS = 40
DEADLINE_S = 240.0


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[Quorum]:
    quorum = Quorum(tmp_path, (1, 2), **SETTINGS)
    quorum.form()
    try:
        yield quorum
    finally:
        for node in quorum.nodes.values():
            node.kill()


def first_segment(node: Node) -> str:
    return min(path.name for path in (node.data / PARTITION).glob("*.log"))


def replicas_of(reader: QuorateReader) -> dict[str, list[tuple[int, bool | None]]]:
    """The offsets that each replica's log has, and whether they are committed."""
    found: dict[str, list[tuple[int, bool | None]]] = {}
    for part in reader.partitions():
        for batch in reader.read(part):
            for row in batch.select(["replica", "snapshot", "offset", "committed"]).to_pylist():
                if row["snapshot"] is None:
                    of_replica = found.setdefault(row["replica"], [])
                    of_replica.append((row["offset"], row["committed"]))
                else:
                    assert row["committed"]
    return found


def assert_contiguous(rows: list[tuple[int, bool | None]]) -> None:
    offsets = [offset for offset, _ in rows]
    assert offsets == list(range(offsets[0], offsets[-1] + 1))
    verdicts = [committed for _, committed in rows]
    count = verdicts.count(True)
    assert verdicts == [True] * count + [None] * (len(verdicts) - count)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_directories_of_running_controllers(quorum: Quorum) -> None:
    paths = [node.data for node in quorum.nodes.values()]
    single = SourceOptions.of({"path": str(paths[0]), "snapshots": "all"})
    group = SourceOptions.of({"paths": ",".join(map(str, paths)), "snapshots": "newest"})
    begun = first_segment(quorum.nodes[1])
    complete = gone = 0
    deadline = time.monotonic() + DEADLINE_S
    with Load(quorum.addresses):
        while complete < READS or first_segment(quorum.nodes[1]) == begun:
            assert time.monotonic() < deadline, (complete, gone)
            options = (single, group)[(complete + gone) % 2]
            try:
                found = replicas_of(QuorateReader(options))
            except (FileGoneError, UnknownCommitError):  # the latter in an election
                gone += 1
                continue
            complete += 1
            for rows in found.values():
                assert_contiguous(rows)
                assert options is single or rows[-1][1]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_stream_of_directories_of_running_controllers(quorum: Quorum) -> None:
    paths = ",".join(str(node.data) for node in quorum.nodes.values())
    stream = QuorateStreamReader(SourceOptions.of({"paths": paths}))
    position = stream.initialOffset()["offset"]
    begun = first_segment(quorum.nodes[1])
    seen = 0
    deadline = time.monotonic() + DEADLINE_S
    with Load(quorum.addresses):
        while seen < READS * 20 or first_segment(quorum.nodes[1]) == begun:
            assert time.monotonic() < deadline, (position, seen)
            try:
                end = stream.latestOffset({"offset": position})["offset"]
                rows = [
                    (row["offset"], row["committed"])
                    for part in stream.partitions({"offset": position}, {"offset": end})
                    for batch in stream.read(part)
                    for row in batch.to_pylist()
                ]
            except (FileGoneError, CompactedError):
                # As a query that starts anew does.
                position = stream.initialOffset()["offset"]
                continue
            assert rows == [(offset, True) for offset in range(position, end)]
            seen += len(rows)
            position = end
