"""The gRPC server of a node: its listeners, its services, its shutdown.

Owns the server, its health service (grpc.health.v1) and reflection. The handler implements the
node's services.

Rules:
1. Listening on a port in use fails at once (`PortInUseError`); a port is never shared.
2. Health is NOT_SERVING until the runtime sets it, and again once the server stops.
3. Shutdown waits a while for pending calls, and for appends in flight even if their stream is gone.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from quorate.rpc.errors import ListenError, PortInUseError
from quorate.rpc.server.arrivals import Arrivals
from quorate.rpc.server.authorizer import CallAuthorizer
from quorate.rpc.server.handler import NodeHandler
from quorate.rpc.server.metadata_servicers import metadata_behaviors
from quorate.rpc.server.records_answer import serialize
from quorate.rpc.server.request_validation import DecodeErrorInterceptor
from quorate.rpc.server.response_memory import SMALL_ROOM_BYTES, ResponseMemory
from quorate.rpc.server.servicers import Behavior, HandlerRef, Servicer
from quorate.rpc.server.throttle import RequestThrottle, Throttle
from quorate.rpc.tls import TlsConfig
from quorate.rpc.wire.limits import ServerLimits, format_address, parse_address
from quorate.rpc.wire.methods import QUORUM_SERVICE, RAFT_SERVICE, RPC_METHODS, RpcMethod
from quorate.telemetry.context import TRACE_PARENT, TRACE_PARENT_CHARS, TRACE_PARENT_KEY

SERVICES = ("", RAFT_SERVICE, QUORUM_SERVICE)
"""The names that grpc.health.v1 knows; "" is the node as a whole."""

_SURROUNDING: tuple[str, ...] = (health.SERVICE_NAME, reflection.SERVICE_NAME)
SURROUNDING_BYTES_MAX = 4_096
"""Limit of a request to health or reflection, which is a name."""

STOP_GRACE_MS = 100


class TraceParents(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Sets a call's traceparent in the context variable that spans read.

    Each call is served in a task of its own, so the value applies to that call only.
    """

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        for name, value in handler_call_details.invocation_metadata:
            if name == TRACE_PARENT_KEY and len(value) == TRACE_PARENT_CHARS:
                TRACE_PARENT.set(str(value))
        return await continuation(handler_call_details)


def _add_methods(server: Any, behaviors: Mapping[str, Behavior]) -> tuple[str, ...]:
    """Add the table's methods to a server that has not been started; returns their services."""
    assert behaviors.keys() == RPC_METHODS.keys(), behaviors.keys() ^ RPC_METHODS.keys()
    services: dict[str, dict[str, Any]] = {}
    for rpc in RPC_METHODS.values():
        handler = method_handler(rpc, behaviors[rpc.name])
        services.setdefault(rpc.service, {})[rpc.name] = handler
    for service, handlers in services.items():
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    return tuple(services)


def method_handler(rpc: RpcMethod, behavior: Behavior) -> Any:
    """The gRPC handler of a method.

    Requests arrive as bytes: the server authorizes the caller before it decodes them.
    """
    makes: Any = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[rpc.streams_requests, rpc.streams_responses]
    return makes(behavior, request_deserializer=None, response_serializer=serialize)


class RpcServer:
    """A server with the services of a node, which share one handler.

    `addresses` are those it listens on, with the actual ports in place of 0. `response_memory`: the
    room that its responses hold, and `watch_memory` those of reads that follow the log. `arrivals`:
    its account of received messages.
    """

    def __init__(
        self,
        server: grpc.aio.Server,
        addresses: Sequence[tuple[str, int]],
        handler: NodeHandler,
        limits: ServerLimits,
        authorizer: CallAuthorizer | None,
    ) -> None:
        """Add the services to `server`, which has not been started."""
        self.server = server
        self.addresses = tuple(addresses)
        self.response_memory = ResponseMemory(small_bytes_max=SMALL_ROOM_BYTES)
        self.watch_memory = ResponseMemory()
        self.arrivals = Arrivals()
        calls = limits.calls_per_second_max
        request_throttle = RequestThrottle(Throttle(calls) if calls else None)
        self._handler_ref = HandlerRef(
            handler,
            authorizer,
            request_throttle,
            self.response_memory,
            self.arrivals,
            watch_memory=self.watch_memory,
        )
        self._servicer = Servicer(self._handler_ref, limits)
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]
        adding: Any = DecodeErrorInterceptor(server, SURROUNDING_BYTES_MAX)
        services = _add_methods(
            adding, {**self._servicer.behaviors, **metadata_behaviors(self._handler_ref)}
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, adding)
        names = (*services, *_SURROUNDING)
        # Not `enable_server_reflection`, which checks the server's type.
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(
            reflection.aio.ReflectionServicer(names),  # type: ignore[attr-defined]
            adding,
        )

    @property
    def ports(self) -> tuple[int, ...]:
        return tuple(port for _, port in self.addresses)

    def use(self, handler: NodeHandler) -> None:
        """Replace the handler: the node was formatted and runs.

        An open append or read stream keeps the handler it started with.
        """
        self._handler_ref.use(handler)

    def note_streamed(self) -> None:
        """Record that a message arrived on a stream outside gRPC (`throttle`, rule 7)."""
        self._handler_ref.request_throttle.note_streamed()

    async def set_serving(self, is_serving: bool, service: str | None = None) -> None:
        """Set the grpc.health.v1 status of one of `SERVICES`, or of all."""
        status = health_pb2.HealthCheckResponse.ServingStatus
        for name in SERVICES if service is None else (service,):
            await self._health.set(name, status.SERVING if is_serving else status.NOT_SERVING)

    async def stop(self, grace_ms: int = STOP_GRACE_MS) -> None:
        """Reject new calls, wait up to `grace_ms` for pending ones, then cancel them.

        A leader resigns first, so that no call is pending and clients know where to go.
        """
        await self._health.enter_graceful_shutdown()
        await self._servicer.reads.end(grace_ms / 1000)
        await self.server.stop(grace_ms / 1000)
        if self._servicer.running:
            await asyncio.wait(self._servicer.running, timeout=grace_ms / 1000)

    async def wait(self) -> None:
        """Wait until the server has stopped."""
        await self.server.wait_for_termination()


async def start_server(
    listen: Sequence[str],
    handler: NodeHandler,
    tls: TlsConfig | None = None,
    limits: ServerLimits | None = None,
    *,
    plaintext: Sequence[str] = (),
    traced: bool = False,
    authorizer: CallAuthorizer | None = None,
    also: Callable[[grpc.aio.Server], None] = lambda _: None,
) -> RpcServer:
    """Start a server on `host:port` addresses.

    listen: with TLS if `tls` is given. plaintext: without TLS. traced: pass the caller's trace from
    the call's metadata to handlers. authorizer: authorizes calls; without one, every caller may
    call every method. also: adds further services before the server starts.

    Raises PortInUseError, ListenError, TlsError, and MisuseError for an invalid address.
    """
    limits = limits or ServerLimits()
    server = grpc.aio.server(
        interceptors=[TraceParents()] if traced else [],
        options=limits.options(),
        maximum_concurrent_rpcs=limits.concurrent_rpcs_max,
    )
    credentials = tls.server_credentials() if tls is not None else None
    wanted = [(parse_address(text), credentials) for text in listen]
    wanted += [(parse_address(text), None) for text in plaintext]
    addresses = [(host, _bind(server, host, port, secure)) for (host, port), secure in wanted]
    started = RpcServer(server, addresses, handler, limits, authorizer)
    also(server)
    await started.set_serving(is_serving=False)
    await server.start()
    return started


def _bind(
    server: grpc.aio.Server, host: str, port: int, credentials: grpc.ServerCredentials | None
) -> int:
    address = format_address(host or "::", port)
    try:
        if credentials is None:
            bound = server.add_insecure_port(address)
        else:
            bound = server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise _reason(host, port) or ListenError(format_address(host, port), str(error)) from None
    if bound == 0:
        raise _reason(host, port) or ListenError(
            format_address(host, port), "gRPC cannot bind the address"
        )
    return bound


def _reason(host: str, port: int) -> ListenError | None:
    """Find out why an address cannot be bound by probing it: gRPC does not report the reason."""
    shown = format_address(host, port)
    try:
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except socket.gaierror as error:
        return ListenError(shown, f'cannot resolve host "{host}": {error.strerror}')
    for family, kind, protocol, _, target in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(target)
                probe.listen()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return PortInUseError(shown)
            return ListenError(shown, error.strerror or str(error))
    return None
