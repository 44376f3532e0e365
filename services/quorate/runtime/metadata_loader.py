"""Maintains the committed image of the cluster's metadata, on controllers and brokers alike.

Owns the image. Only the loader changes it, on the event loop's thread and between two of its
awaits. All other code reads it on that thread, and keeps only frozen parts of it.

1. At the start, and whenever the log starts after the replayed offset, the loader reads the latest
   snapshot into a new image, in a worker thread.
2. It replays committed batches in order up to the high watermark, each completely or not at all.
   Few records are replayed on the loop, a few milliseconds at a time; many in a worker thread, on a
   copy that then replaces the image.
3. After each step it passes the changes to the listeners, on the loop's thread, together with the
   image that contains them.
4. A record that cannot be replayed stops the node, with its offset and the reason. None is skipped.

Batches of applications (records with keys) are recognized by their first record and skipped. The
loader only notes that there are some. While application.version is finalized, it also maintains
their state (`quorate.applications`), in the same steps as the image.

Source: KIP-630, KIP-631, "Loading the metadata"; Kafka's MetadataLoader.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable

from quorate.applications import ApplicationState
from quorate.log.errors import LogError, SnapshotNotFoundError
from quorate.log.metadata_log import MetadataLog
from quorate.metadata.image.delta import MetadataDelta
from quorate.metadata.image.metadata_image import MetadataImage, ReplayError
from quorate.records.batch import has_keys, iter_batches
from quorate.records.errors import RecordsError
from quorate.rpc.cancellation import cancel_tasks
from quorate.runtime.gc_tuning import collection_paused
from quorate.runtime.metadata_batches import holds_metadata
from quorate.runtime.replay import (
    READ_BYTES_MAX,
    CommittedBatch,
    Replayed,
    apply_changes,
    derive_state,
    load_snapshot,
    may_finalize,
    replay,
)
from quorate.runtime.tasks import supervise

LOGGER = logging.getLogger(__name__)

LOOP_RECORDS_MAX = 500
"""More records than this are replayed in a worker thread."""
LOOP_SLICE_S = 0.005
"""How long the loader may occupy the event loop before it yields, seconds."""
PLAIN_DELAY_S = 0.05
"""The delay before reading a log without metadata, seconds: it saves a check per commit."""

Listener = Callable[[MetadataImage, MetadataDelta], None]


class MetadataLoader:
    """Replays the committed log. Its method `committed` is the driver's `on_committed`.

    on_fatal: called once, with the reason, if the log cannot be replayed. has_applications: whether
    there are records of applications before `offset`. applications: their state at `offset`, None
    while application.version is 0; as the image, it is read on the event loop only.
    """

    def __init__(self, log: MetadataLog, *, on_fatal: Callable[[BaseException], None]) -> None:
        self.image = MetadataImage()
        self.has_applications = False
        self.applications: ApplicationState | None = None
        self._log = log
        self._on_fatal = on_fatal
        self._offset = 0
        self._committed = 0
        self._has_caught_up = False
        self._in_use = False
        self._listeners: list[Listener] = []
        self._wake = asyncio.Event()
        self._hurry = asyncio.Event()
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._task: asyncio.Task[None] | None = None

    @property
    def offset(self) -> int:
        """Everything before this offset has been replayed, or belongs to applications."""
        return self._offset

    @property
    def has_caught_up(self) -> bool:
        """Whether everything before a high watermark has been in the image.

        Stays true: a busy log commits before the image has what was committed last.
        """
        return self._has_caught_up

    def add_listener(self, listener: Listener) -> None:
        """Call `listener` after each change, and immediately with the existing metadata, if any."""
        self._listeners.append(listener)
        if self._in_use:
            listener(self.image, self.image.as_delta())

    def start(self) -> None:
        self._task = supervise(self._run(), "metadata-loader", self._on_fatal, endless=False)

    async def stop(self) -> None:
        await cancel_tasks(self._task)
        for _, future in self._waiting:
            future.cancel()

    def committed(self, high_watermark: int) -> None:
        """Note that the high watermark has advanced."""
        self._committed = max(self._committed, high_watermark)
        self._note_caught_up()
        self._wake.set()

    async def reached(self, offset: int) -> None:
        """Wait until everything before `offset` is in the image."""
        if self._offset >= offset:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((offset, future))
        self._hurry.set()
        await future

    # --- the task ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            await self._reload()
            while True:
                await self._wake.wait()
                if not self._in_use and not self._waiting:
                    await self._linger()
                self._wake.clear()
                self._hurry.clear()
                await self._catch_up()
        except (LogError, RecordsError, ReplayError, AssertionError) as error:
            self._on_fatal(error)  # rule 4

    async def _linger(self) -> None:
        try:
            await asyncio.wait_for(self._hurry.wait(), PLAIN_DELAY_S)
        except TimeoutError:
            return

    async def _catch_up(self) -> None:
        """Replay up to the high watermark, and yield to other tasks in between."""
        slice_began = time.monotonic()
        while self._offset < self._committed:
            if self._offset < self._log.start_offset:
                await self._reload()
                continue
            await self._replay(*self._read())
            if time.monotonic() - slice_began > LOOP_SLICE_S:
                await asyncio.sleep(0)
                slice_began = time.monotonic()

    async def _replay(self, found: list[CommittedBatch], end: int) -> None:
        """Replay batches and advance to their end, or after a batch that finalizes the level."""
        if not found:
            self._advance(self.image, None, end)
            return
        is_large = sum(header.count for header, _ in found) > LOOP_RECORDS_MAX
        image = self.image
        if is_large or may_finalize(image, found):
            if any(holds_metadata(batch, header) for header, batch in found):
                image = image.copy()
            done = await asyncio.to_thread(replay, image, found)
        else:
            done = replay(image, found)
        if done.finalized_by is not None:
            assert image is not self.image, "until the state is derived, the old image is in use"
            end = done.finalized_by.end_offset
            state = await derive_state(self._log, done.finalized_by)
            if state is None:
                return  # a received snapshot replaces the log
            LOGGER.info("derived the state of applications before offset %d", end)
            self.applications = state
        else:
            await self._replay_applications(done)
        self._advance(image, done.changes, end)

    async def _replay_applications(self, done: Replayed) -> None:
        if done.is_dropped:
            self.applications = None
        elif self.applications is not None:
            self.applications = await apply_changes(self.applications, done.applications)

    def _read(self) -> tuple[list[CommittedBatch], int]:
        """Some of the next batches to replay, and the offset after the last examined batch."""
        has_state = self.applications is not None
        found: list[CommittedBatch] = []
        position = self._offset
        records = 0
        limit = min(self._committed, self._log.end_offset)
        for chunk in self._log.read(position, READ_BYTES_MAX, limit):
            for header, batch in iter_batches(chunk):
                if records > 0 and records + header.count > LOOP_RECORDS_MAX:
                    return found, position
                is_metadata = holds_metadata(batch, header)
                if is_metadata or (has_state and not header.is_control):
                    found.append((header, batch))
                    records += header.count
                if not is_metadata and not self.has_applications:
                    self.has_applications = has_keys(batch, header)
                position = header.end_offset
        assert position > self._offset, f"the log has nothing at committed offset {position}"
        return found, position

    async def _reload(self) -> None:
        """Replace the image by that of the latest snapshot, if there is one."""
        started = time.monotonic()
        snapshot = self._log.latest_snapshot()
        if snapshot is None or snapshot.offset == 0:
            assert self._log.start_offset == 0, "a log that does not begin at 0 has a snapshot"
            return
        try:
            with collection_paused(freeze=True):
                loaded = await asyncio.to_thread(load_snapshot, self._log, snapshot)
        except SnapshotNotFoundError:
            return  # a later one replaced it; the caller tries again if it needs one
        LOGGER.info(
            "loaded %d metadata records of snapshot %s in %.1f s",
            loaded.records,
            snapshot,
            time.monotonic() - started,
        )
        self._committed = max(self._committed, snapshot.offset)
        self._wake.set()
        had_any = self._in_use
        self.has_applications = loaded.has_applications
        self.applications = loaded.applications
        image = loaded.image
        changes = image.as_delta() if loaded.records or had_any else None
        self._advance(image, changes, snapshot.offset)

    def _advance(
        self, image: MetadataImage, changes: MetadataDelta | None, end_offset: int
    ) -> None:
        self.image = image
        self._offset = end_offset
        self._note_caught_up()
        if changes is not None:
            self._in_use = True
            for listener in self._listeners:
                listener(image, changes)
        still: deque[tuple[int, asyncio.Future[None]]] = deque()
        for offset, future in self._waiting:
            if offset > end_offset:
                still.append((offset, future))
            elif not future.done():
                future.set_result(None)
        self._waiting = still

    def _note_caught_up(self) -> None:
        self._has_caught_up = self._has_caught_up or 0 < self._committed <= self._offset
