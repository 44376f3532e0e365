"""A controller's configuration: a Java properties file and the environment, checked, as one
immutable value.

Rules:
1. The environment overrides the file: QUORATE_NODE_ID is node.id. Without a file, everything comes
   from there.
2. What is wrong raises `ConfigError`, one line: where (file and line, or variable), which setting,
   which value, what is accepted. Nothing is corrected silently; what is ignored is listed in
   `ControllerConfig.warnings`.
3. Reading a configuration looks at no other file, except at the PEM files that an SSL listener
   needs.

The settings are declared in `settings.py` and read by `given.py`; here is what must fit together.
Source: Kafka's KafkaConfig and SocketServerConfigs; KIP-853, "Configuration".
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from quorate.controller.given import ConfigError, Given, nearest, read_given, read_properties
from quorate.controller.migration_settings import MigrationSettings, read_migration
from quorate.controller.settings import CONTROLLER_PRINCIPALS, Address
from quorate.raft.types import Endpoint, ReplicaKey, Voter, VoterSet
from quorate.rpc.principals import PrincipalMapping
from quorate.telemetry.logs import LogFormat

WILDCARD_HOSTS = ("", "0.0.0.0", "::")  # noqa: S104 - recognised here, bound only if somebody asks for it


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
    """PEM files. `key` and `certificate` may be one file. `ca`: the authorities whose certificates
    the other side must have, in both directions.
    """

    certificate: Path
    key: Path
    ca: Path


@dataclass(frozen=True, slots=True)
class Security:
    """Who may call, and how much. authorizer: whether the ACLs decide. peer_identity: auto,
    required or off. controller_principals: of all controllers, empty for "not said". The rest are
    limits of the server.
    """

    authorizer: bool = False
    super_users: tuple[str, ...] = ()
    allow_if_no_acl_found: bool = False
    principal_mapping: PrincipalMapping = field(default_factory=PrincipalMapping)
    peer_identity: str = "auto"
    controller_principals: tuple[str, ...] = ()
    connections_max: int = 4_096
    streams_per_connection_max: int = 1_024
    calls_max: int = 8_192
    calls_per_second_max: int = 300


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """What a controller is told. Times are milliseconds, sizes bytes, -1 or 0 "no limit" as in
    `settings.py`.

    listeners: those of controller.listener.names, in that order. endpoints: the same as others
    should dial them.
    bootstrap_servers: where the quorum can be found; taken from static_voters where it is not set
    (KIP-853).
    static_voters: controller.quorum.voters, in force at kraft.version 0 only. metadata_log_dir
    holds meta.properties and `__cluster_metadata-0`; log_dirs are all directories to format.
    tls: None if no listener is encrypted. protocols: whether the listener of a name is encrypted,
    of all names in listener.security.protocol.map. migration: from ZooKeeper.
    """

    node_id: int
    listeners: tuple[Listener, ...]
    endpoints: tuple[Endpoint, ...]
    metadata_log_dir: Path
    log_dirs: tuple[Path, ...]
    bootstrap_servers: tuple[Address, ...] = ()
    static_voters: VoterSet = field(default_factory=VoterSet)
    cluster_id: str | None = None
    auto_join: bool = False
    unformatted_wait: bool = False
    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    request_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    retry_backoff_ms: int = 50
    fetch_bytes_max: int = 8 * 1024 * 1024
    snapshot_chunk_bytes_max: int = 8 * 1024 * 1024
    segment_bytes_max: int = 1024 * 1024 * 1024
    snapshot_interval_bytes_max: int = 20 * 1024 * 1024
    snapshot_interval_ms_max: int = 60 * 60 * 1000
    consistency_check_interval_ms: int = 10_000
    retention_bytes_max: int = 100 * 1024 * 1024
    retention_ms_max: int = 7 * 24 * 60 * 60 * 1000
    idle_interval_ms_max: int = 500
    broker_session_timeout_ms: int = 9_000
    num_partitions: int = 1
    default_replication_factor: int = 1
    leader_imbalance_check_interval_s: int = 300
    http_listener: Address | None = None
    otlp_endpoint: str | None = None
    trace_sample_ratio: float = 0.0
    log_format: LogFormat = LogFormat.TEXT
    tls: TlsFiles | None = None
    security: Security = Security()
    protocols: Mapping[str, bool] = field(default_factory=dict, hash=False)
    migration: MigrationSettings = field(default_factory=MigrationSettings)
    warnings: tuple[str, ...] = ()
    source: str = "the environment"

    @property
    def listener_names(self) -> tuple[str, ...]:
        """controller.listener.names: the first is the one that others dial."""
        return tuple(listener.name for listener in self.listeners)

    @property
    def grpc_listeners(self) -> tuple[Listener, ...]:
        """All but the one on which Kafka's brokers speak their own protocol."""
        return tuple(each for each in self.listeners if each.name != self.migration.listener)

    def is_encrypted(self, listener_name: str) -> bool:
        """Whether to dial a listener of that name with TLS. A name that means nothing here is taken
        for one like the first of controller.listener.names, which the bootstrap servers' have.
        """
        own = {listener.name: listener.tls for listener in self.listeners}
        return own.get(listener_name, self.protocols.get(listener_name, self.listeners[0].tls))

    @property
    def bootstrap_endpoints(self) -> tuple[Endpoint, ...]:
        """`bootstrap_servers` as endpoints of the listener on which controllers dial each other."""
        return tuple(
            Endpoint(self.listeners[0].name, host, port) for host, port in self.bootstrap_servers
        )


def load_config(
    path: Path | None, environment: Mapping[str, str] | None = None
) -> ControllerConfig:
    """The configuration in the properties file `path`, overridden by the environment.

    path: None for "everything is in the environment". environment: `os.environ` if not given.
    Raises ConfigError.
    """
    given = read_given(path, os.environ if environment is None else environment)
    return _build(given)


# --- checking what must fit together --------------------------------------------------------------


def _build(given: Given) -> ControllerConfig:
    given.require("process.roles")
    node_id: int = given.require("node.id")
    listeners = _listeners(given)
    directories = _directories(given)
    static_voters = _static_voters(given, node_id, listeners[0].name)
    bootstrap = given.get("controller.quorum.bootstrap.servers") or tuple(
        voter.address for voter in given.get("controller.quorum.voters")
    )
    if not bootstrap:
        raise ConfigError(
            f"{given.source}: neither controller.quorum.bootstrap.servers nor "
            "controller.quorum.voters is set: this controller could not find its quorum"
        )
    return ControllerConfig(
        node_id=node_id,
        listeners=listeners,
        endpoints=_endpoints(given, listeners),
        metadata_log_dir=directories[0],
        log_dirs=directories,
        bootstrap_servers=bootstrap,
        static_voters=static_voters,
        cluster_id=given.get("cluster.id"),
        auto_join=_auto_join(given),
        unformatted_wait=given.get("quorate.unformatted.wait"),
        election_timeout_ms=given.get("controller.quorum.election.timeout.ms"),
        fetch_timeout_ms=given.get("controller.quorum.fetch.timeout.ms"),
        request_timeout_ms=given.get("controller.quorum.request.timeout.ms"),
        election_backoff_max_ms=given.get("controller.quorum.election.backoff.max.ms"),
        retry_backoff_ms=given.get("controller.quorum.retry.backoff.ms"),
        fetch_bytes_max=given.get("controller.quorum.fetch.max.bytes"),
        snapshot_chunk_bytes_max=given.get("controller.quorum.fetch.snapshot.max.bytes"),
        segment_bytes_max=given.get("internal.metadata.log.segment.bytes")
        or given.get("metadata.log.segment.bytes"),
        snapshot_interval_bytes_max=given.get("metadata.log.max.record.bytes.between.snapshots"),
        snapshot_interval_ms_max=given.get("metadata.log.max.snapshot.interval.ms"),
        consistency_check_interval_ms=given.get("quorate.consistency.check.interval.ms"),
        retention_bytes_max=given.get("metadata.max.retention.bytes"),
        retention_ms_max=given.get("metadata.max.retention.ms"),
        idle_interval_ms_max=given.get("metadata.max.idle.interval.ms"),
        broker_session_timeout_ms=given.get("broker.session.timeout.ms"),
        num_partitions=given.get("num.partitions"),
        default_replication_factor=given.get("default.replication.factor"),
        leader_imbalance_check_interval_s=given.get("leader.imbalance.check.interval.seconds"),
        http_listener=given.get("quorate.http.listener"),
        otlp_endpoint=given.get("quorate.otlp.endpoint"),
        trace_sample_ratio=_trace_sample_ratio(given),
        log_format=LogFormat(given.get("quorate.log.format")),
        tls=_tls(given, listeners),
        security=_security(given, listeners),
        protocols=_protocols(given),
        migration=read_migration(given),
        warnings=tuple(given.warnings),
        source=given.source,
    )


def _listeners(given: Given) -> tuple[Listener, ...]:
    """The controller's listeners in the order of controller.listener.names; a controller has no
    others.
    """
    names: tuple[str, ...] = given.require("controller.listener.names")
    by_name: dict[str, Endpoint] = {e.name: e for e in given.require("listeners")}
    for name in names:
        if name not in by_name:
            given.fail("controller.listener.names", f"{name} is not in listeners")
    for name in by_name:
        if name not in names:
            given.fail(
                "listeners",
                f"{name} is not in controller.listener.names, and only brokers have others",
            )
    addresses = [(endpoint.host, endpoint.port) for endpoint in by_name.values()]
    for host, port in addresses:
        if addresses.count((host, port)) > 1:
            given.fail("listeners", f"{host}:{port} appears twice")
    return tuple(
        Listener(
            name,
            "" if by_name[name].host in WILDCARD_HOSTS else by_name[name].host,
            by_name[name].port,
            _is_tls(given, name),
        )
        for name in names
    )


def _is_tls(given: Given, name: str) -> bool:
    protocols: Mapping[str, str] = given.get("listener.security.protocol.map") or {}
    if name not in protocols and protocols and name not in ("PLAINTEXT", "SSL"):
        given.fail("listener.security.protocol.map", f"it does not name the listener {name}")
    protocol = protocols.get(name, "SSL" if name == "SSL" else "PLAINTEXT")
    if protocol.startswith("SASL"):
        given.fail(
            "listener.security.protocol.map",
            f"{name}:{protocol}: only PLAINTEXT and SSL are supported",
        )
    return protocol == "SSL"


def _protocols(given: Given) -> dict[str, bool]:
    mapped: Mapping[str, str] = given.get("listener.security.protocol.map") or {}
    return {name: protocol == "SSL" for name, protocol in mapped.items()}


def _endpoints(given: Given, listeners: tuple[Listener, ...]) -> tuple[Endpoint, ...]:
    advertised: dict[str, Endpoint] = {e.name: e for e in given.get("advertised.listeners")}
    for endpoint in advertised.values():
        if endpoint.name not in {listener.name for listener in listeners}:
            given.fail("advertised.listeners", f"{endpoint.name} is not in listeners")
        if endpoint.host in WILDCARD_HOSTS:
            given.fail("advertised.listeners", f"nobody can dial {endpoint}: name a host")
    endpoints = []
    for listener in listeners:
        endpoint = advertised.get(
            listener.name, Endpoint(listener.name, listener.host, listener.port)
        )
        if not endpoint.host:
            endpoint = Endpoint(listener.name, socket.getfqdn(), listener.port)
            given.warnings.append(
                f"{given.source}: {listener.name} listens on every address and "
                f"advertised.listeners does not name it: others are told to dial {endpoint}"
            )
        endpoints.append(endpoint)
    return tuple(endpoints)


def _directories(given: Given) -> tuple[Path, ...]:
    """The metadata log's directory first, then the other log directories."""
    log_dirs: tuple[Path, ...] = given.get("log.dirs") or given.get("log.dir")
    metadata: Path | None = given.get("metadata.log.dir") or next(iter(log_dirs), None)
    if metadata is None:
        raise ConfigError(
            f"{given.source}: none of metadata.log.dir, log.dirs and log.dir is set: where is the "
            "log to be kept?"
        )
    return (metadata, *(directory for directory in log_dirs if directory != metadata))


def _static_voters(given: Given, node_id: int, listener_name: str) -> VoterSet:
    static = given.get("controller.quorum.voters")
    voters = VoterSet.of(
        Voter(ReplicaKey(v.id), (Endpoint(listener_name, v.address.host, v.address.port),))
        for v in static
    )
    if static and voters.get(node_id) is None:
        given.fail(
            "controller.quorum.voters",
            f"node.id {node_id} is not among them, and this is a controller",
        )
    return voters


def _auto_join(given: Given) -> bool:
    auto_join: bool = given.get("controller.quorum.auto.join.enable")
    if auto_join and not given.get("controller.quorum.bootstrap.servers"):
        given.fail(
            "controller.quorum.auto.join.enable",
            "it needs controller.quorum.bootstrap.servers: voters that are listed in a file do "
            "not join",
        )
    return auto_join


def _trace_sample_ratio(given: Given) -> float:
    ratio: float = given.get("quorate.trace.sample.ratio")
    if ratio and not given.get("quorate.otlp.endpoint"):
        given.fail(
            "quorate.trace.sample.ratio", "traces need somewhere to go: set quorate.otlp.endpoint"
        )
    return ratio


def _security(given: Given, listeners: tuple[Listener, ...]) -> Security:
    if given.get(CONTROLLER_PRINCIPALS) and not any(listener.tls for listener in listeners):
        given.fail(
            CONTROLLER_PRINCIPALS,
            "no listener is encrypted, so that no caller has a principal: use SSL, or remove it",
        )
    authorizer = given.get("authorizer.class.name") is not None
    for name in ("super.users", "allow.everyone.if.no.acl.found"):
        if name in given and not authorizer:
            given.warnings.append(
                f"{given.places[name]}: {name} means nothing without authorizer.class.name: ignored"
            )
    return Security(
        authorizer=authorizer,
        super_users=given.get("super.users"),
        allow_if_no_acl_found=given.get("allow.everyone.if.no.acl.found"),
        principal_mapping=given.get("ssl.principal.mapping.rules"),
        peer_identity=given.get("quorate.peer.identity"),
        controller_principals=given.get(CONTROLLER_PRINCIPALS),
        connections_max=given.get("quorate.connections.max"),
        streams_per_connection_max=given.get("quorate.streams.per.connection.max"),
        calls_max=given.get("quorate.calls.max"),
        calls_per_second_max=given.get("quorate.calls.per.second.max"),
    )


# --- TLS ------------------------------------------------------------------------------------------


def _tls(given: Given, listeners: tuple[Listener, ...]) -> TlsFiles | None:
    encrypted = next((listener.name for listener in listeners if listener.tls), None)
    if encrypted is None:
        return None
    because = f", and the listener {encrypted} is encrypted"
    store = "ssl.keystore.location"
    certificate = "ssl.certificate.location" if "ssl.certificate.location" in given else store
    key = "ssl.key.location" if "ssl.key.location" in given else store
    if store not in given:
        certificate, key = "ssl.certificate.location", "ssl.key.location"
    given.require(certificate, because)
    given.require(key, because)
    ca = "ssl.truststore.location"
    if "ssl.ca.location" in given or ca not in given:
        ca = "ssl.ca.location"
    given.require(ca, because)
    return TlsFiles(
        certificate=given.pem(certificate, "CERTIFICATE"),
        key=given.pem(key, "PRIVATE KEY"),
        ca=given.pem(ca, "CERTIFICATE"),
    )


__all__ = [
    "ConfigError",
    "ControllerConfig",
    "Listener",
    "Security",
    "TlsFiles",
    "load_config",
    "nearest",
    "read_properties",
]
