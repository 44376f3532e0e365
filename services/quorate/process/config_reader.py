"""Reads what the configurations of controllers and brokers have in common.

Each function checks constraints between settings and raises ConfigError.

Source: Kafka's KafkaConfig and SocketServerConfigs; KIP-853, "Configuration".
"""

from __future__ import annotations

import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from quorate.common.config_types import WILDCARD_HOSTS, Address, StaticVoter
from quorate.common.endpoints import Endpoint
from quorate.process.node_config import AUTHORIZER, NodeConfig
from quorate.process.properties import ConfigError, ParsedProperties, values_of
from quorate.raft.types import ReplicaKey, Voter, VoterSet

VOTERS = "controller.quorum.voters"
PROTOCOLS = "listener.security.protocol.map"


def node_values(
    configuration: type[NodeConfig], parsed: ParsedProperties, listeners: Sequence[Endpoint]
) -> dict[str, Any]:
    """The fields of a configuration that nodes of both roles have, and all declared settings.

    listeners: those of the node, in order. `warnings` is not among the fields: the caller may add
    to them.
    """
    if parsed.get("quorate.trace.sample.ratio") and not parsed.get("quorate.otlp.endpoint"):
        parsed.fail(
            "quorate.trace.sample.ratio", "tracing requires a collector: set quorate.otlp.endpoint"
        )
    values = values_of(configuration, parsed)
    metadata_log_dir, log_dirs = _directories(parsed)
    protocols: Mapping[str, str] = parsed.get(PROTOCOLS) or {}
    return values | {
        "source": parsed.source,
        "bootstrap_servers": _bootstrap_servers(parsed),
        "static_voters": _static_voters(parsed),
        "endpoints": _endpoints(parsed, listeners),
        "metadata_log_dir": metadata_log_dir,
        "log_dirs": log_dirs,
        "protocols": {name: is_tls(protocol) for name, protocol in protocols.items()},
        "security": replace(values["security"], authorizer=_has_authorizer(parsed)),
    }


def protocol_of(parsed: ParsedProperties, name: str, own_names: Collection[str]) -> str:
    """The security protocol of a listener.

    own_names: the protocols that a listener may be named after without an entry in the map.
    """
    protocols: Mapping[str, str] = parsed.get(PROTOCOLS) or {}
    if protocols and name not in protocols and name not in own_names:
        parsed.fail(PROTOCOLS, f"it does not name the listener {name}")
    return protocols.get(name, name if name in own_names else "PLAINTEXT")


def is_tls(protocol: str) -> bool:
    return protocol in ("SSL", "SASL_SSL")


def _bootstrap_servers(parsed: ParsedProperties) -> tuple[Address, ...]:
    static: tuple[StaticVoter, ...] = parsed.get(VOTERS)
    found: tuple[Address, ...] = parsed.get("controller.quorum.bootstrap.servers")
    if not (found or static):
        raise ConfigError(
            f"{parsed.source}: neither controller.quorum.bootstrap.servers nor {VOTERS} is set: "
            f"this {parsed.config_def.process} could not find its quorum"
        )
    return found or tuple(voter.address for voter in static)


def _static_voters(parsed: ParsedProperties) -> VoterSet:
    listener, *_ = parsed.require("controller.listener.names")
    return VoterSet.of(
        Voter(ReplicaKey(voter.id), (Endpoint(listener, *voter.address),))
        for voter in parsed.get(VOTERS)
    )


def _endpoints(parsed: ParsedProperties, listeners: Sequence[Endpoint]) -> tuple[Endpoint, ...]:
    advertised: dict[str, Endpoint] = {e.name: e for e in parsed.get("advertised.listeners")}
    for name in advertised:
        if name not in {listener.name for listener in listeners}:
            parsed.fail("advertised.listeners", f"{name} is not in listeners")
    endpoints = []
    for listener in listeners:
        endpoint = advertised.get(listener.name, listener)
        if endpoint.host in WILDCARD_HOSTS:
            endpoint = Endpoint(listener.name, socket.getfqdn(), endpoint.port)
            parsed.warnings.append(
                f"{parsed.source}: {listener.name} listens on all addresses, and "
                f"advertised.listeners has no host for it: it is advertised as {endpoint}"
            )
        endpoints.append(endpoint)
    return tuple(endpoints)


def _directories(parsed: ParsedProperties) -> tuple[Path, tuple[Path, ...]]:
    """The metadata log's directory, and the log directories."""
    log_dirs: tuple[Path, ...] = parsed.get("log.dirs") or parsed.get("log.dir")
    metadata: Path | None = parsed.get("metadata.log.dir") or next(iter(log_dirs), None)
    if metadata is None:
        raise ConfigError(
            f"{parsed.source}: none of metadata.log.dir, log.dirs and log.dir is set: set "
            "metadata.log.dir to the directory of the metadata log"
        )
    return metadata, log_dirs or (metadata,)


def _has_authorizer(parsed: ParsedProperties) -> bool:
    """Whether an authorizer is configured. Adds warnings for settings that require one."""
    authorizer = parsed.get(AUTHORIZER) is not None
    for name in ("super.users", "allow.everyone.if.no.acl.found"):
        if name in parsed and not authorizer:
            parsed.warnings.append(
                f"{parsed.places[name]}: {name} has no effect without {AUTHORIZER}: ignored"
            )
    return authorizer
