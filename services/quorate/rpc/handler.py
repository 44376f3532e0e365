"""What a node must be able to do for the servicers: the runtime implements it.

Rules for whoever implements it:
1. Protocol errors are values. What a method raises is logged and answered as UNKNOWN_SERVER_ERROR.
2. A call may be cancelled when its asker goes away, `append` excepted: cancellation only means that
   nobody waits for the answer any more, so what was begun goes on in the runtime's own tasks.
3. A node without storage is a `NodeHandler`; a running one is a `RaftHandler`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol, runtime_checkable

from quorate.raft.errors import ErrorCode
from quorate.raft.messages import (
    AdminRequest,
    AdminResponse,
    CurrentLeader,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    PeerRequest,
    Response,
)
from quorate.rpc.values import (
    Buffer,
    ChecksumLogRequest,
    ChecksumLogResponse,
    DescribeFeaturesResponse,
    FormatRequest,
    FormatResponse,
    NodeStatus,
    OpaqueRecord,
    ReadChunk,
    ReadRequest,
    UpdateFeaturesRequest,
)


@runtime_checkable
class NodeHandler(Protocol):
    """What every node does, formatted or not."""

    async def node_status(self) -> NodeStatus: ...

    async def format(self, request: FormatRequest) -> FormatResponse: ...


@runtime_checkable
class RaftHandler(NodeHandler, Protocol):
    """What a node with storage does besides."""

    async def handle(self, request: PeerRequest | AdminRequest) -> Response:
        """Everything that has no method of its own below, answered with the response that belongs
        to it.
        """
        ...

    async def fetch(self, request: FetchRequest) -> tuple[FetchResponse, Sequence[Buffer]]:
        """The answer and the encoded batches that go with it, in order; may take `max_wait_ms`."""
        ...

    async def fetch_snapshot(self, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
        """The answer with its bytes, at most `max_bytes`; less is no error."""
        ...

    async def checksum_log(self, request: ChecksumLogRequest) -> ChecksumLogResponse:
        """The checksum of a range of committed batches, as they lie in this node's files."""
        ...

    async def append(
        self, records: Sequence[OpaqueRecord], timeout_ms: int
    ) -> tuple[ErrorCode, CurrentLeader, int, str]:
        """Append one batch and wait for its commit: (error, leader, base offset, message).

        See `AppendOutcome`; its errors tell whether anything was appended.
        """
        ...

    def read(self, request: ReadRequest) -> AsyncIterator[ReadChunk]:
        """Pieces of what is committed, up to and with the one that is the last."""
        ...

    async def describe_features(self) -> DescribeFeaturesResponse: ...

    async def update_features(self, request: UpdateFeaturesRequest) -> AdminResponse: ...
