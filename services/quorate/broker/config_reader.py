"""Builds a broker's configuration from its properties, and checks that the settings agree."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

from quorate.broker.config import BrokerConfig
from quorate.process.config_types import PROTOCOLS, WILDCARD_HOSTS
from quorate.process.node_config import Security, has_authorizer, node_values
from quorate.process.properties import ParsedProperties, values_of
from quorate.raft.types import Endpoint, ReplicaKey, Voter, VoterSet
from quorate.rpc.tls import TlsConfig
from quorate.rpc.wire.limits import format_address


def build_config(parsed: ParsedProperties) -> BrokerConfig:
    """Build a broker's configuration. ConfigError if settings are missing or contradictory."""
    parsed.require("process.roles")
    names: tuple[str, ...] = parsed.require("controller.listener.names")
    listeners: tuple[Endpoint, ...] = parsed.require("listeners")
    for endpoint in listeners:
        if endpoint.name in names:
            parsed.fail(
                "listeners",
                f"{endpoint.name} is in controller.listener.names, and a broker has no controller "
                "listener",
            )
    static = parsed.get("controller.quorum.voters") or ()
    bootstrap = parsed.get("controller.quorum.bootstrap.servers") or tuple(
        v.address for v in static
    )
    if not bootstrap:
        parsed.require("controller.quorum.bootstrap.servers")
    log_dirs: tuple[Path, ...] = parsed.get("log.dirs") or parsed.get("log.dir")
    metadata: Path | None = parsed.get("metadata.log.dir")
    if not log_dirs:
        log_dirs = (metadata,) if metadata is not None else parsed.require("log.dirs")
    protocols = parsed.get("listener.security.protocol.map") or {}
    encrypted = _encrypted(parsed, (*names, *(e.name for e in listeners)), protocols)
    if parsed.get("broker.session.timeout.ms") <= parsed.get("broker.heartbeat.interval.ms"):
        parsed.fail(
            "broker.session.timeout.ms", "it must be longer than broker.heartbeat.interval.ms"
        )
    return BrokerConfig(
        **node_values(BrokerConfig, parsed)
        | {
            "listen": tuple(
                format_address("" if e.host in WILDCARD_HOSTS else e.host, e.port)
                for e in listeners
            ),
            "endpoints": _endpoints(parsed, listeners),
            "log_dirs": log_dirs,
            "metadata_log_dir": metadata or log_dirs[0],
            "bootstrap_servers": bootstrap,
            "static_voters": VoterSet.of(
                Voter(ReplicaKey(v.id), (Endpoint(names[0], v.address.host, v.address.port),))
                for v in static
            ),
            "encrypted": encrypted,
            "protocols": {name: protocol == "SSL" for name, protocol in protocols.items()},
            "tls": _tls(parsed) if encrypted else None,
            "security": Security(authorizer=has_authorizer(parsed), **values_of(Security, parsed)),
            "warnings": tuple(parsed.warnings),
        }
    )


def _encrypted(
    parsed: ParsedProperties, names: tuple[str, ...], protocols: Mapping[str, str]
) -> frozenset[str]:
    """The names of the listeners that use TLS, of the broker and of the controllers."""
    found = set()
    for name in names:
        if protocols and name not in protocols and name not in PROTOCOLS:
            parsed.fail("listener.security.protocol.map", f"it does not name the listener {name}")
        protocol = protocols.get(name, name if name in PROTOCOLS else "PLAINTEXT")
        if protocol.startswith("SASL"):
            parsed.fail("listener.security.protocol.map", f"{name}:{protocol} is not supported")
        if protocol == "SSL":
            found.add(name)
    return frozenset(found)


def _endpoints(parsed: ParsedProperties, listeners: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
    """The endpoints that other nodes and clients connect to."""
    advertised = {e.name: e for e in parsed.get("advertised.listeners") or ()}
    for name in advertised.keys() - {e.name for e in listeners}:
        parsed.fail("advertised.listeners", f"{name} is not in listeners")
    found = []
    for endpoint in listeners:
        chosen = advertised.get(endpoint.name, endpoint)
        if chosen.host in WILDCARD_HOSTS:
            chosen = Endpoint(endpoint.name, socket.getfqdn(), chosen.port)
        found.append(chosen)
    return tuple(found)


def _tls(parsed: ParsedProperties) -> TlsConfig:
    certificate = parsed.require("ssl.certificate.location")
    key = parsed.require("ssl.key.location")
    return TlsConfig(certificate, key, parsed.require("ssl.ca.location"))
