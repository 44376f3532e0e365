"""Which software the replicas of a quorum run, as far as a client can find out. Pure.

Rules:
1. A node that answers NodeStatus runs Quorate, in the version that it states.
2. A controller of Kafka has no endpoint that speaks gRPC. A listener that any controller has after
   its first one speaks Kafka's protocol, because a controller of Quorate lists gRPC first.
3. No message of Kafka names a controller's release. The highest metadata.version that a controller
   has registered identifies it: each release of Kafka since 3.3 has introduced at least one level.
4. Anything else is unknown, such as a controller of Quorate that is down.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from quorate.common.endpoints import Endpoint
from quorate.common.features import METADATA_VERSION
from quorate.metadata.metadata_version import LATEST_LEVEL, release_of
from quorate.metadata.requests import ControllerDescription
from quorate.raft.messages import DescribeQuorumResponse
from quorate.rpc.wire.values import NodeStatus

Endpoints = tuple[Endpoint, ...]


@dataclass(frozen=True, slots=True)
class Software:
    """The software that a node runs."""

    implementation: str = ""
    """One of "quorate" and "kafka", or "" if unknown."""
    version: str = ""
    """The version of the implementation, "" if unknown."""

    def __str__(self) -> str:
        return f"{self.implementation} {self.version}".strip() or "unknown"


UNKNOWN: Final = Software()
QUORATE: Final = "quorate"
KAFKA: Final = "kafka"


def kafka_listeners(replicas: Iterable[Endpoints]) -> frozenset[str]:
    """The names of the listeners that speak Kafka's protocol (rule 2)."""
    return frozenset(each.name for endpoints in replicas for each in endpoints[1:])


def grpc_endpoints(replicas: Iterable[Endpoints]) -> tuple[Endpoint, ...]:
    """The endpoints that speak gRPC: the first ones, unless they speak Kafka's protocol."""
    known = tuple(replicas)
    kafkas = kafka_listeners(known)
    return tuple(e for endpoints in known for e in endpoints[:1] if e.name not in kafkas)


def software_of(
    view: DescribeQuorumResponse,
    statuses: Iterable[NodeStatus],
    controllers: Iterable[ControllerDescription] = (),
) -> dict[int, Software]:
    """The software of each replica, by its id. controllers: those that have registered."""
    found = {each.node_id: Software(QUORATE, each.version) for each in statuses}
    registered = {each.id: each for each in controllers}
    endpoints = {each.id: each.endpoints for each in view.voter_set}
    endpoints |= {each.id: each.endpoints for each in registered.values()}
    kafkas = kafka_listeners(endpoints.values())
    for node_id, known in endpoints.items():
        if node_id not in found and known and all(each.name in kafkas for each in known):
            found[node_id] = Software(KAFKA, _release(registered.get(node_id)))
    replicas = (each.replica.id for each in (*view.voters, *view.observers))
    return {node_id: found.get(node_id, UNKNOWN) for node_id in replicas}


def _release(controller: ControllerDescription | None) -> str:
    """The release of Kafka that a registration identifies (rule 3)."""
    levels = dict(() if controller is None else controller.features).get(METADATA_VERSION)
    if levels is None:
        return ""
    if levels.max > LATEST_LEVEL:
        return f"after {release_of(LATEST_LEVEL).partition('-')[0]}"
    return release_of(levels.max).partition("-")[0]
