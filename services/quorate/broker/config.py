"""A broker's configuration, as one immutable value. Times are milliseconds, sizes bytes.

Names and defaults of the settings are Kafka's (KRaftConfigs, ReplicationConfigs, ServerLogConfigs).
Settings that controllers share are in `process.node_config`.

Flushing. As in Kafka, a replica acknowledges a record when the operating system has it. Durability
comes from replication: other replicas have the record, and a restarted broker is fenced and removed
from every ISR that has another member before it can lead. Records acknowledged with acks=all get
these guarantees, by configuration (the model in tests/unit/broker checks all three):

1. Default: records survive if one ISR member at a time loses its unflushed tail, or its whole
   machine, and no other member fails before the controller has noticed. The last member of an ISR
   remains a risk: it stays in the ISR, and leads again even if it comes back without its tail
   (KIP-841 keeps this, because no other replica has more).
2. eligible.leader.replicas.version=1 (KIP-966): records survive one unclean stop at a time,
   whatever else happens. A last member that stopped uncleanly does not lead while another replica
   is eligible.
3. log.flush.interval.messages=1: records survive any number of unclean stops, at any time. No
   replica acknowledges unflushed records, at the cost of two flushes in the path of each batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from quorate.common import config_types as types
from quorate.common.config_types import INT_MAX, ConfigType
from quorate.common.setting import Setting, by_name, declared_in, setting
from quorate.process.node_config import NODE_SETTINGS, NodeConfig
from quorate.rpc.tls import TlsConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(NodeConfig):
    """A broker's configuration.

    The first of log_dirs holds new partitions; metadata_log_dir may be the same directory.
    """

    role: ClassVar[str] = "broker"

    listen: tuple[str, ...]
    """The `host:port` of each listener, in the order of `endpoints`."""
    encrypted: frozenset[str] = frozenset()
    """The names of listeners that use TLS, on this broker and on other nodes."""
    tls: TlsConfig | None = None
    rack: str | None = setting("broker.rack", types.text(), None, "The rack of this broker.")
    heartbeat_interval_ms: int = setting(
        "broker.heartbeat.interval.ms",
        types.milliseconds(1),
        "2000",
        "The interval between heartbeats.",
    )
    registration_timeout_ms: int = setting(
        "initial.broker.registration.timeout.ms",
        types.milliseconds(1),
        "60000",
        "How long the broker tries to register before it gives up.",
    )
    controlled_shutdown: bool = setting(
        "controlled.shutdown.enable",
        types.boolean(),
        "true",
        "Whether the broker hands over its leaderships and leaves the ISRs before it stops.",
    )
    controlled_shutdown_timeout_ms: int = setting(
        "quorate.controlled.shutdown.timeout.ms",
        types.milliseconds(1),
        "30000",
        "Quorate-specific. How long a stopping broker waits until the controller grants the "
        "controlled shutdown.",
    )
    lag_time_max_ms: int = setting(
        "replica.lag.time.max.ms",
        types.milliseconds(1),
        "30000",
        "A follower that has not been caught up for this long is removed from the ISR.",
    )
    fetch_wait_max_ms: int = setting(
        "replica.fetch.wait.max.ms",
        types.milliseconds(1),
        "500",
        "The longest time that a follower's fetch waits for records.",
    )
    fetch_bytes_max: int = setting(
        "replica.fetch.response.max.bytes",
        types.size(1, INT_MAX),
        str(8 << 20),
        "The maximum size of the records in one fetch response.",
    )
    fetch_partition_bytes_max: int = setting(
        "replica.fetch.max.bytes",
        types.size(1, INT_MAX),
        str(1 << 20),
        "The maximum size of the records of one partition in a fetch response.",
    )
    fetch_backoff_ms: int = setting(
        "replica.fetch.backoff.ms",
        types.milliseconds(1),
        "100",
        "How long to wait after a failed fetch.",
    )
    min_insync_replicas: int = setting(
        "min.insync.replicas",
        types.integer(1),
        "1",
        "The minimum number of in-sync replicas for acks=all, unless a topic, broker or cluster "
        "config overrides it.",
    )
    flush_interval_messages: int | None = setting(
        "log.flush.interval.messages",
        types.integer(1),
        None,
        "Flush after this many records. 1: acknowledge only flushed records. Not set: the "
        "operating system decides when to write.",
    )
    flush_interval_ms: int | None = setting(
        "log.flush.interval.ms",
        types.milliseconds(1),
        None,
        "The interval between periodic flushes. Not set: no periodic flushes.",
    )
    segment_bytes_max: int = setting(
        "log.segment.bytes",
        types.size(1, INT_MAX),
        str(1 << 30),
        "The size at which a new segment is started.",
    )
    message_bytes_max: int = setting(
        "message.max.bytes", types.size(1, INT_MAX), str(8 << 20), "The maximum size of a batch."
    )
    checkpoint_interval_ms: int = setting(
        "replica.high.watermark.checkpoint.interval.ms",
        types.milliseconds(1),
        "5000",
        "How often high watermarks are written to disk.",
    )

    @property
    def flush_before_ack(self) -> bool:
        """Whether log.flush.interval.messages is 1."""
        return self.flush_interval_messages == 1

    def is_encrypted(self, listener_name: str) -> bool:
        """Whether connections to a listener of this name use TLS."""
        return self.protocols.get(listener_name, listener_name in self.encrypted)


def _role() -> ConfigType[tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        if text.strip() != "broker":
            raise ValueError("a broker's role is broker")
        return ("broker",)

    return ConfigType("list", "broker", parse)


BROKER_SETTINGS: dict[str, Setting] = by_name(
    NODE_SETTINGS,
    declared_in(BrokerConfig),
    (Setting("process.roles", _role(), None, "The role of this process. Required."),),
)
"""Every setting of a broker."""
