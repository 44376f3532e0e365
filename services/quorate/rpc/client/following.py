"""The client's side of reads that follow the log: they last until the caller cancels them.

Rules:
1. A read goes to any node, in random order, so that many watchers spread over the nodes. A
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
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field, replace
from typing import NoReturn

from quorate.raft.errors import ErrorCode
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


class _NodeError(Exception):
    """The stream ended, and the read continues elsewhere; the text is the reason."""


@dataclass(slots=True)
class _Round:
    """One attempt at each node: what they answered."""

    attempts: dict[str, str] = field(default_factory=dict)
    compacted: list[ReadChunk] = field(default_factory=list)
    refused: ReadChunk | None = None
    is_answered: bool = False


@dataclass(slots=True)
class _Backoff:
    """Pauses between rounds: random, up to a limit that doubles."""

    limit_s: float = BACKOFF_MIN_S

    def reset(self) -> None:
        self.limit_s = BACKOFF_MIN_S

    def next_s(self) -> float:
        pause_s = random.uniform(0.0, self.limit_s)  # noqa: S311 - it spreads clients
        self.limit_s = min(2 * self.limit_s, BACKOFF_MAX_S)
        return pause_s


class LogFollower:
    """The following reads of one client."""

    def __init__(self, reader: LogReader, route: Route, channels: Channels) -> None:
        self._reader = reader
        self._route = route
        self._channels = channels

    async def follow(self, request: ReadRequest, *, metadata: bool) -> AsyncGenerator[Record]:
        """The records in order, each once, as they commit, until `max_records` or cancellation.

        metadata: return the records without a key, too. Nodes count them among `max_records`.
        """
        position, left = request.from_offset, request.max_records
        backoff = _Backoff()
        deadline_ms: float | None = now_ms() + request.timeout_ms
        while left is None or left > 0:
            limit = left if metadata else None
            opened = await self._open(
                replace(request, from_offset=position, max_records=limit), deadline_ms, backoff
            )
            deadline_ms = None
            opened_ms = now_ms()
            chunks = self._chunks(opened)
            try:
                async for chunk in chunks:
                    for record, after in records_of(chunk, position):
                        if record is not None:
                            if record.offset is None:
                                raise ReadBrokenError("a record of the log has no offset")
                            backoff.reset()
                            if metadata or record.key is not None:
                                yield record
                                if left is not None:
                                    left -= 1
                        position = max(position, after)
                        if left == 0:
                            return
                    position = max(position, chunk.next_offset)
            except (TransportError, _NodeError) as error:
                LOGGER.info(
                    "the read at %s continues at offset %d: %s",
                    opened.link.address,
                    position,
                    error,
                )
                if isinstance(error, TransportError) or not request.linearizable:
                    self._route.lost(opened.link.key)
                if now_ms() - opened_ms > HEALTHY_S * 1000:
                    backoff.reset()
                await asyncio.sleep(backoff.next_s())
            else:
                await asyncio.sleep(POLL_S)
            finally:
                opened.call.cancel()
                self._channels.release(opened.link)

    async def _chunks(self, opened: OpenRead) -> AsyncIterator[ReadChunk]:
        """The chunks of one stream; it ends if an earlier version has reached the log's end."""
        chunk = opened.first
        while True:
            if chunk.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                raise _NodeError(chunk.message)
            if chunk.error is not ErrorCode.NONE:
                self._check(chunk)
            if chunk.snapshot is not None:
                # An earlier version sends the snapshot instead of the error.
                raise _NodeError(f"the log begins with snapshot {chunk.snapshot}")
            yield chunk
            if chunk.last:
                return
            chunk = await next_chunk(opened, SILENCE_S)

    def _check(self, chunk: ReadChunk) -> NoReturn:
        """Raise _NodeError if another node may do better, else AdminError."""
        if chunk.error in NOT_LEADER:
            self._route.learn(chunk.leader)
        if chunk.error in ELSEWHERE:
            raise _NodeError(f"{chunk.error.name} {chunk.message}".rstrip())
        raise AdminError(chunk.error, chunk.message)

    # --- the choice of a node ---------------------------------------------------------------------

    async def _open(
        self, request: ReadRequest, deadline_ms: float | None, backoff: _Backoff
    ) -> OpenRead:
        """A stream that a node serves. deadline_ms: raise the nodes' errors then; None: never."""
        while True:
            if self._channels.is_closed:
                raise UnreachableError({"": "the client is closed"})
            tried = _Round()
            opened = await self._try_each(request, deadline_ms, tried)
            if opened is not None:
                return opened
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
        opened.call.cancel()
        self._channels.release(opened.link)
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
