"""The metadata of a thousand brokers, on controllers of Quorate and of Kafka, side by side.

    python -m tests.kafka_scale
    python -m tests.kafka_scale --controllers quorate --partitions 2000 --brokers 30

Three controllers serve simulated brokers, which register, send heartbeats and change ISRs over
Kafka's protocol (`brokers`). One kind runs after the other. Phases: registration, creation of
topics, steady state, fencing, ISR changes, failovers with restarts. Exit status 1 if a broker was
fenced wrongly or a partition has no leader at the end. Needs Java 17, Maven and the shared folder.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tests.kafka import KAFKA_4_3, fetch
from tests.kafka_scale.measuring import Figure, Figures
from tests.kafka_scale.phases import Scale, measure

KINDS = {"quorate": ("quorate",), "kafka": ("kafka",), "both": ("quorate", "kafka")}


def shown(figure: Figure | None) -> str:
    if figure is None:
        return ""
    if isinstance(figure, dict):
        return " / ".join(f"{each:,.1f}" for each in figure.values())
    return f"{figure:,}"


def table(found: dict[str, Figures], scale: Scale) -> Table:
    made = Table(
        "figure (ms: p50 / p99 / max)",
        *found,
        title=f"{scale.partitions:,} partitions, {scale.brokers:,} brokers",
        caption=f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors",
    )
    for name in dict.fromkeys(name for figures in found.values() for name in figures):
        made.add_row(name, *(shown(figures.get(name)) for figures in found.values()))
    return made


def main(
    *,
    controllers: Annotated[str, typer.Option(help="quorate, kafka or both")] = "both",
    partitions: Annotated[int, typer.Option(min=1, help="Each has three replicas.")] = 200_000,
    brokers: Annotated[int, typer.Option(min=3)] = 1_000,
    steady_s: Annotated[float, typer.Option(min=1, help="Length of the steady state.")] = 60.0,
    kills: Annotated[int, typer.Option(min=1, help="Of the leading controller.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="The figures as JSON on stdout.")] = False,
) -> None:
    """Measure, and print a table."""
    if controllers not in KINDS:
        sys.exit(f"--controllers {controllers}: expected one of {', '.join(KINDS)}")
    console = Console(stderr=as_json, soft_wrap=True, highlight=False)
    scale = Scale(partitions, brokers, steady_s, kills)
    found: dict[str, Figures] = {}
    for kind in KINDS[controllers]:
        if kind == "kafka":
            fetch(KAFKA_4_3)
        folder = Path(tempfile.mkdtemp(prefix=f"kafka-scale-{kind}-"))
        console.print(f"{kind} in {folder}, load average {os.getloadavg()[0]:.1f}")
        found[kind] = measure(kind, scale, folder, console.print)
        shutil.rmtree(folder)
    console.print(table(found, scale))
    if as_json:
        print(json.dumps(found, indent=2))
    wrong = [
        name
        for figures in found.values()
        for name in ("brokers fenced wrongly", "partitions without a leader")
        if figures[name]
    ]
    raise typer.Exit(bool(wrong))


if __name__ == "__main__":
    typer.run(main)
