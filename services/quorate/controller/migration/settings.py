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
| the migration without the libraries that it needs | startup | ...migration.enable |
| an ensemble that holds no cluster, or another cluster | startup | zookeeper.connect |
| a leader without the setting while others have it | its resignation | ...migration.enable |
| a cluster that was never in ZooKeeper, or left it for good | the log | ...migration.enable |

In the last row the quorum ignores the setting, as the KIP specifies.

Source: KIP-866, "Configuration" and "Misconfigurations"; Kafka 3.9's ZkConfigs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from quorate.common.config_types import (
    ConfigType,
    boolean,
    choice,
    milliseconds,
    parse_address,
    path,
    split_list,
)
from quorate.common.setting import Setting, declared_in, setting
from quorate.controller.kafka.settings import LISTENER_NAME
from quorate.migration.tls import ZooKeeperTls
from quorate.process.properties import values_of

if TYPE_CHECKING:
    from quorate.process.properties import ParsedProperties

ENABLE = "zookeeper.metadata.migration.enable"
CONNECT = "zookeeper.connect"
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


def _identification(text: str) -> bool:
    if text.upper() not in ("HTTPS", ""):
        raise ValueError("not one of them")
    return bool(text)


@dataclass(frozen=True, slots=True)
class MigrationSettings:
    """The migration settings of a controller; defaults if it is not enabled."""

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
    broker_listener: str | None = None
    """The brokers' listener that this controller dials; None for a broker's first PLAINTEXT one."""


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
        BROKER_LISTENER,
        LISTENER_NAME,
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
        return MigrationSettings()
    parsed.require(CONNECT, f", and {ENABLE} is true")
    if parsed.get(SET_ACL):
        parsed.fail(SET_ACL, "access control lists on znodes are not supported: it must be false")
    return MigrationSettings(
        enabled=True,
        connect=parsed.get(CONNECT),
        **values_of(MigrationSettings, parsed),
        tls=read_zookeeper_tls(parsed),
        broker_listener=parsed.get(BROKER_LISTENER),
    )


def _warn_of_idle(parsed: ParsedProperties) -> None:
    for each in MIGRATION_SETTINGS:
        if each.name != ENABLE and each.name in parsed:
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
