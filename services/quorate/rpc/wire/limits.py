"""Wire limits, each with its unit, and the gRPC options that follow from them.

Rules:
1. A batch may be 8 MiB, and a Fetch response carries up to 8 MiB or one batch. A message may be
   16 MiB, which leaves room for the other fields. gRPC's own default of 4 MiB is too small.
2. A connection that receives nothing is closed after keepalive_ms + keepalive_timeout_ms, and
   sooner if sent bytes stay unacknowledged (TCP_USER_TIMEOUT is keepalive_timeout_ms).
3. The client redials a peer soon after the peer refused a connection: its successor is a new
   process at the same address. A redial resolves the name again, since a restarted pod has another
   address.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from quorate.common.batch_layout import HEADER_SIZE
from quorate.common.endpoints import PORT_MAX
from quorate.raft.errors import MisuseError
from quorate.rpc.wire.values import OpaqueRecord

MESSAGE_BYTES_MAX = 16 * 1024 * 1024
BATCH_BYTES_MAX = 8 * 1024 * 1024
SNAPSHOT_PIECE_BYTES_MAX = 1024 * 1024
"""Snapshot bytes in one message of a FetchSnapshot stream."""
LONE_FETCH_BYTES_MAX = 64 * 1024
"""Bytes of records in the response to a unary Fetch; replicas fetch over streams."""

RECORD_OVERHEAD_BYTES = 21
"""Upper bound of a record's size beyond its key and value: five varints, attributes, no headers."""
BATCH_RECORDS_MAX = BATCH_BYTES_MAX // RECORD_OVERHEAD_BYTES
"""More records exceed the batch limit, however small they are."""

POSITIONS_MAX = 200_000
"""Partitions that one Fetch to a broker may name."""

CHANGE_TIMEOUT_MS_MAX = 10 * 60_000
"""For AddVoter, RemoveVoter, UpdateFeatures and appends: a longer timeout is reduced to this."""
ASK_TIMEOUT_MS_MAX = 60_000
"""The same for TransferLeadership and Read."""

FOLLOW_KEEPALIVE_MS = 10_000
"""The interval of empty responses to a read that follows the log, while there are no records."""

ONLY_IDENTITY = 1 << 0
"""The compression algorithms for gRPC, as a bitset: only "identity" (no compression)."""

STREAMS_PER_CONNECTION_MAX = 1_024
"""Further calls are refused by gRPC, which counts a call until the server has freed it, some time
after its end. A client does not know that: with a limit of 100, calls of 64 callers failed.
"""
UNREAD_CALLS_MAX = 8_192
"""Calls that wait until the server's event loop reads them, each 25 KiB at most as measured.

gRPC ends further ones with CANCELLED, in random order from 1,000 on by default, so two clients that
reset their calls at once would make the appends of the others fail with an unknown outcome.
"""

GrpcOptions = list[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits of a server."""

    message_bytes_max: int = MESSAGE_BYTES_MAX
    batch_bytes_max: int = BATCH_BYTES_MAX
    append_messages_in_flight_max: int = 32
    append_bytes_in_flight_max: int = 64 * 1024 * 1024
    """At `append_messages_in_flight_max` or `append_bytes_in_flight_max` on one Append stream, the
    server stops reading until it has answered some messages.
    """
    concurrent_rpcs_max: int = 8_192
    """The most calls and streams of all connections; further ones are rejected with
    RESOURCE_EXHAUSTED.
    """
    connections_max: int = 4_096
    """The most connections; further ones are closed."""
    connections_per_address_max: int = 1_024
    """The most connections of one address: see `connections`."""
    handshake_timeout_ms: int = 5_000
    """The timeout for the handshakes of TLS and HTTP/2."""
    streams_per_connection_max: int = STREAMS_PER_CONNECTION_MAX
    """The most streams of one connection; the client queues further ones."""
    calls_per_second_max: int = 300
    """The limit that `throttle` enforces; 0 disables throttling."""

    def options(self) -> GrpcOptions:
        return [
            ("grpc.max_receive_message_length", self.message_bytes_max),
            ("grpc.max_send_message_length", self.message_bytes_max),
            # No client of a controller compresses, and 16 KiB can expand to the largest message.
            ("grpc.compression_enabled_algorithms_bitset", ONLY_IDENTITY),
            # Binding a port in use must fail, not share connections with another process.
            ("grpc.so_reuseport", 0),
            # Answering a ping is cheap. Each one beyond the strikes, however, is added to the error
            # with which the connection closes after its next write, and copies that error: 10,000
            # pings take 0.3 s, and twice as many take four times as long.
            ("grpc.http2.max_ping_strikes", 0),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.keepalive_time_ms", 30_000),
            ("grpc.keepalive_timeout_ms", 5_000),
            ("grpc.http2.ping_timeout_ms", 5_000),
            ("grpc.max_concurrent_streams", self.streams_per_connection_max),
            ("grpc.server.max_pending_requests", UNREAD_CALLS_MAX),
            ("grpc.server.max_pending_requests_hard_limit", UNREAD_CALLS_MAX),
            ("grpc.max_allowed_incoming_connections", self.connections_max),
            ("grpc.server_handshake_timeout_ms", self.handshake_timeout_ms),
        ]


@dataclass(frozen=True, slots=True)
class ChannelLimits:
    """Limits of a client's channels."""

    message_bytes_max: int = MESSAGE_BYTES_MAX
    connect_timeout_ms: int = 1_000
    """The timeout for one attempt."""
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    resolve_interval_min_ms: int = 500
    keepalive_ms: int = 5_000
    keepalive_timeout_ms: int = 2_500
    channel_idle_ms: int = 300_000
    """The time after which an unused channel is closed."""
    silence_ms: int = 4_000
    """How long a client waits for a node that answers nothing at all: two of the controllers' usual
    fetch timeouts, after which another node leads.
    """

    def options(self) -> GrpcOptions:
        return [
            ("grpc.max_receive_message_length", self.message_bytes_max),
            ("grpc.max_send_message_length", self.message_bytes_max),
            ("grpc.initial_reconnect_backoff_ms", self.reconnect_backoff_ms),
            ("grpc.max_reconnect_backoff_ms", self.reconnect_backoff_max_ms),
            # gRPC uses this option as the timeout of one connection attempt.
            ("grpc.min_reconnect_backoff_ms", self.connect_timeout_ms),
            ("grpc.dns_min_time_between_resolutions_ms", self.resolve_interval_min_ms),
            ("grpc.keepalive_time_ms", self.keepalive_ms),
            ("grpc.keepalive_timeout_ms", self.keepalive_timeout_ms),
            # The kernel keeps acknowledging bytes for a stopped process, and by default gRPC waits
            # a minute for the answer to a ping.
            ("grpc.http2.ping_timeout_ms", self.keepalive_timeout_ms),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
            # This package decides about retries; gRPC must not retry by itself.
            ("grpc.enable_retries", 0),
            ("grpc.enable_http_proxy", 0),
            ("grpc.use_local_subchannel_pool", 1),
        ]


def batch_bytes(records: Sequence[OpaqueRecord]) -> int:
    """An upper bound of the encoded batch's size in bytes.

    Callers compare it with `batch_bytes_max`.
    """
    sizes = map(len, filter(None, chain.from_iterable(records)))
    return HEADER_SIZE + RECORD_OVERHEAD_BYTES * len(records) + sum(sizes)


def too_large(size: int, limit: int) -> str:
    """The error message of MESSAGE_TOO_LARGE."""
    return f"the records need a batch of up to {size} bytes, but the limit is {limit}"


# --- addresses ------------------------------------------------------------------------------------


def parse_address(text: str) -> tuple[str, int]:
    """Parse `host:port`, `[v6]:port` or `:port` (host "" means every address).

    Raises MisuseError for any other text.
    """
    host, colon, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise MisuseError(f"{text!r} is not host:port; an IPv6 address is written [::1]:9093")
    if not colon or not port.isdecimal() or int(port) > PORT_MAX:
        raise MisuseError(f"{text!r} is not host:port with a port of 0 to {PORT_MAX}")
    return host, int(port)


def format_address(host: str, port: int) -> str:
    """Format an address as `host:port`, or `[v6]:port`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
