"""Who may call a controller, and how much, as its settings say.

Where nothing is to be decided there is no gate at all: no listener is encrypted, so that no peer
has an identity, and no authoriser is configured.
"""

from __future__ import annotations

import logging
import resource

from quorate.controller.config import ControllerConfig
from quorate.controller.settings import CONTROLLER_PRINCIPALS
from quorate.metadata.authorizer import AclAuthorizer
from quorate.rpc.limits import ServerLimits
from quorate.rpc.principals import nodes_of
from quorate.rpc.tls import dns_names
from quorate.runtime.gate import NodeGate, PeerIdentity

LOGGER = logging.getLogger(__name__)

OTHER_FILES = 256
"""Open files that are kept for what is no connection of a client: the log, peers, the process."""


def node_gate(config: ControllerConfig) -> NodeGate | None:
    """TlsError where the certificate cannot be read."""
    security = config.security
    identity = PeerIdentity(security.peer_identity)
    if config.tls is None and identity is PeerIdentity.AUTO:
        identity = PeerIdentity.OFF
    controllers = security.controller_principals
    if identity is PeerIdentity.OFF and not security.authorizer and not controllers:
        return None
    names = () if config.tls is None else dns_names(config.tls.certificate)
    names_itself = config.node_id in nodes_of(names)
    if not controllers and identity is PeerIdentity.AUTO and not names_itself:
        LOGGER.warning(
            "every certificate of ssl.ca.location may vote in any controller's name: set "
            "%s, or give each node a certificate with node-ID among its DNS names",
            CONTROLLER_PRINCIPALS,
        )
    authorizer = None
    if security.authorizer:
        authorizer = AclAuthorizer(
            security.super_users, allow_if_no_acl_found=security.allow_if_no_acl_found
        )
    return NodeGate(
        identity=identity,
        names_itself=names_itself,
        controllers=controllers,
        authorizer=authorizer,
        mapping=security.principal_mapping,
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
        streams_per_connection_max=config.security.streams_per_connection_max,
        calls_per_second_max=config.security.calls_per_second_max,
    )
