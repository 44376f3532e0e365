"""Linearizable reads that go to one node only, whoever leads: what must a deposed leader not do?

`QuorumClient` looks for the leader; these reads do not. Each is a stream of its own on a connection
that is open already, so that a node that sleeps finds them in its socket when it wakes.
"""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
from quorate.common.error_codes import ErrorCode
from quorate.linearizability import HistoryChecker
from quorate.rpc.client.reading import READ, records_of
from quorate.rpc.wire.values import ReadRequest

TIMEOUT_S = 30.0
OVERLAP = 64


class DirectReads:
    """Reads of `address` alone. answered, refused, broken: how they ended."""

    def __init__(self, address: str, history: HistoryChecker[str], name: str) -> None:
        self._history = history
        self._prefix = name.encode()
        self._channel = grpc.aio.insecure_channel(address)
        self._read = READ.method.stub(self._channel)
        self._under_way: list[asyncio.Task[None]] = []
        self.answered = 0
        self.refused = 0
        self.broken = 0

    def begin(self) -> None:
        """One more read, which begins now."""
        self._under_way.append(asyncio.create_task(self._one()))

    async def end(self) -> None:
        """Wait for the answers, close the connection."""
        await asyncio.gather(*self._under_way)
        await self._channel.close(None)

    async def _one(self) -> None:
        token = self._history.begin_read()
        begin = max(0, token.floor - OVERLAP)
        request = ReadRequest(begin, timeout_ms=int(TIMEOUT_S * 1000))
        records: list[tuple[int, str]] = []
        try:
            async for message in self._read(READ.encode_request(request), timeout=TIMEOUT_S):
                chunk = READ.decode_response(message)
                if chunk.error is not ErrorCode.NONE:
                    self.refused += 1
                    return
                for record, _ in records_of(chunk, begin):
                    if record is None or record.offset is None:
                        continue
                    value = bytes(record.value or b"")
                    if value.startswith(self._prefix):
                        records.append((record.offset, value.decode()))
        except grpc.aio.AioRpcError:
            self.broken += 1
            return
        end = records[-1][0] + 1 if records else begin
        self._history.read(token, end, records, from_offset=begin)
        self.answered += 1
