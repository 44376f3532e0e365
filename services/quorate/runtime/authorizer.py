"""Who may call this node: the peer's identity, then the authorizer.

Owns the decisions of one node about its callers. Rules:

1. A certificate speaks for the nodes that it names (`node-N` among its DNS names) and for those
   that `quorate.controller.principals` gives its principal: a request that another replica or
   broker is said to have sent is refused, and every request of a node where there are none. What
   comes without TLS has no identity to be checked; it is refused only where identity is required.
2. Only controllers vote. With `quorate.controller.principals` the caller of Vote, BeginQuorumEpoch,
   EndQuorumEpoch, UpdateVoter and RegisterController, and of a Fetch in a voter's name, must be one
   of those, whatever the ACLs and super users say. Without it a certificate that names registered
   brokers only is refused there. Membership is not asked for more: the receiver's voters may be out
   of date (KIP-853), so a node that is neither known as a broker nor as a voter may vote.
3. With an authorizer, what `authorization` says a method needs must be allowed by the ACLs of the
   committed image. Until that is loaded only super users are served; others are told to ask
   elsewhere, since nothing was decided about them.
4. A node that waits to be formatted takes Format from `quorate.format.principals`, and from super
   users where there is an authorizer.
5. A refusal is logged once a caller and method in `LOG_INTERVAL_S`, and nothing is done.

Source: KIP-853 "Security considerations"; Kafka's ControllerApis; Kafka's StandardAuthorizer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from enum import StrEnum
from typing import Any

from quorate.metadata import requests as r
from quorate.metadata.authorizer import CLUSTER, AclAuthorizer, Operation, Resource
from quorate.metadata.image.delta import MetadataDelta
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.raft.errors import ErrorCode
from quorate.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    UpdateVoterRequest,
    VoteRequest,
)
from quorate.rpc.principals import Caller, PrincipalMapping, caller_of
from quorate.rpc.server.authorizer import Admission, Context, Refusal
from quorate.rpc.wire.methods import RAFT_SERVICE, RPC_METHODS, Callers
from quorate.rpc.wire.values import ChecksumLogRequest
from quorate.runtime.authorization import KAFKA_OPERATIONS, PART_OPERATIONS, admit_parts
from quorate.runtime.metadata_loader import MetadataLoader
from quorate.telemetry.limited_log import LimitedLog

LOGGER = logging.getLogger(__name__)

LOG_INTERVAL_S = 60.0

RAFT_METHODS = frozenset(rpc.name for rpc in RPC_METHODS.values() if rpc.service == RAFT_SERVICE)
CONTROLLER_METHODS = frozenset(
    rpc.name for rpc in RPC_METHODS.values() if rpc.callers is Callers.CONTROLLERS
)
"""What only controllers send."""
_METADATA_METHODS = KAFKA_OPERATIONS.keys() | {
    rpc.name for rpc in RPC_METHODS.values() if rpc.is_metadata
}


class PeerIdentity(StrEnum):
    """How much a peer's certificate must say (rule 1)."""

    AUTO = "auto"
    REQUIRED = "required"
    OFF = "off"


def sender_of(request: object) -> int | None:
    """The node that a request says it is from; None where it says nothing."""
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


class NodeGate:
    """Implements `rpc.gate.Gate`.

    controllers: the principals of all controllers, empty for "not said". nodes: (principal, node)
    for each node that a principal speaks for whatever its certificate names. formatters: the
    principals that may format this node. authorizer: None lets everybody do everything else that
    identity allows.
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
        """Decide by the ACLs and registrations of this image, once it holds what is committed.
        voters: the ids of the voters as this node knows them.
        """
        self._loader = loader
        self._voters = voters
        loader.add_listener(self._changed)

    def _changed(self, _image: MetadataImage, changes: MetadataDelta) -> None:
        self._is_stale = self._is_stale or changes.acls

    @property
    def authorizes(self) -> bool:
        """Whether the ACLs decide."""
        return self._authorizer is not None

    def is_authorized(self, caller: Caller, name: str) -> bool:
        """Whether the ACLs let the caller call a method of the whole cluster. Nothing is logged."""
        return (
            self._authorizer is None or self._unauthorized(self._authorizer, caller, name) is None
        )

    # --- the gate ---------------------------------------------------------------------------------

    def caller(self, context: Context) -> Caller:
        caller = caller_of(context.auth_context(), context.peer(), self._mapping)
        mapped = self._nodes.get(caller.principal or "")
        if mapped and caller.has_certificate:
            return replace(caller, nodes=caller.nodes | mapped)
        return caller

    def refusal(self, caller: Caller, name: str, request: object = None) -> Refusal | None:
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

    def admit(self, caller: Caller, name: str, request: Any) -> Refusal | Admission:
        refused = self.refusal(caller, name, request)
        if refused is not None:
            return refused
        if self._authorizer is None or name not in PART_OPERATIONS:
            return Admission(request)
        authorizer, principal = self._authorizer, caller.principal
        names = self._loader.image.topics.names if self._loader is not None else {}

        def allows(operation: Operation, resource: Resource) -> bool:
            return principal is not None and authorizer.allows(
                principal, caller.host, operation, resource
            )

        return admit_parts(name, request, allows, names)

    # --- rule 1 -----------------------------------------------------------------------------------

    def _impostor(self, caller: Caller, name: str, request: object) -> Refusal | None:
        if self._identity is PeerIdentity.OFF:
            return None
        failed = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if not caller.has_certificate:
            if self._identity is PeerIdentity.REQUIRED and name in RAFT_METHODS:
                return Refusal(failed, f"{name} needs a certificate that names its sender")
            return None
        sender = sender_of(request)
        if sender is None and name not in RAFT_METHODS:
            return None
        if not caller.nodes:
            node = "ID" if sender is None else sender
            text = (
                f"the certificate names no node, and {name} is for nodes: issue one with "
                f"node-{node} among its DNS names, add {node}@PRINCIPAL to "
                "quorate.controller.principals for a controller, or let every certificate speak "
                "for any node with quorate.peer.identity=off"
            )
            return Refusal(failed, text)
        if sender is not None and sender not in caller.nodes:
            named = ", ".join(f"node-{node}" for node in sorted(caller.nodes))
            return Refusal(failed, f"the certificate is of {named}, and the sender says {sender}")
        return None

    # --- rule 2 -----------------------------------------------------------------------------------

    def _no_controller(self, caller: Caller, name: str, request: object) -> Refusal | None:
        if not self._is_for_controllers(name, request):
            return None
        failed = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if self._controllers:
            if caller.principal in self._controllers:
                return None
            who = caller.principal or "the certificate's subject, which no rule maps,"
            text = f"{who} is not among quorate.controller.principals, and {name} is for them only"
            return Refusal(failed, text)
        if self._identity is PeerIdentity.OFF or not caller.nodes or self._loader is None:
            return None
        cluster = self._loader.image.cluster
        known = {*self._voters(), *cluster.controllers}
        if any(node in known or node not in cluster.brokers for node in caller.nodes):
            return None
        named = ", ".join(f"node-{node}" for node in sorted(caller.nodes))
        text = f"the certificate is of {named}, registered as a broker: {name} is for controllers"
        return Refusal(failed, text)

    def _is_for_controllers(self, name: str, request: object) -> bool:
        if name in CONTROLLER_METHODS:
            return True
        if not isinstance(request, FetchRequest | FetchSnapshotRequest):
            return False
        return request.replica.id in self._voters()

    # --- rule 3 -----------------------------------------------------------------------------------

    def _unauthorized(
        self, authorizer: AclAuthorizer, caller: Caller, name: str, request: object = None
    ) -> Refusal | None:
        principal = caller.principal
        if principal is not None and authorizer.is_super_user(principal):
            return None
        failed = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if not self._is_loaded(authorizer):
            if name not in RAFT_METHODS:
                is_metadata = name in _METADATA_METHODS
                failed = ErrorCode.NOT_LEADER_OR_FOLLOWER
                failed = ErrorCode.NOT_CONTROLLER if is_metadata else failed
            return Refusal(failed, "")
        rpc = RPC_METHODS.get(name)
        who = principal or "nobody"
        operation = KAFKA_OPERATIONS.get(name)
        if rpc is not None and rpc.is_about_cluster:
            operation = rpc.operation
        if operation is not None:
            if principal is not None and authorizer.allows(
                principal, caller.host, operation, CLUSTER
            ):
                return None
            text = f"{who} may not {name}: it needs {operation.name} on the cluster"
            return Refusal(failed, text)
        if rpc is None:
            return Refusal(failed, f"{who} may not {name}: only super users may")
        if request is not None or (
            principal is not None
            and authorizer.may_allow(principal, caller.host, rpc.operation, rpc.resources)
        ):
            return None
        kinds = " or ".join(f"a {kind.name.lower()}" for kind in rpc.resources)
        text = f"{who} may not {name}: it needs {rpc.operation.name} on {kinds}"
        return Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, text)

    def _is_loaded(self, authorizer: AclAuthorizer) -> bool:
        """Whether the authorizer decides by what is committed; brings it up to date."""
        if self._loader is None or not (authorizer.is_ready or self._loader.has_caught_up):
            return False
        if self._is_stale or not authorizer.is_ready:
            authorizer.load(self._loader.image)
            self._is_stale = False
        return True

    # --- rule 4 -----------------------------------------------------------------------------------

    def _may_not_format(self, caller: Caller) -> Refusal | None:
        principal = caller.principal
        if principal is not None and principal in self._formatters:
            return None
        authorizer = self._authorizer
        if authorizer is not None and principal is not None and authorizer.is_super_user(principal):
            return None
        text = f"{principal or 'nobody'} may not format this node: quorate.format.principals lists"
        return Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"{text} who may")

    # --- rule 5 -----------------------------------------------------------------------------------

    def _log(self, caller: Caller, name: str, refused: Refusal) -> None:
        self._refused.warning(
            (caller.principal, caller.host, name),
            "%s from %s at %s is refused: %s",
            name,
            caller.principal,
            caller.host,
            refused.message or "the ACLs are not loaded yet",
        )
