"""The mutants' commands: run them, or check that they apply."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
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
VERDICTS = Path(__file__).with_name("verdicts.json")
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
    verdicts = _known()
    with ThreadPoolExecutor(jobs) as executor:
        results = executor.map(lambda mutant: _in_a_process(mutant.name, first, seeds), chosen)
        _tell(chosen, results, verdicts)
    alive = [m for m in chosen if m.second_line is None and verdicts[m.name].killed_by is None]
    console.print(f"{len(alive)} live that should not: {', '.join(m.name for m in alive) or '-'}")
    raise typer.Exit(1 if alive else 0)


def _tell(
    chosen: list[Mutant],
    results: Iterator[Verdict],
    verdicts: dict[str, Verdict],
) -> None:
    """Print each verdict as it comes, and keep it for the table."""
    for mutant, verdict in zip(chosen, results, strict=True):
        verdicts[mutant.name] = verdict
        outcome = f"killed by {verdict.killed_by} (seed {verdict.seed})"
        if verdict.killed_by is None:
            outcome = "LIVES" if mutant.second_line is None else "lives, as it may,"
        console.print(f"{mutant.name}: {outcome} after {verdict.seeds} seeds")
        rows = {m.name: asdict(verdicts[m.name]) for m in MUTANTS if m.name in verdicts}
        VERDICTS.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        TABLE.write_text(_table(verdicts), encoding="utf-8")


def _known() -> dict[str, Verdict]:
    """What earlier runs found."""
    if not VERDICTS.exists():
        return {}
    rows = json.loads(VERDICTS.read_text(encoding="utf-8"))
    return {name: Verdict(**row) for name, row in rows.items()}


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


def _table(verdicts: dict[str, Verdict]) -> str:
    known = [mutant for mutant in MUTANTS if mutant.name in verdicts]
    killed = [mutant for mutant in known if verdicts[mutant.name].killed_by is not None]
    lines = [
        "# Mutants of the protocol",
        "",
        "Written by `python -m tests.simulation.mutants run`. Each row is the protocol without one",
        f"guard; seeds of the default mix run until an invariant breaks, at most {SEEDS_MAX}.",
        "",
        f"{len(killed)} of {len(known)} are killed. Those that may live have another guard behind",
        "them; both together are a mutant of their own where that can be written.",
        "",
        "| mutant | the guard that is gone | seeds | killed by |",
        "|---|---|---|---|",
    ]
    for mutant in known:
        verdict = verdicts[mutant.name]
        by = verdict.killed_by
        if by is None:
            by = f"may live: {mutant.second_line}" if mutant.second_line else "**lives**"
        lines.append(f"| {mutant.name} | {mutant.rule} | {verdict.seeds} | {by} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    app()
