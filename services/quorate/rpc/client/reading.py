"""The client's side of Read: turns a stream of chunks into records, and resumes a broken stream.

Rules:
1. A linearizable read goes to the leader; any other to the first node that answers.
2. A broken stream is reopened where it ended, even if the log start offset has passed that position
   meanwhile: application records keep their offsets in a snapshot.
3. Metadata records of a snapshot have no offsets, nor do records of a checkpoint that was written
   without them. `ReadBrokenError` if a stream breaks among them, or if they would be returned
   again. A read without metadata ignores the former.
4. Checksums are verified. Control batches are skipped, and so are records before the requested
   offset: a batch may begin earlier, and older nodes send a whole snapshot.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import grpc.aio

from quorate.common.error_codes import ErrorCode
from quorate.raft.errors import ViolationError
from quorate.raft.messages import CurrentLeader
from quorate.raft.types import OffsetAndEpoch
from quorate.records.batch import (
    Record,
    iter_batches,
    iter_records,
    snapshot_records,
    verify_crc,
)
from quorate.records.errors import RecordsError
from quorate.rpc.client.channels import EOF, Channels, Link, call_error
from quorate.rpc.client.leader_client import ANSWER_SLACK_MS
from quorate.rpc.client.routing import Address, LeaderSearch
from quorate.rpc.errors import AdminError, ReadBrokenError, TransportError, TransportKind
from quorate.rpc.wire.codecs import CODECS
from quorate.rpc.wire.values import ReadChunk, ReadRequest

READ = CODECS["Read"]
BEYOND_ALL = (1 << 63) - 1
"""No record has this offset: a read from it has no records."""


@dataclass(slots=True)
class OpenRead:
    """A stream whose first chunk has arrived; an `Answer` for the leader search."""

    link: Link
    call: Any
    first: ReadChunk

    @property
    def error(self) -> ErrorCode:
        return self.first.error

    @property
    def leader(self) -> CurrentLeader:
        return self.first.leader


class LogReader:
    """The reads of one client."""

    def __init__(self, search: LeaderSearch, channels: Channels) -> None:
        self._search = search
        self._channels = channels

    async def read(self, request: ReadRequest, *, metadata: bool) -> AsyncGenerator[Record]:
        """The records in order, those of a snapshot first if the log starts after `from_offset`.

        metadata: return the records without a key, too. Nodes count them among `max_records`.
        """
        position = request.from_offset
        left = request.max_records
        seen = _Seen()
        while True:
            began = position
            snapshot: OffsetAndEpoch | None = None
            limit = left if metadata else None
            opened = await self._open(replace(request, from_offset=position, max_records=limit))
            try:
                async for chunk in self._chunks(opened, request.timeout_ms):
                    if snapshot is not None and chunk.snapshot is None:
                        position = max(position, snapshot.offset)
                    snapshot = chunk.snapshot
                    for record, after in records_of(chunk, position):
                        if record is not None and (metadata or record.key is not None):
                            if left is not None:
                                if left <= 0:
                                    return
                                left -= 1
                            seen.add(record, position)
                            yield record
                        position = max(position, after)
                    if chunk.last:
                        return
            except TransportError as error:
                self._search.route.lost(opened.link.key)
                if snapshot is not None and seen.unknown:
                    raise ReadBrokenError(
                        "the stream broke within a snapshot, after records without offsets "
                        f"({error}): read again from offset {position}"
                    ) from None
            except AdminError as error:
                # The log start offset may have passed the stream's position.
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE or position == began:
                    raise
            finally:
                opened.call.cancel()
                self._channels.release(opened.link)
            if left is not None and left <= 0:
                return
            seen.is_reopened = seen.any

    async def index(self, timeout_ms: int) -> int:
        """The offset up to which a linearizable read goes now. Raises as a read."""
        opened = await self._open(ReadRequest(BEYOND_ALL, timeout_ms=timeout_ms))
        opened.call.cancel()
        self._channels.release(opened.link)
        return opened.first.read_offset

    async def _open(self, request: ReadRequest) -> OpenRead:
        try:
            opened = await self._search.ask(
                lambda address, left_ms: self.open_at(address, request, left_ms),
                request.timeout_ms,
                may_repeat=READ.method.is_repeatable,
            )
        except TransportError as error:
            text = f"no answer within {request.timeout_ms} ms ({error})"
            raise AdminError(ErrorCode.REQUEST_TIMED_OUT, text) from None
        if opened.error is not ErrorCode.NONE:
            opened.call.cancel()
            self._channels.release(opened.link)
            raise AdminError(opened.error, opened.first.message)
        return opened

    async def open_at(self, address: Address, request: ReadRequest, timeout_ms: float) -> OpenRead:
        """A read at one node, once its first chunk has arrived. Raises TransportError."""
        link = await self._channels.connect(*address, timeout_ms)
        call: Any = None
        try:
            wanted = READ.encode_request(replace(request, timeout_ms=max(1, int(timeout_ms))))
            unchecked = link.unchecked()
            call = link.server_stream(READ.method.path, READ.method.response, wanted)
            first = await _next(link, call, timeout_ms + ANSWER_SLACK_MS)
            if unchecked is not None:
                await unchecked.check(link.address, call)
        except BaseException:
            if call is not None:
                call.cancel()
            self._channels.release(link)
            raise
        return OpenRead(link, call, first)

    async def _chunks(self, opened: OpenRead, timeout_ms: float) -> AsyncIterator[ReadChunk]:
        chunk = opened.first
        while True:
            if chunk.error is not ErrorCode.NONE:
                raise AdminError(chunk.error, chunk.message)
            yield chunk
            if chunk.last:
                return
            chunk = await _next(opened.link, opened.call, timeout_ms)


async def _next(link: Link, call: Any, timeout_ms: float) -> ReadChunk:
    """The next chunk. TransportError, also if the stream ends without a last chunk."""
    text = f"no records within {timeout_ms:.0f} ms"
    async with _failures_of(link, timeout_ms / 1000, text):
        return await _decoded(link, call, await link.answered(call, call.read()))


async def next_chunk(opened: OpenRead, silence_s: float) -> ReadChunk:
    """The next chunk of a stream that may be idle for less than `silence_s`, without a probe.

    Raises TransportError, also if the stream ends without a last chunk.
    """
    link, call = opened.link, opened.call
    try:
        async with _failures_of(link, silence_s, f"nothing was received for {silence_s:.0f} s"):
            chunk = await _decoded(link, call, await call.read())
    except asyncio.CancelledError:
        # gRPC also reports the end of a call that this process has closed this way.
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        text = "the client closed the stream"
        raise TransportError(TransportKind.BROKEN, link.address, text) from None
    if link.watch is not None:
        link.watch.received()
    return chunk


async def _decoded(link: Link, call: Any, message: Any) -> ReadChunk:
    """A chunk from its bytes. TransportError if the stream has ended instead."""
    if message is EOF:
        raise await link.ended(call)
    chunk: ReadChunk = READ.decode_response(message)
    return chunk


@asynccontextmanager
async def _failures_of(link: Link, timeout_s: float, text: str) -> AsyncIterator[None]:
    """Raise failures of a stream as TransportError; after `timeout_s`, one that says `text`."""
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError:
        raise TransportError(TransportKind.TIMEOUT, link.address, text) from None
    except grpc.aio.AioRpcError as error:
        raise call_error(link.address, error) from None
    except ViolationError as error:
        raise TransportError(TransportKind.FAILED, link.address, str(error)) from None


@dataclass(slots=True)
class _Seen:
    """Whether a read has returned any record, metadata, or records without offsets."""

    any: bool = False
    metadata: bool = False
    unknown: bool = False
    is_reopened: bool = False

    def add(self, record: Record, position: int) -> None:
        """Note a record. ReadBrokenError if it may have been returned before.

        A snapshot's metadata is a complete state: it cannot continue metadata returned earlier.
        """
        is_metadata = record.key is None
        if record.offset is None:
            if self.is_reopened and (self.metadata or not is_metadata):
                raise ReadBrokenError(
                    "the stream broke, and the next records are in a snapshot, without offsets: "
                    f"read again from offset {position}"
                )
            self.unknown = True
        self.any = True
        self.metadata = self.metadata or is_metadata


def records_of(chunk: ReadChunk, position: int) -> Iterator[tuple[Record | None, int]]:
    """Each record and the position after it; None in place of skipped records."""
    try:
        for header, batch in iter_batches(chunk.records):
            base = header.base_offset if chunk.snapshot is None else header.log_base_offset
            if not verify_crc(batch, 0, header):
                raise ReadBrokenError(f"the batch at offset {header.base_offset} is corrupt")
            if base is not None and base + header.last_offset_delta < position:
                continue
            if not header.is_control:
                read = iter_records if chunk.snapshot is None else snapshot_records
                for record in read(batch, header):
                    if record.offset is None:
                        yield record, position
                    elif record.offset >= position:
                        yield record, record.offset + 1
            if base is not None:
                yield None, base + header.last_offset_delta + 1
    except RecordsError as error:
        raise ReadBrokenError(f"unreadable records: {error}") from error
