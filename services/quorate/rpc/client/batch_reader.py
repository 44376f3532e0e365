"""A blocking reader of a quorum's log, in whole batches: committed records only.

Reads go to the leader and are linearizable: the leader confirms with a majority that it leads, and
streams whole batches up to the high watermark that it had when the read began. If a stream breaks,
the reader reopens it at the current leader from its last position. It gives up after `timeout_s`
without progress.

Source: the service Quorum (`Read`, `DescribeQuorum`) of proto/quorate/v1/quorum.proto.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import grpc

from quorate.common.error_codes import ErrorCode
from quorate.raft.errors import ViolationError
from quorate.raft.messages import CurrentLeader
from quorate.raft.types import OffsetAndEpoch
from quorate.records.batch import iter_batches
from quorate.rpc.client.channels import status_error
from quorate.rpc.errors import AdminError, NoLeaderError, ReadBrokenError, compacted
from quorate.rpc.tls import TlsConfig
from quorate.rpc.wire.cluster_id import cluster_in, cluster_metadata
from quorate.rpc.wire.codecs import CODECS
from quorate.rpc.wire.limits import MESSAGE_BYTES_MAX, format_address
from quorate.rpc.wire.values import ReadChunk, ReadRequest
from quorate.v1 import quorum_pb2

READ = CODECS["Read"]
TIMEOUT_S = 30.0
PAUSE_S = 0.2
CHECKPOINT_TIMEOUT_S = 3600.0
"""How long the stream of one checkpoint may take: it cannot be resumed."""
_RETRIED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


@dataclass(frozen=True, slots=True)
class QuorumConnection:
    """How to reach a quorum: addresses of some nodes, and TLS files. It is picklable."""

    addresses: tuple[str, ...]
    tls: TlsConfig | None = None
    timeout_s: float = TIMEOUT_S


@dataclass(frozen=True, slots=True)
class Extent:
    """The offsets [start, end) of the leader's log, all of them committed."""

    start: int
    end: int


class BatchReader:
    """Reads a quorum over its own connections. Close it, or use it in a `with` statement.

    cluster_id: that of the first node that answered; nodes of other clusters then reject calls.
    None before that, and while only nodes of earlier releases answer.
    """

    def __init__(self, quorum: QuorumConnection) -> None:
        self._quorum = quorum
        self._known = list(quorum.addresses)
        self._channels: dict[str, grpc.Channel] = {}
        self._leader: str | None = None
        self._failures: dict[str, str] = {}
        self.cluster_id: str | None = None

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def __enter__(self) -> BatchReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def extent(self) -> Extent:
        """The log start offset and the high watermark, confirmed by a majority."""
        # The response to a read from beyond the end holds only positions.
        for chunk in self._stream(ReadRequest((1 << 62), include_control=True)):
            if chunk.last:
                return Extent(chunk.log_start_offset, chunk.read_offset)
        raise self._no_leader()

    def batches(self, start: int, end: int, *, fail_on_loss: bool = True) -> Iterator[bytes]:
        """Yield whole batches that hold the offsets [start, end).

        fail_on_loss: if False, skip offsets that a snapshot has replaced; else they raise
        OffsetCompactedError. Raises NoLeaderError after `timeout_s` without progress.
        """
        position = start
        moved_at, moved_to = time.monotonic(), start - 1
        while position < end:
            if position > moved_to:
                moved_at, moved_to = time.monotonic(), position
            elif time.monotonic() - moved_at > self._quorum.timeout_s:
                raise self._no_leader()
            else:
                time.sleep(PAUSE_S)
            request = ReadRequest(position, include_control=True)
            for chunk in self._stream(request):
                if chunk.snapshot is not None:
                    if fail_on_loss:
                        raise compacted(position, chunk.log_start_offset)
                    position = max(position, chunk.snapshot.offset)
                    continue
                data = bytes(chunk.records)
                if data:
                    position = _end_of(data, position)
                    yield data
                if position >= end:
                    return
                if chunk.last and position < chunk.read_offset:
                    # The rest of the range holds no batches that the leader may return.
                    position = chunk.read_offset

    def snapshot(self) -> tuple[int, list[bytes]]:
        """The end offset and data batches of the newest snapshot; (0, []) if there is none.

        If the stream breaks, the snapshot is read again from its beginning, because the leader may
        have a newer one by then. Raises NoLeaderError after `timeout_s` without a whole
        snapshot.
        """
        deadline = time.monotonic() + self._quorum.timeout_s
        while True:
            found: list[bytes] = []
            offset = 0
            for chunk in self._stream(ReadRequest(0)):
                # The log, or the final chunk, follows a whole snapshot.
                if chunk.snapshot is None:
                    return offset, found
                offset = chunk.snapshot.offset
                found.append(bytes(chunk.records))
            if time.monotonic() >= deadline:
                raise self._no_leader()
            time.sleep(PAUSE_S)

    def checkpoint(self) -> Iterator[tuple[OffsetAndEpoch, bytes]]:
        """Yield the newest checkpoint with its id, byte for byte, in pieces of whole batches.

        Yields nothing if the log begins at offset 0. Raises ReadBrokenError if the stream breaks:
        the leader may have a newer checkpoint by then.
        """
        request = ReadRequest(0, include_control=True)
        for chunk in self._stream(request, CHECKPOINT_TIMEOUT_S):
            if chunk.snapshot is None:
                return
            yield chunk.snapshot, bytes(chunk.records)
        reasons = "; ".join(f"{address}: {text}" for address, text in self._failures.items())
        raise ReadBrokenError(f"the stream of the newest checkpoint broke ({reasons})")

    def _stream(
        self, request: ReadRequest, stream_timeout_s: float | None = None
    ) -> Iterator[ReadChunk]:
        """Yield the chunks of one read. Retries until it starts; ends early if the stream breaks.

        stream_timeout_s: how long the whole stream may take, by default `timeout_s`. Raises
        NoLeaderError if no read starts within `timeout_s`, and AdminError if a node rejects
        the request.
        """
        deadline = time.monotonic() + self._quorum.timeout_s
        while True:
            for address in self._order():
                with self._opened(address, request, stream_timeout_s) as (first, rest):
                    if first is None:
                        continue
                    self._learn(first.leader)
                    if first.error is ErrorCode.NONE:
                        self._leader = address
                        yield first
                        if not first.last:
                            yield from self._rest(address, rest)
                        return
                    self._failures[address] = f"{first.error.name} {first.message}".rstrip()
                    if first.error not in _RETRIED:
                        why = first.message or "it gave no reason"
                        raise AdminError(first.error, f"{address} rejected the read: {why}")
            if time.monotonic() >= deadline:
                raise self._no_leader()
            time.sleep(PAUSE_S)

    def _rest(self, address: str, rest: Iterator[quorum_pb2.ReadResponse]) -> Iterator[ReadChunk]:
        try:
            for message in rest:
                chunk = READ.decode_response(message)
                if chunk.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                    return
                if chunk.error is not ErrorCode.NONE:
                    self._failures[address] = chunk.error.name
                    return
                yield chunk
        except grpc.RpcError as error:
            self._note(address, error)

    @contextmanager
    def _opened(
        self, address: str, request: ReadRequest, stream_timeout_s: float | None
    ) -> Iterator[tuple[ReadChunk | None, Iterator[quorum_pb2.ReadResponse]]]:
        """The first chunk of a read at one node, None without a response, and the other chunks."""
        read = READ.method.stub(self._channel(address))
        call = read(
            READ.encode_request(request),
            timeout=stream_timeout_s or self._quorum.timeout_s,
            metadata=cluster_metadata(self.cluster_id or ""),
        )
        first: ReadChunk | None = None
        try:
            first = READ.decode_response(next(iter(call)))
            self.cluster_id = self.cluster_id or cluster_in(call.initial_metadata())
        except (grpc.RpcError, StopIteration) as error:
            self._note(address, error)
        except ViolationError as error:
            self._failures[address] = str(error)
        try:
            yield first, call
        finally:
            call.cancel()

    def _note(self, address: str, error: Exception) -> None:
        """Record a failure and drop the channel, because gRPC's backoff grows with each failure."""
        code = getattr(error, "code", None)
        if code is not None:
            failure = status_error(address, code(), getattr(error, "details", str)() or "")
            self._failures[address] = failure.text
        else:
            self._failures[address] = "it ended the read without a response"
        self._leader = None if self._leader == address else self._leader
        channel = self._channels.pop(address, None)
        if channel is not None:
            channel.close()

    def _order(self) -> list[str]:
        first = [] if self._leader is None else [self._leader]
        return list(dict.fromkeys([*first, *self._known]))

    def _learn(self, leader: CurrentLeader) -> None:
        for endpoint in leader.endpoints[:1]:
            address = format_address(endpoint.host, endpoint.port)
            if address not in self._known:
                self._known.append(address)
            self._leader = address

    def _channel(self, address: str) -> grpc.Channel:
        channel = self._channels.get(address)
        if channel is None:
            options = [("grpc.max_receive_message_length", MESSAGE_BYTES_MAX)]
            tls = self._quorum.tls
            if tls is None:
                channel = grpc.insecure_channel(address, options)
            else:
                channel = grpc.secure_channel(address, tls.channel_credentials(), options)
            self._channels[address] = channel
        return channel

    def _no_leader(self) -> NoLeaderError:
        return NoLeaderError(int(self._quorum.timeout_s * 1000), self._failures)


def _end_of(data: bytes, position: int) -> int:
    for header, _ in iter_batches(data):
        position = max(position, header.end_offset)
    return position
