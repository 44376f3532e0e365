"""Tables that are brought up to date: the ledger goes on, and outlives what the log keeps."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from quorate.records.batch import iter_batches
from quorate.spark.errors import PipelineError, explain_failure, innermost_cause
from quorate.spark.jobs import Source, run, update
from quorate.spark.sinks import ParquetSink

PARTITION = "__cluster_metadata-0"
SEGMENT = f"{0:020}.log"


def without_column(spark: Any, table: Path, column: str) -> None:
    """Rewrite the ranges of a table as an earlier release did, which lacked the column."""
    for path in table.glob("range=*"):
        old = spark.read.parquet(str(path)).drop(column)
        old.write.parquet(str(table.parent / "old" / path.name))
        shutil.rmtree(path)
        (table.parent / "old" / path.name).rename(path)


def quiet(_: str) -> None:
    """Nobody is told."""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_second_update_begins_where_the_first_ended(
    spark: Any, golden: Path, tmp_path: Path
) -> None:
    whole = golden / "full-history/controller-1" / PARTITION / SEGMENT
    data = whole.read_bytes()
    headers = [header for header, _ in iter_batches(data)]
    some = headers[: len(headers) // 2]
    node = tmp_path / "node"
    (node / PARTITION).mkdir(parents=True)
    shutil.copy(golden / "full-history/controller-1/meta.properties", node)
    segment = node / PARTITION / SEGMENT
    segment.write_bytes(data[: sum(header.size_bytes for header in some)])
    source, sink = Source((node,)), ParquetSink(spark, str(tmp_path / "tables"))

    first = update(source, sink, quiet)
    assert first["ledger"] == some[-1].end_offset
    without_column(spark, tmp_path / "tables/ledger", "committed")
    segment.write_bytes(data)
    second = update(source, sink, quiet)
    assert second["ledger"] == headers[-1].end_offset
    assert second["batches"] == len(headers)
    assert sink.ranges("ledger") == [
        (0, some[-1].end_offset),
        (some[-1].end_offset, headers[-1].end_offset),
    ]

    other = ParquetSink(spark, str(tmp_path / "anew"))
    assert second == run(source, other, quiet)
    with pytest.raises(PipelineError) as raised:
        update(source, other, quiet)
    assert "cannot be continued" in raised.value.reason


def test_why_spark_did_not_start_is_what_java_names_last() -> None:
    told = (
        "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
        ": org.apache.hadoop.security.KerberosAuthException: failure to login\n"
        "\tat org.apache.hadoop.security.UserGroupInformation.doSubjectLogin\n"
        "Caused by: javax.security.auth.login.LoginException: invalid null input: name\n"
        "\t... 48 more\n"
    )
    assert innermost_cause(Exception(told)).endswith("LoginException: invalid null input: name")
    without_cause = told.partition("Caused by")[0]
    assert innermost_cause(Exception(without_cause)).endswith("failure to login")
    assert innermost_cause(ValueError("no port\nstack")) == "no port"
    assert innermost_cause(ValueError()) == "ValueError"


def test_failures_of_spark_are_no_bugs_but_those_of_workers_are(spark: Any) -> None:
    jvm = spark._jvm
    with pytest.raises(Exception, match="FileNotFoundException") as raised:
        jvm.java.io.FileReader("/none")
    said = "Spark failed: java.io.FileNotFoundException: /none (No such file or directory)"
    assert explain_failure(raised.value) == said

    def fail(batches: Iterator[Any]) -> Iterator[Any]:
        raise KeyError(next(batches))

    schema = "id LONG"
    with pytest.raises(Exception, match="KeyError") as raised:
        spark.range(1).mapInArrow(fail, schema).collect()
    assert explain_failure(raised.value) is None
    assert explain_failure(KeyError("PythonException")) is None
