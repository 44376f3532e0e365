"""A node for the tests of `rpc`: a real handler with a log in memory, behind a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from crc32c import crc32c
from quorate.applications.sessions import Duplicate, ProducerSessions
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.features import VersionRange
from quorate.raft.messages import (
    AddVoterRequest,
    AdminResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    CurrentLeader,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveVoterRequest,
    TransferLeadershipRequest,
    UpdateVoterRequest,
    VoteRequest,
    VoteResponse,
)
from quorate.raft.types import OffsetAndEpoch, ReplicaKey, Voter, VoterSet
from quorate.records.batch import BatchProducer, build_data_batch, read_header, stamp
from quorate.rpc.server.grpc_server import RpcServer, start_server
from quorate.rpc.server.handler import SharedChunk, WatchStream
from quorate.rpc.tls import TlsConfig
from quorate.rpc.wire.limits import ChannelLimits, ServerLimits
from quorate.rpc.wire.values import (
    NO_CONDITIONS,
    AppendOutcome,
    Buffer,
    ChecksumLogRequest,
    ChecksumLogResponse,
    DescribeFeaturesRequest,
    DescribeFeaturesResponse,
    Feature,
    FormatRequest,
    FormatResponse,
    LogOffsets,
    NodeStatus,
    OpaqueRecord,
    OpenProducerRequest,
    OpenProducerResponse,
    ReadChunk,
    ReadRequest,
    UpdateFeaturesRequest,
)

NO_HANG_S = 30.0
"""Whatever ends at all ends long before: a bound against hanging, not a measurement."""

KEEPALIVE_S = (ChannelLimits().keepalive_ms + ChannelLimits().keepalive_timeout_ms) / 1000
"""How long a silent death goes unnoticed; what is noticed sooner was noticed by the reset."""

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
DIRECTORY = "AAAAAAAAAAAAAAAAAAAAAQ"
KEY = ReplicaKey(1, DIRECTORY)
HOST = "127.0.0.1"


@dataclass
class Node:
    """A handler. It leads if `leader.id` is its own; what it is asked is kept in `asked`."""

    id: int = 1
    cluster_id: str = CLUSTER
    leader: CurrentLeader = field(default_factory=lambda: CurrentLeader(3, 1))
    voters: VoterSet = field(default_factory=VoterSet)
    delay_s: float = 0.0
    append_error: ErrorCode | None = None
    failure: BaseException | None = None
    snapshot: bytes = b""
    batches: list[bytearray] = field(default_factory=list)
    end_offset: int = 0
    log_start: int = 0
    asked: list[object] = field(default_factory=list)
    appended: list[list[OpaqueRecord]] = field(default_factory=list)
    sessions: ProducerSessions | None = None
    asked_sessions: int = 0
    delays_sessions: bool = False
    under_way: int = 0
    most_under_way: int = 0
    parked: asyncio.Event = field(default_factory=asyncio.Event)
    stored: asyncio.Event = field(default_factory=asyncio.Event)
    chunks: list[ReadChunk] | None = None
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def leads(self) -> bool:
        return self.leader.id == self.id

    async def _refusal(self, request: object) -> ErrorCode:
        self.asked.append(request)
        self.begun.set()
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        if self.failure is not None:
            raise self.failure
        return ErrorCode.NONE if self.leads else ErrorCode.NOT_LEADER_OR_FOLLOWER

    async def handle(self, request: Any) -> Any:
        if isinstance(request, OpenProducerRequest):
            self.asked_sessions += 1
            await asyncio.sleep(self.delay_s if self.delays_sessions else 0)
            return self._open_producer()
        error = await self._refusal(request)
        match request:
            case ChecksumLogRequest():
                return self._checksum(request)
            case DescribeFeaturesRequest():
                features = (Feature("kraft.version", VersionRange(0, 1), 1),)
                return DescribeFeaturesResponse(error, self.leader, features, 7)
            case UpdateFeaturesRequest(level=level) if error is ErrorCode.NONE and level > 1:
                return AdminResponse(ErrorCode.INVALID_UPDATE_VERSION, self.leader, "0 to 1")
            case VoteRequest():
                return VoteResponse(ErrorCode.NONE, self.leader, granted=request.pre_vote)
            case BeginQuorumEpochRequest():
                return BeginQuorumEpochResponse(ErrorCode.NONE, self.leader)
            case EndQuorumEpochRequest():
                return EndQuorumEpochResponse(ErrorCode.NONE, self.leader)
            case ApiVersionsRequest():
                return ApiVersionsResponse(ErrorCode.NONE, KEY, VersionRange(0, 1))
            case DescribeQuorumRequest():
                return DescribeQuorumResponse(
                    error, self.leader, self.end_offset, 1, voter_set=self.voters
                )
            case AddVoterRequest() if error is ErrorCode.NONE:
                if self.voters.get(request.voter.id) is not None:
                    return AdminResponse(ErrorCode.DUPLICATE_VOTER, self.leader, "is a voter")
                self.voters = self.voters.adding(Voter(request.voter, request.endpoints))
                return AdminResponse(ErrorCode.NONE, self.leader)
            case RemoveVoterRequest() if error is ErrorCode.NONE:
                if request.voter not in self.voters:
                    return AdminResponse(ErrorCode.VOTER_NOT_FOUND, self.leader, "no voter")
                self.voters = self.voters.removing(request.voter)
                return AdminResponse(ErrorCode.NONE, self.leader)
            case (
                AddVoterRequest()
                | RemoveVoterRequest()
                | UpdateVoterRequest()
                | TransferLeadershipRequest()
                | UpdateFeaturesRequest()
            ):
                return AdminResponse(error, self.leader)
        raise AssertionError(request)

    async def fetch(self, request: FetchRequest) -> tuple[FetchResponse, Sequence[Buffer]]:
        error = await self._refusal(request)
        if request.offset >= self.end_offset and request.max_wait_ms:
            try:
                async with asyncio.timeout(request.max_wait_ms / 1000):
                    await self.parked.wait()
            except TimeoutError:
                pass
        records = [b for b in self.batches if read_header(b).base_offset >= request.offset]
        return FetchResponse(error, self.leader, self.end_offset, records_from=0), records

    async def fetch_snapshot(self, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
        await self._refusal(request)
        data = self.snapshot[request.position : request.position + request.max_bytes]
        return FetchSnapshotResponse(
            ErrorCode.NONE,
            self.leader,
            request.snapshot,
            len(self.snapshot),
            request.position,
            data=data,
        )

    def _checksum(self, request: ChecksumLogRequest) -> ChecksumLogResponse:
        batches = [b for b in self.batches if read_header(b).base_offset >= request.start_offset]
        crc = 0
        for batch in batches:
            crc = crc32c(batch, crc)
        return ChecksumLogResponse(ErrorCode.NONE, crc, sum(map(len, batches)))

    def store(self, records: Sequence[OpaqueRecord]) -> int:
        base = self.end_offset
        batch = build_data_batch(records, 1)
        stamp(batch, base, self.leader.epoch)
        self.batches.append(batch)
        self.end_offset += len(records)
        self.stored.set()
        return base

    def _open_producer(self) -> OpenProducerResponse:
        """A session, if the node has `sessions`: without, its application.version is 0.

        Clients ask for it before their first append, so it is not in `asked`.
        """
        if self.failure is not None:
            raise self.failure
        if not self.leads:
            self.begun.set()
            return OpenProducerResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, self.leader)
        if self.sessions is None:
            return OpenProducerResponse(ErrorCode.UNSUPPORTED_VERSION, self.leader)
        producer_id = self.store([(None, b"a session")])
        self.sessions.open(producer_id, 3_600_000)
        return OpenProducerResponse(ErrorCode.NONE, self.leader, producer_id=producer_id)

    def _of_session(
        self, records: Sequence[OpaqueRecord], producer: BatchProducer
    ) -> AppendOutcome | None:
        """The answer to a batch of a session that is not appended."""
        if self.sessions is None:
            return AppendOutcome(ErrorCode.UNSUPPORTED_VERSION, self.leader)
        checked = self.sessions.check(producer, len(records), self.sessions.time_ms)
        if isinstance(checked, Duplicate):
            return AppendOutcome(ErrorCode.NONE, self.leader, checked.base_offset)
        return None if checked is ErrorCode.NONE else AppendOutcome(checked, self.leader)

    async def append(
        self,
        records: Sequence[OpaqueRecord],
        timeout_ms: int,
        _conditions: LogOffsets = NO_CONDITIONS,
        producer: BatchProducer | None = None,
    ) -> AppendOutcome:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            error = await self._refusal(timeout_ms)
            if error is not ErrorCode.NONE:
                return AppendOutcome(error, self.leader)
            if self.append_error is not None:
                return AppendOutcome(self.append_error, self.leader, message="as told")
            if producer is not None and (answer := self._of_session(records, producer)):
                return answer
            self.appended.append(list(records))
            self.ended.set()
            base_offset = self.store(records)
            if producer is not None and self.sessions is not None:
                self.sessions.appended(producer, len(records), base_offset)
            return AppendOutcome(ErrorCode.NONE, self.leader, base_offset)
        finally:
            self.under_way -= 1

    async def read(
        self, request: ReadRequest, before: Callable[[], Awaitable[None]]
    ) -> AsyncIterator[ReadChunk]:
        error = await self._refusal(request)
        if request.linearizable and error is not ErrorCode.NONE:
            yield ReadChunk(error, self.leader, last=True)
            return
        if self.chunks is not None:
            for chunk in self.chunks:
                yield chunk
            return
        for batch in self.batches:
            header = read_header(batch)
            if header.end_offset > request.from_offset:
                yield ReadChunk(ErrorCode.NONE, self.leader, self.end_offset, records=batch)
        yield ReadChunk(ErrorCode.NONE, self.leader, self.end_offset, last=True)

    async def follow(self, request: ReadRequest, stream: WatchStream) -> None:
        """What is in `chunks`; by default what is stored and what `store` adds."""
        error = await self._refusal(request)
        if error is not ErrorCode.NONE and request.linearizable:
            await stream.send(SharedChunk(ReadChunk(error, self.leader, last=True)))
            return
        for chunk in self.chunks or ():
            await stream.send(SharedChunk(chunk))
            if chunk.last:
                return
        sent = 0 if self.chunks is None else len(self.batches)
        position = request.from_offset
        first = ReadChunk(ErrorCode.NONE, self.leader, self.end_offset, next_offset=position)
        await stream.send(SharedChunk(first))
        while True:
            while sent < len(self.batches):  # more may come while a chunk is sent
                batch = self.batches[sent]
                sent += 1
                end = read_header(batch).end_offset
                if end > position:
                    chunk = ReadChunk(
                        ErrorCode.NONE, self.leader, records=bytes(batch), next_offset=end
                    )
                    await stream.send(SharedChunk(chunk))
            self.stored.clear()
            await self.stored.wait()

    async def node_status(self) -> NodeStatus:
        if self.failure is not None:
            raise self.failure
        return NodeStatus(
            self.id, True, self.cluster_id, DIRECTORY, "leader" if self.leads else "follower"
        )

    async def format(self, request: FormatRequest) -> FormatResponse:
        return FormatResponse(ErrorCode.INVALID_REQUEST, CLUSTER, DIRECTORY, "formatted already")


class Unformatted:
    """A node without storage."""

    async def node_status(self) -> NodeStatus:
        return NodeStatus(5, False)

    async def format(self, request: FormatRequest) -> FormatResponse:
        return FormatResponse(ErrorCode.NONE, request.cluster_id, DIRECTORY)


@asynccontextmanager
async def serving(
    handler: Node | Unformatted,
    tls: TlsConfig | None = None,
    limits: ServerLimits | None = None,
    port: int = 0,
) -> AsyncIterator[RpcServer]:
    server = await start_server([f"{HOST}:{port}"], handler, tls, limits)
    try:
        yield server
    finally:
        await server.stop(0)


def endpoint_of(server: RpcServer) -> Endpoint:
    return Endpoint("CONTROLLER", HOST, server.ports[0])


def address_of(server: RpcServer) -> str:
    return f"{HOST}:{server.ports[0]}"


def fetch_request(offset: int = 0, **changes: object) -> FetchRequest:
    return FetchRequest(CLUSTER, KEY, 3, offset, 3, **changes)  # type: ignore[arg-type]


def snapshot_request(position: int = 0, max_bytes: int = 1 << 20) -> FetchSnapshotRequest:
    return FetchSnapshotRequest(CLUSTER, KEY, 3, OffsetAndEpoch(10, 2), position, max_bytes)


class Pair:
    """Two nodes of one quorum; `lead` says which of them leads, from which epoch on."""

    def __init__(self, nodes: list[Node], servers: list[RpcServer]) -> None:
        self.nodes = nodes
        self.servers = servers

    @property
    def addresses(self) -> list[str]:
        return [address_of(server) for server in self.servers]

    def lead(self, index: int | None, epoch: int) -> None:
        leader = CurrentLeader(epoch)
        if index is not None:
            endpoints = (endpoint_of(self.servers[index]),)
            leader = CurrentLeader(epoch, self.nodes[index].id, endpoints)
        for node in self.nodes:
            node.leader = leader
