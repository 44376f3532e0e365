"""The settings of a controller, declared once: name, form, default, what is accepted, what it
means.

`given.py` reads values by this table, and `quorate config-docs` prints it. Names, defaults and
ranges are Kafka's (KRaftConfigs, QuorumConfig, MetadataLogConfig, KIP-853 "Configuration"); a
setting that is only ours says so. Those of the migration from ZooKeeper are in
`migration_settings.py`.

Kafka's settings that mean nothing here are known by name, so that a controller.properties written
for Kafka is taken as it is: they are ignored with a warning each. What would change security if it
were ignored is refused instead. A name that neither knows is an error, because a misspelt timeout
must not go unnoticed.
"""

from __future__ import annotations

from quorate.controller import forms
from quorate.controller.forms import (
    INT_MAX,
    LONG_MAX,
    Address,
    Form,
    Setting,
    StaticVoter,
    parse_address,
    split_list,
)
from quorate.controller.migration_settings import MIGRATION_REFUSED, MIGRATION_SETTINGS

KIB = 1024
MIB = 1024 * KIB
HOUR_MS = 60 * 60 * 1000

KAFKA_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
CONTROLLER_PRINCIPALS = "quorate.controller.principals"

SETTINGS: tuple[Setting, ...] = (
    Setting("process.roles", forms.roles(), None, "What this process is. Required."),
    Setting(
        "node.id", forms.integer(0), None, "The id of this node, unique in its cluster. Required."
    ),
    Setting(
        "cluster.id",
        forms.identifier(),
        None,
        "Ours. If set, the directory must have been formatted for this cluster.",
    ),
    Setting(
        "controller.quorum.bootstrap.servers",
        forms.addresses(),
        "",
        "Where the quorum can be found: any controllers, of which some answer. "
        "Required unless controller.quorum.voters is set.",
    ),
    Setting(
        "controller.quorum.voters",
        forms.static_voters(),
        "",
        "The voters at kraft.version 0. At kraft.version 1 the voters are in the log, and this "
        "is only used like controller.quorum.bootstrap.servers where that is not set.",
    ),
    Setting(
        "controller.quorum.auto.join.enable",
        forms.boolean(),
        "false",
        "Whether this controller makes itself a voter. One that an administrator removed does not "
        "join again by itself.",
    ),
    Setting(
        "quorate.unformatted.wait",
        forms.boolean(),
        "false",
        "Whether a controller whose directory is not formatted waits to be formatted over gRPC "
        "instead of ending (for pods).",
    ),
    Setting(
        "quorate.http.listener",
        forms.http_address(),
        "",
        "Ours. Where to serve /metrics, /healthz, /readyz and /quorumz over HTTP, in clear; empty "
        "for nowhere. Needs the extra telemetry.",
    ),
    Setting(
        "quorate.otlp.endpoint",
        forms.url(),
        "",
        "Ours. The OpenTelemetry collector (OTLP over gRPC) that gets metrics and traces; empty "
        "for none. Needs the extra telemetry.",
    ),
    Setting(
        "quorate.trace.sample.ratio",
        forms.ratio(),
        "0",
        "Ours. Which part of the appends is traced of those whose client does not say; 0 for no "
        "traces at all. Needs quorate.otlp.endpoint.",
    ),
    Setting(
        "quorate.log.format",
        forms.choice("text", "json"),
        "text",
        "Ours. How the process logs to stderr: lines for people, or one JSON object a line.",
    ),
    Setting(
        "controller.quorum.election.timeout.ms",
        forms.milliseconds(1),
        "1000",
        "How long a candidate waits for votes; each wait is drawn from one to two times this.",
    ),
    Setting(
        "controller.quorum.fetch.timeout.ms",
        forms.milliseconds(1),
        "2000",
        "How long a voter goes without a fetch from its leader before it asks for an election; a "
        "leader resigns after 1.5 times this without fetches from a majority.",
    ),
    Setting(
        "controller.quorum.request.timeout.ms",
        forms.milliseconds(1),
        "2000",
        "How long a request to another controller may take.",
    ),
    Setting(
        "controller.quorum.election.backoff.max.ms",
        forms.milliseconds(0),
        "1000",
        "The longest wait after a lost election before the next.",
    ),
    Setting(
        "controller.quorum.retry.backoff.ms",
        forms.milliseconds(1),
        "50",
        "How long to wait before a failed request to another controller is repeated. Kafka's "
        "default is 20.",
    ),
    Setting(
        "controller.quorum.fetch.max.bytes",
        forms.size(1, INT_MAX),
        str(8 * MIB),
        "The most records in one answer to a fetch; a single batch may exceed it. Kafka's "
        "default is 1 MiB.",
    ),
    Setting(
        "controller.quorum.fetch.snapshot.max.bytes",
        forms.size(1, INT_MAX),
        str(8 * MIB),
        "The most bytes of a snapshot in one answer. Kafka's default is 1 MiB.",
    ),
    Setting(
        "controller.listener.names",
        forms.names(),
        None,
        "The listeners on which controllers speak to each other, the preferred first. Required.",
    ),
    Setting(
        "listeners",
        forms.listeners(),
        None,
        "Where to listen. An empty host or 0.0.0.0 is every address. Required.",
    ),
    Setting(
        "advertised.listeners",
        forms.listeners(),
        "",
        "Where others reach this controller; what is not named here is advertised as it is in "
        "listeners.",
    ),
    Setting(
        "listener.security.protocol.map",
        forms.protocols(),
        "",
        "Which listeners are encrypted: one's own, and the other controllers' of the same names "
        "when they are dialled. Not set: a listener named SSL is, every other is PLAINTEXT.",
    ),
    Setting(
        "metadata.log.dir",
        forms.path(),
        None,
        "The directory of the metadata log. Not set: the first of log.dirs.",
    ),
    Setting("log.dirs", forms.directories(), None, "Kafka's log directories. Not set: log.dir."),
    Setting("log.dir", forms.directories(), None, "Used where log.dirs is not set."),
    Setting(
        "metadata.log.segment.bytes",
        forms.size(8 * MIB, INT_MAX),
        str(1024 * MIB),
        "The size at which a new segment of the log is begun.",
    ),
    Setting(
        "internal.metadata.log.segment.bytes",
        forms.size(KIB, INT_MAX),
        None,
        "Like metadata.log.segment.bytes, which it overrides, down to 1 KiB: for tests.",
    ),
    Setting(
        "metadata.log.max.record.bytes.between.snapshots",
        forms.size(1),
        str(20 * MIB),
        "How many bytes of log after a snapshot make the next.",
    ),
    Setting(
        "metadata.log.max.snapshot.interval.ms",
        forms.milliseconds(0, LONG_MAX),
        str(HOUR_MS),
        "The longest time between snapshots while records are written; 0 for no limit.",
    ),
    Setting(
        "quorate.consistency.check.interval.ms",
        forms.milliseconds(0),
        "10000",
        "Ours. How often the leader compares up to 4 MiB of the committed log with the other "
        "voters, by checksum; 0 for never.",
    ),
    Setting(
        "metadata.max.retention.bytes",
        forms.size(-1),
        str(100 * MIB),
        "The size of log and snapshots above which old ones are deleted; -1 for no limit. "
        "The newest snapshot and the log after it always stay.",
    ),
    Setting(
        "metadata.max.retention.ms",
        forms.milliseconds(-1, LONG_MAX),
        str(7 * 24 * HOUR_MS),
        "The age above which segments and snapshots are deleted; -1 for no limit.",
    ),
    Setting(
        "metadata.max.idle.interval.ms",
        forms.milliseconds(0),
        "500",
        "How often the active controller writes a record that does nothing while nothing else is "
        "written; 0 for never. A quorum without any metadata has none.",
    ),
    Setting(
        "broker.session.timeout.ms",
        forms.milliseconds(1),
        "9000",
        "How long a broker may be silent before the active controller fences it.",
    ),
    Setting(
        "num.partitions",
        forms.integer(1),
        "1",
        "The partitions of a topic that is created without a number.",
    ),
    Setting(
        "default.replication.factor",
        forms.integer(1),
        "1",
        "The replicas of a topic that is created without a number.",
    ),
    Setting(
        "leader.imbalance.check.interval.seconds",
        forms.integer(1),
        "300",
        "How often partitions go back to their preferred leaders.",
    ),
    Setting(
        "authorizer.class.name",
        forms.choice(KAFKA_AUTHORIZER, "quorate.authorizer"),
        "",
        "Who may do what: empty lets everybody do everything; either name decides by the ACLs in "
        "the metadata log, as Kafka's StandardAuthorizer does.",
    ),
    Setting(
        "super.users",
        forms.principals(),
        "",
        "Who may do everything, whatever the ACLs say, separated by semicolons. Controllers and "
        "brokers belong here, or need the cluster action on the cluster.",
    ),
    Setting(
        "allow.everyone.if.no.acl.found",
        forms.boolean(),
        "false",
        "Whether everybody may do everything to a resource that has no ACL at all.",
    ),
    Setting(
        "ssl.principal.mapping.rules",
        forms.mapping_rules(),
        "DEFAULT",
        "How the subject of a certificate becomes the name of a principal: the first rule whose "
        "pattern matches the whole subject.",
    ),
    Setting(
        "quorate.peer.identity",
        forms.choice("auto", "required", "off"),
        "auto",
        "Ours. Whether a peer's certificate must name the node it speaks for (node-3 among its DNS "
        "names). auto: a certificate that names nodes speaks for those only, and one that names "
        "none for nobody where this controller's own names it. off: any of our authorities' does.",
    ),
    Setting(
        CONTROLLER_PRINCIPALS,
        forms.principals(),
        "",
        "Ours. The principals of all controllers, separated by semicolons: nobody else may vote, "
        "begin or end an epoch, change a voter's entry or fetch in a voter's name, not even with "
        "the cluster action or as a super user. Empty: brokers that are registered may not. Needs "
        "an encrypted listener, and without certificates a caller is User:ANONYMOUS: an "
        "unencrypted listener cannot tell controllers from others.",
    ),
    Setting(
        "quorate.connections.max",
        forms.integer(8, 1_000_000),
        "4096",
        "Ours. How many connections a controller takes, fewer where the limit of open files is "
        "low; the ones beyond are closed.",
    ),
    Setting(
        "quorate.streams.per.connection.max",
        forms.integer(1, 100_000),
        "1024",
        "Ours. How many calls and streams one connection may have under way; a client waits with "
        "the ones beyond.",
    ),
    Setting(
        "quorate.calls.max",
        forms.integer(64, 1_000_000),
        "8192",
        "Ours. How many calls and streams of all connections are under way; the ones beyond are "
        "refused with RESOURCE_EXHAUSTED.",
    ),
    Setting(
        "quorate.calls.per.second.max",
        forms.integer(0, 1_000_000),
        "300",
        "Ours. The calls a second beyond which connections that ask for more than their share "
        "wait, and then are refused with RESOURCE_EXHAUSTED; 0 for no shares. Elections and what "
        "goes over open streams do not count.",
    ),
    Setting(
        "ssl.client.auth",
        forms.choice("required"),
        "required",
        "Who connects to an SSL listener must present a certificate of our authorities, always. "
        "Kafka's default is none.",
    ),
    Setting(
        "ssl.certificate.location",
        forms.path(),
        None,
        "Ours. A PEM file: this controller's certificate and its chain.",
    ),
    Setting(
        "ssl.key.location", forms.path(), None, "Ours. A PEM file: the certificate's private key."
    ),
    Setting(
        "ssl.ca.location",
        forms.path(),
        None,
        "Ours. A PEM file: the authorities whose certificates count.",
    ),
    Setting(
        "ssl.keystore.type",
        forms.choice("PEM"),
        None,
        "Must be PEM where ssl.keystore.location is set: Java's key stores are not read.",
    ),
    Setting(
        "ssl.keystore.location",
        forms.path(),
        None,
        "A PEM file with the private key and the certificate; or use ssl.key.location and "
        "ssl.certificate.location.",
    ),
    Setting(
        "ssl.truststore.type",
        forms.choice("PEM"),
        None,
        "Must be PEM where ssl.truststore.location is set: Java's trust stores are not read.",
    ),
    Setting(
        "ssl.truststore.location",
        forms.path(),
        None,
        "Kafka's name for what is ssl.ca.location here.",
    ),
    *MIGRATION_SETTINGS,
)

BY_NAME: dict[str, Setting] = {setting.name: setting for setting in SETTINGS}

REFUSED: dict[str, str] = {
    "ssl.key.password": "an encrypted private key cannot be read here: decrypt it and protect the "
    "file instead",
    "ssl.keystore.key": "write the key to a file and name it in ssl.key.location",
    "ssl.keystore.certificate.chain": "write it to a file and name it in ssl.certificate.location",
    "ssl.truststore.certificates": "write them to a file and name it in ssl.ca.location",
    **MIGRATION_REFUSED,
}
"""Kafka's settings that would leave the node less protected than its owner believes, if they were
ignored.
"""

__all__ = [
    "BY_NAME",
    "INT_MAX",
    "LONG_MAX",
    "REFUSED",
    "SETTINGS",
    "Address",
    "Form",
    "Setting",
    "StaticVoter",
    "parse_address",
    "split_list",
]
