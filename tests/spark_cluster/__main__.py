"""Runs of the pipeline on a standalone cluster, into S3, while executors and drivers are killed.

    python -m tests.spark_cluster --spark DIRECTORY/pyspark --runs 20 --seed 25

Each run writes all tables of one log into a folder of its own, as Parquet, Delta or Iceberg in
turn. Executors are killed at random moments, and in most runs the driver too, which is then started
again, until it succeeds. At the end a reader counts: each offset must be in the ledger once, and
all tables must have the rows that a run on one machine without failures writes. Ctrl-C ends the
runs, and those that have ended are counted. Delta and Iceberg need a PySpark that their connectors
fit: `pip install --target DIRECTORY pyspark==4.1.1`.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from quorate.spark.formats import TableFormat

from tests.processes import POLL_S, QUORATE, ROOT
from tests.s3 import CLIENT, S3Server, gateway
from tests.spark_cluster.standalone import SparkCluster, environment_of

BUCKET = "bucket"
CHECK = "tests.spark_cluster.check"
CACHE = Path.home() / ".ivy2.5.2" / "cache"
"""What Spark has downloaded before."""
DRIVERS_KILLED_MAX = 2
ATTEMPT_S = 900.0
FIRST_S = 90.0
"""How long a run may take that nothing interrupts, until one has been seen."""


@dataclass
class Run:
    """One run and what happened in it."""

    table_format: TableFormat
    root: str
    executors_killed: int = 0
    drivers_killed: int = 0
    seconds: float = 0.0
    rows: dict[str, int] = field(default_factory=dict)


class Harness:
    """spark: Spark's directory. packages: of Maven, for s3a."""

    def __init__(self, spark: Path, packages: str, folder: Path, seed: int) -> None:
        self.spark = spark
        self.packages = packages
        self.folder = folder
        self.random = random.Random(seed)
        self.server = S3Server(gateway(folder), folder / "s3", BUCKET)
        self.cluster = SparkCluster(spark, folder)
        self.ivy = folder / "ivy"
        self.ivy.mkdir()
        if CACHE.is_dir():
            (self.ivy / "cache").symlink_to(CACHE)

    @property
    def environment(self) -> dict[str, str]:
        return {**environment_of(self.spark), **CLIENT}

    @property
    def settings(self) -> dict[str, str]:
        """Spark's. The packages are on the class path: else each executor copies 600 MB."""
        path = ":".join(map(str, sorted((self.ivy / "jars").glob("*.jar"))))
        return {
            **self.server.of_hadoop,
            "spark.driver.extraClassPath": path,
            "spark.executor.extraClassPath": path,
        }

    def driver(
        self,
        log: Path,
        table_format: TableFormat,
        out: str,
        settings: Mapping[str, str],
        *more: str,
    ) -> list[str]:
        confs = [word for item in settings.items() for word in ("--conf", "=".join(item))]
        where = ("--sink", table_format.value, "--out", out, "--json")
        return [sys.executable, *QUORATE, "pipeline", "run", str(log), *where, *confs, *more]

    def expected(self, log: Path) -> dict[str, int]:
        """The rows of each table, as written on one machine without failures.

        Downloads the packages.
        """
        out, packages = f"{self.folder}/expected", ("--packages", self.packages)
        ivy = {"spark.jars.ivy": str(self.ivy)}
        command = self.driver(log, TableFormat.PARQUET, out, ivy, *packages)
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        rows: dict[str, int] = json.loads(done.stdout)["rows"]
        return rows

    def run(self, log: Path, run: Run, usual_s: float) -> float:
        """Until a driver succeeds; usual_s: how long that takes. Returns how long it took."""
        began = time.monotonic()
        kills = self.random.choice((0, 1, 1, DRIVERS_KILLED_MAX))
        while True:
            attempt_began = time.monotonic()
            end_s = self.random.uniform(0.1, 0.95) * usual_s if run.drivers_killed < kills else None
            if self.attempt(log, run, usual_s, end_s):
                break
        run.seconds = time.monotonic() - began
        return time.monotonic() - attempt_began

    def attempt(self, log: Path, run: Run, usual_s: float, end_s: float | None) -> bool:
        """One driver. end_s: when it is killed. Returns whether it has written all tables."""
        output = self.folder / "driver.out"
        settings = {**self.settings, "spark.executor.memory": "1g"}
        where = ("--master", self.cluster.url)
        command = self.driver(log, run.table_format, run.root, settings, *where)
        with output.open("wb") as out, output.with_suffix(".err").open("wb") as errors:
            process = subprocess.Popen(
                command, env=self.environment, stdout=out, stderr=errors, start_new_session=True
            )
        began = time.monotonic()
        next_s = self.random.uniform(0.2, 0.9) * usual_s
        try:
            while process.poll() is None:
                now = time.monotonic() - began
                assert now < ATTEMPT_S, f"the driver of {run.root} has not ended"
                if end_s is not None and now > end_s:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                    run.drivers_killed += 1
                    return False
                executors = self.cluster.executors()
                if now > next_s and executors:
                    self.cluster.kill_executor(self.random.choice(executors))
                    run.executors_killed += 1
                    next_s = now + self.random.uniform(0.3, 0.9) * usual_s
                time.sleep(POLL_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        assert process.returncode == 0, output.with_suffix(".err").read_text()[-3000:]
        run.rows = json.loads(output.read_text())["rows"]
        return True

    def seen(self, runs: Sequence[Run]) -> list[dict[str, Any]]:
        """What a reader finds of each run."""
        outputs = [f"{run.table_format.value}={run.root}" for run in runs]
        done = subprocess.run(
            [sys.executable, "-m", CHECK, json.dumps(self.settings), *outputs],
            env=self.environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-5000:]
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def problems(run: Run, seen: dict[str, Any], expected: dict[str, int]) -> list[str]:
    """What differs from a run without failures."""
    found = []
    offsets, rows = seen["offsets"], seen["rows"]
    every = offsets["last"] - offsets["first"] + 1
    if not offsets["first"] == 0 < offsets["rows"] == offsets["distinct"] == every:
        found.append(f"the offsets are not there once: {offsets}")
    if rows != expected or run.rows != expected:
        found.append(f"rows: {rows}, the run reported {run.rows}, expected {expected}")
    if run.table_format is not TableFormat.PARQUET:
        if set(seen["versions"]) != set(expected):
            found.append(f"the run names the versions of {sorted(seen['versions'])} only")
        # A driver may be killed after it has committed its run.
        if not 1 <= seen["run"] <= 1 + run.drivers_killed:
            found.append(f"{seen['run']} runs were committed")
    return found


def main(
    spark: Annotated[Path, typer.Option(help="Spark's directory, of the version to use.")],
    runs: Annotated[int, typer.Option(min=1)] = 20,
    seed: Annotated[int, typer.Option()] = 25,
    records: Annotated[int, typer.Option(help="The length of the log.")] = 200_000,
    packages: Annotated[
        str, typer.Option(help="Maven packages for s3a, of Spark's version of Hadoop.")
    ] = "org.apache.hadoop:hadoop-aws:3.4.2",
) -> None:
    """Kill executors and drivers of the pipeline on a standalone cluster that writes into S3."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        log = folder / "log"
        make = ("-m", "tests.spark.make_log", log, "--records", records)
        subprocess.run([sys.executable, *map(str, make)], check=True, cwd=ROOT, stdout=sys.stderr)
        harness = Harness(spark.resolve(), packages, folder, seed)
        with harness.server as server, harness.cluster:
            server.start()
            server.wait_listening(harness.server.port)
            expected = harness.expected(log)
            print(f"seed {seed}; {records} records; expected rows {expected}", flush=True)
            done: list[Run] = []
            usual_s = dict.fromkeys(TableFormat, FIRST_S)
            with suppress(KeyboardInterrupt):
                for number in range(runs):
                    table_format = tuple(TableFormat)[number % len(TableFormat)]
                    run = Run(table_format, f"s3a://{BUCKET}/run-{number}")
                    usual_s[table_format] = harness.run(log, run, usual_s[table_format])
                    print(
                        f"run {number} {table_format}: executors killed {run.executors_killed}, "
                        f"drivers killed {run.drivers_killed}, {run.seconds:.0f} s",
                        flush=True,
                    )
                    done.append(run)
            wrong = 0
            for run, seen in zip(done, harness.seen(done), strict=True):
                for problem in problems(run, seen, expected):
                    print(f"{run.root} {run.table_format}: {problem}")
                    wrong += 1
    killed = sum(run.executors_killed for run in done), sum(run.drivers_killed for run in done)
    print(
        f"{len(done)} runs, {killed[0]} executors and {killed[1]} drivers killed: {wrong} problems"
    )
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    typer.run(main)
