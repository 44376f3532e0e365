"""The driver of a raft node: it passes inputs to the node and executes the node's outputs.

Rules:
1. The node is called on the event loop's thread only, and never across an await: an input, the
   outputs it causes and their execution are one uninterrupted step (`_settle`).
2. Outputs are executed in order. `PersistElection` and `PersistRequiredEnd` return when they are
   durable; log changes are queued with the log's writer thread, which reports their tickets.
3. Fetch responses take their bytes from the log in the same step, so that records and epoch match.
4. A write failure stops the process: a replica that cannot persist must not acknowledge. So does an
   unexpected exception in the node, in the execution of an output or in a callback, because the
   step is half done. Every pending request fails immediately.
5. A leader resigns if its event loop or its disk stalls for longer than the fetch timeout: the loop
   before it processes the next input, the disk during the stall. This replica then starts no
   election until the disk responds.

Source: the contract of `raft.node`; durability rules of the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from quorate.common.error_codes import ErrorCode
from quorate.log.errors import SnapshotNotFoundError
from quorate.log.metadata_log import MetadataLog, partition_directory
from quorate.log.quorum_state import QuorumStateFile
from quorate.log.required_end import RequiredEndFile
from quorate.raft import RaftNode
from quorate.raft import outputs as out
from quorate.raft.batches import Batch
from quorate.raft.messages import (
    AdminRequest,
    FetchResponse,
    FetchSnapshotResponse,
    PeerRequest,
    Response,
)
from quorate.raft.types import OffsetAndEpoch
from quorate.records.batch import build_control_batch, stamp
from quorate.runtime.clock import Clock
from quorate.runtime.outbound import Outbound
from quorate.runtime.peer_contacts import PeerContacts
from quorate.runtime.pending_appends import Commit, CommitOutcome, CommitQueue, PendingAppend
from quorate.runtime.snapshot_receiver import SnapshotReceiver
from quorate.runtime.tasks import explained
from quorate.telemetry.recorder import Recorder

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from quorate.runtime.tracing import WriteTraces

LOGGER = logging.getLogger(__name__)

WATCH_PERIOD_S = 0.25
"""Interval of the checks for expired appends and for a stalled loop or disk, seconds."""

ELECTING = (out.RoleName.PROSPECTIVE, out.RoleName.CANDIDATE)
"""The roles in which a replica requests votes."""

Bytes = bytes | bytearray | memoryview
Answer = tuple[Response, list[Bytes]]


class RaftListener(Protocol):
    """Is notified of commits and of this replica's leadership, in the order of the outputs.

    The methods are called within a step of the driver: they must not block, and must not raise.
    """

    def committed(self, offset: int) -> None:
        """Everything before `offset` is committed."""

    def leadership(self, change: out.LeadershipAcquired | out.LeadershipLost) -> None:
        """This replica has gained or lost leadership."""


class RaftDriver:
    """Owns one `RaftNode`. Start with `start()`, end with `hand_over()` and `close()`.

    on_fatal: called once, with the reason, when the replica cannot continue.
    on_committed: called with the high watermark after each advance.
    on_role, on_voters: called after each change of the role or the voter set.
    on_leadership: called when this replica gains leadership, and when it loses it.
    on_append: called with the offset and the bytes of each data batch that this replica appends as
    the leader, within the step that appends it. Set it while the replica leads.
    traces: traces sampled appends; None disables tracing.
    contacts: how peers responded to requests, but for a leader's responses to Fetch.
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
        ] = lambda _change: None,
        traces: WriteTraces | None = None,
    ) -> None:
        self.traces = traces
        self.on_append: Callable[[int, bytearray], None] | None = None
        self.node = node
        self.log = log
        self.recorder = Recorder()
        self.contacts = PeerContacts()
        self.pending_appends = CommitQueue(self.recorder.commit_latency)
        self._quorum_state = quorum_state
        self._required_end = RequiredEndFile(partition_directory(log.directory))
        self._outbound = outbound
        self._clock = clock
        self._on_fatal = on_fatal
        self._on_committed = on_committed
        self._on_role = on_role
        self._on_voters = on_voters
        self._on_leadership = on_leadership
        self._listeners: list[RaftListener] = []
        self._receiver = SnapshotReceiver(log, node, self._step, self.fail)
        self._request_ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._appends: list[PendingAppend] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0
        self._watcher: asyncio.TimerHandle | None = None
        self._stall_ms = node.core.config.fetch_timeout_ms
        self._sleep_max_ms = self._stall_ms + WATCH_PERIOD_S * 1000
        self._alive_ms = clock.now_ms()
        self._unsynced_ms: int | None = None
        self._disk_is_silent = False
        self._failed = False
        self._settling = False
        self._quiet = asyncio.Event()

    def add_listener(self, listener: RaftListener) -> None:
        """Notify `listener` too, after the callbacks. Call this before the start."""
        self._listeners.append(listener)

    # --- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Execute the outputs that recovery caused, arm the timer, and start the checks."""
        self._alive_ms = self._clock.now_ms()
        self._outbound.bind(self)
        self._settle()
        self._watch()

    async def hand_over(self, timeout_s: float) -> None:
        """Resign, and wait up to `timeout_s` seconds until the voters are notified.

        Returns at once if the replica fails meanwhile.
        """
        if not self._failed:
            self._step(self.node.shut_down)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._quiet.wait(), timeout_s)

    async def close(self) -> None:
        """Accept no further input, and fail all pending requests."""
        self._failed = True
        for handle in (self._timer, self._watcher):
            if handle is not None:
                handle.cancel()
        await self._outbound.close()
        await self._receiver.close()
        self._release()

    def fail(self, error: BaseException) -> None:
        """Stop after a fatal error: accept no further input, fail pending requests."""
        if self._failed:
            return
        self._failed = True
        self._quiet.set()  # no acknowledgement of a resignation is handled any more
        self._receiver.stop()
        self._release()
        self._on_fatal(explained(error))

    def _release(self) -> None:
        """Fail all pending requests. Appended records may still be committed."""
        for future in self._waiting.values():
            future.cancel()
        self.pending_appends.leadership_lost()
        appends, self._appends = self._appends, []
        for pending in appends:
            pending.end(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # --- inputs -----------------------------------------------------------------------------------

    def now_ms(self) -> int:
        return self._clock.now_ms()

    async def ask(self, request: PeerRequest | AdminRequest) -> Answer:
        """Pass a request to the node; returns its response, and the batches of a Fetch response.

        Raises CancelledError if the replica stops.
        """
        if self._failed:
            raise asyncio.CancelledError
        request_id = next(self._request_ids)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = future
        try:
            self._step(lambda now_ms: self.node.handle_request(request_id, request, now_ms))
            response, data = await future
        except asyncio.CancelledError:
            # The client disconnected: what is not appended yet is dropped.
            self._step(lambda now_ms: self.node.cancel_request(request_id, now_ms))
            raise
        finally:
            self._waiting.pop(request_id, None)
        if isinstance(response, FetchSnapshotResponse) and response.error is ErrorCode.NONE:
            try:
                response = await asyncio.to_thread(self._read_snapshot, response)
            except OSError as error:
                self.fail(error)
                raise asyncio.CancelledError from error
        return response, data

    def answered(self, request_id: int, response: Response) -> None:
        """Pass the node the response to one of its own requests.

        A chunk of a snapshot waits until the previous one is written, so that chunks do not pile up
        in memory if the network is faster than the disk.
        """
        if isinstance(response, FetchSnapshotResponse) and self._receiver.is_busy:
            self._receiver.when_idle(lambda: self.answered(request_id, response))
            return
        if self.traces is not None and isinstance(response, FetchResponse) and response.traces:
            self.traces.fetched(response.traces)
        if not isinstance(response, FetchResponse) or response.error is not ErrorCode.NONE:
            self._note_contact(request_id)
        self._step(lambda now_ms: self.node.handle_response(request_id, response, now_ms))

    def unanswered(self, request_id: int, reason: str, *, refused: bool) -> None:
        """Report to the node that one of its own requests got no response.

        refused: no process listens at the address, or it closed the connection.
        """
        self._note_contact(request_id, reason)
        self._step(
            lambda now_ms: self.node.handle_failure(request_id, reason, now_ms, refused=refused)
        )

    def _note_contact(self, request_id: int, failure: str = "") -> None:
        sent = self.node.core.inflight.get(request_id)
        if sent is not None:
            self.contacts.note(sent.endpoint, self._clock.now_ms(), failure)

    def connection_lost(self, leader_id: int) -> None:
        """Report to the node that the stream to this leader broke."""
        self._step(lambda now_ms: self.node.connection_lost(leader_id, now_ms))

    def durable(self, ticket: int) -> None:
        """Report that the log's writer has synced a ticket; call this on the loop's thread."""
        self._step(lambda now_ms: self._log_durable(ticket, now_ms))

    def resign(self, reason: str) -> None:
        """Resign, if this replica leads."""
        self._step(lambda now_ms: self.node.resign(reason, now_ms))

    def snapshot_created(self, snapshot: OffsetAndEpoch) -> None:
        """Report that a snapshot of committed records is on disk."""
        self._step(lambda now_ms: self.node.snapshot_created(snapshot, now_ms))

    def log_start_advanced(self, start: OffsetAndEpoch) -> None:
        """Report that the log starts at `start`, and that what lies before it is deleted."""
        self._step(lambda now_ms: self.node.log_start_advanced(start, now_ms))

    def _step(self, feed: Callable[[int], None]) -> None:
        """Process one input and execute the outputs that it causes."""
        if self._failed:
            return
        try:
            feed(self._now())
        except Exception as error:
            self.fail(error)
            return
        self._settle()

    def _now(self) -> int:
        """The time of an input, in ms. A leader whose loop was blocked resigns first."""
        now_ms = self._clock.now_ms()
        if now_ms - self._alive_ms > self._sleep_max_ms:
            self._woke_up(now_ms)
        self._alive_ms = now_ms
        return now_ms

    def _woke_up(self, now_ms: int) -> None:
        """Report to the node that the loop was blocked, so that another replica may lead by now."""
        text = (
            f"the event loop was blocked for {(now_ms - self._alive_ms) / 1000:.1f} s, longer than "
            f"the fetch timeout of {self._stall_ms / 1000:.1f} s"
        )
        LOGGER.warning("%s", text)
        self._alive_ms = now_ms
        self.node.loop_stalled(text, now_ms)
        self._settle()

    async def append(
        self, count: int, batch: bytearray, timeout_ms: int, span: Span | None = None
    ) -> Commit | ErrorCode:
        """Append one data batch of `count` records and wait for its commit.

        Returns the offset of its first record and how the wait ended; or NOT_LEADER_OR_FOLLOWER if
        nothing was appended. All batches that arrive in one iteration of the loop are appended
        together.
        """
        loop = asyncio.get_running_loop()
        if self._failed:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not self._appends:
            loop.call_soon(self._append_all)
        deadline_ms = self._clock.now_ms() + timeout_ms
        pending = PendingAppend(count, batch, deadline_ms, loop.create_future(), span=span)
        self._appends.append(pending)
        return await pending.future

    def _append_all(self) -> None:
        appends, self._appends = self._appends, []
        if not appends or self._failed:
            return  # `append_now` has appended them, or `fail` has completed them
        try:
            self._append_pending(appends)
        except Exception as error:
            self.fail(error)
        self._settle()
        if self._failed:
            for pending in appends:
                pending.end(CommitOutcome.LEADERSHIP_LOST)

    def _append_pending(self, appends: list[PendingAppend]) -> None:
        payloads = [(pending.count, pending.batch) for pending in appends]
        base = self.node.append(payloads, self._now())
        for pending in appends:
            if isinstance(base, ErrorCode):
                pending.end(base)
                continue
            pending.base_offset = base
            base += pending.count
            self._await_commit(pending)

    def _await_commit(self, pending: PendingAppend) -> None:
        """Queue an append whose offset is assigned."""
        self.pending_appends.add(pending)
        if self.on_append is not None:
            self.on_append(pending.base_offset, pending.batch)
        if pending.span is not None and self.traces is not None:
            first = pending.base_offset
            self.traces.appended(pending.span, first, first + pending.count, self.node.epoch)

    def append_now(
        self,
        build: Callable[[int], tuple[int, bytearray] | None],
        timeout_ms: int,
        span: Span | None = None,
    ) -> asyncio.Future[Commit | ErrorCode] | None:
        """Append the batch that `build` creates for the next offset, within the current step.

        build: gets the next offset, after all queued appends, and returns (number of records,
        batch), or None if there is nothing to append; this method then returns None. If this
        replica accepts no appends, `build` is not called, and the future results in
        NOT_LEADER_OR_FOLLOWER. Otherwise its result is that of `append`.
        """
        if self._appends:
            self._append_all()
        elif self._clock.now_ms() - self._alive_ms > self._sleep_max_ms:
            self._step(lambda _now_ms: None)  # the loop was blocked: resign before `build`
        future: asyncio.Future[Commit | ErrorCode] = asyncio.get_running_loop().create_future()
        if self._failed or not self.node.takes_appends:
            future.set_result(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return future
        made = build(self.node.core.log.end_offset)
        if made is None:
            return None
        count, batch = made
        deadline_ms = self._clock.now_ms() + timeout_ms
        pending = PendingAppend(count, batch, deadline_ms, future, span=span)
        try:
            base = self.node.append([(count, batch)], self._clock.now_ms())
            assert not isinstance(base, ErrorCode), "a node that takes appends appends"
            pending.base_offset = base
            self._await_commit(pending)
        except Exception as error:
            self.fail(error)
        self._settle()
        if self._failed:
            pending.end(CommitOutcome.LEADERSHIP_LOST)
        return future

    # --- outputs ----------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Execute outputs until none are left, then arm the timer."""
        if self._failed or self._settling:
            return
        self._settling = True
        try:
            while outputs := self.node.take_outputs():
                for output in outputs:
                    self._execute(output)
                    if self._failed:
                        return  # a callback or an input that an output caused failed
            if self.node.is_quiet:
                self._quiet.set()
            else:
                self._quiet.clear()
            self._arm()
        except Exception as error:
            self.fail(error)
        finally:
            self._settling = False

    def _execute(self, output: out.Output) -> None:
        match output:
            case out.AppendBatches():
                self._append_to_log(output)
            case out.Respond():
                self._respond(output.request_id, output.response)
            case out.Send() | out.SendAdmin():
                self._outbound.send(output)
            case out.HighWatermarkAdvanced():
                self.pending_appends.committed(output.offset)
                if self.traces is not None:
                    self.traces.committed(output.offset)
                self._on_committed(output.offset)
                for listener in self._listeners:
                    listener.committed(output.offset)
            case out.PersistElection():
                self._quorum_state.write(output.state, output.kraft_version)
            case out.PersistRequiredEnd():
                self._required_end.write(output.required_end)
            case out.TruncateLog():
                self.log.truncate(output.ticket, output.end_offset)
                self._await_disk()
            case out.LeadershipAcquired():
                LOGGER.info("leads epoch %d from offset %d", output.epoch, output.start_offset)
                self._leadership_changed(output)
            case out.LeadershipLost():
                self.pending_appends.leadership_lost()
                if self.traces is not None:
                    self.traces.leadership_lost()
                self._leadership_changed(output)
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
                self._receiver.execute(output)
            case out.Notice():
                LOGGER.log(logging.WARNING if output.warning else logging.INFO, output.text)

    def _leadership_changed(self, change: out.LeadershipAcquired | out.LeadershipLost) -> None:
        self._on_leadership(change)
        for listener in self._listeners:
            listener.leadership(change)

    def _append_to_log(self, output: out.AppendBatches) -> None:
        batches = output.batches
        self.log.append(output.ticket, [self._encode(batch) for batch in batches])
        self._await_disk()
        count = batches[-1].end_offset - batches[0].base_offset
        if self.node.is_leader:
            self.recorder.appended_records += count
        else:
            self.recorder.fetched_records += count
        if self.traces is not None:
            self.traces.logged(output.ticket, batches[0].base_offset, batches[-1].end_offset)

    def _encode(self, batch: Batch) -> Bytes:
        """The encoded batch; a leader's batch gets its offset and epoch here."""
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
        future.set_result((response, data))

    def _read_snapshot(self, response: FetchSnapshotResponse) -> FetchSnapshotResponse:
        """Add the snapshot's bytes to a response, in a worker thread (KIP-630).

        Only the files show SNAPSHOT_NOT_FOUND and POSITION_OUT_OF_RANGE. OSError passes through.
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

    # --- time -------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Keep one timer at or before the node's next deadline."""
        if self._failed:
            return
        if self._timer is not None and self._timer_at_ms <= self.node.core.due_ms:
            return  # no deadline is earlier, and computing the earliest one is costly
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

    # --- watching loop and disk -------------------------------------------------------------------

    def _await_disk(self) -> None:
        """Note that the log has unsynced data, since now if it had none before."""
        if self._unsynced_ms is None:
            self._unsynced_ms = self._clock.now_ms()

    def _log_durable(self, ticket: int, now_ms: int) -> None:
        """Pass a synced ticket to the node; data that is still unsynced waits since now."""
        if self.traces is not None:
            self.traces.durable(ticket)
        self.node.log_durable(ticket, now_ms)
        if self._disk_is_silent and self._unsynced_ms is not None:
            self._disk_is_silent = False
            LOGGER.warning(
                "the disk completed a sync after %.1f s", (now_ms - self._unsynced_ms) / 1000
            )
        self._unsynced_ms = None if self.node.core.log.is_durable else now_ms

    def _watch(self) -> None:
        """Check for expired appends and for a stalled loop or disk, and schedule the next check."""
        if self._failed:
            return
        self._step(self._look)
        if not self._failed:
            loop = asyncio.get_running_loop()
            self._watcher = loop.call_later(WATCH_PERIOD_S, self._watch)

    def _look(self, now_ms: int) -> None:
        self.pending_appends.expire(now_ms)
        if self._unsynced_ms is None or now_ms - self._unsynced_ms <= self._stall_ms:
            return
        text = (
            f"the disk has completed no sync for {(now_ms - self._unsynced_ms) / 1000:.1f} s, "
            f"longer than the fetch timeout of {self._stall_ms / 1000:.1f} s"
        )
        if not self._disk_is_silent:
            self._disk_is_silent = True
            LOGGER.warning("%s: this replica does not lead until the disk responds", text)
        self.node.log_stalled(text, now_ms)
