"""The leader's side of appends: decodes a message, appends its batch, encodes the response.

Appends arrive as unary calls, or many on a stream (`server_stream`). Either way they outlive the
call or stream.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Any

from quorate.common.batch_layout import HEADER_SIZE
from quorate.common.error_codes import ErrorCode
from quorate.raft.errors import ViolationError
from quorate.records.batch import BatchProducer
from quorate.rpc.server.authorizer import RequestContext
from quorate.rpc.server.handler import RaftHandler
from quorate.rpc.server.intake import read_request
from quorate.rpc.server.server_stream import MessageContext
from quorate.rpc.wire.codec import NO_LEADER
from quorate.rpc.wire.convert_append import (
    correlation_id_of,
    decode_append_request,
    decode_conditions,
    decode_producer,
    encode_append_response,
)
from quorate.rpc.wire.limits import RECORD_OVERHEAD_BYTES, batch_bytes, too_large
from quorate.rpc.wire.methods import RpcMethod
from quorate.rpc.wire.values import NO_CONDITIONS, AppendOutcome, LogOffsets, OpaqueRecord
from quorate.telemetry.context import TRACE_PARENT
from quorate.v1 import quorum_pb2

LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A decoded message."""

    correlation_id: int
    records: list[OpaqueRecord]
    timeout_ms: int = 0
    """The sender's timeout."""
    trace_parent: str = ""
    conditions: LogOffsets = NO_CONDITIONS
    producer: BatchProducer | None = None
    """The place of the batch in its producer session, None without one."""
    refused: AppendOutcome | None = None
    """The outcome of a message that is rejected without an append."""


def _decode(message: quorum_pb2.AppendRequest) -> _Asked:
    number = message.correlation_id
    try:
        records, timeout_ms = decode_append_request(message)
        conditions = decode_conditions(message)
        producer = decode_producer(message)
    except ViolationError as error:
        return _Asked(number, [], refused=_refused(ErrorCode.INVALID_REQUEST, str(error)))
    return _Asked(number, records, timeout_ms, message.trace_parent, conditions, producer)


def _refused(error: ErrorCode, text: str) -> AppendOutcome:
    return AppendOutcome(error, NO_LEADER, message=text)


@dataclass(frozen=True, slots=True)
class AppendHandler:
    """The appends of one client over one call or stream of `method`."""

    handler: RaftHandler
    context: MessageContext
    method: RpcMethod
    batch_bytes_max: int
    request_context: RequestContext | None = None

    async def begin(
        self, data: bytes
    ) -> tuple[int, Coroutine[Any, Any, quorum_pb2.AppendResponse]]:
        """The message's size in bytes, and a coroutine that appends it.

        The coroutine returns the response at commit. Raises DecodeError. A message that is rejected
        before its records are read is answered with its correlation id.
        """
        asked = await self._read(data)
        return len(data), self._answer(asked)

    async def _read(self, data: bytes) -> _Asked:
        if self.request_context is not None:
            refused = self.request_context.refusal(self.method.name)
            if refused is not None:
                return _Asked(correlation_id_of(data), [], refused=_refused(*refused))
        try:
            asked = await read_request(self.method, data, _decode)
        except ViolationError as error:
            text = str(error)
            number = correlation_id_of(data)
            return _Asked(number, [], refused=_refused(ErrorCode.INVALID_REQUEST, text))
        # An upper bound first: to add up the sizes of all records takes longer.
        bound = HEADER_SIZE + len(data) + RECORD_OVERHEAD_BYTES * len(asked.records)
        if bound > self.batch_bytes_max:
            size = batch_bytes(asked.records)
            if size > self.batch_bytes_max:
                text = too_large(size, self.batch_bytes_max)
                return replace(asked, refused=_refused(ErrorCode.MESSAGE_TOO_LARGE, text))
        return asked

    async def _answer(self, asked: _Asked) -> quorum_pb2.AppendResponse:
        if asked.trace_parent:
            TRACE_PARENT.set(asked.trace_parent)
        outcome = asked.refused or await self._append(asked)
        return encode_append_response(asked.correlation_id, outcome)

    async def _append(self, asked: _Asked) -> AppendOutcome:
        try:
            return await self.handler.append(
                asked.records, asked.timeout_ms, asked.conditions, asked.producer
            )
        except Exception as error:
            LOGGER.exception(
                "an append of %d records from %s failed", len(asked.records), self.context.peer()
            )
            text = f"internal error: {type(error).__name__}"
            return AppendOutcome(ErrorCode.UNKNOWN_SERVER_ERROR, NO_LEADER, message=text)
