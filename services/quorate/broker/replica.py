"""A partition replica on this broker: its state machine, its log, and pending requests.

Each input and the outputs it causes are processed in one step, on the event loop's thread. Appends
are written to the operating system immediately; flushes run in a worker thread.

Producers wait for the high watermark, or for an error when this broker loses leadership. Fetch
sessions wait for any change.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Protocol

from quorate.broker.partition import PartitionConfig, PartitionReplica
from quorate.broker.producers import Repetition
from quorate.broker.replica_log import ReplicaLog
from quorate.broker.values import (
    AppendReplicaBatches,
    Brokers,
    FetchAnswer,
    Output,
    PartitionState,
    ProposalAnswer,
    ProposeIsr,
    ReplicaHighWatermarkAdvanced,
    ReplicaPosition,
    ReplicaRoleChanged,
    TruncateReplicaLog,
)
from quorate.common.error_codes import ErrorCode
from quorate.log.errors import LogError
from quorate.raft.batches import Batch
from quorate.records.batch import BatchHeader, stamp
from quorate.rpc.wire.partition_values import PartitionKey, ProduceResponse


class Host(Protocol):
    """The broker functions that a replica uses."""

    def now_ms(self) -> int: ...

    def propose(self, replica: LocalReplica, proposal: ProposeIsr) -> None:
        """Send an AlterPartition request; the result is passed to `isr_answered`."""
        ...

    def role_changed(self, replica: LocalReplica, change: ReplicaRoleChanged) -> None: ...

    def may_fetch(self, replica: LocalReplica) -> None:
        """A flush finished that a follower's next fetch may have waited for."""
        ...

    def fail(self, error: BaseException) -> None:
        """Stop the broker because of a fatal error."""
        ...


class Watcher(Protocol):
    """A fetch session."""

    def touch(self, key: PartitionKey) -> None: ...


@dataclass(slots=True)
class _Waiting:
    """A produce request that waits for the high watermark to reach `end_offset`."""

    end_offset: int
    done: asyncio.Future[ErrorCode]


_end_offset = attrgetter("end_offset")


class LocalReplica:
    """The replica of `key`. name: `<topic>-<index>`, the name of its directory.

    flush_messages: the number of unflushed records that starts a flush; None for never.
    """

    def __init__(
        self,
        key: PartitionKey,
        name: str,
        machine: PartitionReplica,
        log: ReplicaLog,
        host: Host,
        *,
        flush_messages: int | None = None,
    ) -> None:
        self.key = key
        self.name = name
        self.machine = machine
        self.log = log
        self.watchers: set[Watcher] = set()
        self._host = host
        self._flush_messages = flush_messages
        self._waiting: list[_Waiting] = []
        self._flusher: asyncio.Task[None] | None = None
        self._is_closed = False
        self._has_failed = False

    # --- inputs -----------------------------------------------------------------------------------

    def apply(self, state: PartitionState, brokers: Brokers) -> None:
        """Apply the partition's state from the metadata log."""
        self._step(lambda: self.machine.apply(state, brokers, self._host.now_ms()))

    def configure(self, config: PartitionConfig) -> None:
        """Apply changed settings."""
        self._step(lambda: self.machine.configure(config))

    def tick(self) -> None:
        self._step(lambda: self.machine.tick(self._host.now_ms()))

    def fetch(self, replica_id: int, broker_epoch: int, position: ReplicaPosition) -> FetchAnswer:
        """Serve a follower's fetch (see `PartitionReplica.fetch`)."""
        now_ms = self._host.now_ms()
        answer = self.machine.fetch(replica_id, broker_epoch, position, now_ms)
        self._settle()
        return answer

    def fetched(
        self, asked: ReplicaPosition, answer: FetchAnswer, batches: Sequence[Batch]
    ) -> ErrorCode:
        """Handle the leader's response to this follower's fetch."""
        error = self.machine.fetched(asked, answer, batches)
        self._settle()
        return error

    def isr_answered(self, proposed: ProposeIsr, answer: ProposalAnswer) -> bool:
        """Handle the controller's response; True if the proposal must be sent again."""
        again = self.machine.isr_answered(proposed, answer, self._host.now_ms())
        self._settle()
        return again

    async def produce(
        self, batch: bytearray, header: BatchHeader, *, acks_all: bool, timeout_ms: int
    ) -> ProduceResponse:
        """Append a validated batch; wait for the high watermark if `acks_all`.

        The replica takes ownership of `batch`.
        """
        machine = self.machine
        if self._has_failed:
            return self._answer(ErrorCode.KAFKA_STORAGE_ERROR)
        if not machine.is_leader:
            return self._answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        known = self.log.producers.check(header)
        if isinstance(known, Repetition):
            base, end_offset = known.base_offset, known.last_offset + 1
        elif known is not ErrorCode.NONE:
            return self._answer(known, message=f"sequence {header.base_sequence}")
        else:
            placed = machine.append(
                Batch(0, header.last_offset_delta, 0, (), batch), acks_all=acks_all
            )
            if isinstance(placed, ErrorCode):
                return self._answer(placed)
            base, end_offset = placed, placed + header.last_offset_delta + 1
            self._settle()
        if not acks_all or machine.high_watermark >= end_offset:
            return self._answer(ErrorCode.NONE, base)
        return await self._committed(base, end_offset, timeout_ms)

    async def _committed(self, base: int, end_offset: int, timeout_ms: int) -> ProduceResponse:
        waiting = _Waiting(end_offset, asyncio.get_running_loop().create_future())
        # A duplicate batch may wait for a lower offset than earlier requests do.
        insort(self._waiting, waiting, key=_end_offset)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                error = await waiting.done
        except TimeoutError:
            error = ErrorCode.REQUEST_TIMED_OUT
            if self.machine.is_under_min_isr:
                error = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return self._answer(error, base)

    def _answer(self, error: ErrorCode, base: int = -1, message: str = "") -> ProduceResponse:
        machine = self.machine
        return ProduceResponse(error, base, machine.leader_id, machine.leader_epoch, message)

    # --- outputs ----------------------------------------------------------------------------------

    def _step(self, feed: Callable[[], None]) -> None:
        feed()
        self._settle()

    def _settle(self) -> None:
        """Execute the machine's outputs.

        A failed write stops the broker, because the machine's state already includes the write.
        """
        outputs = self.machine.take_outputs()
        try:
            for output in outputs:
                self._execute(output)
        except (LogError, OSError, AssertionError) as error:
            self._has_failed = True
            self._host.fail(error)
            raise
        if outputs:
            self._tell_watchers()

    def _execute(self, output: Output) -> None:
        match output:
            case AppendReplicaBatches():
                self.log.append([_placed(batch) for batch in output.batches])
                if self._is_flush_due:
                    self.flush_soon()
            case TruncateReplicaLog():
                self.log.truncate(output.end_offset)
            case ReplicaHighWatermarkAdvanced():
                self._resolve(output.offset)
            case ProposeIsr():
                self._host.propose(self, output)
            case ReplicaRoleChanged():
                self._end_waiting(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                self._host.role_changed(self, output)

    def _tell_watchers(self) -> None:
        for watcher in tuple(self.watchers):
            watcher.touch(self.key)

    def _resolve(self, high_watermark: int) -> None:
        reached = bisect_right(self._waiting, high_watermark, key=_end_offset)
        done, self._waiting = self._waiting[:reached], self._waiting[reached:]
        for waiting in done:
            if not waiting.done.done():
                waiting.done.set_result(ErrorCode.NONE)

    def _end_waiting(self, error: ErrorCode) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done.done():
                each.done.set_result(error)

    # --- flushing ---------------------------------------------------------------------------------

    @property
    def _is_flush_due(self) -> bool:
        unflushed = self.log.end_offset - self.machine.flushed_end
        if self.machine.config.flush_before_ack:
            return unflushed > 0
        is_due = self._flush_messages is not None and unflushed >= self._flush_messages
        return is_due or self.log.has_rolled

    def flush_soon(self) -> None:
        """Start a flush in a worker thread, unless one is in flight.

        A flush in flight is repeated while the records appended meanwhile make another one due.
        With `flush_before_ack`, it is repeated until it covers the log end.
        """
        if self._flusher is None and not self._is_closed:
            self._flusher = asyncio.create_task(self._flush())

    async def _flush(self) -> None:
        try:
            while not self._is_closed:
                generation, rolled = self.log.generation, self.log.has_rolled
                flush = self.log.flush_and_save if rolled else self.log.flush
                end = await asyncio.to_thread(flush)
                if generation == self.log.generation:
                    self._step(lambda end=end: self.machine.flushed(end))  # type: ignore[misc]
                # Appends do not start a flush while one is in flight.
                if not self._is_flush_due:
                    break
            self._host.may_fetch(self)
        except Exception as error:
            self._host.fail(error)
        finally:
            self._flusher = None

    # --- closing ----------------------------------------------------------------------------------

    async def close(self, *, delete: bool = False) -> None:
        """Fail pending produce requests; flush and close the log, or delete it."""
        self._is_closed = True
        self._end_waiting(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._tell_watchers()
        if self._flusher is not None:
            await asyncio.wait([self._flusher])
        await asyncio.to_thread(self.log.delete if delete else self.log.close)


def _placed(batch: Batch) -> bytes | bytearray | memoryview:
    """Return the bytes of a batch; a leader's batch is stamped with its offset and epoch here."""
    data = batch.data
    if isinstance(data, bytearray):
        stamp(data, batch.base_offset, batch.epoch)
    assert isinstance(data, bytes | bytearray | memoryview), type(data)
    return data
