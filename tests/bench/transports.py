"""The two protocols between controllers, measured in turns on one machine, as a table.

    python -m tests.bench.transports --runs 5

Runs alternate between gRPC and Kafka's protocol, and every other turn begins with the other one:
what the machine does meanwhile hits both. Each run is a new quorum of three controllers. Arguments
after `--` go to `quorate bench`.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from quorate.controller.kafka.settings import PEER_PROTOCOLS

from tests.bench.__main__ import console, run
from tests.bench.comparison import spread

Line = dict[str, Any]


def table(lines: Iterable[Line]) -> str:
    """Minimum, median and maximum of each figure over both protocols, and the medians' ratio."""
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for line in lines:
        name = line["workload"], f"{line['metric']}, {line['unit']}"
        found.setdefault(name, {}).setdefault(line["peer_protocol"], []).append(line["value"])
    grpc, kafka = PEER_PROTOCOLS
    rows = [
        "| workload and figure, min / median / max of the runs | gRPC | Kafka's protocol | ratio |",
        "|---|---|---|---|",
    ]
    for (workload, figure), values in found.items():
        if values.keys() != set(PEER_PROTOCOLS):
            continue
        ratio = statistics.median(values[kafka]) / statistics.median(values[grpc])
        shown = " | ".join(spread(values[protocol]) for protocol in PEER_PROTOCOLS)
        rows.append(f"| {workload} {figure} | {shown} | {ratio:.2f} |")
    return "\n".join(rows)


def main(
    more: Annotated[list[str] | None, typer.Argument(help="Arguments of quorate bench.")] = None,
    *,
    runs: Annotated[int, typer.Option(min=1, help="How often each is measured.")] = 5,
    workloads: Annotated[str, typer.Option(help="Which, with commas.")] = "W1,W2,W3,W4",
    out: Annotated[Path, typer.Option(help="The file to which the lines are appended.")] = Path(
        "transports.jsonl"
    ),
) -> None:
    """Measure both protocols in turns; append the lines to a file and print a table of all."""
    bench = [sys.executable, "-m", "quorate.cli.main", "bench", "--json", *workloads.split(",")]
    with out.open("a", encoding="utf-8") as file:
        for turn in range(runs):
            for protocol in PEER_PROTOCOLS[:: -1 if turn % 2 else 1]:
                console.print(f"run {turn + 1} of {runs}: {protocol}")
                for line in run([*bench, "--peer-protocol", protocol, *(more or ())]):
                    file.write(json.dumps(dict(line) | {"run": turn}) + "\n")
                    file.flush()
    print(table(json.loads(text) for text in out.read_text().splitlines()))


if __name__ == "__main__":
    typer.run(main)
