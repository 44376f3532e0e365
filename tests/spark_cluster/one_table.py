"""Write one table of a log: `python -m tests.spark_cluster.one_table TABLE WRITER LOG OUT MASTER`.

WRITER: `workers` (Parquet, written where it is decoded), `parquet` (by Spark), delta or iceberg.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame
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
LAYERS = (LEDGER, BATCHES)
DERIVED = {"state": as_of, "history": history}


def main(name: str, writer: str, log: str, out: str, master: str) -> None:
    settings: dict[str, str] = {}
    if writer in {TableFormat.DELTA, TableFormat.ICEBERG}:
        settings = with_connector(TableFormat(writer), settings, pyspark.__version__)
    spark = build_session(master, settings=settings)
    source = Source((Path(log),))
    if writer == WORKERS and name in LAYERS:
        count = write_layers(spark, source.given(name), out, {name: False})[name]
    else:
        layer = name if name in LAYERS else LEDGER
        rows: DataFrame = source.read(spark, layer)
        if name in DERIVED:
            rows = DERIVED[name](rows)
        sink: Sink
        if writer == TableFormat.DELTA:
            sink = DeltaSink(spark, out, source.cluster_id())
        elif writer == TableFormat.ICEBERG:
            sink = IcebergSink(
                spark, out, source.cluster_id(), catalog="quorate", namespace="metadata"
            )
        else:
            sink = ParquetSink(spark, out)
        count = sink.replace(name, rows)
    print(count)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
