"""The log with one guard removed has to be found out.

    python -m tests.durability.mutants run             every mutant; writes the table in README.md
    python -m tests.durability.mutants run NAME …      these alone
    python -m tests.durability.mutants check           whether every mutant still applies

A mutant is killed by the first seed of its mode that finds a violation, which the log as it is does
not have; it lives after `--seeds` of them.
"""

from __future__ import annotations

import multiprocessing
import shutil
from functools import partial
from pathlib import Path
from typing import Annotated, Optional

import typer

from tests.durability.__main__ import folder, run_one
from tests.durability.mutants.catalogue import MUTANTS
from tests.durability.mutants.patching import Mutant, install_named, mutated_sources

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)
TABLE = Path(__file__).parent / "README.md"
SEEDS_MAX = 1000
Verdict = tuple[str, int, str]


def decide(name: str, seeds: int, base: Path) -> Verdict:
    """Run one mutant, for which this process is there: its name, seeds run, what killed it."""
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    install_named(name)
    for seed in range(seeds):
        violation = run_one(mutant.mode, base / name, seed)[1]
        if violation is not None:
            return name, seed + 1, violation
    return name, seeds, ""


def _sound(mode: str, base: Path, seed: int) -> str | None:
    return run_one(mode, base / "sound", seed)[1]


@app.command()
def check() -> None:
    """Whether every mutant still applies to the log's source, and compiles."""
    stale = []
    for mutant in MUTANTS:
        try:
            for source in mutated_sources(mutant).values():
                compile(source, mutant.name, "exec")
        except (ValueError, SyntaxError) as error:
            stale.append(str(error))
    print("\n".join([*stale, f"{len(MUTANTS) - len(stale)} of {len(MUTANTS)} apply"]))
    raise typer.Exit(1 if stale else 0)


@app.command()
def run(
    names: Annotated[Optional[list[str]], typer.Argument(help="All if none.")] = None,  # noqa: UP045
    seeds: Annotated[int, typer.Option(help="How many seeds a mutant may live.")] = SEEDS_MAX,
    jobs: Annotated[int, typer.Option(help="How many at once.")] = 2,
) -> None:
    """Run mutants until a seed kills them; exit with 1 if one lives, or if a seed that kills also
    breaks the log as it is.
    """
    wanted = [mutant for mutant in MUTANTS if not names or mutant.name in names]
    base = folder()
    verdicts: dict[str, Verdict] = {}
    fork = multiprocessing.get_context("fork")
    try:
        with fork.Pool(1) as sound, fork.Pool(jobs, maxtasksperchild=1) as pool:
            work = partial(decide, seeds=seeds, base=base)
            for verdict in pool.imap_unordered(work, [mutant.name for mutant in wanted]):
                name, count, killed_by = verdict
                mutant = next(mutant for mutant in wanted if mutant.name == name)
                if killed_by and sound.apply(_sound, (mutant.mode, base, count - 1)):
                    print(f"seed {count - 1} breaks the log without a mutant")
                    raise typer.Exit(2)
                verdicts[name] = verdict
                print(f"{name}: {killed_by[:140] or 'LIVES'} ({count} seeds)", flush=True)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    if not names:
        TABLE.write_text(_table(wanted, verdicts), encoding="utf-8")
    alive = [name for name, (_, _, killed_by) in verdicts.items() if not killed_by]
    print(f"{len(alive)} of {len(wanted)} live: {', '.join(sorted(alive)) or '-'}")
    raise typer.Exit(1 if alive else 0)


def _table(mutants: list[Mutant], verdicts: dict[str, Verdict]) -> str:
    killed = sum(bool(verdict[2]) for verdict in verdicts.values())
    lines = [
        "# Mutants of the log",
        "",
        "Written by `python -m tests.durability.mutants run`. Each row is the log without one",
        "guard. Seeds 0, 1, 2, … of its mode run until one finds a violation; the log as it is",
        "passes that seed.",
        "",
        f"{killed} of {len(mutants)} are killed.",
        "",
        "| mutant | the guard that is gone | mode | seeds | killed |",
        "|---|---|---|---|---|",
    ]
    for mutant in mutants:
        _, seeds, killed_by = verdicts[mutant.name]
        by = "yes" if killed_by else "**lives**"
        lines.append(f"| {mutant.name} | {mutant.rule} | {mutant.mode} | {seeds} | {by} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    app()
