"""Authorizes the callers of a node: first by the peer's identity, then by the authorizer.

Rules:

1. A certificate identifies the nodes that it names (`node-N` among its DNS names) and those that
   `quorate.controller.principals` assigns to its principal. A request in the name of any other
   replica or broker is rejected; so is every request that only nodes send, if the certificate
   identifies none. A caller without a certificate has no identity to check. If
   identity is required, it is denied every method that only nodes call.
2. Only controllers vote. With `quorate.controller.principals`, the caller of Vote,
   BeginQuorumEpoch, EndQuorumEpoch, UpdateVoter and RegisterController, and of a Fetch in a voter's
   name, must be one of those principals, regardless of ACLs and super users. Without it, a
   certificate that names only registered brokers is rejected there. Membership is not required: the
   receiver's voter set may be out of date (KIP-853), so a node that is known neither as a broker
   nor as a voter may vote.
3. With an authorizer, the ACLs of the committed image must allow the operation that the method
   requires (`authorization`). Until the image is loaded only super users are served. Other callers
   get an error that makes them try another node, since nothing was decided about them.
4. A node that waits to be formatted accepts Format from `quorate.format.principals`, and from super
   users if there is an authorizer.
5. A rejected request has no effect. It is logged at most once per caller and method in
   `LOG_INTERVAL_S`.

Source: KIP-853 "Security considerations"; Kafka's ControllerApis; Kafka's StandardAuthorizer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from enum import StrEnum
from typing import Any

from quorate.common.error_codes import ErrorCode
from quorate.metadata import requests as r
from quorate.metadata.authorizer import CLUSTER, AclAuthorizer, Operation, Resource
from quorate.metadata.image.delta import MetadataDelta
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    UpdateVoterRequest,
    VoteRequest,
)
from quorate.rpc.principals import Caller, PrincipalMapping, caller_of
from quorate.rpc.server.authorizer import AuthorizationResult, Context, Denial
from quorate.rpc.wire.methods import RAFT_SERVICE, RPC_METHODS, Callers
from quorate.rpc.wire.values import ChecksumLogRequest
from quorate.runtime.authorization import KAFKA_OPERATIONS, PART_OPERATIONS, authorize_parts
from quorate.runtime.metadata_loader import MetadataLoader
from quorate.telemetry.limited_log import LimitedLog

LOGGER = logging.getLogger(__name__)

LOG_INTERVAL_S = 60.0

RAFT_METHODS = frozenset(rpc.name for rpc in RPC_METHODS.values() if rpc.service == RAFT_SERVICE)
NODE_METHODS = frozenset(
    rpc.name for rpc in RPC_METHODS.values() if rpc.callers is not Callers.ANYBODY
)
"""What only controllers and brokers send."""
CONTROLLER_METHODS = frozenset(
    rpc.name for rpc in RPC_METHODS.values() if rpc.callers is Callers.CONTROLLERS
)
"""The methods that only controllers may call."""
_METADATA_METHODS = KAFKA_OPERATIONS.keys() | {
    rpc.name for rpc in RPC_METHODS.values() if rpc.is_metadata
}


class PeerIdentity(StrEnum):
    """Whether a peer must prove by certificate which node it is (rule 1)."""

    AUTO = "auto"
    REQUIRED = "required"
    OFF = "off"

    @classmethod
    def configured(cls, setting: str, *, has_tls: bool) -> PeerIdentity:
        """The value of the setting; without TLS, there is nothing to check by default."""
        identity = cls(setting)
        return cls.OFF if identity is cls.AUTO and not has_tls else identity


def sender_of(request: object) -> int | None:
    """The id of the node that a request names as its sender; None if it names none."""
    match request:
        case VoteRequest():
            return request.candidate.id
        case BeginQuorumEpochRequest() | EndQuorumEpochRequest():
            return request.leader.id
        case FetchRequest() | FetchSnapshotRequest() | ChecksumLogRequest():
            return request.replica.id
        case UpdateVoterRequest():
            return request.voter.key.id
        case r.RegisterBroker() | r.BrokerHeartbeat() | r.AlterPartition():
            return request.broker_id
        case r.AllocateProducerIds() | r.AssignReplicasToDirs():
            return request.broker_id
        case r.RegisterController():
            return request.controller_id
    return None


class NodeAuthorizer:
    """Implements `rpc.server.authorizer.CallAuthorizer`.

    controllers: the principals of all controllers; empty if they are not configured. nodes:
    (principal, node id) for each node that a principal may act as, whatever its certificate names.
    formatters: the principals that may format this node. authorizer: None allows every caller
    everything that its identity permits.
    """

    def __init__(
        self,
        *,
        identity: PeerIdentity = PeerIdentity.AUTO,
        controllers: Collection[str] = (),
        nodes: Collection[tuple[str, int]] = (),
        formatters: Collection[str] = (),
        authorizer: AclAuthorizer | None = None,
        mapping: PrincipalMapping | None = None,
    ) -> None:
        self._identity = identity
        self._controllers = frozenset(controllers)
        self._nodes: dict[str, frozenset[int]] = {}
        for principal, node in nodes:
            self._nodes[principal] = self._nodes.get(principal, frozenset()) | {node}
        self._formatters = frozenset(formatters)
        self._authorizer = authorizer
        self._mapping = mapping or PrincipalMapping()
        self._loader: MetadataLoader | None = None
        self._voters: Callable[[], Collection[int]] = tuple
        self._is_stale = True
        self._refused = LimitedLog(LOGGER, interval_s=LOG_INTERVAL_S)

    def follow(self, loader: MetadataLoader, voters: Callable[[], Collection[int]] = tuple) -> None:
        """Use the ACLs and registrations of this loader's image once it has caught up.

        voters: returns the ids of the voters that this node knows.
        """
        self._loader = loader
        self._voters = voters
        loader.add_listener(self._changed)

    def _changed(self, _image: MetadataImage, changes: MetadataDelta) -> None:
        self._is_stale = self._is_stale or changes.acls

    @property
    def authorizes(self) -> bool:
        """Whether there is an authorizer."""
        return self._authorizer is not None

    def is_authorized(self, caller: Caller, name: str) -> bool:
        """Whether the ACLs allow the caller a method that is about the cluster. Logs nothing."""
        return (
            self._authorizer is None or self._unauthorized(self._authorizer, caller, name) is None
        )

    def allows(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        """Whether the ACLs allow the caller an operation on a resource. Logs nothing."""
        authorizer = self._authorizer
        if authorizer is None:
            return True
        return (
            self._is_loaded(authorizer)
            and caller.principal is not None
            and authorizer.allows(caller.principal, caller.host, operation, resource)
        )

    # --- the authorizer
    # ---------------------------------------------------------------------------------

    def caller(self, context: Context) -> Caller:
        caller = caller_of(context.auth_context(), context.peer(), self._mapping)
        mapped = self._nodes.get(caller.principal or "")
        if mapped and caller.has_certificate:
            return replace(caller, nodes=caller.nodes | mapped)
        return caller

    def refusal(self, caller: Caller, name: str, request: object = None) -> Denial | None:
        if name == "Format":
            refused = self._may_not_format(caller)
            if refused is not None:
                self._log(caller, name, refused)
            return refused
        refused = self._impostor(caller, name, request)
        if refused is None:
            refused = self._no_controller(caller, name, request)
        if refused is None and self._authorizer is not None:
            refused = self._unauthorized(self._authorizer, caller, name, request)
        if refused is not None:
            self._log(caller, name, refused)
        return refused

    def authorize(self, caller: Caller, name: str, request: Any) -> Denial | AuthorizationResult:
        refused = self.refusal(caller, name, request)
        if refused is not None:
            return refused
        if self._authorizer is None or name not in PART_OPERATIONS:
            return AuthorizationResult(request)
        authorizer, principal = self._authorizer, caller.principal
        names = self._loader.image.topics.names if self._loader is not None else {}

        def allows(operation: Operation, resource: Resource) -> bool:
            return principal is not None and authorizer.allows(
                principal, caller.host, operation, resource
            )

        return authorize_parts(name, request, allows, names)

    # --- rule 1 -----------------------------------------------------------------------------------

    def _impostor(self, caller: Caller, name: str, request: object) -> Denial | None:
        if self._identity is PeerIdentity.OFF:
            return None
        failed = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if not caller.has_certificate:
            if self._identity is PeerIdentity.REQUIRED and name in NODE_METHODS:
                return Denial(failed, f"{name} requires a certificate that names the sending node")
            return None
        sender = sender_of(request)
        if sender is None and name not in RAFT_METHODS:
            return None
        if not caller.nodes:
            node = "ID" if sender is None else sender
            text = (
                f"the certificate names no node, but only nodes may call {name}: issue one with "
                f"node-{node} among its DNS names, add {node}@PRINCIPAL to "
                "quorate.controller.principals for a controller, or let every certificate speak "
                "for any node with quorate.peer.identity=off"
            )
            return Denial(failed, text)
        if sender is not None and sender not in caller.nodes:
            named = ", ".join(f"node-{node}" for node in sorted(caller.nodes))
            return Denial(
                failed, f"the certificate names {named}, but the request is from node {sender}"
            )
        return None

    # --- rule 2 -----------------------------------------------------------------------------------

    def _no_controller(self, caller: Caller, name: str, request: object) -> Denial | None:
        if not self._is_for_controllers(name, request):
            return None
        failed = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if self._controllers:
            if caller.principal in self._controllers:
                return None
            who = caller.principal or "the certificate's subject, which no rule maps,"
            text = f"{who} is not in quorate.controller.principals, and only those may call {name}"
            return Denial(failed, text)
        if self._identity is PeerIdentity.OFF or not caller.nodes or self._loader is None:
            return None
        cluster = self._loader.image.cluster
        known = {*self._voters(), *cluster.controllers}
        if any(node in known or node not in cluster.brokers for node in caller.nodes):
            return None
        named = ", ".join(f"node-{node}" for node in sorted(caller.nodes))
        text = (
            f"the certificate names {named}, a registered broker: only controllers may call {name}"
        )
        return Denial(failed, text)

    def _is_for_controllers(self, name: str, request: object) -> bool:
        if name in CONTROLLER_METHODS:
            return True
        if not isinstance(request, FetchRequest | FetchSnapshotRequest):
            return False
        return request.replica.id in self._voters()

    # --- rule 3 -----------------------------------------------------------------------------------

    def _unauthorized(
        self, authorizer: AclAuthorizer, caller: Caller, name: str, request: object = None
    ) -> Denial | None:
        principal = caller.principal
        if principal is not None and authorizer.is_super_user(principal):
            return None
        failed = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if not self._is_loaded(authorizer):
            if name not in RAFT_METHODS:
                is_metadata = name in _METADATA_METHODS
                failed = ErrorCode.NOT_LEADER_OR_FOLLOWER
                failed = ErrorCode.NOT_CONTROLLER if is_metadata else failed
            return Denial(failed, "")
        rpc = RPC_METHODS.get(name)
        who = principal or "a caller without a principal"
        operation = KAFKA_OPERATIONS.get(name)
        sufficient = [operation]
        if rpc is not None and rpc.is_about_cluster:
            operation = rpc.operation
            sufficient = [operation, rpc.or_operation]
        if operation is not None:
            if principal is not None and any(
                authorizer.allows(principal, caller.host, each, CLUSTER)
                for each in sufficient
                if each is not None
            ):
                return None
            text = f"{who} may not call {name}: it requires {operation.name} on the cluster"
            return Denial(failed, text)
        if rpc is None:
            return Denial(failed, f"{who} may not call {name}: only super users may")
        if request is not None or (
            principal is not None
            and authorizer.may_allow(principal, caller.host, rpc.operation, rpc.resources)
        ):
            return None
        kinds = " or ".join(f"a {kind.name.lower()}" for kind in rpc.resources)
        text = f"{who} may not call {name}: it requires {rpc.operation.name} on {kinds}"
        return Denial(ErrorCode.TOPIC_AUTHORIZATION_FAILED, text)

    def _is_loaded(self, authorizer: AclAuthorizer) -> bool:
        """Bring the authorizer up to date; returns whether it has the committed ACLs."""
        if self._loader is None or not (authorizer.is_ready or self._loader.has_caught_up):
            return False
        if self._is_stale or not authorizer.is_ready:
            authorizer.load(self._loader.image)
            self._is_stale = False
        return True

    # --- rule 4 -----------------------------------------------------------------------------------

    def _may_not_format(self, caller: Caller) -> Denial | None:
        principal = caller.principal
        if principal is not None and principal in self._formatters:
            return None
        authorizer = self._authorizer
        if authorizer is not None and principal is not None and authorizer.is_super_user(principal):
            return None
        who = principal or "a caller without a principal"
        text = f"{who} may not format this node: it is not in quorate.format.principals"
        return Denial(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, text)

    # --- rule 5 -----------------------------------------------------------------------------------

    def _log(self, caller: Caller, name: str, refused: Denial) -> None:
        self._refused.warning(
            (caller.principal, caller.host, name),
            "rejected %s from %s at %s: %s",
            name,
            caller.principal,
            caller.host,
            refused.message or "the ACLs are not loaded yet",
        )
