"""The response stream of a read that follows the log: authorized, bounded, encoded once.

Rules:
1. Every response is authorized: the stream ends when the caller may no longer read the log.
2. A response that many streams send is encoded by the first of them.
3. Responses of more than `SMALL_BYTES` wait for room. They have a room of their own, so that slow
   watchers delay neither replicas nor other reads (see `response_memory`).
4. gRPC cannot discard a pending response of a client that does not read. A stalled stream therefore
   ends with its connection.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from quorate.rpc.principals import host_of
from quorate.rpc.server.authorizer import Context, Denial, RequestContext
from quorate.rpc.server.handler import SharedChunk
from quorate.rpc.server.records_answer import encode_with_records
from quorate.rpc.server.response_memory import ResponseMemory
from quorate.rpc.wire.codecs import CODECS
from quorate.rpc.wire.values import ReadChunk

LOGGER = logging.getLogger(__name__)

READ = CODECS["Read"]


class StreamEndedError(Exception):
    """The client is gone."""


class DeniedError(Exception):
    """The authorizer rejects the call."""

    def __init__(self, refusal: Denial) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class ResponseStream:
    """Implements `WatchStream` for one call. Close it at the call's end."""

    def __init__(
        self, context: Context, request_context: RequestContext | None, memory: ResponseMemory
    ) -> None:
        self.peer = context.peer()
        self.address = host_of(self.peer)
        self.writing_since_s: float | None = None
        self._context = context
        self._request_context = request_context
        self._memory = memory
        self._held = memory.hold(self.peer)
        self._task = asyncio.current_task()

    def close(self) -> None:
        self._held.release()

    def try_reserve(self, size: int) -> bool:
        return self._held.try_reserve(size)

    async def reserve(self, size: int) -> None:
        await self._held.reserve(size)

    async def send(self, shared: SharedChunk) -> int:
        """See `WatchStream.send`. Raises StreamEndedError, DeniedError."""
        if self._request_context is not None:
            refused = self._request_context.refusal(READ.method.name)
            if refused is not None:
                raise DeniedError(refused)
        data = await encoded(shared)
        # By its records, as it was reserved: a call that holds room must not wait for more.
        await self._held.settle(len(shared.chunk.records))
        self.writing_since_s = asyncio.get_running_loop().time()
        try:
            await self._context.write(data)
        except Exception as error:
            # gRPC raises various exceptions if the client is gone.
            raise StreamEndedError from error
        finally:
            self.writing_since_s = None
            self._held.release()
        return len(data)

    def abort(self, reason: str) -> None:
        if self._memory.end is not None:
            self._memory.end(self.peer, reason)
        elif self._task is not None:
            LOGGER.warning("ended a read of %s: %s", self.address, reason)
            self._task.cancel()


async def encoded(shared: SharedChunk) -> bytes:
    """The bytes of a response, encoded once for all streams that send it."""
    if shared.encoded is None:
        shared.encoded = asyncio.ensure_future(encode_chunk(shared.chunk))
    elif shared.encoded.done():
        return shared.encoded.result()
    return await asyncio.shield(shared.encoded)


async def encode_chunk(chunk: ReadChunk) -> bytes:
    """The encoding of one response to Read."""
    rest = READ.encode_response(replace(chunk, records=b""))
    return await encode_with_records(rest, "records", (chunk.records,))
