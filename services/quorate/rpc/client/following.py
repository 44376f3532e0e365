"""The client's side of reads that follow the log, at one node after another.

Rules:
1. A read goes to any node, in random order, so that many clients spread over the nodes. A
   linearizable one goes to the leader.
2. When a stream ends for whatever reason, the read continues at another node, at the offset after
   what was returned. The node may lag behind: it then waits for that offset, so that no record is
   returned twice and none is missing.
3. Before the first stream opens, the errors of all nodes are raised once the timeout has passed.
   After that, the client tries again for as long as it takes, with random, growing pauses.
4. If the offset has been compacted away on every node that answers: OffsetCompactedError. Errors
   that no other node or later attempt can avoid are raised too, as when all nodes belong to
   another cluster.
5. A node sends something every `FOLLOW_KEEPALIVE_MS`. One that has sent nothing for `SILENCE_S` is
   treated like a broken connection.
6. A node of an earlier version ends the read where its log ends. The read is then repeated every
   `POLL_S`.

`watching` distributes what a stream brings to the watchers of a client.
"""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass, field, replace

from quorate.common.error_codes import ErrorCode
from quorate.records.batch import Record
from quorate.rpc.client.channels import Channels
from quorate.rpc.client.cluster import check_not_foreign
from quorate.rpc.client.reading import LogReader, OpenRead, next_chunk, records_of
from quorate.rpc.client.routing import NOT_LEADER, Address, Route, now_ms
from quorate.rpc.errors import (
    AdminError,
    NoLeaderError,
    OffsetCompactedError,
    ReadBrokenError,
    TransportError,
    TransportKind,
    UnreachableError,
)
from quorate.rpc.wire.limits import FOLLOW_KEEPALIVE_MS, format_address
from quorate.rpc.wire.values import ReadChunk, ReadRequest

LOGGER = logging.getLogger(__name__)

SILENCE_S = 2.5 * FOLLOW_KEEPALIVE_MS / 1000
BACKOFF_MIN_S = 0.05
BACKOFF_MAX_S = 5.0
HEALTHY_S = 5.0
"""A stream that lasted this long, or brought records, resets the back-off."""
POLL_S = 0.2
RECORD_BYTES = 256
"""Memory of one decoded record, besides the bytes that were sent."""

ELSEWHERE = frozenset(
    {
        *NOT_LEADER,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CORRUPT_MESSAGE,
    }
)
"""The errors of one node, or of the moment: another node, or the same one later, may do better."""


class NoLongerServedError(Exception):
    """The stream ended, and the read continues elsewhere; the text is the reason."""


@dataclass(slots=True)
class _Round:
    """One attempt at each node: what they answered."""

    attempts: dict[str, str] = field(default_factory=dict)
    compacted: list[ReadChunk] = field(default_factory=list)
    refused: ReadChunk | None = None
    is_answered: bool = False


@dataclass(slots=True)
class StreamBackoff:
    """Pauses between rounds: random, up to a limit that doubles."""

    limit_s: float = BACKOFF_MIN_S

    def reset(self) -> None:
        self.limit_s = BACKOFF_MIN_S

    def next_s(self) -> float:
        pause_s = random.uniform(0.0, self.limit_s)  # noqa: S311 - it spreads clients
        self.limit_s = min(2 * self.limit_s, BACKOFF_MAX_S)
        return pause_s


@dataclass(frozen=True, slots=True)
class DecodedChunk:
    """A part of the log: its records, each with the offset after it, and where the log
    continues.
    """

    records: list[tuple[Record, int]]
    next_offset: int
    size_bytes: int
    """About what the chunk takes in memory."""


class LogStream:
    """The log from `request.from_offset` on, from `opened` and then from other nodes.

    position: the offset at which it continues. is_served: whether a node serves it. is_at_end: that
    node has sent all that it knew to be committed. is_ahead: when it opened, the log was not yet
    at the position, and nothing has come since. request: also of the streams that follow.
    """

    def __init__(self, opener: StreamOpener, request: ReadRequest, opened: OpenRead) -> None:
        self.position = request.from_offset
        self._opener = opener
        self._request = request
        self._backoff = StreamBackoff()
        self._broken: ReadBrokenError | None = None
        self._pause_s = 0.0
        self._serve(opened)

    def _serve(self, opened: OpenRead) -> None:
        self._opened: OpenRead | None = opened
        self._first: ReadChunk | None = opened.first
        self._opened_ms = now_ms()
        self.is_served = True
        self.is_at_end = self.position >= opened.first.high_watermark
        self.is_ahead = 0 <= opened.first.high_watermark < self.position

    async def next(self) -> DecodedChunk:
        """The next chunk that goes beyond the position.

        Raises the errors that no other node or later attempt avoids.
        """
        if self._broken is not None:
            raise self._broken
        while True:
            try:
                chunk = await self._next_chunk()
            except (TransportError, NoLongerServedError) as error:
                self._leave(error)
                continue
            decoded = self._decoded(chunk)
            if chunk.last:  # of an earlier version, which has reached the end of its log
                self.close()
                self._pause_s = POLL_S
            if decoded is not None:
                return decoded

    def close(self) -> None:
        """End the stream that is open."""
        if self._opened is not None:
            self._opener.release(self._opened)
            self._opened = None

    async def _next_chunk(self) -> ReadChunk:
        if self._opened is None:
            await asyncio.sleep(self._pause_s)
            request = replace(self._request, from_offset=self.position)
            self.is_served = False
            self._serve(await self._opener.open(request, None, self._backoff))
        assert self._opened is not None
        chunk, self._first = self._first, None
        if chunk is None:
            chunk = await next_chunk(self._opened, SILENCE_S)
        self._opener.check(chunk)
        return chunk

    def _leave(self, error: TransportError | NoLongerServedError) -> None:
        """Note that the node no longer serves the read, which continues after a pause."""
        assert self._opened is not None
        self.is_served = False
        address = self._opened.link.address
        LOGGER.info("the read at %s continues at offset %d: %s", address, self.position, error)
        if isinstance(error, TransportError) or not self._request.linearizable:
            self._opener.lost(self._opened)
        if now_ms() - self._opened_ms > HEALTHY_S * 1000:
            self._backoff.reset()
        self.close()
        self._pause_s = self._backoff.next_s()

    def _decoded(self, chunk: ReadChunk) -> DecodedChunk | None:
        """Return what a chunk adds, None if nothing.

        An error within it is raised after the records that precede it.
        """
        begin = self.position
        records: list[tuple[Record, int]] = []
        try:
            for record, after in records_of(chunk, begin):
                if record is not None:
                    if record.offset is None:
                        raise ReadBrokenError("a record of the log has no offset")
                    records.append((record, after))
                self.position = max(self.position, after)
            self.position = max(self.position, chunk.next_offset)
        except ReadBrokenError as error:
            if not records:
                raise
            self._broken = error
        self.is_at_end = chunk.last or self.position >= chunk.high_watermark
        if records:
            self._backoff.reset()
        if self.position == begin:
            return None
        self.is_ahead = False
        size_bytes = len(chunk.records) + RECORD_BYTES * (len(records) + 1)
        return DecodedChunk(records, self.position, size_bytes)


class StreamOpener:
    """Finds the nodes that serve the following reads of one client."""

    def __init__(self, reader: LogReader, route: Route, channels: Channels) -> None:
        self._reader = reader
        self._route = route
        self._channels = channels

    def check(self, chunk: ReadChunk) -> None:
        """Raise NoLongerServedError if another node may do better, AdminError if none does."""
        if chunk.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            raise NoLongerServedError(chunk.message)
        if chunk.error in NOT_LEADER:
            self._route.learn(chunk.leader)
        if chunk.error in ELSEWHERE:
            raise NoLongerServedError(f"{chunk.error.name} {chunk.message}".rstrip())
        if chunk.error is not ErrorCode.NONE:
            raise AdminError(chunk.error, chunk.message)
        if chunk.snapshot is not None:
            # An earlier version sends the snapshot instead of the error.
            raise NoLongerServedError(f"the log begins with snapshot {chunk.snapshot}")

    def lost(self, opened: OpenRead) -> None:
        """Note that a node no longer serves a read: others are asked first."""
        self._route.lost(opened.link.key)

    def release(self, opened: OpenRead) -> None:
        """End a stream."""
        opened.call.cancel()
        self._channels.release(opened.link)

    async def open(
        self, request: ReadRequest, deadline_ms: float | None, backoff: StreamBackoff
    ) -> OpenRead:
        """A stream that a node serves. deadline_ms: raise the nodes' errors then; None: never."""
        tried = _Round()
        while True:
            if self._channels.is_closed:
                raise UnreachableError({"": "the client is closed"})
            before, tried = tried, _Round()
            opened = await self._try_each(request, deadline_ms, tried)
            if opened is not None:
                return opened
            if not tried.attempts:  # the pause took until the deadline
                tried = before
            check_not_foreign(tried.attempts)
            if tried.compacted:
                raise _compacted(request.from_offset, tried.compacted)
            pause_s = backoff.next_s()
            if deadline_ms is not None and now_ms() + pause_s * 1000 >= deadline_ms:
                if tried.refused is not None:
                    raise AdminError(tried.refused.error, tried.refused.message)
                if tried.is_answered:
                    raise NoLeaderError(request.timeout_ms, tried.attempts)
                raise UnreachableError(tried.attempts)
            await asyncio.sleep(pause_s)

    async def _try_each(
        self, request: ReadRequest, deadline_ms: float | None, tried: _Round
    ) -> OpenRead | None:
        """Try the nodes in turn, those that did not answer last time last."""
        waiting = self._route.order()
        if not request.linearizable:
            waiting = self._route.shuffled()
        asked: set[Address] = set()
        while waiting:
            address = waiting.pop(0)
            left_ms = request.timeout_ms if deadline_ms is None else deadline_ms - now_ms()
            if address in asked or left_ms <= 0:
                continue
            asked.add(address)
            shown = format_address(*address)
            try:
                opened = await self._reader.open_at(address, request, left_ms)
            except TransportError as error:
                self._route.lost(address)
                tried.attempts[shown] = error.text
                tried.is_answered |= error.kind is TransportKind.NOT_SERVED
                continue
            tried.is_answered = True
            self._route.responded(address)
            named = self._answered(opened, shown, tried, is_leaders=request.linearizable)
            if named is None:
                return opened
            waiting[:0] = named
        return None

    def _answered(
        self, opened: OpenRead, shown: str, tried: _Round, *, is_leaders: bool
    ) -> tuple[Address, ...] | None:
        """None if the node serves the read; else the addresses to try next. Raises AdminError."""
        first = opened.first
        is_compacted = first.error is ErrorCode.OFFSET_OUT_OF_RANGE or first.snapshot is not None
        if first.error is ErrorCode.NONE and not is_compacted:
            # If this node fails, the leader is another one to try.
            self._route.learn(first.leader)
            if is_leaders:
                self._route.confirm(opened.link.key, first.leader.epoch)
            return None
        self.release(opened)
        tried.attempts[shown] = f"{first.error.name} {first.message}".rstrip()
        if is_compacted:
            tried.compacted.append(first)
            return ()
        if first.error not in ELSEWHERE:
            raise AdminError(first.error, first.message)
        if first.error not in NOT_LEADER:
            tried.refused = first
            return ()
        named = self._route.learn(first.leader)
        return named if is_leaders else ()


def _compacted(offset: int, answers: list[ReadChunk]) -> OffsetCompactedError:
    """The error for an offset that no node has any more; it names the oldest log's snapshot."""
    oldest = min(answers, key=lambda chunk: chunk.log_start_offset)
    text = (
        f"offset {offset} was compacted away: the log starts at {oldest.log_start_offset}, and "
        f"snapshot {oldest.snapshot} replaced the records before it"
    )
    return OffsetCompactedError(text, oldest.snapshot, oldest.log_start_offset)
