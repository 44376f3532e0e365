"""Builds the authorization and the limits of a controller's server from its settings.

There is no `NodeAuthorizer` if it would have nothing to check: peers have no identity, because no
listener is encrypted or quorate.peer.identity is off; neither an authorizer nor the principals of
controllers are configured; and the node does not wait to be formatted.
"""

from __future__ import annotations

import logging
import resource
from pathlib import Path

from quorate.controller.config import CONTROLLER_PRINCIPALS, ControllerConfig
from quorate.metadata.authorizer import AclAuthorizer
from quorate.rpc.errors import TlsError
from quorate.rpc.principals import nodes_of
from quorate.rpc.tls import dns_names
from quorate.rpc.wire.limits import ServerLimits
from quorate.runtime.authorizer import NodeAuthorizer, PeerIdentity

LOGGER = logging.getLogger(__name__)

OTHER_FILES = 256
"""Open files that are reserved for the log, peers and the process, not for client connections."""


def node_authorizer(config: ControllerConfig) -> NodeAuthorizer | None:
    """The authorizer that authorizes requests; None if it would have nothing to check.

    Raises TlsError if this node's certificate cannot be read, or if peers would reject it.
    """
    security = config.security
    identity = PeerIdentity.configured(security.peer_identity, has_tls=config.tls is not None)
    controllers = security.controller_principals
    is_encrypted = any(each.tls for each in config.grpc_listeners)
    if config.tls is not None and is_encrypted and identity is not PeerIdentity.OFF:
        _check_own_name(config, config.tls.certificate)
    kafka_tls = config.kafka_tls if config.kafka.serves_voters else None
    if kafka_tls is not None and identity is not PeerIdentity.OFF:
        _check_own_name(config, kafka_tls.certificate)
    if config.tls is not None and identity is PeerIdentity.OFF:
        LOGGER.warning(
            "quorate.peer.identity=off: any certificate signed by ssl.ca.location can act as "
            "any node, so acknowledged records can be lost"
        )
    if security.authorizer and not controllers:
        LOGGER.warning(
            "%s is not set: any node that is not a registered broker, such as a broker after its "
            "unregistration, can take part in elections",
            CONTROLLER_PRINCIPALS,
        )
    is_open = identity is PeerIdentity.OFF and not security.authorizer and not controllers
    if is_open and not config.unformatted_wait:
        return None
    authorizer = None
    if security.authorizer:
        authorizer = AclAuthorizer(
            security.super_users, allow_if_no_acl_found=security.allow_if_no_acl_found
        )
    return NodeAuthorizer(
        identity=identity,
        controllers=controllers,
        nodes=security.node_principals,
        formatters=security.format_principals,
        authorizer=authorizer,
        mapping=security.principal_mapping,
    )


def _check_own_name(config: ControllerConfig, certificate: Path) -> None:
    """Raise TlsError if peers would reject the requests of this node."""
    node = config.node_id
    mapped = {each for _, each in config.security.node_principals}
    if node in mapped or node in nodes_of(dns_names(certificate)):
        return
    raise TlsError(
        f"{certificate} does not name node {node}, and other nodes would reject it: issue one "
        f"with node-{node} among its DNS names, add {node}@PRINCIPAL to {CONTROLLER_PRINCIPALS}, "
        "or let every certificate act as any node with quorate.peer.identity=off"
    )


def server_limits(config: ControllerConfig) -> ServerLimits:
    """The configured limits, with connections capped by the limit of open files."""
    wanted = config.security.connections_max
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    possible = wanted if soft == resource.RLIM_INFINITY else max(8, soft - OTHER_FILES)
    if possible < wanted:
        LOGGER.info("accepting at most %d connections: the open-file limit is %d", possible, soft)
    return ServerLimits(
        concurrent_rpcs_max=config.security.calls_max,
        connections_max=min(wanted, possible),
        connections_per_address_max=config.security.connections_per_address_max,
        streams_per_connection_max=config.security.streams_per_connection_max,
        calls_per_second_max=config.security.calls_per_second_max,
    )
