"""Write one table of a log: `python -m tests.spark_cluster.one_table TABLE WRITER LOG OUT MASTER`.

Once for each line of stdin, in one session; it prints the number of rows, and `done` on stderr.
WRITER: `workers` (Parquet, written where it is decoded), `parquet` (by Spark), delta or iceberg.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame, SparkSession
from quorate.spark.decoding.columns import BATCHES, LEDGER
from quorate.spark.formats import TableFormat, with_connector
from quorate.spark.history import history
from quorate.spark.jobs import Source
from quorate.spark.lake import DeltaSink, IcebergSink
from quorate.spark.session import build_session
from quorate.spark.sinks import ParquetSink, Sink
from quorate.spark.state import as_of
from quorate.spark.tables import write_layers

WORKERS = "workers"
DONE = "done"
LAYERS = (LEDGER, BATCHES)
DERIVED = {"state": as_of, "history": history}


def writing(
    spark: SparkSession, name: str, writer: str, source: Source, out: str
) -> Callable[[], int]:
    """What writes the table and returns the number of its rows."""
    if writer == WORKERS:
        return lambda: write_layers(spark, source.given(name), out, {name: False})[name]
    sink: Sink
    if writer == TableFormat.DELTA:
        sink = DeltaSink(spark, out, source.cluster_id())
    elif writer == TableFormat.ICEBERG:
        sink = IcebergSink(spark, out, source.cluster_id(), catalog="quorate", namespace="metadata")
    else:
        sink = ParquetSink(spark, out)

    def write() -> int:
        rows: DataFrame = source.read(spark, name if name in LAYERS else LEDGER)
        if name in DERIVED:
            rows = DERIVED[name](rows)
        return sink.replace(name, rows)

    return write


def main(name: str, writer: str, log: str, out: str, master: str) -> None:
    settings: dict[str, str] = {}
    if writer in {TableFormat.DELTA, TableFormat.ICEBERG}:
        settings = with_connector(TableFormat(writer), settings, pyspark.__version__)
    spark = build_session(master, settings=settings)
    write = writing(spark, name, writer, Source((Path(log),)), out)
    for _ in sys.stdin:
        print(write(), flush=True)
        print(DONE, file=sys.stderr, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
