"""Vote, BeginQuorumEpoch, EndQuorumEpoch and UpdateRaftVoter of voters.

Each request is converted to the value of `raft.messages` that it corresponds to, and authorized and
answered like the same request over gRPC: the raft node checks the cluster, the epoch and the
receiver. Fetch and FetchSnapshot are in `replication`.

Rules:
1. A request that names other partitions than the metadata log, or values that no voter sends, is
   rejected with INVALID_REQUEST. A request without a cluster id is one of another cluster.
2. Errors stand where Kafka's raft client expects them: those that reject the request as a whole at
   the top level, those of the quorum in the partition, with the leader and its endpoint of this
   listener.
3. Version 0 names no receiver and no directories, as at kraft.version 0: whoever gets the request
   is meant. Kafka's messages name leaders without their directories.

Source: KIP-595, KIP-853, KIP-996; Kafka's KafkaRaftClient and RaftUtil.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, Final

from quorate.bridge.messages import schemas as s
from quorate.bridge.requests.replication import (
    NO_NODE,
    bridge_endpoint,
    directory,
    leader_endpoints,
)
from quorate.common.error_codes import ErrorCode
from quorate.common.features import VersionRange
from quorate.log.offset_files import METADATA_PARTITION, METADATA_TOPIC
from quorate.raft import messages as m
from quorate.raft.errors import ViolationError
from quorate.raft.types import ReplicaKey, Voter
from quorate.rpc.fields import endpoints_from_wire, natural, range_from_wire
from quorate.rpc.principals import Caller
from quorate.rpc.server.authorizer import Denial
from quorate.runtime.driver import RaftDriver

VoterRequest = (
    m.VoteRequest | m.BeginQuorumEpochRequest | m.EndQuorumEpochRequest | m.UpdateVoterRequest
)
VoterResponse = (
    m.VoteResponse | m.BeginQuorumEpochResponse | m.EndQuorumEpochResponse | m.AdminResponse
)

Refuse = Callable[[Caller, str, Any], Denial | None]
"""Why a caller's request is rejected, by the name of the gRPC method; None if it is authorized."""

WHOLE_ERRORS: Final = (ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
"""Errors of the request as a whole (rule 2)."""


class RaftRequests:
    """Answers the Raft requests of Kafka's protocol.

    listener: the name of the controllers' endpoints for Kafka's protocol.
    """

    def __init__(self, raft: RaftDriver, listener: str, refuse: Refuse) -> None:
        self._raft = raft
        self._listener = listener
        self._refuse = refuse

    async def answer(self, call: s.Call, caller: Caller) -> Any:
        """Authorize and answer a request."""
        try:
            request = read_request(call, self._raft.node.core.local)
        except ViolationError:
            return refused(call, ErrorCode.INVALID_REQUEST)
        denial = self._refuse(caller, METHODS[call.api_key], request)
        if denial is not None:
            return refused(call, denial.error)
        response, _ = await self._raft.ask(request)
        assert isinstance(response, VoterResponse), type(response)
        return write_response(call, response, self._listener)


METHODS: Final[dict[int, str]] = {
    s.VOTE: "Vote",
    s.BEGIN_QUORUM_EPOCH: "BeginQuorumEpoch",
    s.END_QUORUM_EPOCH: "EndQuorumEpoch",
    s.UPDATE_RAFT_VOTER: "UpdateVoter",
}
"""The gRPC method that each API corresponds to."""


# --- requests -------------------------------------------------------------------------------------


def read_request(call: s.Call, local: ReplicaKey) -> VoterRequest:
    """The value of a request. local: this replica. Raises ViolationError."""
    body = call.body
    cluster_id = body.cluster_id or ""
    if call.api_key == s.UPDATE_RAFT_VOTER:
        return _read_update(body, cluster_id)
    part = _only_partition(body)
    if call.api_key == s.VOTE:
        return m.VoteRequest(
            cluster_id,
            natural(part.replica_epoch, "the epoch"),
            _key(part.replica_id, getattr(part, "replica_directory_id", None)),
            _receiver(call, part, local),
            natural(part.last_offset_epoch, "the epoch of the last record"),
            natural(part.last_offset, "the end offset"),
            getattr(part, "pre_vote", False),
        )
    epoch, leader = natural(part.leader_epoch, "the epoch"), _key(part.leader_id)
    endpoints = endpoints_from_wire(getattr(body, "leader_endpoints", ()))
    if call.api_key == s.BEGIN_QUORUM_EPOCH:
        receiver = _receiver(call, part, local)
        return m.BeginQuorumEpochRequest(cluster_id, epoch, leader, endpoints, receiver)
    return m.EndQuorumEpochRequest(cluster_id, epoch, leader, _candidates(part), endpoints)


def _read_update(body: Any, cluster_id: str) -> m.UpdateVoterRequest:
    levels = body.k_raft_version_feature
    voter = Voter(
        _key(body.voter_id, body.voter_directory_id),
        endpoints_from_wire(body.listeners),
        level_range(levels.min_supported_version, levels.max_supported_version),
    )
    epoch = natural(body.current_leader_epoch, "the epoch")
    return m.UpdateVoterRequest(cluster_id, epoch, voter)


def _only_partition(body: Any) -> Any:
    """The part about the metadata log. Raises ViolationError if there is another one (rule 1)."""
    found = [(topic.topic_name, part) for topic in body.topics for part in topic.partitions]
    named = [(name, part.partition_index) for name, part in found]
    if named != [(METADATA_TOPIC, METADATA_PARTITION)]:
        raise ViolationError("the request is not about the metadata log alone")
    return found[0][1]


def _receiver(call: s.Call, part: Any, local: ReplicaKey) -> ReplicaKey:
    """The replica that a request is meant for (rule 3)."""
    if call.version == 0:
        return ReplicaKey(local.id)
    return _key(call.body.voter_id, part.voter_directory_id)


def _candidates(part: Any) -> tuple[ReplicaKey, ...]:
    if hasattr(part, "preferred_candidates"):
        return tuple(
            _key(each.candidate_id, each.candidate_directory_id)
            for each in part.preferred_candidates
        )
    return tuple(_key(each) for each in part.preferred_successors)


def _key(replica_id: int, directory_id: uuid.UUID | None = None) -> ReplicaKey:
    return ReplicaKey(natural(replica_id, "a replica id"), directory(directory_id))


def level_range(low: int, high: int) -> VersionRange:
    """The levels of kraft.version that a node supports. Raises ViolationError."""
    levels: Any = VersionRange(low, high)
    return range_from_wire(levels)


# --- responses ------------------------------------------------------------------------------------


def write_response(call: s.Call, response: VoterResponse, listener: str) -> Any:
    """The message of a response, in the version of its request (rule 2)."""
    if response.error in WHOLE_ERRORS:
        return refused(call, response.error)
    module = s.response_module(call.api_key, call.version)
    leader = response.leader
    leader_id = NO_NODE if leader.id is None else leader.id
    if call.api_key == s.UPDATE_RAFT_VOTER:
        return _updated(module, response.error, leader, listener)
    part = s.make(
        module.PartitionData,
        partition_index=METADATA_PARTITION,
        error_code=s.error_field(response.error),
        leader_id=leader_id,
        leader_epoch=leader.epoch,
        vote_granted=getattr(response, "granted", False),
    )
    return s.answer(
        module,
        error_code=s.error_field(ErrorCode.NONE),
        topics=(module.TopicData(topic_name=METADATA_TOPIC, partitions=(part,)),),
        node_endpoints=leader_endpoints(module, leader, listener),
        granted_if_all=getattr(response, "granted_if_all", False),
    )


def refused(call: s.Call, error: ErrorCode) -> Any:
    """The response to a request that is rejected as a whole."""
    module = s.response_module(call.api_key, call.version)
    if call.api_key == s.UPDATE_RAFT_VOTER:
        return _updated(module, error, m.CurrentLeader(-1), "")
    return s.answer(module, error_code=s.error_field(error), topics=())


def _updated(module: Any, error: ErrorCode, leader: m.CurrentLeader, listener: str) -> Any:
    endpoint = bridge_endpoint(leader.endpoints, listener)
    known = module.CurrentLeader(
        leader_id=NO_NODE if leader.id is None else leader.id,
        leader_epoch=leader.epoch,
        host="" if endpoint is None else endpoint.host,
        port=0 if endpoint is None else endpoint.port,
    )
    return s.answer(module, error_code=s.error_field(error), current_leader=known)
