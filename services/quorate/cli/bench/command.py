"""The command `quorate bench`: selects workloads, quorum, number of runs and output."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from quorate.cli.connection import read_connection
from quorate.cli.options import AsJson
from quorate.cli.output import UsageError

if TYPE_CHECKING:
    from quorate.cli.bench.load import ClientAccess
    from quorate.cli.bench.workloads import Bench

VOTERS_MAX = 9

Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[W1|W2|W2p|W2u|W3|W4|W4g|W5|W6|W7|W8|W9|metadata|machine|all]…",
        help="The workloads to run; default: those that take at most a few minutes.",
    ),
]
Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-controller",
        metavar="HOST:PORT,…",
        help="Load this quorum instead of a new one on this machine (W1 to W3 only). The "
        "records stay in its log.",
    ),
]
Records = Annotated[
    int,
    typer.Option(
        "--records",
        min=1,
        help="Records in the log of W5 and the checkpoint of metadata; W8 has up to ten times it.",
    ),
]
PeerProtocol = Annotated[
    str | None,
    typer.Option(
        "--peer-protocol",
        metavar="grpc|kafka",
        help="The protocol between the controllers of a new quorum (quorate.peer.protocol; "
        "default: grpc).",
    ),
]
ClientTransport = Annotated[
    str,
    typer.Option(
        "--transport",
        metavar="auto|grpc",
        help="How clients append: in frames without gRPC if the controllers take them, or over "
        "gRPC only.",
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="Client properties (security.protocol, ssl.…). The controllers of a new quorum use "
        "the same TLS files; their certificate names node-1, node-2, … and 127.0.0.1.",
    ),
]
Directory = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        metavar="DIR",
        exists=True,
        file_okay=False,
        help="The folder for the quorums' files, on the disk to measure (default: the folder for "
        "temporary files).",
    ),
]


def bench(
    names: Names = None,
    bootstrap: Bootstrap = None,
    peer_protocol: PeerProtocol = None,
    transport: ClientTransport = "auto",
    command_config: CommandConfig = None,
    controllers: Annotated[
        int, typer.Option("--controllers", "-n", help=f"Number of voters (1 to {VOTERS_MAX}).")
    ] = 3,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="Number of runs.")] = 1,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.1, help="Duration of each throughput measurement.")
    ] = 10.0,
    commits: Annotated[
        int, typer.Option("--commits", min=1, help="Number of commits in W1.")
    ] = 2000,
    kills: Annotated[
        int, typer.Option("--kills", min=1, help="Number of kills in W4 and W4g.")
    ] = 10,
    records: Records = 1_000_000,
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, help="Number of partitions that metadata creates.")
    ] = 100_000,
    mebibytes: Annotated[
        int, typer.Option("--mebibytes", min=1, help="Size of the leader's log in W6.")
    ] = 1024,
    directory: Directory = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Also append the JSON lines to this file."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure commits, failover, catch-up and memory.

    Every acknowledged record is on the disks of a majority. With --json, each figure is printed as
    one line of JSON as soon as it is measured.

    \b
    W1   one caller, sequential durable 256-byte commits
    W2   64 callers in one process        W2p  the same as 4 processes of 16
    W2u  one gRPC call per commit         W3   batches of 1000 records
    W4   kill -9 of the leader            W4g  SIGTERM to the leader
    W5   restart of a follower that holds a million records
    W6   adding a voter with an empty log to a leader with a gigabyte
    W7   resident memory of an idle controller
    W8   W1 and W4 on 0, 1 and 10 million records
    W9   W1 and W2 with 1, 3, 5, 7 and 9 voters
    metadata  100,000 partitions: create, snapshot, load, fail over; replay
         and a start from a checkpoint of a million records
    """
    import uvloop

    from quorate.cli.bench.workloads import Bench
    from quorate.controller.kafka.settings import GRPC, PEER_PROTOCOLS

    chosen = _chosen(names or [], bootstrap)
    if not 1 <= controllers <= VOTERS_MAX:
        raise UsageError(f"--controllers {controllers}: expected 1 to {VOTERS_MAX}")
    if peer_protocol not in (None, *PEER_PROTOCOLS):
        raise UsageError(f"--peer-protocol {peer_protocol}: expected {' or '.join(PEER_PROTOCOLS)}")
    if peer_protocol and bootstrap:
        text = "--peer-protocol is for a new quorum: a running one has its quorate.peer.protocol"
        raise UsageError(f"{text}; omit --bootstrap-controller")
    asked = Bench(
        voters=controllers,
        seconds=seconds,
        commits=commits,
        kills=kills,
        records=records,
        grown=(0, records, 10 * records),
        bytes_held=mebibytes * 1024 * 1024,
        partitions=partitions,
        folder=directory,
        bootstrap=tuple(bootstrap.split(",")) if bootstrap else (),
        peer_protocol=peer_protocol or GRPC,
        access=_access(transport, command_config, is_new=not bootstrap),
    )
    raise typer.Exit(uvloop.run(_run(asked, chosen, repeat, out, as_json=as_json)))


def _access(transport: str, command_config: Path | None, *, is_new: bool) -> ClientAccess:
    """How clients reach the quorum. is_new: whether controllers need the TLS files as well."""
    from quorate.cli.bench.load import ClientAccess
    from quorate.rpc.client.quorum_client import TRANSPORTS

    for name in TRANSPORTS:
        if name == transport:
            break
    else:
        raise UsageError(f"--transport {transport}: expected {' or '.join(TRANSPORTS)}")
    tls = read_connection(command_config).tls
    if tls is not None and is_new and None in (tls.certificate, tls.key, tls.ca):
        raise UsageError(
            f"{command_config}: the controllers of a new quorum need ssl.certificate.location, "
            "ssl.key.location and ssl.ca.location"
        )
    return ClientAccess(name, tls)


def _chosen(names: list[str], bootstrap: str | None) -> list[str]:
    from quorate.cli.bench.catalogue import DEFAULT, HARMLESS, WORKLOADS

    known = {name.lower(): name for name in WORKLOADS}
    if "all" in names:
        names = list(WORKLOADS)
    chosen = []
    for name in names or [n for n in DEFAULT if not bootstrap or n in HARMLESS]:
        if name.lower() not in known:
            raise UsageError(
                f"no such workload {name!r}: the workloads are {', '.join(WORKLOADS)}, all"
            )
        chosen.append(known[name.lower()])
    harmful = [name for name in chosen if name not in HARMLESS]
    if bootstrap and harmful:
        raise UsageError(
            f"{', '.join(harmful)}: requires a new quorum, because it stops or inspects "
            "controllers; omit --bootstrap-controller"
        )
    return chosen


async def _run(
    asked: Bench,
    chosen: list[str],
    repeat: int,
    out: Path | None,
    *,
    as_json: bool,
) -> int:
    from quorate.cli.bench.catalogue import WORKLOADS
    from quorate.cli.bench.report import Measurement, table

    found: list[Measurement] = []
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.fields[name]:8}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )  # fmt: skip
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("bench", total=repeat * len(chosen), name="", note="")
        asked.note = lambda text: progress.update(task, note=text)
        for run in range(repeat):
            asked.run = run
            for name in chosen:
                progress.update(task, name=name, note="")
                for measurement in await WORKLOADS[name](asked):
                    found.append(measurement)
                    if as_json:
                        print(measurement.line(), flush=True)
                    if out is not None:
                        with out.open("a", encoding="utf-8") as file:
                            file.write(measurement.line() + "\n")
                progress.advance(task)
    if not as_json:
        Console().print(table(found))
    return 0
