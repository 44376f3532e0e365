"""The client's side of Read: a stream of chunks as a stream of records, resumed where it broke.

Rules:
1. A linearizable read asks the leader; any other the first node that answers.
2. A stream that breaks is opened again where it ended, since reading twice does no harm. Not within
   a
   snapshot: its records have no offsets to go on from, and `ReadBrokenError` says so.
3. Checksums are verified; control batches are skipped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from typing import Any

import grpc.aio

from quorate.raft.errors import ErrorCode, ViolationError
from quorate.raft.messages import CurrentLeader
from quorate.records.batch import Record, iter_batches, iter_records, verify_crc
from quorate.records.errors import RecordsError
from quorate.rpc.channels import EOF, Channels, Link, call_error, status_error
from quorate.rpc.convert_quorum import decode_read_chunk, encode_read_request
from quorate.rpc.errors import AdminError, ReadBrokenError, TransportError, TransportKind
from quorate.rpc.routing import Address, LeaderSearch
from quorate.rpc.values import ReadChunk, ReadRequest
from quorate.v1 import quorum_pb2

READ = "/quorate.v1.Quorum/Read"
ANSWER_SLACK_MS = 500


@dataclass(slots=True)
class _OpenRead:
    """A stream whose first chunk is here; an `Answer` for the search."""

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
    """Reads for one client."""

    def __init__(self, search: LeaderSearch, channels: Channels, connect_timeout_ms: int) -> None:
        self._search = search
        self._channels = channels
        self._connect_timeout_ms = connect_timeout_ms

    async def read(self, request: ReadRequest) -> AsyncIterator[Record]:
        """The records, in order; of a snapshot first, where `from_offset` is before the log's
        start.
        """
        position = request.from_offset
        left = request.max_records
        while True:
            is_in_snapshot = False
            opened = await self._open(replace(request, from_offset=position, max_records=left))
            try:
                async for chunk in self._chunks(opened, request.timeout_ms):
                    is_in_snapshot = chunk.snapshot is not None
                    for record, after in _records(chunk, position):
                        if record is not None:
                            if left is not None:
                                if left <= 0:
                                    return
                                left -= 1
                            yield record
                        position = after
                    if chunk.snapshot is not None:
                        position = chunk.snapshot.offset
                    if chunk.last:
                        return
            except TransportError as error:
                if is_in_snapshot:
                    raise ReadBrokenError(f"the stream broke within a snapshot: {error}") from None
            finally:
                opened.call.cancel()
                self._channels.release(opened.link)
            if left is not None and left <= 0:
                return

    async def _open(self, request: ReadRequest) -> _OpenRead:
        async def call(address: Address, remaining_ms: float) -> _OpenRead:
            return await self._open_at(address, request, remaining_ms)

        try:
            opened = await self._search.ask(call, request.timeout_ms, may_repeat=True)
        except TransportError as error:
            text = f"no answer within {request.timeout_ms} ms ({error})"
            raise AdminError(ErrorCode.REQUEST_TIMED_OUT, text) from None
        if opened.error is not ErrorCode.NONE:
            opened.call.cancel()
            self._channels.release(opened.link)
            raise AdminError(opened.error, opened.first.message)
        return opened

    async def _open_at(
        self, address: Address, request: ReadRequest, timeout_ms: float
    ) -> _OpenRead:
        link = self._channels.acquire(*address)
        call: Any = None
        try:
            await self._channels.connected(link, min(timeout_ms, self._connect_timeout_ms))
            wanted = encode_read_request(replace(request, timeout_ms=max(1, int(timeout_ms))))
            call = link.server_stream(READ, quorum_pb2.ReadResponse)(wanted)
            first = await _next(link, call, timeout_ms + ANSWER_SLACK_MS)
        except BaseException:
            if call is not None:
                call.cancel()
            self._channels.release(link)
            raise
        return _OpenRead(link, call, first)

    async def _chunks(self, opened: _OpenRead, timeout_ms: float) -> AsyncIterator[ReadChunk]:
        chunk = opened.first
        while True:
            if chunk.error is not ErrorCode.NONE:
                raise AdminError(chunk.error, chunk.message)
            yield chunk
            if chunk.last:
                return
            chunk = await _next(opened.link, opened.call, timeout_ms)


async def _next(link: Link, call: Any, timeout_ms: float) -> ReadChunk:
    """The next chunk. TransportError, also where the stream ends without a last chunk."""
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            message = await call.read()
            if message is EOF:
                raise status_error(link.address, await call.code(), await call.details() or "")
        return decode_read_chunk(message)
    except TimeoutError:
        text = f"nothing was read within {timeout_ms:.0f} ms"
        raise TransportError(TransportKind.TIMEOUT, link.address, text) from None
    except grpc.aio.AioRpcError as error:
        raise call_error(link.address, error) from None
    except ViolationError as error:
        raise TransportError(TransportKind.FAILED, link.address, str(error)) from None


def _records(chunk: ReadChunk, position: int) -> Iterator[tuple[Record | None, int]]:
    """Each record and where to read on after it; None for what is passed over."""
    try:
        for header, batch in iter_batches(chunk.records):
            if not verify_crc(batch, 0, header):
                raise ReadBrokenError(f"the batch at offset {header.base_offset} is corrupt")
            if not header.is_control:
                for record in iter_records(batch, header):
                    # The first batch may begin before what was asked for.
                    if chunk.snapshot is not None or record.offset >= position:
                        yield record, record.offset + 1
            yield None, header.end_offset
    except RecordsError as error:
        raise ReadBrokenError(f"records that cannot be read: {error}") from error
