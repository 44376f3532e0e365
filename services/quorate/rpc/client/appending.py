"""The client's side of appends: one stream to the leader, and values that share a batch.

Rules:
1. A message is one batch. `Appender` sends it at most once, unless the response, or the lack of a
   connection, shows that nothing was appended: then it is sent to the new leader. Otherwise its
   outcome is unknown, and the caller decides. `idempotent` sends it again.
2. `Coalescer`: values that callers submit while messages are in flight become the next message. Its
   single response gives each caller an offset. This, not parallel calls, makes many callers fast.
3. Messages are sent in their own tasks: a cancelled caller stops waiting and affects no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from quorate.common.batch_layout import HEADER_SIZE
from quorate.common.error_codes import ErrorCode
from quorate.raft.errors import MisuseError
from quorate.records.batch import BatchProducer
from quorate.rpc.client.channels import Channels, Link
from quorate.rpc.client.client_stream import ClientStream
from quorate.rpc.client.framed_call import FramedCalls
from quorate.rpc.client.routing import NOT_LEADER, Address, LeaderSearch
from quorate.rpc.errors import (
    AdminError,
    ClientError,
    ConditionFailedError,
    OutcomeUnknownError,
    TransportError,
    TransportKind,
    renewed,
)
from quorate.rpc.wire.convert_append import decode_append_response, encode_append_request
from quorate.rpc.wire.limits import (
    BATCH_BYTES_MAX,
    CHANGE_TIMEOUT_MS_MAX,
    RECORD_OVERHEAD_BYTES,
    batch_bytes,
    too_large,
)
from quorate.rpc.wire.methods import RPC_METHODS
from quorate.rpc.wire.values import (
    NO_CONDITIONS,
    NOT_APPENDED,
    AppendOutcome,
    AppendResult,
    LogOffsets,
    OpaqueRecord,
)
from quorate.telemetry.context import TRACE_PARENT
from quorate.v1 import quorum_pb2

if TYPE_CHECKING:
    from quorate.telemetry.tracing import Tracing

LOGGER = logging.getLogger(__name__)

APPENDING = RPC_METHODS["AppendStream"]
ANSWER_SLACK_MS = 250
"""How much longer than the server a client waits: the server's timeout error is more precise."""
SHOWN_MAX = 5
"""How many conditions that do not hold an error message names."""
MESSAGES_IN_FLIGHT_MAX = 2
"""For coalesced values. More messages would be smaller, which costs more per value."""
BATCHES_IN_FLIGHT_MAX = 16
"""For batches that callers build themselves."""
MESSAGE_RECORDS_MAX = 16_384
MESSAGE_BYTES_MAX = 1024 * 1024
"""For coalesced values; a single value may be larger, up to a batch's limit."""
CLOSE_WAIT_S = 0.5
WAITING_BYTES_MAX = 64 * 1024 * 1024
"""Values that are submitted and not yet sent; beyond this, callers wait."""
_RECORD_BYTES_MAX = BATCH_BYTES_MAX - HEADER_SIZE


class AppendConnection(ClientStream[AppendOutcome]):
    """One AppendStream to one node. `send` must not be cancelled: gRPC would end the stream.

    has_led: whether the node's last response said that it leads.
    """

    has_led = False

    def __init__(self, link: Link, channels: Channels) -> None:
        super().__init__(
            link, channels, APPENDING.path, quorum_pb2.AppendResponse, decode_append_response
        )

    async def send(
        self,
        records: Sequence[OpaqueRecord],
        timeout_ms: float,
        conditions: LogOffsets = NO_CONDITIONS,
        trace_parent: str = "",
        producer: BatchProducer | None = None,
    ) -> AppendOutcome:
        """Send a batch and wait for its response.

        trace_parent: the span that it belongs to. producer: its place in its producer session, None
        without one. Raises TransportError, whose `nothing_done` is reliable.
        """
        left_ms = min(max(1, int(timeout_ms)), CHANGE_TIMEOUT_MS_MAX)

        def encode(correlation_id: int) -> quorum_pb2.AppendRequest:
            return encode_append_request(
                correlation_id, records, left_ms, trace_parent, conditions, producer=producer
            )

        return await self._ask(encode, timeout_ms + ANSWER_SLACK_MS)


class Appender:
    """Sends batches to the current leader. Each is a span of `tracing`, if given.

    framed_calls: opens connections without gRPC; None to use gRPC only.
    """

    def __init__(
        self,
        search: LeaderSearch,
        channels: Channels,
        tracing: Tracing | None = None,
        framed_calls: FramedCalls | None = None,
    ) -> None:
        self._tracing = tracing
        self._framed_calls = framed_calls
        self._search = search
        self._channels = channels
        self._connections: dict[Address, AppendConnection] = {}
        self._tasks: set[asyncio.Task[AppendResult]] = set()

    def start(self, append: Coroutine[Any, Any, AppendResult]) -> asyncio.Task[AppendResult]:
        """Run an append in a task of its own, which ends at commit. See `QuorumClient.append`."""
        task = asyncio.create_task(append)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[AppendResult]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # marks it retrieved: the caller may be gone

    async def append(
        self,
        records: Sequence[OpaqueRecord],
        timeout_ms: float,
        conditions: LogOffsets = NO_CONDITIONS,
    ) -> AppendResult:
        """Append one batch in the caller's task, which must not be cancelled."""
        return await self.traced(self.append_once, records, timeout_ms, conditions)

    async def traced(
        self,
        append: Callable[[Sequence[OpaqueRecord], float, LogOffsets], Awaitable[AppendResult]],
        records: Sequence[OpaqueRecord],
        timeout_ms: float,
        conditions: LogOffsets,
    ) -> AppendResult:
        """Append a batch of an allowed size with `append`, within a span."""
        size = batch_bytes(records)
        if size > BATCH_BYTES_MAX:
            raise AdminError(ErrorCode.MESSAGE_TOO_LARGE, too_large(size, BATCH_BYTES_MAX))
        if self._tracing is None:
            return await append(records, timeout_ms, conditions)
        with self._tracing.calling("quorate.append", {"quorate.records": len(records)}) as span:
            result = await append(records, timeout_ms, conditions)
            span.set_attribute("quorate.base_offset", result.base_offset)
            return result

    async def append_once(
        self, records: Sequence[OpaqueRecord], timeout_ms: float, conditions: LogOffsets
    ) -> AppendResult:
        """Append a batch without a span of its own."""
        try:
            outcome = await self._search.ask(
                lambda address, left_ms: self._send(address, records, left_ms, conditions),
                timeout_ms,
                may_repeat=APPENDING.is_repeatable,
            )
        except TransportError as error:
            if error.kind is TransportKind.TOO_LARGE:
                raise AdminError(ErrorCode.MESSAGE_TOO_LARGE, error.text) from None
            text = f"an append of {len(records)} records may or may not be committed: {error}"
            raise OutcomeUnknownError(text) from None
        if outcome.error is ErrorCode.NONE:
            return AppendResult(outcome.base_offset, outcome.epoch)
        if outcome.error in NOT_APPENDED:
            raise rejection(outcome)
        raise OutcomeUnknownError(
            f"an append of {len(records)} records may or may not be committed: "
            f"{outcome.error.name} {outcome.message}".rstrip()
        )

    async def _send(
        self,
        address: Address,
        records: Sequence[OpaqueRecord],
        timeout_ms: float,
        conditions: LogOffsets,
    ) -> AppendOutcome:
        connection = await self.connection(address, timeout_ms)
        outcome = await connection.send(records, timeout_ms, conditions, TRACE_PARENT.get())
        if outcome.error in NOT_LEADER and connection.is_idle:
            await connection.close()
        return outcome

    async def connection(self, address: Address, timeout_ms: float) -> AppendConnection:
        """An open stream to a node. Raises TransportError: nothing was sent."""
        connection = self._connections.get(address)
        if connection is not None and connection.is_open:
            return connection
        link = await self._channels.connect(*address, timeout_ms)
        connection = self._connections.get(address)
        if connection is not None and connection.is_open:
            # Another task was faster.
            self._channels.release(link)
            return connection
        connection = self._connections[address] = AppendConnection(link, self._channels)
        if self._framed_calls is not None:
            self._framed_calls.serve(connection, link, quorum_pb2.AppendResponse)
        return connection

    async def close(self) -> None:
        # Meanwhile an append in flight may connect to another node.
        for connection in list(self._connections.values()):
            await connection.close()
        if self._framed_calls is not None:
            await self._framed_calls.close()
        await _wind_up(self._tasks)


def rejection(outcome: AppendOutcome) -> AdminError:
    """The error of an append that the leader has rejected."""
    if outcome.error is ErrorCode.CONDITION_FAILED:
        actual = outcome.actual
        return ConditionFailedError(_described(actual), actual.last, dict(actual.keys))
    return AdminError(outcome.error, outcome.message)


def _described(actual: LogOffsets) -> str:
    """The actual offsets, for an error message."""
    parts = [f"the last record of key {key!r} is at offset {offset}" for key, offset in actual.keys]
    if actual.last is not None:
        parts.append(f"the last record of the log is at offset {actual.last}")
    shown = parts[:SHOWN_MAX] + ["…"] * (len(parts) > SHOWN_MAX)
    return "; ".join(shown)


async def _wind_up(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Wait for tasks to end with their closed connection; cancel those that do not."""
    if tasks:
        _, left = await asyncio.wait(list(tasks), timeout=CLOSE_WAIT_S)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)


@dataclass(slots=True)
class _WaitingAppend:
    """One caller's value."""

    record: OpaqueRecord
    size: int
    offset: asyncio.Future[int]


def _fail(appends: Iterable[_WaitingAppend], error: ClientError) -> None:
    """Fail the appends of all callers that still wait."""
    for waiting in appends:
        if not waiting.offset.done():
            waiting.offset.set_exception(renewed(error))


class Coalescer:
    """Groups single values into messages (rule 2). `send` appends a batch."""

    def __init__(self, send: Callable[[list[OpaqueRecord]], Awaitable[AppendResult]]) -> None:
        self._send = send
        self._waiting: deque[_WaitingAppend] = deque()
        self._waiting_bytes = 0
        self._in_flight = 0
        self._is_scheduled = False
        self._room = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def append(self, record: OpaqueRecord) -> int:
        """Commit one record and return its offset. Raises as `QuorumClient.append`."""
        key, value = record
        size = len(key or b"") + len(value or b"") + RECORD_OVERHEAD_BYTES
        if size > _RECORD_BYTES_MAX:
            text = too_large(size + HEADER_SIZE, BATCH_BYTES_MAX)
            raise AdminError(ErrorCode.MESSAGE_TOO_LARGE, text)
        while self._waiting_bytes > WAITING_BYTES_MAX:
            self._room.clear()
            await self._room.wait()
        if self._is_closed:
            raise MisuseError("the client is closed")
        loop = asyncio.get_running_loop()
        offset: asyncio.Future[int] = loop.create_future()
        self._waiting.append(_WaitingAppend(record, size, offset))
        self._waiting_bytes += size
        if not self._is_scheduled and self._in_flight < MESSAGES_IN_FLIGHT_MAX:
            # Deferred, so that callers woken by the same response share a message again.
            self._is_scheduled = True
            loop.call_soon(self._flush)
        return await offset

    def _flush(self) -> None:
        self._is_scheduled = False
        while self._waiting and self._in_flight < MESSAGES_IN_FLIGHT_MAX:
            taken = self._take()
            if taken:
                self._in_flight += 1
                task = asyncio.create_task(self._carry(taken))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        if self._waiting_bytes <= WAITING_BYTES_MAX:
            self._room.set()

    def _take(self) -> list[_WaitingAppend]:
        """The next message: as many values as fit, at least one, in the order of arrival."""
        taken: list[_WaitingAppend] = []
        size = 0
        while self._waiting and len(taken) < MESSAGE_RECORDS_MAX:
            waiting = self._waiting[0]
            if taken and size + waiting.size > MESSAGE_BYTES_MAX:
                break
            self._waiting.popleft()
            self._waiting_bytes -= waiting.size
            if not waiting.offset.done():
                taken.append(waiting)
                size += waiting.size
        return taken

    async def close(self) -> None:
        """Stop sending: waiting values fail, and messages in flight are abandoned."""
        self._is_closed = True
        _fail(self._waiting, ClientError("the client was closed before this was sent"))
        self._waiting.clear()
        self._waiting_bytes = 0
        self._room.set()
        await _wind_up(self._tasks)

    async def _carry(self, taken: list[_WaitingAppend]) -> None:
        try:
            result = await self._send([waiting.record for waiting in taken])
        except ClientError as error:
            _fail(taken, error)
        except asyncio.CancelledError:
            _fail(taken, OutcomeUnknownError("the client was closed"))
            raise
        except Exception as error:
            LOGGER.exception("appending %d values failed", len(taken))
            _fail(taken, OutcomeUnknownError(f"appending failed: {error!r}"))
        else:
            for offset, waiting in enumerate(taken, result.base_offset):
                if not waiting.offset.done():
                    waiting.offset.set_result(offset)
        finally:
            self._in_flight -= 1
            if self._waiting and not self._is_scheduled:
                self._is_scheduled = True
                asyncio.get_running_loop().call_soon(self._flush)
