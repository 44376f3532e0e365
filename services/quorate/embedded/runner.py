"""Passes the committed log and this node's leadership to a state machine.

Rules:
1. Batches are passed in order, once, up to the high watermark. At the start, and whenever the log
   starts after the next batch, a snapshot is restored first.
2. A leadership is passed once the first record of its epoch is committed and everything before it
   is applied. Until then it may end unnoticed. Its end is passed before any record of a later epoch
   and before the next leadership.
3. Calls never overlap. Between two batches the loop runs other tasks at least every few
   milliseconds.
4. An exception stops the node: skipping a record would make the replicas diverge. While the node
   stops anyway, its calls fail: an exception of theirs that a method lets pass ends the state
   machine and is no failure. It then gets no records any more, only the end of its leadership.
5. The state for a snapshot is taken between two batches, so it belongs to the offset of the next
   one. It is read in a worker thread, while batches are applied.

Source: Kafka's KafkaRaftClient.ListenerContext.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from typing import TypeVar

from quorate.controller.config import ControllerConfig
from quorate.embedded.state_machine import (
    StateMachine,
    StateMachineError,
    StateSnapshot,
    check_chunk,
    check_chunks,
    check_result,
)
from quorate.log.errors import LogError, SnapshotNotFoundError
from quorate.process.extension import NodeComponents
from quorate.process.shutdown import NodeError
from quorate.raft import outputs as out
from quorate.raft.errors import MisuseError
from quorate.records.batch import BatchHeader, Record, iter_batches, iter_records
from quorate.records.errors import RecordsError
from quorate.rpc.errors import ClientError
from quorate.runtime.application_snapshots import MachineState
from quorate.runtime.tasks import supervise
from quorate.telemetry.samples import Sample

LOGGER = logging.getLogger(__name__)

READ_BYTES_MAX = 1024 * 1024
"""Bytes of the log to read between two checks of the high watermark."""
LOOP_SLICE_S = 0.005
"""How long batches are applied before other tasks run, seconds."""
LOOP_RECORDS_MAX = 1_000
"""A batch with more records is decoded in a worker thread."""
STOP_TIMEOUT_S = 10.0
"""How long a stopping node waits until the state machine returns, seconds."""

T = TypeVar("T")


class _InterruptedError(Exception):
    """The node stops, and a method of the state machine ended with the error of a call."""


class StateMachineRunner:
    """Runs the state machine of one node; implements `process.extension.Extension`."""

    def __init__(self, components: NodeComponents[ControllerConfig], machine: StateMachine) -> None:
        self._machine = machine
        self._log = components.driver.log
        self._on_fatal = components.on_fatal
        self._offset = 0
        self._committed = 0
        self._term: out.LeadershipAcquired | None = None
        self._passed_epoch: int | None = None
        self._is_stopping = False
        self._is_leaving = False
        self._failure: NodeError | None = None
        self._wake = asyncio.Event()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._wanted_state: asyncio.Future[MachineState | None] | None = None
        self._task: asyncio.Task[None] | None = None
        components.driver.add_listener(self)
        components.snapshotter.machine_state = self._take_state

    @property
    def offset(self) -> int:
        """Everything before this offset is applied."""
        return self._offset

    async def reached(self, offset: int) -> None:
        """Wait until everything before `offset` is applied. NodeError if the node stops before.

        MisuseError if a method of the state machine calls this.
        """
        if self._task is not None and asyncio.current_task() is self._task:
            raise MisuseError("a method of the state machine would wait for itself")
        if self._offset >= offset:
            return
        if self._failure is not None:
            raise self._failure.with_traceback(None)  # or it would grow with each call
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((offset, future))
        try:
            await future
        except asyncio.CancelledError:
            self._waiting = [each for each in self._waiting if each[1] is not future]
            raise

    async def _take_state(self) -> MachineState | None:
        """The state of the state machine, for a snapshot. It never comes after the node stops."""
        self._wanted_state = asyncio.get_running_loop().create_future()
        self._wake.set()
        return await self._wanted_state

    # --- the extension and the listener -----------------------------------------------------------

    def leave(self) -> None:
        """Expect the node to stop: its calls fail from now on (rule 4)."""
        self._is_leaving = True

    def start(self) -> None:
        self._task = supervise(self._run(), "state-machine", self._failed, endless=False)

    async def stop(self) -> None:
        """End the leadership, if there is one, and wait until the state machine returns."""
        self._is_stopping = True
        self._term = None
        self._wake.set()
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=STOP_TIMEOUT_S)
            self._task.cancel()
        self._end_waits(NodeError("the node has stopped"))

    def refuses(self, _request: object) -> str:
        """Reject no metadata request."""
        return ""

    def samples(self) -> Iterable[Sample]:
        """No metrics."""
        return ()

    def committed(self, offset: int) -> None:
        self._committed = max(self._committed, offset)
        self._wake.set()

    def leadership(self, change: out.LeadershipAcquired | out.LeadershipLost) -> None:
        self._term = change if isinstance(change, out.LeadershipAcquired) else None
        self._wake.set()

    # --- the task ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            try:
                await self._restore()
                while not self._is_stopping:
                    await self._wait()
                    await self._catch_up()
            except _InterruptedError:
                await self._end()
        except (StateMachineError, LogError, RecordsError) as error:
            self._failed(error)

    async def _wait(self) -> None:
        await self._wake.wait()
        self._wake.clear()

    async def _end(self) -> None:
        """Pass the end of the leadership, if there is one, to an interrupted state machine."""
        while not self._is_stopping:
            await self._wait()
        with suppress(_InterruptedError):
            await self._pass_leadership()

    def _failed(self, error: BaseException) -> None:
        """Apply rule 4, or report an unexpected error."""
        # The line about the node's end has no traceback of the state machine.
        LOGGER.error("%s", error, exc_info=error.__cause__)
        self._end_waits(error if isinstance(error, NodeError) else NodeError(str(error)))
        self._on_fatal(error)

    async def _catch_up(self) -> None:
        """Apply what is committed."""
        began = time.monotonic()
        while True:
            await self._pass_leadership()
            await self._pass_state()
            if self._is_stopping or self._offset >= self._committed:
                return
            if self._offset < self._log.start_offset:
                await self._restore()
                continue
            # No await since the leadership was passed: it is that of the time of the read.
            limit = min(self._committed, self._log.end_offset)
            for chunk in self._log.read(self._offset, READ_BYTES_MAX, limit):
                for header, batch in iter_batches(chunk):
                    await self._apply(header, batch)
                    await self._pass_leadership()
                    await self._pass_state()
                    if self._is_stopping:
                        return
                    if time.monotonic() - began > LOOP_SLICE_S:
                        await asyncio.sleep(0)
                        began = time.monotonic()

    async def _apply(self, header: BatchHeader, batch: memoryview) -> None:
        if not header.is_control:
            if header.count > LOOP_RECORDS_MAX:
                records = await asyncio.to_thread(_of_applications, header, batch)
            else:
                records = _of_applications(header, batch)
            if records:
                doing = f"it applied the batch at offset {header.base_offset}"
                await self._call(doing, self._machine.apply, records)
        self._advance(header.end_offset)

    async def _restore(self) -> None:
        """Restore the latest snapshot, if there is one."""
        found = self._log.latest_snapshot()
        if found is None or found.offset == 0:
            assert self._log.start_offset == 0, "a log that does not begin at 0 has a snapshot"
            return
        try:
            snapshot = StateSnapshot(self._log, found)
        except SnapshotNotFoundError:
            return  # a later one replaced it; `_catch_up` tries again if it needs one

        method: Callable[[StateSnapshot], object] = self._machine.restore

        def restored(snapshot: StateSnapshot) -> None:
            check_result(method(snapshot))
            snapshot.check_read()

        def restore(snapshot: StateSnapshot) -> Awaitable[None]:
            return asyncio.to_thread(restored, snapshot)

        await self._call(f"it restored snapshot {found}", restore, snapshot)
        LOGGER.info("the state machine restored snapshot %s", found)
        self._advance(found.offset)

    async def _pass_leadership(self) -> None:
        """Apply rule 2, until there is nothing to pass."""
        while True:
            term, passed = self._term, self._passed_epoch
            if passed is not None and (term is None or term.epoch != passed):
                self._passed_epoch = None
                doing = f"it lost the leadership of epoch {passed}"
                await self._call(doing, self._machine.leadership_lost, passed)
            elif term is not None and passed is None and self._offset > term.start_offset:
                self._passed_epoch = term.epoch
                doing = f"it acquired the leadership of epoch {term.epoch}"
                await self._call(doing, self._machine.leadership_acquired, term.epoch)
            else:
                return

    async def _pass_state(self) -> None:
        """Apply rule 5, if a snapshot is about to be written."""
        wanted, self._wanted_state = self._wanted_state, None
        if wanted is None or wanted.done() or self._is_stopping:
            return
        doing = f"it took the state for a snapshot at offset {self._offset}"
        try:
            taken = self._machine.snapshot()
            chunks = await taken if inspect.isawaitable(taken) else taken
            if chunks is not None:
                check_chunks(chunks)
        except Exception as error:
            raise self._raised(doing, error) from error
        if wanted.done():
            return
        state = None
        if chunks is not None:
            loop = asyncio.get_running_loop()
            state = MachineState(self._offset, self._read(doing, chunks, loop))
        wanted.set_result(state)

    def _read(
        self, doing: str, chunks: Iterable[bytes], loop: asyncio.AbstractEventLoop
    ) -> Iterator[bytes]:
        """The chunks of a state, in a worker thread. StateMachineError, which stops the node."""
        try:
            for chunk in chunks:
                yield check_chunk(chunk)
        except Exception as error:
            failure = _failure(doing, error)
            loop.call_soon_threadsafe(self._failed, failure)
            raise failure from error

    async def _call(
        self, doing: str, method: Callable[[T], Awaitable[None] | None], argument: T
    ) -> None:
        """Call a method of the state machine.

        Raises StateMachineError; LogError, RecordsError; _InterruptedError.
        """
        try:
            result = method(argument)
            if result is not None:
                await result
        except (LogError, RecordsError):
            raise  # of the snapshot that it reads
        except Exception as error:
            raise self._raised(doing, error) from error

    def _raised(self, doing: str, error: Exception) -> Exception:
        """What an exception of the state machine leads to (rule 4)."""
        if self._is_leaving and isinstance(error, ClientError | NodeError):
            LOGGER.info("the state machine was interrupted while %s: %s", doing, _shown(error))
            return _InterruptedError()
        return _failure(doing, error)

    def _advance(self, offset: int) -> None:
        self._offset = offset
        still: list[tuple[int, asyncio.Future[None]]] = []
        for wanted, future in self._waiting:
            if wanted > offset:
                still.append((wanted, future))
            elif not future.done():
                future.set_result(None)
        self._waiting = still

    def _end_waits(self, error: NodeError) -> None:
        """Fail all that wait, now and later, with the first error."""
        self._failure = self._failure or error
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(self._failure)


def _failure(doing: str, error: Exception) -> StateMachineError:
    return StateMachineError(f"the state machine failed while {doing}: {_shown(error)}")


def _shown(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _of_applications(header: BatchHeader, batch: memoryview) -> tuple[Record, ...]:
    """The records with a key. Raises RecordsError."""
    return tuple(record for record in iter_records(batch, header) if record.key is not None)
