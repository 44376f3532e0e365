"""Fetch and FetchSnapshot of `__cluster_metadata`, for observers and for voters.

Both are converted to the quorum's own requests. Responses carry the stored bytes of the log, which
are Kafka's batches already. A Fetch before version 18 does not contain the high watermark that the
replica knows, so the connection remembers the last one sent. Kafka's replicas do not return the
leader's read round either: their next Fetch on a connection, in the same epoch, proves that they
have read the last response, because they send one at a time.

A voter's fetch offset acknowledges records, so requests with a voter's id are rejected unless
controllers talk to each other over Kafka's protocol (`quorate.peer.protocol`).

As in Kafka, every version is served, but before version 13 a Fetch cannot name the id of the log's
topic, and is rejected (INVALID_REQUEST).

Kafka's nodes are served only if the quorum has no applications (`bridge.admission`). Quorate's
controllers name themselves in the client id (`PEER_CLIENT_ID`) and are not admitted: they replicate
any records.

Errors stand where Kafka's raft client expects them: those that reject the request at the top level,
those of the quorum in the partition, with the leader and its endpoint of this listener.

Source: KIP-595 "Fetch", KIP-630 "FetchSnapshot", KIP-853 (NodeEndpoints, ReplicaDirectoryId),
KIP-1166 (HighWatermark); Kafka's KafkaRaftClient.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from quorate.bridge.listener.connections import KafkaConnection
from quorate.bridge.messages import schemas as s
from quorate.bridge.messages.fetch_messages import (
    NO_HIGH_WATERMARK,
    Found,
    FoundLeader,
    LogFetch,
    LogFetched,
    LogPosition,
    NodeEndpoint,
    write_log_fetched,
)
from quorate.bridge.requests.admission import Admission
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.identifiers import ZERO_UUID
from quorate.log.offset_files import METADATA_PARTITION, METADATA_TOPIC
from quorate.raft.messages import (
    CurrentLeader,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
)
from quorate.raft.roles import Leader
from quorate.raft.types import OffsetAndEpoch, ReplicaKey
from quorate.runtime.driver import Bytes, RaftDriver

BYTES_MAX = 8 * 1024 * 1024
NO_NODE = -1
UNKNOWN_HIGH_WATERMARK = -1

PEER_CLIENT_ID = "quorate-controller"
"""The client id in the requests of Quorate's controllers."""
PEER_IDLE_S = 30.0
"""How long their connections may be idle. A controller fetches all the time, and does not use a
connection again that was idle for longer than `peer.IDLE_S`. One that is idle for longer is broken,
and its other end may be unable to say so.
"""

Refuse = Callable[[KafkaConnection, FetchRequest | FetchSnapshotRequest], ErrorCode]
"""The error that rejects a caller's request; NONE if the caller is authorized."""


class Replication:
    """Answers fetches of the metadata log.

    listener: the name of the controllers' endpoints for brokers. serves_voters: whether voters
    fetch over it.
    """

    def __init__(
        self,
        raft: RaftDriver,
        cluster_id: str,
        listener: str,
        refuse: Refuse,
        admission: Admission,
        *,
        serves_voters: bool = False,
    ) -> None:
        self._serves_voters = serves_voters
        self._refuse = refuse
        self._admission = admission
        self._raft = raft
        self._cluster_id = cluster_id
        self._listener = listener

    # --- Fetch ------------------------------------------------------------------------------------

    async def fetch(self, call: s.Call, connection: KafkaConnection) -> Any:
        """Return whole batches, waiting for new records or a high watermark up to `max_wait`."""
        found = call.body
        if isinstance(found, LogFetch):
            wrong = self._wrong(found.cluster_id, found.replica_id, is_log=found.is_log)
        else:
            wrong = self._wrong(getattr(found, "cluster_id", None), NO_NODE, is_log=False)
        if wrong is not ErrorCode.NONE:
            return respond(call, wrong)
        request = read_fetch(call, self._cluster_id, connection.last_sent)
        if not self._is_quorate(call):
            request = replace(request, incarnation=0)
        refused, may_wait = await self._rejection(call, connection, request)
        if refused is not ErrorCode.NONE:
            return respond(call, refused)
        if not self._is_quorate(call):
            request = replace(
                request,
                read_round=connection.seen_round(request),
                high_watermark=self._awaited_from(request),
            )
        if not may_wait:
            request = replace(request, max_wait_ms=0)
        if request.offset < self._raft.log.end_offset:
            await connection.room.reserve()  # one batch may exceed the request's maximum
        response, data = await self._raft.ask(request)
        assert isinstance(response, FetchResponse), type(response)
        await connection.room.settle(sum(map(len, data)))
        if data and not may_wait and await self._admission.is_rejected():
            return respond(call, ErrorCode.POLICY_VIOLATION)
        if response.error is ErrorCode.NONE:
            connection.last_sent = response.high_watermark
            connection.last_round = request.replica, request.epoch, response.read_round
            if not self._is_quorate(call):
                connection.replica = request.replica
                response = replace(response, high_watermark=self._established(response))
        return write_fetched(
            call, response, data, self._listener, is_quorate=self._is_quorate(call)
        )

    def _established(self, response: FetchResponse) -> int:
        """The high watermark of a response, -1 until it passes the beginning of the leader's epoch.

        A new leader may know a lower one than a follower. Kafka's replicas exit when a leader's
        high watermark is lower than theirs, but skip an unknown one. Source: KIP-595, "Fetch".
        """
        if self._leads_from(response.leader.epoch) >= response.high_watermark:
            return UNKNOWN_HIGH_WATERMARK
        return response.high_watermark

    def _awaited_from(self, request: FetchRequest) -> int:
        """The high watermark above which the response need not wait for records. One that the
        replica does not get does not end the wait: it would fetch again at once.
        """
        high_watermark = self._raft.node.high_watermark
        if self._leads_from(request.epoch) >= high_watermark:
            return max(request.high_watermark, high_watermark)
        return request.high_watermark

    def _leads_from(self, epoch: int) -> int:
        """Where this node's epoch begins if it leads that one; otherwise beyond every offset."""
        leader = self._raft.node.core.role
        if not isinstance(leader, Leader) or leader.epoch != epoch:
            return NO_HIGH_WATERMARK
        return leader.epoch_start_offset

    # --- FetchSnapshot ----------------------------------------------------------------------------

    async def fetch_snapshot(self, call: s.Call, connection: KafkaConnection) -> Any:
        """Return a range of bytes of a snapshot."""
        body = call.body
        found = [(t, p) for t in body.topics for p in t.partitions]
        named = [(t.name, p.partition) for t, p in found]
        is_log = named == [(METADATA_TOPIC, METADATA_PARTITION)]
        wrong = self._wrong(body.cluster_id, body.replica_id, is_log=is_log)
        if wrong is not ErrorCode.NONE:
            return respond(call, wrong)
        request = read_fetch_snapshot(call, self._cluster_id)
        refused, _ = await self._rejection(call, connection, request)
        if refused is not ErrorCode.NONE:
            return respond(call, refused)
        await connection.room.reserve(request.max_bytes)
        response, _ = await self._raft.ask(request)
        assert isinstance(response, FetchSnapshotResponse), type(response)
        await connection.room.settle(len(response.data))
        return write_fetched_snapshot(call, response, self._listener)

    # --- both -------------------------------------------------------------------------------------

    def _wrong(self, cluster_id: str | None, node_id: int, *, is_log: bool) -> ErrorCode:
        """NONE for a request for the metadata log only, from a replica of this cluster that may
        fetch here.
        """
        if cluster_id is not None and cluster_id != self._cluster_id:
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        is_voter = self._raft.node.voters.get(node_id) is not None
        is_served = node_id >= 0 and (self._serves_voters or not is_voter)
        return ErrorCode.NONE if is_log and is_served else ErrorCode.INVALID_REQUEST

    def _is_quorate(self, call: s.Call) -> bool:
        """Whether the sender is a controller of Quorate."""
        return self._serves_voters and call.client_id == PEER_CLIENT_ID

    async def _rejection(
        self,
        call: s.Call,
        connection: KafkaConnection,
        request: FetchRequest | FetchSnapshotRequest,
    ) -> tuple[ErrorCode, bool]:
        """The error that rejects a replica's request, NONE to pass it to the node; and whether it
        may wait there for further records.

        A node that does not lead answers with the leader. BROKER_NOT_AVAILABLE: a leader cannot
        admit the replica yet, which tries again.
        """
        refused = self._refuse(connection, request)
        if refused is not ErrorCode.NONE or self._is_quorate(call):
            return refused, True
        name = type(request).__name__.removesuffix("Request")
        is_voter = request.replica in self._raft.node.voters
        check = self._admission.check_voter if is_voter else self._admission.check
        error, _ = await check(name, request.replica.id, connection.host)
        if error in (ErrorCode.NONE, ErrorCode.POLICY_VIOLATION):
            return error, True
        if is_voter or not self._raft.node.is_leader:
            return ErrorCode.NONE, not is_voter
        return ErrorCode.BROKER_NOT_AVAILABLE, True


# --- messages -------------------------------------------------------------------------------------


def read_fetch(call: s.Call, cluster_id: str, last_sent: int) -> FetchRequest:
    """The value of a Fetch of the metadata log. cluster_id: of a request that names none.
    last_sent: the high watermark that its sender knows, if the request does not say so.
    """
    found = call.body
    assert isinstance(found, LogFetch), "it names the metadata log"
    known = found.high_watermark
    return FetchRequest(
        cluster_id if found.cluster_id is None else found.cluster_id,
        ReplicaKey(found.replica_id, found.directory),
        found.epoch,
        found.offset,
        found.last_epoch,
        last_sent if known == NO_HIGH_WATERMARK else known,
        max_wait_ms=found.max_wait_ms,
        max_bytes=min(BYTES_MAX, max(1, found.max_bytes)),
        read_round=found.read_round,
        incarnation=found.incarnation,
    )


def write_fetched(
    call: s.Call, found: FetchResponse, data: Sequence[Bytes], listener: str, *, is_quorate: bool
) -> s.Encoded:
    """The message of a response with its records. is_quorate: whether it goes to a controller of
    Quorate, with the fields of `extensions`.
    """
    leader = found.leader
    part = Found(
        found.error,
        found.high_watermark,
        found.log_start_offset,
        FoundLeader(NO_NODE if leader.id is None else leader.id, leader.epoch),
        _position(found.diverging),
        _position(found.snapshot),
    )
    nodes: tuple[NodeEndpoint, ...] = ()
    endpoint = bridge_endpoint(leader.endpoints, listener)
    if leader.id is not None and endpoint is not None:
        nodes = (NodeEndpoint(leader.id, endpoint.host, endpoint.port),)
    fetched = LogFetched(ErrorCode.NONE, (part,), nodes)
    if is_quorate:
        known = _position(found.acknowledged)
        fetched = fetched._replace(read_round=found.read_round, acknowledged=known)
    kind = s.response_type(call.api_key, call.version)
    header = s.response_header(call.correlation_id, kind)
    body = write_log_fetched(fetched, call.version, data, header)
    return s.Encoded(kind, body, has_header=True)


def _position(found: OffsetAndEpoch | None) -> LogPosition:
    return LogPosition() if found is None else LogPosition(found.offset, found.epoch)


def read_fetch_snapshot(call: s.Call, cluster_id: str) -> FetchSnapshotRequest:
    """The value of a FetchSnapshot of the metadata log. cluster_id: see `read_fetch`."""
    body = call.body
    ((partition,),) = (topic.partitions for topic in body.topics)
    return FetchSnapshotRequest(
        _cluster(body, cluster_id),
        ReplicaKey(body.replica_id, _directory(partition)),
        partition.current_leader_epoch,
        OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch),
        partition.position,
        min(BYTES_MAX, max(1, body.max_bytes)),
    )


def write_fetched_snapshot(call: s.Call, found: FetchSnapshotResponse, listener: str) -> Any:
    """The message of a response with its bytes."""
    module = s.response_module(call.api_key, call.version)
    snapshot = found.snapshot or OffsetAndEpoch(-1, -1)
    partition = module.PartitionSnapshot(
        index=METADATA_PARTITION,
        error_code=s.error_field(found.error),
        snapshot_id=module.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
        current_leader=_leader(module, found.leader),
        size=found.size,
        position=found.position,
        unaligned_records=found.data,
    )
    topic = module.TopicSnapshot(name=METADATA_TOPIC, partitions=(partition,))
    endpoints = leader_endpoints(module, found.leader, listener)
    return respond(call, ErrorCode.NONE, (topic,), endpoints)


def _cluster(body: Any, cluster_id: str) -> str:
    named: str | None = getattr(body, "cluster_id", None)
    return cluster_id if named is None else named


def leader_endpoints(module: Any, leader: CurrentLeader, listener: str) -> tuple[Any, ...]:
    """The leader's endpoint of this listener, as a response has it.

    Empty if it is unknown, or if the version has none.
    """
    endpoint = bridge_endpoint(leader.endpoints, listener)
    kind = getattr(module, "NodeEndpoint", None)
    if leader.id is None or endpoint is None or kind is None:
        return ()
    return (s.make(kind, node_id=leader.id, host=endpoint.host, port=endpoint.port),)


def bridge_endpoint(endpoints: Sequence[Endpoint], listener: str) -> Endpoint | None:
    """A controller's endpoint for brokers, None if it has none."""
    return next((endpoint for endpoint in endpoints if endpoint.name == listener), None)


def _directory(partition: Any) -> str | None:
    return directory(getattr(partition, "replica_directory_id", None))


def directory(value: uuid.UUID | None) -> str | None:
    """A directory id; None for an unknown one."""
    text = s.uuid_text(value)
    return None if text == ZERO_UUID else text


def _leader(module: Any, leader: CurrentLeader) -> Any:
    leader_id = NO_NODE if leader.id is None else leader.id
    return module.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader.epoch)


def respond(
    call: s.Call,
    error: ErrorCode,
    topics: tuple[Any, ...] = (),
    endpoints: tuple[Any, ...] = (),
) -> Any:
    """Build a response of FetchSnapshot, or one of either API without topics."""
    return s.answer(
        s.response_module(call.api_key, call.version),
        error_code=s.error_field(error),
        responses=(),
        topics=topics,
        node_endpoints=endpoints,
    )
