"""A controller's configuration as one immutable value, and the declarations of its settings.

A controller.properties file written for Kafka works unchanged: Kafka's settings that have no effect
here are known by name, and each is ignored with a warning. A setting that would change security if
it were ignored is rejected instead. A name that neither Kafka nor Quorate knows is an error,
because a misspelled timeout must not go unnoticed.

Further settings are declared by `process.node_config` (those that brokers have too), by the classes
of the groups (raft, the metadata controller, the log, snapshots), by `kafka.settings` and
`kafka.security` (the listener for Kafka's brokers), `topic.settings` (the one for Kafka's producers
and consumers), `tls_settings` (Kafka's PEM stores) and
`migration.settings`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from quorate.common import config_types as types
from quorate.common.config_types import INT_MAX, KIB
from quorate.common.endpoints import Endpoint
from quorate.common.setting import Setting, by_name, declared_in, group, setting
from quorate.controller.kafka.security import BY_LISTENER, KAFKA_SECURITY_SETTINGS
from quorate.controller.kafka.settings import KAFKA_LISTENER_SETTINGS, KafkaListenerSettings
from quorate.controller.migration.settings import (
    MIGRATION_REFUSED,
    MIGRATION_SETTINGS,
    MigrationSettings,
    check_roles,
)
from quorate.controller.tls_settings import TLS_BY_LISTENER, TLS_SETTINGS, TlsFiles
from quorate.controller.topic.settings import TOPIC_LISTENER_SETTINGS, TopicListenerSettings
from quorate.log.config import LogConfig
from quorate.metadata.settings import ControllerSettings
from quorate.process.kafka_names import is_kafkas
from quorate.process.node_config import NODE_REFUSED, NODE_SETTINGS, NodeConfig, Security
from quorate.process.properties import ConfigDef
from quorate.raft.config import VoterSettings
from quorate.raft.types import VoterSet
from quorate.runtime.snapshot_policy import SnapshotPolicy

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
        "Quorate-specific. The principals, separated by semicolons, that may format a controller "
        "that waits for Format, in addition to an authorizer's super users. User:ANONYMOUS: every "
        "client without TLS.",
    )
    connections_max: int = setting(
        "quorate.connections.max",
        types.integer(8, 1_000_000),
        "4096",
        "Quorate-specific. The maximum number of connections to a controller, less if the "
        "open-file limit is low; further ones are closed. An eighth of it is kept free for new "
        "connections.",
    )
    connections_per_address_max: int = setting(
        "quorate.connections.per.address.max",
        types.integer(4, 1_000_000),
        "1024",
        "Quorate-specific. The maximum number of connections from one address; beyond it, the "
        "connection that has received nothing for the longest time is closed.",
    )
    streams_per_connection_max: int = setting(
        "quorate.streams.per.connection.max",
        types.integer(1, 100_000),
        "1024",
        "Quorate-specific. The maximum number of concurrent calls and streams on one connection; "
        "the client queues further ones.",
    )
    calls_max: int = setting(
        "quorate.calls.max",
        types.integer(64, 1_000_000),
        "8192",
        "Quorate-specific. The maximum number of concurrent calls and streams on all connections; "
        "further ones are rejected with RESOURCE_EXHAUSTED.",
    )
    watchers_max: int = setting(
        "quorate.watchers.max",
        types.integer(8, 1_000_000),
        "4096",
        "Quorate-specific. The maximum number of open reads that follow the log, half of it for "
        "one address and an eighth for one connection; further ones are rejected and try another "
        "controller. At most half of quorate.calls.max.",
    )
    calls_per_second_max: int = setting(
        "quorate.calls.per.second.max",
        types.integer(0, 1_000_000),
        "300",
        "Quorate-specific. The calls per second above which calls of connections that exceed "
        "their fair share wait, and are then rejected with RESOURCE_EXHAUSTED; 0 to disable. "
        "Elections and messages on open streams do not count.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig(NodeConfig):
    """The configuration of a controller. log_dirs: all directories to format."""

    role: ClassVar[str] = "controller"

    listeners: tuple[Listener, ...]
    """Those of controller.listener.names, in that order."""
    tls: TlsFiles | None = None
    """Of the gRPC listeners, or else of one for Kafka's protocol; None if none is encrypted."""
    kafka_tls: TlsFiles | None = None
    """Of the listener for Kafka's brokers; None if it is not encrypted."""
    topic_tls: TlsFiles | None = None
    """Of the listener for Kafka's producers and consumers; None if it is not encrypted."""
    raft: VoterSettings = group(VoterSettings)
    metadata: ControllerSettings = group(ControllerSettings)
    log: LogConfig = group(LogConfig)
    snapshots: SnapshotPolicy = group(SnapshotPolicy)
    security: ControllerSecurity = group(ControllerSecurity)
    migration: MigrationSettings = group(MigrationSettings)
    """The migration from ZooKeeper."""
    kafka: KafkaListenerSettings = group(KafkaListenerSettings)
    """The listener for Kafka's brokers."""
    topic: TopicListenerSettings = group(TopicListenerSettings)
    """The listener for Kafka's producers and consumers."""
    unformatted_wait: bool = setting(
        "quorate.unformatted.wait",
        types.boolean(),
        "false",
        "Quorate-specific. Whether a controller whose directory is not formatted waits to be "
        "formatted over gRPC instead of exiting (for pods).",
    )
    unformatted_format: bool = setting(
        "quorate.unformatted.format",
        types.boolean(),
        "false",
        "Quorate-specific. Whether a controller whose directory is not formatted formats it for "
        "cluster.id when it starts, like `storage format --no-initial-controllers`: it is a new "
        "replica, which follows the quorum and becomes a voter once it is added.",
    )
    consistency_check_interval_ms: int = setting(
        "quorate.consistency.check.interval.ms",
        types.milliseconds(0),
        "10000",
        "Quorate-specific. How often the leader compares up to 4 MiB of the committed log with "
        "the other voters, by checksum; 0 to disable.",
    )

    @property
    def grpc_listeners(self) -> tuple[Listener, ...]:
        """All listeners except those that speak Kafka's protocol."""
        kafkas = (self.kafka.name, self.topic.listener)
        return tuple(each for each in self.listeners if each.name not in kafkas)

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
    def frames_port(self) -> int:
        """The advertised port of the listener for Kafka's brokers if it also takes appends in
        frames, otherwise 0.

        It does if it admits the same callers as gRPC, and no others. Clients look for it at the
        host where they have found gRPC.
        """
        kafka = next((each for each in self.listeners if each.name == self.kafka.name), None)
        clients = self.grpc_listeners
        if kafka is None or kafka.sasl or not clients:
            return 0
        if any(each.tls is not kafka.tls for each in clients):
            return 0
        requires = self.kafka.security.client_auth == "required"
        if kafka.tls and not (requires and self.kafka_tls == self.tls):
            return 0
        advertised = {each.name: each for each in self.endpoints}
        found = advertised[kafka.name]
        return found.port if found.host == advertised[clients[0].name].host else 0

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

    def without_grpc_endpoint(self, voters: VoterSet) -> VoterSet:
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
    Setting("process.roles", types.roles(), None, "The role of this process. Required."),
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
        "Quorate-specific. The principals of all controllers, separated by semicolons, each with "
        "its node id if its certificate does not name the node (1@User:CN=kafka-1). Nobody else "
        "may vote, begin or end an epoch, change a voter's entry or fetch as a voter, not even a "
        "super user or a principal with CLUSTER_ACTION. If empty, this is denied to registered "
        "brokers only. Requires an encrypted listener: without certificates every caller is "
        "User:ANONYMOUS, and controllers cannot be distinguished from other callers.",
    ),
)
"""The settings of a controller that its configuration does not declare as fields."""

CONTROLLER = ConfigDef(
    "controller",
    by_name(
        NODE_SETTINGS,
        declared_in(ControllerConfig),
        CONTROLLER_SETTINGS,
        TLS_SETTINGS,
        KAFKA_LISTENER_SETTINGS,
        TOPIC_LISTENER_SETTINGS,
        KAFKA_SECURITY_SETTINGS,
        MIGRATION_SETTINGS,
    ),
    NODE_REFUSED | MIGRATION_REFUSED,
    is_kafkas,
    "quorate config-docs",
    check_roles,
    BY_LISTENER | TLS_BY_LISTENER,
)
