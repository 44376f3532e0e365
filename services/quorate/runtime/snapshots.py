"""Snapshots of what is committed, and the cleaning of what they make superfluous.

A snapshot is a state, and this log has two. The cluster's metadata is written as the records of its
image (`metadata.image`), however many led to it. The records of applications are their state: all
of them, from the last snapshot and the log behind it, batch by batch as bytes, each with its base
offset in the log (`records.batch.keep_base_offset`). A batch of a snapshot that was written without
it stays without it. Control records are
the quorum's own: the header carries kraft.version and the voters as of the snapshot's offset
(KIP-853 "Snapshots").

A snapshot is due after `interval_bytes` of new log (Kafka:
metadata.log.max.record.bytes.between.snapshots), but not before the log has grown by the size of
the last snapshot, so that copying stays linear in what is written; or after `interval_ms` if
anything is new (metadata.log.max.snapshot.interval.ms). None is written while a metadata
transaction is open (KIP-868): its records are in no image yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from quorate.log.errors import LogError
from quorate.log.metadata_log import MetadataLog
from quorate.raft.types import OffsetAndEpoch
from quorate.records.batch import iter_batches, read_header
from quorate.records.errors import RecordsError
from quorate.runtime.driver import Bytes, RaftDriver
from quorate.runtime.metadata_batches import (
    application_batches,
    holds_metadata,
    snapshot_batches,
)
from quorate.runtime.metadata_loader import MetadataLoader

LOGGER = logging.getLogger(__name__)

READ_BYTES_MAX = 4 * 1024 * 1024
"""How much of the log is read at a time while a snapshot is written, bytes."""


@dataclass(frozen=True, slots=True)
class SnapshotPolicy:
    """When to write a snapshot and when to look for superfluous files. Bytes and milliseconds."""

    interval_bytes: int = 20 * 1024 * 1024
    interval_ms: int = 60 * 60 * 1000
    check_period_ms: int = 1_000


class Snapshotter:
    """One task that watches the committed log; the writing itself happens in a worker thread."""

    def __init__(self, driver: RaftDriver, policy: SnapshotPolicy, loader: MetadataLoader) -> None:
        self._driver = driver
        self._loader = loader
        self._log = driver.log
        self._policy = policy
        self._task: asyncio.Task[None] | None = None
        self._last_ms = driver.now_ms()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="snapshotter")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._policy.check_period_ms / 1000)
            if self._is_due():
                await self.write()

    def _is_due(self) -> bool:
        committed = self._driver.node.high_watermark
        latest = self._log.latest_snapshot()
        since = latest.offset if latest is not None else self._log.start_offset
        if committed <= since:
            return False
        if self._driver.now_ms() - self._last_ms >= self._policy.interval_ms:
            return True
        new_bytes = self._log.bytes_since(since)
        floor = 0
        if latest is not None:
            reader = self._log.open_snapshot(latest)
            floor = reader.size
            reader.close()
        return new_bytes >= max(self._policy.interval_bytes, floor)

    async def write(self) -> OffsetAndEpoch | None:
        """Write a snapshot of everything committed now, then delete what it made superfluous.

        None if there is nothing new, what is committed is not on this replica's disk yet, or a
        metadata transaction is open.
        """
        node = self._driver.node
        await self._loader.reached(node.high_watermark)
        # No await from here to the copy: image and offset belong together.
        offset = self._loader.offset
        if offset > self._log.durable_end or self._loader.image.in_transaction:
            return None
        snapshot = OffsetAndEpoch(offset, node.epoch_before(offset))
        kraft_version, voters = node.membership_at(offset)
        previous = self._log.latest_snapshot()
        if previous is not None and previous.offset >= offset:
            return None
        image = self._loader.image.copy()
        timestamp = _timestamp_before(self._log, offset)
        try:
            await asyncio.to_thread(
                self._log.write_snapshot,
                snapshot,
                kraft_version,
                voters,
                timestamp,
                chain(
                    snapshot_batches(image.records(), timestamp),
                    _application_batches(self._log, previous, offset),
                ),
            )
        except (LogError, RecordsError, OSError) as error:
            LOGGER.error("snapshot %s was not written: %s", snapshot, error)
            return None
        LOGGER.info("wrote snapshot %s", snapshot)
        self._last_ms = self._driver.now_ms()
        self._driver.snapshot_created(snapshot)
        self._clean()
        return snapshot

    def _clean(self) -> None:
        before = self._log.start_offset
        start = self._log.clean(self._driver.now_ms())
        if start > before:
            epochs = {s.offset: s.epoch for s in self._log.snapshots()}
            LOGGER.info("the log starts at %d now, before at %d", start, before)
            self._driver.log_start_advanced(OffsetAndEpoch(start, epochs[start]))


def _application_batches(
    log: MetadataLog, previous: OffsetAndEpoch | None, end_offset: int
) -> Iterator[Bytes]:
    """What applications wrote, in order: in the previous snapshot, then in the log behind it."""
    if previous is not None:
        for batch in log.iter_snapshot_batches(previous):
            assert isinstance(batch.data, bytes | memoryview), type(batch.data)
            if not holds_metadata(batch.data, read_header(batch.data)):
                yield batch.data
    position = previous.offset if previous is not None else 0
    while position < end_offset:
        for chunk in log.read_durable(position, READ_BYTES_MAX, end_offset):
            for header, view in iter_batches(chunk):
                position = header.end_offset
                if not header.is_control:
                    yield from application_batches(view, header)


def _timestamp_before(log: MetadataLog, offset: int) -> int:
    """When the last record before `offset` was written, milliseconds since 1970."""
    batch = log.read_durable(offset - 1, 1, offset)[0]
    return read_header(batch).max_timestamp
