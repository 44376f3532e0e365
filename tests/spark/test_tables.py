"""Tables that workers write: what Spark reads of them, and what stays when a run fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from quorate.spark.decoding.columns import layer_schema
from quorate.spark.errors import PipelineError, explain
from quorate.spark.jobs import Source
from quorate.spark.options import SourceOptions
from quorate.spark.sinks import Files
from quorate.spark.source.data_source import QuorateReader, is_of_snapshot, read_part
from quorate.spark.tables import _Output, _Table, write_layers

from tests.spark.conftest import writable_copy


def given(path: Path, layer: str = "ledger", **options: str) -> dict[str, str]:
    return Source((path,)).given(layer, **options)


def write_layer(spark: Any, options: dict[str, str], root: str, layer: str) -> int:
    return write_layers(spark, options, root, {layer: True})[layer]


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.timeout(600)
@pytest.mark.parametrize("layer", ["ledger", "batches", "PARTITION_RECORD"])
def test_a_table_is_what_the_data_source_reads(
    spark: Any, golden: Path, tmp_path: Path, layer: str
) -> None:
    options = given(golden / "full-history/controller-1", layer, pieceBytes="4096", snapshots="all")
    count = write_layer(spark, options, str(tmp_path), layer)
    found = spark.read.parquet(str(tmp_path / layer))
    wanted = spark.read.format("quorate").options(**options).load()
    assert found.schema == wanted.schema
    assert found.exceptAll(wanted).collect() == wanted.exceptAll(found).collect() == []
    assert found.count() == wanted.count() == count > 0
    assert names(tmp_path) == [layer]


@pytest.mark.timeout(600)
def test_no_rows_are_a_table_too(spark: Any, golden: Path, tmp_path: Path) -> None:
    options = given(golden / "full-history/controller-1", startOffset="1000000")
    assert write_layer(spark, options, str(tmp_path), "ledger") == 0
    found = spark.read.parquet(str(tmp_path / "ledger"))
    assert (found.columns[2], found.count()) == ("offset", 0)


@pytest.mark.timeout(600)
def test_a_run_that_fails_leaves_the_table(spark: Any, golden: Path, tmp_path: Path) -> None:
    source = writable_copy(golden / "full-history/controller-1", tmp_path / "controller-1")
    out = tmp_path / "tables"
    count = write_layer(spark, given(source), str(out), "ledger")
    before = names(out / "ledger")
    log = source / "__cluster_metadata-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[300] ^= 1
    log.write_bytes(data)
    with pytest.raises(Exception) as raised:  # noqa: PT011 (Spark wraps what it is told)
        write_layer(spark, given(source), str(out), "ledger")
    assert "byte 174, offset 3: the checksum is wrong" in (explain(raised.value) or "")
    assert names(out / "ledger") == before
    # What the failed run left is neither read nor in the way of the next.
    assert spark.read.parquet(str(out / "ledger")).count() == count
    assert write_layer(spark, given(source, verifyChecksums="false"), str(out), "ledger") == count
    assert names(out) == ["ledger"]
    assert not set(names(out / "ledger")) & set(before) - {"_SUCCESS"}


@pytest.mark.timeout(600)
def test_a_run_that_was_killed_while_it_replaced(spark: Any, golden: Path, tmp_path: Path) -> None:
    options = given(golden / "full-history/controller-1")
    count = write_layer(spark, options, str(tmp_path), "ledger")
    before = names(tmp_path / "ledger")
    (tmp_path / "ledger").rename(tmp_path / "_replaced-ledger")
    (tmp_path / "_writing-ledger").mkdir()
    with pytest.raises(PipelineError, match="unknown option colour"):
        write_layer(spark, {**options, "colour": "red"}, str(tmp_path), "ledger")
    assert write_layer(spark, options, str(tmp_path), "ledger") == count
    assert names(tmp_path) == ["ledger"]
    assert names(tmp_path / "ledger") != before


def test_row_groups_are_of_many_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quorate.spark.tables.GROUP_BYTES", 20_000)
    schema = layer_schema("batches")
    sizes = [10, 0, 60, 60, 200, 0, 5]
    with _Table(tmp_path, "batches", "snappy") as table:
        for size in sizes:
            table.add(pa.RecordBatch.from_pylist([{"position": n} for n in range(size)], schema))
    written = pq.ParquetFile(tmp_path / table.file.name)
    groups = [written.metadata.row_group(n).num_rows for n in range(written.num_row_groups)]
    assert sum(groups) == table.file.rows == sum(sizes)
    assert 2 <= len(groups) < len(sizes)
    with _Table(tmp_path, "batches", "snappy") as table:
        pass
    assert table.file.rows == pq.ParquetFile(tmp_path / table.file.name).metadata.num_rows == 0


def test_layers_are_written_in_one_pass(golden: Path, tmp_path: Path) -> None:
    """As by single passes, in a task without Spark: snapshots are rows of the ledger only."""
    options = SourceOptions.of(
        given(golden / "compacted/controller-1", pieceBytes="4096", snapshots="all")
    )
    parts = QuorateReader(options).partitions()
    layers = {"batches": False, "ledger": True}
    directories = {layer: tmp_path / layer for layer in layers}
    for directory in directories.values():
        directory.mkdir()
    files = _Output(options, directories, layers, "snappy").write(parts, list(layers))
    for file in files:
        found = pq.read_table(tmp_path / file.layer / file.name).to_pylist()
        of_layer = replace(options, layer=file.layer)
        wanted = [
            row
            for part in parts
            if layers[file.layer] or not is_of_snapshot(part)
            for batch in read_part(of_layer, part)
            for row in batch.to_pylist()
        ]
        assert found == wanted
        assert len(found) == file.rows > 70
    assert {row["snapshot"] is None for row in found} == {True, False}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("url", ["s3a://bucket/tables", "cats://bucket/tables"])
def test_a_file_system_that_spark_lacks_is_one_line(spark: Any, url: str) -> None:
    with pytest.raises(PipelineError) as raised:
        Files(spark, url)
    assert f"Spark cannot access {url}: " in raised.value.reason
    assert "hadoop-aws" in raised.value.reason
    assert "\n" not in raised.value.reason
