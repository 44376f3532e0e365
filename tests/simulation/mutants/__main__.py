"""The mutants' commands: run them, or check that they apply.

A mutant is killed by a seed on which an invariant breaks with it, and none without it: every seed
that kills is run once more on the protocol as it is, and a violation there ends everything.

`run` resumes: verdicts.json keeps each verdict with a digest of what it depends on (the mutant, the
protocol, the simulation), and a mutant that was killed is run again only when that has changed.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Optional

import typer
from rich.console import Console

from tests.simulation.mutants.catalogue import MUTANTS, REDUNDANT
from tests.simulation.mutants.mutant import Mutant
from tests.simulation.mutants.patching import install, mutated_sources, source_path

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)
console = Console(soft_wrap=True)

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent
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
    with ThreadPoolExecutor(jobs) as executor:
        futures = [executor.submit(runs.decide, mutant, first, seeds) for mutant in todo]
        for future in as_completed(futures):
            try:
                console.print(future.result(), markup=False)
            except BrokenProtocolError as error:
                executor.shutdown(cancel_futures=True)
                console.print(str(error), style="red", markup=False)
                raise typer.Exit(2) from None
    runs.write()
    alive = [m.name for m in wanted if not runs.is_killed(m)]
    console.print(f"{len(alive)} of {len(wanted)} live: {', '.join(alive) or '-'}")
    raise typer.Exit(1 if alive else 0)


class BrokenProtocolError(Exception):
    """A seed breaks an invariant without any mutant: what it kills proves nothing."""


class Runs:
    """The verdicts, those of earlier runs among them."""

    def __init__(self, fresh: bool, keep: bool) -> None:
        self._keep = keep
        self._lock = threading.Lock()
        self._sound: set[int] = set()
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

    def decide(self, mutant: Mutant, first: int, seeds: int) -> str:
        """Run one mutant in a process of its own; return a line for people."""
        row = _in_a_process("one", mutant.name, "--first", str(first), "--seeds", str(seeds))
        verdict = Verdict(**row, of=self._digest(mutant))
        if verdict.killed_by is not None and verdict.seed not in self._sound:
            violation = _in_a_process("baseline", str(verdict.seed))["violation"]
            if violation is not None:
                text = f"seed {verdict.seed} breaks the protocol without a mutant: {violation}"
                raise BrokenProtocolError(text)
            self._sound.add(verdict.seed)
        with self._lock:
            self._verdicts[mutant.name] = verdict
            self.write()
        if verdict.killed_by is None:
            return f"{mutant.name}: LIVES after {verdict.seeds} seeds"
        return (
            f"{mutant.name}: killed by {verdict.killed_by} (seed {verdict.seed}) "
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
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _in_a_process(*arguments: str) -> dict[str, object]:
    command = [sys.executable, "-m", "tests.simulation.mutants", *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    row = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(row, dict)
    return row


@app.command()
def baseline(seed: int) -> None:
    """Run a seed on the protocol as it is; print the violation as JSON."""
    from tests.simulation.runner import run_seed

    print(json.dumps({"violation": run_seed(seed).violation}))


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

    verdict: dict[str, object] = {"seeds": seeds, "seed": -1, "killed_by": None}
    for number, seed in enumerate(range(first, first + seeds), start=1):
        violation = run_seed(seed).violation
        if violation is not None:
            if trace:
                run_scenario(draw(seed), Transcript(sys.stdout))
                console.print(violation, markup=False)
            name_of_invariant = violation.partition(":")[0]
            verdict = {"seeds": number, "seed": seed, "killed_by": name_of_invariant}
            break
    print(json.dumps(verdict))


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
