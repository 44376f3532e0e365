"""The jobs, which turn logs into tables and report their progress.

`run` writes batches, ledger, state and history of one log; `update` brings them up to date;
`run_clusters` writes those of many clusters.
`follow` keeps a ledger up to date from a stream. `state_rows`, `history_rows` and `audit_rows`
return what the commands print.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from quorate.spark.audit import audit
from quorate.spark.decoding import columns
from quorate.spark.errors import OptionError, PipelineError, explain, is_file_gone
from quorate.spark.files import LogReplica, end_offset, find_replicas
from quorate.spark.history import history
from quorate.spark.lake import is_cluster_id
from quorate.spark.live import live_reader, quorum_connection
from quorate.spark.options import DERIVED, OFFSET_MAX, SourceOptions
from quorate.spark.plots import draw
from quorate.spark.sinks import Sink
from quorate.spark.source.committed import log_limits
from quorate.spark.source.data_source import QuorateReader
from quorate.spark.state import COLUMNS, as_of, table
from quorate.spark.tables import write_layers

LATE_WORKER = "Python worker failed to connect back"
"""Spark gives a stream's Python process ten seconds to start, which a busy machine may exceed."""
STARTS_MAX = 10
READS_MAX = 3
"""How often directories are read because a running node deleted files meanwhile."""

SMALL_BYTES = 64 << 20
HERE_BYTES = 4 << 20
"""Logs up to this size are read in this process: Spark's planning alone would take seconds."""
HIGH_WATERMARK = "highWatermark"

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
        UnknownCommitError, and OptionError if `replica` does not name exactly one, or for several
        clusters.
        """
        if self.bootstrap:
            return self
        return _read_again(self._narrowed)

    def cluster_ids(self) -> list[str]:
        """The ids of the logs' clusters, sorted. Logs without one are left out."""
        if self.bootstrap:
            with live_reader(quorum_connection(self.bootstrap, self.options)) as reader:
                reader.extent()
                found = {reader.cluster_id}
        else:
            found = {each.cluster_id for each in find_replicas(list(self.paths))}
        return sorted(each for each in found if each)

    def cluster_id(self) -> str:
        """The id of the log's cluster. Raises OptionError if the source does not tell it."""
        known = self.cluster_ids()
        if len(known) != 1:
            raise OptionError(
                f"expected the directories of one cluster, found {', '.join(known) or 'no id'}: "
                "specify the id with --cluster"
            )
        return known[0]

    def of_clusters(self) -> dict[str, Source]:
        """Split the source by cluster. Raises OptionError for a directory without a cluster id."""
        found: dict[str, list[Path]] = {}
        for replica in find_replicas(list(self.paths)):
            if not replica.cluster_id:
                raise OptionError(f"{replica.directory} has no cluster id")
            found.setdefault(replica.cluster_id, []).append(replica.directory)
        return {
            cluster: replace(self, paths=tuple(dict.fromkeys(paths)))
            for cluster, paths in found.items()
        }

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
        ids = {replica.cluster_id for replica, _ in logs} - {None}
        if len(ids) > 1:
            raise OptionError(f"directories of {len(ids)} clusters: expected those of one")
        # Of several with the same end offset, the one that starts first holds the most.
        chosen, limit = max(
            logs, key=lambda log: (min(end_offset(log[0]), log[1].end), -log[0].start_offset)
        )
        together = [one for one in replicas if one.directory == chosen.directory]
        if chosen.archive is not None and len(together) > 1:
            raise OptionError(
                f"{chosen.directory} is an archive with a gap, so it contains more than one log: "
                "tables are those of one log"
            )
        found = dict(self.options)
        if limit.end != OFFSET_MAX:
            found[HIGH_WATERMARK] = str(limit.end)
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


def is_small(source: Source, bytes_max: int = SMALL_BYTES) -> bool:
    """Whether the files of a source have less than `bytes_max` in total.

    By default, what is read within seconds. False for a running quorum, whose log has no known
    size.
    """
    if source.bootstrap:
        return False
    files = [path for each in find_replicas(list(source.paths)) for path in each.files]
    size = sum(path.stat().st_size for path in files if path.exists())
    return size < bytes_max


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
    if replica.properties is not None or replica.archive is not None:
        return replica.directory
    paths = [segment.path for segment in replica.segments]
    paths += [snapshot.path for snapshot in replica.snapshots]
    return paths[0] if len(paths) == 1 else replica.partition


def ledger_of(spark: SparkSession, source: Source, offset: int | None = None) -> DataFrame:
    """Read the ledger with the snapshots that a state before `offset` needs."""
    end = offset if source.bootstrap else None
    return source.read(spark, columns.LEDGER, endOffset=end, snapshots=_snapshots(source))


def ledger_here(spark: SparkSession, source: Source) -> DataFrame:
    """Read the ledger and all snapshots of a small log in this process."""
    options = SourceOptions.of(source.given(columns.LEDGER, snapshots=_snapshots(source)))
    reader = QuorateReader(options)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return spark.createDataFrame(pa.Table.from_batches(batches, options.schema)).coalesce(1)


@contextmanager
def _held_ledger(
    spark: SparkSession, source: Source, offset: int | None = None
) -> Iterator[DataFrame]:
    """Keep the ledger while it is used: a log that is read again may lack its old records.

    The first job must read all of it.
    """
    if is_small(source, HERE_BYTES):
        yield ledger_here(spark, source)
        return
    rows = ledger_of(spark, source, offset).persist()
    try:
        yield rows
    finally:
        rows.unpersist()


def _snapshots(source: Source) -> str:
    """All available snapshots: a running quorum serves only its newest."""
    return "newest" if source.bootstrap else "all"


@dataclass(frozen=True, slots=True)
class ClusterLogs:
    """The logs of many clusters. logs: one of each cluster. faults: why others are left out."""

    logs: dict[str, Source]
    faults: dict[str, str]

    @classmethod
    def of(cls, source: Source) -> ClusterLogs:
        """Narrow a source to one log of each cluster, without those that cannot be read.

        Raises OptionError for a directory without a cluster id.
        """
        found = cls({}, {})
        for cluster, each in source.of_clusters().items():
            if not is_cluster_id(cluster):
                found.faults[cluster] = f"{cluster!r} is not a cluster id"
                continue
            try:
                found.logs[cluster] = each.log()
            except PipelineError as error:
                found.faults[cluster] = error.reason
        return found

    @property
    def source(self) -> Source:
        """All logs as one source."""
        ends = [one.options.get(HIGH_WATERMARK, DERIVED) for one in self.logs.values()]
        options = {"clusters": "true", HIGH_WATERMARK: ",".join(ends)}
        return Source(
            tuple(path for one in self.logs.values() for path in one.paths), "", "", options
        )

    def leave_out(self, error: Exception) -> bool:
        """Leave out the cluster whose file an error names; return whether it names one."""
        text = explain(error) or ""
        for cluster, one in self.logs.items():
            if any(f"{path.absolute()}/" in text for path in one.paths):
                del self.logs[cluster]
                self.faults[cluster] = text
                return True
        return False


def run(source: Source, sink: Sink, report: ReportProgress) -> dict[str, int]:
    """Write all layers of one log; return the row count of each table."""
    return _run(source.log(), sink, report)


def run_clusters(
    clusters: ClusterLogs, sink_of: Callable[[Sequence[str]], Sink], report: ReportProgress
) -> dict[str, int]:
    """Write all layers of the logs of many clusters; return the row count of each table.

    Each table is written once, for all clusters. One with a damaged log is left out, and the others
    are written again; readers of its newest run see what they saw before. sink_of: returns the sink
    of some clusters.
    """
    while clusters.logs:
        try:
            return _run(clusters.source, sink_of(tuple(clusters.logs)), report)
        except Exception as error:
            if not clusters.leave_out(error):
                raise
    return {}


def _run(source: Source, sink: Sink, report: ReportProgress) -> dict[str, int]:
    tables = _Tables(sink, report)
    both = {columns.BATCHES: False, columns.LEDGER: True}
    tables.decode(source, both, snapshots=_snapshots(source))
    stored = sink.read(columns.LEDGER)
    _write_derived(tables, as_of(stored), history(stored))
    sink.finish(tables.counts)
    return tables.counts


def update(source: Source, sink: Sink, report: ReportProgress) -> dict[str, int]:
    """Bring the tables up to date; return the row count of each table.

    The ledger continues where the last update ended, and keeps records that the log has compacted
    since. The history is derived from that ledger. The other tables are rewritten. Raises
    PipelineError if `run` wrote a ledger that cannot be continued.
    """
    source = source.log()
    sink.check(columns.LEDGER)
    follow(source, sink, report, available_now=True)
    stored = sink.read(columns.LEDGER)
    tables = _Tables(sink, report)
    tables.counts[columns.LEDGER] = stored.count()
    tables.decode(source, {columns.BATCHES: False})

    def derive() -> None:
        with _held_ledger(sink.spark, source) as now:
            seeds = now.where(now["snapshot"].isNotNull())
            of_log = stored.where(stored["snapshot"].isNull())
            # A ledger of an earlier release lacks newer columns.
            whole = of_log.unionByName(seeds, allowMissingColumns=True)
            _write_derived(tables, as_of(now), history(whole))

    _read_again(derive)
    sink.finish(tables.counts)
    return tables.counts


@dataclass(frozen=True, slots=True)
class _Tables:
    """Writes whole tables and counts their rows."""

    sink: Sink
    report: ReportProgress
    counts: dict[str, int] = field(default_factory=dict)

    def write(self, name: str, rows: DataFrame) -> None:
        self.report(name)
        self.counts[name] = self.sink.replace(name, rows)

    def decode(self, source: Source, layers: Mapping[str, bool], **options: Any) -> None:
        """Write layers of the data source as tables.

        layers: whether each has the rows of snapshots. The cheaper `tables.write_layers` writes
        them in one pass over the log, if the sink allows it.
        """
        spark = self.sink.spark
        if self.sink.takes_files:
            self.report(", ".join(layers))
            given = source.given(columns.LEDGER, **options)
            counts = _read_again(lambda: write_layers(spark, given, self.sink.root, layers))
            self.counts.update(counts)
        else:
            for layer, has_snapshots in layers.items():
                self._copy(source, layer, options if has_snapshots else {})

    def _copy(self, source: Source, layer: str, options: Mapping[str, Any]) -> None:
        _read_again(lambda: self.write(layer, source.read(self.sink.spark, layer, **options)))


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
    source: Source,
    sink: Sink,
    report: ReportProgress,
    *,
    available_now: bool,
    records_per_trigger: int | None = None,
) -> None:
    """Keep the ledger up to date until interrupted.

    With `available_now`, return after writing everything that was available at the start.
    """
    for attempt in range(1, STARTS_MAX + 1):
        query = start_ledger(
            source,
            sink,
            report,
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
    source: Source,
    sink: Sink,
    report: ReportProgress | None = None,
    *,
    available_now: bool = False,
    records_per_trigger: int | None = None,
    interval: str = "1 second",
) -> Any:
    """Start a streaming query that writes the ledger exactly once (see `sinks`)."""
    rows = source.stream(sink.spark, columns.LEDGER, maxRecordsPerTrigger=records_per_trigger)

    def write(batch: DataFrame, _: int) -> None:
        offsets = sink.write(columns.LEDGER, batch)
        if report is not None and offsets is not None:
            report(f"offsets {offsets[0]} to {offsets[1] - 1}")

    writer = rows.writeStream.foreachBatch(write)
    writer = writer.option("checkpointLocation", sink.checkpoint(columns.LEDGER))
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
) -> list[dict[str, Any]]:
    """Return the state, or the entities of one kind with their own columns, sorted by key."""

    def read() -> list[dict[str, Any]]:
        with _held_ledger(spark, source.log(), offset) as rows:
            found = as_of(rows, offset=offset, time=time)
            if kind in COLUMNS:
                found = table(found, kind)
            elif kind is not None:
                found = found.where(found["kind"] == kind)
            # They are few, and Spark's sort takes a job more.
            shown = [row.asDict(recursive=True) for row in found.collect()]
        keys = found.columns[:2]
        return sorted(shown, key=lambda row: [row[name] for name in keys])

    return _read_again(read)


def history_rows(
    spark: SparkSession, source: Source, plots: Path | None, title: str
) -> tuple[list[dict[str, Any]], tuple[Path, Path] | None]:
    """Return the intervals, and the paths of their plots, None without `plots`."""

    def read() -> list[dict[str, Any]]:
        with _held_ledger(spark, source.log()) as rows:
            return [row.asDict() for row in history(rows).collect()]

    found = _read_again(read)
    return found, None if plots is None else draw(found, title, plots)


def audit_rows(
    spark: SparkSession, source: Source, high_watermark: int | None, memory: Path | None = None
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the violations and the names of the audited replicas. memory: see `audit`.

    Raises FileGoneError, or Spark's error around it, if a running node keeps deleting files.
    """

    def read() -> tuple[list[dict[str, Any]], list[str]]:
        replicas = find_replicas(list(source.paths))
        found = audit(spark, replicas, high_watermark=high_watermark, memory=memory).collect()
        return [row.asDict() for row in found], [replica.name for replica in replicas]

    return _read_again(read)
