"""A broker's settings: from a properties file and the environment to a `BrokerConfig`.

What brokers and controllers share (listeners, TLS, where the quorum is) has the forms of
`controller.settings`; what only brokers have is declared here, with Kafka's names and defaults.
What is wrong is a `ConfigError`, one line; Kafka's settings that mean nothing here are ignored,
each with a warning; any other name is an error.
"""

from __future__ import annotations

import os
import socket
import textwrap
from collections.abc import Mapping
from pathlib import Path

from quorate.broker.config import BrokerConfig
from quorate.cli.output import UsageError
from quorate.controller.config import WILDCARD_HOSTS
from quorate.controller.given import Given, Table, read_given
from quorate.controller.kafka_names import is_kafkas
from quorate.controller.migration_settings import ENABLE
from quorate.controller.settings import BY_NAME, REFUSED, Form, Setting
from quorate.raft.types import Endpoint, ReplicaKey, Voter, VoterSet
from quorate.rpc.limits import format_address
from quorate.rpc.tls import TlsConfig

_MILLISECONDS = BY_NAME["controller.quorum.fetch.timeout.ms"].form
_BYTES = BY_NAME["controller.quorum.fetch.max.bytes"].form
_BOOLEAN = BY_NAME["quorate.unformatted.wait"].form
_COUNT = Form("int", _BYTES.accepts, _BYTES.parse)


def _role(text: str) -> str:
    if text.strip() != "broker":
        raise ValueError("it is not a broker's")
    return "broker"


OWN: tuple[Setting, ...] = (
    Setting("process.roles", Form("list", "broker", _role), None, "What this process is."),
    Setting("broker.rack", Form("string", "text", str), None, "Where the broker stands."),
    Setting("broker.heartbeat.interval.ms", _MILLISECONDS, "2000", "The time between heartbeats."),
    Setting(
        "broker.session.timeout.ms",
        _MILLISECONDS,
        "9000",
        "After that long without a heartbeat the controller fences the broker.",
    ),
    Setting(
        "initial.broker.registration.timeout.ms",
        _MILLISECONDS,
        "60000",
        "How long to try to register.",
    ),
    Setting(
        "controlled.shutdown.enable", _BOOLEAN, "true", "Whether to leave the ISRs before stopping."
    ),
    Setting(
        "quorate.controlled.shutdown.timeout.ms",
        _MILLISECONDS,
        "30000",
        "Ours. How long a broker that stops waits for the controller.",
    ),
    Setting(
        "replica.lag.time.max.ms",
        _MILLISECONDS,
        "30000",
        "A follower that has not been caught up for that long leaves the ISR.",
    ),
    Setting(
        "replica.fetch.wait.max.ms", _MILLISECONDS, "500", "How long a follower's fetch is parked."
    ),
    Setting(
        "replica.fetch.response.max.bytes",
        _BYTES,
        str(8 << 20),
        "The most of one answer's records.",
    ),
    Setting("replica.fetch.max.bytes", _BYTES, str(1 << 20), "The same, of one partition."),
    Setting("replica.fetch.backoff.ms", _MILLISECONDS, "100", "The pause after a failed fetch."),
    Setting(
        "replica.high.watermark.checkpoint.interval.ms",
        _MILLISECONDS,
        "5000",
        "How often high watermarks are written down.",
    ),
    Setting(
        "min.insync.replicas",
        _COUNT,
        "1",
        "How many in-sync replicas acks=all needs, where neither topic nor cluster says.",
    ),
    Setting(
        "log.flush.interval.messages",
        _COUNT,
        None,
        "Flush after that many records; 1: acknowledge nothing that is not flushed. Not set: the "
        "operating system writes when it likes.",
    ),
    Setting("log.flush.interval.ms", _MILLISECONDS, None, "Flush that often. Not set: never."),
    Setting("log.segment.bytes", _BYTES, str(1 << 30), "When a new segment is begun."),
    Setting("message.max.bytes", _BYTES, str(8 << 20), "The largest batch."),
)
SHARED = (
    "node.id",
    "cluster.id",
    "controller.quorum.bootstrap.servers",
    "controller.quorum.voters",
    "controller.quorum.fetch.timeout.ms",
    "controller.quorum.request.timeout.ms",
    "controller.quorum.retry.backoff.ms",
    "controller.listener.names",
    "listeners",
    "advertised.listeners",
    "listener.security.protocol.map",
    "metadata.log.dir",
    "log.dirs",
    "log.dir",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.ca.location",
)
SETTINGS: dict[str, Setting] = {
    **{name: BY_NAME[name] for name in SHARED},
    **{setting.name: setting for setting in OWN},
}


TABLE = Table(
    "broker",
    SETTINGS,
    REFUSED | {ENABLE: "a broker here is never in ZooKeeper mode; controllers have this setting"},
    lambda name: name in BY_NAME or is_kafkas(name),
    "quorate broker --help-settings",
)


def settings_text(width: int) -> str:
    """Every setting with its form, default, variable and meaning, in `width` columns."""
    blocks = []
    for name, setting in sorted(SETTINGS.items()):
        default = f", default {setting.default}" if setting.default else ""
        body = (
            f"{setting.form.type}: {setting.form.accepts}{default}",
            setting.variable,
            setting.doc,
        )
        indented = (
            textwrap.fill(line, width, initial_indent="    ", subsequent_indent="    ")
            for line in body
        )
        blocks.append("\n".join((name, *indented)))
    return "\n\n".join(blocks)


def load_broker(path: Path | None, environment: Mapping[str, str] | None = None) -> BrokerConfig:
    """The configuration in `path`, overridden by the environment (`os.environ` if not given).

    Raises ConfigError, and UsageError if there is neither file nor QUORATE_NODE_ID.
    """
    environment = os.environ if environment is None else environment
    if path is None and "QUORATE_NODE_ID" not in environment:
        raise UsageError("the properties FILE is missing, and QUORATE_NODE_ID is not set either")
    return _build(read_given(path, environment, TABLE))


def _build(given: Given) -> BrokerConfig:
    given.require("process.roles")
    names: tuple[str, ...] = given.require("controller.listener.names")
    listeners: tuple[Endpoint, ...] = given.require("listeners")
    for endpoint in listeners:
        if endpoint.name in names:
            given.fail("listeners", f"{endpoint.name} is the controllers', and this is a broker")
    static = given.get("controller.quorum.voters") or ()
    bootstrap = given.get("controller.quorum.bootstrap.servers") or tuple(v.address for v in static)
    if not bootstrap:
        given.require("controller.quorum.bootstrap.servers")
    log_dirs: tuple[Path, ...] = given.get("log.dirs") or given.get("log.dir")
    metadata: Path | None = given.get("metadata.log.dir")
    if not log_dirs:
        log_dirs = (metadata,) if metadata is not None else given.require("log.dirs")
    protocols = given.get("listener.security.protocol.map") or {}
    encrypted = _encrypted(given, (*names, *(e.name for e in listeners)), protocols)
    if given.get("broker.session.timeout.ms") <= given.get("broker.heartbeat.interval.ms"):
        given.fail("broker.session.timeout.ms", "it must be longer than the heartbeats' interval")
    return BrokerConfig(
        node_id=given.require("node.id"),
        listen=tuple(
            format_address("" if e.host in WILDCARD_HOSTS else e.host, e.port) for e in listeners
        ),
        endpoints=_endpoints(given, listeners),
        log_dirs=log_dirs,
        metadata_log_dir=metadata or log_dirs[0],
        controller_listener=names[0],
        bootstrap_servers=tuple((a.host, a.port) for a in bootstrap),
        static_voters=VoterSet.of(
            Voter(ReplicaKey(v.id), (Endpoint(names[0], v.address.host, v.address.port),))
            for v in static
        ),
        cluster_id=given.get("cluster.id"),
        rack=given.get("broker.rack"),
        encrypted=encrypted,
        protocols={name: protocol == "SSL" for name, protocol in protocols.items()},
        tls=_tls(given) if encrypted else None,
        heartbeat_interval_ms=given.get("broker.heartbeat.interval.ms"),
        session_timeout_ms=given.get("broker.session.timeout.ms"),
        registration_timeout_ms=given.get("initial.broker.registration.timeout.ms"),
        controlled_shutdown=given.get("controlled.shutdown.enable"),
        controlled_shutdown_timeout_ms=given.get("quorate.controlled.shutdown.timeout.ms"),
        lag_time_max_ms=given.get("replica.lag.time.max.ms"),
        fetch_wait_max_ms=given.get("replica.fetch.wait.max.ms"),
        fetch_bytes_max=given.get("replica.fetch.response.max.bytes"),
        fetch_partition_bytes_max=given.get("replica.fetch.max.bytes"),
        fetch_backoff_ms=given.get("replica.fetch.backoff.ms"),
        min_insync_replicas=given.get("min.insync.replicas"),
        flush_interval_messages=given.get("log.flush.interval.messages"),
        flush_interval_ms=given.get("log.flush.interval.ms"),
        segment_bytes_max=given.get("log.segment.bytes"),
        message_bytes_max=given.get("message.max.bytes"),
        checkpoint_interval_ms=given.get("replica.high.watermark.checkpoint.interval.ms"),
        raft_fetch_timeout_ms=given.get("controller.quorum.fetch.timeout.ms"),
        raft_request_timeout_ms=given.get("controller.quorum.request.timeout.ms"),
        raft_retry_backoff_ms=given.get("controller.quorum.retry.backoff.ms"),
        warnings=tuple(given.warnings),
        source=given.source,
    )


def _encrypted(
    given: Given, names: tuple[str, ...], protocols: Mapping[str, str]
) -> frozenset[str]:
    """The listeners that use TLS, of the broker and of the controllers."""
    found = set()
    for name in names:
        protocol = protocols.get(name, "SSL" if name == "SSL" else "PLAINTEXT")
        if protocol.startswith("SASL"):
            given.fail("listener.security.protocol.map", f"{name}:{protocol} is not supported")
        if protocol == "SSL":
            found.add(name)
    return frozenset(found)


def _endpoints(given: Given, listeners: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
    """How others dial the listeners."""
    advertised = {e.name: e for e in given.get("advertised.listeners") or ()}
    for name in advertised.keys() - {e.name for e in listeners}:
        given.fail("advertised.listeners", f"{name} is not in listeners")
    found = []
    for endpoint in listeners:
        chosen = advertised.get(endpoint.name, endpoint)
        if chosen.host in WILDCARD_HOSTS:
            chosen = Endpoint(endpoint.name, socket.getfqdn(), chosen.port)
        found.append(chosen)
    return tuple(found)


def _tls(given: Given) -> TlsConfig:
    certificate = given.require("ssl.certificate.location")
    key = given.require("ssl.key.location")
    return TlsConfig(certificate, key, given.require("ssl.ca.location"))
