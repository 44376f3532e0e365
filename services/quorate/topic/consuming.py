"""Fetch and ListOffsets: reads of the committed records, on the leader.

Rules:
1. Consumers get committed records only. Metadata and control records are left out (`reading`).
2. A Fetch at the high watermark waits for records, whatever `min_bytes` says above 0, or for the
   end of its maximum wait. If only records of other kinds were committed meanwhile, the response
   says that the consumer is at the end. The next Fetch skips them at once. Thus a consumer finds
   the end, and gets to it, although records of other kinds are committed all the time.
3. A response has no incremental session, so every Fetch names what it wants.
4. The records before the log start are in a snapshot, which this protocol cannot read:
   OFFSET_OUT_OF_RANGE.

Source: Kafka's KafkaApis; KIP-227 (sessions), KIP-320 (leader epochs), KIP-734 (ListOffsets).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final

from quorate.bridge.listener.connections import KafkaConnection
from quorate.bridge.messages import schemas as s
from quorate.common.error_codes import ErrorCode
from quorate.log.errors import LogError, OffsetOutOfRangeError
from quorate.metadata.authorizer import Operation
from quorate.raft import outputs as out
from quorate.records.client_batch import placeholder_batch
from quorate.records.errors import RecordsError
from quorate.runtime.driver import Bytes
from quorate.topic.access import PARTITION, UNKNOWN, TopicAccess
from quorate.topic.apis import LIST_OFFSETS
from quorate.topic.fetch_messages import TopicResponsePart, write_fetched
from quorate.topic.reading import offset_of_time, read_records

LOGGER = logging.getLogger(__name__)

READS_MAX: Final = 64
"""Reads of the log without records for a consumer, after which it is told to continue behind them.
They hold the memory for a response.
"""
RESERVE_S: Final = 1.0
"""How long a Fetch waits for memory at least, whatever it says."""
WAIT_MS_MAX: Final = 60_000
"""The longest time that a Fetch waits for records."""
NOT_AVAILABLE_SINCE: Final = 5
"""The version of ListOffsets from which clients know OFFSET_NOT_AVAILABLE."""
LATEST: Final = -1
EARLIEST: Final = -2
"""The timestamps in ListOffsets that are none."""


class Consuming:
    """Answers consumers."""

    def __init__(self, access: TopicAccess) -> None:
        self._access = access
        self._changed = asyncio.Event()
        access.raft.add_listener(self)

    def committed(self, _offset: int) -> None:
        """Wake the requests that wait for records."""
        self._wake()

    def leadership(self, _change: out.LeadershipAcquired | out.LeadershipLost) -> None:
        """Wake the requests that wait: another node may lead."""
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # --- Fetch ------------------------------------------------------------------------------------

    async def fetch(self, call: s.Call, connection: KafkaConnection) -> Any:
        body = call.body
        asked = [(topic.topic, part) for topic in body.topics for part in topic.partitions]
        wanted, parts = None, []
        for topic, part in asked:
            error = self._access.fault(connection, Operation.READ, topic, part.partition)
            if error is ErrorCode.NONE and (body.replica_id != UNKNOWN or wanted is not None):
                error = ErrorCode.INVALID_REQUEST
            if error is ErrorCode.NONE:
                wanted = part
            else:
                parts.append(TopicResponsePart(topic, part.partition, error))
        if wanted is not None:
            bytes_max = min(wanted.partition_max_bytes, body.max_bytes)
            wait_ms = min(body.max_wait // s.milliseconds(1), WAIT_MS_MAX)
            # Another partition's error is not held back.
            may_wait = body.min_bytes > 0 and not parts
            until_s = asyncio.get_running_loop().time() + (wait_ms / 1000 if may_wait else 0)
            parts.append(await self._fetched(wanted, bytes_max, until_s, connection))
        return write_fetched(call, parts)

    async def _fetched(
        self, wanted: Any, bytes_max: int, until_s: float, connection: KafkaConnection
    ) -> TopicResponsePart:
        """The records of one request, once there are any or at `until_s`, by the loop's clock."""
        node, log = self._access.raft.node, self._access.raft.log
        known_epoch = getattr(wanted, "current_leader_epoch", UNKNOWN)
        start = position = wanted.fetch_offset
        end = node.high_watermark
        reads = 0
        while True:
            changed = self._changed
            error = self._access.leader_fault(known_epoch)
            if error is ErrorCode.NONE and not log.start_offset <= position <= log.end_offset:
                error = ErrorCode.OFFSET_OUT_OF_RANGE
            if error is not ErrorCode.NONE:
                return self._part(error)
            if position < node.high_watermark and not connection.room.size:
                # One batch may exceed the request's maximum.
                if not await self._reserved(connection, until_s):
                    return self._part(ErrorCode.NONE, node.high_watermark)
                continue
            try:
                found = read_records(log, position, node.high_watermark, bytes_max)
            except (LogError, RecordsError, OSError) as failed:
                if isinstance(failed, OffsetOutOfRangeError):
                    continue  # the log start has passed it
                LOGGER.error("%s: a consumer cannot read: %s", log.partition, failed)
                return self._part(ErrorCode.KAFKA_STORAGE_ERROR)
            if found.batches:
                await connection.room.settle(found.size_bytes)
                return self._part(ErrorCode.NONE, node.high_watermark, found.batches)
            position = found.end_offset
            reads += 1
            is_over = self._left_s(until_s) <= 0 or (start < end and reads >= READS_MAX)
            if position < node.high_watermark and not is_over:
                await asyncio.sleep(0)  # a long range without such records
                continue
            if start < min(position, end):
                skipped = placeholder_batch(start, position, node.epoch)
                await connection.room.settle(len(skipped))
                return self._part(ErrorCode.NONE, node.high_watermark, (skipped,))
            connection.room.release()
            if not await self._waited(changed, until_s):
                return self._part(ErrorCode.NONE, min(start, node.high_watermark))

    async def _reserved(self, connection: KafkaConnection, until_s: float) -> bool:
        """Reserve memory for a response; False if others have it for too long."""
        try:
            async with asyncio.timeout(max(RESERVE_S, self._left_s(until_s))):
                await connection.room.reserve()
        except TimeoutError:
            return False
        return True

    def _left_s(self, until_s: float) -> float:
        return until_s - asyncio.get_running_loop().time()

    def _part(
        self, error: ErrorCode, high_watermark: int = UNKNOWN, batches: Sequence[Bytes] = ()
    ) -> TopicResponsePart:
        log_start = self._access.raft.log.start_offset if error is ErrorCode.NONE else UNKNOWN
        name = self._access.settings.name
        return TopicResponsePart(name, PARTITION, error, high_watermark, log_start, batches)

    async def _waited(self, changed: asyncio.Event, until_s: float) -> bool:
        """Wait for a change of the log; False at `until_s`, by the loop's clock."""
        left_s = self._left_s(until_s)
        if left_s <= 0:
            return False
        try:
            async with asyncio.timeout(left_s):
                await changed.wait()
        except TimeoutError:
            return False
        return True

    # --- ListOffsets ------------------------------------------------------------------------------

    async def list_offsets(self, call: s.Call, connection: KafkaConnection) -> Any:
        module = s.response_module(LIST_OFFSETS, call.version)
        new_leader = ErrorCode.OFFSET_NOT_AVAILABLE
        if call.version < NOT_AVAILABLE_SINCE:
            new_leader = ErrorCode.LEADER_NOT_AVAILABLE
        topics, is_answered = [], False
        for topic in call.body.topics:
            parts = []
            for part in topic.partitions:
                index = part.partition_index
                error = self._access.fault(connection, Operation.DESCRIBE, topic.name, index)
                found: tuple[int, int] | None = None
                if error is ErrorCode.NONE:
                    error = self._access.leader_fault(
                        getattr(part, "current_leader_epoch", UNKNOWN)
                    )
                if error is ErrorCode.NONE and self._access.is_new_leader:
                    error = new_leader
                if error is ErrorCode.NONE and is_answered:
                    error = ErrorCode.INVALID_REQUEST  # each takes several reads
                if error is ErrorCode.NONE:
                    error, found = await self._offset_of(part.timestamp)
                    is_answered = True
                offset, time_ms = (UNKNOWN, UNKNOWN) if found is None else found
                parts.append(
                    s.make(
                        module.ListOffsetsPartitionResponse,
                        partition_index=index,
                        error_code=s.error_field(error),
                        timestamp=time_ms,
                        offset=offset,
                        leader_epoch=UNKNOWN if found is None else self._access.raft.node.epoch,
                    )
                )
            topics.append(module.ListOffsetsTopicResponse(name=topic.name, partitions=tuple(parts)))
        return s.answer(module, topics=tuple(topics))

    async def _offset_of(self, timestamp_ms: int) -> tuple[ErrorCode, tuple[int, int] | None]:
        """An offset and the time of its batch; None if there is none."""
        log, end_offset = self._access.raft.log, self._access.raft.node.high_watermark
        if timestamp_ms == LATEST:
            return ErrorCode.NONE, (end_offset, UNKNOWN)
        if timestamp_ms == EARLIEST:
            return ErrorCode.NONE, (log.start_offset, UNKNOWN)
        if timestamp_ms < 0:
            return ErrorCode.UNSUPPORTED_VERSION, None
        try:
            return ErrorCode.NONE, await offset_of_time(log, end_offset, timestamp_ms)
        except OffsetOutOfRangeError:
            return ErrorCode.OFFSET_NOT_AVAILABLE, None
        except (LogError, RecordsError, OSError):
            return ErrorCode.KAFKA_STORAGE_ERROR, None
