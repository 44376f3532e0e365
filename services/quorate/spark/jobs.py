"""The jobs, which turn logs into tables and report their progress.

`run` writes batches, ledger, state and history of one log; `update` brings them up to date.
`follow` keeps a ledger up to date from a stream. `state_rows`, `history_rows` and `audit_rows`
return what the commands print.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from quorate.spark import columns
from quorate.spark.audit import audit
from quorate.spark.committed import log_limits
from quorate.spark.errors import OptionError, is_file_gone
from quorate.spark.files import LogReplica, end_offset, find_replicas
from quorate.spark.history import history
from quorate.spark.options import OFFSET_MAX, SourceOptions
from quorate.spark.plots import draw
from quorate.spark.sinks import Files, OffsetTable, Sink, save
from quorate.spark.state import COLUMNS, as_of, table
from quorate.spark.tables import write_layer

LATE_WORKER = "Python worker failed to connect back"
"""Spark gives a stream's Python process ten seconds to start, which a busy machine may exceed."""
STARTS_MAX = 10
READS_MAX = 3
"""How often directories are read because a running node deleted files meanwhile."""

T = TypeVar("T")

ReportProgress = Callable[[str], None]
"""A progress callback, called with the name of a table or a range of offsets."""


@dataclass(frozen=True, slots=True)
class Source:
    """The location of a log: directories, or addresses and TLS options of a running quorum."""

    paths: tuple[Path, ...] = ()
    bootstrap: str = ""
    replica: str = ""
    options: dict[str, str] = field(default_factory=dict)

    def log(self) -> Source:
        """Narrow the source to one log: the named replica, or the one that can be read furthest.

        Of several directories of a cluster, it is read up to the derived committed offset. Raises
        UnknownCommitError, and OptionError if `replica` does not name exactly one.
        """
        if self.bootstrap:
            return self
        return _read_again(self._narrowed)

    def _narrowed(self) -> Source:
        options = SourceOptions.of(self.given(columns.LEDGER))
        replicas = options.replicas()
        limits = log_limits(replicas, options.high_watermark)
        logs = list(zip(replicas, limits, strict=True))
        if self.replica:
            logs = [log for log in logs if self.replica in _names(log[0])]
            if len(logs) != 1:
                names = ", ".join(r.name for r in replicas)
                raise OptionError(
                    f"{self.replica!r} matches {len(logs)} of the replicas {names}, expected one"
                )
        # Of several with the same end offset, the one that starts first holds the most.
        chosen, limit = max(
            logs, key=lambda log: (min(end_offset(log[0]), log[1].end), -log[0].start_offset)
        )
        found = dict(self.options)
        if limit.end != OFFSET_MAX:
            found["highWatermark"] = str(limit.end)
        return Source((_place(chosen),), "", "", found)

    def read(self, spark: SparkSession, layer: str, **options: Any) -> DataFrame:
        found: DataFrame = (
            spark.read.format("quorate").options(**self.given(layer, **options)).load()
        )
        return found

    def stream(self, spark: SparkSession, layer: str, **options: Any) -> DataFrame:
        found: DataFrame = (
            spark.readStream.format("quorate").options(**self.given(layer, **options)).load()
        )
        return found

    def given(self, layer: str, **options: Any) -> dict[str, str]:
        """The data source's options."""
        found = {"layer": layer}
        if self.bootstrap:
            found["bootstrap"] = self.bootstrap
        else:
            found["paths"] = ",".join(map(str, self.paths))
        given = {**self.options, **{k: v for k, v in options.items() if v is not None}}
        return found | {name: str(value) for name, value in given.items()}


def _read_again(read: Callable[[], T]) -> T:
    """Read directories, again if a running node deletes a file meanwhile.

    Raises FileGoneError, or Spark's error around it, if that happens each time.
    """
    for _ in range(READS_MAX - 1):
        try:
            return read()
        except Exception as error:
            if not is_file_gone(error):
                raise
    return read()


def _names(replica: LogReplica) -> tuple[str, str]:
    """The full name of a replica, and its node id."""
    return replica.name, replica.name.split("-", 1)[0]


def _place(replica: LogReplica) -> Path:
    if replica.properties is not None:
        return replica.directory
    paths = [segment.path for segment in replica.segments]
    paths += [snapshot.path for snapshot in replica.snapshots]
    return paths[0] if len(paths) == 1 else replica.partition


def ledger_of(spark: SparkSession, source: Source, offset: int | None = None) -> DataFrame:
    """Read the ledger with the snapshots that a state before `offset` needs."""
    end = offset if source.bootstrap else None
    return source.read(spark, columns.LEDGER, endOffset=end, snapshots=_snapshots(source))


def _held_ledger(spark: SparkSession, source: Source, offset: int | None = None) -> DataFrame:
    """Read the ledger once, and keep it: a log that is read again may lack its old records."""

    def read() -> DataFrame:
        rows = ledger_of(spark, source, offset).persist()
        try:
            rows.count()
        except Exception:
            rows.unpersist()
            raise
        return rows

    return _read_again(read)


def _snapshots(source: Source) -> str:
    """All available snapshots: a running quorum serves only its newest."""
    return "newest" if source.bootstrap else "all"


def run(
    spark: SparkSession, source: Source, out: str, sink: Sink, report: ReportProgress
) -> dict[str, int]:
    """Write all layers of one log below `out`; return the row count of each table."""
    source = source.log()
    tables = _Tables(spark, out, sink, report)
    tables.decode(source, columns.BATCHES)
    stored = tables.decode(source, columns.LEDGER, snapshots=_snapshots(source))
    _write_derived(tables, as_of(stored), history(stored))
    return tables.counts


def update(
    spark: SparkSession, source: Source, out: str, sink: Sink, report: ReportProgress
) -> dict[str, int]:
    """Bring the tables below `out` up to date; return the row count of each table.

    The ledger continues where the last update ended, and keeps records that the log has compacted
    since. The history is derived from that ledger. The other tables are rewritten. Raises
    PipelineError if `run` wrote the ledger, because its records would be duplicated.
    """
    source = source.log()
    ledger = OffsetTable(spark, f"{out}/ledger", sink)
    ledger.check()
    follow(spark, source, out, sink, report, available_now=True)
    stored = ledger.read()
    tables = _Tables(spark, out, sink, report)
    tables.counts["ledger"] = stored.count()
    tables.decode(source, columns.BATCHES)
    now = _held_ledger(spark, source)
    seeds = now.where(now["snapshot"].isNotNull())
    # A ledger of an earlier release lacks newer columns.
    whole = stored.unionByName(seeds, allowMissingColumns=True)
    _write_derived(tables, as_of(now), history(whole))
    return tables.counts


@dataclass(frozen=True, slots=True)
class _Tables:
    """Writes whole tables and counts their rows."""

    spark: SparkSession
    out: str
    sink: Sink
    report: ReportProgress
    counts: dict[str, int] = field(default_factory=dict)

    def write(self, name: str, rows: DataFrame) -> DataFrame:
        """Write a table and return it as stored."""
        self.report(name)
        path = f"{self.out}/{name}"
        save(rows, path, self.sink)
        stored = self.spark.read.format(self.sink.value).load(path)
        self.counts[name] = stored.count()
        return stored

    def decode(self, source: Source, layer: str, **options: Any) -> DataFrame:
        """Write a layer of the data source as a table.

        Parquet tables on a local file system are written by the cheaper `tables.write_layer`.
        """
        if self.sink is not Sink.PARQUET or not Files(self.spark, self.out).are_local:
            return _read_again(lambda: self.write(layer, source.read(self.spark, layer, **options)))
        self.report(layer)
        given = source.given(layer, **options)
        self.counts[layer] = _read_again(lambda: write_layer(self.spark, given, self.out, layer))
        return self.spark.read.parquet(f"{self.out}/{layer}")


def _write_derived(tables: _Tables, now: DataFrame, intervals: DataFrame) -> None:
    now = now.persist()
    try:
        tables.write("state", now)
        for kind in COLUMNS:
            tables.write(f"state_{kind}", table(now, kind))
    finally:
        now.unpersist()
    tables.write("history", intervals)


def follow(
    spark: SparkSession,
    source: Source,
    out: str,
    sink: Sink,
    report: ReportProgress,
    *,
    available_now: bool,
    records_per_trigger: int | None = None,
) -> None:
    """Keep `out`/ledger up to date until interrupted.

    With `available_now`, return after writing everything that was available at the start.
    """
    for attempt in range(1, STARTS_MAX + 1):
        query = start_ledger(
            spark,
            source,
            f"{out}/ledger",
            sink,
            f"{out}/_checkpoints/ledger",
            report=report,
            available_now=available_now,
            records_per_trigger=records_per_trigger,
        )
        try:
            query.awaitTermination()
            return
        except StreamingQueryException as error:
            # The checkpoint and the sink make a restart safe.
            if LATE_WORKER not in str(error) or attempt == STARTS_MAX:
                raise
        finally:
            query.stop()


def start_ledger(
    spark: SparkSession,
    source: Source,
    path: str,
    sink: Sink,
    checkpoint: str,
    *,
    report: ReportProgress | None = None,
    available_now: bool = False,
    records_per_trigger: int | None = None,
    interval: str = "1 second",
) -> Any:
    """Start a streaming query that writes the ledger exactly once (see `sinks`)."""
    rows = source.stream(spark, columns.LEDGER, maxRecordsPerTrigger=records_per_trigger)
    written = OffsetTable(spark, path, sink)

    def write(batch: DataFrame, _: int) -> None:
        offsets = written.write(batch)
        if report is not None and offsets is not None:
            report(f"offsets {offsets[0]} to {offsets[1] - 1}")

    writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    if available_now:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=interval).start()


def state_rows(
    spark: SparkSession,
    source: Source,
    *,
    kind: str | None,
    offset: int | None,
    time: datetime | None,
) -> DataFrame:
    """Return the state, or the entities of one kind with their own columns."""
    rows = _held_ledger(spark, source.log(), offset)
    found = as_of(rows, offset=offset, time=time)
    if kind is None:
        return found.orderBy("kind", "key")
    if kind in COLUMNS:
        chosen = table(found, kind)
        return chosen.orderBy(*chosen.columns[:1])
    return found.where(found["kind"] == kind).orderBy("key")


def history_rows(
    spark: SparkSession, source: Source, plots: Path | None, title: str
) -> tuple[list[dict[str, Any]], tuple[Path, Path] | None]:
    """Return the intervals, and the paths of their plots, None without `plots`."""
    found = [row.asDict() for row in history(_held_ledger(spark, source.log())).collect()]
    return found, None if plots is None else draw(found, title, plots)


def audit_rows(
    spark: SparkSession, source: Source, high_watermark: int | None
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the violations and the names of the audited replicas.

    Raises FileGoneError, or Spark's error around it, if a running node keeps deleting files.
    """

    def read() -> tuple[list[dict[str, Any]], list[str]]:
        replicas = find_replicas(list(source.paths))
        found = audit(spark, replicas, high_watermark=high_watermark).collect()
        return [row.asDict() for row in found], [replica.name for replica in replicas]

    return _read_again(read)
