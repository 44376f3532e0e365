"""A node whose log clients follow: a replica with its service behind a real gRPC server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from quorate.rpc.client.quorum_client import QuorumClient
from quorate.rpc.server.grpc_server import RpcServer, start_server
from quorate.runtime.service import NodeService
from quorate.runtime.watchers import WatchHub, WatchLimits

from tests.unit.runtime.replicas import Replica, alone

HOST = "127.0.0.1"


class Served:
    """A replica that leads, and its server."""

    def __init__(self, replica: Replica, service: NodeService, server: RpcServer) -> None:
        self.replica = replica
        self.service = service
        self.server = server

    @property
    def hub(self) -> WatchHub:
        return self.service.watchers

    @property
    def address(self) -> str:
        return f"{HOST}:{self.server.ports[0]}"

    def client(self, **options: Any) -> QuorumClient:
        return QuorumClient([self.address], **options)


@asynccontextmanager
async def service_of(
    replica: Replica, limits: WatchLimits | None = None, port: int = 0, **times: float
) -> AsyncIterator[Served]:
    """Serve a replica that runs. times: of `WatchHub`."""
    service = NodeService(
        replica.driver,
        batch_bytes_max=8 << 20,
        is_ready=lambda: replica.node.is_attached,
        watch_limits=limits,
    )
    if times:
        service.watchers = WatchHub(replica.driver, lambda: service.current_leader, limits, **times)
    hub = service.watchers
    replica.on_committed = hub.advanced
    replica.on_leadership = hub.leadership
    hub.start(replica.failures.append)
    server = await start_server([f"{HOST}:{port}"], service)
    try:
        yield Served(replica, service, server)
    finally:
        await hub.stop()
        await server.stop(0)


@asynccontextmanager
async def served(
    directory: Path, limits: WatchLimits | None = None, **options: Any
) -> AsyncIterator[Served]:
    """A quorum of one. options: of the replica, and those of `service_of`."""
    times = {name: options.pop(name) for name in list(options) if name.endswith("_s")}
    async with alone(directory, **options) as replica, service_of(replica, limits, **times) as made:
        yield made
