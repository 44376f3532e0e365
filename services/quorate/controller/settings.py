"""The settings of a controller, declared once: name, form, default, what is accepted, what it
means.

`config.py` reads values by this table, and `quorate config-docs` prints it. Names, defaults and
ranges are Kafka's (KRaftConfigs, QuorumConfig, MetadataLogConfig, KIP-853 "Configuration"); a
setting that is only ours says so.

Kafka's settings that mean nothing here are known by name, so that a controller.properties written
for Kafka is taken as it is: they are ignored with a warning each. What would change security if it
were ignored is refused instead. A name that neither knows is an error, because a misspelt timeout
must not go unnoticed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from quorate.raft.types import Endpoint
from quorate.rpc.principals import PrincipalMapping

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

KIB = 1024
MIB = 1024 * KIB
HOUR_MS = 60 * 60 * 1000

KAFKA_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

_LISTENER_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_HOST = re.compile(r"[A-Za-z0-9_.%:-]*")


class Address(NamedTuple):
    """A host and a TCP port. `host` has no brackets, also when it is an IPv6 address."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class StaticVoter(NamedTuple):
    """One entry of `controller.quorum.voters`: at kraft.version 0 an id alone names a voter."""

    id: int
    address: Address


@dataclass(frozen=True, slots=True)
class Form:
    """How a value is written. `parse` raises ValueError with the reason, without name or value."""

    type: str
    accepts: str
    parse: Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. `default` is the text that would be written, None if there is no default."""

    name: str
    form: Form
    default: str | None
    doc: str

    @property
    def variable(self) -> str:
        """The environment variable that overrides the file; our own settings name us once."""
        return "QUORATE_" + self.name.removeprefix("quorate.").upper().replace(".", "_")

    @property
    def variables(self) -> tuple[str, ...]:
        """`variable`, and how it is spelled by rule alone, with our name twice."""
        return tuple({self.variable: 1, "QUORATE_" + self.name.upper().replace(".", "_"): 1})


# --- forms ----------------------------------------------------------------------------------------


def parse_address(text: str, *, wildcard: bool = False) -> Address:
    """`host:port` or `[ipv6]:port`. With `wildcard` the host may be empty."""
    host, colon, port = text.strip().rpartition(":")
    if not colon:
        raise ValueError(f"{text!r} is not host:port")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"an IPv6 address needs brackets: [{host}]:{port}")
    if not host and not wildcard:
        raise ValueError(f"{text!r} names no host")
    if not _HOST.fullmatch(host):
        raise ValueError(f"{host!r} is not a host name")
    if not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
        raise ValueError(f"{port!r} is not a port from 1 to 65535")
    return Address(host, int(port))


def split_list(text: str) -> list[str]:
    """The entries of a comma-separated list, without blanks around them."""
    return [entry.strip() for entry in text.split(",") if entry.strip()]


def _integer(minimum: int, maximum: int = INT_MAX) -> Form:
    def parse(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,20}", text):
            raise ValueError("not an integer")
        value = int(text)
        if not minimum <= value <= maximum:
            raise ValueError(f"too {'small' if value < minimum else 'large'}")
        return value

    return Form("int", f"{minimum} to {maximum}", parse)


def _milliseconds(minimum: int, maximum: int = INT_MAX) -> Form:
    form = _integer(minimum, maximum)
    return Form("int (ms)", form.accepts, form.parse)


def _bytes(minimum: int, maximum: int = LONG_MAX) -> Form:
    form = _integer(minimum, maximum)
    return Form("int (bytes)", form.accepts, form.parse)


def _boolean() -> Form:
    def parse(text: str) -> bool:
        if text.lower() not in ("true", "false"):
            raise ValueError("not a boolean")
        return text.lower() == "true"

    return Form("boolean", "true, false", parse)


def _choice(*values: str) -> Form:
    def parse(text: str) -> str:
        found = next((value for value in values if value.lower() == text.lower()), None)
        if found is None:
            raise ValueError("not one of them")
        return found

    return Form("string", ", ".join(values), parse)


def _names() -> Form:
    def parse(text: str) -> tuple[str, ...]:
        names = [name.upper() for name in split_list(text)]
        for name in names:
            if not _LISTENER_NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not a listener's name")
        _refuse_duplicates(names)
        return tuple(names)

    return Form("list", "NAME,…", parse)


def _listeners() -> Form:
    def parse(text: str) -> tuple[Endpoint, ...]:
        endpoints = []
        for entry in split_list(text):
            name, separator, address = entry.partition("://")
            if not separator or not _LISTENER_NAME.fullmatch(name):
                raise ValueError(f"{entry!r} is not NAME://host:port")
            host, port = parse_address(address, wildcard=True)
            endpoints.append(Endpoint(name.upper(), host, port))
        _refuse_duplicates([endpoint.name for endpoint in endpoints])
        return tuple(endpoints)

    return Form("list", "NAME://host:port,…", parse)


def _addresses() -> Form:
    return Form(
        "list", "host:port,…", lambda text: tuple(parse_address(e) for e in split_list(text))
    )


def _static_voters() -> Form:
    def parse(text: str) -> tuple[StaticVoter, ...]:
        voters = []
        for entry in split_list(text):
            voter_id, separator, address = entry.partition("@")
            if not separator or not re.fullmatch(r"[0-9]{1,10}", voter_id):
                raise ValueError(f"{entry!r} is not id@host:port")
            voters.append(StaticVoter(int(voter_id), parse_address(address)))
        _refuse_duplicates([str(voter.id) for voter in voters])
        return tuple(voters)

    return Form("list", "id@host:port,…", parse)


def _protocols() -> Form:
    known = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

    def parse(text: str) -> dict[str, str]:
        result: dict[str, str] = {}
        for entry in split_list(text):
            name, separator, protocol = (part.strip().upper() for part in entry.partition(":"))
            if not separator or not _LISTENER_NAME.fullmatch(name):
                raise ValueError(f"{entry!r} is not NAME:PROTOCOL")
            if protocol not in known:
                raise ValueError(f"{protocol!r} is not a security protocol")
            if name in result:
                raise ValueError(f"{name} appears twice")
            result[name] = protocol
        return result

    return Form("list", "NAME:PLAINTEXT, NAME:SSL,…", parse)


def _path() -> Form:
    def parse(text: str) -> Path:
        if "\0" in text:
            raise ValueError("not a path")
        return Path(text)

    return Form("path", "a path", parse)


def _directories() -> Form:
    def parse(text: str) -> tuple[Path, ...]:
        entries = split_list(text)
        if not entries:
            raise ValueError("empty")
        _refuse_duplicates(entries)
        return tuple(Path(entry) for entry in entries)

    return Form("list", "DIR,…", parse)


def _http_address() -> Form:
    return Form("string", "host:port, :port", lambda text: parse_address(text, wildcard=True))


def _url() -> Form:
    def parse(text: str) -> str:
        scheme, separator, address = text.partition("://")
        if scheme not in ("http", "https") or not separator:
            raise ValueError("not a URL of http or https")
        parse_address(address.rstrip("/"))
        return text

    return Form("string", "http://host:port, https://host:port", parse)


def _ratio() -> Form:
    def parse(text: str) -> float:
        if not re.fullmatch(r"[0-9]*\.?[0-9]+", text):
            raise ValueError("not a number")
        value = float(text)
        if value > 1:
            raise ValueError("too large")
        return value

    return Form("float", "0 to 1", parse)


def _roles() -> Form:
    def parse(text: str) -> tuple[str, ...]:
        roles = split_list(text)
        for role in roles:
            if role not in ("broker", "controller"):
                raise ValueError(f"{role!r} is not a role")
        _refuse_duplicates(roles)
        if roles != ["controller"]:
            raise ValueError("this version runs controllers only, no brokers")
        return tuple(roles)

    return Form("list", "controller", parse)


def _identifier() -> Form:
    def parse(text: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", text):
            raise ValueError("not an identifier")
        return text

    return Form("string", "1 to 64 of A-Z a-z 0-9 . _ -", parse)


def _principals() -> Form:
    def parse(text: str) -> tuple[str, ...]:
        principals = [entry.strip() for entry in text.split(";") if entry.strip()]
        for principal in principals:
            if not re.fullmatch(r"User:.+", principal):
                raise ValueError(f"{principal!r} is not User:NAME")
        return tuple(principals)

    return Form("list", "User:NAME;User:NAME;…", parse)


def _mapping_rules() -> Form:
    return Form("string", "DEFAULT, RULE:pattern/replacement/[LU],…", PrincipalMapping.parse)


def _refuse_duplicates(entries: list[str]) -> None:
    for entry in entries:
        if entries.count(entry) > 1:
            raise ValueError(f"{entry} appears twice")


# --- the table ------------------------------------------------------------------------------------

SETTINGS: tuple[Setting, ...] = (
    Setting("process.roles", _roles(), None, "What this process is. Required."),
    Setting("node.id", _integer(0), None, "The id of this node, unique in its cluster. Required."),
    Setting(
        "cluster.id",
        _identifier(),
        None,
        "Ours. If set, the directory must have been formatted for this cluster.",
    ),
    Setting(
        "controller.quorum.bootstrap.servers",
        _addresses(),
        "",
        "Where the quorum can be found: any controllers, of which some answer. "
        "Required unless controller.quorum.voters is set.",
    ),
    Setting(
        "controller.quorum.voters",
        _static_voters(),
        "",
        "The voters at kraft.version 0. At kraft.version 1 the voters are in the log, and this "
        "is only used like controller.quorum.bootstrap.servers where that is not set.",
    ),
    Setting(
        "controller.quorum.auto.join.enable",
        _boolean(),
        "false",
        "Whether this controller makes itself a voter. One that an administrator removed does not "
        "join again by itself.",
    ),
    Setting(
        "quorate.unformatted.wait",
        _boolean(),
        "false",
        "Whether a controller whose directory is not formatted waits to be formatted over gRPC "
        "instead of ending (for pods).",
    ),
    Setting(
        "quorate.http.listener",
        _http_address(),
        "",
        "Ours. Where to serve /metrics, /healthz, /readyz and /quorumz over HTTP, in clear; empty "
        "for nowhere. Needs the extra telemetry.",
    ),
    Setting(
        "quorate.otlp.endpoint",
        _url(),
        "",
        "Ours. The OpenTelemetry collector (OTLP over gRPC) that gets metrics and traces; empty "
        "for none. Needs the extra telemetry.",
    ),
    Setting(
        "quorate.trace.sample.ratio",
        _ratio(),
        "0",
        "Ours. Which part of the appends is traced of those whose client does not say; 0 for no "
        "traces at all. Needs quorate.otlp.endpoint.",
    ),
    Setting(
        "quorate.log.format",
        _choice("text", "json"),
        "text",
        "Ours. How the process logs to stderr: lines for people, or one JSON object a line.",
    ),
    Setting(
        "controller.quorum.election.timeout.ms",
        _milliseconds(1),
        "1000",
        "How long a candidate waits for votes; each wait is drawn from one to two times this.",
    ),
    Setting(
        "controller.quorum.fetch.timeout.ms",
        _milliseconds(1),
        "2000",
        "How long a voter goes without a fetch from its leader before it asks for an election; a "
        "leader resigns after 1.5 times this without fetches from a majority.",
    ),
    Setting(
        "controller.quorum.request.timeout.ms",
        _milliseconds(1),
        "2000",
        "How long a request to another controller may take.",
    ),
    Setting(
        "controller.quorum.election.backoff.max.ms",
        _milliseconds(0),
        "1000",
        "The longest wait after a lost election before the next.",
    ),
    Setting(
        "controller.quorum.retry.backoff.ms",
        _milliseconds(1),
        "50",
        "How long to wait before a failed request to another controller is repeated. Kafka's "
        "default is 20.",
    ),
    Setting(
        "controller.quorum.fetch.max.bytes",
        _bytes(1, INT_MAX),
        str(8 * MIB),
        "The most records in one answer to a fetch; a single batch may exceed it. Kafka's "
        "default is 1 MiB.",
    ),
    Setting(
        "controller.quorum.fetch.snapshot.max.bytes",
        _bytes(1, INT_MAX),
        str(MIB),
        "The most bytes of a snapshot in one answer.",
    ),
    Setting(
        "controller.listener.names",
        _names(),
        None,
        "The listeners on which controllers speak to each other, the preferred first. Required.",
    ),
    Setting(
        "listeners",
        _listeners(),
        None,
        "Where to listen. An empty host or 0.0.0.0 is every address. Required.",
    ),
    Setting(
        "advertised.listeners",
        _listeners(),
        "",
        "Where others reach this controller; what is not named here is advertised as it is in "
        "listeners.",
    ),
    Setting(
        "listener.security.protocol.map",
        _protocols(),
        "",
        "Which listeners are encrypted: one's own, and the other controllers' of the same names "
        "when they are dialled. Not set: a listener named SSL is, every other is PLAINTEXT.",
    ),
    Setting(
        "metadata.log.dir",
        _path(),
        None,
        "The directory of the metadata log. Not set: the first of log.dirs.",
    ),
    Setting("log.dirs", _directories(), None, "Kafka's log directories. Not set: log.dir."),
    Setting("log.dir", _directories(), None, "Used where log.dirs is not set."),
    Setting(
        "metadata.log.segment.bytes",
        _bytes(8 * MIB, INT_MAX),
        str(1024 * MIB),
        "The size at which a new segment of the log is begun.",
    ),
    Setting(
        "internal.metadata.log.segment.bytes",
        _bytes(KIB, INT_MAX),
        None,
        "Like metadata.log.segment.bytes, which it overrides, down to 1 KiB: for tests.",
    ),
    Setting(
        "metadata.log.max.record.bytes.between.snapshots",
        _bytes(1),
        str(20 * MIB),
        "How many bytes of log after a snapshot make the next.",
    ),
    Setting(
        "metadata.log.max.snapshot.interval.ms",
        _milliseconds(0, LONG_MAX),
        str(HOUR_MS),
        "The longest time between snapshots while records are written; 0 for no limit.",
    ),
    Setting(
        "metadata.max.retention.bytes",
        _bytes(-1),
        str(100 * MIB),
        "The size of log and snapshots above which old ones are deleted; -1 for no limit. "
        "The newest snapshot and the log after it always stay.",
    ),
    Setting(
        "metadata.max.retention.ms",
        _milliseconds(-1, LONG_MAX),
        str(7 * 24 * HOUR_MS),
        "The age above which segments and snapshots are deleted; -1 for no limit.",
    ),
    Setting(
        "metadata.max.idle.interval.ms",
        _milliseconds(0),
        "500",
        "How often the active controller writes a record that does nothing while nothing else is "
        "written; 0 for never. A quorum without any metadata has none.",
    ),
    Setting(
        "broker.session.timeout.ms",
        _milliseconds(1),
        "9000",
        "How long a broker may be silent before the active controller fences it.",
    ),
    Setting(
        "num.partitions",
        _integer(1),
        "1",
        "The partitions of a topic that is created without a number.",
    ),
    Setting(
        "default.replication.factor",
        _integer(1),
        "1",
        "The replicas of a topic that is created without a number.",
    ),
    Setting(
        "leader.imbalance.check.interval.seconds",
        _integer(1),
        "300",
        "How often partitions go back to their preferred leaders.",
    ),
    Setting(
        "authorizer.class.name",
        _choice(KAFKA_AUTHORIZER, "quorate.authorizer"),
        "",
        "Who may do what: empty lets everybody do everything; either name decides by the ACLs in "
        "the metadata log, as Kafka's StandardAuthorizer does.",
    ),
    Setting(
        "super.users",
        _principals(),
        "",
        "Who may do everything, whatever the ACLs say, separated by semicolons. Controllers and "
        "brokers belong here, or need the cluster action on the cluster.",
    ),
    Setting(
        "allow.everyone.if.no.acl.found",
        _boolean(),
        "false",
        "Whether everybody may do everything to a resource that has no ACL at all.",
    ),
    Setting(
        "ssl.principal.mapping.rules",
        _mapping_rules(),
        "DEFAULT",
        "How the subject of a certificate becomes the name of a principal: the first rule whose "
        "pattern matches the whole subject.",
    ),
    Setting(
        "quorate.peer.identity",
        _choice("auto", "required", "off"),
        "auto",
        "Ours. Whether a peer's certificate must name the node it speaks for (node-3 among its DNS "
        "names). auto: a certificate that names nodes speaks for those only, and one that names "
        "none for nobody where this controller's own names it. off: any of our authorities' does.",
    ),
    Setting(
        "quorate.connections.max",
        _integer(8, 1_000_000),
        "4096",
        "Ours. How many connections a controller takes, fewer where the limit of open files is "
        "low; the ones beyond are closed.",
    ),
    Setting(
        "quorate.streams.per.connection.max",
        _integer(1, 100_000),
        "1024",
        "Ours. How many calls and streams one connection may have under way; a client waits with "
        "the ones beyond.",
    ),
    Setting(
        "quorate.calls.max",
        _integer(64, 1_000_000),
        "8192",
        "Ours. How many calls and streams of all connections are under way; the ones beyond are "
        "refused with RESOURCE_EXHAUSTED.",
    ),
    Setting(
        "quorate.calls.per.second.max",
        _integer(0, 1_000_000),
        "300",
        "Ours. The calls a second beyond which connections that ask for more than their share "
        "wait, and then are refused with RESOURCE_EXHAUSTED; 0 for no shares. Elections and what "
        "goes over open streams do not count.",
    ),
    Setting(
        "ssl.client.auth",
        _choice("required"),
        "required",
        "Who connects to an SSL listener must present a certificate of our authorities, always. "
        "Kafka's default is none.",
    ),
    Setting(
        "ssl.certificate.location",
        _path(),
        None,
        "Ours. A PEM file: this controller's certificate and its chain.",
    ),
    Setting("ssl.key.location", _path(), None, "Ours. A PEM file: the certificate's private key."),
    Setting(
        "ssl.ca.location",
        _path(),
        None,
        "Ours. A PEM file: the authorities whose certificates count.",
    ),
    Setting(
        "ssl.keystore.type",
        _choice("PEM"),
        None,
        "Must be PEM where ssl.keystore.location is set: Java's key stores are not read.",
    ),
    Setting(
        "ssl.keystore.location",
        _path(),
        None,
        "A PEM file with the private key and the certificate; or use ssl.key.location and "
        "ssl.certificate.location.",
    ),
    Setting(
        "ssl.truststore.type",
        _choice("PEM"),
        None,
        "Must be PEM where ssl.truststore.location is set: Java's trust stores are not read.",
    ),
    Setting(
        "ssl.truststore.location", _path(), None, "Kafka's name for what is ssl.ca.location here."
    ),
)

BY_NAME: dict[str, Setting] = {setting.name: setting for setting in SETTINGS}

REFUSED: dict[str, str] = {
    "ssl.key.password": "an encrypted private key cannot be read here: decrypt it and protect the "
    "file instead",
    "ssl.keystore.key": "write the key to a file and name it in ssl.key.location",
    "ssl.keystore.certificate.chain": "write it to a file and name it in ssl.certificate.location",
    "ssl.truststore.certificates": "write them to a file and name it in ssl.ca.location",
}
"""Kafka's settings that would leave the node less protected than its owner believes, if they were
ignored.
"""
