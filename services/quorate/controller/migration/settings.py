"""The settings of the migration from ZooKeeper: their declarations, and the checks between them.

They have Kafka's names and defaults, and are read like every setting of a controller. Inconsistent
settings are rejected before anything starts, with one line that names the setting. Errors that only
the log or ZooKeeper can reveal are reported once these have been read.

| misconfiguration | rejected by | reported for |
|---|---|---|
| a value that is not a boolean, number or list of addresses | the configuration | the setting |
| the migration without an ensemble | the configuration | zookeeper.connect |
| the migration in a process that is also a broker | the configuration | ...migration.enable |
| TLS without authorities, without a key, with Java's stores | the configuration | the store |
| access control lists on znodes | the configuration | zookeeper.set.acl |
| a broker listener that is the first or no controller listener | the configuration | the listener |
| the migration without the libraries that it needs | startup | ...migration.enable |
| an ensemble that holds no cluster, or another cluster | startup | zookeeper.connect |
| a leader without the setting while others have it | its resignation | ...migration.enable |
| a cluster that was never in ZooKeeper, or left it for good | the log | ...migration.enable |

In the last row the quorum ignores the setting, as the KIP specifies.

Source: KIP-866, "Configuration" and "Misconfigurations"; Kafka 3.9's ZkConfigs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from quorate.migration.tls import ZooKeeperTls
from quorate.process.config_types import (
    ConfigType,
    boolean,
    choice,
    integer,
    milliseconds,
    parse_address,
    path,
    split_list,
)
from quorate.process.setting import Setting, declared_in, setting

if TYPE_CHECKING:
    from quorate.process.properties import ParsedProperties

ENABLE = "zookeeper.metadata.migration.enable"
CONNECT = "zookeeper.connect"
LISTENER = "quorate.kafka.listener.name"
FORWARDED_SUPER_USERS = "quorate.kafka.forwarded.super.users"
CONNECTIONS_MAX = "max.connections"
CONNECTIONS_PER_ADDRESS_MAX = "max.connections.per.ip"
BROKER_LISTENER = "inter.broker.listener.name"
SESSION_TIMEOUT = "zookeeper.session.timeout.ms"
SET_ACL = "zookeeper.set.acl"
SECURE = "zookeeper.ssl.client.enable"
KEY_STORE = "zookeeper.ssl.keystore.location"
TRUST_STORE = "zookeeper.ssl.truststore.location"
IDENTIFICATION = "zookeeper.ssl.endpoint.identification.algorithm"

CLIENT_PORT = 2181


def _ensemble(text: str) -> str:
    hosts, slash, root = text.partition("/")
    for entry in split_list(hosts):
        has_port = ":" in entry.rpartition("]")[2]
        parse_address(entry if has_port else f"{entry}:{CLIENT_PORT}")
    if not split_list(hosts):
        raise ValueError("it names no host")
    if slash and (not root or root.endswith("/")):
        raise ValueError(f"{slash}{root} is not a path")
    return text


def _listener_name(text: str) -> str:
    if not text.replace("_", "").replace("-", "").isalnum():
        raise ValueError("not a valid listener name")
    return text.upper()


def _identification(text: str) -> bool:
    if text.upper() not in ("HTTPS", ""):
        raise ValueError("not one of them")
    return bool(text)


_LISTENER_NAME = ConfigType("string", "the name of a listener", _listener_name)


@dataclass(frozen=True, slots=True)
class MigrationSettings:
    """The migration settings of a controller.

    If the migration is not enabled, all but those of the listener for Kafka's brokers have their
    defaults.
    """

    enabled: bool = False
    connect: str | None = None
    session_timeout_ms: int = setting(
        SESSION_TIMEOUT,
        milliseconds(1),
        "18000",
        "After how long without contact ZooKeeper expires this controller's session. The claim "
        "on the cluster does not depend on the session.",
    )
    tls: ZooKeeperTls | None = None
    """None without TLS."""
    listener: str | None = None
    """The listener for Kafka's brokers, during the migration and after it; None for none."""
    broker_listener: str | None = None
    """The brokers' listener that this controller dials; None for a broker's first PLAINTEXT one."""
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


MIGRATION_SETTINGS: tuple[Setting, ...] = (
    *declared_in(MigrationSettings),
    Setting(
        ENABLE,
        boolean(),
        "false",
        "Whether this quorum takes over a cluster from ZooKeeper (KIP-866). Set it on all "
        "controllers; to end the migration, remove it from all of them. Needs the extra "
        "migration.",
    ),
    Setting(
        CONNECT,
        ConfigType("string", "host:port,…/chroot", _ensemble),
        None,
        "The ZooKeeper ensemble of the cluster to migrate; required by "
        "zookeeper.metadata.migration.enable.",
    ),
    Setting(
        LISTENER,
        _LISTENER_NAME,
        None,
        "Ours. The one of controller.listener.names to which Kafka's brokers and tools connect. "
        "It speaks Kafka's protocol, all others gRPC. It cannot be the first. PLAINTEXT, SSL, "
        "SASL_PLAINTEXT or SASL_SSL, according to listener.security.protocol.map; with SSL, "
        "clients must present certificates signed by ssl.ca.location, unless ssl.client.auth "
        "says otherwise. If not set, such brokers find no controller here, and a migration waits "
        "for them.",
    ),
    Setting(
        FORWARDED_SUPER_USERS,
        choice("deny", "allow"),
        "deny",
        "Ours. Whether Kafka's brokers may forward requests of super.users when there is an "
        "authorizer. allow, as in Kafka: whoever has a broker's certificate can act as a super "
        "user. deny: super users must call the controllers over gRPC.",
    ),
    Setting(
        BROKER_LISTENER,
        _LISTENER_NAME,
        None,
        "The brokers' listener on which they receive leaders and ISRs during the migration. It "
        "must be PLAINTEXT. If not set: a broker's first PLAINTEXT listener.",
    ),
    Setting(
        SET_ACL,
        boolean(),
        "false",
        "Must be false: znodes are created without access control, as in Kafka by default.",
    ),
    Setting(
        SECURE,
        boolean(),
        "false",
        "Whether to connect to ZooKeeper over TLS, on its secureClientPort.",
    ),
    Setting(
        "zookeeper.clientCnxnSocket",
        choice("org.apache.zookeeper.ClientCnxnSocketNetty"),
        None,
        "Kafka requires it for TLS to ZooKeeper; it has no effect here.",
    ),
    Setting(
        "zookeeper.ssl.keystore.type",
        choice("PEM"),
        None,
        "Must be PEM if zookeeper.ssl.keystore.location is set: Java key stores are not supported.",
    ),
    Setting(
        KEY_STORE,
        path(),
        None,
        "A PEM file with the private key and the certificate to present to ZooKeeper. If not "
        "set, none is presented.",
    ),
    Setting(
        "zookeeper.ssl.truststore.type",
        choice("PEM"),
        None,
        "Must be PEM if zookeeper.ssl.truststore.location is set: Java trust stores are not "
        "supported.",
    ),
    Setting(
        TRUST_STORE,
        path(),
        None,
        "A PEM file with the authorities that sign ZooKeeper's certificate, trusted in addition "
        "to the system's; required by zookeeper.ssl.client.enable.",
    ),
    Setting(
        IDENTIFICATION,
        ConfigType("string", "HTTPS, or nothing", _identification),
        "HTTPS",
        "HTTPS: ZooKeeper's certificate must match its host name. Empty: it need not.",
    ),
)

WITHOUT_MIGRATION = (
    ENABLE,
    LISTENER,
    FORWARDED_SUPER_USERS,
    CONNECTIONS_MAX,
    CONNECTIONS_PER_ADDRESS_MAX,
)
"""The settings that have an effect even if the migration is not enabled."""

MIGRATION_REFUSED: dict[str, str] = {
    "zookeeper.ssl.keystore.password": "an encrypted private key cannot be used: decrypt it "
    "and protect the file instead",
    "zookeeper.ssl.truststore.password": "Java trust stores cannot be used: name a PEM file in "
    "zookeeper.ssl.truststore.location",
    "zookeeper.ssl.crl.enable": "certificate revocation lists are not checked",
    "zookeeper.ssl.ocsp.enable": "certificates are not checked for revocation",
}
"""Kafka's settings that are rejected, each with the reason. If they were ignored, the connection
would be less secure than the user believes.
"""


def check_roles(parsed: ParsedProperties) -> None:
    """Reject the migration in a process that is also a broker.

    This precedes every other check of the roles, so that the error names the migration: that is
    the setting to remove here, or to use in another process.
    """
    is_wanted = parsed.texts.get(ENABLE, "").lower() == "true"
    if is_wanted and "broker" in split_list(parsed.texts.get("process.roles", "")):
        parsed.fail(
            ENABLE,
            "a process that is also a broker cannot migrate; process.roles must be controller",
        )


def read_migration(parsed: ParsedProperties) -> MigrationSettings:
    """The migration settings of a configuration. Raises ConfigError."""
    enabled: bool = parsed.get(ENABLE)
    if not enabled:
        _warn_of_idle(parsed)
        return MigrationSettings(**_kafkas(parsed))
    parsed.require(CONNECT, f", and {ENABLE} is true")
    if parsed.get(SET_ACL):
        parsed.fail(SET_ACL, "access control lists on znodes are not supported: it must be false")
    return MigrationSettings(
        enabled=True,
        connect=parsed.get(CONNECT),
        session_timeout_ms=parsed.get(SESSION_TIMEOUT),
        tls=read_zookeeper_tls(parsed),
        broker_listener=parsed.get(BROKER_LISTENER),
        **_kafkas(parsed),
    )


def _kafkas(parsed: ParsedProperties) -> dict[str, Any]:
    """The fields that concern the listener for Kafka's brokers."""
    listener = _listener(parsed)
    for name in (FORWARDED_SUPER_USERS, CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS_MAX):
        if listener is None and name in parsed:
            parsed.warnings.append(
                f"{parsed.places[name]}: {name} has no effect without {LISTENER}: ignored"
            )
    return {
        "listener": listener,
        "forwards_super_users": parsed.get(FORWARDED_SUPER_USERS) == "allow",
        "connections_max": parsed.get(CONNECTIONS_MAX),
        "connections_per_address_max": parsed.get(CONNECTIONS_PER_ADDRESS_MAX),
    }


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


def _warn_of_idle(parsed: ParsedProperties) -> None:
    for each in MIGRATION_SETTINGS:
        if each.name not in WITHOUT_MIGRATION and each.name in parsed:
            parsed.warnings.append(
                f"{parsed.places[each.name]}: {each.name} has no effect without {ENABLE}: ignored"
            )


def read_zookeeper_tls(parsed: ParsedProperties) -> ZooKeeperTls | None:
    """The TLS settings for ZooKeeper; None for an unencrypted connection. Raises ConfigError."""
    if not parsed.get(SECURE):
        return None
    parsed.require(TRUST_STORE, f", and {SECURE} is true")
    key_store = None
    if parsed.get(KEY_STORE) is not None:
        key_store = parsed.pem(KEY_STORE, "PRIVATE KEY")
        parsed.pem(KEY_STORE, "CERTIFICATE")
    return ZooKeeperTls(
        parsed.pem(TRUST_STORE, "CERTIFICATE"), key_store, parsed.get(IDENTIFICATION)
    )
