"""The metadata log as tables: a Spark data source, six layers above it, and jobs.

    from quorate.spark.session import build_session
    spark = build_session()
    ledger = spark.read.format("quorate").load("data/")

`files` finds logs in directories; `live` reads a quorum; `framing`, `envelope`, `fields`,
`rendering` and `columns` turn bytes into Arrow columns; `source` implements Spark's data source.
The layers are `batches`, `ledger`, `state`, `history`, `audit` and `zookeeper`. Their functions
return DataFrames. `jobs` writes these to tables: `sinks`, `lake` (Delta and Iceberg), and `tables`
for rows that Python writes itself. `quorate pipeline` runs the jobs.

Requires the extra `spark` (PySpark 4) and Java 17 or later.
"""
