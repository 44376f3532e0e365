"""Connections to brokers. Each has an ordered queue, whose requests are delivered or superseded.

Rules:
1. At most one request is in flight per connection; the next is sent after the response to the last.
2. A request without a response is retried on a new connection with exponential backoff, for as long
   as the broker is registered: control requests are idempotent.
3. If more than `QUEUE_MAX` requests are pending, they are dropped. The full state replaces them; it
   is fetched with `renew` when the broker is connected again.
4. A request that the broker rejects is logged and not retried: the broker knows a later controller,
   or has another epoch. In both cases it will be sent the full state.

Source: Kafka's ControllerChannelManager.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from quorate.bridge.messages import schemas as s
from quorate.bridge.messages import zookeeper_messages as zk
from quorate.bridge.propagation.control_requests import Message
from quorate.rpc.cancellation import cancel_tasks
from quorate.rpc.errors import BadMessageError
from quorate.rpc.framing.frame_stream import FrameStream, connect
from quorate.runtime.tasks import explained, supervise

LOGGER = logging.getLogger(__name__)

QUEUE_MAX = 1_000
CONNECT_S = 5.0
ANSWER_S = 30.0
PAUSE_S = 0.1
PAUSE_S_MAX = 5.0

Renew = Callable[[int], Awaitable[Sequence[Message]]]
"""Returns requests with the current full state for a broker."""


class Channel:
    """The connection to one broker, for one broker epoch."""

    def __init__(
        self, broker_id: int, epoch: int, address: tuple[str, int], client_id: str, renew: Renew
    ) -> None:
        self.broker_id = broker_id
        self.epoch = epoch
        self.address = address
        self._client_id = client_id
        self._renew = renew
        self._queue: deque[Message] = deque()
        self._must_renew = False
        self._has_dropped = False
        self._pause_s = PAUSE_S
        self._was_lost = False
        self._wake = asyncio.Event()
        self._correlation = itertools.count(1)
        self._task = supervise(self._run(), f"bridge-broker-{broker_id}", self._failed)

    @property
    def waiting(self) -> int:
        """The number of pending requests; a pending full state counts as one."""
        return len(self._queue) + self._must_renew

    def send(self, messages: Sequence[Message]) -> None:
        """Append requests to the queue."""
        if self._must_renew:
            self._has_dropped = True
            return
        self._queue.extend(messages)
        if len(self._queue) > QUEUE_MAX:
            LOGGER.warning(
                "bridge: %d requests are pending for broker %d: it will receive the full state "
                "instead",
                len(self._queue),
                self.broker_id,
            )
            self._queue.clear()
            self._must_renew = True
        self._wake.set()

    def _failed(self, error: BaseException) -> None:
        """Restart the task with the full state; without it the broker would receive nothing."""
        LOGGER.error(
            "bridge: broker %d: %s: starting over with the full state", self.broker_id, error
        )
        self._must_renew = True
        self._task = supervise(self._run(), f"bridge-broker-{self.broker_id}", self._failed)

    async def close(self) -> None:
        await cancel_tasks(self._task)

    async def _run(self) -> None:
        while True:
            await self._something()
            try:
                async with asyncio.timeout(CONNECT_S):
                    stream = await connect(FrameStream(), *self.address)
            except (OSError, TimeoutError) as error:
                reason = str(error) or "the connection timed out"
            else:
                reason = await self._converse(stream)
            if not self._was_lost:
                LOGGER.warning(
                    "bridge: broker %d at %s:%d: %s", self.broker_id, *self.address, reason
                )
                self._was_lost = True
            await asyncio.sleep(self._pause_s)
            self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)

    def _responded(self) -> None:
        """End the backoff. A connection alone does not: its broker may reject every request."""
        if self._was_lost:
            LOGGER.info("bridge: broker %d is reachable again", self.broker_id)
        self._was_lost = False
        self._pause_s = PAUSE_S

    async def _something(self) -> None:
        while not self.waiting:
            self._wake.clear()
            await self._wake.wait()

    async def _converse(self, stream: FrameStream) -> str:
        """Send requests until the connection fails; returns the reason."""
        try:
            while True:
                await self._something()
                if self._must_renew:
                    await self._take_everything()
                    continue
                message = self._queue[0]
                await self._exchange(message, stream)
                self._responded()
                if self._queue and self._queue[0] is message:
                    self._queue.popleft()
        except (OSError, TimeoutError) as error:
            return str(error) or "the response timed out"
        except BadMessageError as error:
            return str(error)
        except Exception as error:
            # The request in flight may be the one that cannot be sent: replace the queue.
            self._queue.clear()
            self._must_renew = True
            return str(explained(error, "a request failed"))
        finally:
            stream.abort()

    async def _take_everything(self) -> None:
        """Queue the full state (rule 3).

        If `send` drops requests meanwhile, the full state may lack their changes. It is then
        fetched again, so that the broker never receives older state after newer.
        """
        while self._must_renew:
            self._has_dropped = False
            messages = await self._renew(self.broker_id)
            if not self._has_dropped:
                self._must_renew = False
                self._queue.extend(messages)

    async def _exchange(self, message: Message, stream: FrameStream) -> None:
        version = zk.VERSIONS[message.api_key]
        correlation_id = next(self._correlation)
        header = s.write_header(message.api_key, version, correlation_id, self._client_id)
        await stream.send(header + message.body)
        frame = await stream.frame(ANSWER_S)
        if frame is None:
            raise ConnectionResetError("the broker closed the connection")
        found, response = s.read_response(message.api_key, version, bytes(frame))
        if found != correlation_id:
            raise BadMessageError(
                f"a response with correlation id {found} instead of {correlation_id}"
            )
        self._note(message, response)

    def _note(self, message: Message, response: Any) -> None:
        refused = sorted({error.name for error in _errors(response)})
        if refused:
            LOGGER.warning(
                "bridge: broker %d responded with %s to %s",
                self.broker_id,
                ", ".join(refused),
                message.summary,
            )
        else:
            LOGGER.debug("bridge: broker %d accepted %s", self.broker_id, message.summary)


def _errors(response: Any) -> list[Any]:
    """Every error in a response to a control request."""
    parts = [response]
    for topic in getattr(response, "topics", ()):
        parts.extend(topic.partition_errors)
    parts.extend(getattr(response, "partition_errors", ()))
    return [part.error_code for part in parts if int(part.error_code) != 0]
