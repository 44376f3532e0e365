"""The layers over the directories that Kafka 4.3 wrote, with Kafka's own words as the oracle."""

from __future__ import annotations

import json
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812
from quorate.metadata.entities import SCRAM
from quorate.spark.history import history
from quorate.spark.jobs import Source, follow, ledger_here, ledger_of
from quorate.spark.layers import batches, ledger, typed
from quorate.spark.plots import draw
from quorate.spark.sinks import ParquetSink
from quorate.spark.state import as_of, table

from tests.spark.conftest import CONTROL_TYPES, as_kafka_prints, kafkas_dump

pytestmark = pytest.mark.timeout(600)


def read(spark: Any, path: Path, **options: Any) -> Any:
    return spark.read.format("quorate").options(**options).load(str(path))


@pytest.fixture(scope="module")
def broker_ledger(spark: Any, golden: Path) -> Any:
    """The whole log from offset 0 with three checkpoints on the way."""
    found = read(spark, golden / "compacted/broker-101", snapshots="all").persist()
    yield found
    found.unpersist()


@pytest.mark.parametrize("state", ["full-history", "compacted"])
def test_the_ledger_is_kafkas_dump(spark: Any, golden: Path, state: str) -> None:
    """Offset, epoch, timestamp, type and fields of every record of every segment and checkpoint."""
    rows = read(spark, golden / state, snapshots="all").collect()
    by_file: dict[tuple[str, int | None], list[Any]] = {}
    for row in rows:
        by_file.setdefault((row.replica.split("-")[0], row.snapshot), []).append(row)
    compared = 0
    for node in sorted((golden / state / "dump").iterdir()):
        node_id = node.name.split("-")[-1]
        segments: list[Any] = []
        for dump in sorted(node.glob("*.txt")):
            if dump.name.startswith("bootstrap"):
                continue
            if dump.name.endswith(".log.txt"):
                segments += kafkas_dump(dump)
                continue
            end = int(dump.name.split("-")[0])
            compared += equal(by_file[node_id, end], kafkas_dump(dump))
        compared += equal(by_file[node_id, None], segments)
    assert compared == len(rows) > 800


def equal(rows: list[Any], dumped: list[Any]) -> int:
    ordered = sorted(rows, key=lambda row: row.offset)
    assert len(ordered) == len(dumped)
    for row, kafka in zip(ordered, dumped, strict=True):
        assert (row.offset, row.epoch, row.error) == (kafka.offset, kafka.epoch, None)
        assert round(row.timestamp.timestamp() * 1000) == kafka.timestamp
        if row.is_control:
            label, content = kafka.content.split(" ", 1)
            assert (row.type, row.data) == (CONTROL_TYPES[label], content)
        else:
            assert as_kafka_prints(row) == kafka.content
    return len(ordered)


def test_layers_are_functions_of_the_raw_bytes(spark: Any, golden: Path) -> None:
    path = golden / "full-history/controller-1"
    raw = read(spark, path, layer="raw")
    for function, layer in ((batches, "batches"), (ledger, "ledger")):
        direct = read(spark, path, layer=layer).collect()
        assert function(raw).collect() == direct
        assert len(direct) > 100


def test_typed_columns_by_both_ways(spark: Any, golden: Path) -> None:
    path = golden / "full-history/controller-1"
    whole = read(spark, path)
    for name in ("PARTITION_RECORD", "PARTITION_CHANGE_RECORD", "REGISTER_BROKER_RECORD"):
        direct = read(spark, path, layer=name)
        through_json = typed(whole, name)
        assert through_json.columns == direct.columns
        assert sorted(map(str, through_json.collect())) == sorted(map(str, direct.collect()))


def things(state: Any) -> dict[tuple[str, str], Any]:
    return {(r.kind, r.key): json.loads(r.fields) for r in state.collect() if r.kind != SCRAM}


@pytest.mark.parametrize("end", [352, 500])
def test_replaying_the_log_leaves_kafkas_snapshot(broker_ledger: Any, end: int) -> None:
    """SCRAM aside: Kafka's snapshots lost alice when carol was deleted."""
    log = broker_ledger.where(F.col("snapshot").isNull())
    stored = broker_ledger.where(F.col("snapshot") == end)
    expected = things(as_of(stored, offset=end))
    assert things(as_of(log, offset=end)) == expected
    assert len(expected) > 80


def test_the_state_at_a_time_is_what_kafka_listed_then(broker_ledger: Any, golden: Path) -> None:
    """kafka-topics --describe, as the events file kept it."""
    lines = (golden / "events.txt").read_text().splitlines()
    described = [i for i, line in enumerate(lines) if line.endswith("--describe")]
    for begin in described:
        moment = datetime.fromisoformat(lines[begin].split("  ")[0]).astimezone(UTC)
        kafka = {}
        for line in lines[begin + 1 :]:
            if not line.startswith("    |"):
                break
            parts = dict(re.findall(r"(\w+): (\S*)", line.replace("\t", " ")))
            if "Partition" in parts:
                leader = -1 if parts["Leader"] == "none" else int(parts["Leader"])
                lists = (parts["Replicas"], parts["Isr"], parts["Elr"])
                kafka[parts["Topic"], int(parts["Partition"])] = (leader, *map(numbers, lists))
        rows = table(as_of(broker_ledger, time=moment), "partitions").collect()
        ours = {
            (r.topic, r.partitionId): (r.leader, r.replicas, r.isr, r.eligibleLeaderReplicas)
            for r in rows
        }
        assert ours == kafka
        assert len(kafka) == 13


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part.isdecimal()]


def test_this_process_reads_what_workers_read(spark: Any, golden: Path) -> None:
    source = Source((golden / "compacted/broker-101",))
    here, there = ledger_here(spark, source), ledger_of(spark, source)
    assert here.schema == there.schema
    assert here.collect() == there.collect()


@pytest.mark.slow
def test_the_history_tells_what_the_events_file_tells(
    spark: Any, golden: Path, tmp_path: Path
) -> None:
    rows = history(read(spark, golden / "full-history/controller-1", snapshots="all")).collect()
    leaders = [(r.value.split(" ")[0], r.epoch) for r in rows if r.kind == "leader"]
    assert [leader for leader, _ in leaders] == ["1", "2", "3", "2"]
    assert leaders == [("1", 1), ("2", 3), ("3", 4), ("2", 5)]
    sets = [(r.change, r.value.count(",") + 1) for r in rows if r.kind == "voters"]
    assert [size for _, size in sets] == [1, 2, 3, 2, 3, 2, 3]
    old, new = "2-xtkV4Apmyk8T6_K1BRD_yQ", "2-rCEzNRdZMqf-jpZJ255y8w"
    third = "3-yol04JnHF9DBqmN178EntA"
    assert [change for change, _ in sets][1:] == [
        f"added {old}",
        f"added {third}",
        f"removed {old}",
        f"replaced disk: added {new}",
        f"removed {third}",
        f"added {third}",
    ]
    fenced = [r for r in rows if r.kind == "broker" and r.subject == "103"]
    # Kafka's log registers it again while it is fenced, at 134.
    changes = ["created", "active", "fenced", "registered", "active"]
    assert [r.change for r in fenced][:5] == changes
    assert [r.start_offset for r in fenced][:5] == [29, 34, 130, 134, 137]
    shrunk = [r for r in rows if r.kind == "isr" and r.change == "shrunk" and r.ended]
    assert {"orders-0", "payments-1"} <= {r.subject for r in shrunk}
    assert all(r.end_offset > r.start_offset for r in rows if r.end_offset is not None)
    png, page = draw([r.asDict() for r in rows], "golden", tmp_path)
    assert png.read_bytes()[:4] == b"\x89PNG"
    assert "replaced disk" in page.read_text()


def test_the_history_of_a_log_whose_beginning_is_gone(spark: Any, golden: Path) -> None:
    """It begins at 206, and the first snapshot ends at 269: what nothing changed is known there."""
    rows = history(read(spark, golden / "compacted/controller-1", snapshots="all")).collect()
    sets = [r for r in rows if r.kind == "voters"]
    assert [(r.value.count(",") + 1, r.start_offset) for r in sets] == [(3, 268), (2, 352)]
    assert [r.change.split("-")[0] for r in sets] == ["created", "removed 3"]
    leaders = [(r.value, r.start_offset) for r in rows if r.kind == "leader"]
    assert leaders == [("1 in epoch 6", 206), ("2 in epoch 7", 342)]
    topics = {r.subject.rsplit("-", 1)[0] for r in rows if r.kind == "isr"}
    assert {"orders", "payments", "audit-log"} <= topics
    assert not any(r.previous == r.value for r in rows)


@pytest.mark.slow
def test_a_stream_writes_each_offset_once(spark: Any, golden: Path, tmp_path: Path) -> None:
    """Ended and begun again from its checkpoint, and from the beginning without one."""
    source = Source((golden / "compacted/broker-101",))
    sink = ParquetSink(spark, str(tmp_path))
    for keeps_checkpoint, limit in ((True, 200), (False, 173)):
        if not keeps_checkpoint:
            shutil.rmtree(tmp_path / "_checkpoints")
        follow(source, sink, lambda _: None, available_now=True, records_per_trigger=limit)
    written = sink.read("ledger")
    found = sorted(row.offset for row in written.select("offset").collect())
    assert found == list(range(read(spark, golden / "compacted/broker-101").count()))
    assert len(found) > 500
