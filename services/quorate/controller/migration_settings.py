"""The settings of the migration from ZooKeeper: declared, and checked against each other.

They have Kafka's names and defaults, and are read like every setting of a controller. What does not
fit together is refused before anything starts, with one line that names the setting; what only the
log or ZooKeeper can tell is found as soon as they are read.

| misconfiguration | refused by | said of |
|---|---|---|
| a value that is no boolean, number or list of addresses | the configuration | the setting |
| the migration without an ensemble | the configuration | zookeeper.connect |
| the migration in a process that is a broker too | the configuration | ...migration.enable |
| TLS without authorities, without a key, with Java's stores | the configuration | the store |
| access control lists on znodes | the configuration | zookeeper.set.acl |
| a listener for brokers that is no other of the controller's | the configuration | the listener |
| the migration without the libraries that it needs | the start | ...migration.enable |
| an ensemble that holds no cluster, or another cluster | the start | zookeeper.connect |
| a leader without the setting while others have it | it resigns | ...migration.enable |
| a cluster that was never in ZooKeeper, or left it for good | the log | ...migration.enable |

In the last row the quorum goes on as if the setting were not there, as the KIP has it.

Source: KIP-866, "Configuration" and "Misconfigurations"; Kafka 3.9's ZkConfigs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from quorate.controller.forms import (
    Form,
    Setting,
    boolean,
    choice,
    milliseconds,
    parse_address,
    path,
    split_list,
)
from quorate.migration.tls import ZooKeeperTls

if TYPE_CHECKING:
    from quorate.controller.given import Given

ENABLE = "zookeeper.metadata.migration.enable"
CONNECT = "zookeeper.connect"
LISTENER = "quorate.kafka.listener.name"
BROKER_LISTENER = "inter.broker.listener.name"
SESSION_TIMEOUT = "zookeeper.session.timeout.ms"
SET_ACL = "zookeeper.set.acl"
SECURE = "zookeeper.ssl.client.enable"
KEY_STORE = "zookeeper.ssl.keystore.location"
TRUST_STORE = "zookeeper.ssl.truststore.location"
IDENTIFICATION = "zookeeper.ssl.endpoint.identification.algorithm"

CLIENT_PORT = 2181


def _ensemble() -> Form:
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

    return Form("string", "host:port,…/chroot", parse)


def _listener_name() -> Form:
    def parse(text: str) -> str:
        if not text.replace("_", "").replace("-", "").isalnum():
            raise ValueError("not the name of a listener")
        return text.upper()

    return Form("string", "the name of a listener", parse)


def _identification() -> Form:
    def parse(text: str) -> bool:
        if text.upper() not in ("HTTPS", ""):
            raise ValueError("not one of them")
        return bool(text)

    return Form("string", "HTTPS, or nothing", parse)


MIGRATION_SETTINGS: tuple[Setting, ...] = (
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
        "that is or was migrated: it speaks Kafka's protocol, and all others gRPC. Not the first, "
        "and not encrypted. Not set: such brokers find no controller here, and the migration "
        "waits for them.",
    ),
    Setting(
        BROKER_LISTENER,
        _listener_name(),
        None,
        "The brokers' listener on which they are told of leaders and ISRs during the migration. It "
        "must be PLAINTEXT. Not set: a broker's first listener that is.",
    ),
    Setting(
        SESSION_TIMEOUT,
        milliseconds(1),
        "18000",
        "How long ZooKeeper waits for this controller before it forgets the connection. The claim "
        "of the cluster does not depend on it.",
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

MIGRATION_REFUSED: dict[str, str] = {
    "zookeeper.ssl.keystore.password": "an encrypted private key cannot be read here: decrypt it "
    "and protect the file instead",
    "zookeeper.ssl.truststore.password": "Java's stores are not read: name a PEM file in "
    "zookeeper.ssl.truststore.location",
    "zookeeper.ssl.crl.enable": "lists of revoked certificates are not looked at here",
    "zookeeper.ssl.ocsp.enable": "nobody is asked for revoked certificates here",
}
"""Kafka's settings that would leave the connection less protected than its owner believes."""


@dataclass(frozen=True, slots=True)
class MigrationSettings:
    """What a controller is told of it; all at their defaults where no migration is asked for.
    tls: None for connections in clear. listener: on which Kafka's brokers find this controller, if
    any, during the migration and after it; broker_listener: on which they are dialled.
    """

    enabled: bool = False
    connect: str | None = None
    session_timeout_ms: int = 18_000
    tls: ZooKeeperTls | None = None
    listener: str | None = None
    broker_listener: str | None = None


def check_roles(given: Given) -> None:
    """Refuse the migration in a process that is a broker too, before anything else about roles:
    the migration is what its owner has to give up, or to do elsewhere.
    """
    is_wanted = given.texts.get(ENABLE, "").lower() == "true"
    if is_wanted and "broker" in split_list(given.texts.get("process.roles", "")):
        given.fail(
            ENABLE,
            "a process that is a broker too cannot migrate; process.roles must be controller",
        )


def read_migration(given: Given) -> MigrationSettings:
    """The migration's part of a configuration. ConfigError."""
    enabled: bool = given.get(ENABLE)
    if not enabled:
        _warn_of_idle(given)
        return MigrationSettings(listener=_listener(given))
    given.require(CONNECT, f", and {ENABLE} is true")
    if given.get(SET_ACL):
        given.fail(SET_ACL, "access control lists on znodes are not supported: it must be false")
    return MigrationSettings(
        enabled=True,
        connect=given.get(CONNECT),
        session_timeout_ms=given.get(SESSION_TIMEOUT),
        tls=read_zookeeper_tls(given),
        listener=_listener(given),
        broker_listener=given.get(BROKER_LISTENER),
    )


def _listener(given: Given) -> str | None:
    name: str | None = given.get(LISTENER)
    if name is None:
        return None
    names: tuple[str, ...] = given.require("controller.listener.names")
    if name not in names:
        given.fail(LISTENER, "it is not in controller.listener.names")
    if name == names[0]:
        given.fail(
            LISTENER, "the first of controller.listener.names is that of the controllers themselves"
        )
    protocols = given.get("listener.security.protocol.map") or {}
    protocol = protocols.get(name, name if name in ("PLAINTEXT", "SSL") else "PLAINTEXT")
    if protocol != "PLAINTEXT":
        given.fail(LISTENER, f"{name} is {protocol}, and only PLAINTEXT is spoken to brokers")
    return name


def _warn_of_idle(given: Given) -> None:
    for setting in MIGRATION_SETTINGS:
        if setting.name not in (ENABLE, LISTENER) and setting.name in given:
            given.warnings.append(
                f"{given.places[setting.name]}: {setting.name} means nothing without {ENABLE}: "
                "ignored"
            )


def read_zookeeper_tls(given: Given) -> ZooKeeperTls | None:
    """How to connect to ZooKeeper; None for in clear. ConfigError."""
    if not given.get(SECURE):
        return None
    given.require(TRUST_STORE, f", and {SECURE} is true")
    key_store = None
    if given.get(KEY_STORE) is not None:
        key_store = given.pem(KEY_STORE, "PRIVATE KEY")
        given.pem(KEY_STORE, "CERTIFICATE")
    return ZooKeeperTls(given.pem(TRUST_STORE, "CERTIFICATE"), key_store, given.get(IDENTIFICATION))
