"""`quorate quickstart`: a quorum of real controllers on this machine, with a live table of its
state.
"""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from quorate.cli.output import AsJson, UsageError

if TYPE_CHECKING:
    from quorate.cli.local_cluster import LocalCluster
    from quorate.rpc.client import QuorumClient

DEFAULT_DIRECTORY = Path("quorate-quickstart")
CONTROLLERS_MAX = 9
REFRESH_S = 0.5


def quickstart(
    controllers: Annotated[
        int,
        typer.Option("--controllers", "-n", help=f"How many voters (1 to {CONTROLLERS_MAX})."),
    ] = 3,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            metavar="DIR",
            help=f"Where everything lies (default: {DEFAULT_DIRECTORY}; the demo's is temporary). "
            "A folder of an earlier quickstart goes on with all it holds.",
        ),
    ] = None,
    demo: Annotated[
        bool,
        typer.Option(
            "--demo",
            help="Tell KIP-853's story with a quorum of its own: kill the leader, lose disks, "
            "grow, shrink, upgrade, and check after each step that nothing acknowledged is lost.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a quorum of real controller processes on free loopback ports until Ctrl-C.

    The first controller is formatted standalone, the others join by themselves. With --json one
    line of JSON is printed a change, for programs.
    """
    if not 1 <= controllers <= CONTROLLERS_MAX:
        raise UsageError(f"--controllers {controllers}: 1 to {CONTROLLERS_MAX} are possible")
    if demo:
        from quorate.cli.demo import run_demo

        if directory is not None and directory.exists() and any(directory.iterdir()):
            raise UsageError(f"--dir {directory}: the demo wants a new or an empty folder")
        raise typer.Exit(run_demo(directory, as_json=as_json))
    raise typer.Exit(asyncio.run(_run(directory or DEFAULT_DIRECTORY, controllers, as_json)))


async def _run(folder: Path, controllers: int, as_json: bool) -> int:
    from quorate.cli.local_cluster import LocalCluster
    from quorate.rpc.client import QuorumClient

    cluster = LocalCluster(folder)
    kept = cluster.exists
    if kept:
        cluster.load()
    else:
        cluster.create(range(1, controllers + 1))
    # Paths and commands are there to be copied: they are not broken into lines.
    console = Console(stderr=as_json, soft_wrap=True)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    what = "goes on" if kept else "is new"
    console.print(f"Quorum {cluster.cluster_id} {what}, in {folder}", highlight=False)
    for node in cluster.nodes.values():
        console.print(f"  controller {node.id}  {node.address}  {node.log_file}", highlight=False)
    addresses = ",".join(cluster.addresses)
    console.print(
        f"Try: quorate metadata-quorum --bootstrap-controller {addresses} describe --status\n"
        "Ctrl-C stops all of them; the same command starts them again.",
        highlight=False,
    )
    client = QuorumClient(cluster.addresses)
    try:
        cluster.start()
        await _watch(cluster, client, console, stop, as_json=as_json)
    finally:
        await client.close()
        with console.status("stopping …"):
            await asyncio.to_thread(cluster.stop)
    console.print("Stopped; everything is kept.", highlight=False)
    return 0


async def _watch(
    cluster: LocalCluster,
    client: QuorumClient,
    console: Console,
    stop: asyncio.Event,
    *,
    as_json: bool,
) -> None:
    """Show the quorum's state until `stop`: a live table, or a line of JSON for each change."""
    last = ""
    live = None if as_json or not console.is_terminal else Live(console=console, auto_refresh=False)
    if live is not None:
        live.start()
    try:
        while not stop.is_set():
            cluster.check_running()
            state = await _state(cluster, client)
            line = json.dumps(state)
            if live is not None:
                live.update(_table(state), refresh=True)
            elif _without_offsets(state) != last:
                last = _without_offsets(state)
                print(line if as_json else _sentence(state), flush=True)
            try:
                await asyncio.wait_for(stop.wait(), REFRESH_S)
            except TimeoutError:
                continue
    finally:
        if live is not None:
            live.stop()


async def _state(cluster: LocalCluster, client: QuorumClient) -> dict[str, Any]:
    """What there is to show, as plain data. Offsets count records; -1 is unknown."""
    from quorate.rpc.client import ClientError

    nodes: dict[int, dict[str, Any]] = {
        node.id: {
            "id": node.id,
            "address": node.address,
            "role": "observer" if node.id in cluster.running else "stopped",
            "log_end_offset": -1,
            "lag": -1,
        }
        for node in cluster.nodes.values()
    }
    state: dict[str, Any] = {"leader": None, "epoch": -1, "high_watermark": -1, "voters": 0}
    try:
        description = await asyncio.wait_for(client.describe_quorum(), 2.0)
    except (ClientError, TimeoutError):
        return state | {"controllers": list(nodes.values())}
    found = description.response
    state["epoch"] = found.leader.epoch
    if description.is_leaders_view:
        state |= {"leader": found.leader.id, "high_watermark": found.high_watermark}
        state["voters"] = len(found.voters)
        ends = {status.replica.id: status.log_end_offset for status in found.voters}
        leader_end = ends.get(found.leader.id if found.leader.id is not None else -1, -1)
        for node_id, end in ends.items():
            if node_id in nodes:
                role = "leader" if node_id == found.leader.id else "follower"
                if node_id not in cluster.running:
                    role = "stopped"
                lag = max(0, leader_end - end) if end >= 0 else -1
                nodes[node_id] |= {"role": role, "log_end_offset": end, "lag": lag}
    return state | {"controllers": list(nodes.values())}


def _without_offsets(state: dict[str, Any]) -> str:
    roles = [(node["id"], node["role"]) for node in state["controllers"]]
    return str((state["leader"], state["epoch"], state["voters"], roles))


def _sentence(state: dict[str, Any]) -> str:
    """One line for a terminal that cannot be redrawn, or a log file."""
    leader = "no leader" if state["leader"] is None else f"leader {state['leader']}"
    roles = ", ".join(f"{node['id']} {node['role']}" for node in state["controllers"])
    return f"{leader}, epoch {state['epoch']}, {state['voters']} voters: {roles}"


_STYLES = {"leader": "bold green", "follower": "green", "observer": "yellow", "stopped": "red"}


def _table(state: dict[str, Any]) -> Table:
    leader = "none" if state["leader"] is None else state["leader"]
    title = (
        f"leader {leader}   epoch {state['epoch']}   high watermark {state['high_watermark']}   "
        f"voters {state['voters']}"
    )
    table = Table(title=title, title_justify="left")
    for name in ("Controller", "Address", "Role", "LogEndOffset", "Lag"):
        table.add_column(name, justify="right" if name in ("LogEndOffset", "Lag") else "left")
    for node in state["controllers"]:
        style = _STYLES[node["role"]]
        numbers = [str(node[k]) if node[k] >= 0 else "" for k in ("log_end_offset", "lag")]
        role = f"[{style}]{node['role']}[/]"
        table.add_row(str(node["id"]), node["address"], role, *numbers)
    return table
