"""Reads and validates a controller's configuration: a Java properties file and the environment.

The rules of `process.properties` apply. This module checks constraints between settings. Apart from
the properties file, only the PEM files that TLS needs are opened.

Source: Kafka's KafkaConfig and SocketServerConfigs; KIP-853, "Configuration".
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

from quorate.controller.config import (
    CONTROLLER,
    CONTROLLER_PRINCIPALS,
    ControllerConfig,
    ControllerSecurity,
    Listener,
)
from quorate.controller.kafka.security import (
    CLIENT_AUTH,
    KafkaSecurity,
    read_kafka_security,
    warn_of_unused,
)
from quorate.controller.kafka.settings import LISTENER, read_kafka_listener
from quorate.controller.migration.settings import read_migration
from quorate.controller.tls_settings import TlsFiles, read_tls
from quorate.process.config_types import WILDCARD_HOSTS
from quorate.process.node_config import has_authorizer, node_values
from quorate.process.properties import (
    ConfigError,
    ParsedProperties,
    parse_properties,
    parse_texts,
    values_of,
)
from quorate.raft.types import Endpoint, ReplicaKey, Voter, VoterSet


def load_config(
    path: Path | None, environment: Mapping[str, str] | None = None
) -> ControllerConfig:
    """The configuration in the properties file `path`, overridden by the environment.

    path: None if all settings are in the environment. environment: None for `os.environ`.
    Raises ConfigError.
    """
    parsed = parse_properties(path, os.environ if environment is None else environment, CONTROLLER)
    return _build(parsed)


def config_of(texts: Mapping[str, str], source: str) -> ControllerConfig:
    """The configuration with settings that are in no file. source: what messages call them.

    Raises ConfigError.
    """
    return _build(parse_texts(texts, source, CONTROLLER))


# --- constraints between settings -----------------------------------------------------------------


def _build(parsed: ParsedProperties) -> ControllerConfig:
    parsed.require("process.roles")
    node_id: int = parsed.require("node.id")
    listeners = _listeners(parsed)
    directories = _directories(parsed)
    static_voters = _static_voters(parsed, node_id, listeners[0].name)
    bootstrap = parsed.get("controller.quorum.bootstrap.servers") or tuple(
        voter.address for voter in parsed.get("controller.quorum.voters")
    )
    if not bootstrap:
        raise ConfigError(
            f"{parsed.source}: neither controller.quorum.bootstrap.servers nor "
            "controller.quorum.voters is set: this controller could not find its quorum"
        )
    values = node_values(ControllerConfig, parsed)
    grpc_tls, kafka_tls = _tls(parsed, listeners)
    encrypted = {each.name for each in listeners if each.tls}
    kafka = read_kafka_listener(parsed, _kafka_security(parsed, listeners), encrypted)
    if (segment_bytes := parsed.get("internal.metadata.log.segment.bytes")) is not None:
        values["segment_bytes_max"] = segment_bytes
    return ControllerConfig(
        **values
        | {
            "listeners": listeners,
            "endpoints": _endpoints(parsed, listeners),
            "metadata_log_dir": directories[0],
            "log_dirs": directories,
            "bootstrap_servers": bootstrap,
            "static_voters": static_voters,
            "auto_join": _auto_join(parsed),
            "unformatted_format": _unformatted_format(parsed),
            "tls": grpc_tls or kafka_tls,
            "kafka_tls": kafka_tls,
            "security": _security(parsed, listeners),
            "protocols": _protocols(parsed),
            "migration": read_migration(parsed),
            "kafka": kafka,
            "warnings": tuple(parsed.warnings),
        }
    )


def _listeners(parsed: ParsedProperties) -> tuple[Listener, ...]:
    """The controller's listeners in the order of controller.listener.names.

    A controller has no others.
    """
    names: tuple[str, ...] = parsed.require("controller.listener.names")
    by_name: dict[str, Endpoint] = {e.name: e for e in parsed.require("listeners")}
    for name in names:
        if name not in by_name:
            parsed.fail("controller.listener.names", f"{name} is not in listeners")
    for name in by_name:
        if name not in names:
            parsed.fail(
                "listeners",
                f"{name} is not in controller.listener.names, and only brokers have other "
                "listeners",
            )
    addresses = [(endpoint.host, endpoint.port) for endpoint in by_name.values()]
    for host, port in addresses:
        if addresses.count((host, port)) > 1:
            parsed.fail("listeners", f"{host}:{port} appears twice")
    return tuple(
        Listener(
            name,
            "" if by_name[name].host in WILDCARD_HOSTS else by_name[name].host,
            by_name[name].port,
            _is_tls(protocol := _protocol(parsed, name)),
            protocol.startswith("SASL_"),
        )
        for name in names
    )


def _protocol(parsed: ParsedProperties, name: str) -> str:
    """The security protocol of a listener. Only the one for Kafka's brokers may use SASL."""
    protocols: Mapping[str, str] = parsed.get("listener.security.protocol.map") or {}
    if name not in protocols and protocols and name not in ("PLAINTEXT", "SSL"):
        parsed.fail("listener.security.protocol.map", f"it does not name the listener {name}")
    protocol = protocols.get(name, "SSL" if name == "SSL" else "PLAINTEXT")
    if protocol.startswith("SASL_") and name != parsed.get(LISTENER):
        parsed.fail(
            "listener.security.protocol.map",
            f"{name}:{protocol}: only PLAINTEXT and SSL are supported, except on the listener for "
            f"Kafka's brokers ({LISTENER})",
        )
    return protocol


def _is_tls(protocol: str) -> bool:
    return protocol in ("SSL", "SASL_SSL")


def _tls(
    parsed: ParsedProperties, listeners: tuple[Listener, ...]
) -> tuple[TlsFiles | None, TlsFiles | None]:
    encrypted = [each.name for each in listeners if each.tls]
    return read_tls(parsed, encrypted, parsed.get(LISTENER))


def _kafka_security(parsed: ParsedProperties, listeners: tuple[Listener, ...]) -> KafkaSecurity:
    kafkas: str | None = parsed.get(LISTENER)
    grpc = next((each.name for each in listeners if each.tls and each.name != kafkas), None)
    if grpc is not None and parsed.get(CLIENT_AUTH) not in (None, "required"):
        parsed.fail(
            CLIENT_AUTH,
            f"the listener {grpc} requires client certificates; for the listener for Kafka's "
            f"brokers set listener.name.NAME.{CLIENT_AUTH}",
        )
    protocol = "PLAINTEXT" if kafkas is None else _protocol(parsed, kafkas)
    warn_of_unused(parsed, kafkas, protocol)
    if kafkas is None:
        return KafkaSecurity()
    return read_kafka_security(parsed, kafkas, protocol)


def _protocols(parsed: ParsedProperties) -> dict[str, bool]:
    mapped: Mapping[str, str] = parsed.get("listener.security.protocol.map") or {}
    return {name: _is_tls(protocol) for name, protocol in mapped.items()}


def _endpoints(parsed: ParsedProperties, listeners: tuple[Listener, ...]) -> tuple[Endpoint, ...]:
    advertised: dict[str, Endpoint] = {e.name: e for e in parsed.get("advertised.listeners")}
    for endpoint in advertised.values():
        if endpoint.name not in {listener.name for listener in listeners}:
            parsed.fail("advertised.listeners", f"{endpoint.name} is not in listeners")
        if endpoint.host in WILDCARD_HOSTS:
            parsed.fail(
                "advertised.listeners", f"other nodes cannot connect to {endpoint}: name a host"
            )
    endpoints = []
    for listener in listeners:
        endpoint = advertised.get(
            listener.name, Endpoint(listener.name, listener.host, listener.port)
        )
        if not endpoint.host:
            endpoint = Endpoint(listener.name, socket.getfqdn(), listener.port)
            parsed.warnings.append(
                f"{parsed.source}: {listener.name} listens on all addresses, and "
                f"advertised.listeners does not name it: it is advertised as {endpoint}"
            )
        endpoints.append(endpoint)
    return tuple(endpoints)


def _directories(parsed: ParsedProperties) -> tuple[Path, ...]:
    """The metadata log's directory first, then the other log directories."""
    log_dirs: tuple[Path, ...] = parsed.get("log.dirs") or parsed.get("log.dir")
    metadata: Path | None = parsed.get("metadata.log.dir") or next(iter(log_dirs), None)
    if metadata is None:
        raise ConfigError(
            f"{parsed.source}: none of metadata.log.dir, log.dirs and log.dir is set: set "
            "metadata.log.dir to the directory of the metadata log"
        )
    return (metadata, *(directory for directory in log_dirs if directory != metadata))


def _static_voters(parsed: ParsedProperties, node_id: int, listener_name: str) -> VoterSet:
    static = parsed.get("controller.quorum.voters")
    voters = VoterSet.of(
        Voter(ReplicaKey(v.id), (Endpoint(listener_name, v.address.host, v.address.port),))
        for v in static
    )
    if static and voters.get(node_id) is None:
        parsed.fail(
            "controller.quorum.voters",
            f"node.id {node_id} is not among them, but this node is a controller",
        )
    return voters


def _auto_join(parsed: ParsedProperties) -> bool:
    auto_join: bool = parsed.get("controller.quorum.auto.join.enable")
    if auto_join and not parsed.get("controller.quorum.bootstrap.servers"):
        parsed.fail(
            "controller.quorum.auto.join.enable",
            "it requires controller.quorum.bootstrap.servers: static voters "
            "(controller.quorum.voters) cannot join a quorum",
        )
    return auto_join


def _unformatted_format(parsed: ParsedProperties) -> bool:
    name = "quorate.unformatted.format"
    is_wanted: bool = parsed.get(name)
    if is_wanted and parsed.get("cluster.id") is None:
        parsed.fail(name, "it requires cluster.id, the id of the cluster to format for")
    if is_wanted and parsed.get("quorate.unformatted.wait"):
        parsed.fail(name, "it contradicts quorate.unformatted.wait=true: set only one of them")
    if is_wanted and parsed.get("controller.quorum.voters"):
        parsed.fail(
            name,
            "static voters (controller.quorum.voters) have no directory ids, so a lost directory "
            "must not be formatted again automatically",
        )
    return is_wanted


def _security(parsed: ParsedProperties, listeners: tuple[Listener, ...]) -> ControllerSecurity:
    controllers: tuple[tuple[str, int | None], ...] = parsed.get(CONTROLLER_PRINCIPALS)
    kafkas = parsed.get(LISTENER)
    is_encrypted = any(listener.tls for listener in listeners if listener.name != kafkas)
    if controllers and not is_encrypted:
        parsed.fail(
            CONTROLLER_PRINCIPALS,
            "no listener is encrypted, so no caller has a principal: use SSL, or remove this "
            "setting",
        )
    values = values_of(ControllerSecurity, parsed)
    return ControllerSecurity(
        authorizer=has_authorizer(parsed),
        controller_principals=tuple(principal for principal, _ in controllers),
        node_principals=tuple((p, node) for p, node in controllers if node is not None),
        **values,
    )
