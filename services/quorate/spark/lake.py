"""Tables of many clusters in Delta Lake or Apache Iceberg, and readers that see whole runs.

Each table has the column `cluster`, the cluster's id, and is partitioned by it. Tables of rows with
a time also have the column `date` (UTC), and are partitioned by that, too. A run replaces the rows
of its cluster, each table in one transaction. The table `runs` comes last: it names the version
(Delta) or the snapshot id (Iceberg) of each table that the run wrote. `newest_run` reads these
versions. So a reader sees all tables of one run, even while another one writes or after one that
died, and a retry leaves no row twice.

A micro-batch of a stream is merged by offset in one transaction, so it may be repeated. A cluster
must have only one writer at a time. Clusters may be written to the same tables at the same time.

One run can write the rows of many clusters: each table in one transaction, and then a row of `runs`
for each cluster.

Both formats have the same SQL. They differ in how they name tables and versions.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from quorate.spark.decoding.columns import BATCHES, CLUSTER, LEDGER
from quorate.spark.errors import OptionError, PipelineError
from quorate.spark.formats import CONNECTORS, TableFormat
from quorate.spark.sinks import Range, Sink, has_jvm

RUNS = "runs"
DATE = "date"
HISTORY = "history"
TIMES = {BATCHES: "base_timestamp", LEDGER: "timestamp", HISTORY: "started"}
"""The column with the time of a row, by table."""
RUNS_SCHEMA = StructType(
    [
        StructField(CLUSTER, StringType()),
        StructField("run", LongType()),
        StructField("finished", TimestampType()),
        StructField("versions", MapType(StringType(), LongType())),
    ]
)
_CLUSTER_ID = re.compile(r"[\w.-]+", re.ASCII)
_BATCH = "quorate_batch"
_JSON = ("data", "fields")
"""The columns with JSON."""
_COMPARED = (IntegerType, LongType, StringType, TimestampType)
"""The types of columns whose minimum and maximum let readers skip files."""


def is_cluster_id(text: str) -> bool:
    """Whether a text can be the id of a cluster: it goes into SQL and paths."""
    return _CLUSTER_ID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Run:
    """A complete run of a cluster. versions: those of the tables that it wrote, by name."""

    sink: LakeSink
    number: int
    finished: datetime
    versions: Mapping[str, int]

    def table(self, name: str) -> DataFrame:
        """Read a table of the cluster as the run left it. Raises PipelineError for unknown ones."""
        if name not in self.versions:
            raise PipelineError(
                f"run {self.number} wrote no table {name!r}, only {', '.join(self.versions)}"
            )
        return self.sink.read_version(name, self.versions[name])


class LakeSink(Sink):
    """The tables of one cluster, or of many, among those of others. cluster: the id, or ids.

    The rows of many clusters have a column `cluster`, which others lack.
    """

    format: TableFormat
    log_options: ClassVar[Mapping[str, str]] = {}
    """Write options for rows in the order of a log, which is nearly that of the partitions."""
    statistics_property = ""
    """The table property that lists the columns for which the writer keeps statistics."""

    def __init__(self, spark: SparkSession, root: str, cluster: str | Sequence[str]) -> None:
        self.clusters = (cluster,) if isinstance(cluster, str) else tuple(cluster)
        for each in self.clusters:
            if not is_cluster_id(each):
                raise OptionError(f"{each!r} is not a cluster id")
        _require_connector(spark, self.format)
        super().__init__(spark, root if "://" in root else str(Path(root).absolute()))
        self._has_many = not isinstance(cluster, str)
        self._schemas: dict[str, StructType] = {}

    @property
    def cluster(self) -> str:
        """The id of the only cluster. Raises OptionError if there are several."""
        if len(self.clusters) > 1:
            raise OptionError(f"expected one cluster, not {len(self.clusters)}")
        return self.clusters[0]

    @abstractmethod
    def name(self, table: str) -> str:
        """A table's name in SQL."""

    @abstractmethod
    def version(self, table: str) -> int:
        """The current version of a table."""

    def prepare(self) -> None:
        """Create what contains the tables, if the format needs it."""

    def refresh(self, table: str) -> None:
        """Let this session see what others have written, if it caches tables."""

    def checkpoint(self, name: str) -> str:
        return self.path(f"_checkpoints/{self.cluster}/{name}")

    def replace(self, name: str, rows: DataFrame) -> int:
        rows = self._fitted(name, rows)
        options = self.log_options if name in (BATCHES, LEDGER) else {}
        rows.writeTo(self.name(name)).options(**options).overwrite(self._is_mine())
        return self.read(name).count()

    def write_range(self, name: str, rows: DataFrame, offsets: Range) -> None:
        rows = self._fitted(name, rows)
        rows.createOrReplaceTempView(_BATCH)
        # The constants let the format skip the files of other clusters and offsets.
        rows.sparkSession.sql(
            f"MERGE INTO {self.name(name)} AS held USING {_BATCH} AS batch "
            f"ON held.`{CLUSTER}` = '{self.cluster}' AND held.snapshot IS NULL "
            f"AND held.`offset` BETWEEN {offsets[0]} AND {offsets[1] - 1} "
            "AND held.`offset` = batch.`offset` "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    def read(self, name: str) -> DataFrame:
        """Read the newest rows of the cluster, which may be those of an incomplete run."""
        return self._mine(name, "")

    def read_version(self, name: str, version: int) -> DataFrame:
        """Read the rows of the cluster in one version of a table."""
        return self._mine(name, f" VERSION AS OF {version}")

    def _mine(self, name: str, suffix: str) -> DataFrame:
        found = self._table(name, suffix).where(self._is_mine()).drop(DATE)
        return found if self._has_many else found.drop(CLUSTER)

    def _table(self, name: str, suffix: str) -> DataFrame:
        try:
            self.refresh(name)
            return self.spark.sql(f"SELECT * FROM {self.name(name)}{suffix}")
        except AnalysisException as error:
            raise PipelineError(
                f"{self.name(name)} does not contain a table, or no longer this version: "
                f"{str(error).splitlines()[0]}"
            ) from error

    def _is_mine(self) -> Column:
        return F.col(CLUSTER).isin(*self.clusters)

    def finish(self, names: Iterable[str]) -> None:
        versions = {name: self.version(name) for name in names}
        self._prepared(RUNS, RUNS_SCHEMA)
        newest = self._table(RUNS, "").where(self._is_mine()).groupBy(CLUSTER).agg(F.max("run"))
        numbers: dict[str, int] = {row[0]: row[1] for row in newest.collect()}
        now = datetime.now(UTC)
        rows = [(each, numbers.get(each, 0) + 1, now, versions) for each in self.clusters]
        self.spark.createDataFrame(rows, RUNS_SCHEMA).writeTo(self.name(RUNS)).append()

    def newest_run(self) -> Run:
        """The newest complete run of the only cluster. Raises PipelineError if there is none."""
        cluster = self.cluster
        newest = self._runs().first()
        if newest is None:
            raise PipelineError(f"{self.name(RUNS)} has no complete run of {cluster}")
        return Run(self, newest["run"], newest["finished"], newest["versions"])

    def _runs(self) -> DataFrame:
        return self._mine(RUNS, "").orderBy(F.col("run").desc())

    def _fitted(self, name: str, rows: DataFrame) -> DataFrame:
        """The rows with exactly the columns of their table, which is prepared first."""
        if not self._has_many:
            rows = rows.withColumn(CLUSTER, F.lit(self.cluster))
        if name in TIMES:
            rows = rows.withColumn(DATE, F.to_date(TIMES[name]))
        schema = self._schemas.get(name)
        if schema is None or not set(rows.columns) <= set(schema.names):
            schema = self._schemas[name] = self._prepared(name, rows.schema)
        missing = [each for each in schema if each.name not in rows.columns]
        return rows.select(
            "*", *(F.lit(None).cast(each.dataType).alias(each.name) for each in missing)
        )

    def _prepared(self, name: str, schema: StructType) -> StructType:
        """Create a table, or add the columns that it lacks; return its schema."""
        self.prepare()
        table = self.name(name)
        by = ", ".join(_quoted(each) for each in (CLUSTER, DATE) if each in schema.names)
        self.spark.sql(
            f"CREATE TABLE IF NOT EXISTS {table} ({_declared(schema)}) "
            f"USING {self.format.value} PARTITIONED BY ({by}){self._properties(schema)}"
        )
        if CLUSTER not in self.spark.table(table).schema.names:
            self._take_over(name, by)
        present = self.spark.table(table).schema
        added = StructType([each for each in schema if each.name not in present.names])
        if not added.names:
            return present
        self.spark.sql(f"ALTER TABLE {table} ADD COLUMNS ({_declared(added)})")
        return self.spark.table(table).schema

    def _properties(self, schema: StructType) -> str:
        """The TBLPROPERTIES of a new table: no statistics of JSON, which no query can use."""
        if not self.statistics_property or not {*_JSON} & {*schema.names}:
            return ""
        found = [each for each in schema if isinstance(each.dataType, _COMPARED)]
        names = [each.name for each in found if each.name not in (*_JSON, CLUSTER, DATE)]
        return f" TBLPROPERTIES ('{self.statistics_property}' = '{','.join(names)}')"

    def _take_over(self, name: str, by: str) -> None:
        """Add cluster and date to a table that release 0.1.0 wrote, which has one cluster's rows.

        by: the columns by which it is partitioned from then on.
        """
        table = self.name(name)
        date = f", to_date({_quoted(TIMES[name])}) AS `{DATE}`" if name in TIMES else ""
        self.spark.sql(
            f"CREATE OR REPLACE TABLE {table} USING {self.format.value} PARTITIONED BY ({by}) "
            f"AS SELECT *, '{self.cluster}' AS `{CLUSTER}`{date} FROM {table}"
        )


class DeltaSink(LakeSink):
    """Delta tables in folders below the root."""

    format = TableFormat.DELTA
    statistics_property = "delta.dataSkippingStatsColumns"

    def name(self, table: str) -> str:
        return f"delta.{_quoted(self.path(table))}"

    def version(self, table: str) -> int:
        newest: Any = self.spark.sql(f"DESCRIBE HISTORY {self.name(table)} LIMIT 1").first()
        return int(newest["version"])


class IcebergSink(LakeSink):
    """Iceberg tables in a namespace of a catalog.

    If Spark's settings do not define the catalog, it is a Hadoop catalog with its warehouse at the
    root: for a file system whose renames are atomic, so not for S3. namespace: levels are separated
    by dots.
    """

    format = TableFormat.ICEBERG
    # By default Iceberg shuffles the rows by partition.
    log_options: ClassVar[Mapping[str, str]] = {
        "distribution-mode": "none",
        "fanout-enabled": "true",
    }

    def __init__(
        self,
        spark: SparkSession,
        root: str,
        cluster: str | Sequence[str],
        *,
        catalog: str,
        namespace: str,
    ) -> None:
        super().__init__(spark, root, cluster)
        self._is_prepared = False
        self._levels = [_quoted(level) for level in (catalog, *namespace.split("."))]
        self._namespace = ".".join(self._levels)
        setting = f"spark.sql.catalog.{catalog}"
        if spark.conf.get(setting, None) is None:
            spark.conf.set(f"{setting}.type", "hadoop")
            spark.conf.set(f"{setting}.warehouse", self.root)
            spark.conf.set(setting, CONNECTORS[self.format].main_class)

    def name(self, table: str) -> str:
        return f"{self._namespace}.{_quoted(table)}"

    def prepare(self) -> None:
        if self._is_prepared:
            return
        for end in range(2, len(self._levels) + 1):
            self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {'.'.join(self._levels[:end])}")
        self._require_history()
        self._is_prepared = True

    def _require_history(self) -> None:
        """Raise PipelineError if the catalog does not allow a table with the name `history`.

        It is also the name of a metadata table: if there is no table NAMESPACE.history, Iceberg's
        client asks for the history of a table NAMESPACE. For a namespace of one level, the URL of
        that table has an empty segment, which some REST catalogs reject.
        """
        try:
            self.spark.catalog.tableExists(self.name(HISTORY))
        except Exception as error:
            if "BadRequestException" not in str(error):
                raise
            raise PipelineError(
                f"the catalog rejects a table `{HISTORY}` in the namespace {self._namespace}. Give "
                "the namespace two levels, such as --namespace quorate.metadata"
            ) from error

    def refresh(self, table: str) -> None:
        self.spark.catalog.refreshTable(self.name(table))

    def version(self, table: str) -> int:
        self.refresh(table)
        refs = self.spark.sql(f"SELECT * FROM {self.name(table)}.refs")
        newest: Any = refs.where(F.col("name") == "main").first()
        return int(newest["snapshot_id"])


def _require_connector(spark: SparkSession, table_format: TableFormat) -> None:
    """Raise PipelineError if Spark lacks the connector. Spark Connect does not tell."""
    connector = CONNECTORS[table_format]
    jvm: Any = spark._jvm if has_jvm(spark) else None
    if jvm is None or jvm.org.apache.spark.util.Utils.classIsLoadable(connector.main_class):
        return
    raise PipelineError(
        f"this session of Spark has no connector for {table_format}: start it with "
        f"--packages {connector.artifact(spark.version)}"
    )


def _declared(schema: StructType) -> str:
    return ", ".join(f"{_quoted(each.name)} {each.dataType.simpleString()}" for each in schema)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
