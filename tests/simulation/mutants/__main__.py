"""The mutants' commands: run them, or check that they apply."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Optional

import typer
from rich.console import Console

from tests.simulation.mutants.catalogue import MUTANTS
from tests.simulation.mutants.mutant import Mutant
from tests.simulation.mutants.patching import install, mutated_sources

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)
console = Console()

ROOT = Path(__file__).parents[3]
TABLE = Path(__file__).with_name("README.md")
SEEDS_MAX = 250
"""A mutant that survives this many seeds lives."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """killed_by: the invariant; None if the mutant lives after `seeds`."""

    seeds: int
    seed: int = -1
    killed_by: str | None = None


@app.command()
def check() -> None:
    """Whether every mutant still applies to the protocol's source, and compiles."""
    stale = []
    for mutant in MUTANTS:
        try:
            for source in mutated_sources(mutant).values():
                compile(source, mutant.name, "exec")
        except ValueError as error:
            stale.append(str(error))
    console.print("\n".join([*stale, f"{len(MUTANTS) - len(stale)} of {len(MUTANTS)} apply"]))
    raise typer.Exit(1 if stale else 0)


@app.command()
def run(
    names: Annotated[Optional[list[str]], typer.Argument(help="All if none.")] = None,  # noqa: UP045
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    seeds: Annotated[int, typer.Option(help="How many seeds a mutant may live.")] = SEEDS_MAX,
    jobs: Annotated[int, typer.Option(help="How many at once.")] = 2,
) -> None:
    """Run mutants until a seed kills them; exit with 1 if one lives."""
    chosen = [mutant for mutant in MUTANTS if not names or mutant.name in names]
    verdicts: dict[str, Verdict] = {}
    with ThreadPoolExecutor(jobs) as executor:
        results = executor.map(lambda mutant: _in_a_process(mutant.name, first, seeds), chosen)
        _tell(chosen, results, verdicts, None if names else seeds)
    alive = [m for m in chosen if m.second_line is None and verdicts[m.name].killed_by is None]
    console.print(f"{len(alive)} live that should not: {', '.join(m.name for m in alive) or '-'}")
    raise typer.Exit(1 if alive else 0)


def _tell(
    chosen: list[Mutant],
    results: Iterator[Verdict],
    verdicts: dict[str, Verdict],
    seeds: int | None,
) -> None:
    """Print each verdict as it comes; with `seeds`, write the table too."""
    for mutant, verdict in zip(chosen, results, strict=True):
        verdicts[mutant.name] = verdict
        outcome = f"killed by {verdict.killed_by} (seed {verdict.seed})"
        if verdict.killed_by is None:
            outcome = "LIVES" if mutant.second_line is None else "lives, as it may,"
        console.print(f"{mutant.name}: {outcome} after {verdict.seeds} seeds")
        if seeds is not None:
            TABLE.write_text(_table(verdicts, seeds), encoding="utf-8")


def _in_a_process(name: str, first: int, seeds: int) -> Verdict:
    command = [
        sys.executable, "-m", "tests.simulation.mutants", "one", name,
        "--first", str(first), "--seeds", str(seeds),
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return Verdict(**json.loads(done.stdout.splitlines()[-1]))


@app.command()
def one(
    name: str,
    first: Annotated[int, typer.Option()] = 0,
    seeds: Annotated[int, typer.Option()] = SEEDS_MAX,
    trace: Annotated[bool, typer.Option("--trace", help="Print the killing seed's run.")] = False,
) -> None:
    """Run one mutant in this process; print its verdict as JSON."""
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    install(mutant)
    from tests.simulation.plan import draw
    from tests.simulation.runner import run_scenario, run_seed
    from tests.simulation.transcript import Transcript

    verdict = Verdict(seeds)
    for number, seed in enumerate(range(first, first + seeds), start=1):
        violation = run_seed(seed).violation
        if violation is not None:
            if trace:
                run_scenario(draw(seed), Transcript(sys.stdout))
                console.print(violation, markup=False)
            verdict = Verdict(number, seed, violation.partition(":")[0])
            break
    print(
        json.dumps({"seeds": verdict.seeds, "seed": verdict.seed, "killed_by": verdict.killed_by})
    )


def _table(verdicts: dict[str, Verdict], seeds: int) -> str:
    killed = [verdict for verdict in verdicts.values() if verdict.killed_by is not None]
    lines = [
        "# Mutants of the protocol",
        "",
        "Written by `python -m tests.simulation.mutants run`. Each row is the protocol without one",
        f"guard; seeds of the default mix run until an invariant breaks, at most {seeds}.",
        "",
        f"{len(killed)} of {len(verdicts)} are killed. Those that may live have another guard",
        "behind them; both together are a mutant of their own where that can be written.",
        "",
        "| mutant | the guard that is gone | seeds | killed by |",
        "|---|---|---|---|",
    ]
    rules: dict[str, Mutant] = {mutant.name: mutant for mutant in MUTANTS}
    for name, verdict in verdicts.items():
        by = verdict.killed_by or rules[name].second_line or "**lives**"
        lines.append(f"| {name} | {rules[name].rule} | {verdict.seeds} | {by} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    app()
