"""Requests that the metadata controller does not answer alone: those of the quorum, and reads.

Rules:
1. AddRaftVoter and RemoveRaftVoter go to the raft node, with the limits and the authorization of
   AddVoter and RemoveVoter. If the controllers talk to each other over gRPC, a replica that
   fetches over this listener is not added: it runs Kafka, and voters answer gRPC.
2. kraft.version belongs to the quorum. An update to its finalized level changes nothing; an update
   to another level is made by the quorum itself, after the other features were validated and before
   they are updated. The two steps are not atomic: if the second one fails, the first one stays.
3. Every controller describes the controllers, and describes configurations, credentials and ACLs:
   the leader after a majority has confirmed its leadership, any other node from its own committed
   image.

Source: KIP-853, KIP-919; Kafka's ControllerApis, FeatureControlManager and KafkaRaftClient.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from quorate.bridge.requests import cluster, descriptions
from quorate.bridge.requests.replication import bridge_endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.features import KRAFT_VERSION, METADATA_VERSION
from quorate.metadata import requests as r
from quorate.metadata.authorizer import CLUSTER, Operation
from quorate.metadata.describe import describe_features
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.metadata.metadata_version import (
    APPLICATION_VERSION,
    CONTROLLER_REGISTRATION,
    SUPPORTED,
)
from quorate.raft.messages import (
    AddVoterRequest,
    AdminRequest,
    AdminResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RemoveVoterRequest,
    UpdateKRaftVersionRequest,
)
from quorate.raft.types import SUPPORTED_KRAFT_VERSION, ReplicaKey
from quorate.rpc.principals import Caller
from quorate.rpc.server.authorizer import AuthorizationResult, Denial
from quorate.rpc.wire.convert_metadata import MetadataAnswer
from quorate.runtime.authorizer import NodeAuthorizer
from quorate.runtime.driver import RaftDriver

DIRECT = "Direct-to-controller communication is not supported with the current MetadataVersion."

Handle = Callable[[Any, int], Awaitable[MetadataAnswer]]
Describe = Callable[[r.Read], Any]
"""The response to a read from the node's own committed image."""


class QuorumRequests:
    """Answers requests about the quorum.

    node_id, cluster_id: this controller's. listener: the name of the controllers' endpoints for
    Kafka's nodes. serves_voters: whether controllers talk to each other there. kafka_replicas:
    returns the replicas that fetch over that listener. image: returns the committed image.
    """

    def __init__(
        self,
        raft: RaftDriver,
        handle: Handle,
        describe: Describe,
        authorizer: NodeAuthorizer | None,
        *,
        node_id: int,
        cluster_id: str,
        listener: str,
        serves_voters: bool,
        kafka_replicas: Callable[[], Iterable[ReplicaKey]],
        image: Callable[[], MetadataImage],
    ) -> None:
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._listener = listener
        self._raft = raft
        self._handle = handle
        self._describe = describe
        self._authorizer = authorizer
        self._serves_voters = serves_voters
        self._kafka_replicas = kafka_replicas
        self._image = image

    def answers(self, request: Any) -> bool:
        """Whether `ask` answers requests of this kind."""
        return type(request) in QUORUM_METHODS

    async def ask(self, request: Any, timeout_ms: int, caller: Caller) -> MetadataAnswer:
        """Authorize and answer a request."""
        name = QUORUM_METHODS[type(request)]
        leader = self._raft.node.current_leader
        authorized: Denial | AuthorizationResult = AuthorizationResult(request)
        if self._authorizer is not None:
            wanted = request
            if isinstance(request, descriptions.DescribeResources):
                wanted = request.read(self._node_id)
            authorized = self._authorizer.authorize(caller, name, wanted)
        if isinstance(authorized, Denial):
            return MetadataAnswer(authorized.error, leader, message=authorized.message)
        match request:
            case DescribeQuorumRequest() | RemoveVoterRequest():
                return await self._raft_answer(request)
            case AddVoterRequest():
                return await self._add_voter(request)
            case r.UpdateFeatures():
                return await self._update_features(request, timeout_ms)
            case cluster.DescribeControllers():
                return self._described(request, caller)
            case descriptions.DescribeResources():
                return await self._describe_resources(request, timeout_ms, authorized)
        return await self._read(request, timeout_ms)

    async def _raft_answer(self, request: AdminRequest) -> MetadataAnswer:
        """The response of the raft node; NOT_CONTROLLER if it does not lead."""
        response, _ = await self._raft.ask(request)
        assert isinstance(response, AdminResponse | DescribeQuorumResponse), type(response)
        leader = self._raft.node.current_leader
        if response.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return MetadataAnswer(ErrorCode.NOT_CONTROLLER, leader)
        return MetadataAnswer(ErrorCode.NONE, leader, response)

    # --- rule 1 -----------------------------------------------------------------------------------

    async def _add_voter(self, request: AddVoterRequest) -> MetadataAnswer:
        if self._serves_voters or request.voter not in self._kafka_replicas():
            return await self._raft_answer(request)
        leader = self._raft.node.current_leader
        where = ", ".join(f"{e.name}://{e.host}:{e.port}" for e in request.endpoints[:1])
        text = (
            f"{request.voter} runs Kafka, and voters answer gRPC on their first endpoint "
            f"({where}) unless quorate.peer.protocol=kafka on all controllers. Kafka's controller "
            "remains an observer. To add a voter, start `quorate controller` on an empty directory "
            "and add that one"
        )
        return MetadataAnswer(
            ErrorCode.NONE, leader, AdminResponse(ErrorCode.INVALID_REQUEST, leader, text)
        )

    # --- rule 2 -----------------------------------------------------------------------------------

    async def _update_features(self, request: r.UpdateFeatures, timeout_ms: int) -> MetadataAnswer:
        """Of several updates of a feature the last is made, as by Kafka's controllers."""
        names = tuple(update.name for update in request.updates)
        updates = {update.name: update for update in request.updates}
        own = updates.pop(KRAFT_VERSION, None)
        rest = replace(request, updates=tuple(updates.values()))
        node = self._raft.node
        finalized, _ = node.membership_at(node.high_watermark)
        changes = own is not None and own.level != finalized
        answer = await self._handle(
            replace(rest, validate_only=rest.validate_only or changes), timeout_ms
        )
        if own is not None and changes and not _has_failed(answer):
            answer = await self._update_kraft_version(own, request.validate_only, timeout_ms)
            if not _has_failed(answer) and not request.validate_only:
                answer = await self._handle(rest, timeout_ms)
        if answer.error is not ErrorCode.NONE:
            return answer
        return self._features_refused(names, answer.response.error, answer.response.message)

    def _features_refused(
        self, names: tuple[str, ...], error: ErrorCode, text: str
    ) -> MetadataAnswer:
        """The response for these features, with the error of one of them, if any."""
        if error is not ErrorCode.NONE:
            text = (
                "The update failed for all features since the following feature had an error: "
                f"{text}"
            )
        response = cluster.FeaturesUpdate(names=names, error=error, message=text)
        return MetadataAnswer(ErrorCode.NONE, self._raft.node.current_leader, response)

    async def _update_kraft_version(
        self, update: r.FeatureUpdate, validate_only: bool, timeout_ms: int
    ) -> MetadataAnswer:
        level = self._raft.node.kraft_version
        refused = ""
        if update.level not in SUPPORTED_KRAFT_VERSION:
            refused = (
                f"Local controller {self._node_id} only supports versions {SUPPORTED_KRAFT_VERSION}"
            )
        elif update.level < level:
            refused = "Can't downgrade the version of this feature."
        elif update.level > level and update.upgrade_type != cluster.UPGRADE:
            refused = "Can't downgrade to a newer version."
        if refused:
            text = f"Invalid update version {update.level} for feature {update.name}. {refused}"
            response = AdminResponse(
                ErrorCode.INVALID_UPDATE_VERSION, self._raft.node.current_leader, text
            )
            return MetadataAnswer(ErrorCode.NONE, response.leader, response)
        return await self._raft_answer(
            UpdateKRaftVersionRequest("", update.level, validate_only, timeout_ms)
        )

    # --- rule 3 -----------------------------------------------------------------------------------

    def features(self) -> tuple[tuple[r.FeatureDescription, ...], int]:
        """The features as ApiVersions lists them, and the epoch of the finalized levels.

        Every new connection asks for them, so the cost must not grow with the cluster.
        """
        node = self._raft.node
        level, _ = node.membership_at(node.high_watermark)
        kraft = r.FeatureDescription(KRAFT_VERSION, SUPPORTED_KRAFT_VERSION, level)
        image = self._image()
        described = describe_features(image, SUPPORTED)
        kafkas = (each for each in described if each.name != APPLICATION_VERSION)
        return (kraft, *kafkas), image.offset

    def _described(self, request: cluster.DescribeControllers, caller: Caller) -> MetadataAnswer:
        leader = self._raft.node.current_leader
        refused = request.refusal
        described = self._describe(r.DescribeCluster())
        level = next(
            (f.finalized_level for f in described.features if f.name == METADATA_VERSION), 0
        )
        if 0 < level < CONTROLLER_REGISTRATION:
            refused = (int(ErrorCode.UNSUPPORTED_VERSION), DIRECT)
        if refused is not None:
            return MetadataAnswer(
                ErrorCode.NONE, leader, cluster.ControllersDescription(*refused, self._cluster_id)
            )
        # Without a metadata.version, no controller is registered.
        found = {voter.id: tuple(voter.endpoints) for voter in self._raft.node.voters}
        found |= {each.id: each.endpoints for each in described.controllers}
        controllers = (
            (node_id, bridge_endpoint(endpoints, self._listener))
            for node_id, endpoints in sorted(found.items())
        )
        response = cluster.ControllersDescription(
            0,
            "",
            self._cluster_id,
            -1 if leader.id is None else leader.id,
            tuple((node_id, endpoint) for node_id, endpoint in controllers if endpoint is not None),
            self._operations(caller) if request.with_operations else None,
        )
        return MetadataAnswer(ErrorCode.NONE, leader, response)

    def _operations(self, caller: Caller) -> tuple[Operation, ...]:
        """The operations on the cluster that the caller is allowed."""
        if self._authorizer is None:
            return CLUSTER_OPERATIONS
        return tuple(
            operation
            for operation in CLUSTER_OPERATIONS
            if self._authorizer.allows(caller, operation, CLUSTER)
        )

    async def _describe_resources(
        self,
        request: descriptions.DescribeResources,
        timeout_ms: int,
        authorized: AuthorizationResult,
    ) -> MetadataAnswer:
        read = request.read(self._node_id)
        answer = await self._read(read, timeout_ms)
        if answer.error is not ErrorCode.NONE:
            return answer
        defaults = answer.response.resources[-1].configs
        visible = authorized.finish(answer.response)
        return replace(
            answer,
            response=descriptions.description_of(
                request,
                self._node_id,
                {each.resource: each for each in visible.resources},
                defaults,
            ),
        )

    async def _read(self, read: r.Read, timeout_ms: int) -> MetadataAnswer:
        answer = await self._handle(read, timeout_ms)
        if answer.error is ErrorCode.NOT_CONTROLLER and not answer.message:
            return MetadataAnswer(ErrorCode.NONE, answer.leader, self._describe(read))
        return answer


def _has_failed(answer: MetadataAnswer) -> bool:
    return answer.error is not ErrorCode.NONE or answer.response.error is not ErrorCode.NONE


CLUSTER_OPERATIONS: Final = (
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)
"""The operations that Kafka authorizes on the cluster."""

QUORUM_METHODS: Final[dict[type, str]] = {
    DescribeQuorumRequest: "DescribeQuorum",
    AddVoterRequest: "AddVoter",
    RemoveVoterRequest: "RemoveVoter",
    r.UpdateFeatures: "UpdateClusterFeatures",
    cluster.DescribeControllers: "DescribeControllers",
    descriptions.DescribeResources: "DescribeConfigs",
    r.DescribeAcls: "DescribeAcls",
    r.DescribeUserScramCredentials: "DescribeUserScramCredentials",
}
"""The requests that are answered here, and the method by which they are authorized."""
