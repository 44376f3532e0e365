"""All faults, mixed, for as long as wanted, and what became of the quorum.

    python -m tests.soak --minutes 30 --seed 7
    python -m tests.soak --minutes 2 --kinds network --kinds "kill -9"
    python -m tests.soak --minutes 30 --peer-protocol kafka

A line every 30 seconds; at the end one table, and JSON with --json. The exit status is 0 if the
checker of the clients' history found nothing, every fault was recovered from, and memory and
descriptors of the processes that lived long enough are flat.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from quorate.controller.kafka.settings import GRPC, PEER_PROTOCOLS
from rich.console import Console
from rich.table import Table

from tests.soak.kinds import select
from tests.soak.nodes import build_library, compiler
from tests.soak.soak import KINDS, Report, Soak

JUDGED_MINUTES_MIN = 3.0


def table(report: Report) -> Table:
    """The report as people read it."""
    title = f"{report.seconds:.0f} s over {report.peer_protocol}, seed {report.seed}"
    shown = Table("what", "figure", title=title)
    for kind, count in report.faults.items():
        injected = report.injected.get(kind)
        more = "" if injected is None else f" ({injected} injected)"
        shown.add_row(kind, f"{count}{more}")
    shown.add_row("faults at the leader", str(report.faults_at_leader), end_section=True)
    for name in ("appended", "acknowledged", "unknown", "refused"):
        shown.add_row(name, str(getattr(report, name)))
    shown.add_row("linearizable reads", str(report.reads))
    shown.add_row("written besides", f"{report.bulk_mib:.0f} MiB")
    shown.add_row("longest gap", f"{report.longest_gap_ms:.0f} ms")
    shown.add_row("elections", str(report.elections))
    shown.add_row("processes, long enough to judge", f"{report.lives}, {len(report.trends)}")
    for trend in report.trends:
        shown.add_row(
            f"  controller {trend.node_id}, {trend.seconds:.0f} s",
            f"RSS {trend.rss_first_mib:.0f} -> {trend.rss_last_mib:.0f} MiB "
            f"(max {trend.rss_max_mib:.0f}), descriptors {trend.fds_first:g} -> "
            f"{trend.fds_last:g} (max {trend.fds_max}): {'flat' if trend.is_flat else 'GROWS'}",
        )
    shown.add_section()
    shown.add_row("violations", str(len(report.violations)))
    shown.add_row("failures", str(len(report.failures)))
    shown.add_row("verdict", "good" if report.is_good else "BAD")
    return shown


def main(
    *,
    minutes: Annotated[float, typer.Option(min=0.1)] = 30.0,
    seed: Annotated[int | None, typer.Option(help="Of the faults' order.")] = None,
    nodes: Annotated[int, typer.Option(min=3, max=9)] = 3,
    kinds: Annotated[
        list[str] | None, typer.Option(help="A kind of faults or a group of them; all by default.")
    ] = None,
    peer_protocol: Annotated[
        str, typer.Option(metavar="grpc|kafka", help="The protocol between the controllers.")
    ] = GRPC,
    as_json: Annotated[bool, typer.Option("--json", help="The report as JSON on stdout.")] = False,
) -> None:
    """Soak a quorum of real processes."""
    if compiler() is None:
        sys.exit("a C compiler is needed for the faulty disk: cc or gcc")
    if peer_protocol not in PEER_PROTOCOLS:
        sys.exit(f"--peer-protocol {peer_protocol}: expected {' or '.join(PEER_PROTOCOLS)}")
    try:
        select(KINDS, kinds or ())
    except ValueError as error:
        sys.exit(
            f"{error}; there are {', '.join(sorted({k.group for k in KINDS.values()}))}, and "
            f"{', '.join(KINDS)}"
        )
    console = Console(stderr=as_json, soft_wrap=True, highlight=False)
    seed = random.randrange(1 << 31) if seed is None else seed
    folder = Path(tempfile.mkdtemp(prefix="quorate-soak-"))
    console.print(
        f"seed {seed}, {nodes} nodes over {peer_protocol}, {minutes:g} minutes, in {folder}"
    )
    soak = Soak(
        folder,
        build_library(folder),
        nodes=nodes,
        seconds=minutes * 60,
        seed=seed,
        say=console.print,
        kinds=kinds or (),
        peer_protocol=peer_protocol,
        judges_lives=minutes >= JUDGED_MINUTES_MIN,
    )
    report = asyncio.run(soak.run())
    console.print(table(report))
    for text in (report.violations + report.failures)[:20]:
        console.print(text, markup=False)
    if as_json:
        print(json.dumps(report.json(), indent=2))
    if report.is_good:
        shutil.rmtree(folder)
    else:
        console.print(f"the processes' folders are left in {folder}")
    raise typer.Exit(0 if report.is_good else 1)


if __name__ == "__main__":
    typer.run(main)
