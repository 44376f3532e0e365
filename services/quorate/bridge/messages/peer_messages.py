"""A replica's requests to its peers as Kafka's messages, and the responses as values.

The other direction is in `raft_requests` and `replication`.

Rules:
1. A request is sent in the highest version that both sides know. A pre-vote needs Vote 2 (Kafka
   4.0); a peer with less answers it with UNSUPPORTED_VERSION, which is no vote.
2. A response that Kafka's nodes never send raises ViolationError.
3. Kafka's responses name the leader by its id and one endpoint. A voter with that endpoint is known
   with all its endpoints; the caller looks it up (`Leaders`).
4. What only Quorate's controllers know is in the tagged fields of `extensions`. A Fetch does not
   name its sender's endpoints, and no response carries a message or traces.

Source: KIP-595, KIP-630, KIP-853, KIP-996; Kafka's RaftUtil.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from quorate.bridge.messages import schemas as s
from quorate.bridge.messages.fetch_messages import (
    LogFetch,
    LogPosition,
    read_log_fetched,
    write_log_fetch,
)
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.log.offset_files import METADATA_PARTITION, METADATA_TOPIC
from quorate.raft import messages as m
from quorate.raft.errors import ViolationError
from quorate.raft.types import OffsetAndEpoch, ReplicaKey, VoterSet
from quorate.records.batch import parse_batches
from quorate.records.errors import RecordsError
from quorate.rpc.errors import BadMessageError
from quorate.rpc.fields import endpoints_from_wire, natural
from quorate.rpc.wire.limits import LONE_FETCH_BYTES_MAX

PeerRequest = m.PeerRequest | m.AddVoterRequest | m.RemoveVoterRequest

Leaders = Callable[[int, Endpoint], tuple[Endpoint, ...]]
"""All endpoints of a replica, from its id and the one that a response names."""

API_KEYS: Final[dict[type, int]] = {
    m.VoteRequest: s.VOTE,
    m.BeginQuorumEpochRequest: s.BEGIN_QUORUM_EPOCH,
    m.EndQuorumEpochRequest: s.END_QUORUM_EPOCH,
    m.FetchRequest: s.FETCH,
    m.FetchSnapshotRequest: s.FETCH_SNAPSHOT,
    m.UpdateVoterRequest: s.UPDATE_RAFT_VOTER,
    m.AddVoterRequest: s.ADD_RAFT_VOTER,
    m.RemoveVoterRequest: s.REMOVE_RAFT_VOTER,
}
"""The APIs of the requests that peers send each other."""

FAILOVER_APIS: Final = (s.API_VERSIONS, s.VOTE, s.BEGIN_QUORUM_EPOCH, s.END_QUORUM_EPOCH)
"""The APIs of an election and of what a new leader sends first."""

PRE_VOTE_SINCE: Final = 2
"""The version of Vote."""

_NO_LEADER: Final = m.CurrentLeader(0)
"""Of a response that names none: epoch 0, which no replica prefers to its own view."""


# --- requests -------------------------------------------------------------------------------------


def can_send(request: PeerRequest, version: int) -> bool:
    """Whether a version can express the request (rule 1)."""
    is_pre_vote = isinstance(request, m.VoteRequest) and request.pre_vote
    return version >= PRE_VOTE_SINCE or not is_pre_vote


def write_request(request: PeerRequest, version: int) -> Any:
    """The message of a request, in a version that can express it."""
    api_key = API_KEYS[type(request)]
    if isinstance(request, m.FetchRequest):
        return s.Encoded(
            s.request_type(api_key, version), write_log_fetch(_fetch(request), version)
        )
    module = s.request_module(api_key, version)
    return s.make(
        s.request_type(api_key, version),
        cluster_id=request.cluster_id,
        **_FIELDS[type(request)](module, request),
    )


def _log_topic(module: Any, **partition: Any) -> tuple[Any, ...]:
    part = s.make(module.PartitionData, partition_index=METADATA_PARTITION, **partition)
    return (module.TopicData(topic_name=METADATA_TOPIC, partitions=(part,)),)


def _endpoints(kind: Any, endpoints: Sequence[Endpoint]) -> tuple[Any, ...]:
    return tuple(kind(name=e.name, host=e.host, port=e.port) for e in endpoints)


def _leader_endpoints(module: Any, endpoints: Sequence[Endpoint]) -> tuple[Any, ...]:
    kind = getattr(module, "LeaderEndpoint", None)
    return () if kind is None else _endpoints(kind, endpoints)


def _directory(key: ReplicaKey) -> Any:
    return s.uuid_field(key.directory_id or "")


def _vote(module: Any, request: m.VoteRequest) -> dict[str, Any]:
    topics = _log_topic(
        module,
        replica_epoch=request.epoch,
        replica_id=request.candidate.id,
        replica_directory_id=_directory(request.candidate),
        voter_directory_id=_directory(request.voter),
        last_offset_epoch=request.last_epoch,
        last_offset=request.last_offset,
        pre_vote=request.pre_vote,
    )
    return {"voter_id": request.voter.id, "topics": topics}


def _begin(module: Any, request: m.BeginQuorumEpochRequest) -> dict[str, Any]:
    topics = _log_topic(
        module,
        voter_directory_id=_directory(request.voter),
        leader_id=request.leader.id,
        leader_epoch=request.epoch,
    )
    endpoints = _leader_endpoints(module, request.leader_endpoints)
    return {"voter_id": request.voter.id, "topics": topics, "leader_endpoints": endpoints}


def _end(module: Any, request: m.EndQuorumEpochRequest) -> dict[str, Any]:
    preferred = request.preferred_candidates
    kind = getattr(module, "ReplicaInfo", None)
    candidates = (
        ()
        if kind is None
        else tuple(
            kind(candidate_id=key.id, candidate_directory_id=_directory(key)) for key in preferred
        )
    )
    topics = _log_topic(
        module,
        leader_id=request.leader.id,
        leader_epoch=request.epoch,
        preferred_successors=tuple(key.id for key in preferred),
        preferred_candidates=candidates,
    )
    endpoints = _leader_endpoints(module, request.leader_endpoints)
    return {"topics": topics, "leader_endpoints": endpoints}


def _fetch(request: m.FetchRequest) -> LogFetch:
    return LogFetch(
        request.cluster_id,
        request.replica.id,
        request.replica.directory_id,
        True,
        request.epoch,
        request.offset,
        request.last_epoch,
        request.high_watermark,
        request.max_wait_ms,
        request.max_bytes,
        request.read_round,
        request.incarnation,
    )


def _fetch_snapshot(module: Any, request: m.FetchSnapshotRequest) -> dict[str, Any]:
    snapshot = module.SnapshotId(end_offset=request.snapshot.offset, epoch=request.snapshot.epoch)
    partition = s.make(
        module.PartitionSnapshot,
        partition=METADATA_PARTITION,
        current_leader_epoch=request.epoch,
        snapshot_id=snapshot,
        position=request.position,
        replica_directory_id=_directory(request.replica),
    )
    topic = module.TopicSnapshot(name=METADATA_TOPIC, partitions=(partition,))
    return {
        "replica_id": request.replica.id,
        "max_bytes": request.max_bytes,
        "topics": (topic,),
    }


def _update(module: Any, request: m.UpdateVoterRequest) -> dict[str, Any]:
    voter = request.voter
    levels = module.KRaftVersionFeature(
        min_supported_version=voter.kraft_version.min, max_supported_version=voter.kraft_version.max
    )
    return {
        "current_leader_epoch": request.epoch,
        "voter_id": voter.id,
        "voter_directory_id": _directory(voter.key),
        "listeners": _endpoints(module.Listener, voter.endpoints),
        "k_raft_version_feature": levels,
    }


def add_fields(module: Any, request: m.AddVoterRequest) -> dict[str, Any]:
    """The fields of AddRaftVoter without the cluster id."""
    return {
        "timeout": s.milliseconds(request.timeout_ms),
        "voter_id": request.voter.id,
        "voter_directory_id": _directory(request.voter),
        "listeners": _endpoints(module.Listener, request.endpoints),
        "ack_when_committed": request.ack_when_committed,
    }


def remove_fields(_module: Any, request: m.RemoveVoterRequest) -> dict[str, Any]:
    """The fields of RemoveRaftVoter without the cluster id."""
    return {"voter_id": request.voter.id, "voter_directory_id": _directory(request.voter)}


_FIELDS: Final[dict[type, Callable[[Any, Any], dict[str, Any]]]] = {
    m.VoteRequest: _vote,
    m.BeginQuorumEpochRequest: _begin,
    m.EndQuorumEpochRequest: _end,
    m.FetchSnapshotRequest: _fetch_snapshot,
    m.UpdateVoterRequest: _update,
    m.AddVoterRequest: add_fields,
    m.RemoveVoterRequest: remove_fields,
}


def alone(request: PeerRequest) -> PeerRequest:
    """The request as it is sent to a replica that is not the leader as far as is known.

    A Fetch only asks who leads: it must not fill the connection with records.
    """
    if isinstance(request, m.FetchRequest) and request.max_bytes > LONE_FETCH_BYTES_MAX:
        return replace(request, max_bytes=LONE_FETCH_BYTES_MAX)
    return request


# --- responses ------------------------------------------------------------------------------------


def known_endpoints(voters: VoterSet, replica_id: int, endpoint: Endpoint) -> tuple[Endpoint, ...]:
    """All endpoints of the replica that has this one, as far as they are known (rule 3)."""
    voter = voters.get(replica_id)
    if voter is not None and endpoint in voter.endpoints:
        return voter.endpoints
    return (endpoint,)


def read_response(api_key: int, version: int, frame: bytes | bytearray) -> tuple[int, Any]:
    """Decode the correlation id and body of a response. Raises BadMessageError."""
    if api_key != s.FETCH:
        return s.read_response(api_key, version, bytes(frame))
    try:
        return read_log_fetched(frame, version)
    except ValueError as error:
        raise BadMessageError(f"a response to Fetch version {version}: {error}") from error


def load_failover_messages() -> None:
    """Load what a failover needs: the first one of a process would last several times as long."""
    for api_key in FAILOVER_APIS:
        s.load(api_key)


class ResponseReader:
    """Decodes the responses of peers.

    listener: the name of the endpoints in the responses. leaders: see rule 3.
    """

    def __init__(self, listener: str, leaders: Leaders) -> None:
        self._listener = listener
        self._leaders = leaders

    def read(self, request: PeerRequest, body: Any) -> m.Response:
        """The value of the response to a request. Raises ViolationError."""
        match request:
            case m.AddVoterRequest() | m.RemoveVoterRequest():
                return decode_voter_change_response(body)
            case m.UpdateVoterRequest():
                return self._updated(body)
            case m.FetchRequest():
                return self._fetched(body)
            case m.FetchSnapshotRequest():
                return self._snapshot(request, body)
        kind = _ANSWERS[type(request)]
        error = error_of(body.error_code)
        answered: m.Response
        if error is not ErrorCode.NONE:
            answered = kind(error, _NO_LEADER)
            return answered
        part = _only([part for topic in body.topics for part in topic.partitions])
        answered = kind(
            error_of(part.error_code), self._leader(part.leader_id, part.leader_epoch, body)
        )
        if not isinstance(answered, m.VoteResponse):
            return answered
        if_all = getattr(body, "granted_if_all", False)
        return replace(answered, granted=part.vote_granted, granted_if_all=if_all)

    def _leader(self, leader_id: int, epoch: int, body: Any) -> m.CurrentLeader:
        """The leader that a response names, if any."""
        if leader_id < 0:
            return m.CurrentLeader(max(0, epoch))
        found = [e for e in getattr(body, "node_endpoints", ()) if e.node_id == leader_id]
        endpoints = self._endpoints(leader_id, found[0].host, found[0].port) if found else ()
        return m.CurrentLeader(natural(epoch, "the epoch of the leader"), leader_id, endpoints)

    def _endpoints(self, leader_id: int, host: str, port: int) -> tuple[Endpoint, ...]:
        named: Any = (Endpoint(self._listener, host, port),)
        return self._leaders(leader_id, *endpoints_from_wire(named))

    def _updated(self, body: Any) -> m.AdminResponse:
        error, found = error_of(body.error_code), body.current_leader
        if found.leader_id < 0 or not found.host:
            known_id = None if found.leader_id < 0 else int(found.leader_id)
            return m.AdminResponse(error, m.CurrentLeader(max(0, found.leader_epoch), known_id))
        endpoints = self._endpoints(found.leader_id, found.host, found.port)
        epoch = natural(found.leader_epoch, "the epoch of the leader")
        return m.AdminResponse(error, m.CurrentLeader(epoch, found.leader_id, endpoints))

    def _part(self, body: Any, parts: Sequence[Any]) -> tuple[ErrorCode, m.CurrentLeader, Any]:
        """The error of a response, the leader that it names, and the part about the log if any.

        parts: one for each partition.
        """
        error = error_of(body.error_code)
        if error is not ErrorCode.NONE:
            return error, _NO_LEADER, None
        part = _only(parts)
        known = part.current_leader
        leader = self._leader(known.leader_id, known.leader_epoch, body)
        return error_of(part.error_code), leader, part

    def _fetched(self, body: Any) -> m.FetchResponse:
        error, leader, part = self._part(body, body.parts)
        if error is not ErrorCode.NONE:
            return m.FetchResponse(error, leader)
        try:
            batches = parse_batches(part.records)
        except RecordsError as corrupt:
            raise ViolationError(f"records of a fetch: {corrupt}") from corrupt
        return m.FetchResponse(
            error,
            leader,
            max(-1, part.high_watermark),
            natural(part.log_start_offset, "the log start offset"),
            _position(part.diverging_epoch, "the divergence"),
            _position(part.snapshot_id, "the snapshot"),
            read_round=body.read_round,
            batches=batches,
            acknowledged=_acknowledged(body.acknowledged),
        )

    def _snapshot(self, request: m.FetchSnapshotRequest, body: Any) -> m.FetchSnapshotResponse:
        parts = [part for topic in body.topics for part in topic.partitions]
        error, leader, part = self._part(body, parts)
        if error is not ErrorCode.NONE:
            return m.FetchSnapshotResponse(error, leader)
        data = bytes(part.unaligned_records or b"")
        snapshot = _position(part.snapshot_id, "the snapshot")
        if snapshot != request.snapshot or len(data) > request.max_bytes:
            raise ViolationError(
                f"{len(data)} bytes of snapshot {snapshot}, but at most {request.max_bytes} of "
                f"{request.snapshot} were requested"
            )
        return m.FetchSnapshotResponse(
            error,
            leader,
            snapshot,
            natural(part.size, "the size of the snapshot"),
            natural(part.position, "the position"),
            data=data,
        )


_ANSWERS: Final[dict[type, Any]] = {
    m.VoteRequest: m.VoteResponse,
    m.BeginQuorumEpochRequest: m.BeginQuorumEpochResponse,
    m.EndQuorumEpochRequest: m.EndQuorumEpochResponse,
}


def decode_voter_change_response(body: Any) -> m.AdminResponse:
    """The response to AddRaftVoter or RemoveRaftVoter. It names no leader."""
    error = error_of(body.error_code)
    if error is ErrorCode.NOT_CONTROLLER:
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    return m.AdminResponse(error, _NO_LEADER, body.error_message or "")


def error_of(code: int) -> ErrorCode:
    """An error code of Kafka's; UNKNOWN_SERVER_ERROR for one that Quorate has no name for."""
    try:
        return ErrorCode(int(code))
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def unsupported(request: PeerRequest, text: str) -> m.Response:
    """The response in the name of a peer that does not know a request (rule 1)."""
    if isinstance(request, m.VoteRequest):
        return m.VoteResponse(ErrorCode.UNSUPPORTED_VERSION, _NO_LEADER, message=text)
    raise ViolationError(text)


def _only(parts: Sequence[Any]) -> Any:
    if len(parts) != 1:
        raise ViolationError(f"a response about {len(parts)} partitions, not about one")
    return parts[0]


def _position(found: Any, what: str) -> OffsetAndEpoch | None:
    """A snapshot's id or an epoch's end; None for Kafka's -1."""
    if found.epoch < 0 and found.end_offset < 0:
        return None
    return OffsetAndEpoch(
        natural(found.end_offset, f"the offset of {what}"),
        natural(found.epoch, f"the epoch of {what}"),
    )


def _acknowledged(end: LogPosition) -> OffsetAndEpoch | None:
    if end.end_offset < 0:
        return None
    return OffsetAndEpoch(end.end_offset, natural(end.epoch, "the epoch of the acknowledged end"))
