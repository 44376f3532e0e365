"""The settings of the listener for Kafka's brokers: which one it is, and its limits.

`security` declares those of its authentication.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from quorate.common.config_types import ConfigType, choice, integer
from quorate.common.setting import Setting, setting
from quorate.controller.kafka.security import KafkaSecurity
from quorate.process.properties import ParsedProperties

LISTENER = "quorate.kafka.listener.name"
FORWARDED_SUPER_USERS = "quorate.kafka.forwarded.super.users"
PEER_PROTOCOL = "quorate.peer.protocol"
GRPC, KAFKA = PEER_PROTOCOLS = ("grpc", "kafka")
CONNECTIONS_MAX = "max.connections"
CONNECTIONS_PER_ADDRESS_MAX = "max.connections.per.ip"


def _listener_name(text: str) -> str:
    if not text.replace("_", "").replace("-", "").isalnum():
        raise ValueError("not a valid listener name")
    return text.upper()


LISTENER_NAME = ConfigType("string", "the name of a listener", _listener_name)


@dataclass(frozen=True, slots=True)
class KafkaListenerSettings:
    """The listener for Kafka's brokers."""

    name: str | None = None
    """The name of the listener, None if there is none."""
    forwards_super_users: bool = False
    """Whether brokers may forward requests of super users."""
    connections_max: int = setting(
        CONNECTIONS_MAX,
        integer(8),
        "1024",
        "The maximum number of connections on the listener for Kafka's brokers. A further one "
        "replaces the connection that has been idle longest, among those without a broker's "
        "heartbeat within the last minute. Kafka's default is no limit.",
    )
    connections_per_address_max: int = setting(
        CONNECTIONS_PER_ADDRESS_MAX,
        integer(1),
        "256",
        "The same for the connections from one address. A Kafka broker needs about five.",
    )
    quota_window_count: int = setting(
        "controller.quota.window.num",
        integer(1),
        "11",
        "How many windows of controller.quota.window.size.seconds a client may save its "
        "controller_mutation_rate for.",
    )
    quota_window_s: int = setting(
        "controller.quota.window.size.seconds",
        integer(1),
        "1",
        "The size of these windows.",
    )
    peer_protocol: str = setting(
        PEER_PROTOCOL,
        choice(*PEER_PROTOCOLS),
        "grpc",
        "Quorate-specific. The protocol of elections, replication and changes of voter entries "
        "between controllers. kafka: Kafka's, on quorate.kafka.listener.name, whose addresses "
        "controller.quorum.bootstrap.servers must then name; every controller needs this listener "
        "under the same name. A controller that does not serve its peers there is called over "
        "gRPC, so the setting can be changed one controller at a time. Not on SASL listeners; "
        "with TLS, the listener must require certificates. A quorum that also has voters of Kafka "
        "is experimental: see ARCHITECTURE.md. grpc: the listener for Kafka's brokers rejects "
        "voters.",
    )
    security: KafkaSecurity = field(default_factory=KafkaSecurity)

    @property
    def serves_voters(self) -> bool:
        """Whether controllers talk to each other over this listener."""
        return self.peer_protocol == KAFKA


KAFKA_LISTENER_SETTINGS: tuple[Setting, ...] = (
    Setting(
        LISTENER,
        LISTENER_NAME,
        None,
        "Quorate-specific. The one of controller.listener.names to which Kafka's brokers and "
        "tools connect. It speaks Kafka's protocol, all others gRPC. It cannot be the first. "
        "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, according to listener.security.protocol.map; "
        "with SSL, clients must present certificates signed by ssl.ca.location, unless "
        "ssl.client.auth says otherwise. If not set, such brokers find no controller here, and a "
        "migration waits for them.",
    ),
    Setting(
        FORWARDED_SUPER_USERS,
        choice("deny", "allow"),
        "deny",
        "Quorate-specific. Whether Kafka's brokers may forward requests of super.users when there "
        "is an authorizer. allow, as in Kafka: whoever has a broker's certificate can act as a "
        "super user. deny: super users must call the controllers over gRPC.",
    ),
)


def read_kafka_listener(
    parsed: ParsedProperties,
    declared: KafkaListenerSettings,
    security: KafkaSecurity,
    encrypted: Collection[str],
) -> KafkaListenerSettings:
    """Check the settings of the listener for Kafka's brokers, and add those that are derived.

    encrypted: the names of all encrypted listeners. Raises ConfigError.
    """
    listener = _listener(parsed)
    _check_peer_protocol(parsed, declared.peer_protocol, listener, security, encrypted)
    for name in (FORWARDED_SUPER_USERS, CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS_MAX):
        if listener is None and name in parsed:
            parsed.warnings.append(
                f"{parsed.places[name]}: {name} has no effect without {LISTENER}: ignored"
            )
    return replace(
        declared,
        name=listener,
        forwards_super_users=parsed.get(FORWARDED_SUPER_USERS) == "allow",
        security=security,
    )


def _check_peer_protocol(
    parsed: ParsedProperties,
    protocol: str,
    listener: str | None,
    security: KafkaSecurity,
    encrypted: Collection[str],
) -> None:
    if protocol == KAFKA and listener is None:
        parsed.fail(PEER_PROTOCOL, f"{KAFKA} requires {LISTENER}")
    if protocol == KAFKA and security.sasl is not None:
        parsed.fail(
            PEER_PROTOCOL,
            f"controllers do not authenticate to each other with SASL: map {listener} to SSL or "
            "PLAINTEXT in listener.security.protocol.map",
        )
    authenticates = listener in encrypted and security.client_auth == "required"
    if protocol == KAFKA and encrypted and not authenticates:
        # The controllers of an encrypted quorum must not lose the authentication of each other.
        parsed.fail(
            PEER_PROTOCOL,
            f"controllers would not authenticate to each other: map {listener} to SSL in "
            "listener.security.protocol.map, with ssl.client.auth=required",
        )


def _listener(parsed: ParsedProperties) -> str | None:
    name: str | None = parsed.get(LISTENER)
    if name is None:
        return None
    names: tuple[str, ...] = parsed.require("controller.listener.names")
    if name not in names:
        parsed.fail(LISTENER, "it is not in controller.listener.names")
    if name == names[0]:
        parsed.fail(
            LISTENER, "the first of controller.listener.names is for the controllers themselves"
        )
    return name
