"""The command: `python -m tests.hostile --count 1000000`."""

from __future__ import annotations

import hashlib
import resource
import time
import traceback
from pathlib import Path
from random import Random
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.hostile.decoders import Decoder, decoders
from tests.hostile.inputs import hostile

KEPT = Path(__file__).with_name("kept")
SLOW_S = 2.0


def try_one(decoder: Decoder, data: bytes) -> str | None:
    """What went wrong with one input; None if the decoder took it or refused it as it may."""
    started = time.perf_counter()
    try:
        decoder.decode(data)
    except decoder.refusals:
        pass
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
    spent = time.perf_counter() - started
    return f"took {spent:.1f} s" if spent > SLOW_S else None


def keep(decoder: Decoder, data: bytes) -> Path:
    """Remember an input that failed."""
    KEPT.mkdir(exist_ok=True)
    path = KEPT / f"{decoder.name}-{hashlib.sha256(data).hexdigest()[:12]}.bin"
    path.write_bytes(data)
    return path


def resident_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(
    count: Annotated[int, typer.Option(min=1, help="How many inputs in all.")] = 100_000,
    seed: Annotated[int, typer.Option(help="Of the first input; each has its own.")] = 0,
) -> None:
    """Give every decoder hostile inputs; exit with 1 if one did anything but take or refuse."""
    console = Console()
    found = decoders()
    failures: dict[tuple[str, str], Path] = {}
    before = resident_mib()
    for number in track(range(count), description="inputs", console=console, transient=True):
        decoder = found[number % len(found)]
        data = hostile(Random(f"{seed} {number}"), list(decoder.corpus))
        problem = try_one(decoder, data)
        if problem is not None and (decoder.name, problem) not in failures:
            failures[decoder.name, problem] = keep(decoder, data)
    table = Table("what", "how much", title="Hostile input", title_justify="left")
    for row in (
        ("inputs", f"{count:,}"),
        ("decoders", f"{len(found)}"),
        ("failures of different kinds", f"{len(failures)}"),
        ("memory at the beginning and at most", f"{before:.0f} and {resident_mib():.0f} MiB"),
    ):
        table.add_row(*row)
    console.print(table)
    for (name, problem), path in failures.items():
        console.print(f"{name}: {problem}\n  {path}", style="red", markup=False)
    raise typer.Exit(1 if failures else 0)


if __name__ == "__main__":
    typer.run(main)
