"""Appends of clients: validated here, encoded once as one batch, and passed to who appends them.

Records with a key belong to applications, records without a key are metadata.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from quorate.common.batch_layout import NO_PRODUCER_ID
from quorate.common.error_codes import ErrorCode
from quorate.metadata.managers.controller_context import RefusedError
from quorate.raft.messages import CurrentLeader
from quorate.records.batch import NO_PRODUCER, BatchProducer, build_data_batch, read_header
from quorate.records.metadata import peek
from quorate.rpc.wire.limits import batch_bytes, too_large
from quorate.rpc.wire.values import NO_CONDITIONS, AppendOutcome, LogOffsets, OpaqueRecord
from quorate.runtime.application_service import NOT_FINALIZED, ApplicationService
from quorate.runtime.driver import RaftDriver
from quorate.runtime.metadata_service import MetadataService
from quorate.runtime.pending_appends import Commit, CommitOutcome

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from quorate.runtime.tracing import WriteTraces

_KEY, _VALUE = itemgetter(0), itemgetter(1)
"""Of a record."""


class _Batch(NamedTuple):
    """A batch of application records to append."""

    data: bytearray
    record_count: int
    conditions: LogOffsets
    has_session: bool
    """Whether the batch belongs to a producer session."""
    has_null_values: bool

    @property
    def needs_state(self) -> bool:
        """Whether the state of applications decides about the batch."""
        return bool(self.conditions) or self.has_session or self.has_null_values


class AppendService:
    """Appends the records of clients on the leader. For the arguments, see `NodeService`."""

    def __init__(
        self,
        driver: RaftDriver,
        metadata: MetadataService | None,
        applications: ApplicationService | None,
        *,
        batch_bytes_max: int,
        pending_bytes_max: int,
    ) -> None:
        self._driver = driver
        self._metadata = metadata
        self._applications = applications
        self._batch_bytes_max = batch_bytes_max
        self._pending_bytes_max = pending_bytes_max

    async def append(
        self,
        records: Sequence[OpaqueRecord],
        timeout_ms: int,
        conditions: LogOffsets = NO_CONDITIONS,
        producer: BatchProducer | None = None,
    ) -> AppendOutcome:
        """Append one atomic batch and wait for its commit (see `rpc.wire.values.AppendOutcome`)."""
        if self._driver.traces is None:
            return await self._append(records, timeout_ms, conditions, producer)
        append = partial(self._append, records, timeout_ms, conditions, producer)
        return await self._traced(self._driver.traces, len(records), append)

    async def append_batch(
        self, batch: bytearray, timeout_ms: int, *, has_null_values: bool
    ) -> AppendOutcome:
        """Append a batch of application records that a client has encoded, and wait for its commit.

        The batch was verified, and its records have keys. Its producer is a session, or none.
        """
        if self._driver.traces is None:
            return await self._append_batch(batch, timeout_ms, has_null_values)
        append = partial(self._append_batch, batch, timeout_ms, has_null_values)
        return await self._traced(self._driver.traces, read_header(batch).count, append)

    async def _traced(
        self, traces: WriteTraces, count: int, append: Callable[[Span], Awaitable[AppendOutcome]]
    ) -> AppendOutcome:
        with traces.serving("quorate.leader.append", **{"quorate.records": count}) as span:
            outcome = await append(span)
            span.set_attribute("quorate.error", outcome.error.name)
            return outcome

    async def _append(
        self,
        records: Sequence[OpaqueRecord],
        timeout_ms: int,
        conditions: LogOffsets,
        producer: BatchProducer | None,
        span: Span | None = None,
    ) -> AppendOutcome:
        refusal = self._refuse(records, bool(conditions) or producer is not None)
        if refusal is not None:
            return AppendOutcome(refusal[0], self._leader, message=refusal[1])
        if records[0][0] is None and self._metadata is not None:
            return await self._append_metadata(records, timeout_ms, self._metadata)
        now_ms = time.time_ns() // 1_000_000
        try:
            data = build_data_batch(records, now_ms, producer or NO_PRODUCER)
        except ValueError:  # it is too large
            text = too_large(batch_bytes(records), self._batch_bytes_max)
            return AppendOutcome(ErrorCode.MESSAGE_TOO_LARGE, self._leader, message=text)
        refusal = self._refuse_size(len(data))
        if refusal is not None:
            return AppendOutcome(refusal[0], self._leader, message=refusal[1])
        has_null_values = None in map(_VALUE, records)
        batch = _Batch(data, len(records), conditions, producer is not None, has_null_values)
        return await self._append_of_application(batch, timeout_ms, span)

    async def _append_batch(
        self, data: bytearray, timeout_ms: int, has_null_values: bool, span: Span | None = None
    ) -> AppendOutcome:
        refusal = self._refuse_size(len(data))
        if refusal is not None:
            return AppendOutcome(refusal[0], self._leader, message=refusal[1])
        header = read_header(data)
        has_session = header.producer_id != NO_PRODUCER_ID
        batch = _Batch(data, header.count, NO_CONDITIONS, has_session, has_null_values)
        return await self._append_of_application(batch, timeout_ms, span)

    @property
    def _leader(self) -> CurrentLeader:
        return self._driver.node.current_leader

    async def _append_metadata(
        self, records: Sequence[OpaqueRecord], timeout_ms: int, metadata: MetadataService
    ) -> AppendOutcome:
        """Append records without a key."""
        values = [value or b"" for _, value in records]
        code, base, text = await metadata.append_records(values, timeout_ms, from_client=True)
        if code is ErrorCode.NOT_CONTROLLER:
            # With a message, the records were appended before leadership was lost.
            code = ErrorCode.REQUEST_TIMED_OUT if text else ErrorCode.NOT_LEADER_OR_FOLLOWER
        return AppendOutcome(code, self._leader, base, text)

    async def _append_of_application(
        self, batch: _Batch, timeout_ms: int, span: Span | None
    ) -> AppendOutcome:
        """Append records with keys."""
        try:
            ended = await self._append_keyed(batch, timeout_ms, span)
        except RefusedError as refused:
            return AppendOutcome(refused.error, self._leader, message=refused.message)
        leader = self._leader
        if isinstance(ended, LogOffsets):
            text = "a condition does not hold"
            return AppendOutcome(ErrorCode.CONDITION_FAILED, leader, message=text, actual=ended)
        if isinstance(ended, ErrorCode):
            return AppendOutcome(ended, leader)
        base, outcome = ended
        if outcome is CommitOutcome.COMMITTED:
            # Of a batch that was appended before, the epoch may be an earlier one.
            epoch = self._driver.node.epoch_before(base + 1) if batch.has_session else -1
            return AppendOutcome(ErrorCode.NONE, leader, base, epoch=epoch)
        return AppendOutcome(ErrorCode.REQUEST_TIMED_OUT, leader, base, outcome.text)

    async def _append_keyed(
        self, batch: _Batch, timeout_ms: int, span: Span | None
    ) -> Commit | ErrorCode | LogOffsets:
        """Raises RefusedError if Kafka's nodes use this quorum, or a level is missing."""
        count, data = batch.record_count, batch.data
        if batch.needs_state:
            if self._applications is None:
                raise RefusedError(ErrorCode.UNSUPPORTED_VERSION, NOT_FINALIZED)
            return await self._applications.append(count, data, timeout_ms, batch.conditions, span)
        if self._metadata is None or self._metadata.has_applications:
            return await self._driver.append(count, data, timeout_ms, span)
        ended = await self._metadata.append_application(count, data, timeout_ms, span)
        assert ended is not None, "nothing was checked that could reject it"
        return ended

    def _refuse(
        self, records: Sequence[OpaqueRecord], is_checked: bool
    ) -> tuple[ErrorCode, str] | None:
        if not records and self._driver.node.is_leader:
            return ErrorCode.INVALID_REQUEST, "an append needs at least one record"
        refusal = self._refuse_size(0)
        if refusal is not None:
            return refusal
        if None not in map(_KEY, records):
            return None
        keyless = [index for index, (key, _) in enumerate(records) if key is None]
        if len(keyless) < len(records):
            text = f"record {keyless[0]} has no key, but others do: one batch cannot hold both"
            return ErrorCode.INVALID_RECORD, text
        if is_checked:
            text = "conditions and producer sessions need records with a key"
            return ErrorCode.INVALID_REQUEST, text
        for index in keyless:
            if peek(records[index][1] or b"") is None:
                text = (
                    f"record {index} has no key, so it must be a metadata record in Kafka's framing"
                )
                return ErrorCode.INVALID_RECORD, text
        return None

    def _refuse_size(self, size: int) -> tuple[ErrorCode, str] | None:
        """Why no append of `size` bytes is possible here; None if it is."""
        if not self._driver.node.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, ""
        if size > self._batch_bytes_max:
            return ErrorCode.MESSAGE_TOO_LARGE, too_large(size, self._batch_bytes_max)
        pending_bytes = self._driver.pending_appends.pending_bytes
        if pending_bytes + size > self._pending_bytes_max:
            text = f"{pending_bytes} bytes are not committed yet; slow down"
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED, text
        return None
