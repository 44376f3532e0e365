"""What a broker is told, as one immutable value. Times are milliseconds, sizes bytes.

Names and defaults are Kafka's (KRaftConfigs, ReplicationConfigs, ServerLogConfigs), in the comments
of the fields. How it is written in files is the command line's business.

Flushing. As in Kafka, a replica acknowledges what the operating system has; what keeps a record is
that others have it too, and that a broker which comes back is fenced and out of every ISR that has
another member before it can lead. What is promised of records acknowledged under acks=all, by how
much is done for it (the model in tests/unit/broker tries all three):

1. as it comes: they survive one broker of the ISR at a time that loses its unflushed tail, machine
   and all, if no other member fails before the controller has noticed. The last member of an ISR is
   the danger that remains: it stays in, and when it comes back without its tail it leads all the
   same (KIP-841 keeps it so, for nobody else has more).
2. eligible.leader.replicas.version=1 (KIP-966): one unclean stop at a time, whatever else happens;
   a last member that stopped uncleanly does not lead while another one is eligible.
3. log.flush.interval.messages=1: any number, at any time; nobody acknowledges what it has not
   flushed, at the price of two flushes on the way of each batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from quorate.raft.types import Endpoint, VoterSet
from quorate.rpc.tls import TlsConfig

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """log_dirs: the first holds new partitions. metadata_log_dir may be the same directory.

    listen: `host:port` each, in the order of `endpoints`, which say how others dial it. encrypted:
    the names of listeners that use TLS, this broker's and others' of the same names.
    """

    node_id: int
    listen: tuple[str, ...]
    endpoints: tuple[Endpoint, ...]
    log_dirs: tuple[Path, ...]
    metadata_log_dir: Path
    controller_listener: str
    bootstrap_servers: tuple[tuple[str, int], ...]
    static_voters: VoterSet = field(default_factory=VoterSet)
    cluster_id: str | None = None
    rack: str | None = None
    encrypted: frozenset[str] = frozenset()
    protocols: Mapping[str, bool] = field(default_factory=dict, hash=False)
    tls: TlsConfig | None = None
    heartbeat_interval_ms: int = 2_000
    session_timeout_ms: int = 9_000
    registration_timeout_ms: int = 60_000
    controlled_shutdown: bool = True
    controlled_shutdown_timeout_ms: int = 30_000
    lag_time_max_ms: int = 30_000
    fetch_wait_max_ms: int = 500
    fetch_bytes_max: int = 8 * MIB
    fetch_partition_bytes_max: int = MIB
    fetch_backoff_ms: int = 100
    min_insync_replicas: int = 1
    flush_interval_messages: int | None = None
    flush_interval_ms: int | None = None
    segment_bytes_max: int = 1 << 30
    message_bytes_max: int = 8 * MIB
    checkpoint_interval_ms: int = 5_000
    raft_fetch_timeout_ms: int = 2_000
    raft_request_timeout_ms: int = 2_000
    raft_retry_backoff_ms: int = 50
    warnings: tuple[str, ...] = ()
    source: str = "the environment"

    @property
    def flush_before_ack(self) -> bool:
        """log.flush.interval.messages=1."""
        return self.flush_interval_messages == 1

    def is_encrypted(self, listener_name: str) -> bool:
        """Whether a listener of that name is dialled with TLS."""
        return self.protocols.get(listener_name, listener_name in self.encrypted)
