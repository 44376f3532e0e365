"""Copies the committed log of a running quorum to an archive, once or continuously.

`advance` archives what is committed now. It can be called again after any exception: what a
published manifest lists stays, and the rest is read again.
"""

from __future__ import annotations

import hashlib
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import IO

from quorate.backup.archive import Archive, verified_chunks
from quorate.backup.batches import batches_in
from quorate.backup.comparison import checkpoint_differences
from quorate.backup.errors import BackupError, ContradictionError
from quorate.backup.manifest import (
    ArchivedRun,
    ArchivedSegment,
    ArchivedSnapshot,
    BackupManifest,
)
from quorate.backup.retention import divide, is_long
from quorate.backup.stores import CHUNK_BYTES
from quorate.log.errors import LogError
from quorate.raft.batches import SnapshotHeader
from quorate.raft.types import OffsetAndEpoch
from quorate.records.batch import BatchHeader, decode_control_batch, iter_batches, verify_crc
from quorate.records.errors import RecordsError
from quorate.rpc.client.batch_reader import BatchReader, Extent
from quorate.rpc.errors import OffsetCompactedError, compacted

SEGMENT_BYTES = 64 << 20
"""A segment ends once its batches reach this size."""
MERGED_COUNT = 16
"""How many segments are merged into one."""
CONFIRM_S = 60.0
"""How often the store is asked for the manifest while nothing is committed."""
MEANWHILE_S = 5.0
"""How often what was committed is archived while a checkpoint is compared, which can take hours."""

Progress = Callable[[int, int], None]
"""Called with the number of offsets that are archived, and with their number in the log."""
Warn = Callable[[str], None]
"""Called with one line that the operator must see."""
Archived = Callable[[BackupManifest | None], None]
"""Called with the newest manifest."""


@dataclass(slots=True)
class _PendingSegment:
    """Batches that are read and not archived yet."""

    base: int
    end: int
    first_epoch: int
    last_epoch: int
    last_timestamp: int
    batches: list[bytes]
    size: int = 0

    @classmethod
    def at(cls, header: BatchHeader) -> _PendingSegment:
        return cls(header.base_offset, header.base_offset, header.epoch, header.epoch, 0, [])

    def add(self, header: BatchHeader, batch: bytes) -> None:
        self.end, self.last_epoch = header.end_offset, header.epoch
        self.last_timestamp = max(self.last_timestamp, header.max_timestamp)
        self.batches.append(batch)
        self.size += len(batch)


class _Meanwhile:
    """Calls something every MEANWHILE_S seconds while it is called often.

    failure: what the last call raised.
    """

    def __init__(self, call: Callable[[], None]) -> None:
        self.failure: Exception | None = None
        self._call = call
        self._called_at = time.monotonic()

    def __call__(self) -> None:
        if time.monotonic() - self._called_at < MEANWHILE_S:
            return
        try:
            self._call()
        except Exception as error:
            self.failure = error
            raise
        self._called_at = time.monotonic()


class Archiver:
    """Adds to one archive what a quorum commits. The caller has called `ObjectStore.writing`.

    progress: called after each object. keep_ms: how far back restores must remain possible; None:
    nothing is pruned. warn: called if a checkpoint of the quorum is wrong. archived: called while
    `advance` takes long, after each time that it archived what was committed.
    """

    def __init__(
        self,
        archive: Archive,
        reader: BatchReader,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        progress: Progress = lambda *_: None,
        keep_ms: int | None = None,
        warn: Warn = lambda _: None,
        archived: Archived = lambda _: None,
    ) -> None:
        self._archive = archive
        self._reader = reader
        self._segment_bytes = segment_bytes
        self._progress = progress
        self._keep_ms = keep_ms
        self._warn = warn
        self._archived = archived
        self._divided_at = 0
        """The start of the quorum's log when a run was last divided, or could not be."""
        self._confirmed_at = -math.inf
        """When the store was last asked for the manifest, on the monotonic clock."""
        self._last_batch: tuple[int, bytes] | None = None
        """The base offset of the last archived batch, and the SHA-256 of its bytes."""

    @property
    def manifest(self) -> BackupManifest | None:
        """The newest manifest."""
        return self._archive.newest

    def advance(self) -> bool:
        """Archive what is committed now; returns whether a manifest was written.

        Raises ContradictionError if the quorum is not the one that was archived, BackupError and
        OSError if the archive fails, and ClientError if the quorum does.
        """
        before = self.manifest
        log_start = self._archive_committed()
        if self._keep_ms is not None:
            self._divide(log_start)
            self._archive.prune(time.time_ns() // 1_000_000 - self._keep_ms)
        if self.manifest is not before:
            return True
        self._confirm()
        return False

    def _archive_committed(self) -> int:
        """Archive what is committed now; returns where the quorum's log begins."""
        extent = self._reader.extent()
        self._check_cluster()
        if self.manifest is None and extent.start > 0:
            self._begin_run()
            extent = self._reader.extent()
        if self.manifest is not None and extent.end < self.manifest.last_run.end:
            raise ContradictionError(
                f"the quorum's committed log ends at offset {extent.end}, and the archive at "
                f"{self.manifest.last_run.end}: the archive has another history"
            )
        try:
            self._copy(extent)
        except OffsetCompactedError:
            self._begin_run()
            self._copy(self._reader.extent())
        return extent.start

    def _continue(self) -> None:
        """Archive what is committed now, as `advance` does, but divide and prune nothing."""
        before = self.manifest
        self._archive_committed()
        if self.manifest is before:
            self._confirm()
        self._archived(self.manifest)

    def _confirm(self) -> None:
        """Without new records, too, a backup that is gone or cannot be reached is no success."""
        now = time.monotonic()
        if now - self._confirmed_at >= CONFIRM_S:
            self._archive.confirm()
            self._confirmed_at = now

    # --- the quorum's identity --------------------------------------------------------------------

    def _cluster_id(self) -> str:
        found = self._reader.cluster_id
        if not found:
            raise BackupError("the controllers do not name their cluster: upgrade them")
        return found

    def _check_cluster(self) -> None:
        manifest, found = self.manifest, self._cluster_id()
        if manifest is not None and manifest.cluster_id != found:
            raise ContradictionError(
                f"{self._archive.store.url} is the backup of cluster {manifest.cluster_id}, and "
                f"the quorum is cluster {found}: use another place"
            )

    # --- runs -------------------------------------------------------------------------------------

    def _begin_run(self) -> None:
        """Archive the newest checkpoint; the following batches belong to its run."""
        snapshot = self._archive_snapshot(self._check_follows)
        if snapshot is None:
            raise BackupError("the leader has no checkpoint, although its log begins later")
        run = ArchivedRun(snapshot)
        manifest = self.manifest or BackupManifest(self._cluster_id())
        self._archive.publish(replace(manifest, runs=(*manifest.runs, run)))
        self._last_batch = None

    def _divide(self, log_start: int) -> None:
        """Divide the last run at the newest checkpoint, if it is long, so that it can be pruned.

        log_start: where the quorum's log begins: it has a checkpoint there or later.
        """
        manifest = self.manifest
        if manifest is None or not manifest.last_run.start < log_start > self._divided_at:
            return
        if not is_long(manifest.last_run):
            return
        start = manifest.last_run.start
        snapshot = self._archive_snapshot(lambda found: found.offset > start)
        if snapshot is not None:
            if snapshot.offset > manifest.last_run.end:
                self._copy(self._reader.extent())
            manifest = self.manifest or manifest
            index = len(manifest.runs) - 1
            if self._is_right(manifest.last_run, snapshot):
                # The run has grown meanwhile, and another one may have begun.
                manifest = self.manifest or manifest
                halves = divide(self._archive.store, manifest.runs[index], snapshot)
                if halves is not None:
                    runs = (*manifest.runs[:index], *halves, *manifest.runs[index + 1 :])
                    self._archive.publish(replace(manifest, runs=runs))
        self._divided_at = log_start

    def _is_right(self, run: ArchivedRun, snapshot: ArchivedSnapshot) -> bool:
        """Whether a checkpoint is the state after the archived log, which may be deleted then.

        Archiving goes on meanwhile. If that fails, its exception ends the comparison.
        """
        meanwhile = _Meanwhile(self._continue)
        try:
            with self._archive.holding(each.name for each in run.objects):
                found = checkpoint_differences(self._archive.store, [run], snapshot, meanwhile)
        except OSError:  # the store does not answer
            raise
        except Exception as error:  # nothing may keep later records from being archived
            if error is meanwhile.failure:
                raise
            text = " ".join(str(error).split())
            reason = text if isinstance(error, LogError) else f"{type(error).__name__}: {text}"
        else:
            if not found:
                return True
            reason = found[0].text
        self._warn(
            f"the quorum's checkpoint {snapshot.id} is not the state after the archived log, so "
            f"that log is kept: {reason}"
        )
        return False

    def _archive_snapshot(
        self, is_wanted: Callable[[OffsetAndEpoch], bool]
    ) -> ArchivedSnapshot | None:
        """Archive the newest checkpoint; None if there is none, or it is not wanted."""
        # A stream that breaks must not leave a part of the checkpoint under its name.
        with tempfile.TemporaryFile() as file:
            digest = hashlib.sha256()
            found: OffsetAndEpoch | None = None
            for found, data in self._reader.checkpoint():  # noqa: B007 - the id is used below
                file.write(data)
                digest.update(data)
            if found is None or not is_wanted(found):
                return None
            size = file.tell()
            timestamp = _timestamp_of(file)
            snapshot = ArchivedSnapshot(
                found.offset, found.epoch, timestamp, size, digest.hexdigest()
            )
            self._archive.store.put(snapshot.name, _chunks_of(file))
        return snapshot

    def _check_follows(self, snapshot: OffsetAndEpoch) -> bool:
        """Raise ContradictionError unless a run from there may follow the archive."""
        if self.manifest is None:
            return True
        last = self.manifest.last_run
        if snapshot.offset < last.end or snapshot.epoch < last.last_epoch:
            raise ContradictionError(
                f"the quorum's checkpoint {snapshot} is older than the archive, which ends at "
                f"offset {last.end} in epoch {last.last_epoch}: the archive has another history"
            )
        return True

    # --- batches ----------------------------------------------------------------------------------

    def _copy(self, extent: Extent) -> None:
        """Archive the batches before `extent.end`. OffsetCompactedError if the log lacks one."""
        run = ArchivedRun() if self.manifest is None else self.manifest.last_run
        position, epoch = run.end, run.last_epoch
        if position >= extent.end:
            return
        if extent.start > position:
            raise compacted(position, extent.start)
        begin = self._compared(run, extent)
        pending: _PendingSegment | None = None
        for data in self._reader.batches(begin, extent.end):
            for header, batch in _sound(data):
                if begin is not None and header.base_offset < position:
                    self._compare(header, batch)
                    continue
                if header.base_offset != position or header.epoch < epoch:
                    raise ContradictionError(
                        f"the archive ends at offset {position} in epoch {epoch}, and the quorum's "
                        f"next batch has offset {header.base_offset} and epoch {header.epoch}: "
                        "the archive has another history"
                    )
                pending = pending or _PendingSegment.at(header)
                pending.add(header, batch)
                position, epoch = header.end_offset, header.epoch
                if pending.size >= self._segment_bytes:
                    self._archive_segment(pending)
                    self._progress(position, extent.end)
                    pending = None
        if pending is not None:
            self._archive_segment(pending)
            self._progress(position, extent.end)

    def _compared(self, run: ArchivedRun, extent: Extent) -> int:
        """Where to begin to read: at the last archived batch, which is compared, if it is there."""
        if self._last_batch is None and run.segments:
            for _, header, batch in batches_in(
                verified_chunks(self._archive.store, run.segments[-1])
            ):
                self._last_batch = header.base_offset, hashlib.sha256(batch).digest()
        if self._last_batch is None or self._last_batch[0] < extent.start:
            return run.end
        return self._last_batch[0]

    def _compare(self, header: BatchHeader, batch: bytes) -> None:
        if (header.base_offset, hashlib.sha256(batch).digest()) != self._last_batch:
            raise ContradictionError(
                f"the quorum's batch at offset {header.base_offset}, epoch {header.epoch}, is not "
                "the one in the archive: the archive has another history"
            )

    def _archive_segment(self, pending: _PendingSegment) -> None:
        digest = hashlib.sha256()
        for batch in pending.batches:
            digest.update(batch)
        segment = ArchivedSegment(
            pending.base,
            pending.end,
            pending.first_epoch,
            pending.last_epoch,
            pending.last_timestamp,
            pending.size,
            digest.hexdigest(),
        )
        self._archive.store.put(segment.name, [b"".join(pending.batches)])
        manifest = self.manifest or BackupManifest(self._cluster_id(), runs=(ArchivedRun(),))
        self._publish(manifest, (*manifest.last_run.segments, segment))
        last = pending.batches[-1]
        header, _ = next(iter_batches(last))
        self._last_batch = header.base_offset, hashlib.sha256(last).digest()
        self._merge_last()

    def _publish(self, manifest: BackupManifest, segments: tuple[ArchivedSegment, ...]) -> None:
        run = replace(manifest.last_run, segments=segments)
        self._archive.publish(manifest.with_last(run))

    # --- merging ----------------------------------------------------------------------------------

    def _merge_last(self) -> None:
        """Merge the last segments while enough of them were merged equally often."""
        while (manifest := self.manifest) is not None:
            segments = manifest.last_run.segments
            last = segments[-MERGED_COUNT:]
            if len(last) < MERGED_COUNT or len({each.merges for each in last}) > 1:
                return
            if sum(each.size for each in last) > self._segment_bytes:
                return
            self._publish(manifest, (*segments[:-MERGED_COUNT], self._merge(last)))

    def _merge(self, parts: tuple[ArchivedSegment, ...]) -> ArchivedSegment:
        store = self._archive.store
        data = b"".join(chunk for part in parts for chunk in verified_chunks(store, part))
        merged = ArchivedSegment(
            parts[0].base,
            parts[-1].end,
            parts[0].first_epoch,
            parts[-1].last_epoch,
            max(part.last_timestamp for part in parts),
            len(data),
            hashlib.sha256(data).hexdigest(),
            parts[0].merges + 1,
        )
        store.put(merged.name, [data])
        return merged


def _sound(data: bytes) -> Iterator[tuple[BatchHeader, bytes]]:
    """The batches of a response. BackupError if one is damaged."""
    try:
        for header, view in iter_batches(data):
            if not verify_crc(view, 0, header):
                raise BackupError(
                    f"the leader sent a batch with a wrong checksum at offset {header.base_offset}"
                )
            yield header, bytes(view)
    except RecordsError as error:
        raise BackupError(f"the leader sent a damaged batch: {error}") from None


def _chunks_of(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    while data := file.read(CHUNK_BYTES):
        yield data


def _timestamp_of(file: IO[bytes]) -> int:
    """The time of the last record that a checkpoint stands for. BackupError if it has no header."""
    try:
        for _, header, batch in batches_in(_chunks_of(file)):
            if header.is_control:
                first = decode_control_batch(batch, header)[0]
                if isinstance(first, SnapshotHeader):
                    return first.last_contained_log_timestamp
            break
    except RecordsError as error:
        raise BackupError(f"the leader sent a damaged checkpoint: {error}") from None
    raise BackupError(
        "the leader sent a checkpoint without its header: controllers of earlier releases do"
    )
