"""Reads and validates a controller's configuration: a Java properties file and the environment.

The rules of `process.properties` apply. This module checks constraints between settings. Apart from
the properties file, only the PEM files that TLS needs are opened.

Source: Kafka's KafkaConfig and SocketServerConfigs; KIP-853, "Configuration".
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from quorate.common.config_types import WILDCARD_HOSTS, StaticVoter
from quorate.common.endpoints import Endpoint
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
from quorate.controller.tls_settings import read_tls
from quorate.controller.topic.settings import TOPIC_LISTENER, read_topic_listener
from quorate.process.config_reader import (
    PROTOCOLS,
    VOTERS,
    is_tls,
    node_values,
    protocol_of,
)
from quorate.process.properties import (
    ParsedProperties,
    parse_properties,
    parse_texts,
)


def load_config(
    path: Path | None, environment: Mapping[str, str] | None = None
) -> ControllerConfig:
    """The configuration in the properties file `path`, overridden by the environment.

    path: None if all settings are in the environment. environment: None for `os.environ`.
    Raises ConfigError.
    """
    parsed = parse_properties(path, os.environ if environment is None else environment, CONTROLLER)
    return _build(parsed)


def config_of(
    texts: Mapping[str, str], source: str, *, reads_files: bool = True
) -> ControllerConfig:
    """The configuration with settings that are in no file. source: what messages call them.

    reads_files: False to check the settings where the PEM files that they name do not exist.
    Raises ConfigError.
    """
    return _build(parse_texts(texts, source, CONTROLLER, reads_files=reads_files))


# --- constraints between settings -----------------------------------------------------------------


def _build(parsed: ParsedProperties) -> ControllerConfig:
    parsed.require("process.roles")
    listeners = _listeners(parsed)
    _check_advertised(parsed)
    _check_static_voters(parsed)
    _check_auto_join(parsed)
    _check_unformatted_format(parsed)
    values = node_values(
        ControllerConfig, parsed, [Endpoint(e.name, e.host, e.port) for e in listeners]
    )
    if (segment_bytes := parsed.get("internal.metadata.log.segment.bytes")) is not None:
        values["log"] = replace(values["log"], segment_bytes_max=segment_bytes)
    metadata_log_dir: Path = values["metadata_log_dir"]
    others = (each for each in values["log_dirs"] if each != metadata_log_dir)
    encrypted = [each.name for each in listeners if each.tls]
    grpc_tls, kafkas_tls = read_tls(parsed, encrypted, _kafkas(parsed))
    security = _kafkas_security(parsed, listeners)
    kafka, topic = parsed.get(LISTENER), parsed.get(TOPIC_LISTENER)
    return ControllerConfig(
        **values
        | {
            "listeners": listeners,
            "log_dirs": (metadata_log_dir, *others),
            "tls": grpc_tls or next(iter(kafkas_tls.values()), None),
            "kafka_tls": kafkas_tls.get(kafka),
            "topic_tls": kafkas_tls.get(topic),
            "security": _security(parsed, listeners, values["security"]),
            "migration": read_migration(parsed),
            "kafka": read_kafka_listener(
                parsed, values["kafka"], security.get(kafka, KafkaSecurity()), encrypted
            ),
            "topic": read_topic_listener(
                parsed, values["topic"], security.get(topic, KafkaSecurity())
            ),
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
            is_tls(protocol := _protocol(parsed, name)),
            protocol.startswith("SASL_"),
        )
        for name in names
    )


def _protocol(parsed: ParsedProperties, name: str) -> str:
    """The security protocol of a listener. Only those for Kafka's protocol may use SASL."""
    protocol = protocol_of(parsed, name, ("PLAINTEXT", "SSL"))
    if protocol.startswith("SASL_") and name not in _kafkas(parsed):
        parsed.fail(
            PROTOCOLS,
            f"{name}:{protocol}: only PLAINTEXT and SSL are supported, except on listeners for "
            f"Kafka's protocol ({LISTENER}, {TOPIC_LISTENER})",
        )
    return protocol


def _kafkas(parsed: ParsedProperties) -> tuple[str, ...]:
    """The listeners that speak Kafka's protocol."""
    names = (parsed.get(LISTENER), parsed.get(TOPIC_LISTENER))
    return tuple(name for name in names if name is not None)


def _kafkas_security(
    parsed: ParsedProperties, listeners: tuple[Listener, ...]
) -> dict[str, KafkaSecurity]:
    """The security of each listener that speaks Kafka's protocol."""
    # A listener that does not exist is rejected where its setting is read.
    kafkas = [each.name for each in listeners if each.name in _kafkas(parsed)]
    grpc = next((each.name for each in listeners if each.tls and each.name not in kafkas), None)
    if grpc is not None and parsed.get(CLIENT_AUTH) not in (None, "required"):
        parsed.fail(
            CLIENT_AUTH,
            f"the listener {grpc} requires client certificates; for the listener for Kafka's "
            f"brokers set listener.name.NAME.{CLIENT_AUTH}",
        )
    protocols = {name: _protocol(parsed, name) for name in kafkas}
    warn_of_unused(parsed, protocols)
    return {name: read_kafka_security(parsed, name, protocols[name]) for name in kafkas}


def _check_advertised(parsed: ParsedProperties) -> None:
    for endpoint in parsed.get("advertised.listeners"):
        if endpoint.host in WILDCARD_HOSTS:
            parsed.fail(
                "advertised.listeners", f"other nodes cannot connect to {endpoint}: name a host"
            )


def _check_static_voters(parsed: ParsedProperties) -> None:
    node_id: int = parsed.require("node.id")
    static: tuple[StaticVoter, ...] = parsed.get(VOTERS)
    if static and node_id not in {voter.id for voter in static}:
        parsed.fail(VOTERS, f"node.id {node_id} is not among them, but this node is a controller")


def _check_auto_join(parsed: ParsedProperties) -> None:
    auto_join: bool = parsed.get("controller.quorum.auto.join.enable")
    if auto_join and not parsed.get("controller.quorum.bootstrap.servers"):
        parsed.fail(
            "controller.quorum.auto.join.enable",
            "it requires controller.quorum.bootstrap.servers: static voters "
            "(controller.quorum.voters) cannot join a quorum",
        )


def _check_unformatted_format(parsed: ParsedProperties) -> None:
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


def _security(
    parsed: ParsedProperties, listeners: tuple[Listener, ...], declared: ControllerSecurity
) -> ControllerSecurity:
    controllers: tuple[tuple[str, int | None], ...] = parsed.get(CONTROLLER_PRINCIPALS)
    kafkas = _kafkas(parsed)
    is_encrypted = any(listener.tls for listener in listeners if listener.name not in kafkas)
    if controllers and not is_encrypted:
        parsed.fail(
            CONTROLLER_PRINCIPALS,
            "no listener is encrypted, so no caller has a principal: use SSL, or remove this "
            "setting",
        )
    return replace(
        declared,
        controller_principals=tuple(principal for principal, _ in controllers),
        node_principals=tuple((p, node) for p, node in controllers if node is not None),
    )
