"""Who may call a controller, and how much, as its settings say.

Where nothing is to be decided there is no gate at all: no listener is encrypted, so that no peer
has an identity, and no authorizer is configured.
"""

from __future__ import annotations

import logging
import resource
from pathlib import Path

from quorate.controller.config import CONTROLLER_PRINCIPALS, ControllerConfig
from quorate.metadata.authorizer import AclAuthorizer
from quorate.rpc.errors import TlsError
from quorate.rpc.limits import ServerLimits
from quorate.rpc.principals import nodes_of
from quorate.rpc.tls import dns_names
from quorate.runtime.gate import NodeGate, PeerIdentity

LOGGER = logging.getLogger(__name__)

OTHER_FILES = 256
"""Open files that are kept for what is no connection of a client: the log, peers, the process."""


def node_gate(config: ControllerConfig) -> NodeGate | None:
    """TlsError where this node's certificate cannot be read, or its peers would refuse it."""
    security = config.security
    identity = PeerIdentity(security.peer_identity)
    if config.tls is None and identity is PeerIdentity.AUTO:
        identity = PeerIdentity.OFF
    controllers = security.controller_principals
    if config.tls is not None and identity is not PeerIdentity.OFF:
        _check_own_name(config, config.tls.certificate)
    if config.tls is not None and identity is PeerIdentity.OFF:
        LOGGER.warning(
            "quorate.peer.identity=off: every certificate of ssl.ca.location may speak for any "
            "node, and acknowledged records can be lost"
        )
    is_open = identity is PeerIdentity.OFF and not security.authorizer and not controllers
    if is_open and not config.unformatted_wait:
        return None
    authorizer = None
    if security.authorizer:
        authorizer = AclAuthorizer(
            security.super_users, allow_if_no_acl_found=security.allow_if_no_acl_found
        )
    return NodeGate(
        identity=identity,
        controllers=controllers,
        nodes=security.node_principals,
        formatters=security.format_principals,
        authorizer=authorizer,
        mapping=security.principal_mapping,
    )


def _check_own_name(config: ControllerConfig, certificate: Path) -> None:
    """Raise TlsError where peers would refuse what this node sends."""
    node = config.node_id
    mapped = {each for _, each in config.security.node_principals}
    if node in mapped or node in nodes_of(dns_names(certificate)):
        return
    raise TlsError(
        f"{certificate} does not name node {node}, and other nodes would refuse it: issue one with "
        f"node-{node} among its DNS names, add {node}@PRINCIPAL to {CONTROLLER_PRINCIPALS}, or let "
        "every certificate speak for any node with quorate.peer.identity=off"
    )


def server_limits(config: ControllerConfig) -> ServerLimits:
    """As configured, with no more connections than the process may have open files for."""
    wanted = config.security.connections_max
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    possible = wanted if soft == resource.RLIM_INFINITY else max(8, soft - OTHER_FILES)
    if possible < wanted:
        LOGGER.info("takes %d connections at most: the limit of open files is %d", possible, soft)
    return ServerLimits(
        concurrent_rpcs_max=config.security.calls_max,
        connections_max=min(wanted, possible),
        connections_per_address_max=config.security.connections_per_address_max,
        streams_per_connection_max=config.security.streams_per_connection_max,
        calls_per_second_max=config.security.calls_per_second_max,
    )
