"""Clients with which a controller calls the leader in its own name."""

from __future__ import annotations

from typing import Any, TypeVar

from quorate.controller.config import ControllerConfig
from quorate.process.extension import NodeComponents
from quorate.rpc.client.leader_client import LeaderClient

ClientT = TypeVar("ClientT", bound=LeaderClient)


def leader_client(
    components: NodeComponents[ControllerConfig], kind: type[ClientT], **named: Any
) -> ClientT | None:
    """A client that reaches the leader over gRPC, None if no address for that is known.

    named: further arguments of the client.
    """
    config = components.config
    leaders = components.driver.node.current_leader.endpoints
    first = config.listeners[0].name
    addresses = dict.fromkeys(
        f"{e.host}:{e.port}" for e in (*config.bootstrap_endpoints, *leaders) if e.name == first
    )
    if not addresses:
        return None
    tls = components.tls if config.is_encrypted(first) else None
    return kind(list(addresses), tls=tls, cluster_id=components.cluster_id, **named)
