"""The leader's side of appends, one by one: what a message asks for, and its answer.

They come by calls, or many on a stream (`answered_stream`); either way they outlive what they came
by.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from quorate.raft.errors import ErrorCode, ViolationError
from quorate.raft.messages import CurrentLeader
from quorate.rpc.convert_append import decode_append_request, encode_append_response
from quorate.rpc.gate import Asker, Context
from quorate.rpc.handler import RaftHandler
from quorate.rpc.limits import batch_bytes, too_large
from quorate.rpc.values import AppendOutcome, OpaqueRecord
from quorate.telemetry.context import TRACE_PARENT
from quorate.v1 import quorum_pb2

LOGGER = logging.getLogger(__name__)

NO_LEADER = CurrentLeader(0)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A message's records, how long its sender waits, in ms, and the size of their batch, in bytes;
    or how it is refused as it stands.
    """

    records: list[OpaqueRecord]
    timeout_ms: int = 0
    size: int = 0
    refused: AppendOutcome | None = None


def _decode(message: quorum_pb2.AppendRequest) -> _Asked:
    try:
        records, timeout_ms = decode_append_request(message)
        return _Asked(records, timeout_ms, batch_bytes(records))
    except ViolationError as error:
        refused = AppendOutcome(ErrorCode.INVALID_REQUEST, NO_LEADER, message=str(error))
        return _Asked([], refused=refused)


@dataclass(frozen=True, slots=True)
class Appends:
    """What one client appends by one call or stream."""

    handler: RaftHandler
    context: Context
    batch_bytes_max: int
    asker: Asker | None = None

    def begin(
        self, message: quorum_pb2.AppendRequest
    ) -> tuple[int, Coroutine[Any, Any, quorum_pb2.AppendResponse]]:
        """The size of its batch in bytes, and its append, which ends with the answer at commit."""
        asked = _decode(message)
        return asked.size, self._answer(message, asked)

    async def _answer(
        self, message: quorum_pb2.AppendRequest, asked: _Asked
    ) -> quorum_pb2.AppendResponse:
        if message.trace_parent:
            TRACE_PARENT.set(message.trace_parent)
        outcome = self._refusal(message, asked) or await self._append(asked)
        return encode_append_response(message.correlation_id, outcome)

    def _refusal(self, message: quorum_pb2.AppendRequest, asked: _Asked) -> AppendOutcome | None:
        if self.asker is not None:
            refused = self.asker.refusal(message, message)
            if refused is not None:
                return AppendOutcome(refused.error, NO_LEADER, message=refused.message)
        if asked.size > self.batch_bytes_max:
            text = too_large(asked.size, self.batch_bytes_max)
            return AppendOutcome(ErrorCode.MESSAGE_TOO_LARGE, NO_LEADER, message=text)
        return asked.refused

    async def _append(self, asked: _Asked) -> AppendOutcome:
        try:
            return AppendOutcome(*await self.handler.append(asked.records, asked.timeout_ms))
        except Exception as error:
            LOGGER.exception(
                "an append of %d records from %s failed", len(asked.records), self.context.peer()
            )
            text = f"internal error: {type(error).__name__}"
            return AppendOutcome(ErrorCode.UNKNOWN_SERVER_ERROR, NO_LEADER, message=text)
