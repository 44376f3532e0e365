"""The authorizer of a broker: a controller's rules, and rules for topic records.

Rules:
1. `runtime.authorizer` authorizes calls of the Raft, Quorum and Metadata services, with the ACLs of
   the broker's own metadata image.
2. A Fetch in the name of a follower acknowledges records. It is authorized like a replica's Fetch
   of the metadata log: over TLS the certificate must name that follower, and with an authorizer it
   needs CLUSTER_ACTION. Topic ACLs do not apply to it.
3. With an authorizer, every other request for a topic needs the operation that
   `methods.PARTITION_METHODS` lists, on that topic. A caller whose ACLs allow it on no topic is
   rejected before its request is decoded.
4. The metadata log contains credentials. Without an authorizer, only callers whose certificate
   names a node may read it (`Read`).

Source: Kafka's KafkaApis; the table of KIP-11.
"""

from __future__ import annotations

import logging

from quorate.broker.config import BrokerConfig
from quorate.common.error_codes import ErrorCode
from quorate.metadata.authorizer import AclAuthorizer, Operation, Resource, ResourceType
from quorate.raft.messages import FetchRequest
from quorate.raft.types import ReplicaKey
from quorate.rpc.errors import TlsError
from quorate.rpc.principals import Caller, nodes_of
from quorate.rpc.server.authorizer import Denial
from quorate.rpc.tls import dns_names
from quorate.rpc.wire.methods import PARTITION_METHODS, RpcMethod
from quorate.runtime.authorizer import NodeAuthorizer, PeerIdentity

LOGGER = logging.getLogger(__name__)

_READ_LOG = "Read"
_FETCH = PARTITION_METHODS["Fetch"]


class BrokerAuthorizer(NodeAuthorizer):
    """Implements `rpc.server.authorizer.CallAuthorizer` and
    `rpc.server.authorizer.PartitionAuthorizer`.
    """

    def refusal(self, caller: Caller, name: str, request: object = None) -> Denial | None:
        """Authorize a call by rules 1 and 4."""
        refused = super().refusal(caller, name, request)
        if refused is not None or name != _READ_LOG or self.authorizes or caller.nodes:
            return refused
        text = (
            "no certificate identifies the caller as a node, and this broker has no authorizer "
            "to decide who may read credentials: ask a controller, or set authorizer.class.name "
            "on this broker"
        )
        refused = Denial(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, text)
        self._log(caller, name, refused)
        return refused

    def partition_refusal(self, caller: Caller, rpc: RpcMethod) -> Denial | None:
        """Apply rule 3 before the request is decoded. A Fetch may also come from a follower."""
        refused = self._no_topic(caller, rpc)
        if refused is not None and rpc is _FETCH and self.is_authorized(caller, rpc.name):
            return None
        if refused is not None:
            self._log(caller, rpc.name, refused)
        return refused

    def follower_refusal(self, caller: Caller, node: int) -> Denial | None:
        """Authorize a follower's Fetch by rule 2."""
        return self.refusal(caller, "Fetch", FetchRequest("", ReplicaKey(node), 0, 0, 0))

    def refused_topic(self, caller: Caller, operation: Operation, topic_id: str) -> ErrorCode:
        """Authorize an operation on a topic by rule 3."""
        if self._authorizer is None or self._is_super_user(self._authorizer, caller):
            return ErrorCode.NONE
        name = None if self._loader is None else self._loader.image.topics.names.get(topic_id)
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if self._may(self._authorizer, caller, operation, name):
            return ErrorCode.NONE
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def may_describe(self, caller: Caller, topic: str) -> bool:
        return self._authorizer is None or self._may(
            self._authorizer, caller, Operation.DESCRIBE, topic
        )

    def _no_topic(self, caller: Caller, rpc: RpcMethod) -> Denial | None:
        authorizer, principal = self._authorizer, caller.principal
        if authorizer is None or self._is_super_user(authorizer, caller):
            return None
        if not self._is_loaded(authorizer):
            return Denial(ErrorCode.LEADER_NOT_AVAILABLE, "the ACLs are not loaded yet")
        if principal is not None and authorizer.may_allow(
            principal, caller.host, rpc.operation, rpc.resources
        ):
            return None
        text = (
            f"{principal or 'nobody'} may not {rpc.name}: it needs {rpc.operation.name} on a topic"
        )
        return Denial(ErrorCode.TOPIC_AUTHORIZATION_FAILED, text)

    def _may(
        self, authorizer: AclAuthorizer, caller: Caller, operation: Operation, topic: str
    ) -> bool:
        principal = caller.principal
        if principal is None or not (
            authorizer.is_super_user(principal) or self._is_loaded(authorizer)
        ):
            return False
        resource = Resource(ResourceType.TOPIC, topic)
        return authorizer.allows(principal, caller.host, operation, resource)

    @staticmethod
    def _is_super_user(authorizer: AclAuthorizer, caller: Caller) -> bool:
        return caller.principal is not None and authorizer.is_super_user(caller.principal)


def broker_authorizer(config: BrokerConfig) -> BrokerAuthorizer | None:
    """Create the configured authorizer; None if everything is allowed.

    TlsError if this broker's certificate cannot be read or does not name this broker.
    """
    security = config.security
    identity = PeerIdentity.configured(security.peer_identity, has_tls=config.tls is not None)
    if config.tls is not None and identity is not PeerIdentity.OFF:
        _check_own_name(config)
    if identity is PeerIdentity.OFF and not security.authorizer:
        return None
    authorizer = None
    if security.authorizer:
        authorizer = AclAuthorizer(
            security.super_users, allow_if_no_acl_found=security.allow_if_no_acl_found
        )
    elif config.tls is not None:
        LOGGER.warning(
            "authorizer.class.name is not set: everyone with a certificate issued by "
            "ssl.ca.location may write and read every topic, and make all metadata changes that "
            "the controllers allow this broker"
        )
    return BrokerAuthorizer(
        identity=identity, authorizer=authorizer, mapping=security.principal_mapping
    )


def _check_own_name(config: BrokerConfig) -> None:
    """Raise TlsError if other brokers would reject this broker's fetches."""
    assert config.tls is not None
    certificate = config.tls.certificate
    assert certificate is not None, "the settings require it"
    if config.node_id in nodes_of(dns_names(certificate)):
        return
    raise TlsError(
        f"{certificate} does not name node {config.node_id}, so controllers and brokers would "
        f"reject it: issue one with node-{config.node_id} among its DNS names, or allow every "
        "certificate to act as any node with quorate.peer.identity=off"
    )
