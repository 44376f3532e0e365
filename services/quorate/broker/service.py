"""The broker's gRPC request handler: implements `rpc.server.partition_servicer.PartitionHandler`.

Each produce request is validated here, once: it holds exactly one complete batch with a correct
checksum, which is neither a control batch, nor transactional, nor empty, nor larger than
`message.max.bytes`. The log then takes its bytes without further checks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from quorate.broker.metadata_view import MetadataView
from quorate.broker.replica_manager import ReplicaManager
from quorate.broker.sessions import BrokerFetchSession
from quorate.common.error_codes import ErrorCode
from quorate.metadata.requests import AllocateProducerIds
from quorate.records.batch import BatchHeader, read_header, verify_crc
from quorate.records.errors import RecordsError
from quorate.rpc.errors import AdminError, ClientError
from quorate.rpc.metadata_client import MetadataClient
from quorate.rpc.wire.partition_values import (
    Located,
    PartitionKey,
    PartitionOffsets,
    ProduceRequest,
    ProduceResponse,
    ProducerIdentity,
)

if TYPE_CHECKING:
    from quorate.runtime.tracing import WriteTraces

PRODUCE_TIMEOUT_MS_MAX = 600_000
ALLOCATION_TIMEOUT_MS = 5_000


class PartitionService:
    """Produce, Fetch, ListOffsets, Locate, InitProducerId of one broker."""

    def __init__(
        self,
        manager: ReplicaManager,
        view: MetadataView,
        client: MetadataClient,
        traces: WriteTraces | None = None,
    ) -> None:
        self._traces = traces
        self._manager = manager
        self._view = view
        self._client = client
        self._producer_ids: range = range(0)
        self._allocating = asyncio.Lock()

    async def produce(self, request: ProduceRequest) -> ProduceResponse:
        if self._traces is None:
            return await self._produce(request)
        key = request.partition
        attributes: dict[str, str | int] = {
            "quorate.topic_id": key.topic_id,
            "quorate.partition": key.index,
        }
        with self._traces.serving("quorate.broker.produce", **attributes):
            return await self._produce(request)

    async def _produce(self, request: ProduceRequest) -> ProduceResponse:
        replica = self._manager.find(request.partition)
        if isinstance(replica, ErrorCode):
            return ProduceResponse(replica)
        if len(request.records) > self._manager.config.message_bytes_max:
            limit = self._manager.config.message_bytes_max
            text = f"the batch is {len(request.records)} bytes; message.max.bytes is {limit}"
            return ProduceResponse(ErrorCode.MESSAGE_TOO_LARGE, message=text)
        header = _checked(request.records)
        if isinstance(header, ProduceResponse):
            return header
        return await replica.produce(
            bytearray(request.records),
            header,
            acks_all=request.acks_all,
            timeout_ms=min(request.timeout_ms, PRODUCE_TIMEOUT_MS_MAX),
        )

    def open_session(self, refuse: Callable[[str], ErrorCode]) -> BrokerFetchSession:
        return BrokerFetchSession(self._manager.find, refuse)

    async def list_offsets(self, key: PartitionKey) -> PartitionOffsets:
        replica = self._manager.find(key)
        if isinstance(replica, ErrorCode):
            return PartitionOffsets(replica)
        machine = replica.machine
        error = ErrorCode.NONE if machine.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER
        return PartitionOffsets(
            error,
            machine.log.start.offset,
            machine.high_watermark,
            machine.log.end_offset,
            machine.leader_id,
            machine.leader_epoch,
        )

    async def locate(self, topics: Sequence[str]) -> Located:
        return self._view.locate(topics)

    async def init_producer_id(self) -> ProducerIdentity:
        """Assign an id from a block that the controller allocated.

        The unused ids of a block are lost when the process stops.
        """
        async with self._allocating:
            if not self._producer_ids:
                config = self._manager.config
                request = AllocateProducerIds(config.node_id, self._manager.broker_epoch)
                try:
                    block = await self._client.ask(request, timeout_ms=ALLOCATION_TIMEOUT_MS)
                except AdminError as error:
                    return ProducerIdentity(error.code, message=error.message)
                except ClientError as error:
                    return ProducerIdentity(ErrorCode.LEADER_NOT_AVAILABLE, message=str(error))
                if block.error is not ErrorCode.NONE:
                    return ProducerIdentity(block.error, message=block.message)
                self._producer_ids = range(block.start, block.start + block.count)
            producer_id, self._producer_ids = self._producer_ids[0], self._producer_ids[1:]
            return ProducerIdentity(ErrorCode.NONE, producer_id, 0)


def _checked(records: bytes) -> BatchHeader | ProduceResponse:
    """Return the header of a valid batch, or the error response."""
    try:
        header = read_header(records)
    except RecordsError as error:
        return ProduceResponse(ErrorCode.CORRUPT_MESSAGE, message=str(error))
    if header.size_bytes != len(records):
        text = (
            f"expected exactly one batch: the records are {len(records)} bytes, the batch is "
            f"{header.size_bytes}"
        )
        return ProduceResponse(ErrorCode.INVALID_RECORD, message=text)
    if not verify_crc(records, 0, header):
        return ProduceResponse(ErrorCode.CORRUPT_MESSAGE, message="the checksum is wrong")
    if header.is_control or header.is_transactional or header.count == 0:
        text = "control batches, transactional batches and empty batches are not accepted"
        return ProduceResponse(ErrorCode.INVALID_RECORD, message=text)
    return header
