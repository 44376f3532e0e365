"""Limits the connections to a server, in total and per address, which gRPC does not offer.

gRPC accepts connections on its own threads, and reports none before TLS and HTTP/2 have begun. The
guard therefore inspects the process's own sockets, every `PERIOD_S`:

1. An address has at most `per_address_max` connections.
2. All addresses together have at most `connections_max` minus a reserve, which keeps places free
   for new connections until the next inspection. The address with the most connections loses some
   first, so that an address with few (a controller, a broker) always has a place.
3. Of an address's connections, those on which nothing ever arrived are closed first, then the one
   that has received nothing for longest. Peers and clients of this project send at least a ping
   every few seconds, and their connections survive a burst of newer, silent ones.

4. The connection that has sent the most bytes of incomplete messages is closed if there are too
   many of them (`arrivals`). While much data arrives, or the process grows, the guard inspects
   every `BUSY_PERIOD_S`.

`end` closes a single connection.

gRPC itself closes connections beyond `connections_max`, and those whose handshake takes longer than
`ServerLimits.handshake_timeout_ms`. A client with more addresses than there are places, which sends
on all of its connections, is out of scope: that takes a firewall or a network policy.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import struct
import time
from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import NamedTuple

from quorate.rpc.cancellation import cancel_tasks
from quorate.rpc.principals import host_of
from quorate.rpc.server.arrivals import Arrivals, Flow
from quorate.rpc.wire.limits import ServerLimits
from quorate.telemetry.limited_log import LimitedLog

LOGGER = logging.getLogger(__name__)

PERIOD_S = 0.5
BUSY_PERIOD_S = 0.05
BUSY_BYTES = 4 * 1024 * 1024
"""Bytes received, or growth of the process, since the last inspection."""
RESERVED_SHARE = 8
"""One in this many places is kept free."""
LOG_INTERVAL_S = 60.0

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_DESCRIPTORS = "/proc/self/fd"
_INFO_BYTES = 136
_INFO = struct.Struct("=B51xI64xQQ")
"""The fields of `struct tcp_info` that the guard reads (linux/tcp.h, since Linux 4.1).

They are the state, the milliseconds since data arrived, and the bytes that the peer has
acknowledged and sent.
"""
_OPEN_STATES = frozenset((1, 8))
"""ESTABLISHED and CLOSE_WAIT (linux/tcp_states.h). A connection that the guard has shut down is in
neither, but its descriptor stays open until gRPC closes it.
"""


class TcpConnection(NamedTuple):
    """One connection of this process, as the kernel reports it."""

    silent_ms: int
    """The time since data last arrived, or since the connection was accepted."""
    descriptor: int
    host: str
    port: int
    acked: int = 0
    """The bytes that the peer has acknowledged."""
    received: int = 0
    """The bytes that have arrived from the peer."""


class ConnectionGuard:
    """Watches the connections to `ports` of this process; counts open and closed ones."""

    def __init__(
        self, ports: Collection[int], limits: ServerLimits, arrivals: Arrivals | None = None
    ) -> None:
        self._ports = frozenset(ports)
        self._arrivals = Arrivals() if arrivals is None else arrivals
        self._looked_at_s = time.monotonic()
        reserved = max(1, limits.connections_max // RESERVED_SHARE)
        self._total_max = max(1, limits.connections_max - reserved)
        self._per_address_max = min(limits.connections_per_address_max, self._total_max)
        self._closed = LimitedLog(LOGGER, interval_s=LOG_INTERVAL_S)
        self._task: asyncio.Task[None] | None = None
        self.open_count = 0
        self.closed_count = 0

    @staticmethod
    def is_supported() -> bool:
        """Whether this system lets the guard inspect and close connections: Linux only."""
        return os.path.isdir(_DESCRIPTORS)  # noqa: PTH112 - asked once

    def start(self) -> None:
        """Start watching. Linux only: elsewhere this limits nothing."""
        if self.is_supported():
            self._task = asyncio.create_task(self._watch(), name="connections")

    @property
    def is_watching(self) -> bool:
        """Whether the guard can close connections on this system."""
        return self._task is not None

    async def stop(self) -> None:
        await cancel_tasks(self._task)

    async def _watch(self) -> None:
        while True:
            arrived = 0
            try:
                arrived = await asyncio.to_thread(self.look)
            except OSError as error:
                self._closed.warning("", "cannot inspect the connections: %s", error)
            before = _resident_bytes()
            for _ in range(round(PERIOD_S / BUSY_PERIOD_S)):
                await asyncio.sleep(BUSY_PERIOD_S)
                if arrived > BUSY_BYTES or _resident_bytes() - before > BUSY_BYTES:
                    break

    def end(self, peer: str, reason: str) -> None:
        """Close the connection with gRPC's name of a peer, in a thread."""
        asyncio.get_running_loop().run_in_executor(None, self._end, peer, reason)

    def _end(self, peer: str, reason: str) -> None:
        host, port = host_of(peer), int(peer.rpartition(":")[2])
        for connection in self._connections():
            if (connection.host, connection.port) == (host, port):
                self._close(connection, reason)

    def _close(self, connection: TcpConnection, reason: str) -> None:
        self.closed_count += _shut(connection, self._ports)
        host = connection.host
        self._closed.warning(host, "closed a connection from %s: %s", host, reason)

    def look(self) -> int:
        """Close excess connections; returns how many bytes arrived since the last inspection."""
        connections = list(self._connections())
        self.open_count = len(connections)
        if len(connections) > self._per_address_max:
            self._end_excess(connections)
        return self._end_unfinished(connections)

    def _end_unfinished(self, connections: list[TcpConnection]) -> int:
        """Close connections with too many incomplete bytes (rule 4); returns the bytes arrived."""
        now_s = time.monotonic()
        flows = [Flow((each.host, each.port), each.received, each.acked) for each in connections]
        arrived = self._arrivals.look(flows, now_s - self._looked_at_s)
        self._looked_at_s = now_s
        excess = dict(self._arrivals.excess())
        for connection in connections:
            size = excess.get((connection.host, connection.port))
            if size is not None:
                self._close(connection, f"it has sent {size} bytes of incomplete messages")
        return arrived

    def _end_excess(self, connections: list[TcpConnection]) -> None:
        """Close connections beyond the limits (rules 1 to 3)."""
        by_host: dict[str, list[TcpConnection]] = defaultdict(list)
        ranked = sorted(connections, key=lambda each: (each.received == 0, each.silent_ms))
        for connection in ranked:
            by_host[connection.host].append(connection)
        for host, counts in self._kept(by_host).items():
            found = by_host[host]
            excess = found[counts:]
            if not excess:
                continue
            closed = sum(_shut(each, self._ports) for each in excess)
            self.closed_count += closed
            self._closed.warning(
                host,
                "closed %d of %d connections from %s: the limits are %d per address, %d in total",
                closed,
                len(found),
                host,
                self._per_address_max,
                self._total_max,
            )

    def _kept(self, by_host: dict[str, list[TcpConnection]]) -> dict[str, int]:
        """How many connections each address keeps: the maximum is the same for all."""
        counts = {host: min(len(c), self._per_address_max) for host, c in by_host.items()}
        left, hosts = self._total_max, sorted(counts, key=counts.__getitem__)
        for number, host in enumerate(hosts):
            counts[host] = min(counts[host], left // (len(hosts) - number))
            left -= counts[host]
        return counts

    def _connections(self) -> Iterator[TcpConnection]:
        for name in os.listdir(_DESCRIPTORS):  # noqa: PTH208 - thousands of paths are slow
            try:
                found = _borrow(int(name))
            except OSError:
                continue  # not a socket
            try:
                connection = _inspected(found, self._ports)
            except OSError:
                continue  # not connected
            finally:
                found.detach()
            if connection is not None:
                yield connection


def _resident_bytes() -> int:
    """The resident memory of this process; 0 if the system does not report it."""
    with contextlib.suppress(OSError), open("/proc/self/statm", "rb") as found:  # noqa: PTH123
        return int(found.read().split()[1]) * _PAGE_BYTES
    return 0


def _borrow(descriptor: int) -> socket.SocketType:
    """Return gRPC's own descriptor as a socket, not a copy. The caller detaches it.

    gRPC polls open descriptors, and a copy would stay open after gRPC has closed its own. The plain
    type of sockets costs a fraction of `socket.socket`. Raises OSError if it is not a socket.
    """
    return socket.SocketType(socket.AF_INET6, socket.SOCK_STREAM, 0, descriptor)


def _inspected(found: socket.SocketType, ports: Collection[int]) -> TcpConnection | None:
    """The connection to one of `ports`; None if it is another socket or has ended. Raises OSError
    if it is not connected.
    """
    local = found.getsockname()
    if not isinstance(local, tuple) or local[1] not in ports:
        return None
    info = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    state, silent_ms, acked, received = _INFO.unpack_from(info)
    if state not in _OPEN_STATES:
        return None
    host, port = found.getpeername()[:2]
    return TcpConnection(
        silent_ms, found.fileno(), host.removeprefix("::ffff:"), port, acked, received
    )


def _shut(connection: TcpConnection, ports: Collection[int]) -> bool:
    """Shut a connection down, if the descriptor still belongs to the same peer."""
    with contextlib.suppress(OSError):
        found = _borrow(connection.descriptor)
        try:
            now = _inspected(found, ports)
            if now is not None and (now.host, now.port) == (connection.host, connection.port):
                found.shutdown(socket.SHUT_RDWR)
                return True
        finally:
            found.detach()
    return False
