"""The log with one guard removed has to be found out.

    python -m tests.durability.mutants run             every mutant; writes the table in README.md
    python -m tests.durability.mutants run NAME …      these alone
    python -m tests.durability.mutants check           whether every mutant still applies

A mutant is killed by the first seed of its mode that finds a violation, which the log as it is does
not have; it lives after `--seeds` of them. `run` resumes: verdicts.json keeps each verdict with a
digest of what it depends on (the mutant, the log, the fault model), and a mutant that was killed is
run again only when that has changed.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Optional

import typer

from tests.durability.__main__ import folder, run_one
from tests.durability.mutants.catalogue import MUTANTS, REDUNDANT
from tests.durability.mutants.patching import Mutant, install_named, mutated_sources, source_path

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)
HERE = Path(__file__).parent
TABLE = HERE / "README.md"
VERDICTS = HERE / "verdicts.json"
SEEDS_MAX = 3000
BROKEN = ("NameError", "SyntaxError", "UnboundLocalError")
"""What a mutant dies of that is none."""
POWER = ("disk", "power", "replica", "stepping")
MODEL = {"power": POWER, "sectors": (*POWER, "sectors")}
"""The modules that decide what happens on a seed, by mode."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """killed_by: what the seed that kills finds; "" if the mutant lives after `seeds`. of: the
    digest of what the verdict depends on.
    """

    seeds: int
    killed_by: str
    of: str = ""


def decide(name: str, seeds: int, base: Path) -> tuple[str, Verdict]:
    """Run one mutant, for which this process is there, until a seed kills it."""
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    install_named(name)
    for seed in range(seeds):
        violation = run_one(mutant.mode, base / name, seed)[1]
        if violation is not None:
            assert not violation.startswith(BROKEN), f"{name} is no mutant: {violation}"
            return name, Verdict(seed + 1, violation.replace(str(base / name), "…"))
    return name, Verdict(seeds, "")


def _sound(mode: str, base: Path, seed: int) -> str | None:
    return run_one(mode, base / "sound", seed)[1]


def _common(mode: str) -> str:
    """Digest of the log and of the fault model."""
    paths = sorted(source_path("disk").parent.glob("*.py"))
    paths += [HERE.parent / f"{name}.py" for name in MODEL[mode]]
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _digest(mutant: Mutant) -> str:
    text = f"{_common(mutant.mode)} {mutant.mode} {mutant.changes}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _load() -> dict[str, Verdict]:
    known = json.loads(VERDICTS.read_text("utf-8")) if VERDICTS.exists() else {}
    return {name: Verdict(**row) for name, row in known.items()}


def _save(verdicts: Mapping[str, Verdict]) -> None:
    known = {m.name: verdicts[m.name] for m in MUTANTS if m.name in verdicts}
    rows = {name: asdict(verdict) for name, verdict in known.items()}
    VERDICTS.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    TABLE.write_text(_table(known), encoding="utf-8")


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
    verdicts, base = _load(), folder()
    digests = {mutant.name: _digest(mutant) for mutant in wanted}
    todo = [
        mutant
        for mutant in wanted
        if (known := verdicts.get(mutant.name)) is None
        or not known.killed_by
        or known.of != digests[mutant.name]
    ]
    modes = {mutant.name: mutant.mode for mutant in wanted}
    print(f"{len(wanted) - len(todo)} of {len(wanted)} are known to be killed", flush=True)
    fork = multiprocessing.get_context("fork")
    try:
        with fork.Pool(1) as sound, fork.Pool(jobs, maxtasksperchild=1) as pool:
            work = partial(decide, seeds=seeds, base=base)
            for name, found in pool.imap_unordered(work, [mutant.name for mutant in todo]):
                last = found.seeds - 1
                if found.killed_by and sound.apply(_sound, (modes[name], base, last)):
                    print(f"seed {last} breaks the log without a mutant")
                    raise typer.Exit(2)
                verdicts[name] = Verdict(found.seeds, found.killed_by[:200], digests[name])
                _save(verdicts)
                print(
                    f"{name}: {found.killed_by[:140] or 'LIVES'} ({found.seeds} seeds)", flush=True
                )
    finally:
        shutil.rmtree(base, ignore_errors=True)
    _save(verdicts)
    alive = [mutant.name for mutant in wanted if not verdicts[mutant.name].killed_by]
    print(f"{len(alive)} of {len(wanted)} live: {', '.join(alive) or '-'}")
    raise typer.Exit(1 if alive else 0)


def _table(verdicts: Mapping[str, Verdict]) -> str:
    known = [mutant for mutant in MUTANTS if mutant.name in verdicts]
    killed = [mutant for mutant in known if verdicts[mutant.name].killed_by]
    lines = [
        "# Mutants of the log",
        "",
        "Written by `python -m tests.durability.mutants run`. Each row is the log without one",
        "guard, or without two where one stands behind the other. Seeds 0, 1, 2, … of its mode",
        f"run until one finds a violation, at most {SEEDS_MAX:,}; the log as it is passes that",
        "seed.",
        "",
        f"{len(killed)} of {len(known)} are killed.",
        "",
        "| mutant | the guard that is gone | mode | seeds | killed by |",
        "|---|---|---|---|---|",
    ]
    for mutant in known:
        verdict = verdicts[mutant.name]
        by = _shortened(verdict.killed_by) or "**lives**"
        lines.append(f"| {mutant.name} | {mutant.rule} | {mutant.mode} | {verdict.seeds} | {by} |")
    lines += [
        "",
        "Guards with another guard behind them: without the first alone nothing happens that",
        "anybody could see.",
        "",
        "| guard | what stands behind it | the mutant without both |",
        "|---|---|---|",
    ]
    lines += [f"| {r.guard} | {r.behind} | {r.both or '-'} |" for r in REDUNDANT]
    return "\n".join([*lines, ""])


def _shortened(violation: str) -> str:
    """Without the life's number and what is not the same in words."""
    text = re.sub(r"^life \d+: ", "", violation).replace("|", "/")
    return text if len(text) <= 90 else text[:89].rsplit(" ", 1)[0] + " …"


if __name__ == "__main__":
    app()
