"""The interface of a node to the servicers: the runtime implements it.

Rules for implementations:
1. Protocol errors are values. An exception is logged and answered with UNKNOWN_SERVER_ERROR.
2. A call may be cancelled when its caller goes away, except for `append`. Cancellation only means
   that no caller waits for the response, so work in flight continues in the runtime's own tasks.
3. A node without storage is a `NodeHandler`; a running one is a `RaftHandler`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import grpc.aio

from quorate.raft.messages import (
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
)
from quorate.records.batch import BatchProducer
from quorate.rpc.wire.convert_metadata import MetadataAnswer
from quorate.rpc.wire.values import (
    NO_CONDITIONS,
    AppendOutcome,
    Buffer,
    FormatRequest,
    FormatResponse,
    LogOffsets,
    NodeStatus,
    OpaqueRecord,
    ReadChunk,
    ReadRequest,
)


class SharedChunk:
    """A chunk that many streams may send. count: its records from the requested offset on.

    encoded: its bytes, from the first stream that sends it.
    """

    __slots__ = ("chunk", "count", "encoded")

    def __init__(self, chunk: ReadChunk, count: int = 0) -> None:
        self.chunk = chunk
        self.count = count
        self.encoded: asyncio.Future[bytes] | None = None


class WatchStream(Protocol):
    """The response stream of one read that follows the log.

    peer: gRPC's name of the connection. address: the client's. writing_since_s: the loop's time
    since when a response waits for the client to take it; None if none does.
    """

    @property
    def peer(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def writing_since_s(self) -> float | None: ...

    def try_reserve(self, size: int) -> bool:
        """Reserve the memory of a response of `size` bytes, if there is enough now.

        True if it is reserved already. `send` releases it.
        """
        ...

    async def reserve(self, size: int) -> None:
        """Wait for the memory of a response of `size` bytes, which `send` releases."""
        ...

    async def send(self, shared: SharedChunk) -> int:
        """Send a response once the client has taken the previous one; returns its size, bytes.

        Raises if the client is gone, or may no longer read.
        """
        ...

    def abort(self, reason: str) -> None:
        """End the stream of a client that takes no responses, and free what is pending."""
        ...


@runtime_checkable
class NodeHandler(Protocol):
    """The operations of every node, formatted or not."""

    async def node_status(self) -> NodeStatus: ...

    async def format(self, request: FormatRequest) -> FormatResponse: ...


@runtime_checkable
class RaftHandler(NodeHandler, Protocol):
    """The further operations of a node with storage."""

    @property
    def cluster_id(self) -> str: ...

    async def handle(self, request: Any) -> Any:
        """The response to a request of Raft or Quorum without a method of its own below.

        `rpc.wire.methods` names the classes of requests and responses.
        """
        ...

    @property
    def end_offset(self) -> int:
        """The log end offset: a Fetch below it is answered immediately."""
        ...

    async def fetch(self, request: FetchRequest) -> tuple[FetchResponse, Sequence[Buffer]]:
        """The response and its encoded batches, in order; may take `max_wait_ms`."""
        ...

    async def fetch_snapshot(self, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
        """The response with at most `max_bytes` of the snapshot; fewer are not an error."""
        ...

    async def append(
        self,
        records: Sequence[OpaqueRecord],
        timeout_ms: int,
        conditions: LogOffsets = NO_CONDITIONS,
        producer: BatchProducer | None = None,
    ) -> AppendOutcome:
        """Append one batch, if the conditions hold, and wait for its commit.

        producer: the place of the batch in its producer session, None without one. The errors of
        the outcome show whether anything was appended.
        """
        ...

    def read(
        self, request: ReadRequest, before: Callable[[], Awaitable[None]]
    ) -> AsyncIterator[ReadChunk]:
        """Chunks of committed records, up to and including the last one.

        before: awaited before records are read for the next chunk.
        """
        ...

    async def follow(self, request: ReadRequest, stream: WatchStream) -> None:
        """Send committed records as they commit, until the stream ends."""
        ...


class CallHandler(Protocol):
    """Handles one call, with the state that depends on its caller."""

    async def handle(self, request: Any) -> Any:
        """See `RaftHandler.handle`."""
        ...

    async def metadata(self, request: Any, timeout_ms: int) -> MetadataAnswer:
        """See `MetadataHandler.metadata`."""
        ...


@runtime_checkable
class CallingHandler(Protocol):
    """A node that may pass requests on to another one, in the name of their callers."""

    def for_call(self, context: grpc.aio.ServicerContext[Any, Any]) -> CallHandler:
        """The handler of one call, whose request is authorized already."""
        ...


@runtime_checkable
class MetadataHandler(Protocol):
    """A node that answers metadata requests, or names the node that does."""

    @property
    def cluster_id(self) -> str: ...

    async def metadata(self, request: Any, timeout_ms: int) -> MetadataAnswer:
        """The response to a request in `convert_metadata.METADATA_CODECS`, within `timeout_ms`."""
        ...
