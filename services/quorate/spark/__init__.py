"""The metadata log as tables: a Spark data source, six layers above it, and jobs.

    from quorate.spark.session import build_session
    spark = build_session()
    ledger = spark.read.format("quorate").load("data/")

`files` finds logs in directories; `live` reads a quorum; `framing`, `envelope`, `fields` and
`text` turn bytes into Arrow columns; `source` is what Spark sees. The layers are `batches`,
`ledger`, `state`, `history`, `audit` and `zookeeper`: each a function from DataFrame to DataFrame.
`jobs` runs them into tables (`sinks`, and `tables` for rows that Python writes itself); `quorate
pipeline` runs the jobs.

Needs the extra `spark` (PySpark 4) and Java 17 or later.
"""
