"""The configuration that controllers and brokers share: declared settings and their values.

Names, defaults and ranges are Kafka's (KRaftConfigs, QuorumConfig, MetadataLogConfig, KIP-853
"Configuration"). The description of a setting that only Quorate has says "Ours".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from quorate.process import config_types as types
from quorate.process.config_types import Address
from quorate.process.properties import ParsedProperties
from quorate.process.setting import Setting, declared_in, required, setting, values_of
from quorate.raft.types import Endpoint, VoterSet
from quorate.rpc.principals import PrincipalMapping
from quorate.telemetry.logs import LogFormat

KAFKA_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
AUTHORIZER = "authorizer.class.name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """The settings of authentication and authorization."""

    authorizer: bool = False
    """Whether ACLs authorize requests."""
    super_users: tuple[str, ...] = setting(
        "super.users",
        types.principals(),
        "",
        "Who may do everything, whatever the ACLs say, separated by semicolons. Controllers and "
        "brokers belong here, or need the cluster action on the cluster.",
    )
    allow_if_no_acl_found: bool = setting(
        "allow.everyone.if.no.acl.found",
        types.boolean(),
        "false",
        "Whether everybody may do everything to a resource that has no ACL at all.",
    )
    principal_mapping: PrincipalMapping = setting(
        "ssl.principal.mapping.rules",
        types.mapping_rules(),
        "DEFAULT",
        "How the subject of a certificate becomes the name of a principal: the first rule whose "
        "pattern matches the whole subject. Patterns are RE2's: without look-around, without back "
        "references.",
    )
    peer_identity: str = setting(
        "quorate.peer.identity",
        types.choice("auto", "required", "off"),
        "auto",
        "Ours. Whether who speaks for a node must prove it: by node-3 among its certificate's DNS "
        "names, or by an entry 3@PRINCIPAL in quorate.controller.principals. auto: on encrypted "
        "listeners. required: on all listeners. off: any certificate of ssl.ca.location may speak "
        "for any node, and can lose acknowledged records.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig(ABC):
    """The configuration of a node of either role. Times are milliseconds, sizes bytes."""

    role: ClassVar[str]
    """controller or broker, as log lines and messages name the process."""

    node_id: int = required(
        "node.id", types.integer(0), "The id of this node, unique in its cluster. Required."
    )
    cluster_id: str | None = setting(
        "cluster.id",
        types.identifier(),
        None,
        "Ours. If set, the directory must have been formatted for this cluster.",
    )
    controller_listener_names: tuple[str, ...] = required(
        "controller.listener.names",
        types.names(),
        "The listeners on which controllers speak to each other, the preferred first. Required.",
    )
    bootstrap_servers: tuple[Address, ...] = setting(
        "controller.quorum.bootstrap.servers",
        types.addresses(),
        "",
        "Where the quorum can be found: any controllers, of which some answer. "
        "Required unless controller.quorum.voters is set.",
    )
    fetch_timeout_ms: int = setting(
        "controller.quorum.fetch.timeout.ms",
        types.milliseconds(1),
        "2000",
        "How long a voter goes without a fetch from its leader before it asks for an election; a "
        "leader resigns after 1.5 times this without fetches from a majority.",
    )
    request_timeout_ms: int = setting(
        "controller.quorum.request.timeout.ms",
        types.milliseconds(1),
        "2000",
        "How long a request to another controller may take.",
    )
    retry_backoff_ms: int = setting(
        "controller.quorum.retry.backoff.ms",
        types.milliseconds(1),
        "50",
        "How long to wait before a failed request to another controller is repeated. Kafka's "
        "default is 20.",
    )
    broker_session_timeout_ms: int = setting(
        "broker.session.timeout.ms",
        types.milliseconds(1),
        "9000",
        "How long a broker may be silent before the active controller fences it.",
    )
    http_listener: Address | None = setting(
        "quorate.http.listener",
        types.http_address(),
        "",
        "Ours. Where to serve /metrics, /healthz, /readyz and /quorumz over plain HTTP; empty "
        "for nowhere. Needs the extra telemetry.",
    )
    otlp_endpoint: str | None = setting(
        "quorate.otlp.endpoint",
        types.url(),
        "",
        "Ours. The OpenTelemetry collector (OTLP over gRPC) that gets metrics and traces; empty "
        "for none. Needs the extra telemetry.",
    )
    trace_sample_ratio: float = setting(
        "quorate.trace.sample.ratio",
        types.ratio(),
        "0",
        "Ours. Which part of the appends, or of a broker's produce requests, is traced of those "
        "whose client does not say; 0 for no traces at all. Needs quorate.otlp.endpoint.",
    )
    log_format: LogFormat = setting(
        "quorate.log.format",
        types.member(LogFormat),
        "text",
        "Ours. How the process logs to stderr: lines for people, or one JSON object a line.",
    )

    endpoints: tuple[Endpoint, ...]
    """The advertised endpoints of this node's listeners."""
    metadata_log_dir: Path
    """Holds meta.properties and `__cluster_metadata-0`."""
    log_dirs: tuple[Path, ...]
    static_voters: VoterSet = field(default_factory=VoterSet)
    """controller.quorum.voters, which is effective at kraft.version 0 only."""
    protocols: Mapping[str, bool] = field(default_factory=dict, hash=False)
    """Whether a listener is encrypted, for each name in listener.security.protocol.map."""
    security: Security = Security()
    warnings: tuple[str, ...] = ()
    source: str = "the environment"
    """The file, or "the environment", for messages."""

    @property
    def controller_listener(self) -> str:
        """The name of the listener on which controllers are dialled."""
        return self.controller_listener_names[0]

    @property
    def bootstrap_endpoints(self) -> tuple[Endpoint, ...]:
        """`bootstrap_servers` as endpoints of the listener on which controllers are dialled."""
        return tuple(
            Endpoint(self.controller_listener, host, port) for host, port in self.bootstrap_servers
        )

    @abstractmethod
    def is_encrypted(self, listener_name: str) -> bool:
        """Whether a listener of that name is dialled with TLS."""


NODE_SETTINGS: tuple[Setting, ...] = (
    *declared_in(NodeConfig),
    *declared_in(Security),
    Setting(
        "controller.quorum.voters",
        types.static_voters(),
        "",
        "The voters at kraft.version 0. At kraft.version 1 the voters are in the log, and this "
        "is only used like controller.quorum.bootstrap.servers where that is not set.",
    ),
    Setting(
        "listeners",
        types.listeners(),
        None,
        "Where to listen. An empty host or 0.0.0.0 is every address. Required.",
    ),
    Setting(
        "advertised.listeners",
        types.listeners(),
        "",
        "Where others reach this node; what is not named here is advertised as it is in listeners.",
    ),
    Setting(
        "listener.security.protocol.map",
        types.protocols(),
        "",
        "Which listeners are encrypted: one's own, and the other controllers' of the same names "
        "when they are dialled. Not set: a listener named SSL is, every other is PLAINTEXT.",
    ),
    Setting(
        "metadata.log.dir",
        types.path(),
        None,
        "The directory of the metadata log. Not set: the first of log.dirs.",
    ),
    Setting("log.dirs", types.directories(), None, "Kafka's log directories. Not set: log.dir."),
    Setting("log.dir", types.directories(), None, "Used where log.dirs is not set."),
    Setting(
        "ssl.certificate.location",
        types.path(),
        None,
        "Ours. A PEM file: this node's certificate and its chain.",
    ),
    Setting(
        "ssl.key.location", types.path(), None, "Ours. A PEM file: the certificate's private key."
    ),
    Setting(
        "ssl.ca.location",
        types.path(),
        None,
        "Ours. A PEM file: the authorities whose certificates count.",
    ),
    Setting(
        "authorizer.class.name",
        types.choice(KAFKA_AUTHORIZER, "quorate.authorizer"),
        "",
        "Who may do what: empty lets everybody do everything; either name decides by the ACLs in "
        "the metadata log, as Kafka's StandardAuthorizer does.",
    ),
)
"""The settings of every node."""

NODE_REFUSED: dict[str, str] = {
    "ssl.key.password": "an encrypted private key cannot be read here: decrypt it and protect the "
    "file instead",
    "ssl.keystore.key": "write the key to a file and name it in ssl.key.location",
    "ssl.keystore.certificate.chain": "write it to a file and name it in ssl.certificate.location",
    "ssl.truststore.certificates": "write them to a file and name it in ssl.ca.location",
}
"""Kafka's settings that are rejected, each with the reason. If they were ignored, the node would be
less secure than the user believes.
"""


def node_values(configuration: type[NodeConfig], parsed: ParsedProperties) -> dict[str, Any]:
    """The fields of a configuration that hold parsed values unchanged.

    Raises ConfigError if traces are enabled without an OTLP endpoint.
    """
    if parsed.get("quorate.trace.sample.ratio") and not parsed.get("quorate.otlp.endpoint"):
        parsed.fail(
            "quorate.trace.sample.ratio", "traces need somewhere to go: set quorate.otlp.endpoint"
        )
    written = values_of(configuration, parsed)
    return written | {"warnings": tuple(parsed.warnings), "source": parsed.source}


def has_authorizer(parsed: ParsedProperties) -> bool:
    """Whether an authorizer is configured. Adds warnings for settings that require one."""
    authorizer = parsed.get(AUTHORIZER) is not None
    for name in ("super.users", "allow.everyone.if.no.acl.found"):
        if name in parsed and not authorizer:
            parsed.warnings.append(
                f"{parsed.places[name]}: {name} means nothing without {AUTHORIZER}: ignored"
            )
    return authorizer
