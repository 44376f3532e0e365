"""The leader's side of one Append stream: many batches under way, answers as they commit.

Rules:
1. At most `append_messages_in_flight_max` messages and `append_bytes_in_flight_max` bytes of a
   stream are under way; the next message is read when there is room (one message may exceed the
   bytes).
2. An append that has begun is never cancelled, whatever becomes of the stream: its answer is
   dropped if nobody is there to take it.
3. A stream that its client has ended is answered to the last append, then closed.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from quorate.raft.errors import ErrorCode, ViolationError
from quorate.raft.messages import CurrentLeader
from quorate.rpc.channels import EOF
from quorate.rpc.convert_append import decode_append_request, encode_append_response
from quorate.rpc.gate import Asker
from quorate.rpc.handler import RaftHandler
from quorate.rpc.limits import ServerLimits, batch_bytes, too_large
from quorate.rpc.values import AppendOutcome, OpaqueRecord
from quorate.telemetry.context import TRACE_PARENT
from quorate.v1 import quorum_pb2

LOGGER = logging.getLogger(__name__)

NO_LEADER = CurrentLeader(0)

Records = list[OpaqueRecord]


class AppendStream:
    """One stream. `running` collects the appends of all streams: they outlive theirs."""

    def __init__(
        self,
        handler: RaftHandler,
        context: grpc.aio.ServicerContext[Any, Any],
        limits: ServerLimits,
        running: set[asyncio.Task[None]],
        asker: Asker | None = None,
    ) -> None:
        self._handler = handler
        self._context = context
        self._limits = limits
        self._running = running
        self._asker = asker
        self._is_open = True
        self._messages = 0
        self._bytes = 0
        self._changed = asyncio.Event()
        self._write_lock = asyncio.Lock()

    async def serve(self) -> None:
        """Read until the client ends the stream, then wait for what is under way."""
        try:
            while (message := await self._context.read()) is not EOF:
                self._begin(message)
                await self._until(self._has_room)
            await self._until(self._is_drained)
        except DecodeError:
            # What came before it is answered first: gRPC cannot send an answer and the end at once.
            await self._until(self._is_drained)
            raise
        finally:
            self._is_open = False

    def _has_room(self) -> bool:
        return (
            self._messages < self._limits.append_messages_in_flight_max
            and self._bytes < self._limits.append_bytes_in_flight_max
        )

    def _is_drained(self) -> bool:
        return self._messages == 0

    async def _until(self, condition: Any) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    def _begin(self, message: quorum_pb2.AppendRequest) -> None:
        asked: tuple[Records, int] | AppendOutcome
        try:
            asked = decode_append_request(message)
            size = batch_bytes(asked[0])
        except ViolationError as error:
            asked = AppendOutcome(ErrorCode.INVALID_REQUEST, NO_LEADER, message=str(error))
            size = 0
        self._messages += 1
        self._bytes += size
        task = asyncio.create_task(self._serve_one(message, asked, size))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _serve_one(
        self,
        message: quorum_pb2.AppendRequest,
        asked: tuple[Records, int] | AppendOutcome,
        size: int,
    ) -> None:
        """asked: the records and the time to wait, or what there is to answer already."""
        if message.trace_parent:
            TRACE_PARENT.set(message.trace_parent)
        try:
            outcome = self._refusal(message, size)
            if outcome is None:
                outcome = asked if isinstance(asked, AppendOutcome) else await self._append(*asked)
            if self._is_open:
                async with self._write_lock:
                    await self._context.write(
                        encode_append_response(message.correlation_id, outcome)
                    )
        except Exception as error:
            # gRPC raises many things where the client is gone.
            LOGGER.debug("an append's answer could not be sent: %s", error)
        finally:
            self._messages -= 1
            self._bytes -= size
            self._changed.set()

    def _refusal(self, message: quorum_pb2.AppendRequest, size: int) -> AppendOutcome | None:
        if self._asker is not None:
            refused = self._asker.refusal(message, message)
            if refused is not None:
                return AppendOutcome(refused.error, NO_LEADER, message=refused.message)
        if size > self._limits.batch_bytes_max:
            text = too_large(size, self._limits.batch_bytes_max)
            return AppendOutcome(ErrorCode.MESSAGE_TOO_LARGE, NO_LEADER, message=text)
        return None

    async def _append(self, records: Records, timeout_ms: int) -> AppendOutcome:
        try:
            return AppendOutcome(*await self._handler.append(records, timeout_ms))
        except Exception as error:
            LOGGER.exception(
                "an append of %d records from %s failed", len(records), self._context.peer()
            )
            text = f"internal error: {type(error).__name__}"
            return AppendOutcome(ErrorCode.UNKNOWN_SERVER_ERROR, NO_LEADER, message=text)
