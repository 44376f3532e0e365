"""Kafka's controller and Quorate's, driven by one stream of random requests.

    python -m tests.kafka_differential --requests 1000000 --seed 1
    python -m tests.kafka_differential --requests 2000 --json

One controller of Kafka 4.3 and one of Quorate, each alone in its quorum, get the same requests over
Kafka's protocol: those of brokers, administrators and clients, valid and invalid, on a state that
they keep changing. After each request both responses are compared, and the records that both
controllers wrote; after a thousand, the images of both logs.

Ids, epochs and times that a controller chooses are replaced by names first. A topic whose replicas
the controller places is compared by the numbers of its replicas and deleted at once, because
placement is random. Fields and records whose order has no meaning are compared without it. What
differs is counted by kind and shown once, with the request; if the images differ then, the stream
goes on with new controllers. The deliberate differences are in `reasons`. The stream leaves out
what ends Kafka's controllers or lets them fail (invalid listeners and recovery states, and the
deletion of a topic with eligible leader replicas), and the end of controlled shutdowns, which
depends on the offsets that other brokers have reported. Exit status 1 if there are other
differences, or if a log breaks an invariant. Needs Java 17, Maven and the shared folder.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tests.kafka_differential.running import Kind, Report, compare


def table(report: Report) -> Table:
    total = report.requests.total()
    made = Table(
        "requests",
        "count",
        "reason",
        title=(
            f"seed {report.seed}: {total:,} requests, {report.records.total():,} records, "
            f"{report.rate:,.0f} requests/s"
        ),
        caption=(
            f"{len(report.unlisted)} kinds of differences without a reason, "
            f"{len(report.violations)} violated invariants"
        ),
    )
    for name, kind in sorted(report.kinds.items()):
        made.add_row(name, f"{kind.count:,}", kind.reason.text if kind.reason else "none")
    return made


def as_json(report: Report) -> dict[str, Any]:
    return {
        "seed": report.seed,
        "requests": dict(report.requests),
        "records": dict(report.records),
        "starts": report.starts,
        "violated invariants": report.violations,
        "failure": report.failure or None,
        "requests per second": round(report.rate),
        "differences": {
            name: {
                "count": kind.count,
                "reason": kind.reason.text if kind.reason else None,
                "first request": kind.number,
                "request": kind.body,
                "Kafka": kind.first.kafka,
                "Quorate": kind.first.quorate,
            }
            for name, kind in report.kinds.items()
        },
    }


def described(name: str, kind: Kind) -> str:
    return (
        f"{name}, {kind.count:,} times, first at request {kind.number:,}:\n  {kind.body}\n"
        f"  Kafka: {kind.first.kafka}\n  Quorate: {kind.first.quorate}\n"
    )


def main(
    *,
    requests: Annotated[int, typer.Option(min=1)] = 10_000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same requests.")] = 1,
    json_output: Annotated[bool, typer.Option("--json", help="All as JSON on stdout.")] = False,
) -> None:
    """Compare, and print the differences."""
    console = Console(stderr=json_output, soft_wrap=True, highlight=False)
    folder = Path(tempfile.mkdtemp(prefix="kafka-differential-"))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        task = progress.add_task("0 kinds of differences", total=requests)

        def advance(report: Report) -> None:
            progress.update(
                task,
                completed=report.requests.total(),
                description=f"{len(report.unlisted)} unlisted kinds of differences",
            )

        report = compare(requests, seed, folder, advance)
    if not report.failure:
        shutil.rmtree(folder)
    for name, kind in sorted(report.kinds.items()):
        if kind.reason is None:
            console.print(described(name, kind), markup=False)
    console.print(table(report))
    if json_output:
        print(json.dumps(as_json(report), indent=2))
    for violation in report.violations:
        console.print(violation, markup=False)
    if report.failure:
        console.print(f"the run ended early: {report.failure}", markup=False)
    raise typer.Exit(bool(report.unlisted or report.violations or report.failure))


if __name__ == "__main__":
    typer.run(main)
