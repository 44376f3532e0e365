"""Tables that workers write: what Spark reads of them, and what stays when a run fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from quorate.spark.errors import PipelineError, explain
from quorate.spark.jobs import Source
from quorate.spark.sinks import Files
from quorate.spark.tables import row_groups, write_layer

from tests.spark.conftest import writable_copy


def given(path: Path, layer: str = "ledger", **options: str) -> dict[str, str]:
    return Source((path,)).given(layer, **options)


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


def test_row_groups_are_of_many_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quorate.spark.tables.GROUP_BYTES", 1_000)
    sizes = [10, 0, 60, 60, 200, 0, 5]
    batches = [pa.record_batch({"n": pa.array(range(size), pa.int64())}) for size in sizes]
    assert [group.num_rows for group in row_groups(batches)] == [130, 200, 5]
    assert list(row_groups([])) == list(row_groups(batches[1:2])) == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("url", ["s3a://bucket/tables", "cats://bucket/tables"])
def test_a_file_system_that_spark_lacks_is_one_line(spark: Any, url: str) -> None:
    with pytest.raises(PipelineError) as raised:
        Files(spark, url)
    assert f"Spark cannot access {url}: " in raised.value.reason
    assert "hadoop-aws" in raised.value.reason
    assert "\n" not in raised.value.reason
