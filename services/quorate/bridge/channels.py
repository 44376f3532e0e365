"""Connections to brokers: one ordered queue each, and everything in it arrives or is made needless.

Rules:
1. One request at a time and connection; the next goes when the answer to the last is there.
2. A request without an answer is sent again on a new connection, after a growing pause, for as long
   as the broker is registered: control requests may be repeated.
3. More than `QUEUE_MAX` waiting requests are dropped, and all there is takes their place when the
   broker answers again: it is asked for then, with `renew`.
4. What the broker refuses is logged and not repeated: it has heard of a later controller or has
   another epoch by now, and then somebody tells it everything anyway.

Source: Kafka's ControllerChannelManager.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from quorate.bridge import schemas as s
from quorate.bridge.frames import read_frame, write_frame
from quorate.bridge.telling import Message
from quorate.runtime.tasks import explained, supervise

LOGGER = logging.getLogger(__name__)

QUEUE_MAX = 1_000
CONNECT_S = 5.0
ANSWER_S = 30.0
PAUSE_S = 0.1
PAUSE_S_MAX = 5.0

Renew = Callable[[int], Awaitable[Sequence[Message]]]
"""Everything that a broker should know, as it is now."""


class Channel:
    """To one broker in one of its lives (epoch)."""

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
        self._wake = asyncio.Event()
        self._correlation = itertools.count(1)
        self._task = supervise(self._run(), f"bridge-broker-{broker_id}", self._failed)

    @property
    def waiting(self) -> int:
        """How many requests the broker has not answered yet."""
        return len(self._queue) + self._must_renew

    def send(self, messages: Sequence[Message]) -> None:
        """Queue requests behind those that wait."""
        if self._must_renew:
            self._has_dropped = True
            return
        self._queue.extend(messages)
        if len(self._queue) > QUEUE_MAX:
            LOGGER.warning(
                "bridge: %d requests wait for broker %d: it will be told everything instead",
                len(self._queue),
                self.broker_id,
            )
            self._queue.clear()
            self._must_renew = True
        self._wake.set()

    def _failed(self, error: BaseException) -> None:
        """Without its channel the broker would not be told of anything any more."""
        LOGGER.error("bridge: broker %d: %s: begins again", self.broker_id, error)
        self._must_renew = True
        self._task = supervise(self._run(), f"bridge-broker-{self.broker_id}", self._failed)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        pause_s = PAUSE_S
        was_lost = False
        while True:
            await self._something()
            try:
                async with asyncio.timeout(CONNECT_S):
                    reader, writer = await asyncio.open_connection(*self.address)
            except (OSError, TimeoutError) as error:
                reason = str(error) or "no connection in time"
            else:
                if was_lost:
                    LOGGER.info("bridge: broker %d answers again", self.broker_id)
                was_lost = False
                pause_s = PAUSE_S
                reason = await self._converse(reader, writer)
            if not was_lost:
                LOGGER.warning(
                    "bridge: broker %d at %s:%d: %s", self.broker_id, *self.address, reason
                )
                was_lost = True
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    async def _something(self) -> None:
        while not self.waiting:
            self._wake.clear()
            await self._wake.wait()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        """Send until the connection breaks; why it did."""
        try:
            while True:
                await self._something()
                if self._must_renew:
                    await self._take_everything()
                    continue
                message = self._queue[0]
                await self._exchange(message, reader, writer)
                if self._queue and self._queue[0] is message:
                    self._queue.popleft()
        except (OSError, TimeoutError) as error:
            return str(error) or "no answer in time"
        except s.BadMessageError as error:
            return str(error)
        except Exception as error:
            # What was under way may be what cannot be sent: begin again with everything.
            self._queue.clear()
            self._must_renew = True
            return str(explained(error, "a request failed"))
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _take_everything(self) -> None:
        """Rule 3. What was handed over meanwhile may be missing in it: then it is asked for again,
        so that nothing older comes after something newer.
        """
        while self._must_renew:
            self._has_dropped = False
            messages = await self._renew(self.broker_id)
            if not self._has_dropped:
                self._must_renew = False
                self._queue.extend(messages)

    async def _exchange(
        self, message: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        version = s.SENT[message.api_key]
        correlation_id = next(self._correlation)
        header = s.write_header(message.api_key, version, correlation_id, self._client_id)
        write_frame(writer, header + message.body)
        await writer.drain()
        frame = await read_frame(reader, ANSWER_S)
        if frame is None:
            raise ConnectionResetError("the broker closed the connection")
        found, response = s.read_response(message.api_key, version, frame)
        if found != correlation_id:
            raise s.BadMessageError(f"an answer to {found}, and {correlation_id} was asked")
        self._note(message, response)

    def _note(self, message: Message, response: Any) -> None:
        refused = sorted({error.name for error in _errors(response)})
        if refused:
            LOGGER.warning(
                "bridge: broker %d answers %s to %s",
                self.broker_id,
                ", ".join(refused),
                message.summary,
            )
        else:
            LOGGER.debug("bridge: broker %d took %s", self.broker_id, message.summary)


def _errors(response: Any) -> list[Any]:
    """Every error in a response to a control request."""
    parts = [response]
    for topic in getattr(response, "topics", ()):
        parts.extend(topic.partition_errors)
    parts.extend(getattr(response, "partition_errors", ()))
    return [part.error_code for part in parts if int(part.error_code) != 0]
