"""Receives a snapshot from the leader, which can be resumed, and installs it.

All work on files is done in a worker thread, one step at a time in the order of the node's outputs;
the event loop keeps running. Steps of an installation:

1. Worker thread: sync the received file and read it completely. Only a valid snapshot continues.
2. Worker thread: rename it to its final name. From then on a restart completes the installation.
3. Event loop, in one step: the log restarts at the snapshot, and the node gets
   `snapshot_installed`.
4. Worker thread: wait until the old segments are deleted, then delete older snapshots.

Until step 3 the node neither fetches nor stands for election (`Core.installing`), so nothing is
appended, and reads on the loop see either the complete old log or the complete new log. `close`
waits for the current step, because nothing may change the directory once its lock is released.

Source: KIP-630, FetchSnapshot; the install is atomic (`log.SnapshotInstall`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from quorate.log.errors import LogError, LogFailedError
from quorate.log.install import SnapshotInstall
from quorate.log.metadata_log import MetadataLog
from quorate.raft import RaftNode
from quorate.raft.outputs import InstallSnapshot, StartSnapshotFetch, WriteSnapshotChunk
from quorate.raft.types import OffsetAndEpoch
from quorate.records.errors import RecordsError
from quorate.runtime.tasks import OnFailure, supervise

LOGGER = logging.getLogger(__name__)

Feed = Callable[[int], None]
"""Passes one input to the node; takes the time in milliseconds."""

SnapshotOutput = StartSnapshotFetch | WriteSnapshotChunk | InstallSnapshot


class SnapshotReceiver:
    """Receives at most one snapshot at a time; received bytes survive a change of leader.

    step: passes the node an input and executes the outputs that it causes. on_failure: called if
    the replica cannot continue.
    """

    def __init__(
        self,
        log: MetadataLog,
        node: RaftNode,
        step: Callable[[Feed], None],
        on_failure: OnFailure,
    ) -> None:
        self._log = log
        self._node = node
        self._step = step
        self._on_failure = on_failure
        self._install: SnapshotInstall | None = None
        self._is_broken = False
        self._is_closed = False
        self._queue: deque[SnapshotOutput] = deque()
        self._held: list[Callable[[], None]] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether an output is being executed."""
        return self._task is not None

    def execute(self, output: SnapshotOutput) -> None:
        """Execute an output after all earlier ones."""
        if self._is_closed:
            return
        self._queue.append(output)
        if self._task is None:
            self._task = supervise(
                self._run(), "snapshot-receiver", self._on_failure, endless=False
            )

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call `callback` once all outputs are executed, so that the disk limits the network."""
        if self._task is None:
            callback()
        else:
            self._held.append(callback)

    def stop(self) -> None:
        """Start no further step."""
        self._is_closed = True
        self._queue.clear()
        self._held.clear()

    async def close(self) -> None:
        """Stop, and wait for the current step."""
        self.stop()
        if self._task is not None:
            await asyncio.wait([self._task])

    # --- the task ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        while self._queue:
            await self._do(self._queue.popleft())
        self._task = None
        held, self._held = self._held, []
        for callback in held:
            callback()

    async def _do(self, output: SnapshotOutput) -> None:
        try:
            if isinstance(output, StartSnapshotFetch):
                await self._begin(output.snapshot)
            elif self._is_broken:
                return  # the node already knows that the receipt of this snapshot failed
            elif isinstance(output, WriteSnapshotChunk):
                install = self._reception_of(output.snapshot)
                await asyncio.to_thread(install.write, output.position, output.data)
            else:
                await self._finish(self._reception_of(output.snapshot))
        except (LogError, RecordsError) as error:
            self._is_broken = True
            snapshot, reason = output.snapshot, str(error)
            self._step(lambda now_ms: self._node.snapshot_failed(snapshot, reason, now_ms))

    def _reception_of(self, snapshot: OffsetAndEpoch) -> SnapshotInstall:
        install = self._install
        assert install is not None, f"snapshot {snapshot} is not being received"
        assert install.snapshot == snapshot, f"{install.snapshot} is received, not {snapshot}"
        return install

    async def _begin(self, snapshot: OffsetAndEpoch) -> None:
        """Prepare for a snapshot, and report to the node how many of its bytes are already here."""
        install = await asyncio.to_thread(self._log.begin_install, snapshot)
        self._install, self._is_broken = install, False
        position = install.position
        self._step(lambda now_ms: self._node.snapshot_position(snapshot, position, now_ms))

    async def _finish(self, install: SnapshotInstall) -> None:
        snapshot = install.snapshot
        self._install = None
        self._is_broken = True  # the received bytes are used up or deleted
        try:
            found = await asyncio.to_thread(install.verify)
            if self._is_closed:
                return
            await asyncio.to_thread(install.adopt)
        except LogFailedError as error:
            # The state of the disk is unknown now, and another attempt would not reveal it.
            self._on_failure(error)
            return

        def begin_again(now_ms: int) -> None:
            install.replace()
            self._node.snapshot_installed(snapshot, found.voters, found.kraft_versions, now_ms)
            LOGGER.info("installed snapshot %s", snapshot)

        if self._is_closed:
            return
        self._step(begin_again)
        try:
            await asyncio.to_thread(install.clean_up)
        except (LogError, OSError) as error:
            LOGGER.error("could not delete the snapshots before %s: %s", snapshot, error)
