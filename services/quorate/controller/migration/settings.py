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


def _ensemble() -> ConfigType[str]:
    def parse(text: str) -> str:
        hosts, slash, root = text.partition("/")
        for entry in split_list(hosts):
            has_port = ":" in entry.rpartition("]")[2]
            parse_address(entry if has_port else f"{entry}:{CLIENT_PORT}")
        if not split_list(hosts):
            raise ValueError("it names no host")
        if slash and (not root or root.endswith("/")):
            raise ValueError(f"{slash}{root} is no path")
        return text

    return ConfigType("string", "host:port,…/chroot", parse)


def _listener_name() -> ConfigType[str]:
    def parse(text: str) -> str:
        if not text.replace("_", "").replace("-", "").isalnum():
            raise ValueError("not the name of a listener")
        return text.upper()

    return ConfigType("string", "the name of a listener", parse)


def _identification() -> ConfigType[bool]:
    def parse(text: str) -> bool:
        if text.upper() not in ("HTTPS", ""):
            raise ValueError("not one of them")
        return bool(text)

    return ConfigType("string", "HTTPS, or nothing", parse)


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
        "How long ZooKeeper waits for this controller before it forgets the connection. The claim "
        "of the cluster does not depend on it.",
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
        "How many connections the listener for Kafka's brokers takes. One more takes the place of "
        "the one that has been idle for longest and on which no broker has sent a heartbeat within "
        "a minute. Kafka's default is no limit.",
    )
    connections_per_address_max: int = setting(
        CONNECTIONS_PER_ADDRESS_MAX,
        integer(1),
        "256",
        "The same for the connections of one address. A broker of Kafka needs about five.",
    )


MIGRATION_SETTINGS: tuple[Setting, ...] = (
    *declared_in(MigrationSettings),
    Setting(
        ENABLE,
        boolean(),
        "false",
        "Whether this quorum takes over a cluster from ZooKeeper (KIP-866). All its controllers "
        "need it; none may have it when the migration shall end. Needs the extra migration.",
    ),
    Setting(
        CONNECT,
        _ensemble(),
        None,
        "The ZooKeeper ensemble of the cluster that is migrated; required by "
        "zookeeper.metadata.migration.enable.",
    ),
    Setting(
        LISTENER,
        _listener_name(),
        None,
        "Ours. Which of controller.listener.names Kafka's own brokers dial, those of a cluster "
        "that is or was migrated: it speaks Kafka's protocol, and all others gRPC. Not the first. "
        "PLAINTEXT or SSL, as listener.security.protocol.map says; with SSL brokers show "
        "certificates of ssl.ca.location. Not set: such brokers find no controller here, and the "
        "migration waits for them.",
    ),
    Setting(
        FORWARDED_SUPER_USERS,
        choice("deny", "allow"),
        "deny",
        "Ours. Whether Kafka's brokers may forward requests of super.users, with an authorizer. "
        "allow, as Kafka does: whoever has a broker's certificate is a super user. deny: super "
        "users ask the controllers over gRPC.",
    ),
    Setting(
        BROKER_LISTENER,
        _listener_name(),
        None,
        "The brokers' listener on which they are told of leaders and ISRs during the migration. It "
        "must be PLAINTEXT. Not set: a broker's first listener that is.",
    ),
    Setting(
        SET_ACL,
        boolean(),
        "false",
        "Must be false: znodes are written open to the world, as Kafka does by default.",
    ),
    Setting(
        SECURE,
        boolean(),
        "false",
        "Whether to speak TLS to ZooKeeper, on its secureClientPort.",
    ),
    Setting(
        "zookeeper.clientCnxnSocket",
        choice("org.apache.zookeeper.ClientCnxnSocketNetty"),
        None,
        "What Kafka needs for TLS to ZooKeeper; it changes nothing here.",
    ),
    Setting(
        "zookeeper.ssl.keystore.type",
        choice("PEM"),
        None,
        "Must be PEM where zookeeper.ssl.keystore.location is set: Java's stores are not read.",
    ),
    Setting(
        KEY_STORE,
        path(),
        None,
        "A PEM file with the private key and the certificate that ZooKeeper asks for; not set: "
        "none is shown.",
    ),
    Setting(
        "zookeeper.ssl.truststore.type",
        choice("PEM"),
        None,
        "Must be PEM where zookeeper.ssl.truststore.location is set: Java's stores are not read.",
    ),
    Setting(
        TRUST_STORE,
        path(),
        None,
        "A PEM file with the authorities of ZooKeeper's certificate, which count beside the "
        "system's; required by zookeeper.ssl.client.enable.",
    ),
    Setting(
        IDENTIFICATION,
        _identification(),
        "HTTPS",
        "Whether ZooKeeper's certificate must name its host; empty: it need not.",
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
    "zookeeper.ssl.keystore.password": "an encrypted private key cannot be read here: decrypt it "
    "and protect the file instead",
    "zookeeper.ssl.truststore.password": "Java's stores are not read: name a PEM file in "
    "zookeeper.ssl.truststore.location",
    "zookeeper.ssl.crl.enable": "lists of revoked certificates are not looked at here",
    "zookeeper.ssl.ocsp.enable": "nobody is asked for revoked certificates here",
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
            "a process that is a broker too cannot migrate; process.roles must be controller",
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
                f"{parsed.places[name]}: {name} means nothing without {LISTENER}: ignored"
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
            LISTENER, "the first of controller.listener.names is that of the controllers themselves"
        )
    return name


def _warn_of_idle(parsed: ParsedProperties) -> None:
    for each in MIGRATION_SETTINGS:
        if each.name not in WITHOUT_MIGRATION and each.name in parsed:
            parsed.warnings.append(
                f"{parsed.places[each.name]}: {each.name} means nothing without {ENABLE}: ignored"
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
