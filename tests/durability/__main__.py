"""Run seeds: `python -m tests.durability power --first 0 --count 1000 --jobs 2`."""

from __future__ import annotations

import collections
import multiprocessing
import shutil
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tests.durability.mutants.patching import install_named

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)
MEMORY = Path("/dev/shm")


def folder() -> Path:
    """For the files of the runs, in memory if there is a file system for that."""
    return Path(tempfile.mkdtemp(prefix="quorate-", dir=MEMORY if MEMORY.is_dir() else None))


def run_one(mode: str, base: Path, seed: int) -> tuple[int, str | None, int, str]:
    """Run a seed on the log that this process has imported, or imports now."""
    if mode == "power":
        from tests.durability.power import run
    else:
        from tests.durability.sectors import run
    outcome = run(seed, base)
    return outcome.seed, outcome.violation, outcome.failures, outcome.detail


def run_seeds(mode: str, first: int, count: int, jobs: int, mutant: str = "") -> int:
    """Print what was found; the number of seeds that found something."""
    base = folder()
    details: collections.Counter[str] = collections.Counter()
    began_s = time.monotonic()
    bad = failures = 0
    try:
        context = multiprocessing.get_context("fork")
        with context.Pool(jobs, partial(install_named, mutant)) as pool:
            seeds = range(first, first + count)
            work = partial(run_one, mode, base)
            for seed, violation, failed, detail in pool.imap_unordered(work, seeds, 8):
                failures += failed
                details[detail] += 1
                if violation is not None:
                    bad += 1
                    print(f"seed {seed}: {violation}", flush=True)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    took_s = time.monotonic() - began_s
    for detail, number in details.most_common():
        if detail:
            print(f"  {detail}: {number}")
    print(
        f"{mode}: {count} seeds from {first}, {failures} failures, {bad} seeds with violations, "
        f"{took_s:.0f} s, {failures / took_s:.0f} failures/s with {jobs} jobs"
    )
    return bad


@app.command()
def power(
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    count: Annotated[int, typer.Option(help="How many seeds.")] = 500,
    jobs: Annotated[int, typer.Option(help="How many at once.")] = 2,
    mutant: Annotated[str, typer.Option(help="Run the log without this guard.")] = "",
) -> None:
    """Power failures at any step, killed processes and failed syncs."""
    raise typer.Exit(1 if run_seeds("power", first, count, jobs, mutant) else 0)


@app.command()
def sectors(
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    count: Annotated[int, typer.Option(help="How many seeds.")] = 500,
    jobs: Annotated[int, typer.Option(help="How many at once.")] = 2,
    mutant: Annotated[str, typer.Option(help="Run the log without this guard.")] = "",
) -> None:
    """Synced sectors that are lost, old, overwritten or flipped."""
    raise typer.Exit(1 if run_seeds("sectors", first, count, jobs, mutant) else 0)


if __name__ == "__main__":
    app()
