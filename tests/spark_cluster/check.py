"""What readers see of each run: `python -m tests.spark_cluster.check FORMAT=URL …`, as JSON lines.

A process of its own, because it has a JVM with the connectors.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pyspark
from pyspark.sql import functions as F  # noqa: N812
from quorate.spark.formats import TableFormat, with_connector
from quorate.spark.lake import DeltaSink, IcebergSink
from quorate.spark.session import build_session
from quorate.spark.sinks import ParquetSink
from quorate.spark.state import COLUMNS

from tests.spark.make_log import CLUSTER

TABLES = ("batches", "ledger", "state", "history", *(f"state_{kind}" for kind in COLUMNS))


def main(settings: dict[str, str], outputs: list[str]) -> None:
    for table_format in (TableFormat.DELTA, TableFormat.ICEBERG):
        settings = with_connector(table_format, settings, pyspark.__version__)
    spark = build_session("local[2]", settings=settings)
    for output in outputs:
        name, _, root = output.partition("=")
        print(json.dumps({"root": root, **seen(spark, TableFormat(name), root)}), flush=True)
    spark.stop()


def seen(spark: Any, table_format: TableFormat, root: str) -> dict[str, Any]:
    """The offsets of the ledger, in short, and each table's rows and version."""
    found: dict[str, Any] = {}
    match table_format:
        case TableFormat.PARQUET:
            read = ParquetSink(spark, root).read
        case TableFormat.DELTA:
            run = DeltaSink(spark, root, CLUSTER).newest_run()
            read, found = run.table, {"run": run.number, "versions": run.versions}
        case TableFormat.ICEBERG:
            sink = IcebergSink(spark, root, CLUSTER, catalog="quorate", namespace="metadata")
            run = sink.newest_run()
            read, found = run.table, {"run": run.number, "versions": run.versions}
    offsets = read("ledger").where(F.col("snapshot").isNull()).select("offset")
    first, last, rows, distinct = offsets.agg(
        F.min("offset"), F.max("offset"), F.count("*"), F.count_distinct("offset")
    ).first()
    return {
        **found,
        "offsets": {"first": first, "last": last, "rows": rows, "distinct": distinct},
        "rows": {name: read(name).count() for name in TABLES},
    }


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2:])
