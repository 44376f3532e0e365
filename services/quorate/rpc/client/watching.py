"""The watchers of one client, which are its reads that follow the log, share streams.

Rules:
1. Watchers at the end of the log share one stream, and those that ask for the leader another one.
   A chunk is decoded and checked once. A watcher takes the records from its position on, so it may
   join a stream that is behind its position: each record comes once.
2. A stream keeps chunks that not all of its watchers have taken. Of the shared stream, it also
   keeps those that all have taken. When these are more than `WINDOW_BYTES`, the oldest goes.
3. A watcher joins a stream only within its window, which has no gaps. If there is no such stream,
   as for one that begins in history, it opens one. It leaves that for the shared one once it has
   reached the end of the log. If there is no shared stream, its own becomes the shared one. One
   that begins beyond the end does so once the log has reached it: others could not join before.
4. A stream reads its next chunk once one of its watchers waits for it, so it goes at the pace of
   the quickest. A slower one that the window has left behind continues as in rule 3.
5. A stream continues at other nodes by itself. A watcher that comes while no node serves it
   opens one, which then becomes the shared one: the timeout applies to each watcher.
6. If a stream fails for good, the watchers that have reached the position where it failed get the
   error. The others continue as in rule 3.
7. A stream ends with its last watcher.
8. Watchers that begin at the same offset at the same time wait a moment for the stream of the
   first, instead of opening one each.

`following` defines what a stream survives.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import replace

from quorate.records.batch import Record
from quorate.rpc.client.following import LogStream, StreamBackoff, StreamOpener
from quorate.rpc.client.routing import now_ms
from quorate.rpc.client.shared_stream import SharedStream, StreamCursor
from quorate.rpc.wire.values import ReadRequest

OPENING_WAIT_S = 1.0
"""How long a watcher waits for the stream that another one opens (rule 8), at most."""


class StreamPool:
    """The streams of one client, of which one is shared by the watchers at the end of the log.

    timeout_ms: of an attempt to continue at another node.
    """

    def __init__(self, opener: StreamOpener, timeout_ms: int) -> None:
        self._opener = opener
        self._timeout_ms = timeout_ms
        self._streams: dict[SharedStream, None] = {}
        self._shared: SharedStream | None = None
        self._opening: dict[int, asyncio.Event] = {}
        """By offset: set once the stream that is being opened there is open, or failed to."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """End all streams."""
        for stream in list(self._streams):
            stream.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def enter(self, request: ReadRequest, deadline_ms: float | None) -> StreamCursor:
        """A place in a stream that covers `request.from_offset`.

        deadline_ms: raise the nodes' errors then if none serves the read; None: never.
        """
        position = request.from_offset
        cursor = self._joined(position)
        opening = self._opening.get(position)
        if cursor is None and opening is not None:
            left_ms = request.timeout_ms if deadline_ms is None else deadline_ms - now_ms()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(OPENING_WAIT_S, left_ms / 2 / 1000)):
                    await opening.wait()
            cursor = self._joined(position)
        return cursor or await self._opened(request, deadline_ms)

    def moved(self, cursor: StreamCursor, position: int) -> StreamCursor:
        """The watcher's place in the shared stream if it has reached that, else where it is."""
        stream = cursor.stream
        if stream is self._shared or not (cursor.has_all and stream.is_at_end):
            return cursor
        shared = self._shared_stream()
        if shared is None or shared is stream or not shared.covers(position):
            return cursor
        cursor.leave()
        return shared.join(position)

    def _shared_stream(self) -> SharedStream | None:
        """The stream at the end of the log that the others join, if there is one."""
        if self._shared is None or not self._shared.is_served:
            for stream in self._streams:
                if stream.is_served and stream.is_at_end and not stream.is_ahead:
                    stream.keeps_window = True
                    self._shared = stream
                    break
        return self._shared

    def _joined(self, position: int) -> StreamCursor | None:
        shared = self._shared_stream()
        if shared is not None and shared.covers(position):
            return shared.join(position)
        found = next((each for each in self._streams if each.covers(position)), None)
        return None if found is None else found.join(position)

    async def _opened(self, request: ReadRequest, deadline_ms: float | None) -> StreamCursor:
        position = request.from_offset
        opening = self._opening.setdefault(position, asyncio.Event())
        try:
            opened = await self._opener.open(request, deadline_ms, StreamBackoff())
        finally:
            opening.set()
            if self._opening.get(position) is opening:
                del self._opening[position]
        source = LogStream(self._opener, replace(request, timeout_ms=self._timeout_ms), opened)
        stream = SharedStream(source, self._ended)
        self._streams[stream] = None
        self._tasks.add(stream.task)
        stream.task.add_done_callback(self._tasks.discard)
        return stream.join(position)

    def _ended(self, stream: SharedStream) -> None:
        del self._streams[stream]
        if self._shared is stream:
            self._shared = None


class LogFollower:
    """The following reads of one client. timeout_ms: as for `StreamPool`."""

    def __init__(self, opener: StreamOpener, timeout_ms: int) -> None:
        # By whether the leader must serve them.
        self._pools = {each: StreamPool(opener, timeout_ms) for each in (False, True)}

    async def close(self) -> None:
        """End all streams, once the channels are closed: watchers cannot open others then."""
        for pool in self._pools.values():
            await pool.close()

    async def follow(self, request: ReadRequest, *, metadata: bool) -> AsyncGenerator[Record]:
        """The records in order, each once, as they commit, until `max_records` or cancellation.

        metadata: return the records without a key, too.
        """
        pool = self._pools[request.linearizable]
        position, left = request.from_offset, request.max_records
        deadline_ms: float | None = now_ms() + request.timeout_ms
        cursor: StreamCursor | None = None
        try:
            while left is None or left > 0:
                if cursor is None:
                    wanted = replace(request, from_offset=position, max_records=None)
                    cursor = await pool.enter(wanted, deadline_ms)
                    deadline_ms = None
                cursor = pool.moved(cursor, position)
                chunk = await cursor.next(position)
                if chunk is None:
                    cursor.leave()
                    cursor = None
                    continue
                for record, after in chunk.records:
                    if after <= position:
                        continue
                    position = after
                    if metadata or record.key is not None:
                        yield record
                        if left is not None:
                            left -= 1
                            if left == 0:
                                return
                position = max(position, chunk.next_offset)
        finally:
            if cursor is not None:
                cursor.leave()
