"""The mutants' commands: run them, or check that they apply."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Optional

import typer
from rich.console import Console

from tests.mutation.catalogue import Catalogue, Tested
from tests.mutation.patching import mutated_sources, source_path

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)
console = Console(soft_wrap=True)

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
WAIT_S = "10"
"""How long a test waits for what a mutant may prevent, seconds."""
RUN_S = 180
FAILED = 1
"""pytest's exit status when tests failed; others mean that they could not run."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """killed_by: the first test that failed, "" if all passed. problem: why they could not run."""

    killed_by: str = ""
    problem: str = ""
    seconds: float = 0.0


def catalogue(name: str) -> Catalogue:
    found = import_module(f"tests.mutation.{name}").CATALOGUE
    assert isinstance(found, Catalogue)
    return found


@app.command()
def check(name: str) -> None:
    """Whether every mutant still applies to the package's source, and compiles."""
    stale = []
    found = catalogue(name)
    for each in found.mutants:
        try:
            for source in mutated_sources(each.mutant, found.package).values():
                compile(source, each.name, "exec")
        except (ValueError, SyntaxError) as error:
            stale.append(f"{each.name}: {error}")
    console.print("\n".join([*stale, f"{len(found.mutants) - len(stale)} apply"]), markup=False)
    raise typer.Exit(1 if stale else 0)


@app.command()
def run(
    name: str,
    names: Annotated[Optional[list[str]], typer.Argument(help="All if none.")] = None,  # noqa: UP045
    jobs: Annotated[int, typer.Option(help="How many at once.")] = 2,
    first: Annotated[bool, typer.Option(help="Run the tests without a mutant first.")] = True,
) -> None:
    """Run the tests of each mutant; exit with 1 if one lives, with 2 if tests cannot be judged."""
    found = catalogue(name)
    wanted = [each for each in found.mutants if not names or each.name in names]
    tests = sorted({test for each in wanted for test in each.tests})
    verdict = _test(None, tests, RUN_S * 10) if first else Verdict()
    if verdict.killed_by or verdict.problem:
        text = f"without a mutant: {verdict.killed_by or verdict.problem}"
        console.print(text, style="red", markup=False)
        raise typer.Exit(2)
    verdicts = _kept(name)
    with ThreadPoolExecutor(jobs) as pool:
        for each, verdict in pool.map(lambda each: (each, _judge(found, each)), wanted):
            verdicts[each.name] = verdict
            outcome = verdict.problem or verdict.killed_by or "LIVES"
            console.print(f"{each.name}: {outcome} ({verdict.seconds:.0f} s)", markup=False)
            _keep(name, found, verdicts)
    alive = [each.name for each in wanted if not verdicts[each.name].killed_by]
    console.print(f"{len(alive)} of {len(wanted)} live: {', '.join(alive) or '-'}")
    raise typer.Exit(1 if alive else 0)


def _kept(name: str) -> dict[str, Verdict]:
    """The verdicts of earlier runs."""
    path = HERE / f"{name}.json"
    rows = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {mutant: Verdict(killed_by) for mutant, killed_by in rows.items()}


def _keep(name: str, found: Catalogue, verdicts: dict[str, Verdict]) -> None:
    known = [each.name for each in found.mutants if each.name in verdicts]
    rows = {mutant: verdicts[mutant].killed_by for mutant in known}
    (HERE / f"{name}.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    (HERE / f"{name}.md").write_text(_table(found, verdicts), encoding="utf-8")


def _judge(found: Catalogue, each: Tested) -> Verdict:
    """The verdict on one mutant, in a copy of all that its tests import."""
    with tempfile.TemporaryDirectory(prefix="quorate-mutant-") as folder:
        root = source_path("__init__", found.package.partition(".")[0]).parent
        copied = Path(folder) / root.name
        shutil.copytree(root, copied)
        place = copied.joinpath(*found.package.split(".")[1:])
        for module, text in mutated_sources(each.mutant, found.package).items():
            (place / f"{module}.py").write_text(text, encoding="utf-8")
        return _test(Path(folder), list(each.tests), RUN_S)


def _test(first: Path | None, tests: list[str], limit_s: int) -> Verdict:
    """Run tests until one fails. first: where modules are looked for before all other places."""
    variables = {**os.environ, "QUORATE_TEST_WAIT_S": WAIT_S}
    if first is not None:
        variables["PYTHONPATH"] = str(first)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider"]
    began = time.monotonic()
    try:
        ran = subprocess.run(
            [*command, *tests],
            cwd=ROOT,
            env=variables,
            capture_output=True,
            text=True,
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired:
        return Verdict(problem=f"no end within {limit_s} s", seconds=time.monotonic() - began)
    took = time.monotonic() - began
    if ran.returncode == 0:
        return Verdict(seconds=took)
    failed = [line for line in ran.stdout.splitlines() if line.startswith("FAILED ")]
    if ran.returncode != FAILED or not failed:
        return Verdict(problem=f"pytest: {ran.stdout[-500:]}{ran.stderr[-500:]}", seconds=took)
    return Verdict(killed_by=failed[0].split()[1].rpartition("::")[2], seconds=took)


def _table(found: Catalogue, verdicts: dict[str, Verdict]) -> str:
    known = [each for each in found.mutants if each.name in verdicts]
    killed = [each for each in known if verdicts[each.name].killed_by]
    lines = [
        f"# Mutants of {found.package}",
        "",
        f"Written by `python -m tests.mutation run {found.package.rpartition('.')[2]}`.",
        "Each row is the package without one guard, and the test that fails then.",
        "",
        f"{len(killed)} of {len(known)} are killed.",
        "",
        "| mutant | module | the guard that is gone | killed by |",
        "|---|---|---|---|",
    ]
    for each in known:
        by = verdicts[each.name].killed_by or "**lives**"
        module = each.mutant.changes[0][0]
        lines.append(f"| {each.name} | {module} | {each.mutant.rule} | {by} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    app()
