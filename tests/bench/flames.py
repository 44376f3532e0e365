"""Flame graphs of the leader during W1 and W3, native frames included.

    pip install py-spy
    python -m tests.bench.flames --out FOLDER

A new quorum of three controllers for each, without gRPC between them and for appends, or over gRPC
with `--grpc`. py-spy needs the right to trace other processes (root, or ptrace_scope 0), and slows
the leader down: what it draws is where the time goes, not how much it is.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from quorate.cli.bench import load
from quorate.cli.bench.quorum import BenchQuorum
from quorate.cli.bench.workloads import Bench
from quorate.controller.kafka.settings import GRPC, KAFKA
from rich.console import Console

Work = Callable[[BenchQuorum, float], Awaitable[object]]


async def single_commits(quorum: BenchQuorum, seconds: float) -> object:
    return await load.concurrently(quorum.client, 1, seconds)


async def batches(quorum: BenchQuorum, seconds: float) -> object:
    return await load.in_batches(quorum.client, 16, seconds, 1000)


WORKLOADS: dict[str, Work] = {"W1": single_commits, "W3": batches}


async def draw(bench: Bench, work: Work, seconds: float, out: Path) -> None:
    async with bench.quorum() as quorum:
        await work(quorum, 1.0)
        leader = quorum.own.processes[await quorum.leader()].pid
        options = ("--native", "--duration", str(int(seconds)), "--rate", "50")
        spy = await asyncio.create_subprocess_exec(
            "py-spy", "record", *options, "--pid", str(leader), "--output", str(out)
        )
        await work(quorum, seconds)
        if await spy.wait():
            sys.exit(f"py-spy ended with status {spy.returncode}")


def main(
    *,
    seconds: Annotated[float, typer.Option(min=1.0, help="How long each is watched.")] = 20.0,
    grpc: Annotated[bool, typer.Option("--grpc", help="Send everything over gRPC.")] = False,
    out: Annotated[Path, typer.Option(help="The folder of W1.svg and W3.svg.")] = Path("flames"),
) -> None:
    """Draw where the leader's time goes in W1 and in W3."""
    if shutil.which("py-spy") is None:
        sys.exit("py-spy is not installed: pip install py-spy")
    out.mkdir(parents=True, exist_ok=True)
    bench = Bench(
        access=load.ClientAccess("grpc" if grpc else "auto"), peer_protocol=GRPC if grpc else KAFKA
    )
    for name, work in WORKLOADS.items():
        Console(stderr=True).print(f"{name}: {out / name}.svg")
        uvloop.run(draw(bench, work, seconds, out / f"{name}.svg"))


if __name__ == "__main__":
    typer.run(main)
