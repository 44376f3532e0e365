"""One stream of a following read, and the watchers that take its chunks at their own pace.

It keeps a window of recent chunks for them; `watching` gives the rules.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from operator import attrgetter

from quorate.rpc.client.following import DecodedChunk, LogStream
from quorate.rpc.errors import ClientError, renewed

WINDOW_BYTES = 1 << 20
"""Memory of the chunks that a stream keeps; the newest may be larger."""

_next_offset = attrgetter("next_offset")


class SharedStream:
    """A stream, its window of recent chunks, and the watchers that take them.

    on_end: called once, when the stream is over. keeps_window: also keep chunks that all watchers
    have taken.
    """

    def __init__(self, source: LogStream, on_end: Callable[[SharedStream], None]) -> None:
        self.keeps_window = False
        self._source = source
        self._on_end = on_end
        self._start = source.position
        """The offset at which the window begins."""
        self._chunks: deque[DecodedChunk] = deque()
        self._first = 0
        """The number of the first chunk of the window."""
        self._bytes = 0
        self._cursors: set[StreamCursor] = set()
        self._waiting: set[asyncio.Future[None]] = set()
        self._wanted = asyncio.Event()
        self._error: Exception | None = None
        self._is_over = False
        self.task = asyncio.create_task(self._run())

    @property
    def is_served(self) -> bool:
        return self._source.is_served

    @property
    def is_at_end(self) -> bool:
        return self._source.is_at_end

    @property
    def is_ahead(self) -> bool:
        return self._source.is_ahead

    def covers(self, position: int) -> bool:
        """Whether a watcher at the position can join."""
        source = self._source
        is_near = position <= source.position or source.is_at_end
        return source.is_served and self._start <= position and is_near

    def join(self, position: int) -> StreamCursor:
        """A cursor that begins with the first chunk that goes beyond the position."""
        index = bisect_right(self._chunks, position, key=_next_offset)
        cursor = StreamCursor(self, self._first + index)
        self._cursors.add(cursor)
        return cursor

    def leave(self, cursor: StreamCursor) -> None:
        self._cursors.discard(cursor)
        if not self._cursors:
            self.close()

    def has(self, number: int) -> bool:
        """Whether the chunk has arrived."""
        return number < self._first + len(self._chunks)

    async def take(self, number: int, position: int) -> DecodedChunk | None:
        """The chunk, once it is there; None if this stream does not have it, or no longer.

        Raises the error with which the stream failed at the position.
        """
        while not self.has(number):
            if self._is_over:
                if self._error is not None and position <= self._source.position:
                    error = self._error
                    raise renewed(error) if isinstance(error, ClientError) else error
                return None
            await self._arrival()
        return self._chunks[number - self._first] if number >= self._first else None

    def close(self) -> None:
        """End the stream. What is in its window can still be taken."""
        if self._is_over:
            return
        self._is_over = True
        self.task.cancel()
        self._source.close()
        self._on_end(self)
        self._wake()

    async def _arrival(self) -> None:
        """Wait until a chunk has arrived, or the stream is over."""
        # A future for each watcher: the cancellation of one must not reach the others.
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.add(waiter)
        self._wanted.set()
        try:
            await waiter
        finally:
            self._waiting.discard(waiter)

    def _wake(self) -> None:
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)
        self._waiting.clear()

    async def _run(self) -> None:
        try:
            while True:
                await self._wanted.wait()
                self._add(await self._source.next())
        except Exception as error:
            self._error = error
        finally:
            self.close()

    def _add(self, chunk: DecodedChunk) -> None:
        self._chunks.append(chunk)
        self._bytes += chunk.size_bytes
        self._wanted.clear()
        self._wake()
        needed = self._first
        if not self.keeps_window:
            needed = min((cursor.number for cursor in self._cursors), default=needed)
        while len(self._chunks) > 1 and (self._first < needed or self._bytes > WINDOW_BYTES):
            gone = self._chunks.popleft()
            self._bytes -= gone.size_bytes
            self._start = gone.next_offset
            self._first += 1
        # Watchers that were left behind may be busy for long: they do not keep the stream open.
        self._cursors = {each for each in self._cursors if each.number >= self._first}
        if not self._cursors:
            self.close()


class StreamCursor:
    """A watcher's place in a stream: the number of its next chunk."""

    __slots__ = ("number", "stream")

    def __init__(self, stream: SharedStream, number: int) -> None:
        self.stream = stream
        self.number = number

    @property
    def has_all(self) -> bool:
        """Whether the watcher has taken all chunks that have arrived."""
        return not self.stream.has(self.number)

    async def next(self, position: int) -> DecodedChunk | None:
        """The next chunk; None if the watcher, at that position, needs another stream."""
        chunk = await self.stream.take(self.number, position)
        self.number += 1
        return chunk

    def leave(self) -> None:
        self.stream.leave(self)
