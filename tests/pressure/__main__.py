"""Attacks on a controller, each with a third of a processor, beside a client that behaves.

    python -m tests.pressure [NAME ...] [--json]

Each attack has a real controller of its own: gRPC, the listener for Kafka's brokers, and HTTP. A
client commits records alone, while another controller on this machine is attacked, and while its
own is; /healthz and /readyz are probed five times a second. The attackers are another process,
which has 0.3 processors in all. An attack is borne if the client's p99 stays within three times of
what it was alone (medians of the rounds), the controller never held more than 256 MiB, and no probe
and no commit failed. The exit status is 0 if all are.
"""

from __future__ import annotations

import json
import resource
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tests.pressure.attacks import ATTACKS
from tests.pressure.measuring import HEAD, PHASE_S, ROUNDS, line_of, measure


def main(
    names: Annotated[list[str] | None, typer.Argument(help="All, without a name.")] = None,
    *,
    rounds: Annotated[int, typer.Option(min=1, help="How often each phase is repeated.")] = ROUNDS,
    seconds: Annotated[float, typer.Option(min=1, help="How long each phase lasts.")] = PHASE_S,
    as_json: Annotated[bool, typer.Option("--json")] = False,
    list_names: Annotated[bool, typer.Option("--list", help="Only tell the names.")] = False,
) -> None:
    """Attack controllers, and say what a client beside it notices."""
    if list_names:
        for name, attack in ATTACKS.items():
            print(f"{name:22} {attack.what}")
        return
    for name in names or ():
        if name not in ATTACKS:
            raise typer.BadParameter(f"there is no attack {name!r}: see --list")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory() as folder:
        results = measure(names or list(ATTACKS), Path(folder), rounds, seconds)
    if as_json:
        shown = [
            asdict(each) | {"factor": round(each.factor, 2), "faults": each.faults}
            for each in results
        ]
        print(json.dumps(shown, indent=2))
    else:
        print(HEAD)
        for each in results:
            print(line_of(each))
    raise typer.Exit(1 if any(each.faults for each in results) else 0)


if __name__ == "__main__":
    typer.run(main)
