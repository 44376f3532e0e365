"""The leader's side of appends: one a call, or many under way on a stream, answered as they commit.

Rules:
1. At most `append_messages_in_flight_max` messages and `append_bytes_in_flight_max` bytes of a
   stream are under way; the next message is read when there is room (one message may exceed the
   bytes).
2. An append that has begun is never cancelled, whatever becomes of the call or the stream: its
   answer is dropped if nobody is there to take it.
3. A stream that its client has ended is answered to the last append, then closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

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

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Asked:
    """A message's records, how long its sender waits, in ms, and the size of their batch, in bytes;
    or how it is refused as it stands.
    """

    records: list[OpaqueRecord]
    timeout_ms: int = 0
    size: int = 0
    refused: AppendOutcome | None = None


def decode(message: quorum_pb2.AppendRequest) -> Asked:
    """What a message asks for."""
    try:
        records, timeout_ms = decode_append_request(message)
        return Asked(records, timeout_ms, batch_bytes(records))
    except ViolationError as error:
        refused = AppendOutcome(ErrorCode.INVALID_REQUEST, NO_LEADER, message=str(error))
        return Asked([], refused=refused)


@dataclass(frozen=True, slots=True)
class Appends:
    """What one client appends by one call or stream. `running` collects the appends of all: they
    outlive what they came by (rule 2).
    """

    handler: RaftHandler
    context: grpc.aio.ServicerContext[Any, Any]
    limits: ServerLimits
    running: set[asyncio.Task[Any]]
    asker: Asker | None = None

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """In a task of its own, which whatever becomes of the caller lets end."""
        task = asyncio.create_task(work)
        self.running.add(task)
        task.add_done_callback(self.running.discard)
        return task

    async def serve(self, message: quorum_pb2.AppendRequest) -> quorum_pb2.AppendResponse:
        """Append the batch of a call and wait for its commit."""
        return await asyncio.shield(self.begin(self.answer(message, decode(message))))

    async def answer(
        self, message: quorum_pb2.AppendRequest, asked: Asked
    ) -> quorum_pb2.AppendResponse:
        """The answer to one message, whatever it is."""
        if message.trace_parent:
            TRACE_PARENT.set(message.trace_parent)
        outcome = self._refusal(message, asked) or await self._append(asked)
        return encode_append_response(message.correlation_id, outcome)

    def _refusal(self, message: quorum_pb2.AppendRequest, asked: Asked) -> AppendOutcome | None:
        if self.asker is not None:
            refused = self.asker.refusal(message, message)
            if refused is not None:
                return AppendOutcome(refused.error, NO_LEADER, message=refused.message)
        if asked.size > self.limits.batch_bytes_max:
            text = too_large(asked.size, self.limits.batch_bytes_max)
            return AppendOutcome(ErrorCode.MESSAGE_TOO_LARGE, NO_LEADER, message=text)
        return asked.refused

    async def _append(self, asked: Asked) -> AppendOutcome:
        try:
            return AppendOutcome(*await self.handler.append(asked.records, asked.timeout_ms))
        except Exception as error:
            LOGGER.exception(
                "an append of %d records from %s failed", len(asked.records), self.context.peer()
            )
            text = f"internal error: {type(error).__name__}"
            return AppendOutcome(ErrorCode.UNKNOWN_SERVER_ERROR, NO_LEADER, message=text)


class AppendStream:
    """The messages of one stream."""

    def __init__(self, appends: Appends) -> None:
        self._appends = appends
        self._context = appends.context
        self._limits = appends.limits
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
        asked = decode(message)
        self._messages += 1
        self._bytes += asked.size
        self._appends.begin(self._serve_one(message, asked))

    async def _serve_one(self, message: quorum_pb2.AppendRequest, asked: Asked) -> None:
        try:
            answer = await self._appends.answer(message, asked)
            if self._is_open:
                async with self._write_lock:
                    await self._context.write(answer)
        except Exception as error:
            # gRPC raises many things where the client is gone.
            LOGGER.debug("an append's answer could not be sent: %s", error)
        finally:
            self._messages -= 1
            self._bytes -= asked.size
            self._changed.set()
