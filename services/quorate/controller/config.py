"""A controller's configuration as one immutable value, and the declarations of its settings.

A controller.properties file written for Kafka works unchanged: Kafka's settings that have no effect
here are known by name, and each is ignored with a warning. A setting that would change security if
it were ignored is rejected instead. A name that neither Kafka nor Quorate knows is an error,
because a misspelled timeout must not go unnoticed.

`process.node_config` declares the settings that brokers have too, `migration_settings` those of the
migration from ZooKeeper.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from quorate.controller.migration.settings import (
    MIGRATION_REFUSED,
    MIGRATION_SETTINGS,
    MigrationSettings,
    check_roles,
)
from quorate.process import config_types as types
from quorate.process.config_types import INT_MAX, LONG_MAX
from quorate.process.kafka_names import is_kafkas
from quorate.process.node_config import NODE_REFUSED, NODE_SETTINGS, NodeConfig, Security
from quorate.process.setting import ConfigDef, Setting, by_name, declared_in, setting

KIB = 1024
MIB = 1024 * KIB
HOUR_MS = 60 * 60 * 1000

CONTROLLER_PRINCIPALS = "quorate.controller.principals"


@dataclass(frozen=True, slots=True)
class Listener:
    """Where to listen. `host` is empty for every address; `tls` says whether connections are
    encrypted.
    """

    name: str
    host: str
    port: int
    tls: bool


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files. `key` and `certificate` may be one file. `ca`: the authorities that must have
    signed the peer's certificate, on incoming and outgoing connections.
    """

    certificate: Path
    key: Path
    ca: Path


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
        "Ours. Who may format a controller that waits for it, separated by semicolons, beside the "
        "super users of an authorizer. User:ANONYMOUS: everybody who connects without TLS.",
    )
    connections_max: int = setting(
        "quorate.connections.max",
        types.integer(8, 1_000_000),
        "4096",
        "Ours. How many connections a controller takes, fewer where the limit of open files is "
        "low; the ones beyond are closed. An eighth of them is kept free for who connects next.",
    )
    connections_per_address_max: int = setting(
        "quorate.connections.per.address.max",
        types.integer(4, 1_000_000),
        "1024",
        "Ours. How many connections one address may have; the ones on which nothing has arrived "
        "for longest are closed.",
    )
    streams_per_connection_max: int = setting(
        "quorate.streams.per.connection.max",
        types.integer(1, 100_000),
        "1024",
        "Ours. How many calls and streams one connection may have under way; a client waits with "
        "the ones beyond.",
    )
    calls_max: int = setting(
        "quorate.calls.max",
        types.integer(64, 1_000_000),
        "8192",
        "Ours. How many calls and streams of all connections are under way; the ones beyond are "
        "refused with RESOURCE_EXHAUSTED.",
    )
    calls_per_second_max: int = setting(
        "quorate.calls.per.second.max",
        types.integer(0, 1_000_000),
        "300",
        "Ours. The calls a second beyond which connections that ask for more than their share "
        "wait, and then are refused with RESOURCE_EXHAUSTED; 0 for no shares. Elections and what "
        "goes over open streams do not count.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig(NodeConfig):
    """The configuration of a controller. log_dirs: all directories to format."""

    role: ClassVar[str] = "controller"

    listeners: tuple[Listener, ...]
    """Those of controller.listener.names, in that order."""
    tls: TlsFiles | None = None
    """None if no listener is encrypted."""
    security: ControllerSecurity = ControllerSecurity()
    migration: MigrationSettings = field(default_factory=MigrationSettings)
    """The migration from ZooKeeper."""
    auto_join: bool = setting(
        "controller.quorum.auto.join.enable",
        types.boolean(),
        "false",
        "Whether this controller makes itself a voter. One that an administrator removed does not "
        "join again by itself.",
    )
    unformatted_wait: bool = setting(
        "quorate.unformatted.wait",
        types.boolean(),
        "false",
        "Whether a controller whose directory is not formatted waits to be formatted over gRPC "
        "instead of ending (for pods).",
    )
    election_timeout_ms: int = setting(
        "controller.quorum.election.timeout.ms",
        types.milliseconds(1),
        "1000",
        "How long a candidate waits for votes; each wait is drawn from one to two times this.",
    )
    election_backoff_max_ms: int = setting(
        "controller.quorum.election.backoff.max.ms",
        types.milliseconds(0),
        "1000",
        "The longest wait after a lost election before the next.",
    )
    fetch_bytes_max: int = setting(
        "controller.quorum.fetch.max.bytes",
        types.size(1, INT_MAX),
        str(8 * MIB),
        "The most records in one answer to a fetch; a single batch may exceed it. Kafka's "
        "default is 1 MiB.",
    )
    snapshot_chunk_bytes_max: int = setting(
        "controller.quorum.fetch.snapshot.max.bytes",
        types.size(1, INT_MAX),
        str(8 * MIB),
        "The most bytes of a snapshot in one answer. Kafka's default is 1 MiB.",
    )
    segment_bytes_max: int = setting(
        "metadata.log.segment.bytes",
        types.size(8 * MIB, INT_MAX),
        str(1024 * MIB),
        "The size at which a new segment of the log is begun.",
    )
    snapshot_interval_bytes_max: int = setting(
        "metadata.log.max.record.bytes.between.snapshots",
        types.size(1),
        str(20 * MIB),
        "How many bytes of log after a snapshot make the next.",
    )
    snapshot_interval_ms_max: int = setting(
        "metadata.log.max.snapshot.interval.ms",
        types.milliseconds(0, LONG_MAX),
        str(HOUR_MS),
        "The longest time between snapshots while records are written; 0 for no limit.",
    )
    consistency_check_interval_ms: int = setting(
        "quorate.consistency.check.interval.ms",
        types.milliseconds(0),
        "10000",
        "Ours. How often the leader compares up to 4 MiB of the committed log with the other "
        "voters, by checksum; 0 for never.",
    )
    retention_bytes_max: int = setting(
        "metadata.max.retention.bytes",
        types.size(-1),
        str(100 * MIB),
        "The size of log and snapshots above which old ones are deleted; -1 for no limit. "
        "The newest snapshot and the log after it always stay.",
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
        "How often the active controller writes a record that does nothing while nothing else is "
        "written; 0 for never. A quorum without any metadata has none.",
    )
    num_partitions: int = setting(
        "num.partitions",
        types.integer(1),
        "1",
        "The partitions of a topic that is created without a number.",
    )
    default_replication_factor: int = setting(
        "default.replication.factor",
        types.integer(1),
        "1",
        "The replicas of a topic that is created without a number.",
    )
    leader_imbalance_check_interval_s: int = setting(
        "leader.imbalance.check.interval.seconds",
        types.integer(1),
        "300",
        "How often partitions go back to their preferred leaders.",
    )

    @property
    def grpc_listeners(self) -> tuple[Listener, ...]:
        """All listeners except the one for Kafka's brokers, which speaks Kafka's protocol."""
        return tuple(each for each in self.listeners if each.name != self.migration.listener)

    @property
    def kafka_listener_is_encrypted(self) -> bool:
        """Whether the listener for Kafka's brokers is encrypted, so that they authenticate."""
        return any(each.tls for each in self.listeners if each.name == self.migration.listener)

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
        "Ours. The principals of all controllers, separated by semicolons, each with the node that "
        "it speaks for where its certificate does not name it (1@User:CN=kafka-1). Nobody else may "
        "vote, "
        "begin or end an epoch, change a voter's entry or fetch in a voter's name, not even with "
        "the cluster action or as a super user. Empty: brokers that are registered may not. Needs "
        "an encrypted listener, and without certificates a caller is User:ANONYMOUS: an "
        "unencrypted listener cannot tell controllers from others.",
    ),
    Setting(
        "ssl.client.auth",
        types.choice("required"),
        "required",
        "Who connects to an SSL listener must present a certificate of our authorities, always. "
        "Kafka's default is none.",
    ),
    Setting(
        "ssl.keystore.type",
        types.choice("PEM"),
        None,
        "Must be PEM where ssl.keystore.location is set: Java's key stores are not read.",
    ),
    Setting(
        "ssl.keystore.location",
        types.path(),
        None,
        "A PEM file with the private key and the certificate; or use ssl.key.location and "
        "ssl.certificate.location.",
    ),
    Setting(
        "ssl.truststore.type",
        types.choice("PEM"),
        None,
        "Must be PEM where ssl.truststore.location is set: Java's trust stores are not read.",
    ),
    Setting(
        "ssl.truststore.location",
        types.path(),
        None,
        "Kafka's name for what is ssl.ca.location here.",
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
        MIGRATION_SETTINGS,
    ),
    NODE_REFUSED | MIGRATION_REFUSED,
    is_kafkas,
    "quorate config-docs",
    check_roles,
)
