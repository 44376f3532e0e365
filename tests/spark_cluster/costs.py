"""What tables and commands cost, beside Kafka's dump tool: processor time, memory and seconds.

    python -m tests.spark_cluster.costs --spark DIRECTORY/pyspark --records 1000000,3000000

On this machine alone and on a standalone cluster with 1, 2 and 4 executors of one core, each table
by each writer and each command, in turns with Kafka's DumpLogSegments, which decodes the same
records into text. All have the same number of runs. Before the first of them, which is cold, the
page cache is emptied (this needs root); the others are warm, and their median is shown. Processor
time is that of all processes: drivers, JVMs, executors and Python workers. Delta and Iceberg need a
PySpark that their connectors fit: `pip install --target DIRECTORY pyspark==4.1.1`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from quorate.spark.files import find_replica
from quorate.spark.formats import TableFormat
from rich.console import Console
from rich.table import Table

from tests.kafka import PEERS
from tests.processes import QUORATE, ROOT
from tests.spark.make_log import make_log
from tests.spark_cluster.meter import Meter
from tests.spark_cluster.one_table import WORKERS
from tests.spark_cluster.standalone import SparkCluster, environment_of

KAFKA = "kafka-dump-log"
LOCAL = "local"
CACHES = Path("/proc/sys/vm/drop_caches")
WRITERS = (WORKERS, TableFormat.PARQUET.value, TableFormat.DELTA.value, TableFormat.ICEBERG.value)
TABLES = (
    *(("ledger", writer) for writer in WRITERS),
    ("batches", WORKERS),
    ("state", TableFormat.PARQUET.value),
    ("history", TableFormat.PARQUET.value),
)
COMMANDS = ("run", "state", "history", "audit")


@dataclass(frozen=True, slots=True)
class Cost:
    """A run. place: `local`, or the number of executors."""

    records: int
    place: str
    what: str
    is_cold: bool
    seconds: float
    cpu_s: float
    peak_mib: float


class Harness:
    """The programs to measure on one log. jars: Kafka's."""

    def __init__(self, spark: Path, jars: Path, log: Path, records: int, folder: Path) -> None:
        self.environment = environment_of(spark)
        self.spark, self.jars, self.log = spark, jars, log
        self.records, self.folder = records, folder

    def kafka(self) -> list[str]:
        files = ",".join(str(segment.path) for segment in find_replica(self.log).segments)
        tool = ("org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder")
        return ["java", "-Xmx1g", "-cp", f"{self.jars}/*", *tool, "--files", files]

    def programs(self, master: str) -> dict[str, list[str]]:
        """By what they do. Their outputs go to the folder `out`."""
        out, log = str(self.folder / "out"), str(self.log)
        module = (sys.executable, "-m", "tests.spark_cluster.one_table")
        found = {
            f"table {name}, {writer}": [*module, name, writer, log, out, master]
            for name, writer in TABLES
        }
        for command in COMMANDS:
            more = ("--out", out) if command == "run" else ()
            line = (sys.executable, *QUORATE, "pipeline", command, log, "--master", master, *more)
            found[f"command {command}"] = list(line)
        return found

    def measure(
        self, what: str, line: Sequence[str], cluster: SparkCluster | None, *, cold: bool
    ) -> Cost:
        """Run a program. cluster: that it uses, None for this machine alone."""
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        if cold:
            os.sync()
            CACHES.write_text("1")
        with (self.folder / "output").open("wb") as output:
            began = time.monotonic()
            process = subprocess.Popen(
                line, env=self.environment, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT
            )
            workers = [] if cluster is None else [worker.pid for worker in cluster.workers]
            with Meter([process.pid, *workers]) as meter:
                status = process.wait()
            seconds = time.monotonic() - began
        if status != 0:
            tail = (self.folder / "output").read_text(errors="replace")[-3000:]
            raise RuntimeError(f"{what}: status {status}\n{tail}")
        place = LOCAL if cluster is None else str(len(cluster.workers))
        return Cost(self.records, place, what, cold, seconds, meter.cpu_s, meter.peak_mib)


@contextmanager
def cluster_of(place: str, spark: Path, folder: Path) -> Iterator[SparkCluster | None]:
    if place == LOCAL:
        yield None
        return
    within = folder / f"cluster-{place}"
    within.mkdir()
    with SparkCluster(spark, within, int(place)) as cluster:
        yield cluster


def show(costs: Sequence[Cost]) -> None:
    table = Table("records", "where", "what", "CPU s", "cold", "Kafka's / CPU s", "s", "MiB")
    groups: dict[tuple[int, str, str], list[Cost]] = {}
    for cost in costs:
        groups.setdefault((cost.records, cost.place, cost.what), []).append(cost)

    def of(key: tuple[int, str, str], name: str, *, is_cold: bool) -> float:
        values = [getattr(each, name) for each in groups[key] if each.is_cold is is_cold]
        return float(median(values or [getattr(each, name) for each in groups[key]]))

    for key, mine in groups.items():
        records, place, what = key
        warm = of(key, "cpu_s", is_cold=False)
        theirs = of((records, place, KAFKA), "cpu_s", is_cold=False)
        table.add_row(
            f"{records:,}",
            place,
            what,
            f"{warm:.1f}",
            f"{of(key, 'cpu_s', is_cold=True):.1f}",
            "" if what == KAFKA else f"{theirs / warm:.2f}",
            f"{of(key, 'seconds', is_cold=False):.1f}",
            f"{max(each.peak_mib for each in mine):,.0f}",
        )
    Console(width=120).print(table)


def main(
    *,
    spark: Annotated[Path, typer.Option(help="Spark's directory, of the version to use.")],
    records: Annotated[str, typer.Option(help="The lengths of the logs.")] = "1000000",
    places: Annotated[str, typer.Option(help="`local`, and numbers of executors.")] = "local,1,2,4",
    only: Annotated[str, typer.Option(help="A part of the names of what is measured.")] = "",
    runs: Annotated[int, typer.Option(min=1)] = 3,
    out: Annotated[Path | None, typer.Option(help="A file for each run as a line of JSON.")] = None,
) -> None:
    """Measure tables and commands of the pipeline in turns with Kafka's dump tool."""
    jars = PEERS / "kafka-4.3.0"
    if not (jars / ".complete").exists():
        sys.exit(f"Kafka's jars are not in {jars} (shared/peers/kafka/fetch)")
    costs: list[Cost] = []
    with TemporaryDirectory() as place, ExitStack() as stack:
        lines = None if out is None else stack.enter_context(out.open("a"))
        for count in map(int, records.split(",")):
            folder = Path(place) / str(count)
            folder.mkdir()
            made = make_log(folder / "log", count)
            harness = Harness(spark.resolve(), jars, folder / "log", made, folder)
            for where in places.split(","):
                with cluster_of(where, harness.spark, folder) as cluster:
                    master = "local[*]" if cluster is None else cluster.url
                    programs = harness.programs(master)
                    chosen = {KAFKA: harness.kafka()}
                    chosen |= {what: line for what, line in programs.items() if only in what}
                    for number in range(runs):
                        for what, line in chosen.items():
                            cost = harness.measure(what, line, cluster, cold=number == 0)
                            costs.append(cost)
                            text = json.dumps(asdict(cost))
                            print(text, file=sys.stderr, flush=True)
                            if lines is not None:
                                print(text, file=lines, flush=True)
    show(costs)


if __name__ == "__main__":
    typer.run(main)
