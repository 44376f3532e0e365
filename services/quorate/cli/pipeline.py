"""`quorate pipeline`: Spark jobs over metadata logs, local by default.

spark-submit can also run this file as its application, and then takes `--master` itself:

    spark-submit --master k8s://… …/quorate/cli/pipeline.py run /data --out s3a://bucket/tables

Tables go to stdout, progress to stderr if it is a terminal. Java is checked before a JVM starts.
"""

from __future__ import annotations

import base64
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from quorate.cli.option_groups import with_groups
from quorate.cli.options import AsJson
from quorate.cli.output import CommandError, UsageError, kafka_table, print_json
from quorate.spark.formats import TableFormat

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Read metadata logs as tables with Spark: run, state, history, audit.",
)

Paths = Annotated[
    list[Path] | None,
    typer.Argument(help="Directories of one or more nodes, or the files of a log."),
]
Bootstrap = Annotated[
    str, typer.Option("--bootstrap-controller", help="Read a running quorum instead: HOST:PORT,….")
]
POLL_S = 0.3


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The options that select a log and the TLS files of a quorum."""

    replica: Annotated[
        str,
        typer.Option(
            "--replica", help="Which of several logs to read: node id, or id-directoryId."
        ),
    ] = ""
    high_watermark: Annotated[
        int | None,
        typer.Option(
            "--high-watermark",
            min=0,
            help="Read directories up to this offset (default: what they prove committed).",
        ),
    ] = None
    tls_ca: Annotated[
        Path | None,
        typer.Option("--tls-ca", help="PEM file with the CA certificates of the quorum."),
    ] = None
    tls_certificate: Annotated[
        Path | None,
        typer.Option("--tls-certificate", help="PEM file with the client's certificate."),
    ] = None
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", help="PEM file with the client's private key.")
    ] = None

    def tls(self) -> dict[str, str]:
        """Return the TLS files as options of the data source. Raises UsageError."""
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise UsageError("--tls-certificate and --tls-key must be used together")
        given = {
            "tlsCa": self.tls_ca,
            "tlsCertificate": self.tls_certificate,
            "tlsKey": self.tls_key,
        }
        return {name: str(path.absolute()) for name, path in given.items() if path is not None}

    def of_source(self) -> dict[str, str]:
        """Return the options of the data source. Raises UsageError."""
        if self.high_watermark is None:
            return self.tls()
        return {**self.tls(), "highWatermark": str(self.high_watermark)}


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """The options of a new Spark session."""

    master: Annotated[
        str | None, typer.Option("--master", help="Spark's master (default: all local cores).")
    ] = None
    conf: Annotated[
        list[str] | None, typer.Option("--conf", help="A setting of Spark, NAME=VALUE; repeatable.")
    ] = None
    packages: Annotated[
        str, typer.Option("--packages", help="Maven packages for Spark, as for spark-submit.")
    ] = ""

    def settings(self) -> dict[str, str]:
        """Return Spark's settings. Raises UsageError."""
        found = {"spark.jars.packages": self.packages} if self.packages else {}
        for text in self.conf or ():
            name, is_setting, value = text.partition("=")
            if not name or not is_setting:
                raise UsageError(f"--conf {text!r}: expected NAME=VALUE")
            found[name] = value
        return found


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The options that say where tables go, and in which format."""

    out: Annotated[
        str,
        typer.Option(
            "--out", help="The folder or URL to write the tables to; with iceberg, the warehouse."
        ),
    ] = "quorate-tables"
    sink: Annotated[str, typer.Option("--sink", help="parquet, delta or iceberg.")] = "parquet"
    catalog: Annotated[
        str,
        typer.Option(
            "--catalog",
            help="Iceberg's catalog: of Spark's settings, else a Hadoop catalog in --out.",
        ),
    ] = "quorate"
    namespace: Annotated[
        str, typer.Option("--namespace", help="The namespace of the tables in Iceberg's catalog.")
    ] = "metadata"
    cluster: Annotated[
        str,
        typer.Option(
            "--cluster", help="The cluster id in tables of delta and iceberg, if the log has none."
        ),
    ] = ""

    def format(self) -> TableFormat:
        """Return the format. Raises UsageError."""
        try:
            return TableFormat(self.sink)
        except ValueError:
            raise UsageError(f"--sink {self.sink!r}: accepted: {', '.join(TableFormat)}") from None

    def cluster_of(self, source: Any) -> str:
        """Return the cluster id for tables that have one. Raises OptionError if it is unknown."""
        if self.format() is TableFormat.PARQUET or self.cluster:
            return self.cluster
        found: str = source.cluster_id()
        return found

    def tables(self, spark: Any, cluster: str | Sequence[str]) -> Any:
        """Return the sink. cluster: the id of one, or those of many."""
        from quorate.spark.lake import DeltaSink, IcebergSink
        from quorate.spark.sinks import ParquetSink

        match self.format():
            case TableFormat.PARQUET:
                return ParquetSink(spark, self.out)
            case TableFormat.DELTA:
                return DeltaSink(spark, self.out, cluster)
            case TableFormat.ICEBERG:
                return IcebergSink(
                    spark, self.out, cluster, catalog=self.catalog, namespace=self.namespace
                )


@app.command()
@with_groups
def run(
    *,
    paths: Paths = None,
    table_options: TableOptions,
    bootstrap: Bootstrap = "",
    update: Annotated[
        bool,
        typer.Option(
            "--update",
            help="Continue the ledger where the last update ended; rewrite the other tables.",
        ),
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Keep the ledger up to date until interrupted.")
    ] = False,
    available_now: Annotated[
        bool,
        typer.Option(
            "--available-now", help="With --follow: exit once all available records are written."
        ),
    ] = False,
    max_records: Annotated[
        int | None,
        typer.Option(
            "--max-records-per-trigger", min=1, help="With --follow: the maximum per batch."
        ),
    ] = None,
    options: LogOptions,
    spark_options: SparkOptions,
    as_json: AsJson = False,
) -> None:
    """Write all layers of a log as tables: batches, records, state and history.

    Example: quorate pipeline run /var/lib/quorate --out tables

    Directories of many clusters are written together, with --sink delta or iceberg.
    """
    _require_pyspark()
    from quorate.spark import jobs

    table_format = table_options.format()
    if update and (follow or available_now):
        raise UsageError("--update writes all tables, --follow only the ledger: use one of them")
    source = _source(paths, bootstrap, options)
    with _explained():
        if paths and len(source.cluster_ids()) > 1:
            _check_many(table_options, options, is_whole=not (update or follow or available_now))
            _run_clusters(source, table_options, spark_options, as_json)
            return
        cluster = table_options.cluster_of(source)
    with _spark(spark_options, tables=table_format) as (spark, report):
        tables = table_options.tables(spark, cluster)
        if follow or available_now:
            jobs.follow(
                source,
                tables,
                report,
                available_now=available_now,
                records_per_trigger=max_records,
            )
            counts = {"ledger": tables.read("ledger").count()}
        else:
            write = jobs.update if update else jobs.run
            counts = write(source, tables, report)
    _show_counts(table_options, counts, {}, as_json)


def _check_many(table_options: TableOptions, options: LogOptions, *, is_whole: bool) -> None:
    """Raise UsageError for options that apply to one cluster only."""
    if table_options.format() is TableFormat.PARQUET:
        raise UsageError("directories of several clusters: use --sink delta or --sink iceberg")
    if not is_whole:
        raise UsageError("--update and --follow continue the tables of one cluster, not of several")
    if table_options.cluster or options.replica or options.high_watermark is not None:
        raise UsageError(
            "--cluster, --replica and --high-watermark apply to one cluster, not to several"
        )


def _run_clusters(
    source: Any, table_options: TableOptions, spark_options: SparkOptions, as_json: bool
) -> None:
    """Write the tables of many clusters. Raises CommandError if some were left out."""
    from quorate.spark.jobs import ClusterLogs, run_clusters

    clusters = ClusterLogs.of(source)
    with _spark(spark_options, tables=table_options.format()) as (spark, report):
        counts = run_clusters(clusters, lambda ids: table_options.tables(spark, ids), report)
    extra = {"clusters": len(clusters.logs), "faults": clusters.faults}
    _show_counts(table_options, counts, extra, as_json)
    for cluster, reason in clusters.faults.items():
        print(f"{cluster}: {reason}", file=sys.stderr)
    if clusters.faults:
        count = len(clusters.faults) + len(clusters.logs)
        raise CommandError(f"{len(clusters.faults)} of {count} clusters were left out")


def _show_counts(
    table_options: TableOptions, counts: dict[str, int], extra: dict[str, Any], as_json: bool
) -> None:
    if as_json:
        out = {"out": table_options.out, "sink": table_options.format().value}
        print_json({**out, "rows": counts, **extra})
    else:
        print(kafka_table(("Table", "Rows"), [(n, str(c)) for n, c in counts.items()]))


@app.command()
@with_groups
def state(
    *,
    paths: Paths = None,
    kind: Annotated[
        str | None, typer.Option("--kind", help="topics, partitions, brokers, configs, voters, ….")
    ] = None,
    offset: Annotated[
        int | None, typer.Option("--offset", min=0, help="The state before this offset.")
    ] = None,
    time: Annotated[
        str | None,
        typer.Option("--time", help="The state at this time, such as 2026-11-21T03:35:22Z."),
    ] = None,
    bootstrap: Bootstrap = "",
    options: LogOptions,
    spark_options: SparkOptions,
    as_json: AsJson = False,
) -> None:
    """Show the cluster's state: now, as of an offset, or as of a time.

    Example: quorate pipeline state /var/lib/quorate --kind partitions --offset 1000
    """
    _require_pyspark()
    from quorate.metadata.entities import KINDS
    from quorate.spark import jobs

    if kind is not None and kind not in KINDS:
        raise UsageError(f"--kind {kind!r}: accepted: {', '.join(KINDS)}")
    if offset is not None and time is not None:
        raise UsageError("--offset and --time cannot be used together")
    source = _source(paths, bootstrap, options)
    with _spark(spark_options, source) as (spark, report):
        report("state")
        rows = jobs.state_rows(spark, source, kind=kind, offset=offset, time=_moment(time))
    _show(rows, as_json)


@app.command()
@with_groups
def history(
    *,
    paths: Paths = None,
    plots: Annotated[
        Path | None,
        typer.Option("--plots", help="Also write history.png and history.html to this folder."),
    ] = None,
    bootstrap: Bootstrap = "",
    options: LogOptions,
    spark_options: SparkOptions,
    as_json: AsJson = False,
) -> None:
    """Show elections, voter sets, ISRs and broker states as intervals, and plot them.

    Example: quorate pipeline history /var/lib/quorate --plots pictures
    """
    _require_pyspark()
    from quorate.spark import jobs

    source = _source(paths, bootstrap, options)
    title = f"History of {bootstrap or ', '.join(map(str, source.paths))}"
    with _spark(spark_options, source) as (spark, report):
        report("history")
        rows, drawn = jobs.history_rows(spark, source, plots, title)
    _show(rows, as_json)
    for path in drawn or ():
        print(path, file=sys.stderr)


@app.command()
@with_groups
def audit(
    *,
    paths: Annotated[
        list[Path], typer.Argument(help="The metadata log directories of all replicas.")
    ],
    high_watermark: Annotated[
        int | None,
        typer.Option(
            "--high-watermark", min=0, help="The known high watermark (see describe --status)."
        ),
    ] = None,
    memory: Annotated[
        Path | None,
        typer.Option(
            "--memory", help="A file that remembers what was right, to read only what is new."
        ),
    ] = None,
    spark_options: SparkOptions,
    as_json: AsJson = False,
) -> None:
    """Check all replicas' logs against each other; the exit status is 1 for any violation.

    Example: quorate pipeline audit controller-1/data controller-2/data controller-3/data
    """
    _require_pyspark()
    from quorate.spark import jobs

    source = _source(paths, "", LogOptions())
    with _spark(spark_options, source) as (spark, report):
        report("audit")
        rows, names = jobs.audit_rows(spark, source, high_watermark, memory)
    if as_json:
        print_json({"replicas": names, "violations": [_jsonable(row) for row in rows]})
    elif rows:
        head = ("Offset", "Rule", "Replica", "Other", "What", "File:byte", "Bytes | the other's")
        print(kafka_table(head, [_violation(row) for row in rows]))
    else:
        print(f"{len(names)} replicas, no violation: {', '.join(names)}")
    if rows:
        raise CommandError(f"{len(rows)} violations")


def _violation(row: dict[str, Any]) -> tuple[str, ...]:
    place = f"{Path(row['file']).name}:{row['position']}" if row["file"] else ""
    texts = (row["rule"], row["replica"], row["other"] or "", row["text"])
    return (str(row["offset"]), *texts, place, _hex(row))


def _hex(row: dict[str, Any]) -> str:
    sides = [bytes(row[name] or b"")[:32].hex() for name in ("bytes", "other_bytes")]
    return " | ".join(side for side in sides if side)


def _require_pyspark() -> None:
    """Raise CommandError if the extra `spark` is missing, before the jobs import PySpark."""
    from quorate.spark.session import check_pyspark

    with _explained():
        check_pyspark()


def _source(paths: Sequence[Path] | None, bootstrap: str, options: LogOptions) -> Any:
    from quorate.spark.java import check_java

    tls = options.tls()
    if bool(paths) == bool(bootstrap):
        raise UsageError("expected either directories or --bootstrap-controller")
    if bootstrap and options.high_watermark is not None:
        raise UsageError("--high-watermark applies to directories only")
    with _explained():
        check_java()
        from quorate.spark.files import find_replicas
        from quorate.spark.jobs import Source
        from quorate.spark.live import live_reader, quorum_connection

        source = Source(tuple(paths or ()), bootstrap, options.replica, options.of_source())
        # Check the source before starting a JVM, so that a wrong path fails at once.
        if paths:
            find_replicas(list(source.paths))
        else:
            with live_reader(
                quorum_connection(bootstrap, {"timeoutSeconds": "10", **tls})
            ) as reader:
                reader.extent()
        return source


@contextmanager
def _explained() -> Iterator[None]:
    """Turn errors of the pipeline, also as wrapped by Spark, and of Spark into one-line errors."""
    try:
        yield
    except (CommandError, UsageError):
        raise
    except Exception as error:
        from quorate.spark.errors import explain, explain_failure

        text = explain(error) or explain_failure(error)
        if text is None:
            raise
        raise CommandError(text) from error


@contextmanager
def _spark(
    options: SparkOptions, only: Any = None, *, tables: TableFormat = TableFormat.PARQUET
) -> Iterator[tuple[Any, Callable[[str], None]]]:
    """Yield a Spark session, and a function that sets the progress text.

    only: the source, if the command reads it once and writes no tables.
    """
    settings = options.settings()
    from quorate.spark.jobs import is_small
    from quorate.spark.session import build_session, ends_alone

    with _explained(), _Progress() as progress:
        is_short = only is not None and is_small(only)
        progress.report("starting Spark")
        spark = build_session(options.master, tables=tables, is_short=is_short, settings=settings)
        progress.watch(spark)
        try:
            yield spark, progress.report
        finally:
            progress.watch(None)
            # Stopping takes a second. The JVM also does it once this process has ended.
            if not (is_short and ends_alone(spark)):
                spark.stop()


class _Progress:
    """A progress bar on stderr, if it is a terminal: the current job and its finished tasks."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None
        self._spark: Any = None
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> _Progress:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

            self._bar = Progress(
                "{task.description}",
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task("", total=None)
            self._thread = threading.Thread(target=self._poll, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        if self._bar is not None:
            self._bar.stop()

    def report(self, text: str) -> None:
        if self._bar is not None:
            self._bar.update(self._task, description=text, completed=0, total=None)

    def watch(self, spark: Any) -> None:
        self._spark = spark

    def _poll(self) -> None:
        while not self._over.wait(POLL_S):
            spark = self._spark
            if spark is None:
                continue
            try:
                tracker = spark.sparkContext.statusTracker()
                stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            except Exception:  # noqa: S112 (the session may be ending; this is only a bar)
                continue
            found = [stage for stage in stages if stage is not None]
            if found:
                self._bar.update(
                    self._task,
                    completed=sum(stage.numCompletedTasks for stage in found),
                    total=sum(stage.numTasks for stage in found),
                )


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--time {text!r}: expected a time such as 2026-11-21T03:35:22Z") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _show(rows: Sequence[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json([_jsonable(row) for row in rows])
    elif rows:
        header = tuple(rows[0])
        print(kafka_table(header, [tuple(_text(row[name]) for name in header) for row in rows]))


def _jsonable(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _jsonable(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_jsonable(each) for each in value]
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(bytes(value)).decode("ascii")
    if isinstance(value, datetime):
        return _utc(value)
    return value


def _utc(value: datetime) -> str:
    aware = value if value.tzinfo is not None else value.astimezone()
    return aware.astimezone(UTC).isoformat(timespec="milliseconds")


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return ",".join(_text(each) for each in value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}={_text(each)}" for name, each in value.items()) + "}"
    return str(_jsonable(value))


if __name__ == "__main__":
    from quorate.cli.main import main

    sys.exit(main(["pipeline", *sys.argv[1:]]))
