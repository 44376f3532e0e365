"""A key-value store in three processes under faults, on Quorate or on PySyncObj, and a verdict.

    python -m tests.key_value --store quorate --minutes 3 --seed 7
    python -m tests.key_value --store pysyncobj --minutes 3 --seed 7 --json
    python -m tests.key_value --guarantees

Three processes run examples/key_value_store.py, or the same program on PySyncObj
(tests/key_value/pysyncobj_store.py, installed on first use in an environment of its own). Six
clients put values that nobody put before and get them, while processes are killed, paused and
partitioned. The same seed gives the same faults in the same order. At the end:

- the puts and gets of each key must be linearizable; a put with an unknown outcome may have taken
  effect or not,
- every acknowledged value is in the log that the nodes applied once, at the offset of its
  acknowledgement, and no refused value is,
- all nodes applied the same log, and answer the same,
- snapshots are small, and the nodes that start restore one.

Exit status 1 if one of this is violated, or the store does not serve again within a minute. The
partitions need root and `ip`; without them the run leaves them out, and says so.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tests.key_value.guarantees import page
from tests.key_value.namespaces import Namespaces, NoNamespacesError
from tests.key_value.run import Run
from tests.key_value.stores import NODES, STORES
from tests.key_value.verdict import Report

SHOWN_MAX = 20


def table(report: Report) -> Table:
    """The report as people read it."""
    without = "" if report.partitions else ", without partitions"
    title = f"{report.store} ({report.version}), {report.seconds:.0f} s, seed {report.seed}"
    shown = Table("what", "figure", title=title + without)
    for name, count in report.faults.items():
        shown.add_row(name, str(count))
    shown.add_section()
    shown.add_row("puts", str(report.puts))
    shown.add_row("  acknowledged", str(report.acknowledged))
    shown.add_row("  rejected", str(report.refused))
    shown.add_row("  outcome unknown", f"{report.unknown} ({report.unknown_in_log} in the log)")
    for error, counts in report.errors.items():
        shown.add_row(f"    {error}", f"{counts['puts']} ({counts['in the log']} in the log)")
    shown.add_row(f"gets, {report.reads}", str(report.gets))
    shown.add_row("gets that failed", str(sum(report.failed_gets.values())), end_section=True)
    gap = f"{report.longest_gap_s:.1f} s, after: {report.longest_gap_fault}"
    shown.add_row("longest time without an acknowledged put", gap)
    shown.add_row("snapshots restored at a start", str(report.restored - report.restored_running))
    shown.add_row("snapshots restored while running", str(report.restored_running))
    shown.add_row("critical lines in the nodes' logs", str(report.alarms))
    shown.add_section()
    shown.add_row("violations", str(len(report.violations)))
    shown.add_row("failures", str(len(report.failures)))
    return shown


def main(
    *,
    store: Annotated[str, typer.Option(metavar="quorate|pysyncobj")] = "quorate",
    minutes: Annotated[float, typer.Option(min=0.1)] = 3.0,
    seed: Annotated[int | None, typer.Option(help="Of the faults and the clients.")] = None,
    local_reads: Annotated[
        bool, typer.Option("--local-reads", help="PySyncObj only: get the node's own state.")
    ] = False,
    guarantees: Annotated[
        bool, typer.Option("--guarantees", help="Only print the table of guarantees.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The report as JSON on stdout.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the processes' folders.")] = False,
    out: Annotated[Path | None, typer.Option(help="A file for the report as JSON.")] = None,
) -> None:
    """Run a store under faults and judge what its clients and nodes saw."""
    if guarantees:
        print(page(), end="")
        return
    if store not in STORES:
        sys.exit(f"--store {store}: expected {' or '.join(STORES)}")
    if local_reads and store != "pysyncobj":
        sys.exit("--local-reads: only the program on PySyncObj has them")
    console = Console(stderr=as_json, soft_wrap=True, highlight=False)
    seed = random.randrange(1 << 31) if seed is None else seed
    folder = Path(tempfile.mkdtemp(prefix=f"key-value-{store}-"))
    console.print(f"{store}, {minutes:g} minutes, seed {seed}, in {folder}")
    with ExitStack() as stack:
        namespaces = None
        try:
            namespaces = Namespaces(len(NODES))
            stack.callback(namespaces.close)
        except NoNamespacesError as error:
            console.print(f"no partitions, which need root and network namespaces: {error}")
        run = Run(
            store, folder, namespaces,
            seconds=minutes * 60, seed=seed, local_reads=local_reads, say=console.print,
        )  # fmt: skip
        try:
            report = run.run()
        except TimeoutError as error:
            sys.exit(f"the store did not start: {error}; its folders are in {folder}")
    console.print(table(report))
    for text in (report.violations + report.failures)[:SHOWN_MAX]:
        console.print(text, markup=False)
    text = json.dumps(report.json(), indent=2)
    if as_json:
        print(text)
    if out is not None:
        out.write_text(text + "\n")
    if keep or not report.is_good:
        console.print(f"the processes' folders are left in {folder}")
    else:
        shutil.rmtree(folder)
    raise typer.Exit(0 if report.is_good else 1)


if __name__ == "__main__":
    typer.run(main)
