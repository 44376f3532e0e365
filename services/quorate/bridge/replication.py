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

from quorate.bridge import schemas as s
from quorate.bridge.admission import Admission
from quorate.bridge.connections import KafkaConnection
from quorate.log.offset_files import METADATA_PARTITION, METADATA_TOPIC
from quorate.raft.errors import ErrorCode
from quorate.raft.messages import (
    CurrentLeader,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
)
from quorate.raft.roles import Leader
from quorate.raft.types import ZERO_UUID, Endpoint, OffsetAndEpoch, ReplicaKey
from quorate.runtime.driver import Bytes, RaftDriver

TOPIC_ID = f"{'A' * 21}Q"
BYTES_MAX = 8 * 1024 * 1024
NO_NODE = -1
UNKNOWN_HIGH_WATERMARK = -1
NO_HIGH_WATERMARK = 2**63 - 1
"""Of a Fetch whose sender does not tell what it knows."""

PEER_CLIENT_ID = "quorate-controller"
"""The client id in the requests of Quorate's controllers."""

Refuse = Callable[[KafkaConnection, FetchRequest | FetchSnapshotRequest], ErrorCode]
"""The error that rejects a caller's request; NONE if the caller is authorized."""


class Replication:
    """listener: the name of the controllers' endpoints for brokers. serves_voters: whether voters
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
        body = call.body
        found = [(t, p) for t in body.topics for p in t.partitions]
        named = [(s.uuid_text(getattr(t, "topic_id", None)), p.partition) for t, p in found]
        is_log = named == [(TOPIC_ID, METADATA_PARTITION)]
        sender_id = replica_id(body)
        wrong = self._wrong(getattr(body, "cluster_id", None), sender_id, is_log)
        if wrong is not ErrorCode.NONE:
            return respond(call, wrong)
        ((topic, partition),) = found
        request = FetchRequest(
            self._cluster_id,
            ReplicaKey(sender_id, _directory(partition)),
            partition.current_leader_epoch,
            partition.fetch_offset,
            partition.last_fetched_epoch,
            _known_high_watermark(partition, connection),
            max_wait_ms=body.max_wait // s.milliseconds(1),
            max_bytes=min(BYTES_MAX, max(1, body.max_bytes)),
            read_round=getattr(body, "read_round", 0),
            incarnation=getattr(body, "incarnation", 0) if self._is_quorate(call) else 0,
        )
        refused, may_wait = await self._rejection(call, connection, request)
        if refused is not ErrorCode.NONE:
            return respond(call, refused)
        if not self._is_quorate(call):
            request = replace(request, read_round=connection.seen_round(request))
        if not may_wait:
            request = replace(request, max_wait_ms=0)
        response, data = await self._raft.ask(request)
        assert isinstance(response, FetchResponse), type(response)
        if data and not may_wait and await self._admission.is_rejected():
            return respond(call, ErrorCode.POLICY_VIOLATION)
        if response.error is ErrorCode.NONE:
            connection.last_sent = response.high_watermark
            response = replace(response, high_watermark=self._established(response))
            connection.told = request.replica, request.epoch, response.read_round
            if not self._is_quorate(call):
                connection.replica = request.replica
        return self._fetched(call, topic.topic_id, response, data)

    def _established(self, response: FetchResponse) -> int:
        """The high watermark of a response, -1 until it passes the beginning of the leader's epoch.

        A new leader may know a lower one than a follower. Kafka's replicas exit when a leader's
        high watermark is lower than theirs, but skip an unknown one. Source: KIP-595, "Fetch".
        """
        leader = self._raft.node.core.role
        if not isinstance(leader, Leader) or leader.epoch != response.leader.epoch:
            return UNKNOWN_HIGH_WATERMARK
        is_established = response.high_watermark > leader.epoch_start_offset
        return response.high_watermark if is_established else UNKNOWN_HIGH_WATERMARK

    def _fetched(
        self, call: s.Call, topic_id: Any, found: FetchResponse, data: Sequence[Bytes]
    ) -> Any:
        module = s.response_module(call.api_key, call.version)
        optional: dict[str, Any] = {}
        if found.diverging is not None:
            optional["diverging_epoch"] = module.EpochEndOffset(
                epoch=found.diverging.epoch, end_offset=found.diverging.offset
            )
        if found.snapshot is not None:
            optional["snapshot_id"] = module.SnapshotId(
                end_offset=found.snapshot.offset, epoch=found.snapshot.epoch
            )
        partition = module.PartitionData(
            partition_index=METADATA_PARTITION,
            error_code=s.error_field(found.error),
            high_watermark=found.high_watermark,
            log_start_offset=found.log_start_offset,
            current_leader=_leader(module, found.leader),
            aborted_transactions=(),
            records=b"".join(data),
            **optional,
        )
        topic = module.FetchableTopicResponse(topic_id=topic_id, partitions=(partition,))
        endpoints = leader_endpoints(module, found.leader, self._listener)
        extensions = _extensions(found) if self._is_quorate(call) else {}
        return respond(call, ErrorCode.NONE, (topic,), endpoints, **extensions)

    # --- FetchSnapshot ----------------------------------------------------------------------------

    async def fetch_snapshot(self, call: s.Call, connection: KafkaConnection) -> Any:
        """Return a range of bytes of a snapshot."""
        body = call.body
        found = [(t, p) for t in body.topics for p in t.partitions]
        named = [(t.name, p.partition) for t, p in found]
        is_log = named == [(METADATA_TOPIC, METADATA_PARTITION)]
        wrong = self._wrong(body.cluster_id, body.replica_id, is_log)
        if wrong is not ErrorCode.NONE:
            return respond(call, wrong)
        ((_, partition),) = found
        request = FetchSnapshotRequest(
            self._cluster_id,
            ReplicaKey(body.replica_id, _directory(partition)),
            partition.current_leader_epoch,
            OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch),
            partition.position,
            min(BYTES_MAX, max(1, body.max_bytes)),
        )
        refused, _ = await self._rejection(call, connection, request)
        if refused is not ErrorCode.NONE:
            return respond(call, refused)
        response, _ = await self._raft.ask(request)
        assert isinstance(response, FetchSnapshotResponse), type(response)
        module = s.response_module(call.api_key, call.version)
        snapshot = response.snapshot or OffsetAndEpoch(-1, -1)
        answered = module.PartitionSnapshot(
            index=METADATA_PARTITION,
            error_code=s.error_field(response.error),
            snapshot_id=module.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
            current_leader=_leader(module, response.leader),
            size=response.size,
            position=response.position,
            unaligned_records=response.data,
        )
        return respond(
            call,
            ErrorCode.NONE,
            (module.TopicSnapshot(name=METADATA_TOPIC, partitions=(answered,)),),
            leader_endpoints(module, response.leader, self._listener),
        )

    # --- both -------------------------------------------------------------------------------------

    def _wrong(self, cluster_id: str | None, node_id: int, is_log: bool) -> ErrorCode:
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


def replica_id(body: Any) -> int:
    """The sender of a Fetch: a field of its own before version 15."""
    sender = body.replica_state if hasattr(body, "replica_state") else body
    found: int = sender.replica_id
    return found


def _known_high_watermark(partition: Any, connection: KafkaConnection) -> int:
    told: int = getattr(partition, "high_watermark", NO_HIGH_WATERMARK)
    return connection.last_sent if told == NO_HIGH_WATERMARK else told


def _extensions(found: FetchResponse) -> dict[str, int]:
    """What only Quorate's controllers are told (`bridge.extensions`)."""
    end = found.acknowledged
    known = (
        {}
        if end is None
        else {
            "acknowledged_offset": end.offset,
            "acknowledged_epoch": end.epoch,
        }
    )
    return {"read_round": found.read_round, **known}


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
    **extensions: int,
) -> Any:
    """Build either response; the topics are `responses` in Fetch, `topics` in FetchSnapshot.

    extensions: the fields that `bridge.extensions` adds, which other versions lack.
    """
    return s.answer(
        s.response_module(call.api_key, call.version),
        error_code=s.error_field(error),
        responses=topics,
        topics=topics,
        node_endpoints=endpoints,
        **extensions,
    )
