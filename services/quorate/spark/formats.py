"""The formats of tables, and the connectors that Spark needs for them.

Parquet needs none. Delta Lake and Apache Iceberg publish connectors on Maven Central, each built
for one minor version of Spark, with whose other versions it fails. Spark downloads the connector
that a setting names.

Sources: https://docs.delta.io/releases/, https://iceberg.apache.org/multi-engine-support/.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from quorate.spark.errors import PipelineError

PACKAGES = "spark.jars.packages"
EXCLUDES = "spark.jars.excludes"


class TableFormat(StrEnum):
    """The formats of tables."""

    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"


@dataclass(frozen=True, slots=True)
class Connector:
    """A connector. package: with the minor version of Spark left open.

    versions: the minor versions of Spark with an artifact, in ascending order. main_class: one of
    its classes. settings: those of Spark that it needs from the start of the session.
    """

    name: str
    package: str
    versions: tuple[str, ...]
    main_class: str
    settings: Mapping[str, str] = field(default_factory=dict)

    def artifact(self, spark_version: str) -> str:
        """The Maven package for a version of Spark. Raises PipelineError if there is none."""
        minor = ".".join(spark_version.split(".")[:2])
        if minor not in self.versions:
            raise PipelineError(
                f"{self.name} has no connector for Spark {minor}, only for "
                f"{', '.join(self.versions)}: pip install 'pyspark=={self.versions[-1]}.*', or "
                "name a newer connector with --packages"
            )
        return self.package.format(minor)

    def is_in(self, packages: str) -> bool:
        """Whether it is among Maven packages, in whatever version."""
        project = self.package.partition("{}")[0]
        return any(text.strip().startswith(project) for text in packages.split(","))


CONNECTORS = {
    TableFormat.DELTA: Connector(
        "Delta Lake 4.4",
        "io.delta:delta-spark_{}_2.13:4.4.0",
        ("4.0", "4.1", "4.2"),
        "io.delta.sql.DeltaSparkSessionExtension",
        {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.databricks.delta.snapshotPartitions": "2",
            # Else each task sorts its rows by the columns of the partitions before it writes them.
            "spark.sql.maxConcurrentOutputFileWriters": "8",
            # Spark has these, and they are most of the download.
            EXCLUDES: "org.apache.hadoop:hadoop-client-api,org.apache.hadoop:hadoop-client-runtime",
        },
    ),
    TableFormat.ICEBERG: Connector(
        "Iceberg 1.11",
        "org.apache.iceberg:iceberg-spark-runtime-{}_2.13:1.11.0",
        ("4.0", "4.1"),
        "org.apache.iceberg.spark.SparkCatalog",
    ),
}


def with_connector(
    table_format: TableFormat, settings: Mapping[str, str], spark_version: str
) -> dict[str, str]:
    """Spark's settings for a format. Given settings take precedence, packages are combined.

    Raises PipelineError if no connector fits Spark, and the given packages contain none.
    """
    connector = CONNECTORS.get(table_format)
    if connector is None:
        return dict(settings)
    packages = settings.get(PACKAGES, "")
    if not connector.is_in(packages):
        packages = ",".join(filter(None, [packages, connector.artifact(spark_version)]))
    return {**connector.settings, **settings, PACKAGES: packages}
