"""The mutants' commands: run them, or check that they apply.

A mutant is killed by a seed on which an invariant breaks with it, and none without it: every seed
that kills is run once more on the protocol as it is, and a violation there ends everything.

`run` resumes: verdicts.json keeps each verdict with a digest of what it depends on (the mutant, the
protocol, the simulation), and a mutant that was killed is run again only when that has changed.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import sys
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from rich.console import Console

from tests.simulation.mutants.catalogue import MUTANTS, REDUNDANT
from tests.simulation.mutants.mutant import Mutant
from tests.simulation.mutants.patching import install, mutated_sources, source_path

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)
console = Console(soft_wrap=True)

HERE = Path(__file__).parent
REPLICA = HERE.parents[1] / "replica"
TABLE = HERE / "README.md"
VERDICTS = HERE / "verdicts.json"
SEEDS_MAX = 2_000
"""A mutant that survives this many seeds lives."""

WITHOUT_INFLUENCE = (
    "__init__",
    "__main__",
    "determinism",
    "shrink",
    "test_simulation",
    "transcript",
)
"""Modules of the simulation that no verdict depends on."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """killed_by: the invariant; None if the mutant lives after `seeds`. of: the digest of what the
    verdict depends on.
    """

    seeds: int
    seed: int = -1
    killed_by: str | None = None
    of: str = ""


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
def run(  # noqa: PLR0917 - options
    names: Annotated[Optional[list[str]], typer.Argument(help="All if none.")] = None,  # noqa: UP045
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    seeds: Annotated[int, typer.Option(help="How many seeds a mutant may live.")] = SEEDS_MAX,
    jobs: Annotated[int, typer.Option(help="How many at once.")] = 2,
    fresh: Annotated[bool, typer.Option(help="Believe no earlier verdict.")] = False,
    keep: Annotated[bool, typer.Option(help="Write verdicts.json and the table.")] = True,
) -> None:
    """Run mutants until a seed kills them; exit with 1 if one lives, with 2 if a seed that kills
    breaks the protocol as it is.
    """
    runs = Runs(fresh, keep)
    wanted = [m for m in MUTANTS if not names or m.name in names]
    todo = [m for m in wanted if not runs.is_killed(m)]
    console.print(f"{len(wanted) - len(todo)} of {len(wanted)} are known to be killed")
    # A process for each mutant, forked before it has imported the protocol, and one that imports
    # the protocol as it is.
    fork = multiprocessing.get_context("fork")
    with fork.Pool(1) as sound, fork.Pool(jobs, maxtasksperchild=1) as pool:
        decide = partial(_decide, first=first, seeds=seeds)
        for name, row in pool.imap_unordered(decide, [mutant.name for mutant in todo]):
            seed = row["seed"]
            violation = None if runs.is_sound(seed) else sound.apply(_violation, (seed,))
            if violation is not None:
                text = f"seed {seed} breaks the protocol without a mutant: {violation}"
                console.print(text, style="red", markup=False)
                raise typer.Exit(2)
            console.print(runs.take(name, row), markup=False)
    runs.write()
    alive = [m.name for m in wanted if not runs.is_killed(m)]
    console.print(f"{len(alive)} of {len(wanted)} live: {', '.join(alive) or '-'}")
    raise typer.Exit(1 if alive else 0)


class Runs:
    """The verdicts, those of earlier runs among them."""

    def __init__(self, fresh: bool, keep: bool) -> None:
        self._keep = keep
        self._sound = {-1}
        self._common = _digest_of_sources()
        known = {} if fresh or not VERDICTS.exists() else json.loads(VERDICTS.read_text("utf-8"))
        names = {mutant.name for mutant in MUTANTS}
        self._verdicts = {n: Verdict(**row) for n, row in known.items() if n in names}

    def _digest(self, mutant: Mutant) -> str:
        text = f"{self._common} {mutant.changes}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def is_killed(self, mutant: Mutant) -> bool:
        verdict = self._verdicts.get(mutant.name)
        if verdict is None or verdict.killed_by is None:
            return False
        return verdict.of == self._digest(mutant)

    def is_sound(self, seed: int) -> bool:
        """Whether the seed passed on the protocol as it is."""
        return seed in self._sound

    def take(self, name: str, row: dict[str, Any]) -> str:
        """Keep a verdict whose seed is sound; return a line for people."""
        verdict = Verdict(**row, of=self._digest(_named(name)))
        self._sound.add(verdict.seed)
        self._verdicts[name] = verdict
        self.write()
        if verdict.killed_by is None:
            return f"{name}: LIVES after {verdict.seeds} seeds"
        return (
            f"{name}: killed by {verdict.killed_by} (seed {verdict.seed}) "
            f"after {verdict.seeds} seeds"
        )

    def write(self) -> None:
        if not self._keep:
            return
        known = {m.name: self._verdicts[m.name] for m in MUTANTS if m.name in self._verdicts}
        rows = {name: asdict(verdict) for name, verdict in known.items()}
        VERDICTS.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        TABLE.write_text(_table(known), encoding="utf-8")


def _digest_of_sources() -> str:
    """Of everything that decides what happens on a seed, less the mutants."""
    paths = sorted(source_path("node").parent.glob("*.py"))
    paths += sorted(p for p in HERE.parent.glob("*.py") if p.stem not in WITHOUT_INFLUENCE)
    paths += sorted(REPLICA.glob("*.py"))
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _named(name: str) -> Mutant:
    return next(mutant for mutant in MUTANTS if mutant.name == name)


def _violation(seed: int) -> str | None:
    """Run a seed on the protocol that this process has imported, or imports now."""
    from tests.simulation.runner import run_seed

    return run_seed(seed).violation


def _decide(name: str, first: int, seeds: int) -> tuple[str, dict[str, Any]]:
    """Run one mutant, for which this process is there, until a seed kills it."""
    install(_named(name))
    for number, seed in enumerate(range(first, first + seeds), start=1):
        violation = _violation(seed)
        if violation is not None:
            killed_by = violation.partition(":")[0]
            return name, {"seeds": number, "seed": seed, "killed_by": killed_by}
    return name, {"seeds": seeds, "seed": -1, "killed_by": None}


@app.command()
def one(
    name: str,
    first: Annotated[int, typer.Option()] = 0,
    seeds: Annotated[int, typer.Option()] = SEEDS_MAX,
    trace: Annotated[bool, typer.Option("--trace", help="Print the killing seed's run.")] = False,
) -> None:
    """Run one mutant in this process; print its verdict as JSON."""
    _, row = _decide(name, first, seeds)
    if trace and row["seed"] >= 0:
        from tests.simulation.plan import draw
        from tests.simulation.runner import run_scenario
        from tests.simulation.transcript import Transcript

        result = run_scenario(draw(row["seed"]), Transcript(sys.stdout))
        console.print(result.violation, markup=False)
    print(json.dumps(row))


def _table(verdicts: dict[str, Verdict]) -> str:
    known = [mutant for mutant in MUTANTS if mutant.name in verdicts]
    killed = [mutant for mutant in known if verdicts[mutant.name].killed_by is not None]
    lines = [
        "# Mutants of the protocol",
        "",
        "Written by `python -m tests.simulation.mutants run`. Each row is the protocol without one",
        "guard, or without two where one stands behind the other. Seeds 0, 1, 2, … of the default",
        f"mix run until an invariant breaks, at most {SEEDS_MAX:,}; the seed that kills passes on",
        "the protocol as it is.",
        "",
        f"{len(killed)} of {len(known)} are killed.",
        "",
        "| mutant | the guard that is gone | seeds | killed by |",
        "|---|---|---|---|",
    ]
    for mutant in known:
        verdict = verdicts[mutant.name]
        by = verdict.killed_by or "**lives**"
        lines.append(f"| {mutant.name} | {mutant.rule} | {verdict.seeds} | {by} |")
    lines += [
        "",
        "Guards with another guard behind them: without the first alone nothing happens that",
        "anybody could see, so the mutant lacks both.",
        "",
        "| guard | what stands behind it | the mutant without both |",
        "|---|---|---|",
    ]
    lines += [f"| {r.guard} | {r.behind} | {r.both} |" for r in REDUNDANT]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    app()
