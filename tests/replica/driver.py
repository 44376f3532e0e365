"""The driver of one `RaftNode` on a disk in memory.

It executes the outputs in their order, as `raft/outputs.py` asks: quorum-state is durable before
the next output is executed, changes of the log are queued and reported by their ticket when a sync
that began after them has ended, a Fetch is answered with what the log holds at that moment.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, TypeVar

from quorate.common.error_codes import ErrorCode
from quorate.raft.config import InitialState, RaftConfig, Randomness
from quorate.raft.messages import FetchResponse, FetchSnapshotResponse, Request, Response
from quorate.raft.node import RaftNode
from quorate.raft.outputs import (
    AppendBatches,
    HighWatermarkAdvanced,
    LeadershipAcquired,
    LeadershipLost,
    Notice,
    Output,
    PersistElection,
    PersistRequiredEnd,
    Respond,
    RoleChanged,
    TruncateLog,
    VotersChanged,
    WriteSnapshotChunk,
)
from quorate.raft.types import OffsetAndEpoch, ReplicaKey, VoterSet

from tests.replica.disk import Disk, Snapshot
from tests.replica.errors import InvariantError

T = TypeVar("T")

Waiter = tuple[Any, int, int, Request]
"""The sender of an inbound request: (what the subclass knows it by, the number of its run, its
request id, the request).
"""

Content = Callable[[OffsetAndEpoch, int, VoterSet], bytes]
"""The bytes of a snapshot with this id, kraft.version and voter set."""


class Replica(ABC):
    """A process and its disk. `raft` is None while the process does not run; `life` changes with
    every start and end. waiting: inbound requests without a response, by their ids in this process.

    Inputs have the time as their last argument, as those of `RaftNode` do.
    """

    __slots__ = ("_last_request_id", "disk", "key", "life", "raft", "waiting")

    executors: ClassVar[Mapping[type, Callable[[Any, Any], None]]]
    """For every kind of output, the function that executes it on a replica."""

    def __init__(self, key: ReplicaKey, disk: Disk) -> None:
        self.key = key
        self.disk = disk
        self.raft: RaftNode | None = None
        self.life = 0
        self.waiting: dict[int, Waiter] = {}
        self._last_request_id = 0

    @abstractmethod
    def now_ms(self) -> int:
        """What the replica's clock shows."""

    @abstractmethod
    def make_config(self) -> RaftConfig:
        """The configuration of the run that begins."""

    @abstractmethod
    def read_snapshot(self, name: OffsetAndEpoch, content: bytes) -> Snapshot:
        """The received snapshot with these bytes. Raises ValueError if they are damaged."""

    # --- the process ------------------------------------------------------------------------------

    def use_disk(self, disk: Disk) -> None:
        """From now on this is the node's disk, and so the node another replica."""
        self.disk = disk
        self.key = ReplicaKey(self.key.id, disk.directory_id)

    def recover(self, random: Randomness) -> InitialState:
        """Start a process; return what it found on the disk. `flush` executes its first outputs."""
        assert self.raft is None
        self.life += 1
        self.waiting = {}
        self._last_request_id = 0
        initial = self.disk.recover()
        self.raft = RaftNode(self.make_config(), initial, random, self.now_ms())
        return initial

    # --- inputs -----------------------------------------------------------------------------------

    def feed(self, handle: Callable[..., T], *args: Any) -> T | None:
        """Pass one input to `handle`, and execute the outputs. Return what `handle` returned."""
        result = handle(*args, self.now_ms())
        self.flush()
        return result

    def handle_request(
        self, request: Request, source: object, life: int, request_id: int, now_ms: int
    ) -> int:
        """Return the id of the request in this process. source, life, request_id: see `Waiter`."""
        assert self.raft is not None
        self._last_request_id = own_id = self._last_request_id + 1
        self.waiting[own_id] = (source, life, request_id, request)
        self.raft.handle_request(own_id, request, now_ms)
        return own_id

    def handle_reset(self, request_id: int, reason: str, now_ms: int) -> None:
        """The connection over which a request was sent was refused or reset."""
        assert self.raft is not None
        self.raft.handle_failure(request_id, reason, now_ms, refused=True)

    def synced(self, ticket: int, now_ms: int) -> None:
        """A sync ended that began after the change with this ticket."""
        assert self.raft is not None
        self.disk.log.synced(ticket)
        self.raft.log_durable(ticket, now_ms)

    def snapshot_at(self, offset: int, count: int, content: Content) -> Snapshot:
        """What the state machine writes that has applied `count` batches, up to `offset`."""
        assert self.raft is not None
        name = OffsetAndEpoch(offset, self.raft.epoch_before(offset))
        level, voters = self.raft.membership_at(offset)
        known = voters if level else None
        return Snapshot(name, level, known, count, content(name, level, voters))

    def keep(self, snapshot: Snapshot, now_ms: int) -> None:
        """The state machine wrote a snapshot."""
        assert self.raft is not None
        self.raft.snapshot_created(snapshot.id, now_ms)
        self.disk.keep(snapshot)

    def clean(self, start: OffsetAndEpoch, now_ms: int) -> None:
        """Delete what lies before `start`, a snapshot's id."""
        assert self.raft is not None
        self.disk.clean(start)
        self.raft.log_start_advanced(start, now_ms)

    def install(self, name: OffsetAndEpoch, now_ms: int) -> Snapshot | None:
        """A received snapshot replaces the log. Return None if its bytes are damaged."""
        assert self.raft is not None
        try:
            snapshot = self.read_snapshot(name, bytes(self.disk.parts.pop(name, b"")))
        except ValueError as error:
            self.raft.snapshot_failed(name, str(error), now_ms)
            return None
        self.disk.log.install(snapshot)
        self.disk.keep(snapshot)
        self.raft.snapshot_installed(name, *snapshot.membership, now_ms)
        return snapshot

    # --- outputs ----------------------------------------------------------------------------------

    @abstractmethod
    def flush(self) -> None:
        """`execute` the outputs, if the process runs."""

    def execute(self, outputs: Iterable[Output]) -> None:
        """Execute outputs in their order, until the process ends."""
        raft, executors = self.raft, self.executors
        for output in outputs:
            executors[output.__class__](self, output)
            if self.raft is not raft:
                return

    def take_response(self, output: Respond) -> tuple[Waiter, Response]:
        """The waiter for a response, and the response, with its records or snapshot bytes added."""
        waiter = self.waiting.pop(output.request_id, None)
        if waiter is None:
            raise InvariantError("AnsweredOnce", f"{self.key} answers nobody with {output}")
        response = output.response
        if response.__class__ is FetchResponse:
            if response.records_from is not None:
                # Filled in where it stands: it was made for this answer alone.
                records = self.disk.log.read(response.records_from, response.max_bytes)
                response.batches = records  # type: ignore[misc]
        elif isinstance(response, FetchSnapshotResponse):
            response = self._with_bytes(response)
        return waiter, response

    def _with_bytes(self, response: FetchSnapshotResponse) -> FetchSnapshotResponse:
        name, leader, position = response.snapshot, response.leader, response.position
        if response.error is not ErrorCode.NONE or name is None:
            return response
        snapshot = self.disk.snapshots.get(name)
        if snapshot is None:
            return FetchSnapshotResponse(ErrorCode.SNAPSHOT_NOT_FOUND, leader, name)
        size = len(snapshot.content)
        if position > size:
            return FetchSnapshotResponse(ErrorCode.POSITION_OUT_OF_RANGE, leader, name)
        data = snapshot.content[position : position + response.max_bytes]
        return FetchSnapshotResponse(ErrorCode.NONE, leader, name, size, position, 0, data)


def persist_election(replica: Replica, output: PersistElection) -> None:
    known, state = replica.disk.election, output.state
    if known is not None and state.epoch < known.epoch:
        raise InvariantError("MonotonicEpoch", f"{replica.key}: from {known} to {state}")
    replica.disk.election = state


def persist_required_end(replica: Replica, output: PersistRequiredEnd) -> None:
    replica.disk.required_end = output.required_end


def append(replica: Replica, output: AppendBatches) -> None:
    replica.disk.log.append(output.ticket, output.batches)


def truncate(replica: Replica, output: TruncateLog) -> None:
    replica.disk.log.truncate(output.ticket, output.end_offset)


def change_voters(replica: Replica, output: VotersChanged) -> None:
    replica.disk.removed = output.removed_self


def write_chunk(replica: Replica, output: WriteSnapshotChunk) -> None:
    part = replica.disk.part(output.snapshot)
    if output.position > len(part):
        text = f"{replica.key} writes at {output.position} of a part of {len(part)} bytes"
        raise InvariantError("LogContract", text)
    part[output.position :] = output.data


def ignore(_: Replica, __: Output) -> None:
    """It tells what happened, and asks for nothing."""


EXECUTORS: dict[type, Callable[[Any, Any], None]] = {
    PersistElection: persist_election,
    PersistRequiredEnd: persist_required_end,
    AppendBatches: append,
    TruncateLog: truncate,
    VotersChanged: change_voters,
    WriteSnapshotChunk: write_chunk,
    HighWatermarkAdvanced: ignore,
    LeadershipAcquired: ignore,
    LeadershipLost: ignore,
    RoleChanged: ignore,
    Notice: ignore,
}
"""How every replica executes outputs, less messages and the reception of snapshots."""
