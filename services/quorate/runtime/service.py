"""The handler of a node's gRPC requests, which the servicers of `rpc.server` call.

Requests of the protocol are passed to the driver unchanged, and appends to `appends`. Reads are
streamed from the checkpoint and the log; a linearizable read ends at an offset that a majority has
confirmed.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Sequence,
)
from contextlib import aclosing
from typing import Any

from quorate.common.error_codes import ErrorCode
from quorate.common.features import KRAFT_VERSION
from quorate.log.errors import (
    LogError,
    LogFailedError,
    OffsetOutOfRangeError,
    SnapshotNotFoundError,
)
from quorate.metadata.requests import DescribeCluster, FeatureUpdate, UpdateFeatures
from quorate.raft.batches import Batch
from quorate.raft.messages import (
    AddVoterRequest,
    AdminRequest,
    AdminResponse,
    CurrentLeader,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    PeerRequest,
    ReadIndexRequest,
    ReadIndexResponse,
    RemoveVoterRequest,
    Response,
    TransferLeadershipRequest,
    UpdateKRaftVersionRequest,
)
from quorate.raft.types import SUPPORTED_KRAFT_VERSION, OffsetAndEpoch
from quorate.records.batch import (
    BatchProducer,
    iter_batches,
    read_header,
)
from quorate.records.errors import CorruptBatchError, RecordsError
from quorate.rpc.server.handler import SharedChunk, WatchStream
from quorate.rpc.wire.convert_metadata import MetadataAnswer
from quorate.rpc.wire.values import (
    NO_CONDITIONS,
    AppendOutcome,
    ChecksumLogRequest,
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
    UpgradeType,
)
from quorate.runtime.append_service import AppendService
from quorate.runtime.application_service import NOT_FINALIZED, ApplicationService
from quorate.runtime.consistency import LogChecksums
from quorate.runtime.driver import Bytes, RaftDriver
from quorate.runtime.metadata_service import NO_KAFKA_NODES, MetadataService
from quorate.runtime.watchers import WatchHub, WatchLimits
from quorate.version import __version__

LOGGER = logging.getLogger(__name__)


TRACED = (
    AddVoterRequest, RemoveVoterRequest, TransferLeadershipRequest, UpdateKRaftVersionRequest
)  # fmt: skip
"""The requests that get a span if tracing is enabled, besides appends."""

READ_CHUNK_BYTES = 1024 * 1024
"""Bytes of records in one message of a read; a larger batch is sent alone."""


async def _nothing() -> None:
    """Do nothing before a chunk is read: the default."""


def refuses_nothing(_request: object) -> str:
    """Reject no metadata request: the default."""
    return ""


class NodeService:
    """Implements `rpc.server.grpc_server.RaftHandler` over a `RaftDriver`.

    batch_bytes_max: a larger append is rejected. is_ready: the node's readiness. pending_bytes_max:
    the memory of appends that are not committed yet; beyond it, further appends are rejected with
    THROTTLING_QUOTA_EXCEEDED. refuses: why a metadata request is rejected at present, or "".
    kafka_listener: the name of the endpoints that speak Kafka's protocol, None without any.
    watch_limits: of the reads that follow the log, which `watchers` serves. applications: None
    rejects producer sessions, and appends with conditions or null values. frames_port: returns the
    port at which the node takes appends in frames, 0 for none; whoever listens there sets it.
    """

    def __init__(
        self,
        driver: RaftDriver,
        *,
        batch_bytes_max: int,
        is_ready: Callable[[], bool],
        pending_bytes_max: int = 256 * 1024 * 1024,
        metadata: MetadataService | None = None,
        refuses: Callable[[object], str] = refuses_nothing,
        kafka_listener: str | None = None,
        watch_limits: WatchLimits | None = None,
        applications: ApplicationService | None = None,
    ) -> None:
        self.watchers = WatchHub(driver, lambda: self.current_leader, watch_limits)
        self.frames_port: Callable[[], int] = lambda: 0
        self._driver = driver
        self.appends = AppendService(
            driver,
            metadata,
            applications,
            batch_bytes_max=batch_bytes_max,
            pending_bytes_max=pending_bytes_max,
        )
        self._is_ready = is_ready
        self._metadata = metadata
        self._applications = applications
        self._refuses = refuses
        self._kafka_listener = kafka_listener
        self._checksums = LogChecksums(driver)

    @property
    def cluster_id(self) -> str:
        return self._driver.node.core.config.cluster_id

    @property
    def current_leader(self) -> CurrentLeader:
        """The leader that responses to clients name."""
        return self._driver.node.current_leader

    # --- the protocol -----------------------------------------------------------------------------

    async def handle(self, request: Any) -> Any:
        match request:
            case ChecksumLogRequest():
                return await self._checksums.answer(request)
            case DescribeFeaturesRequest():
                return self._describe_features()
            case UpdateFeaturesRequest():
                return await self._update_features(request)
            case OpenProducerRequest():
                return await self._open_producer(request)
            case AddVoterRequest() if self._must_stay_out(request):
                leader = self.current_leader
                return AdminResponse(ErrorCode.INVALID_REQUEST, leader, NO_KAFKA_NODES)
        return await self._ask(request)

    def _must_stay_out(self, request: AddVoterRequest) -> bool:
        """Whether it would add a Kafka controller to a log with records of applications.

        A voter is dialled on its first endpoint. One that speaks Kafka's protocol catches up by
        Kafka's Fetch before it is added, so the log says by then that Kafka's nodes use the quorum.
        """
        if self._metadata is None or not self._metadata.has_applications:
            return False
        return any(each.name == self._kafka_listener for each in request.endpoints[:1])

    async def _ask(self, request: PeerRequest | AdminRequest) -> Response:
        """The response of the raft node."""
        traces = self._driver.traces
        if traces is None or not isinstance(request, TRACED):
            response, _ = await self._driver.ask(request)
            return response
        name = type(request).__name__.removesuffix("Request")
        with traces.serving(f"quorate.leader.{name}") as span:
            response, _ = await self._driver.ask(request)
            span.set_attribute("quorate.error", response.error.name)
            return response

    @property
    def end_offset(self) -> int:
        return self._driver.log.end_offset

    async def fetch(self, request: FetchRequest) -> tuple[FetchResponse, list[Bytes]]:
        response, data = await self._driver.ask(request)
        assert isinstance(response, FetchResponse), type(response)
        return response, data

    async def fetch_snapshot(self, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
        response, _ = await self._driver.ask(request)
        assert isinstance(response, FetchSnapshotResponse), type(response)
        return response

    # --- the cluster's metadata -------------------------------------------------------------------

    async def metadata(self, request: Any, timeout_ms: int) -> MetadataAnswer:
        """The metadata controller's response; NOT_CONTROLLER if it is not active on this node."""
        refused = self._refuses(request)
        if refused or self._metadata is None:
            leader = self.current_leader
            return MetadataAnswer(ErrorCode.NOT_CONTROLLER, leader, message=refused)
        return await self._metadata.handle(request, timeout_ms)

    # --- append -----------------------------------------------------------------------------------

    async def append(
        self,
        records: Sequence[OpaqueRecord],
        timeout_ms: int,
        conditions: LogOffsets = NO_CONDITIONS,
        producer: BatchProducer | None = None,
    ) -> AppendOutcome:
        """Append one atomic batch and wait for its commit (see `rpc.wire.values.AppendOutcome`)."""
        return await self.appends.append(records, timeout_ms, conditions, producer)

    async def _open_producer(self, request: OpenProducerRequest) -> OpenProducerResponse:
        if self._applications is None:
            error = ErrorCode.UNSUPPORTED_VERSION
            return OpenProducerResponse(error, self.current_leader, NOT_FINALIZED)
        return await self._applications.open_session(request)

    # --- read -------------------------------------------------------------------------------------

    async def read(
        self, request: ReadRequest, before: Callable[[], Awaitable[None]] = _nothing
    ) -> AsyncIterator[ReadChunk]:
        """Committed records from `from_offset` on, in chunks of whole batches.

        before: awaited before each chunk is read.
        """
        node, log = self._driver.node, self._driver.log
        end = node.high_watermark
        if request.linearizable:
            index = await self._read_index(request.timeout_ms)
            if index.error is not ErrorCode.NONE:
                yield ReadChunk(index.error, index.leader, last=True, message=index.message)
                return
            end = index.offset
        left = request.max_records if request.max_records is not None else 1 << 62
        try:
            async with aclosing(self._chunks(request, end, before)) as chunks:
                async for snapshot, chunk, count in chunks:
                    yield ReadChunk(
                        ErrorCode.NONE,
                        self.current_leader,
                        node.high_watermark,
                        end,
                        log.start_offset,
                        snapshot,
                        chunk,
                    )
                    left -= count
                    if left <= 0:
                        break
        except (OffsetOutOfRangeError, SnapshotNotFoundError) as error:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
            yield ReadChunk(code, self.current_leader, last=True, message=str(error))
            return
        except (LogError, RecordsError, OSError) as error:
            is_damage = not isinstance(error, LogFailedError | OSError)
            code = ErrorCode.CORRUPT_MESSAGE if is_damage else ErrorCode.KAFKA_STORAGE_ERROR
            text = f"records from offset {request.from_offset} on cannot be read: {error}"
            LOGGER.error("%s: %s", log.partition, text)
            yield ReadChunk(code, self.current_leader, last=True, message=text)
            return
        yield ReadChunk(
            ErrorCode.NONE,
            self.current_leader,
            node.high_watermark,
            end,
            log.start_offset,
            last=True,
        )

    async def follow(self, request: ReadRequest, stream: WatchStream) -> None:
        """Send committed records from `from_offset` on, as they commit (see `watchers`)."""
        if request.linearizable:
            index = await self._read_index(request.timeout_ms)
            if index.error is not ErrorCode.NONE:
                chunk = ReadChunk(index.error, index.leader, last=True, message=index.message)
                await stream.send(SharedChunk(chunk))
                return
        await self.watchers.serve(request, stream)

    async def _read_index(self, timeout_ms: int) -> ReadIndexResponse:
        """An offset up to which a read is linearizable, or why there is none."""
        index, _ = await self._driver.ask(ReadIndexRequest("", timeout_ms))
        assert isinstance(index, ReadIndexResponse), type(index)
        return index

    async def _chunks(
        self, request: ReadRequest, end: int, before: Callable[[], Awaitable[None]]
    ) -> AsyncGenerator[tuple[OffsetAndEpoch | None, Bytes, int]]:
        """(snapshot or None, whole batches, number of requested records in them) up to `end`."""
        log = self._driver.log
        position = asked = request.from_offset
        if position < log.start_offset:
            snapshot = log.latest_snapshot()
            assert snapshot is not None, "a log that does not begin at 0 has a snapshot"
            batches = log.iter_snapshot_batches(
                snapshot, asked, include_control=request.include_control
            )
            pieces = _gather(batches, asked)
            # The requested records may begin far after the checkpoint's first byte.
            await before()
            while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
                yield snapshot, *piece
                await before()
            position = snapshot.offset
        while position < end:
            await before()
            began = position
            data = log.read(position, READ_CHUNK_BYTES, end)
            wanted: list[Bytes] = []
            count = 0
            for view in data:
                for header, batch in iter_batches(view):
                    position = header.end_offset
                    if request.include_control or not header.is_control:
                        wanted.append(batch)
                        count += min(header.count, header.end_offset - asked)
            if position <= began:
                raise CorruptBatchError(0, f"no batch there holds offset {began}")
            if wanted:
                yield None, wanted[0] if len(wanted) == 1 else b"".join(wanted), count

    # --- features and status ----------------------------------------------------------------------

    def _describe_features(self) -> DescribeFeaturesResponse:
        """The features; a finalized level is a committed one.

        Source: KIP-853, KRaftVersionRecord "Handling".
        """
        node = self._driver.node
        level, _ = node.membership_at(node.high_watermark)
        features = [Feature(KRAFT_VERSION, SUPPORTED_KRAFT_VERSION, level)]
        if self._metadata is not None:
            described = self._metadata.describe(DescribeCluster()).features
            features += [Feature(f.name, f.supported, f.finalized_level) for f in described]
            features.sort(key=lambda feature: feature.name)
        return DescribeFeaturesResponse(
            ErrorCode.NONE, self.current_leader, tuple(features), node.high_watermark
        )

    async def _update_features(self, request: UpdateFeaturesRequest) -> AdminResponse:
        node = self._driver.node
        if request.feature != KRAFT_VERSION:
            return await self._update_cluster_feature(request)
        is_upgrade = request.upgrade_type is UpgradeType.UPGRADE
        if node.is_leader and not is_upgrade and request.level >= node.kraft_version:
            text = f"{KRAFT_VERSION} is {node.kraft_version}: {request.level} is not a downgrade"
            return AdminResponse(ErrorCode.INVALID_UPDATE_VERSION, self.current_leader, text)
        response = await self._ask(
            UpdateKRaftVersionRequest(
                request.cluster_id, request.level, request.validate_only, request.timeout_ms
            )
        )
        assert isinstance(response, AdminResponse), type(response)
        return response

    async def _update_cluster_feature(self, request: UpdateFeaturesRequest) -> AdminResponse:
        """Update a feature of the cluster's metadata, such as metadata.version."""
        update = FeatureUpdate(request.feature, request.level, int(request.upgrade_type))
        wanted = UpdateFeatures((update,), request.validate_only)
        answer = await self.metadata(wanted, request.timeout_ms)
        error, text = answer.error, answer.message
        if error is ErrorCode.NONE:
            error, text = answer.response.error, answer.response.message
        elif error is ErrorCode.NOT_CONTROLLER:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return AdminResponse(error, answer.leader, text)

    async def node_status(self) -> NodeStatus:
        node, log = self._driver.node, self._driver.log
        local = node.core.local
        return NodeStatus(
            local.id,
            True,
            node.core.config.cluster_id,
            local.directory_id,
            node.role.value,
            node.epoch,
            self.current_leader.id,
            node.high_watermark,
            log.end_offset,
            log.start_offset,
            node.is_voter,
            self._is_ready(),
            __version__,
            os.getpid(),
            self.frames_port(),
        )

    async def format(self, request: FormatRequest) -> FormatResponse:
        """Reject the request, since a running node is formatted; returns the node's ids."""
        config = self._driver.node.core.config
        text = f"node {config.local.id} is already formatted"
        same = request.cluster_id == config.cluster_id
        if not same:
            text += f", for cluster {config.cluster_id}"
        return FormatResponse(
            ErrorCode.INVALID_REQUEST, config.cluster_id, config.local.directory_id, text
        )


def _gather(batches: Iterator[Batch], asked: int) -> Iterator[tuple[bytes, int]]:
    """Join a snapshot's batches into chunks of about READ_CHUNK_BYTES.

    Each comes with the number of its records from the offset `asked` on, or with less.
    """
    wanted: list[Bytes] = []
    size = count = 0
    for batch in batches:
        assert isinstance(batch.data, bytes | memoryview), type(batch.data)
        wanted.append(batch.data)
        size += len(batch.data)
        header = read_header(batch.data)
        base = header.log_base_offset
        skipped = 0 if base is None else max(0, asked - base)
        # Compaction may have removed some of those before `asked`: rather too few than too many.
        count += max(0, header.count - skipped)
        if size >= READ_CHUNK_BYTES:
            yield b"".join(wanted), count
            wanted, size, count = [], 0, 0
    if wanted:
        yield b"".join(wanted), count
