"""The simulation's commands: run many seeds, replay one, shrink one."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Optional

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tests.simulation.determinism import compare, trace_digest
from tests.simulation.runner import Summary, run_scenario, run_seeds
from tests.simulation.shrink import Reduced, shrink
from tests.simulation.transcript import Transcript

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)
console = Console()

SEEDS_FILE = Path(__file__).with_name("seeds.txt")

Seed = Annotated[int, typer.Option("--seed", help="The seed.")]


def saved_seeds() -> list[int]:
    """The seeds that once failed, from seeds.txt: a seed a line, then why it is there."""
    lines = SEEDS_FILE.read_text(encoding="utf-8").splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


@app.command()
def run(
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 200,
    first: Annotated[int, typer.Option(help="The first of them.")] = 0,
    jobs: Annotated[int, typer.Option(help="How many processes.")] = 2,
    stop: Annotated[bool, typer.Option(help="Stop at the first violation.")] = False,
) -> None:
    """Run seeds of the default mix; exit with 1 if an invariant breaks."""
    summary = Summary()
    columns = (
        TextColumn("seeds"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        TextColumn("{task.fields[events]:,} events/s a core, {task.fields[bad]} violations"),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("run", total=seeds, events=0, bad=0)
        for result in run_seeds(range(first, first + seeds), jobs):
            summary.add(result)
            bad = len(summary.failed)
            progress.update(task, advance=1, events=summary.events_per_second, bad=bad)
            if summary.seeds % 1_000 == 0 and not console.is_terminal:
                progress.console.print(f"{summary.seeds:,} seeds, {bad} violations")
            if result.violation is not None:
                text = f"seed {result.seed}: {result.violation}"
                progress.console.print(text, style="red", markup=False)
            if stop and bad:
                break
    _print(summary)
    raise typer.Exit(1 if summary.failed else 0)


def _print(summary: Summary) -> None:
    table = Table("what", "how much", title="Simulation", title_justify="left")
    table.columns[1].justify = "right"
    for row in summary.rows():
        table.add_row(*row)
    console.print(table)
    rows = summary.fault_rows()
    table = Table(title="Faults and changes, by kind", title_justify="left", show_header=False)
    half = (len(rows) + 1) // 2
    for left, right in zip(rows[:half], [*rows[half:], ("", "")], strict=False):
        table.add_row(*left, *right)
    table.columns[1].justify = table.columns[3].justify = "right"
    console.print(table)
    for failed in summary.failed[:20]:
        console.print(f"seed {failed.seed}: {failed.violation}", style="red", markup=False)
        command = Reduced(failed.seed).command()
        console.print(f"  {command}\n  {command.replace('replay', 'shrink')[:-8]}", markup=False)


@app.command()
def replay(
    seed: Seed,
    keep: Annotated[Optional[str], typer.Option(help="Only these actions of the plan.")] = None,  # noqa: UP045
    calm: Annotated[str, typer.Option(help="Without these, as `shrink` names them.")] = "",
    trace: Annotated[bool, typer.Option("--trace", help="Print all that happens.")] = False,
) -> None:
    """Run one seed again; exit with 1 if an invariant breaks."""
    kept = None
    if keep is not None:
        kept = tuple(int(number) for number in keep.split(",") if number not in ("", "-"))
    reduced = Reduced(seed, kept, tuple(name for name in calm.split(",") if name))
    scenario = reduced.scenario()
    transcript = Transcript(sys.stdout) if trace else None
    result = run_scenario(scenario, transcript)
    for number, action in enumerate(scenario.actions):
        console.print(f"action {number}: {action.at_us / 1e6:.3f} s {action.kind}")
    text = result.violation or "no violation"
    console.print(
        f"seed {seed}: {result.events:,} events in {result.time_us / 1e6:.1f} simulated seconds, "
        f"{result.commits:,} appends acknowledged: {text}",
        markup=False,
    )
    raise typer.Exit(1 if result.violation else 0)


@app.command(name="shrink")
def shrink_command(seed: Seed) -> None:
    """Make a failing seed small, and say how to replay what is left."""

    def tell(reduced: Reduced) -> None:
        console.print(f"{len(reduced.keep or ())} actions, calm: {', '.join(reduced.calm) or '-'}")

    reduced = shrink(seed, tell)
    if reduced is None:
        console.print(f"seed {seed} breaks nothing")
        raise typer.Exit(0)
    for action in reduced.scenario().actions:
        console.print(f"  {action.at_us / 1e6:.3f} s {action.kind}")
    console.print(reduced.command(), markup=False, soft_wrap=True)
    raise typer.Exit(1)


@app.command()
def digest(
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 10,
    core: Annotated[Optional[int], typer.Option(help="Run on this core.")] = None,  # noqa: UP045
) -> None:
    """Print the SHA-256 of the seeds' whole traces."""
    if core is not None:
        os.sched_setaffinity(0, {core})
    print(trace_digest(range(first, first + seeds)))


@app.command()
def determinism(
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 10,
) -> None:
    """Compare traces between hash seeds and cores; exit with 1 if one differs."""
    found = set()
    for traced in compare(first, seeds):
        found.add(traced.digest)
        where = "any core" if traced.core is None else f"core {traced.core}"
        text = f"PYTHONHASHSEED={traced.hash_seed:<5} {where}: {traced.digest}"
        console.print(text, soft_wrap=True)
    same = len(found) == 1
    text = "the same trace everywhere" if same else f"{len(found)} different traces"
    console.print(f"seeds {first} to {first + seeds - 1}: {text}")
    raise typer.Exit(0 if same else 1)


if __name__ == "__main__":
    app()
