"""The logs of many clusters in one set of tables: one run, its cost, and that of 10,000 clusters.

    python -m tests.spark_cluster.clusters --spark DIRECTORY/pyspark --clusters 200

Each cluster has a log of its own, of a random length. Runs of 1 cluster, of a tenth and of all of
them write into tables of their own. A run has a part that does not depend on the number of
clusters, and one that grows with it, which the line through the last two gives. A reader then
checks that each offset of each cluster is in the ledger once, and that `runs` names the same
versions for all. Delta and Iceberg need a PySpark that their connectors fit:
`pip install --target DIRECTORY pyspark==4.1.1`.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import pyspark
import typer
from pyspark.sql import functions as F  # noqa: N812
from quorate.spark.decoding.columns import CLUSTER
from quorate.spark.files import end_offset, find_replica
from quorate.spark.formats import TableFormat, with_connector
from quorate.spark.lake import RUNS, DeltaSink, IcebergSink
from quorate.spark.session import build_session
from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.processes import QUORATE
from tests.spark.many_clusters import cluster_id, make_cluster
from tests.spark_cluster.meter import Meter
from tests.spark_cluster.standalone import environment_of

MANY = 10_000
NAMESPACE = {"catalog": "quorate", "namespace": "metadata"}
CHECK = "check"


@dataclass(frozen=True, slots=True)
class Run:
    """A run of some clusters. cpu_s, peak_mib: of the driver, its JVM and the workers together."""

    clusters: int
    records: int
    seconds: float
    cpu_s: float
    peak_mib: float


def run(spark: Path, table_format: TableFormat, logs: Mapping[Path, int], out: Path) -> Run:
    """Write the tables of some clusters. logs: their directories, and the ends of their logs."""
    where = ("--sink", table_format.value, "--out", str(out), "--json")
    command = [sys.executable, *QUORATE, "pipeline", "run", *map(str, logs), *where]
    began = time.monotonic()
    process = subprocess.Popen(
        command,
        env=environment_of(spark),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    # The driver does not wait for its JVM, so getrusage would not count it.
    with Meter([process.pid]) as meter:
        printed, log = process.communicate()
    seconds = time.monotonic() - began
    assert process.returncode == 0, log[-3000:]
    rows = json.loads(printed)["rows"]
    assert rows["ledger"] == sum(logs.values()), rows
    return Run(len(logs), rows["ledger"], seconds, meter.cpu_s, meter.peak_mib)


def check(table_format: TableFormat, out: str, ends: Mapping[str, int]) -> list[str]:
    """What is wrong with the tables of clusters whose logs have these ends."""
    spark = build_session(
        "local[2]", settings=with_connector(table_format, {}, pyspark.__version__)
    )
    sink = (
        DeltaSink(spark, out, list(ends))
        if table_format is TableFormat.DELTA
        else IcebergSink(spark, out, list(ends), **NAMESPACE)
    )
    found = (
        sink.read("ledger")
        .groupBy(CLUSTER)
        .agg(F.count("*"), F.count_distinct("offset"), F.min("offset"), F.max("offset"))
    )
    seen = {row[0]: tuple(row)[1:] for row in found.collect()}
    wrong = [
        f"{cluster}: rows, offsets, first and last {seen.get(cluster)}, of a log of {end}"
        for cluster, end in ends.items()
        if seen.get(cluster) != (end, end, 0, end - 1)
    ]
    runs = sink.read(RUNS).collect()
    if sorted(row[CLUSTER] for row in runs) != sorted(ends):
        wrong.append(f"{len(runs)} rows in {RUNS}, expected one for each of {len(ends)} clusters")
    if len({tuple(sorted(row["versions"].items())) for row in runs}) != 1:
        wrong.append(f"{RUNS} names several versions of a table")
    return wrong


def estimate(small: Run, large: Run) -> tuple[float, float]:
    """Seconds and processor seconds of a run of MANY clusters, on the line through two runs."""
    more = large.clusters - small.clusters
    steps = (MANY - large.clusters) / more
    return (
        large.seconds + steps * (large.seconds - small.seconds),
        large.cpu_s + steps * (large.cpu_s - small.cpu_s),
    )


def show(runs: list[Run], figures: tuple[float, float]) -> None:
    table = Table("clusters", "records", "s", "CPU s", "CPU s a cluster", "MiB")
    for each in runs:
        table.add_row(
            f"{each.clusters:,}",
            f"{each.records:,}",
            f"{each.seconds:.1f}",
            f"{each.cpu_s:.1f}",
            f"{each.cpu_s / each.clusters:.2f}",
            f"{each.peak_mib:.0f}",
        )
    seconds, cpu_s = figures
    table.add_row(
        f"{MANY:,}, estimated", "", f"{seconds:,.0f}", f"{cpu_s:,.0f}", f"{cpu_s / MANY:.2f}"
    )
    Console().print(table)


def main(
    spark: Annotated[Path, typer.Option(help="Spark's directory, of the version to use.")],
    clusters: Annotated[int, typer.Option(min=20)] = 200,
    sink: Annotated[TableFormat, typer.Option(help="delta or iceberg.")] = TableFormat.DELTA,
    records_max: Annotated[int, typer.Option(help="The length of the longest log.")] = 5_000,
    seed: Annotated[int, typer.Option()] = 25,
) -> None:
    """Write the logs of many clusters with one run, check the tables, and print what it costs."""
    rng = random.Random(seed)
    home = spark.resolve()
    with TemporaryDirectory() as place:
        folder = Path(place)
        logs: dict[Path, int] = {}
        for number in track(range(clusters), "logs", console=Console(stderr=True)):
            path = make_cluster(folder, number, rng.randint(200, records_max))
            logs[path] = end_offset(find_replica(path))
        runs: list[Run] = []
        for count in (1, clusters // 10, clusters):
            some = dict(list(logs.items())[:count])
            runs.append(run(home, sink, some, folder / f"tables-{count}"))
            print(f"{count} clusters: {runs[-1].seconds:.0f} s", file=sys.stderr, flush=True)
        ends = {cluster_id(number): end for number, end in enumerate(logs.values())}
        given = json.dumps([sink.value, str(folder / f"tables-{clusters}"), ends])
        done = subprocess.run(
            [sys.executable, "-m", __spec__.name, CHECK],
            input=given,
            env=environment_of(home),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        wrong: list[str] = json.loads(done.stdout.splitlines()[-1])
    show(runs, estimate(*runs[1:]))
    for each in wrong:
        print(each)
    print(f"seed {seed}, {sink}: {len(wrong)} problems")
    sys.exit(1 if wrong else 0)


def _checked() -> None:
    given: Any = json.load(sys.stdin)
    print(json.dumps(check(TableFormat(given[0]), *given[1:])))


if __name__ == "__main__":
    if sys.argv[1:] == [CHECK]:
        _checked()
    else:
        typer.run(main)
