"""Sends the node's own requests: unary calls, and one FetchStream to the leader.

A Fetch to the leader goes over the stream. If the stream breaks, the node is notified immediately,
as a hint that the leader died. The node has at most one pending Fetch. When its role changes, it
abandons that Fetch, possibly for another one to the same leader in a later epoch; the Fetch that is
parked there ends with its stream. Every other request is a unary call in its own task. The node
sends few of those, and never two of the same kind to one peer at a time.

A node of another cluster is treated like one that does not answer, because its epochs and its
leader have no meaning here. A warning about its address is logged from time to time.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.raft.errors import ViolationError
from quorate.raft.messages import FetchRequest, Response
from quorate.raft.outputs import Send, SendAdmin
from quorate.records.errors import RecordsError
from quorate.rpc.cancellation import cancel_tasks
from quorate.rpc.client.transport import Peers, PeerStream, TransportError
from quorate.runtime.tasks import explained, supervise

LOGGER = logging.getLogger(__name__)

FOREIGN_PERIOD_S = 600.0
"""Interval of the warnings about a peer of another cluster, seconds."""


class Answers(Protocol):
    """Receives the responses; the driver implements it."""

    def answered(self, request_id: int, response: Response) -> None: ...

    def unanswered(self, request_id: int, reason: str, *, refused: bool) -> None: ...

    def connection_lost(self, leader_id: int) -> None: ...

    def fail(self, error: BaseException) -> None: ...


class Outbound:
    """Sends the node's requests and passes their responses to the driver."""

    def __init__(self, transport: Peers) -> None:
        self._transport = transport
        self._answers: Answers | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._fetches: set[asyncio.Task[None]] = set()
        self._stream: PeerStream | None = None
        self._stream_endpoint: Endpoint | None = None
        self._foreign_at: dict[Endpoint, float] = {}

    def bind(self, answers: Answers) -> None:
        self._answers = answers

    def send(self, output: Send | SendAdmin) -> None:
        """Start one request; its response arrives through `Answers`."""
        assert self._answers is not None, "bind() comes first"
        is_stream = isinstance(output, Send) and output.to_leader
        earlier = frozenset(self._fetches)
        task = supervise(
            self._fetch(output, earlier) if is_stream else self._call(output),
            "outbound",
            self._answers.fail,
            endless=False,
        )
        for tasks in (self._tasks, self._fetches) if is_stream else (self._tasks,):
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def close(self) -> None:
        await cancel_tasks(*self._tasks)
        await self._close_stream()
        await self._transport.close()

    async def _call(self, output: Send | SendAdmin) -> None:
        assert self._answers is not None, "bind() comes first"
        try:
            response = await self._transport.call(
                output.endpoint, output.request, output.timeout_ms
            )
        except TransportError as error:
            self._answers.unanswered(output.request_id, str(error), refused=error.refused)
        except (ViolationError, RecordsError) as error:
            LOGGER.warning("%s sent an invalid response: %s", output.endpoint, error)
            self._answers.unanswered(output.request_id, str(error), refused=False)
        except (Exception, asyncio.CancelledError) as error:
            self._broke_off(output, error)
        else:
            self._answered(output, response)

    def _broke_off(self, output: Send | SendAdmin, error: BaseException) -> None:
        """Treat an unexpected error as a request without a response.

        Re-raises a cancellation by the task's owner.
        """
        assert self._answers is not None, "bind() comes first"
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise error
        reason = explained(error, f"{type(output.request).__name__} to {output.endpoint} failed")
        LOGGER.error("%s", reason)
        self._answers.unanswered(output.request_id, str(reason), refused=False)

    async def _fetch(
        self, output: Send | SendAdmin, earlier: frozenset[asyncio.Task[None]]
    ) -> None:
        """Send one Fetch over the stream, and cancel the abandoned fetches `earlier`."""
        assert self._answers is not None, "bind() comes first"
        assert isinstance(output, Send), "only peers are fetched from"
        assert isinstance(output.request, FetchRequest), "only fetches go over the stream"
        under_way = [task for task in earlier if not task.done()]
        for task in under_way:
            task.cancel()
        if under_way:
            await asyncio.wait(under_way)
        try:
            stream = await self._stream_to(output.endpoint, output.replica_id)
            response = await stream.fetch(output.request, output.timeout_ms)
        except TransportError as error:
            await self._close_stream()
            self._answers.unanswered(output.request_id, str(error), refused=error.refused)
        except (ViolationError, RecordsError) as error:
            LOGGER.warning("%s sent an invalid response: %s", output.endpoint, error)
            await self._close_stream()
            self._answers.unanswered(output.request_id, str(error), refused=False)
        except (Exception, asyncio.CancelledError) as error:
            await self._close_stream()
            self._broke_off(output, error)
        else:
            self._answered(output, response)

    def _answered(self, output: Send | SendAdmin, response: Response) -> None:
        assert self._answers is not None, "bind() comes first"
        if response.error is not ErrorCode.INCONSISTENT_CLUSTER_ID:
            self._answers.answered(output.request_id, response)
            return
        endpoint, now_s = output.endpoint, asyncio.get_running_loop().time()
        if now_s >= self._foreign_at.get(endpoint, 0.0):
            self._foreign_at[endpoint] = now_s + FOREIGN_PERIOD_S
            LOGGER.warning(
                "%s belongs to another cluster, this node to %s: its responses are ignored. "
                "Correct controller.quorum.bootstrap.servers, or format an empty directory for "
                "that cluster",
                endpoint,
                output.request.cluster_id,
            )
        self._answers.unanswered(output.request_id, "it belongs to another cluster", refused=False)

    async def _stream_to(self, endpoint: Endpoint, leader_id: int | None) -> PeerStream:
        stream = self._stream
        if stream is not None and stream.is_open and self._stream_endpoint == endpoint:
            return stream
        await self._close_stream()

        def broken(reason: str) -> None:
            LOGGER.info("the stream to leader %s at %s broke: %s", leader_id, endpoint, reason)
            if self._answers is not None and leader_id is not None:
                self._answers.connection_lost(leader_id)

        self._stream = await self._transport.open_fetch_stream(endpoint, broken)
        self._stream_endpoint = endpoint
        return self._stream

    async def _close_stream(self) -> None:
        stream, self._stream, self._stream_endpoint = self._stream, None, None
        if stream is not None:
            await stream.close()
