"""What tables and commands cost, beside Kafka's dump tool: processor time, memory and seconds.

    python -m tests.spark_cluster.costs --spark DIRECTORY/pyspark --records 1000000,3000000

On this machine alone and on a standalone cluster with 1, 2 and 4 executors of one core, each table
by each writer and each command, in turns with Kafka's DumpLogSegments, which decodes the same
records into text. All have the same number of runs. A cold run starts its processes and reads with
an empty page cache (this needs root). A warm run of a table or of Kafka's tool follows in the same
processes: a session or a JVM that has done it once; that of a command is a new process with a full
page cache. Processor time is that of all processes: drivers, JVMs, executors and Python workers.
Medians are shown. Delta and Iceberg need a PySpark that their connectors fit:
`pip install --target DIRECTORY pyspark==4.1.1`.
"""

from __future__ import annotations

import compileall
import json
import os
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import chain
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
from tests.processes import QUORATE, ROOT, end
from tests.spark.make_log import make_log
from tests.spark_cluster.meter import Meter
from tests.spark_cluster.one_table import DONE, WORKERS
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
DONE_LINE = f"{DONE}\n".encode()
LINES_SHOWN = 40
"""Of what a program said before it failed."""
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


@dataclass(frozen=True, slots=True)
class Started:
    """A running program. roots: the processes that count, with their descendants."""

    process: subprocess.Popen[bytes]
    roots: Sequence[int]

    def work_once(self) -> tuple[float, Meter]:
        """Let it work once. Raises RuntimeError if it ends instead."""
        assert self.process.stdin is not None
        assert self.process.stderr is not None
        said: deque[bytes] = deque(maxlen=LINES_SHOWN)
        began = time.monotonic()
        with Meter(self.roots) as meter:
            self.process.stdin.write(b"\n")
            self.process.stdin.flush()
            while (line := self.process.stderr.readline()) != DONE_LINE:
                if not line:
                    raise RuntimeError(b"".join(said).decode(errors="replace"))
                said.append(line)
        return time.monotonic() - began, meter

    def run(self) -> tuple[float, Meter]:
        """Wait for its end. Raises RuntimeError if it fails."""
        began = time.monotonic()
        with Meter(self.roots) as meter:
            _, errors = self.process.communicate()
        if self.process.returncode:
            raise RuntimeError(errors.decode(errors="replace")[-3000:])
        return time.monotonic() - began, meter


@dataclass(frozen=True, slots=True)
class Program:
    """repeats: it works once for each line of its stdin, and says `done` on stderr after each."""

    line: Sequence[str]
    repeats: bool


class Harness:
    """The programs to measure on one log. jars: Kafka's. folder: for all that they write."""

    def __init__(self, spark: Path, jars: Path, log: Path, records: int, folder: Path) -> None:
        self.environment = environment_of(spark)
        self.log, self.records, self.folder = log, records, folder
        classes = folder / "classes"
        source = Path(__file__).with_name("Repeat.java")
        subprocess.run(["javac", "-d", classes, "-cp", f"{jars}/*", source], check=True)
        self._class_path = f"{classes}:{jars}/*"

    def kafka(self) -> Program:
        files = ",".join(str(segment.path) for segment in find_replica(self.log).segments)
        tool = ("java", "-Xmx1g", "-cp", self._class_path, "Repeat")
        return Program([*tool, "--cluster-metadata-decoder", "--files", files], repeats=True)

    def programs(self, master: str) -> dict[str, Program]:
        """By what they do. Their outputs go to the folder `out`."""
        out, log = str(self.folder / "out"), str(self.log)
        module = (sys.executable, "-m", "tests.spark_cluster.one_table")
        found = {
            f"table {name}, {writer}": Program([*module, name, writer, log, out, master], True)
            for name, writer in TABLES
        }
        for command in COMMANDS:
            more = ("--out", out) if command == "run" else ()
            line = (sys.executable, *QUORATE, "pipeline", command, log, "--master", master, *more)
            found[f"command {command}"] = Program(line, repeats=False)
        return found

    def measure(self, what: str, program: Program, cluster: SparkCluster | None) -> Iterator[Cost]:
        """A cold and a warm run. cluster: that it uses, None for this machine alone."""
        os.sync()
        CACHES.write_text("1")
        if program.repeats:
            with self._started(program, cluster) as started:
                for is_cold in (True, False):
                    yield self._cost(what, cluster, is_cold, *started.work_once())
        else:
            for is_cold in (True, False):
                with self._started(program, cluster) as started:
                    yield self._cost(what, cluster, is_cold, *started.run())

    @contextmanager
    def _started(self, program: Program, cluster: SparkCluster | None) -> Iterator[Started]:
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        workers = [] if cluster is None else [worker.pid for worker in cluster.workers]
        with (self.folder / "output").open("wb") as output:
            process = subprocess.Popen(
                program.line,
                env=self.environment,
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.PIPE,
            )
            try:
                yield Started(process, [process.pid, *workers])
                process.communicate()
            finally:
                end(process)

    def _cost(
        self, what: str, cluster: SparkCluster | None, is_cold: bool, seconds: float, meter: Meter
    ) -> Cost:
        place = LOCAL if cluster is None else str(len(cluster.workers))
        return Cost(self.records, place, what, is_cold, seconds, meter.cpu_s, meter.peak_mib)


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
    ratio = "Kafka's to it"
    headings = ("records", "where", "what", "cold: CPU s", ratio, "s", "warm: CPU s", ratio, "s")
    table = Table(*headings, "MiB")
    groups: dict[tuple[int, str, str], list[Cost]] = {}
    for cost in costs:
        groups.setdefault((cost.records, cost.place, cost.what), []).append(cost)

    def of(key: tuple[int, str, str], name: str, *, is_cold: bool) -> float:
        return float(median(getattr(each, name) for each in groups[key] if each.is_cold is is_cold))

    for key, mine in groups.items():
        records, place, what = key
        cells = [f"{records:,}", place, what]
        for is_cold in (True, False):
            ours = of(key, "cpu_s", is_cold=is_cold)
            theirs = of((records, place, KAFKA), "cpu_s", is_cold=is_cold)
            cells += [f"{ours:.1f}", "" if what == KAFKA else f"{theirs / ours:.2f}"]
            cells.append(f"{of(key, 'seconds', is_cold=is_cold):.1f}")
        table.add_row(*cells, f"{max(each.peak_mib for each in mine):,.0f}")
    Console(width=140).print(table)


def main(
    *,
    spark: Annotated[Path, typer.Option(help="Spark's directory, of the version to use.")],
    records: Annotated[str, typer.Option(help="The lengths of the logs.")] = "1000000",
    places: Annotated[str, typer.Option(help="`local`, and numbers of executors.")] = "local,1,2,4",
    only: Annotated[str, typer.Option(help="A part of the names of what is measured.")] = "",
    runs: Annotated[int, typer.Option(min=1, help="Cold ones, and as many warm ones.")] = 3,
    out: Annotated[Path | None, typer.Option(help="A file for each run as a line of JSON.")] = None,
) -> None:
    """Measure tables and commands of the pipeline in turns with Kafka's dump tool."""
    jars = PEERS / "kafka-4.3.0"
    if not (jars / ".complete").exists():
        sys.exit(f"Kafka's jars are not in {jars} (shared/peers/kafka/fetch)")
    # Else each process compiles the sources itself where PYTHONDONTWRITEBYTECODE is set.
    compileall.compile_dir(ROOT / "services", quiet=1)
    costs: list[Cost] = []
    with TemporaryDirectory() as place, ExitStack() as stack:
        lines = None if out is None else stack.enter_context(out.open("a"))
        for count in map(int, records.split(",")):
            folder = Path(place) / str(count)
            folder.mkdir()
            made = make_log(folder / "log", count)
            harness = Harness(spark.resolve(), jars, folder / "log", made, folder)
            for where in places.split(","):
                with cluster_of(where, spark.resolve(), folder) as cluster:
                    master = "local[*]" if cluster is None else cluster.url
                    programs = harness.programs(master)
                    chosen = {KAFKA: harness.kafka()}
                    chosen |= {what: line for what, line in programs.items() if only in what}
                    turns = [each for _ in range(runs) for each in chosen.items()]
                    measured = (harness.measure(*each, cluster) for each in turns)
                    for cost in chain.from_iterable(measured):
                        costs.append(cost)
                        text = json.dumps(asdict(cost))
                        print(text, file=sys.stderr, flush=True)
                        if lines is not None:
                            print(text, file=lines, flush=True)
    show(costs)


if __name__ == "__main__":
    typer.run(main)
