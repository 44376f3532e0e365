"""The driver of a raft node: it gives the node its inputs and does what the node's outputs ask for.

Rules:
1. The node is called on the event loop's thread only, and never across an await: an input, the
   outputs it causes and their execution are one uninterrupted step (`_settle`).
2. Outputs are executed in order. `PersistElection` and `PersistRequiredEnd` return when they are
   durable; log changes are
   queued with the log's writer thread, which reports their tickets.
3. Fetch answers take their bytes from the log in that same step, so records and epoch fit together.
4. What cannot be written ends the process: a replica that cannot keep its promises must not make
   any.

Source: the contract of `raft.node`; durability rules of the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from quorate.log.errors import LogError, SnapshotNotFoundError
from quorate.log.metadata_log import MetadataLog, partition_directory
from quorate.log.quorum_state import QuorumStateFile
from quorate.log.required_end import RequiredEndFile
from quorate.raft import RaftNode
from quorate.raft import outputs as out
from quorate.raft.batches import Batch
from quorate.raft.errors import ErrorCode, FatalError
from quorate.raft.messages import (
    AdminRequest,
    FetchResponse,
    FetchSnapshotResponse,
    PeerRequest,
    Response,
)
from quorate.raft.types import OffsetAndEpoch
from quorate.records.batch import build_control_batch, stamp
from quorate.records.errors import RecordsError
from quorate.runtime.clock import Clock
from quorate.runtime.commits import Commit, CommitQueue, PendingAppend
from quorate.runtime.installing import SnapshotReceiver
from quorate.runtime.outbound import Outbound
from quorate.telemetry.recorder import Recorder

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from quorate.runtime.tracing import WriteTraces

LOGGER = logging.getLogger(__name__)

EXPIRY_PERIOD_S = 0.25
"""How often appends are checked for their timeouts, seconds."""

ELECTING = (out.RoleName.PROSPECTIVE, out.RoleName.CANDIDATE)
"""The roles of a replica that asks for votes."""

Bytes = bytes | bytearray | memoryview
Answer = tuple[Response, list[Bytes]]


class RaftDriver:
    """Owns one `RaftNode`. Start with `start()`, end with `hand_over()` and `close()`.

    on_fatal: called once, with the reason, when the replica cannot go on.
    on_committed: called after each advance of the high watermark.
    on_leadership: called when this replica begins to lead, and when it ends.
    traces: follows sampled appends; None, and the cost of a comparison, where nobody wants that.
    """

    def __init__(
        self,
        node: RaftNode,
        log: MetadataLog,
        quorum_state: QuorumStateFile,
        outbound: Outbound,
        clock: Clock,
        *,
        on_fatal: Callable[[BaseException], None],
        on_committed: Callable[[int], None] = lambda _offset: None,
        on_role: Callable[[out.RoleChanged], None] = lambda _role: None,
        on_voters: Callable[[out.VotersChanged], None] = lambda _voters: None,
        on_leadership: Callable[
            [out.LeadershipAcquired | out.LeadershipLost], None
        ] = lambda _office: None,
        traces: WriteTraces | None = None,
    ) -> None:
        self.traces = traces
        self.node = node
        self.log = log
        self.recorder = Recorder()
        self.commits = CommitQueue(self.recorder.commit_latency)
        self._quorum_state = quorum_state
        self._required_end = RequiredEndFile(partition_directory(log.directory))
        self._outbound = outbound
        self._clock = clock
        self._on_fatal = on_fatal
        self._on_committed = on_committed
        self._on_role = on_role
        self._on_voters = on_voters
        self._on_leadership = on_leadership
        self._receiver = SnapshotReceiver(log)
        self._request_ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._appends: list[PendingAppend] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0
        self._expiry: asyncio.TimerHandle | None = None
        self._failed = False
        self._settling = False
        self._quiet = asyncio.Event()

    # --- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin: execute what recovery decided and arm the timer."""
        self._outbound.bind(self)
        self._settle()
        self._expire()

    async def hand_over(self, timeout_s: float) -> None:
        """Stop leading, and give the voters up to `timeout_s` seconds to hear of it."""
        if not self._failed:
            self._step(self.node.shut_down)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._quiet.wait(), timeout_s)

    async def close(self) -> None:
        """Take no further input. Whoever still waits is told that the node is gone."""
        self._failed = True
        for handle in (self._timer, self._expiry):
            if handle is not None:
                handle.cancel()
        await self._outbound.close()
        for future in self._waiting.values():
            future.cancel()
        self.commits.leadership_lost()

    def fail(self, reason: BaseException) -> None:
        """The replica cannot go on: say so once and take no further input."""
        if not self._failed:
            self._failed = True
            LOGGER.critical("the replica stops: %s", reason)
            self._on_fatal(reason)

    # --- inputs -----------------------------------------------------------------------------------

    def now_ms(self) -> int:
        return self._clock.now_ms()

    async def ask(self, request: PeerRequest | AdminRequest) -> Answer:
        """Give the node a request; its answer, and for a Fetch the bytes that belong to it."""
        if self._failed:
            raise asyncio.CancelledError
        request_id = next(self._request_ids)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = future
        try:
            self._step(lambda now_ms: self.node.handle_request(request_id, request, now_ms))
            return await future
        finally:
            self._waiting.pop(request_id, None)

    def answered(self, request_id: int, response: Response) -> None:
        """The answer to one of the node's own requests."""
        if self.traces is not None and isinstance(response, FetchResponse) and response.traces:
            self.traces.fetched(response.traces)
        self._step(lambda now_ms: self.node.handle_response(request_id, response, now_ms))

    def unanswered(self, request_id: int, reason: str, *, refused: bool) -> None:
        """One of the node's own requests got no answer."""
        self._step(
            lambda now_ms: self.node.handle_failure(request_id, reason, now_ms, refused=refused)
        )

    def connection_lost(self, leader_id: int) -> None:
        """The stream to that leader broke."""
        self._step(lambda now_ms: self.node.connection_lost(leader_id, now_ms))

    def durable(self, ticket: int) -> None:
        """The log's writer reports a ticket (called on the loop's thread)."""
        if self.traces is not None:
            self.traces.durable(ticket)
        self._step(lambda now_ms: self.node.log_durable(ticket, now_ms))

    def resign(self, reason: str) -> None:
        """Stop leading, if this replica leads."""
        self._step(lambda now_ms: self.node.resign(reason, now_ms))

    def snapshot_created(self, snapshot: OffsetAndEpoch) -> None:
        """A snapshot of committed records is on disk."""
        self._step(lambda now_ms: self.node.snapshot_created(snapshot, now_ms))

    def log_start_advanced(self, start: OffsetAndEpoch) -> None:
        """Old segments were deleted."""
        self._step(lambda now_ms: self.node.log_start_advanced(start, now_ms))

    def _step(self, feed: Callable[[int], None]) -> None:
        """One input, the outputs it causes, and their execution."""
        if self._failed:
            return
        try:
            feed(self._clock.now_ms())
        except (FatalError, AssertionError) as error:
            self.fail(error)
            return
        self._settle()

    async def append(
        self, count: int, batch: bytearray, timeout_ms: int, span: Span | None = None
    ) -> Commit | ErrorCode:
        """Append one data batch of `count` records and wait for its commit.

        Returns the offset of its first record and how the wait ended, or NOT_LEADER_OR_FOLLOWER,
        and then nothing was appended. All batches that arrive in one turn of the loop are one
        append.
        """
        loop = asyncio.get_running_loop()
        if not self._appends:
            loop.call_soon(self._append_all)
        deadline_ms = self._clock.now_ms() + timeout_ms
        pending = PendingAppend(count, batch, deadline_ms, loop.create_future(), span=span)
        self._appends.append(pending)
        return await pending.future

    def _append_all(self) -> None:
        appends, self._appends = self._appends, []
        if not appends:
            return  # `append_now` was faster
        base: int | ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not self._failed:
            payloads = [(pending.count, pending.batch) for pending in appends]
            base = self.node.append(payloads, self._clock.now_ms())
        for pending in appends:
            if isinstance(base, ErrorCode):
                pending.end(base)
                continue
            pending.base_offset = base
            base += pending.count
            self.commits.add(pending)
            if pending.span is not None and self.traces is not None:
                first = pending.base_offset
                self.traces.appended(pending.span, first, base, self.node.epoch)
        self._settle()

    def append_now(
        self, build: Callable[[int], tuple[int, bytearray] | None], timeout_ms: int
    ) -> asyncio.Future[Commit | ErrorCode] | None:
        """Append, in this very step, the batch that `build` makes for the offset it will have.

        build: gets the next offset, after all that was handed over before, and returns (number of
        records, batch), or None for nothing to append, which is returned then. It is not called
        where nothing can be appended: the future says NOT_LEADER_OR_FOLLOWER. Otherwise it ends as
        `append` does.
        """
        if self._appends:
            self._append_all()
        future: asyncio.Future[Commit | ErrorCode] = asyncio.get_running_loop().create_future()
        if self._failed or not self.node.takes_appends:
            future.set_result(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return future
        made = build(self.node.core.log.end_offset)
        if made is None:
            return None
        count, batch = made
        now_ms = self._clock.now_ms()
        base = self.node.append([(count, batch)], now_ms)
        assert not isinstance(base, ErrorCode), "a node that takes appends appends"
        self.commits.add(PendingAppend(count, batch, now_ms + timeout_ms, future, base))
        self._settle()
        return future

    # --- outputs ----------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Execute outputs until there are none, then arm the timer."""
        if self._failed or self._settling:
            return
        self._settling = True
        try:
            while outputs := self.node.take_outputs():
                for output in outputs:
                    self._execute(output)
        except (FatalError, AssertionError, OSError, LogError) as error:
            self.fail(error)
        finally:
            self._settling = False
        if self.node.is_quiet:
            self._quiet.set()
        else:
            self._quiet.clear()
        self._arm()

    def _execute(self, output: out.Output) -> None:
        match output:
            case out.AppendBatches():
                self._append_to_log(output)
            case out.Respond():
                self._respond(output.request_id, output.response)
            case out.Send() | out.SendAdmin():
                self._outbound.send(output)
            case out.HighWatermarkAdvanced():
                self.commits.committed(output.offset)
                if self.traces is not None:
                    self.traces.committed(output.offset)
                self._on_committed(output.offset)
            case out.PersistElection():
                self._quorum_state.write(output.state, output.kraft_version)
            case out.PersistRequiredEnd():
                self._required_end.write(output.required_end)
            case out.TruncateLog():
                self.log.truncate(output.ticket, output.end_offset)
            case out.LeadershipAcquired():
                LOGGER.info("leads epoch %d from offset %d", output.epoch, output.start_offset)
                self._on_leadership(output)
            case out.LeadershipLost():
                self.commits.leadership_lost()
                if self.traces is not None:
                    self.traces.leadership_lost()
                self._on_leadership(output)
            case out.RoleChanged():
                self.recorder.role_changed(
                    self._clock.now_ms(),
                    elects=output.role in ELECTING,
                    has_leader=output.leader_id is not None,
                )
                self._on_role(output)
            case out.VotersChanged():
                self._on_voters(output)
            case out.StartSnapshotFetch() | out.WriteSnapshotChunk() | out.InstallSnapshot():
                self._receive_snapshot(output)
            case out.Notice():
                LOGGER.log(logging.WARNING if output.warning else logging.INFO, output.text)

    def _append_to_log(self, output: out.AppendBatches) -> None:
        batches = output.batches
        self.log.append(output.ticket, [self._encode(batch) for batch in batches])
        count = batches[-1].end_offset - batches[0].base_offset
        if self.node.is_leader:
            self.recorder.appended_records += count
        else:
            self.recorder.fetched_records += count
        if self.traces is not None:
            self.traces.logged(output.ticket, batches[0].base_offset, batches[-1].end_offset)

    def _encode(self, batch: Batch) -> Bytes:
        """The bytes of a batch to append; those of a leader get their offset and epoch here."""
        data = batch.data
        if batch.control and data is None:
            data = build_control_batch(batch.control, self._clock.now_ms())
        if isinstance(data, bytearray):
            stamp(data, batch.base_offset, batch.epoch)
        assert isinstance(data, bytes | bytearray | memoryview)
        return data

    def _respond(self, request_id: int, response: Response) -> None:
        future = self._waiting.pop(request_id, None)
        if future is None or future.done():
            return
        data: list[Bytes] = []
        if isinstance(response, FetchResponse) and response.records_from is not None:
            data = list(self.log.read(response.records_from, response.max_bytes))
            if data and self.traces is not None:
                traces = self.traces.carried(response.records_from)
                response = replace(response, traces=traces) if traces else response
        elif isinstance(response, FetchSnapshotResponse) and response.error is ErrorCode.NONE:
            response = self._read_snapshot(response)
        future.set_result((response, data))

    def _read_snapshot(self, response: FetchSnapshotResponse) -> FetchSnapshotResponse:
        """Fill in the bytes (KIP-630): SNAPSHOT_NOT_FOUND, POSITION_OUT_OF_RANGE are known only
        here.
        """
        assert response.snapshot is not None
        try:
            reader = self.log.open_snapshot(response.snapshot)
        except SnapshotNotFoundError:
            return replace(response, error=ErrorCode.SNAPSHOT_NOT_FOUND)
        try:
            if response.position > reader.size:
                return replace(response, error=ErrorCode.POSITION_OUT_OF_RANGE)
            data = reader.read(response.position, response.max_bytes)
            return replace(response, size=reader.size, data=data)
        finally:
            reader.close()

    def _receive_snapshot(
        self, output: out.StartSnapshotFetch | out.WriteSnapshotChunk | out.InstallSnapshot
    ) -> None:
        now_ms = self._clock.now_ms()
        try:
            if isinstance(output, out.StartSnapshotFetch):
                position = self._receiver.begin(output.snapshot)
                self.node.snapshot_position(output.snapshot, position, now_ms)
            elif isinstance(output, out.WriteSnapshotChunk):
                self._receiver.write(output.snapshot, output.position, output.data)
            else:
                ticket = self.node.core.log.last_ticket + 1
                voters, versions = self._receiver.install(output.snapshot, ticket)
                self.node.snapshot_installed(output.snapshot, voters, versions, now_ms)
                LOGGER.info("installed snapshot %s", output.snapshot)
        except (LogError, RecordsError) as error:
            self.node.snapshot_failed(output.snapshot, str(error), now_ms)

    # --- time -------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Keep one timer at or before the node's next deadline."""
        if self._failed:
            return
        if self._timer is not None and self._timer_at_ms <= self.node.core.due_ms:
            return  # no deadline is earlier than that, and finding the earliest is work
        deadline_ms = self.node.next_deadline_ms()
        if self._timer is not None:
            if self._timer_at_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._timer_at_ms = deadline_ms
        delay_s = max(1, deadline_ms - self._clock.now_ms()) / 1000
        self._timer = asyncio.get_running_loop().call_later(min(delay_s, 3600.0), self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._step(self.node.tick)

    def _expire(self) -> None:
        if not self._failed:
            self.commits.expire(self._clock.now_ms())
            loop = asyncio.get_running_loop()
            self._expiry = loop.call_later(EXPIRY_PERIOD_S, self._expire)
