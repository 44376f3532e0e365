"""`quorate quickstart`: a quorum of real controllers on this machine, optionally with brokers.

It shows a live table of their state.
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

from quorate.cli.options import AsJson
from quorate.cli.output import UsageError

if TYPE_CHECKING:
    from quorate.cli.local.local_cluster import LocalCluster
    from quorate.rpc.client.quorum_client import QuorumClient

DEFAULT_DIRECTORY = Path("quorate-quickstart")
CONTROLLERS_MAX = 9
BROKERS_MAX = 9
PORT_MAX = 65_535 - 2 * CONTROLLERS_MAX - BROKERS_MAX
FIRST_BROKER = 101
FIRST_KAFKA_BROKER = 1001
"""Kafka's brokers need ids that neither controllers nor `--brokers` have."""
FIRST_MIGRATING = 3001
"""Kafka's convention for a migration's controllers: their ids must differ from broker ids."""
REFRESH_S = 0.5


def quickstart(
    controllers: Annotated[
        int,
        typer.Option("--controllers", "-n", help=f"Number of voters (1 to {CONTROLLERS_MAX})."),
    ] = 3,
    brokers: Annotated[
        int,
        typer.Option(
            "--brokers",
            "-b",
            help=f"Number of brokers (0 to {BROKERS_MAX}), which host topics; their ids start at "
            f"{FIRST_BROKER}.",
        ),
    ] = 0,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            metavar="DIR",
            help=f"The folder for all files (default: {DEFAULT_DIRECTORY}; the demo uses a "
            "temporary folder). An earlier quickstart in this folder is continued with its data.",
        ),
    ] = None,
    demo: Annotated[
        bool,
        typer.Option(
            "--demo",
            help="Run KIP-853's scenarios on a separate quorum: kill the leader, lose disks, grow, "
            "shrink and upgrade; check after each step that no acknowledged record is lost.",
        ),
    ] = False,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            "--zookeeper",
            metavar="H:P/CHROOT",
            help="Migrate the Kafka 3.9 cluster in this ZooKeeper (KIP-866): the controllers' ids "
            f"start at {FIRST_MIGRATING}, and the settings for its brokers are printed.",
        ),
    ] = None,
    kafka_listener: Annotated[
        bool,
        typer.Option(
            help="Whether the controllers of a new folder also speak Kafka's protocol, on ports of "
            "their own, to Kafka's brokers and tools."
        ),
    ] = True,
    port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=PORT_MAX,
            help="The first of consecutive ports for a new folder: of the controllers, of their "
            "listeners for Kafka's protocol, and of the brokers (default: free ports).",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a quorum of real controllers, and brokers, on loopback until Ctrl-C.

    Each node is a separate process. The first controller is formatted standalone, the others join
    automatically. With --json, each change is printed as one line of JSON.
    """
    _check_options(controllers, brokers, zookeeper, demo=demo, kafka_listener=kafka_listener)
    if demo:
        if port is not None:
            raise UsageError("--port cannot be used with --demo: the demo uses free ports")
        from quorate.cli.local.demo import run_demo

        if directory is not None and directory.exists() and any(directory.iterdir()):
            raise UsageError(f"--dir {directory}: the demo requires a new or empty folder")
        raise typer.Exit(run_demo(directory, as_json=as_json))
    from quorate.cli.local.local_cluster import LocalCluster

    folder = directory or DEFAULT_DIRECTORY
    cluster = LocalCluster(folder, kafka_listener=kafka_listener, first_port=port)
    kept = cluster.exists
    _prepare(cluster, controllers, brokers, zookeeper)
    raise typer.Exit(asyncio.run(_run(cluster, kept=kept, as_json=as_json)))


def _check_options(
    controllers: int, brokers: int, zookeeper: str | None, *, demo: bool, kafka_listener: bool
) -> None:
    if not 1 <= controllers <= CONTROLLERS_MAX:
        raise UsageError(f"--controllers {controllers}: expected 1 to {CONTROLLERS_MAX}")
    if not 0 <= brokers <= BROKERS_MAX:
        raise UsageError(f"--brokers {brokers}: expected 0 to {BROKERS_MAX}")
    if zookeeper is not None and (demo or brokers):
        other = "--demo" if demo else "--brokers"
        raise UsageError(
            f"{other} cannot be used with --zookeeper: the cluster already has brokers"
        )
    if zookeeper is not None and not kafka_listener:
        raise UsageError(
            "--no-kafka-listener cannot be used with --zookeeper: the cluster's brokers need it"
        )
    if demo and brokers:
        raise UsageError("--brokers cannot be used with --demo: the demo runs no brokers")


def _prepare(cluster: LocalCluster, controllers: int, brokers: int, zookeeper: str | None) -> None:
    """Load the folder's cluster, or create it if the folder has none."""
    from quorate.cli.local.local_cluster import MigratedCluster

    if cluster.exists:
        cluster.load()
        _check_port(cluster)
        known = None if cluster.migration is None else cluster.migration.zookeeper
        if zookeeper is not None and zookeeper != known:
            says = "is not a migration" if known is None else f"migrates from {known}"
            raise UsageError(f"--zookeeper {zookeeper}: the quickstart in {cluster.folder} {says}")
        for broker_id in range(FIRST_BROKER + len(cluster.brokers), FIRST_BROKER + brokers):
            cluster.add_broker(broker_id)
        return
    first = 1
    if zookeeper is not None:
        from quorate.cli.recovery.migrate import read_cluster_id

        cluster.migration = MigratedCluster(zookeeper, read_cluster_id(zookeeper))
        first = FIRST_MIGRATING
    broker_ids = range(FIRST_BROKER, FIRST_BROKER + brokers)
    cluster.create(range(first, first + controllers), broker_ids)


def _check_port(cluster: LocalCluster) -> None:
    """Raise UsageError if --port differs from the ports of an existing folder."""
    port = cluster.first_port
    if port is not None and port != next(iter(cluster.nodes.values())).port:
        addresses = ",".join(cluster.addresses)
        raise UsageError(f"--port {port}: the quickstart in {cluster.folder} has {addresses}")


async def _run(cluster: LocalCluster, *, kept: bool, as_json: bool) -> int:
    from quorate.rpc.client.quorum_client import QuorumClient

    # Users copy paths and commands, so the console must not wrap them.
    console = Console(stderr=as_json, soft_wrap=True)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    what = "Restarting" if kept else "Starting new"
    console.print(f"{what} quorum {cluster.cluster_id} in {cluster.folder}", highlight=False)
    for node in cluster.nodes.values():
        console.print(f"  controller {node.id}  {node.address}  {node.log_file}", highlight=False)
    for node in cluster.brokers.values():
        console.print(f"  broker {node.id}  {node.address}  {node.log_file}", highlight=False)
    addresses = ",".join(cluster.addresses)
    if cluster.brokers:
        console.print(
            f"Try: quorate topics --bootstrap-server {','.join(cluster.broker_addresses)} "
            f"create --topic first --replication-factor {min(3, len(cluster.brokers))}",
            highlight=False,
        )
    if cluster.migration is not None:
        console.print(_for_brokers(cluster), highlight=False)
    elif cluster.kafka_addresses:
        console.print(_for_kafka(cluster), highlight=False)
    console.print(
        f"Try: quorate metadata-quorum --bootstrap-controller {addresses} describe --status\n"
        "Press Ctrl-C to stop all of them; the same command starts them again.",
        highlight=False,
    )
    client = QuorumClient(cluster.addresses)
    try:
        cluster.start()
        await _watch(cluster, client, console, stop, as_json=as_json)
    finally:
        await client.close()
        with console.status("Stopping …"):
            await asyncio.to_thread(cluster.stop)
    console.print("Stopped; all data is kept.", highlight=False)
    return 0


def _for_kafka(cluster: LocalCluster) -> str:
    """Return how Kafka's own tools and brokers reach the controllers."""
    addresses = ",".join(cluster.kafka_addresses)
    return (
        f"Kafka's tools: --bootstrap-controller {addresses}\n"
        f"Kafka's brokers: controller.quorum.bootstrap.servers={addresses} "
        "controller.listener.names=KAFKA and KAFKA:PLAINTEXT in listener.security.protocol.map, "
        f"node.id {FIRST_KAFKA_BROKER} or higher, formatted with -t {cluster.cluster_id}"
    )


def _for_brokers(cluster: LocalCluster) -> str:
    """Return the user's next steps in the migration: the restart of the brokers."""
    assert cluster.migration is not None
    zookeeper = cluster.migration.zookeeper
    return (
        f"The quorum migrates the cluster in ZooKeeper at {zookeeper}. Restart its brokers one at "
        "a time, each with\n"
        "  zookeeper.metadata.migration.enable=true\n"
        "  inter.broker.protocol.version=3.9\n"
        "  controller.listener.names=KAFKA\n"
        f"  controller.quorum.voters={cluster.kafka_voters}\n"
        "and KAFKA:PLAINTEXT in its listener.security.protocol.map. Then\n"
        f"Try: quorate migrate status --zookeeper {zookeeper} "
        f"--bootstrap-controller {','.join(cluster.addresses)}"
    )


async def _watch(
    cluster: LocalCluster,
    client: QuorumClient,
    console: Console,
    stop: asyncio.Event,
    *,
    as_json: bool,
) -> None:
    """Show the quorum's state until `stop`: a live table, or a line (of JSON) for each change."""
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
    """Return the state to show, as plain data. Offsets and lags are in records; -1 is unknown."""
    from quorate.rpc.client.quorum_client import ClientError

    nodes: dict[int, dict[str, Any]] = {
        node.id: {
            "id": node.id,
            "address": node.address,
            "kafka_address": node.kafka_address,
            "role": "unknown" if node.id in cluster.running else "stopped",
            "log_end_offset": -1,
            "lag": -1,
        }
        for node in cluster.nodes.values()
    }
    state: dict[str, Any] = {"leader": None, "epoch": -1, "high_watermark": -1, "voters": 0}
    try:
        description = await asyncio.wait_for(client.describe_quorum(), 2.0)
    except (ClientError, TimeoutError):
        return state | {"controllers": list(nodes.values()), "brokers": await _brokers(cluster)}
    found = description.response
    state["epoch"] = found.leader.epoch
    if description.is_leaders_view:
        state |= {"leader": found.leader.id, "high_watermark": found.high_watermark}
        state["voters"] = len(found.voters)
        for status in found.observers:
            node_id = status.replica.id
            if node_id in nodes and node_id in cluster.running:
                nodes[node_id]["role"] = "observer"
        ends = {status.replica.id: status.log_end_offset for status in found.voters}
        leader_end = ends.get(found.leader.id if found.leader.id is not None else -1, -1)
        for node_id, end in ends.items():
            if node_id in nodes:
                role = "leader" if node_id == found.leader.id else "follower"
                if node_id not in cluster.running:
                    role = "stopped"
                lag = max(0, leader_end - end) if end >= 0 else -1
                nodes[node_id] |= {"role": role, "log_end_offset": end, "lag": lag}
    return state | {"controllers": list(nodes.values()), "brokers": await _brokers(cluster)}


async def _brokers(cluster: LocalCluster) -> list[dict[str, Any]]:
    """Return each broker's state: active or fenced as in the metadata, unknown, or stopped."""
    from quorate.raft.errors import RaftError
    from quorate.rpc.client.partition_client import BrokerConnections
    from quorate.rpc.errors import RpcError

    found = {
        node.id: {"id": node.id, "address": node.address, "state": "unknown"}
        for node in cluster.brokers.values()
    }
    connections = BrokerConnections()
    try:
        for node in cluster.brokers.values():
            if node.id not in cluster.running:
                continue
            try:
                located = await connections.locate("127.0.0.1", node.port, ("",), 500)
            except (RpcError, RaftError):
                continue
            for each in located.brokers:
                if each.id in found:
                    found[each.id]["state"] = "fenced" if each.fenced else "active"
            break
    finally:
        await connections.close()
    for broker_id, broker in found.items():
        if broker_id not in cluster.running:
            broker["state"] = "stopped"
    return list(found.values())


def _without_offsets(state: dict[str, Any]) -> str:
    roles = [(node["id"], node["role"]) for node in state["controllers"]]
    brokers = [(broker["id"], broker["state"]) for broker in state["brokers"]]
    return str((state["leader"], state["epoch"], state["voters"], roles, brokers))


def _sentence(state: dict[str, Any]) -> str:
    """Format the state as one line, for output that is not a terminal."""
    leader = "no leader" if state["leader"] is None else f"leader {state['leader']}"
    voters = "1 voter" if state["voters"] == 1 else f"{state['voters']} voters"
    what = f"{leader}, epoch {state['epoch']}, {voters}"
    if state["epoch"] < 0:
        what = "no controller answers yet"
    known = [node for node in state["controllers"] if node["role"] != "unknown"]
    roles = ", ".join(f"{node['id']} {node['role']}" for node in known)
    said = f"{what}: {roles}" if roles else what
    brokers = ", ".join(f"broker {each['id']} {each['state']}" for each in state["brokers"])
    return f"{said}; {brokers}" if brokers else said


_STYLES = {
    "leader": "bold green",
    "follower": "green",
    "active": "green",
    "observer": "yellow",
    "fenced": "yellow",
    "unknown": "yellow",
    "stopped": "red",
}


def _table(state: dict[str, Any]) -> Table:
    leader = "none" if state["leader"] is None else state["leader"]
    title = (
        f"leader {leader}   epoch {state['epoch']}   high watermark {state['high_watermark']}   "
        f"voters {state['voters']}"
    )
    table = Table(title=title, title_justify="left")
    first = "Node" if state["brokers"] else "Controller"
    for name in (first, "Address", "Role", "LogEndOffset", "Lag"):
        table.add_column(name, justify="right" if name in ("LogEndOffset", "Lag") else "left")
    for node in state["controllers"]:
        style = _STYLES[node["role"]]
        numbers = [str(node[k]) if node[k] >= 0 else "" for k in ("log_end_offset", "lag")]
        role = f"[{style}]{node['role']}[/]"
        table.add_row(str(node["id"]), node["address"], role, *numbers)
    for broker in state["brokers"]:
        shown = f"[{_STYLES[broker['state']]}]broker, {broker['state']}[/]"
        table.add_row(str(broker["id"]), broker["address"], shown, "", "")
    return table
