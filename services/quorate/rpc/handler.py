"""What a node must be able to do for the servicers: the runtime implements it.

Rules for whoever implements it:
1. Protocol errors are values. What a method raises is logged and answered as UNKNOWN_SERVER_ERROR.
2. A call may be cancelled when its asker goes away, `append` excepted: cancellation only means that
   nobody waits for the answer any more, so what was begun goes on in the runtime's own tasks.
3. A node without storage is a `NodeHandler`; a running one is a `RaftHandler`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from quorate.raft.errors import ErrorCode
from quorate.raft.messages import (
    CurrentLeader,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
)
from quorate.rpc.convert_metadata import MetadataAnswer
from quorate.rpc.values import (
    Buffer,
    FormatRequest,
    FormatResponse,
    NodeStatus,
    OpaqueRecord,
    ReadChunk,
    ReadRequest,
)


@runtime_checkable
class NodeHandler(Protocol):
    """What every node does, formatted or not."""

    async def node_status(self) -> NodeStatus: ...

    async def format(self, request: FormatRequest) -> FormatResponse: ...


@runtime_checkable
class RaftHandler(NodeHandler, Protocol):
    """What a node with storage does besides."""

    async def handle(self, request: Any) -> Any:
        """The response to a request of Raft or Quorum that has no method of its own below: the
        classes of both are in `rpc.methods`.
        """
        ...

    def bytes_since(self, offset: int) -> int:
        """The size of the log from the batch that holds `offset` to its end, in bytes: what a Fetch
        at that offset may return at once.
        """
        ...

    async def fetch(self, request: FetchRequest) -> tuple[FetchResponse, Sequence[Buffer]]:
        """The answer and the encoded batches that go with it, in order; may take `max_wait_ms`."""
        ...

    async def fetch_snapshot(self, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
        """The answer with its bytes, at most `max_bytes`; less is no error."""
        ...

    async def append(
        self, records: Sequence[OpaqueRecord], timeout_ms: int
    ) -> tuple[ErrorCode, CurrentLeader, int, str]:
        """Append one batch and wait for its commit: (error, leader, base offset, message).

        See `AppendOutcome`; its errors tell whether anything was appended.
        """
        ...

    def read(
        self, request: ReadRequest, before: Callable[[], Awaitable[None]]
    ) -> AsyncIterator[ReadChunk]:
        """Pieces of what is committed, up to and with the one that is the last. before: awaited
        before records are read for the next one.
        """
        ...


@runtime_checkable
class MetadataHandler(Protocol):
    """A node that answers requests for metadata, or tells who does."""

    async def metadata(self, request: Any, timeout_ms: int) -> MetadataAnswer:
        """The answer to one of the requests in `convert_metadata.METHODS`, within `timeout_ms`."""
        ...
