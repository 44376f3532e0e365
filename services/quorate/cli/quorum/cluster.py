"""`quorate cluster`: Kafka's `kafka-cluster`: shows the cluster id and nodes, unregisters brokers.

Source: Kafka's ClusterTool; KIP-919 (endpoints of controllers).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quorate.cli.connection import (
    CHANGE_TIMEOUT_S,
    READ_TIMEOUT_S,
    asking,
    connected,
    run,
)
from quorate.cli.metadata_run import check, run_metadata
from quorate.cli.options import AsJson
from quorate.cli.output import kafka_table, print_json, print_result

if TYPE_CHECKING:
    from quorate.common.endpoints import Endpoint

app = typer.Typer(rich_markup_mode=None, add_completion=False)

HEADER = ("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE")


@app.callback()
@connected
def cluster(context: typer.Context) -> None:
    """Show a cluster's id and nodes; unregister a broker that is gone permanently.

    \b
    quorate cluster --bootstrap-controller H:P cluster-id
    quorate cluster … list-endpoints --include-fenced-brokers
    quorate cluster … unregister --id 101
    """


@app.command("cluster-id")
@asking
def cluster_id(
    context: typer.Context,
    *,
    as_json: AsJson = False,
) -> None:
    """Print the cluster's id."""
    found = run(context, lambda client: client.describe_quorum(), READ_TIMEOUT_S).cluster_id
    print_result(as_json, {"clusterId": found}, f"Cluster ID: {found}")


@app.command("list-endpoints")
@asking
def list_endpoints(
    context: typer.Context,
    *,
    include_fenced_brokers: Annotated[
        bool,
        typer.Option("--include-fenced-brokers", help="Also show fenced brokers."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print the endpoints of the registered brokers and controllers."""
    from quorate.metadata.requests import DescribeCluster

    request = DescribeCluster(include_fenced_brokers)
    found = run_metadata(context, lambda client: client.ask(request), READ_TIMEOUT_S)
    nodes = [
        _node(each.id, each.endpoints, each.rack, "fenced" if each.is_fenced else "unfenced")
        for each in found.brokers
    ] + [_node(each.id, each.endpoints, None, None) for each in found.controllers]
    if as_json:
        print_json(nodes)
        return
    rows = [
        (
            str(node["id"]),
            endpoint["host"],
            str(endpoint["port"]),
            node["rack"] or "null",
            node["state"] or "-",
            node["type"],
        )
        for node in nodes
        for endpoint in node["endpoints"]
    ]
    print(kafka_table(HEADER, rows))


def _node(
    node_id: int, endpoints: Sequence[Endpoint], rack: str | None, state: str | None
) -> dict[str, Any]:
    """Return a node as JSON. state: None for a controller, which is never fenced."""
    return {
        "id": node_id,
        "type": "controller" if state is None else "broker",
        "state": state,
        "rack": rack,
        "endpoints": [{"name": e.name, "host": e.host, "port": e.port} for e in endpoints],
    }


@app.command("unregister")
@asking
def unregister(
    context: typer.Context,
    *,
    broker: Annotated[int, typer.Option("--id", "-i", min=0, help="The broker's id.")],
    as_json: AsJson = False,
) -> None:
    """Unregister a broker that is gone permanently. A broker registers again when it starts.

    Its replicas stay assigned to it: if another broker can take them, reassign them first.
    """
    from quorate.metadata.requests import UnregisterBroker

    request = UnregisterBroker(broker)
    check(run_metadata(context, lambda c: c.ask(request), CHANGE_TIMEOUT_S, changes=True))
    print_result(as_json, {"brokerId": broker}, f"Broker {broker} is no longer registered.")
