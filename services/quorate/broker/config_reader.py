"""Builds a broker's configuration from its properties, and checks that the settings agree."""

from __future__ import annotations

from collections.abc import Iterable

from quorate.broker.config import BrokerConfig
from quorate.common import config_types as types
from quorate.common.endpoints import Endpoint
from quorate.process.config_reader import PROTOCOLS, is_tls, node_values, protocol_of
from quorate.process.properties import ParsedProperties
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
    if parsed.get("broker.session.timeout.ms") <= parsed.get("broker.heartbeat.interval.ms"):
        parsed.fail(
            "broker.session.timeout.ms", "it must be longer than broker.heartbeat.interval.ms"
        )
    values = node_values(BrokerConfig, parsed, listeners)
    encrypted = _encrypted(parsed, (*names, *(e.name for e in listeners)))
    return BrokerConfig(
        **values
        | {
            "listen": tuple(
                format_address("" if e.host in types.WILDCARD_HOSTS else e.host, e.port)
                for e in listeners
            ),
            "encrypted": encrypted,
            "tls": _tls(parsed) if encrypted else None,
            "warnings": tuple(parsed.warnings),
        }
    )


def _encrypted(parsed: ParsedProperties, names: Iterable[str]) -> frozenset[str]:
    """The names of the listeners that use TLS, of the broker and of the controllers."""
    protocols = {name: protocol_of(parsed, name, types.PROTOCOLS) for name in names}
    for name, protocol in protocols.items():
        if protocol.startswith("SASL"):
            parsed.fail(PROTOCOLS, f"{name}:{protocol} is not supported")
    return frozenset(name for name, protocol in protocols.items() if is_tls(protocol))


def _tls(parsed: ParsedProperties) -> TlsConfig:
    certificate = parsed.require("ssl.certificate.location")
    key = parsed.require("ssl.key.location")
    return TlsConfig(certificate, key, parsed.require("ssl.ca.location"))
