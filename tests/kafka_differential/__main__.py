"""Kafka's controller and Quorate's, driven by one stream of random requests.

    python -m tests.kafka_differential --requests 1000000 --seed 1 --out FILE
    python -m tests.kafka_differential --requests 2000 --json

One controller of Kafka 4.3 and one of Quorate, each alone in its quorum, get the same requests over
Kafka's protocol: those of brokers, administrators and clients, valid and invalid, on a state that
they keep changing. After each request both responses are compared, and the records that both
controllers wrote; after a thousand, the images of both logs.

Ids, epochs and times that a controller chooses are replaced by names first. A topic whose replicas
the controller places is compared by the numbers of its replicas and deleted at once, because
placement is random. Fields and records whose order has no meaning are compared without it. What
differs is counted by kind and shown once, with the request and the command that shows it again. The
deliberate differences are in `reasons`. The stream leaves out what ends Kafka's controllers or lets
them fail (invalid listeners and recovery states, null appended to a list, two resources of unknown
types with one name in AlterConfigs, and the deletion of a topic with eligible leader replicas), and
the end of controlled shutdowns, which depends on the offsets that other brokers have reported.

If a difference changed what the controllers store, the topics and brokers that differ are removed
from both. The next pair of controllers starts after 25,000 requests, when Kafka's controller fails,
or if the images still differ. It has the next seed, so each pair can be run again alone, and
neither logs nor memory grow. Kafka's controllers run in one process of Java, one after the other.

With --out, results are saved whenever a pair is done, and a difference when it is found; the same
command goes on with the file of a run that was ended. A line with the rate and the remaining time
is printed every half minute.

Exit status 1 if there are differences without a reason, if a log breaks an invariant, or if the run
ended early; 2 if the file is of another run. Needs Java 17, Maven and the shared folder.
"""

from __future__ import annotations

import datetime
import json
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.table import Table

from tests.kafka_differential.report import Kind, Report
from tests.kafka_differential.results import Results
from tests.kafka_differential.running import compare

PROGRESS_S: Final = 30.0
MEMORY: Final = Path("/dev/shm")
"""Where the logs are, if it exists: both controllers wait for each sync of a disk."""


def table(report: Report) -> Table:
    made = Table(
        "requests",
        "count",
        "reason",
        title=(
            f"{report.pairs:,} pairs from seed {report.seed} on: {report.total:,} requests, "
            f"{report.records.total():,} records, {report.rate:,.0f} requests/s"
        ),
        caption=(
            f"{len(report.unlisted)} kinds of differences without a reason, "
            f"{len(report.violations)} violated invariants"
        ),
    )
    for name, kind in sorted(report.kinds.items()):
        made.add_row(name, f"{kind.count:,}", kind.reason.text if kind.reason else "none")
    return made


def described(name: str, kind: Kind) -> str:
    return (
        f"{name}\n  first at request {kind.number:,} of seed {kind.seed}: {kind.command}\n"
        f"  {kind.body}\n  Kafka: {kind.first.kafka}\n  Quorate: {kind.first.quorate}\n"
    )


class Progress:
    """Prints a line now and then, and differences without a reason. count: how many requests there
    will be. before: how many were made by an earlier run.
    """

    def __init__(self, console: Console, count: int) -> None:
        self._console = console
        self._count = count
        self.before = 0
        self._began_s = self._printed_s = time.monotonic()

    def show(self, name: str, kind: Kind) -> None:
        if kind.reason is None:
            self._console.print(described(name, kind))

    def advance(self, done: Report, pair: Report) -> None:
        now_s = time.monotonic()
        if now_s - self._printed_s < PROGRESS_S:
            return
        self._printed_s = now_s
        total = done.total + pair.total
        rate = (total - self.before) / (now_s - self._began_s)
        left = datetime.timedelta(seconds=round((self._count - total) / rate))
        unlisted = {name for each in (done, pair) for name in _unlisted(each)}
        self._console.print(
            f"{total:,} of {self._count:,} requests, {rate:,.0f}/s, {left} left; seed {pair.seed}; "
            f"{len(unlisted)} kinds of differences without a reason"
        )


def _unlisted(report: Report) -> list[str]:
    return [name for name, kind in report.kinds.items() if kind.reason is None]


def main(
    *,
    requests: Annotated[int, typer.Option(min=1)] = 10_000,
    seed: Annotated[int, typer.Option(help="Of the first pair of controllers.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="Save results here as lines of JSON, or go on with them.")
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="All as JSON on stdout.")] = False,
) -> None:
    """Compare, and print the differences."""
    console = Console(stderr=json_output, soft_wrap=True, highlight=False, markup=False)
    progress = Progress(console, requests)
    try:
        results = Results(out, seed, progress.show, progress.advance)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    folder = Path(tempfile.mkdtemp("", "kafka-differential-", MEMORY if MEMORY.exists() else None))
    progress.before = results.done.total
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        report = compare(requests, seed, folder, results)
    except KeyboardInterrupt:
        shutil.rmtree(folder)
        raise
    if not report.failure:
        shutil.rmtree(folder)
    console.print(table(report))
    if json_output:
        print(json.dumps(report.as_json(), indent=2))
    for violation in report.violations:
        console.print(violation)
    if report.failure:
        console.print(f"the run ended early: {report.failure}")
    raise typer.Exit(not report.is_clean)


if __name__ == "__main__":
    typer.run(main)
