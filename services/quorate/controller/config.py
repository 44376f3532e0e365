"""A controller's configuration as one immutable value, and the declarations of its settings.

A controller.properties file written for Kafka works unchanged: Kafka's settings that have no effect
here are known by name, and each is ignored with a warning. A setting that would change security if
it were ignored is rejected instead. A name that neither Kafka nor Quorate knows is an error,
because a misspelled timeout must not go unnoticed.

`process.node_config` declares the settings that brokers have too, `kafka.settings` and
`kafka.security` those of the listener for Kafka's brokers, `tls_settings` those of Kafka's PEM
stores, `migration.settings` those of the migration from ZooKeeper.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from quorate.controller.kafka.security import BY_LISTENER, KAFKA_SECURITY_SETTINGS
from quorate.controller.kafka.settings import KAFKA_LISTENER_SETTINGS, KafkaListenerSettings
from quorate.controller.migration.settings import (
    MIGRATION_REFUSED,
    MIGRATION_SETTINGS,
    MigrationSettings,
    check_roles,
)
from quorate.controller.tls_settings import TLS_BY_LISTENER, TLS_SETTINGS, TlsFiles
from quorate.process import config_types as types
from quorate.process.config_types import INT_MAX, LONG_MAX
from quorate.process.kafka_names import is_kafkas
from quorate.process.node_config import NODE_REFUSED, NODE_SETTINGS, NodeConfig, Security
from quorate.process.properties import ConfigDef
from quorate.process.setting import Setting, by_name, declared_in, setting
from quorate.raft.types import Endpoint, VoterSet

KIB = 1024
MIB = 1024 * KIB
HOUR_MS = 60 * 60 * 1000

CONTROLLER_PRINCIPALS = "quorate.controller.principals"


@dataclass(frozen=True, slots=True)
class Listener:
    """Where to listen. `host` is empty for every address; `tls` says whether connections are
    encrypted, `sasl` whether clients authenticate with SASL.
    """

    name: str
    host: str
    port: int
    tls: bool
    sasl: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSecurity(Security):
    """Authentication, authorization, and the limits of connections and calls."""

    controller_principals: tuple[str, ...] = ()
    """The principals of all controllers; empty if none are configured."""
    node_principals: tuple[tuple[str, int], ...] = ()
    """(principal, node id) for each node that a principal may act for."""
    format_principals: tuple[str, ...] = setting(
        "quorate.format.principals",
        types.principals(),
        "",
        "Ours. The principals, separated by semicolons, that may format a controller that waits "
        "for Format, in addition to an authorizer's super users. User:ANONYMOUS: every client "
        "without TLS.",
    )
    connections_max: int = setting(
        "quorate.connections.max",
        types.integer(8, 1_000_000),
        "4096",
        "Ours. The maximum number of connections to a controller, less if the open-file limit "
        "is low; further ones are closed. An eighth of it is kept free for new connections.",
    )
    connections_per_address_max: int = setting(
        "quorate.connections.per.address.max",
        types.integer(4, 1_000_000),
        "1024",
        "Ours. The maximum number of connections from one address; beyond it, the connection "
        "that has received nothing for the longest time is closed.",
    )
    streams_per_connection_max: int = setting(
        "quorate.streams.per.connection.max",
        types.integer(1, 100_000),
        "1024",
        "Ours. The maximum number of concurrent calls and streams on one connection; the client "
        "queues further ones.",
    )
    calls_max: int = setting(
        "quorate.calls.max",
        types.integer(64, 1_000_000),
        "8192",
        "Ours. The maximum number of concurrent calls and streams on all connections; further "
        "ones are rejected with RESOURCE_EXHAUSTED.",
    )
    watchers_max: int = setting(
        "quorate.watchers.max",
        types.integer(8, 1_000_000),
        "4096",
        "Ours. The maximum number of open reads that follow the log, half of it for one address "
        "and an eighth for one connection; further ones are rejected and try another controller. "
        "At most half of quorate.calls.max.",
    )
    calls_per_second_max: int = setting(
        "quorate.calls.per.second.max",
        types.integer(0, 1_000_000),
        "300",
        "Ours. The calls per second above which calls of connections that exceed their fair "
        "share wait, and are then rejected with RESOURCE_EXHAUSTED; 0 to disable. Elections and "
        "messages on open streams do not count.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig(NodeConfig):
    """The configuration of a controller. log_dirs: all directories to format."""

    role: ClassVar[str] = "controller"

    listeners: tuple[Listener, ...]
    """Those of controller.listener.names, in that order."""
    tls: TlsFiles | None = None
    """Of the gRPC listeners, or else of the one for Kafka's brokers; None if none is encrypted."""
    kafka_tls: TlsFiles | None = None
    """Of the listener for Kafka's brokers; None if it is not encrypted."""
    security: ControllerSecurity = ControllerSecurity()
    migration: MigrationSettings = field(default_factory=MigrationSettings)
    """The migration from ZooKeeper."""
    kafka: KafkaListenerSettings = field(default_factory=KafkaListenerSettings)
    """The listener for Kafka's brokers."""
    token_secret_key: str | None = setting(
        "delegation.token.secret.key",
        types.password(),
        None,
        "The key of delegation tokens: the same on all controllers and brokers. Without it there "
        "are no delegation tokens.",
    )
    token_max_lifetime_ms: int = setting(
        "delegation.token.max.lifetime.ms",
        types.milliseconds(1, 100 * 365 * 24 * HOUR_MS),
        str(7 * 24 * HOUR_MS),
        "The lifetime of a delegation token, beyond which it cannot be renewed.",
    )
    token_expiry_ms: int = setting(
        "delegation.token.expiry.time.ms",
        types.milliseconds(1, 100 * 365 * 24 * HOUR_MS),
        str(24 * HOUR_MS),
        "How long a delegation token is valid before it must be renewed.",
    )
    token_check_interval_ms: int = setting(
        "delegation.token.expiry.check.interval.ms",
        types.milliseconds(1, LONG_MAX),
        str(HOUR_MS),
        "How often the active controller removes expired delegation tokens.",
    )
    auto_join: bool = setting(
        "controller.quorum.auto.join.enable",
        types.boolean(),
        "false",
        "Whether this controller adds itself to the voters. It does not do so again after an "
        "administrator has removed it.",
    )
    unformatted_wait: bool = setting(
        "quorate.unformatted.wait",
        types.boolean(),
        "false",
        "Whether a controller whose directory is not formatted waits to be formatted over gRPC "
        "instead of exiting (for pods).",
    )
    unformatted_format: bool = setting(
        "quorate.unformatted.format",
        types.boolean(),
        "false",
        "Ours. Whether a controller whose directory is not formatted formats it for cluster.id "
        "when it starts, like `storage format --no-initial-controllers`: it is a new replica, "
        "which follows the quorum and becomes a voter once it is added.",
    )
    election_timeout_ms: int = setting(
        "controller.quorum.election.timeout.ms",
        types.milliseconds(1),
        "1000",
        "How long a candidate waits for votes; each wait is a random time between one and two "
        "times this value.",
    )
    election_backoff_max_ms: int = setting(
        "controller.quorum.election.backoff.max.ms",
        types.milliseconds(0),
        "1000",
        "The maximum backoff after a lost election before the next one.",
    )
    fetch_bytes_max: int = setting(
        "controller.quorum.fetch.max.bytes",
        types.size(1, INT_MAX),
        str(8 * MIB),
        "The maximum size of the records in one Fetch response; a single batch may exceed it. "
        "Kafka's default is 1 MiB.",
    )
    snapshot_chunk_bytes_max: int = setting(
        "controller.quorum.fetch.snapshot.max.bytes",
        types.size(1, INT_MAX),
        str(8 * MIB),
        "The maximum number of snapshot bytes in one FetchSnapshot response. Kafka's default is "
        "1 MiB.",
    )
    segment_bytes_max: int = setting(
        "metadata.log.segment.bytes",
        types.size(8 * MIB, INT_MAX),
        str(1024 * MIB),
        "The size at which the log rolls to a new segment.",
    )
    snapshot_interval_bytes_max: int = setting(
        "metadata.log.max.record.bytes.between.snapshots",
        types.size(1),
        str(20 * MIB),
        "How many bytes of log after a snapshot trigger the next one.",
    )
    snapshot_interval_ms_max: int = setting(
        "metadata.log.max.snapshot.interval.ms",
        types.milliseconds(0, LONG_MAX),
        str(HOUR_MS),
        "The longest time between snapshots while records are written; 0 to write none by time.",
    )
    consistency_check_interval_ms: int = setting(
        "quorate.consistency.check.interval.ms",
        types.milliseconds(0),
        "10000",
        "Ours. How often the leader compares up to 4 MiB of the committed log with the other "
        "voters, by checksum; 0 to disable.",
    )
    retention_bytes_max: int = setting(
        "metadata.max.retention.bytes",
        types.size(-1),
        str(100 * MIB),
        "The total size of log segments and snapshots above which the oldest are deleted; -1 "
        "for no limit. The newest snapshot and the log after it are always kept.",
    )
    retention_ms_max: int = setting(
        "metadata.max.retention.ms",
        types.milliseconds(-1, LONG_MAX),
        str(7 * 24 * HOUR_MS),
        "The age above which segments and snapshots are deleted; -1 for no limit.",
    )
    idle_interval_ms_max: int = setting(
        "metadata.max.idle.interval.ms",
        types.milliseconds(0),
        "500",
        "How often the active controller writes a no-op record while nothing else is written; 0 "
        "to disable. A quorum without metadata gets none.",
    )
    num_partitions: int = setting(
        "num.partitions",
        types.integer(1),
        "1",
        "The number of partitions of a topic that is created without one.",
    )
    default_replication_factor: int = setting(
        "default.replication.factor",
        types.integer(1),
        "1",
        "The replication factor of a topic that is created without one.",
    )
    leader_imbalance_check_interval_s: int = setting(
        "leader.imbalance.check.interval.seconds",
        types.integer(1),
        "300",
        "How often the leadership of partitions is moved back to their preferred leaders.",
    )
    unclean_election_interval_ms: int = setting(
        "unclean.leader.election.interval.ms",
        types.milliseconds(1, LONG_MAX),
        str(5 * 60 * 1000),
        "How often partitions without a leader get one that is out of sync, if their topic has "
        "unclean.leader.election.enable.",
    )

    @property
    def grpc_listeners(self) -> tuple[Listener, ...]:
        """All listeners except the one for Kafka's brokers, which speaks Kafka's protocol."""
        return tuple(each for each in self.listeners if each.name != self.kafka.name)

    @property
    def kafka_listener_authenticates(self) -> bool:
        """Whether the callers of the listener for Kafka's brokers authenticate."""
        required = self.kafka.security.client_auth == "required"
        return any(
            each.sasl or (each.tls and required)
            for each in self.listeners
            if each.name == self.kafka.name
        )

    @property
    def peer_listener(self) -> str:
        """The name of the listener on which controllers connect to each other."""
        if self.kafka.name is not None and self.kafka.serves_voters:
            return self.kafka.name
        return self.controller_listener

    def grpc_endpoint(self, endpoint: Endpoint, voters: VoterSet) -> Endpoint:
        """Where to dial a controller that has this endpoint. voters: the current ones.

        In a log that Kafka's controllers wrote, a voter has only their listener. If that is now the
        listener for Kafka's brokers, controller.quorum.voters says where the voter serves gRPC.
        """
        if endpoint.name != self.kafka.name:
            return endpoint
        found = (self.static_voters.get(v.id) for v in voters if endpoint in v.endpoints)
        return next((voter.endpoints[0] for voter in found if voter is not None), endpoint)

    def undialled(self, voters: VoterSet) -> VoterSet:
        """The voters of the log, without this one, that `grpc_endpoint` cannot find.

        None if controllers talk to each other over Kafka's protocol.
        """
        if self.kafka.serves_voters:
            return VoterSet()
        return VoterSet.of(
            voter
            for voter in voters
            if voter.id != self.node_id
            and voter.endpoints
            and all(each.name == self.kafka.name for each in voter.endpoints)
            and self.static_voters.get(voter.id) is None
        )

    def is_encrypted(self, listener_name: str) -> bool:
        """Whether to dial a listener of that name with TLS.

        An unknown name is treated like the first of controller.listener.names, which is the
        listener of the bootstrap servers.
        """
        own = {listener.name: listener.tls for listener in self.listeners}
        return own.get(listener_name, self.protocols.get(listener_name, self.listeners[0].tls))


CONTROLLER_SETTINGS: tuple[Setting, ...] = (
    Setting("process.roles", types.roles(), None, "What this process is. Required."),
    Setting(
        "internal.metadata.log.segment.bytes",
        types.size(KIB, INT_MAX),
        None,
        "Like metadata.log.segment.bytes, which it overrides, down to 1 KiB: for tests.",
    ),
    Setting(
        CONTROLLER_PRINCIPALS,
        types.controller_principals(),
        "",
        "Ours. The principals of all controllers, separated by semicolons, each with its node "
        "id if its certificate does not name the node (1@User:CN=kafka-1). Nobody else may "
        "vote, begin or end an epoch, change a voter's entry or fetch as a voter, not even a "
        "super user or a principal with CLUSTER_ACTION. If empty, this is denied to registered "
        "brokers only. Requires an encrypted listener: without certificates every caller is "
        "User:ANONYMOUS, and controllers cannot be told from other callers.",
    ),
)
"""The settings of a controller that its configuration does not declare as fields."""

CONTROLLER = ConfigDef(
    "controller",
    by_name(
        NODE_SETTINGS,
        declared_in(ControllerConfig),
        declared_in(ControllerSecurity),
        CONTROLLER_SETTINGS,
        TLS_SETTINGS,
        KAFKA_LISTENER_SETTINGS,
        KAFKA_SECURITY_SETTINGS,
        MIGRATION_SETTINGS,
    ),
    NODE_REFUSED | MIGRATION_REFUSED,
    is_kafkas,
    "quorate config-docs",
    check_roles,
    BY_LISTENER | TLS_BY_LISTENER,
)
