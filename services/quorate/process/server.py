"""The gRPC server of a node: its listeners, connections and health."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import grpc.aio

from quorate.process.component import Component
from quorate.process.node_config import NodeConfig
from quorate.process.shutdown import Shutdown
from quorate.rpc.server.authorizer import CallAuthorizer
from quorate.rpc.server.connections import ConnectionGuard
from quorate.rpc.server.grpc_server import RpcServer, start_server
from quorate.rpc.server.handler import NodeHandler
from quorate.rpc.server.response_memory import ResponseMemory
from quorate.rpc.tls import TlsConfig
from quorate.rpc.wire.limits import ServerLimits
from quorate.runtime.tasks import supervise

LOGGER = logging.getLogger(__name__)

HEALTH_PERIOD_S = 0.1


def _add_nothing(_server: grpc.aio.Server) -> None:
    """Add no further services: the default."""


class NodeServer:
    """The gRPC server of one node. Another call of `listen` replaces the handler."""

    def __init__(
        self,
        config: NodeConfig,
        listeners: Sequence[tuple[str, bool]],
        tls: TlsConfig | None,
        authorizer: CallAuthorizer | None,
        limits: ServerLimits | None = None,
    ) -> None:
        """Prepare the gRPC server.

        listeners: `host:port`, and whether it is encrypted. limits: of requests and connections;
        None for the default request limits of `ServerLimits`, without a connection guard.
        """
        self.connections: ConnectionGuard | None = None
        self._config = config
        self._secure = [address for address, is_encrypted in listeners if is_encrypted]
        self._plaintext = [address for address, is_encrypted in listeners if not is_encrypted]
        self._tls = tls
        self._authorizer = authorizer
        self._limits = limits
        self._server: RpcServer | None = None
        self._health: asyncio.Task[None] | None = None

    async def listen(
        self, handler: NodeHandler, also: Callable[[grpc.aio.Server], None] = _add_nothing
    ) -> None:
        """Start the server, or replace the handler of the running server.

        also: adds further services before the server starts.
        """
        if self._server is not None:
            self._server.use(handler)
            return
        self._server = await start_server(
            self._secure,
            handler,
            self._tls,
            self._limits,
            plaintext=self._plaintext,
            traced=self._config.trace_sample_ratio > 0,
            authorizer=self._authorizer,
            also=also,
        )
        if self._limits is not None:
            self._watch_connections(self._server, self._limits)
        addresses = ", ".join(self._secure + self._plaintext)
        LOGGER.info("node %d listens on %s", self._config.node_id, addresses)

    def _watch_connections(self, server: RpcServer, limits: ServerLimits) -> None:
        self.connections = ConnectionGuard(server.ports, limits, server.arrivals)
        self.connections.start()
        if self.connections.is_watching:
            server.response_memory.end = self.connections.end
            server.watch_memory.end = self.connections.end

    def bound(self, memory: ResponseMemory) -> None:
        """Bound a further memory of responses, also without a connection guard."""
        if ConnectionGuard.is_supported():
            memory.end = self._end_connection

    def _end_connection(self, peer: str, reason: str) -> None:
        if self._server is not None:
            guard = self.connections or ConnectionGuard(self._server.ports, ServerLimits())
            guard.end(peer, reason)

    def note_streamed(self) -> None:
        """Record that a message arrived on a stream of another listener."""
        if self._server is not None:
            self._server.note_streamed()

    def component(self) -> Component:
        """The server as a component. It needs no start, because `listen` has started it."""
        return Component("server", stop=self.stop)

    def health(self, is_ready: Callable[[], bool], shutdown: Shutdown) -> Component:
        """A component that keeps grpc.health.v1 up to date. It reports on this node only."""

        def start() -> None:
            self._health = supervise(self._report_health(is_ready), "health", shutdown.fail)

        async def stop() -> None:
            if self._health is not None:
                self._health.cancel()

        return Component("health", start, stop)

    async def _report_health(self, is_ready: Callable[[], bool]) -> None:
        assert self._server is not None, "listen() comes first"
        serving: bool | None = None
        while True:
            if is_ready() is not serving:
                serving = is_ready()
                await self._server.set_serving(serving)
            await asyncio.sleep(HEALTH_PERIOD_S)

    async def stop(self) -> None:
        """Stop accepting calls and end those in flight."""
        if self._server is not None:
            await self._server.stop()

    async def close(self) -> None:
        """Stop the connection guard."""
        if self.connections is not None:
            await self.connections.stop()
