"""Writes snapshots of committed records, and deletes the files that they make superfluous.

A snapshot contains two states. The cluster's metadata is written as the records of its image
(`metadata.image`), however many records led to it. What belongs to applications follows
(`application_snapshots`): their records, from the previous snapshot and the log after it, copied
batch by batch as bytes, each with its base offset in the log (`records.batch.keep_base_offset`); a
batch of a previous snapshot that was written without that offset stays without it. From
application.version 1 on, records may be compacted, or replaced by the state of a state machine.
Control records belong to the quorum itself: the header contains kraft.version and the voters as of
the snapshot's offset (KIP-853 "Snapshots").

A snapshot is due after `interval_bytes` of new log (Kafka:
metadata.log.max.record.bytes.between.snapshots), but not before the log has grown by the size of
the last snapshot, so that the total cost of copying is linear in what is written; or after
`interval_ms` if there are new records (metadata.log.max.snapshot.interval.ms). None is written
while a metadata transaction is open (KIP-868), because no image contains its records yet.

A failed attempt is logged and retried after an increasing pause. An attempt is abandoned if a
received snapshot replaces the log that it reads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import chain

from quorate.log.errors import LogError
from quorate.log.metadata_log import MetadataLog
from quorate.metadata.config.config_defs import CLEANUP_POLICY, COMPACT
from quorate.metadata.image.configs import DEFAULT_BROKER
from quorate.raft.types import OffsetAndEpoch
from quorate.records.batch import read_header
from quorate.records.errors import RecordsError
from quorate.rpc.cancellation import cancel_tasks
from quorate.runtime.application_snapshots import ApplicationPart, MachineState
from quorate.runtime.driver import RaftDriver
from quorate.runtime.metadata_batches import snapshot_batches
from quorate.runtime.metadata_loader import MetadataLoader
from quorate.runtime.snapshot_policy import SnapshotPolicy
from quorate.runtime.tasks import supervise

LOGGER = logging.getLogger(__name__)

RETRY_MS_MAX = 60_000
"""The longest pause after a failed attempt, milliseconds."""

MachineStateSource = Callable[[], Awaitable[MachineState | None]]
"""Takes the state of the state machine, None if it writes no snapshots."""


class Snapshotter:
    """One task that watches the committed log, and writes snapshots in a worker thread.

    machine_state: set before the start, if this node has a state machine.
    """

    def __init__(self, driver: RaftDriver, policy: SnapshotPolicy, loader: MetadataLoader) -> None:
        self.machine_state: MachineStateSource | None = None
        self._driver = driver
        self._loader = loader
        self._log = driver.log
        self._policy = policy
        self._task: asyncio.Task[None] | None = None
        self._last_ms = driver.now_ms()
        self._must_clean = False

    def start(self) -> None:
        self._task = supervise(self._run(), "snapshotter", self._failed)

    def _failed(self, error: BaseException) -> None:
        """Stop the replica after an unexpected error: its state may be inconsistent."""
        self._driver.fail(error)

    async def stop(self) -> None:
        await cancel_tasks(self._task)

    async def _run(self) -> None:
        period_ms = self._policy.check_period_ms
        pause_ms = period_ms
        while True:
            await asyncio.sleep(pause_ms / 1000)
            try:
                if self._is_due():
                    await self.write()
                elif self._must_clean:
                    await self._clean()
            except (LogError, RecordsError, OSError) as error:
                pause_ms = min(2 * pause_ms, max(period_ms, RETRY_MS_MAX))
                LOGGER.error(
                    "writing a snapshot or cleaning the log failed: %s; retrying in %.1f s",
                    error,
                    pause_ms / 1000,
                )
            else:
                pause_ms = period_ms

    def _is_due(self) -> bool:
        committed = self._driver.node.high_watermark
        latest = self._log.latest_snapshot()
        since = latest.offset if latest is not None else self._log.start_offset
        if committed <= since:
            return False
        interval_ms = self._policy.interval_ms
        if interval_ms and self._driver.now_ms() - self._last_ms >= interval_ms:
            return True
        new_bytes = self._log.bytes_since(since)
        floor = 0
        if latest is not None:
            reader = self._log.open_snapshot(latest)
            floor = reader.size
            reader.close()
        return new_bytes >= max(self._policy.interval_bytes, floor)

    async def write(self) -> OffsetAndEpoch | None:
        """Write a snapshot of all committed records, then delete superfluous files.

        Returns None if nothing is new, the committed records are not durable on this replica yet, a
        metadata transaction is open, or a received snapshot replaces the log. Raises LogError,
        RecordsError or OSError if the snapshot cannot be written or files cannot be deleted.
        """
        node = self._driver.node
        await self._loader.reached(node.high_watermark)
        if self._loader.image.in_transaction:
            return None
        machine = await self._state_of_machine()
        if node.core.installing is not None:
            return None
        # No await from here to the copies: they and the offset belong together.
        offset = self._loader.offset
        if offset > self._log.durable_end or self._loader.image.in_transaction:
            return None
        if machine is not None and machine.offset < self._log.start_offset:
            return None
        snapshot = OffsetAndEpoch(offset, node.epoch_before(offset))
        kraft_version, voters = node.membership_at(offset)
        previous = self._log.latest_snapshot()
        if previous is not None and previous.offset >= offset:
            return None
        image = self._loader.image.copy()
        state = self._loader.applications
        timestamp = _timestamp_before(self._log, offset)
        part = ApplicationPart(
            self._log,
            previous,
            offset,
            timestamp,
            None if state is None else state.copy(),
            None if state is None else machine,
            is_compact=image.configs.of(*DEFAULT_BROKER).get(CLEANUP_POLICY) == COMPACT,
        )
        try:
            await asyncio.to_thread(
                self._log.write_snapshot,
                snapshot,
                kraft_version,
                voters,
                timestamp,
                chain(snapshot_batches(image.records(), timestamp), part.batches()),
            )
        except Exception:
            # If the log was replaced while it was read, any error is possible.
            if not self._is_overtaken(snapshot):
                raise
        if self._is_overtaken(snapshot):
            LOGGER.info("abandoned snapshot %s: a received snapshot replaces the log", snapshot)
            return None
        LOGGER.info("wrote snapshot %s", snapshot)
        self._last_ms = self._driver.now_ms()
        self._driver.snapshot_created(snapshot)
        await self._clean()
        return snapshot

    async def _state_of_machine(self) -> MachineState | None:
        """The state of the state machine, once the loader has got as far; None at level 0."""
        if self.machine_state is None or self._loader.applications is None:
            return None
        state = await self.machine_state()
        if state is not None:
            await self._loader.reached(state.offset)
        return state

    def _is_overtaken(self, snapshot: OffsetAndEpoch) -> bool:
        """Whether a received snapshot is replacing the log, or has done so since the start."""
        is_replacing = self._driver.node.core.installing is not None
        return is_replacing or self._log.start_offset > snapshot.offset

    async def _clean(self) -> None:
        """Delete superfluous files, in a worker thread, once the node knows that they go."""
        node = self._driver.node
        if node.core.installing is not None:
            return
        self._must_clean = True
        before = node.core.log.start.offset
        start = self._log.advance_start(self._driver.now_ms())
        if start.offset > before:
            LOGGER.info("the log starts at offset %d now, previously at %d", start.offset, before)
            self._driver.log_start_advanced(start)
        deleting = asyncio.create_task(asyncio.to_thread(self._log.delete_before, start))
        try:
            await asyncio.shield(deleting)
        except asyncio.CancelledError:
            await deleting  # the log is closed next
            raise
        self._must_clean = False


def _timestamp_before(log: MetadataLog, offset: int) -> int:
    """The timestamp of the batch before `offset`, milliseconds since 1970."""
    batch = log.read_durable(offset - 1, 1, offset)[0]
    return read_header(batch).max_timestamp
