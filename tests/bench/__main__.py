"""Quorate and its peers, measured in turns on one machine, as a table and a plot.

    python -m tests.bench --runs 3 --out comparison/

Runs go A B C A B C: what the machine does meanwhile hits all of them. Each run is a fresh cluster
of three nodes. The peers' harness is a folder with an executable `bench` that prints JSON lines
(QUORATE_PEERS, or ../shared/peers beside the repository).
"""

from __future__ import annotations

import compileall
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tests.bench.comparison import Line, markdown, plot
from tests.certificates import make_authority, make_certificate

ROOT = Path(__file__).resolve().parents[2]
PEERS = Path(os.environ.get("QUORATE_PEERS", ROOT.parent / "shared" / "peers"))
OURS = {
    "quorate": ("--peer-protocol", "kafka"),
    "quorate-grpc": ("--transport", "grpc"),
    "quorate-tls": ("--peer-protocol", "kafka"),
}
"""Without gRPC between controllers and for appends, with it for both, and with TLS without it."""
NODES = [f"node-{number}" for number in range(1, 10)]
"""The names in the certificate that all controllers of a quorum with TLS share."""
ONLY_OURS = {"W2p", "W2u", "W4g", "W6", "W7", "W8", "W9"}
console = Console(stderr=True)


def run(command: list[str]) -> Iterator[Line]:
    """The lines that a command prints; its own words go to the terminal."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    for text in process.stdout:
        if text.startswith("{"):
            yield json.loads(text)
    if process.wait():
        console.print(f"[red]{' '.join(command)} ended with status {process.returncode}[/]")
        raise typer.Exit(1)


def tls_files(folder: Path) -> Path:
    """The settings of clients with certificates, which are made in the folder."""
    config = folder / "client.properties"
    if not config.exists():
        authority, _ = made = make_authority(folder, "authority")
        certificate, key = make_certificate(folder, "controller", made, NODES)
        settings = {
            "security.protocol": "SSL",
            "ssl.certificate.location": certificate.resolve(),
            "ssl.key.location": key.resolve(),
            "ssl.ca.location": authority.resolve(),
        }
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return config


def command(contender: str, workloads: list[str], out: Path) -> list[str] | None:
    """What measures a contender once; None if none of the workloads is for it."""
    if contender in OURS:
        bench = [sys.executable, "-m", "quorate.cli.main", "bench", "--json"]
        more = ("--command-config", str(tls_files(out))) if contender == "quorate-tls" else ()
        return [*bench, *OURS[contender], *more, *workloads]
    if contender == "machine":
        return [str(PEERS / "bench"), "--repeat", "1", "machine"]
    common = [name for name in workloads if name not in ONLY_OURS]
    if not common:
        return None
    return [str(PEERS / "bench"), "--repeat", "1", "--workloads", ",".join(common), contender]


def main(
    runs: Annotated[int, typer.Option(min=1, help="How often each is measured.")] = 3,
    workloads: Annotated[str, typer.Option(help="Which, with commas.")] = "W1,W2,W2p,W2u,W3,W4",
    contenders: Annotated[
        str, typer.Option(help="Who, in this order.")
    ] = "machine,etcd,etcd36,quorate,quorate-grpc,kafka,pysyncobj",
    out: Annotated[
        Path, typer.Option(help="The folder of lines.jsonl, comparison.md and comparison.png.")
    ] = Path("comparison"),
    again: Annotated[
        bool, typer.Option("--again", help="Only draw anew what lines.jsonl holds.")
    ] = False,
) -> None:
    """Measure Quorate and its peers in turns; write their lines, a table and a plot."""
    out.mkdir(parents=True, exist_ok=True)
    file = out / "lines.jsonl"
    if not again:
        if not (PEERS / "bench").exists():
            console.print(f"{PEERS} has no bench: set QUORATE_PEERS to the peers' harness")
            raise typer.Exit(2)
        # Installed packages hold bytecode. Without it, each start in W5 and W6 compiles the sources
        # where PYTHONDONTWRITEBYTECODE is set.
        compileall.compile_dir(ROOT / "services", quiet=1)
        with file.open("a", encoding="utf-8") as lines:
            for turn in range(runs):
                for contender in contenders.split(","):
                    asked = command(contender, workloads.split(","), out)
                    if asked is None:
                        continue
                    console.print(f"run {turn + 1} of {runs}: {contender}")
                    for line in run(asked):
                        about = {"peer": contender, "run": turn}
                        lines.write(json.dumps(dict(line) | about) + "\n")
                        lines.flush()
    found: list[Line] = [json.loads(text) for text in file.read_text().splitlines()]
    text = markdown(found)
    (out / "comparison.md").write_text(text, encoding="utf-8")
    plot(found, out / "comparison.png")
    print(text)


if __name__ == "__main__":
    typer.run(main)
