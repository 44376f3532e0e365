"""Who may call this node: the peer's identity, then the authoriser.

Owns the decisions of one node about its callers. Rules:

1. A certificate that names nodes (`node-N` among its DNS names) speaks for those only: a request
   that another replica or broker is said to have sent is refused. One that names none speaks for
   nobody where identity is required: where the settings say so, and, if they say nothing, where
   this node's own certificate names it. What comes without TLS has no identity to be checked.
2. Only controllers vote. With `quorate.controller.principals` the caller of Vote, BeginQuorumEpoch,
   EndQuorumEpoch and UpdateVoter, and of a Fetch in a voter's name, must be one of those, whatever
   the ACLs and super users say. Without it a certificate that names registered brokers only is
   refused there. Membership is not asked for more: the receiver's voters may be out of date
   (KIP-853), so a node that is neither known as a broker nor as a voter may vote.
3. With an authoriser, what `authorization` says a method needs must be allowed by the ACLs of the
   committed image. Until that is loaded only super users are served; others are told to ask
   elsewhere, since nothing was decided about them.
4. A refusal is logged once a caller and method in `LOG_INTERVAL_S`, and nothing is done.

Source: KIP-853 "Security considerations"; Kafka's ControllerApis; Kafka's StandardAuthorizer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from enum import StrEnum
from typing import Any

from quorate.metadata import requests as r
from quorate.metadata.authorizer import CLUSTER, AclAuthorizer, Operation, Resource
from quorate.metadata.changes import Changes
from quorate.metadata.image import MetadataImage
from quorate.raft.errors import ErrorCode
from quorate.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    UpdateVoterRequest,
    VoteRequest,
)
from quorate.rpc.convert_metadata import METHODS
from quorate.rpc.gate import Admission, Context, Refusal
from quorate.rpc.principals import Caller, PrincipalMapping, caller_of
from quorate.rpc.values import ChecksumLogRequest
from quorate.runtime.authorization import CLUSTER_OPERATIONS, PART_OPERATIONS, admit_parts
from quorate.runtime.metadata_loader import MetadataLoader
from quorate.telemetry.limited_log import LimitedLog

LOGGER = logging.getLogger(__name__)

LOG_INTERVAL_S = 60.0

RAFT_METHODS = frozenset(
    {
        "Vote",
        "BeginQuorumEpoch",
        "EndQuorumEpoch",
        "Fetch",
        "FetchSnapshot",
        "UpdateVoter",
        "ApiVersions",
        "ChecksumLog",
    }
)
CONTROLLER_METHODS = frozenset({"Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "UpdateVoter"})
"""What only controllers send."""
_METADATA_METHODS = frozenset(method.name for method in METHODS.values())


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

    names_itself: whether this node's own certificate names it. controllers: the principals of all
    controllers, empty for "not said". authorizer: None lets everybody do everything that identity
    allows.
    """

    def __init__(
        self,
        *,
        identity: PeerIdentity = PeerIdentity.AUTO,
        names_itself: bool = False,
        controllers: Collection[str] = (),
        authorizer: AclAuthorizer | None = None,
        mapping: PrincipalMapping | None = None,
    ) -> None:
        self._identity = identity
        self._is_required = identity is PeerIdentity.REQUIRED or (
            identity is PeerIdentity.AUTO and names_itself
        )
        self._controllers = frozenset(controllers)
        self._authorizer = authorizer
        self._mapping = mapping or PrincipalMapping()
        self._loader: MetadataLoader | None = None
        self._voters: Callable[[], Collection[int]] = tuple
        self._is_stale = True
        self._refused = LimitedLog(LOGGER, interval_s=LOG_INTERVAL_S)

    @property
    def is_open(self) -> bool:
        """Whether there is nothing to decide."""
        return (
            self._authorizer is None
            and self._identity is PeerIdentity.OFF
            and not self._controllers
        )

    def follow(self, loader: MetadataLoader, voters: Callable[[], Collection[int]] = tuple) -> None:
        """Decide by the ACLs and registrations of this image, once it holds what is committed.
        voters: the ids of the voters as this node knows them.
        """
        self._loader = loader
        self._voters = voters
        loader.add_listener(self._changed)

    def _changed(self, _image: MetadataImage, changes: Changes) -> None:
        self._is_stale = self._is_stale or changes.acls

    # --- the gate ---------------------------------------------------------------------------------

    def caller(self, context: Context) -> Caller:
        return caller_of(context.auth_context(), context.peer(), self._mapping)

    def refusal(self, caller: Caller, name: str, request: object) -> Refusal | None:
        refused = self._impostor(caller, name, request)
        if refused is None:
            refused = self._no_controller(caller, name, request)
        if refused is None and self._authorizer is not None:
            refused = self._unauthorized(self._authorizer, caller, name)
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
            if self._is_required:
                return Refusal(failed, f"the certificate names no node: {name} is for nodes only")
            return None
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

    def _unauthorized(self, authorizer: AclAuthorizer, caller: Caller, name: str) -> Refusal | None:
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
        if name in PART_OPERATIONS:
            return None
        operation = CLUSTER_OPERATIONS.get(name)
        if (
            operation is not None
            and principal is not None
            and authorizer.allows(principal, caller.host, operation, CLUSTER)
        ):
            return None
        needed = operation.name if operation is not None else "NOTHING THAT CAN BE GRANTED"
        return Refusal(
            failed, f"{principal or 'nobody'} may not {name}: it needs {needed} on the cluster"
        )

    def _is_loaded(self, authorizer: AclAuthorizer) -> bool:
        """Whether the authoriser decides by what is committed; brings it up to date."""
        if self._loader is None or not (authorizer.is_ready or self._loader.has_caught_up):
            return False
        if self._is_stale or not authorizer.is_ready:
            authorizer.load(self._loader.image)
            self._is_stale = False
        return True

    # --- rule 4 -----------------------------------------------------------------------------------

    def _log(self, caller: Caller, name: str, refused: Refusal) -> None:
        self._refused.warning(
            (caller.principal, caller.host, name),
            "%s from %s at %s is refused: %s",
            name,
            caller.principal,
            caller.host,
            refused.message or "the ACLs are not loaded yet",
        )
