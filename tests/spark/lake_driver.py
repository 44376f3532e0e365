"""The driver of a run into Delta or Iceberg: `python -m tests.spark.lake_driver die|check …`.

    die FORMAT LOG ROOT     run, and be killed with SIGKILL once two tables are written
    check LOG ROOT          run again into both formats, and print what readers see, as JSON
    many ROOT LOG…          write many clusters into both formats, twice, and print the same

It is a process of its own, because a process has only one JVM, and only these need connectors.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from quorate.spark.errors import PipelineError
from quorate.spark.formats import TableFormat, with_connector
from quorate.spark.jobs import ClusterLogs, Source, follow, run, run_clusters
from quorate.spark.lake import DeltaSink, IcebergSink, LakeSink
from quorate.spark.session import build_session

from tests.tools.documents import block

MASTER = "local[2]"
FORMATS = (TableFormat.DELTA, TableFormat.ICEBERG)
NO_CONNECTOR = 77
KILLED_BEFORE = "state"
OTHER = "another-cluster"


def session(*formats: TableFormat) -> Any:
    """A session with the connectors of some formats."""
    settings = {"spark.sql.shuffle.partitions": "1"}
    try:
        for each in formats:
            settings = with_connector(each, settings, pyspark.__version__)
        return build_session(MASTER, is_short=True, settings=settings)
    except PipelineError as error:
        if "has no connector" not in error.reason and "dependenc" not in error.reason:
            raise
        print(error.reason)
        sys.exit(NO_CONNECTOR)


def sink_of(
    spark: Any, table_format: TableFormat, root: Path, cluster: str | Sequence[str]
) -> LakeSink:
    place = str(root / table_format)
    if table_format is TableFormat.DELTA:
        return DeltaSink(spark, place, cluster)
    return IcebergSink(spark, place, cluster, catalog="lake", namespace="quorate.metadata")


def die(table_format: TableFormat, source: Source, root: Path) -> None:
    def report(table: str) -> None:
        if table == KILLED_BEFORE:
            os.kill(os.getpid(), signal.SIGKILL)

    spark = session(table_format)
    run(source, sink_of(spark, table_format, root, source.cluster_id()), report)


def offsets(rows: DataFrame) -> list[int]:
    of_log = rows.where(F.col("snapshot").isNull()) if "snapshot" in rows.columns else rows
    return sorted(row["offset"] for row in of_log.select("offset").collect())


def error_of(call: Callable[[], Any]) -> str:
    try:
        call()
    except PipelineError as error:
        return error.reason
    return ""


def check(spark: Any, sink: LakeSink, source: Source) -> dict[str, Any]:
    """Read what the killed run left, repeat it, then replace a table without ending the run."""
    batches = source.read(spark, "ledger")
    found: dict[str, Any] = {
        "in the log": offsets(batches),
        "left by the killed run": offsets(sink.read("ledger")),
        "no run": error_of(sink.newest_run),
        "counts": run(source, sink, lambda _: None),
    }
    first = sink.newest_run()
    found["versions"] = sorted(first.versions)
    stale = first.table("ledger")
    found["retried"] = offsets(stale)
    if sink.format is TableFormat.DELTA:
        page = block("docs/pipeline.md", "newest_run()")
        assert "yFPgY5iXQYqr5sMxfdxu0Q" in page
        page = page.replace("yFPgY5iXQYqr5sMxfdxu0Q", sink.cluster)
        exec(page.replace('"delta-tables"', repr(str(sink.root))), {})
    # Two attempts at a micro-batch of a stream.
    for _ in range(2):
        sink.write("ledger", batches.where("offset >= 10 AND offset < 20"))
    found["merged"] = offsets(sink.read("ledger"))
    # A row of another cluster in the same table, and half of a run.
    other = sink_of(spark, sink.format, Path(sink.root).parent, OTHER)
    other.replace("ledger", batches.where("offset = 0"))
    other.finish(["ledger"])
    sink.replace("ledger", batches.where("offset < 5").withColumn("colour", F.lit("red")))
    found |= {
        "head": offsets(sink.read("ledger")),
        "of another cluster": offsets(other.newest_run().table("ledger")),
        "run": sink.newest_run().number,
        "of the newest run": offsets(sink.newest_run().table("ledger")),
    }
    sink.finish(["ledger"])
    second = sink.newest_run()
    found |= {
        "next run": second.number,
        "of the next run": offsets(second.table("ledger")),
        "new columns": second.table("ledger").columns[-1],
        "of the stale reader": offsets(stale),
        "no table": error_of(lambda: second.table("batches")),
    }
    if sink.format is TableFormat.DELTA:
        properties = spark.sql(f"SHOW TBLPROPERTIES {sink.name('ledger')}").collect()
        found["statistics"] = dict(properties)["delta.dataSkippingStatsColumns"].split(",")
        # A table that release 0.1.0 began.
        old = sink_of(spark, sink.format, Path(sink.root) / "old", sink.cluster)
        batches.where("offset < 30").write.format("delta").save(old.path("ledger"))
        old.write("ledger", batches.where("offset >= 20 AND offset < 40"))
        found["continued"] = offsets(old.read("ledger"))
    # As by `run --follow`, in micro-batches, from the beginning.
    follow(source, sink, lambda _: None, available_now=True, records_per_trigger=100)
    found["followed"] = offsets(sink.read("ledger"))
    return found


def many(spark: Any, table_format: TableFormat, root: Path, source: Source) -> dict[str, Any]:
    """Write many clusters, then the first of them alone, then all of them again."""

    def sink(ids: str | Sequence[str]) -> LakeSink:
        return sink_of(spark, table_format, root, ids)

    def quiet(_: str) -> None:
        """Nobody is told."""

    clusters = ClusterLogs.of(source)
    counts = run_clusters(clusters, sink, quiet)
    first = next(iter(clusters.logs))
    run(clusters.logs[first], sink(first), quiet)
    run_clusters(clusters, sink, quiet)
    found: dict[str, Any] = {"counts": counts, "faults": clusters.faults, "clusters": {}}
    for cluster in clusters.logs:
        newest = sink(cluster).newest_run()
        rows = {name: newest.table(name).count() for name in newest.versions}
        ledger = newest.table("ledger")
        found["clusters"][cluster] = {"run": newest.number, "rows": rows, "ledger": offsets(ledger)}
    found["of several"] = error_of(sink(tuple(clusters.logs)).newest_run)
    return found


def main(command: str, *arguments: str) -> None:
    if command == "many":
        spark = session(*FORMATS)
        source, root = Source(tuple(map(Path, arguments[1:]))), Path(arguments[0])
        print(json.dumps({each: many(spark, each, root, source) for each in FORMATS}))
        return
    if command == "die":
        die(TableFormat(arguments[0]), Source((Path(arguments[1]),)), Path(arguments[2]))
        return
    source, root = Source((Path(arguments[0]),)), Path(arguments[1])
    spark = session(*FORMATS)
    cluster = source.cluster_id()
    found = {each: check(spark, sink_of(spark, each, root, cluster), source) for each in FORMATS}
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
