"""Asks the replicas of a quorum which software they run, for `describe --replication`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from quorate.rpc.software import grpc_endpoints, kafka_listeners, software_of

if TYPE_CHECKING:
    from quorate.metadata.requests import ControllerDescription
    from quorate.rpc.client.quorum_client import QuorumClient
    from quorate.rpc.software import Software
    from quorate.rpc.wire.values import NodeStatus, QuorumDescription

REGISTRATIONS_TIMEOUT_MS = 2_000


async def find_software(
    client: QuorumClient, description: QuorumDescription
) -> dict[int, Software]:
    """The software of each replica, by its id. Takes about two seconds at most."""
    view = description.response
    replicas = [each.endpoints for each in (*view.voter_set, *view.observers)]
    places = {_address(each.host, each.port) for each in grpc_endpoints(replicas)}
    found = await asyncio.gather(*(_status(client, p) for p in {*places, description.answered_by}))
    statuses = [each for each in found if each is not None]
    unknown = {voter.id for voter in view.voter_set} - {each.node_id for each in statuses}
    controllers: tuple[ControllerDescription, ...] = ()
    if unknown and description.is_leaders_view and kafka_listeners(replicas):
        controllers = await _registrations(client)
    return software_of(view, statuses, controllers)


def _address(host: str, port: int) -> str:
    from quorate.rpc.wire.limits import format_address

    return format_address(host, port)


async def _status(client: QuorumClient, address: str) -> NodeStatus | None:
    from quorate.rpc.errors import ClientError

    try:
        return await client.node_status(address)
    except ClientError:
        return None


async def _registrations(client: QuorumClient) -> tuple[ControllerDescription, ...]:
    """The registered controllers; none if they cannot be described."""
    from quorate.metadata.requests import DescribeCluster, DescribeClusterResponse
    from quorate.rpc.errors import ClientError
    from quorate.rpc.metadata_client import MetadataClient

    async with MetadataClient(
        client.bootstrap, tls=client.tls, request_timeout_ms=REGISTRATIONS_TIMEOUT_MS
    ) as metadata:
        try:
            described = await metadata.ask(DescribeCluster())
        except ClientError:
            return ()
    assert isinstance(described, DescribeClusterResponse), type(described)
    return described.controllers
