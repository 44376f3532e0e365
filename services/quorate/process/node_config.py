"""The configuration that controllers and brokers share: declared settings and their values.

Names, defaults and ranges are Kafka's (KRaftConfigs, QuorumConfig, MetadataLogConfig, KIP-853
"Configuration"). The description of a setting that Kafka lacks begins with "Quorate-specific".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from quorate.common import config_types as types
from quorate.common.config_types import Address
from quorate.common.endpoints import Endpoint
from quorate.common.setting import Setting, declared_in, group, required, setting
from quorate.metadata.settings import SessionSettings
from quorate.raft.config import ReplicaSettings
from quorate.raft.types import VoterSet
from quorate.rpc.principals import PrincipalMapping
from quorate.telemetry.logs import LogFormat, LogLevel

KAFKA_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
AUTHORIZER = "authorizer.class.name"
MAPPING_RULES = types.ConfigType(
    "string", "DEFAULT, RULE:pattern/replacement/[LU],…", PrincipalMapping.parse
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """The settings of authentication and authorization."""

    authorizer: bool = False
    """Whether ACLs authorize requests."""
    super_users: tuple[str, ...] = setting(
        "super.users",
        types.principals(),
        "",
        "Principals that may do everything regardless of the ACLs, separated by semicolons. "
        "Controllers and brokers must be listed here, or need the cluster action on the cluster.",
    )
    allow_if_no_acl_found: bool = setting(
        "allow.everyone.if.no.acl.found",
        types.boolean(),
        "false",
        "Whether everyone has full access to a resource without any ACL.",
    )
    principal_mapping: PrincipalMapping = setting(
        "ssl.principal.mapping.rules",
        MAPPING_RULES,
        "DEFAULT",
        "Rules that map the subject of a certificate to a principal name. The first rule whose "
        "pattern matches the whole subject applies. Patterns use RE2 syntax: no look-around, no "
        "back references.",
    )
    peer_identity: str = setting(
        "quorate.peer.identity",
        types.choice("auto", "required", "off"),
        "auto",
        "Quorate-specific. Whether a caller that acts as a node must prove its identity: by "
        "node-3 among its certificate's DNS names, or by an entry 3@PRINCIPAL in "
        "quorate.controller.principals. auto: on encrypted listeners. required: on all listeners. "
        "off: the holder of any certificate issued by ssl.ca.location may act as any node, and "
        "can cause the loss of acknowledged records.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig(ABC):
    """The configuration of a node of either role. Times are milliseconds, sizes bytes."""

    role: ClassVar[str]
    """The role (controller or broker) as log lines and messages name the process."""

    node_id: int = required(
        "node.id", types.integer(0), "The id of this node, unique in its cluster. Required."
    )
    cluster_id: str | None = setting(
        "cluster.id",
        types.identifier(),
        None,
        "Quorate-specific. If set, the directory must have been formatted for this cluster.",
    )
    controller_listener_names: tuple[str, ...] = required(
        "controller.listener.names",
        types.names(),
        "The names of the controllers' listeners, in order of preference. Required.",
    )
    bootstrap_servers: tuple[Address, ...] = setting(
        "controller.quorum.bootstrap.servers",
        types.addresses(),
        "",
        "Addresses of controllers through which this node finds the quorum. At least one of them "
        "must be reachable. Required unless controller.quorum.voters is set.",
    )
    http_listener: Address | None = setting(
        "quorate.http.listener",
        types.http_address(),
        "",
        "Quorate-specific. The address that serves /metrics, /healthz, /readyz and /quorumz over "
        "plain HTTP. Empty: they are not served. Requires the extra telemetry.",
    )
    otlp_endpoint: str | None = setting(
        "quorate.otlp.endpoint",
        types.url(),
        "",
        "Quorate-specific. The OpenTelemetry collector (OTLP over gRPC) that metrics and traces "
        "are exported to. Empty: nothing is exported. Requires the extra telemetry.",
    )
    trace_sample_ratio: float = setting(
        "quorate.trace.sample.ratio",
        types.ratio(),
        "0",
        "Quorate-specific. The fraction of appends, or of produce requests on a broker, that is "
        "traced if the client has not made the sampling decision. 0 disables tracing. Requires "
        "quorate.otlp.endpoint.",
    )
    log_format: LogFormat = setting(
        "quorate.log.format",
        types.member(LogFormat),
        "text",
        "Quorate-specific. The format of the log on stderr: plain text lines, or one JSON object "
        "per line.",
    )
    log_level: LogLevel = setting(
        "quorate.log.level",
        types.member(LogLevel),
        "info",
        "Quorate-specific. The lowest level that is logged. The broker config of this name "
        "changes it while the node runs: that of the node's id, else the default for all brokers.",
    )

    endpoints: tuple[Endpoint, ...]
    """The advertised endpoints of this node's listeners."""
    metadata_log_dir: Path
    """Holds meta.properties and `__cluster_metadata-0`."""
    log_dirs: tuple[Path, ...]
    static_voters: VoterSet = field(default_factory=VoterSet)
    """The voters at kraft.version 0 (controller.quorum.voters); see also `grpc_endpoint`."""
    protocols: Mapping[str, bool] = field(default_factory=dict, hash=False)
    """Whether a listener is encrypted, for each name in listener.security.protocol.map."""
    raft: ReplicaSettings = group(ReplicaSettings)
    metadata: SessionSettings = group(SessionSettings)
    security: Security = group(Security)
    warnings: tuple[str, ...] = ()
    source: str = "the environment"
    """The file, or "the environment", for messages."""

    @property
    def controller_listener(self) -> str:
        """The name of the listener on which nodes connect to controllers."""
        return self.controller_listener_names[0]

    @property
    def peer_listener(self) -> str:
        """The name of the listener on which this node's replica connects to controllers."""
        return self.controller_listener

    @property
    def bootstrap_endpoints(self) -> tuple[Endpoint, ...]:
        """`bootstrap_servers` as endpoints of `peer_listener`."""
        return tuple(
            Endpoint(self.peer_listener, host, port) for host, port in self.bootstrap_servers
        )

    def grpc_endpoint(self, endpoint: Endpoint, voters: VoterSet) -> Endpoint:  # noqa: ARG002
        """Where to dial a controller that has this endpoint. voters: the current ones."""
        return endpoint

    @abstractmethod
    def is_encrypted(self, listener_name: str) -> bool:
        """Whether connections to listeners of that name use TLS."""


NODE_SETTINGS: tuple[Setting, ...] = (
    *declared_in(NodeConfig),
    Setting(
        "controller.quorum.voters",
        types.static_voters(),
        "",
        "The voters at kraft.version 0, each with the address of the first of its "
        "controller.listener.names. At kraft.version 1 the voters are in the log, and this "
        "setting only replaces controller.quorum.bootstrap.servers if that is not set, and says "
        "where to dial a voter that the log knows only by quorate.kafka.listener.name, as it "
        "does after a takeover of Kafka's controllers.",
    ),
    Setting(
        "listeners",
        types.listeners(),
        None,
        "The addresses to listen on. An empty host or 0.0.0.0 means all addresses. Required.",
    ),
    Setting(
        "advertised.listeners",
        types.listeners(),
        "",
        "The addresses at which others reach this node. A listener that is not named here is "
        "advertised as it is in listeners.",
    ),
    Setting(
        "listener.security.protocol.map",
        types.protocols(),
        "",
        "The security protocol of each listener of this node, and of the controllers' listeners "
        "of the same names when this node connects to them. Default: SSL for a listener named "
        "SSL, PLAINTEXT for all others.",
    ),
    Setting(
        "metadata.log.dir",
        types.path(),
        None,
        "The directory of the metadata log. Default: the first of log.dirs.",
    ),
    Setting("log.dirs", types.directories(), None, "Kafka's log directories. Default: log.dir."),
    Setting("log.dir", types.directories(), None, "Used if log.dirs is not set."),
    Setting(
        "ssl.certificate.location",
        types.path(),
        None,
        "Quorate-specific. The PEM file of this node's certificate and its chain.",
    ),
    Setting(
        "ssl.key.location",
        types.path(),
        None,
        "Quorate-specific. The PEM file of the certificate's private key.",
    ),
    Setting(
        "ssl.ca.location",
        types.path(),
        None,
        "Quorate-specific. The PEM file of the trusted certificate authorities.",
    ),
    Setting(
        "authorizer.class.name",
        types.choice(KAFKA_AUTHORIZER, "quorate.authorizer"),
        "",
        "The authorizer. Empty: everyone may do everything. Either name: the ACLs in the "
        "metadata log decide, as with Kafka's StandardAuthorizer.",
    ),
)
"""The settings of every node."""

NODE_REFUSED: dict[str, str] = {
    "ssl.key.password": "an encrypted private key is not supported: decrypt it and protect the "
    "file instead",
    "ssl.keystore.key": "write the key to a file and name it in ssl.key.location",
    "ssl.keystore.certificate.chain": "write it to a file and name it in ssl.certificate.location",
    "ssl.truststore.certificates": "write them to a file and name it in ssl.ca.location",
}
"""Kafka's settings that are rejected, each with the reason. If they were ignored, the node would be
less secure than the user believes.
"""
