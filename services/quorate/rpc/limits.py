"""Limits of the wire, each with its unit, and what follows from them for gRPC.

Rules:
1. A batch may be 8 MiB and a Fetch answers with 8 MiB or one batch: a message may be 16 MiB, which
   leaves room for what surrounds the records. gRPC's own default of 4 MiB is too small.
2. A connection on which nothing comes back is given up after keepalive_ms + keepalive_timeout_ms,
   and sooner where sent bytes stay unacknowledged (TCP_USER_TIMEOUT is keepalive_timeout_ms).
3. A peer that refused a connection is dialled again soon: its successor is a new process at the
   same address. Names are resolved anew then, since a restarted pod has another address.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from quorate.raft.errors import MisuseError
from quorate.rpc.values import OpaqueRecord

MESSAGE_BYTES_MAX = 16 * 1024 * 1024
BATCH_BYTES_MAX = 8 * 1024 * 1024
SNAPSHOT_PIECE_BYTES_MAX = 1024 * 1024
"""One message of a FetchSnapshot stream."""
LONE_FETCH_BYTES_MAX = 64 * 1024
"""Records in the answer to a Fetch outside of a stream; replicas fetch in streams."""

BATCH_OVERHEAD_BYTES = 61
RECORD_OVERHEAD_BYTES = 21
"""The most that a record takes beside its key and value: five varints, attributes, no headers."""
BATCH_RECORDS_MAX = BATCH_BYTES_MAX // RECORD_OVERHEAD_BYTES
"""More are too large together, however small they are."""

POSITIONS_MAX = 200_000
"""Partitions that one Fetch of a broker's partitions may name."""

CHANGE_TIMEOUT_MS_MAX = 10 * 60_000
"""AddVoter, RemoveVoter, UpdateFeatures, appends: a longer timeout is taken for this one."""
ASK_TIMEOUT_MS_MAX = 60_000
"""The same for TransferLeadership and Read."""

PORT_MAX = 65_535

ONLY_IDENTITY = 1 << 0
"""The set of gRPC's compression algorithms that holds none but "not compressed"."""

GrpcOptions = list[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """append_*: of one Append stream under way at once; more is not read until some is answered.

    concurrent_rpcs_max: calls and streams of all connections; the ones beyond are refused with
    RESOURCE_EXHAUSTED. connections_max: the ones beyond are closed. connections_per_address_max:
    see `connections`. handshake_timeout_ms: of TLS and HTTP/2. streams_per_connection_max: a
    client waits with the ones beyond. calls_per_second_max: see `throttle`; 0 for no shares.
    ping_interval_min_ms: who pings more often is disconnected.
    """

    message_bytes_max: int = MESSAGE_BYTES_MAX
    batch_bytes_max: int = BATCH_BYTES_MAX
    append_messages_in_flight_max: int = 32
    append_bytes_in_flight_max: int = 64 * 1024 * 1024
    concurrent_rpcs_max: int = 8_192
    connections_max: int = 4_096
    connections_per_address_max: int = 1_024
    handshake_timeout_ms: int = 5_000
    streams_per_connection_max: int = 1_024
    calls_per_second_max: int = 300
    ping_interval_min_ms: int = 1_000

    def options(self) -> GrpcOptions:
        return [
            ("grpc.max_receive_message_length", self.message_bytes_max),
            ("grpc.max_send_message_length", self.message_bytes_max),
            # No client of a controller compresses, and 16 KiB unpack to the largest message.
            ("grpc.compression_enabled_algorithms_bitset", ONLY_IDENTITY),
            # A port in use must be an error, not a share of somebody else's connections.
            ("grpc.so_reuseport", 0),
            ("grpc.http2.min_ping_interval_without_data_ms", self.ping_interval_min_ms),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", self.ping_interval_min_ms),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.keepalive_time_ms", 30_000),
            ("grpc.keepalive_timeout_ms", 5_000),
            ("grpc.http2.ping_timeout_ms", 5_000),
            ("grpc.max_concurrent_streams", self.streams_per_connection_max),
            ("grpc.max_allowed_incoming_connections", self.connections_max),
            ("grpc.server_handshake_timeout_ms", self.handshake_timeout_ms),
        ]


@dataclass(frozen=True, slots=True)
class ChannelLimits:
    """connect_timeout_ms: for one attempt. channel_idle_ms: an unused channel is closed after
    that. silence_ms: how long a client waits for a node that answers nothing at all: two of the
    controllers' usual fetch timeouts, after which another one leads.
    """

    message_bytes_max: int = MESSAGE_BYTES_MAX
    connect_timeout_ms: int = 1_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    resolve_interval_min_ms: int = 500
    keepalive_ms: int = 5_000
    keepalive_timeout_ms: int = 2_500
    channel_idle_ms: int = 300_000
    silence_ms: int = 4_000

    def options(self) -> GrpcOptions:
        return [
            ("grpc.max_receive_message_length", self.message_bytes_max),
            ("grpc.max_send_message_length", self.message_bytes_max),
            ("grpc.initial_reconnect_backoff_ms", self.reconnect_backoff_ms),
            ("grpc.max_reconnect_backoff_ms", self.reconnect_backoff_max_ms),
            # gRPC's name for the time that one attempt to connect may take.
            ("grpc.min_reconnect_backoff_ms", self.connect_timeout_ms),
            ("grpc.dns_min_time_between_resolutions_ms", self.resolve_interval_min_ms),
            ("grpc.keepalive_time_ms", self.keepalive_ms),
            ("grpc.keepalive_timeout_ms", self.keepalive_timeout_ms),
            # A process that is stopped has a kernel that goes on acknowledging: for the answer to
            # the ping itself gRPC would wait a minute.
            ("grpc.http2.ping_timeout_ms", self.keepalive_timeout_ms),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
            # Whether to try again is decided here, never below.
            ("grpc.enable_retries", 0),
            ("grpc.enable_http_proxy", 0),
            ("grpc.use_local_subchannel_pool", 1),
        ]


def batch_bytes(records: Iterable[OpaqueRecord]) -> int:
    """An upper bound of the encoded batch's size in bytes; what is compared with
    `batch_bytes_max`.
    """
    # A list, since generating the sizes one by one takes half as long again.
    sizes = [len(value) + len(key) if key else len(value) for key, value in records]
    return BATCH_OVERHEAD_BYTES + RECORD_OVERHEAD_BYTES * len(sizes) + sum(sizes)


def too_large(size: int, limit: int) -> str:
    """What MESSAGE_TOO_LARGE says."""
    return f"the records make a batch of up to {size} bytes and the limit is {limit}"


# --- addresses ------------------------------------------------------------------------------------


def parse_address(text: str) -> tuple[str, int]:
    """`host:port`, `[v6]:port` or `:port` (host "" is every address). MisuseError if it is
    neither.
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
    """`host:port` as gRPC and people write it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
