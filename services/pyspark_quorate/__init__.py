"""Registers the data source `quorate` in every Spark session of this installation.

Spark 4 imports the packages whose names begin with `pyspark_`, and registers their `DefaultSource`.
"""

from contextlib import suppress

# Without the extra `spark` there is no data source. An error would fail those of other packages.
with suppress(ImportError):
    from quorate.spark.source.data_source import QuorateSource as DefaultSource  # noqa: F401
