"""The gRPC handler of a controller whose leader may speak Kafka's protocol only.

While such a leader leads, requests are handled as follows; otherwise as by any controller.

| requests | handled |
|---|---|
| DescribeQuorum, AddVoter, RemoveVoter, UpdateFeatures, changes of the metadata | by the leader |
| Read, and reads of the metadata | here, up to what the leader confirms (`LeaderRequests`) |
| DescribeFeatures, NodeStatus, Format, and all of service Raft | here, as on any follower |
| TransferLeadership, Append, AppendStream, OpenProducer | rejected: Kafka's protocol lacks them |
| what brokers of Quorate and controllers send in their own name | NOT_CONTROLLER: they wait |

A response names the leader without its endpoints: a client that cannot use them stays here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from quorate.bridge.messages import leader_messages as lm
from quorate.bridge.peers.leader_requests import KafkaLeader, LeaderRequests
from quorate.common.error_codes import ErrorCode
from quorate.metadata import requests as r
from quorate.metadata.managers.controller_context import RefusedError
from quorate.raft import messages as m
from quorate.records.batch import BatchProducer
from quorate.rpc.principals import Caller, PrincipalMapping, caller_of
from quorate.rpc.server.authorizer import Context
from quorate.rpc.wire.convert_metadata import MetadataAnswer
from quorate.rpc.wire.values import (
    NO_CONDITIONS,
    AppendOutcome,
    LogOffsets,
    OpaqueRecord,
    OpenProducerRequest,
    OpenProducerResponse,
    UpdateFeaturesRequest,
)
from quorate.runtime.metadata_service import NO_APPLICATIONS
from quorate.runtime.service import NodeService

NO_TRANSFER: Final = (
    "{} cannot transfer leadership: Kafka's protocol has no such request. To move it, stop that "
    "controller"
)
NO_APPEND: Final = (
    "{} accepts no records from clients: Kafka's protocol has no such request. Append them while "
    "a controller of Quorate leads"
)


class KafkaLedService(NodeService):
    """The service of a controller whose leader may be Kafka's.

    forwarding: the requests to the leader. mapping: names callers by their certificates. The
    others: see `NodeService`.
    """

    def __init__(
        self, *args: Any, forwarding: LeaderRequests, mapping: PrincipalMapping, **named: Any
    ) -> None:
        super().__init__(*args, **named)
        self._forwarding = forwarding
        self._mapping = mapping

    def for_call(self, context: Context) -> _CallHandler:
        """The handler of one call, in its caller's name (`rpc.server.handler.CallingHandler`)."""
        return _CallHandler(self, context)

    @property
    def current_leader(self) -> m.CurrentLeader:
        leader = self._forwarding.leader()
        return super().current_leader if leader is None else leader.current

    def caller(self, context: Context) -> Caller:
        return caller_of(context.auth_context(), context.peer(), self._mapping)

    # --- the quorum -------------------------------------------------------------------------------

    async def handle_for(self, request: Any, context: Context) -> Any:
        """The response to a request of Raft or Quorum in the name of a caller."""
        leader = self._forwarding.leader()
        if leader is None:
            return await self.handle(request)
        match request:
            case m.DescribeQuorumRequest():
                return await self._describe(leader, request, context)
            case m.TransferLeadershipRequest():
                text = NO_TRANSFER.format(leader)
                return m.AdminResponse(ErrorCode.UNSUPPORTED_VERSION, leader.current, text)
            case OpenProducerRequest():
                text = NO_APPEND.format(leader)
                return OpenProducerResponse(ErrorCode.UNSUPPORTED_VERSION, leader.current, text)
            case m.AddVoterRequest() | m.RemoveVoterRequest() | UpdateFeaturesRequest():
                return await self._change(leader, request, context)
        return await self.handle(request)

    async def _describe(
        self, leader: KafkaLeader, request: m.DescribeQuorumRequest, context: Context
    ) -> m.DescribeQuorumResponse:
        """The leader's view; if it does not answer, this controller's own, which says so."""
        own = await self.handle(request)
        assert isinstance(own, m.DescribeQuorumResponse), type(own)
        if own.error is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return own
        own = replace(own, leader=replace(own.leader, endpoints=()))
        try:
            view = await self._forwarding.forward(
                leader, request, DESCRIBE_TIMEOUT_MS, self.caller(context)
            )
        except RefusedError as failed:
            if failed.error in _UNANSWERED:
                return own
            return replace(own, error=failed.error, message=failed.message)
        if view.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return own
        if view.error is not ErrorCode.NONE:
            return replace(own, error=view.error, message=view.message)
        described: m.DescribeQuorumResponse = lm.completed(view, own)
        return described

    async def _change(
        self,
        leader: KafkaLeader,
        request: m.AddVoterRequest | m.RemoveVoterRequest | UpdateFeaturesRequest,
        context: Context,
    ) -> m.AdminResponse:
        cluster_id = self._driver.node.core.config.cluster_id
        if request.cluster_id not in ("", cluster_id):
            return m.AdminResponse(ErrorCode.INCONSISTENT_CLUSTER_ID, leader.current)
        wanted: Any
        if isinstance(request, UpdateFeaturesRequest):
            update = r.FeatureUpdate(request.feature, request.level, int(request.upgrade_type))
            wanted = r.UpdateFeatures((update,), request.validate_only)
        else:
            # Kafka takes an empty id for that of another cluster.
            wanted = replace(request, cluster_id=cluster_id)
        try:
            response = await self._forwarding.forward(
                leader, wanted, request.timeout_ms, self.caller(context)
            )
        except RefusedError as failed:
            error = failed.error
            if error is ErrorCode.NOT_CONTROLLER:
                error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return m.AdminResponse(error, leader.current, failed.message)
        return m.AdminResponse(response.error, leader.current, response.message)

    # --- the cluster's metadata -------------------------------------------------------------------

    async def metadata_for(self, request: Any, timeout_ms: int, context: Context) -> MetadataAnswer:
        """The response to a metadata request in the name of a caller."""
        leader = self._forwarding.leader()
        if leader is None or self._refuses(request):
            return await self.metadata(request, timeout_ms)
        if isinstance(request, r.Read):
            return await self._read_metadata(request, timeout_ms)
        if type(request) not in lm.CONVERSIONS:
            return MetadataAnswer(ErrorCode.NOT_CONTROLLER, leader.current)
        try:
            response = await self._forwarding.forward(
                leader, request, timeout_ms, self.caller(context)
            )
        except RefusedError as failed:
            return MetadataAnswer(failed.error, leader.current, message=failed.message)
        return MetadataAnswer(ErrorCode.NONE, leader.current, response)

    async def _read_metadata(self, request: r.Read, timeout_ms: int) -> MetadataAnswer:
        index = await self._forwarding.read_index(timeout_ms)
        leader = replace(index.leader, endpoints=())
        if index.error is not ErrorCode.NONE:
            error = index.error
            if error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                return MetadataAnswer(ErrorCode.NOT_CONTROLLER, leader)
            return MetadataAnswer(error, leader, message=index.message)
        assert self._metadata is not None, "a controller serves metadata"
        return MetadataAnswer(ErrorCode.NONE, leader, self._metadata.describe(request))

    # --- the log ----------------------------------------------------------------------------------

    async def append(
        self,
        records: Sequence[OpaqueRecord],
        timeout_ms: int,
        conditions: LogOffsets = NO_CONDITIONS,
        producer: BatchProducer | None = None,
    ) -> AppendOutcome:
        leader = self._forwarding.leader()
        if leader is None:
            return await super().append(records, timeout_ms, conditions, producer)
        has_key = any(key is not None for key, _ in records)
        text = NO_APPLICATIONS if has_key else NO_APPEND.format(leader)
        return AppendOutcome(ErrorCode.INVALID_REQUEST, leader.current, message=text)

    async def _read_index(self, timeout_ms: int) -> m.ReadIndexResponse:
        if self._forwarding.leader() is None:
            return await super()._read_index(timeout_ms)
        return await self._forwarding.read_index(timeout_ms)


DESCRIBE_TIMEOUT_MS: Final = 800
"""How long a description waits for the leader's view; clients wait for a second."""
_UNANSWERED: Final = (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)


class _CallHandler:
    """The requests of one call, as `RaftHandler` and `MetadataHandler` have them."""

    def __init__(self, service: KafkaLedService, context: Context) -> None:
        self._service = service
        self._context = context

    async def handle(self, request: Any) -> Any:
        return await self._service.handle_for(request, self._context)

    async def metadata(self, request: Any, timeout_ms: int) -> MetadataAnswer:
        return await self._service.metadata_for(request, timeout_ms, self._context)
