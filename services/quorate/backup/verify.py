"""Verifies a backup: every object against the manifest, and every batch as a replica does.

A checkpoint is also compared with the log before it (`comparison`), if the archive has that without
a gap, from offset 0 or from an earlier checkpoint. The replay begins at the last checkpoint that is
not wrong itself.

A backup may write the archive meanwhile, and delete objects that it has replaced. A missing object
is therefore no problem if the newest manifest no longer lists it. The segments that replace it are
verified.

`verified_point` reads only what one restore needs, and the run before it to compare the checkpoint.
Damage elsewhere in the archive does not stop a restore.

A problem is one line with the object, the position of the byte and the offset. A damaged batch is
reported once, not also as a wrong SHA-256 of its object.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from quorate.backup.archive import manifest_names, require_manifest
from quorate.backup.batches import PlacedBatch, RestorePoint, batches_in
from quorate.backup.comparison import CheckpointDifference, checkpoint_differences
from quorate.backup.errors import BackupError, MissingObjectError
from quorate.backup.manifest import (
    ArchivedRun,
    ArchivedSegment,
    ArchivedSnapshot,
    BackupManifest,
)
from quorate.backup.stores import ObjectStore
from quorate.log.errors import LogError
from quorate.raft.batches import ControlRecord, SnapshotFooter, SnapshotHeader
from quorate.records.batch import decode_control_batch, verify_crc
from quorate.records.errors import RecordsError

MISSING = "the object is missing"
Advance = Callable[[int, int], None]
"""Called with the bytes that were read so far, and those of the whole backup."""


@dataclass(frozen=True, slots=True)
class BackupProblem:
    """One fault."""

    object: str
    """The name of the object."""
    position: int
    """The position in the object, bytes."""
    offset: int
    """The offset that is affected."""
    text: str

    def __str__(self) -> str:
        return f"{self.object} at byte {self.position}, offset {self.offset}: {self.text}"


@dataclass(frozen=True, slots=True)
class UncomparedCheckpoint:
    """A checkpoint that could not be compared with the log before it."""

    object: str
    offset: int
    reason: str

    def __str__(self) -> str:
        return f"{self.object} was not compared with the log: {self.reason}"


@dataclass(frozen=True, slots=True)
class BackupReport:
    """The result of `verify_backup`."""

    manifest: BackupManifest | None
    """None if the manifest itself cannot be used."""
    problems: tuple[BackupProblem, ...]
    uncompared: tuple[UncomparedCheckpoint, ...] = ()


def verify_backup(store: ObjectStore, advance: Advance = lambda *_: None) -> BackupReport:
    """Read the newest backup completely. BackupError if there is none."""
    names = manifest_names(store)
    if not names:
        raise BackupError(f"{store.url} contains no backup")
    try:
        manifest = require_manifest(store)
    except BackupError as error:
        return BackupReport(None, (BackupProblem(names[-1], 0, 0, str(error)),))
    problems: list[BackupProblem] = []
    listed = _Listed(store, manifest)
    chain = _Chain(store, listed)
    read = 0
    for run in manifest.runs:
        epoch = 0
        found: list[BackupProblem] = []
        if run.snapshot is not None:
            found += listed.in_snapshot(run.snapshot)
            found += chain.compared(run.snapshot, is_damaged=bool(found))
            read += run.snapshot.size
            epoch = run.snapshot.epoch
            advance(read, manifest.size)
        in_segments: list[BackupProblem] = []
        for segment in run.segments:
            in_segments += listed.in_segment(segment, epoch)
            read += segment.size
            epoch = segment.last_epoch
            advance(read, manifest.size)
        chain.add(run, is_checkpoint_wrong=bool(found), is_log_damaged=bool(in_segments))
        problems += found + in_segments
    return BackupReport(manifest, tuple(problems), tuple(chain.uncompared))


def verified_point(
    store: ObjectStore,
    runs: Sequence[ArchivedRun],
    point: RestorePoint,
    advance: Advance = lambda *_: None,
) -> tuple[RestorePoint, tuple[BackupProblem, ...]]:
    """Read what a restore to a point of one of the runs needs, and return the point to restore.

    If the checkpoint of its run is damaged, or is not the state after the log before it, the
    restore begins at an earlier one, whose log reaches it without a gap. The problems are those of
    checkpoints that are not needed then. BackupError if anything is damaged that nothing replaces.
    """
    unused: list[BackupProblem] = []
    run = ArchivedRun()
    read = total = 0
    for index in range(runs.index(point.run), -1, -1):
        found = runs[index]
        before = tuple(each for each in found.segments if each.base < point.end)
        run = ArchivedRun(found.snapshot, (*before, *run.segments))
        needed = ArchivedRun(found.snapshot, before)
        total += sum(each.size for each in needed.objects)
        epoch = 0 if found.snapshot is None else found.snapshot.epoch
        for segment in before:
            problems = _in_segment(store, segment, epoch)
            if problems:
                hint = f"; --to-offset {segment.base} does not need it" if segment.base else ""
                raise _damaged(problems, hint)
            epoch = segment.last_epoch
            read += segment.size
            advance(read, total)
        earlier = runs[index - 1] if index and runs[index - 1].end == found.start else None
        problems = _before_restore(store, found.snapshot, earlier)
        read += 0 if found.snapshot is None else found.snapshot.size
        advance(read, total)
        if not problems:
            return RestorePoint(run, point.end), tuple(unused)
        unused += problems
        if earlier is None:
            break
    raise _damaged(unused, "")


def _before_restore(
    store: ObjectStore, snapshot: ArchivedSnapshot | None, earlier: ArchivedRun | None
) -> list[BackupProblem]:
    """The problems of a checkpoint. earlier: the run that ends there, None without one."""
    if snapshot is None:
        return []
    problems = _in_snapshot(store, snapshot)
    if problems or earlier is None:
        return problems
    try:
        differences = checkpoint_differences(store, [earlier], snapshot)
    except Exception:  # whatever keeps it from being compared must not keep it from being restored
        return []
    return _contradictions(snapshot, differences)


def _contradictions(
    snapshot: ArchivedSnapshot, differences: Sequence[CheckpointDifference]
) -> list[BackupProblem]:
    return [
        BackupProblem(snapshot.name, each.position, each.offset, each.text) for each in differences
    ]


def _damaged(problems: Sequence[BackupProblem], hint: str) -> BackupError:
    more = f", and {len(problems) - 1} more: see `quorate backup verify`" if problems[1:] else ""
    return BackupError(
        f"the backup cannot be restored, and nothing was created: {problems[0]}{more}{hint}"
    )


class _Listed:
    """The objects of an archive, of which some may be replaced or dropped while it is verified."""

    def __init__(self, store: ObjectStore, manifest: BackupManifest) -> None:
        self._store = store
        self._newest = manifest
        self._replacing: set[str] = set()
        """The segments that were verified in place of others."""

    def lacks(self, name: str) -> bool:
        """Whether the newest manifest does not list an object. It is read again."""
        if name not in self._newest.names:
            return True
        try:
            found = require_manifest(self._store)
        except (LogError, OSError):
            return False  # then the missing object is a fault
        before = self._newest
        if found.cluster_id != before.cluster_id or found.generation <= before.generation:
            return False
        self._newest = found
        return name not in found.names

    def in_snapshot(self, snapshot: ArchivedSnapshot) -> list[BackupProblem]:
        problems = _in_snapshot(self._store, snapshot)
        return [] if _is_missing(problems) and self.lacks(snapshot.name) else problems

    def in_segment(self, segment: ArchivedSegment, epoch: int) -> list[BackupProblem]:
        """The problems of a segment, or of those that replace it. epoch: see `_in_segment`."""
        problems = _in_segment(self._store, segment, epoch)
        if not _is_missing(problems) or not self.lacks(segment.name):
            return problems
        found: list[BackupProblem] = []
        for run in self._newest.runs:
            for each in run.segments:
                is_other = each.end <= segment.base or each.base >= segment.end
                if not is_other and each.name not in self._replacing:
                    self._replacing.add(each.name)
                    found += self.in_segment(each, 0)
        return found


def _is_missing(problems: Sequence[BackupProblem]) -> bool:
    return any(each.text == MISSING for each in problems)


class _Chain:
    """Runs without a gap between them, from which the state at the end of the last one follows."""

    def __init__(self, store: ObjectStore, listed: _Listed) -> None:
        self.uncompared: list[UncomparedCheckpoint] = []
        self._store = store
        self._listed = listed
        self._runs: list[ArchivedRun] = []
        self._reason = "the archive has no log before it"
        """Why there are no runs."""

    def compared(self, snapshot: ArchivedSnapshot, *, is_damaged: bool) -> list[BackupProblem]:
        """Compare the next run's checkpoint. is_damaged: whether that is known to be wrong."""
        if self._runs and self._runs[-1].end < snapshot.offset:
            self._runs = []
            self._reason = "the archive does not have all of the log before it"
        if is_damaged:
            return []
        if not self._runs:
            self.uncompared.append(
                UncomparedCheckpoint(snapshot.name, snapshot.offset, self._reason)
            )
            return []
        try:
            differences = checkpoint_differences(self._store, self._runs, snapshot)
        except (BackupError, RecordsError, OSError) as error:
            if isinstance(error, MissingObjectError) and self._listed.lacks(error.name):
                text = f"a backup replaced {error.name} or dropped it meanwhile"
                self.uncompared.append(UncomparedCheckpoint(snapshot.name, snapshot.offset, text))
                return []
            # The objects were sound when they were verified.
            text = f"it cannot be compared with the log: {' '.join(str(error).split())}"
            return [BackupProblem(snapshot.name, 0, snapshot.offset, text)]
        except Exception as error:  # a fault of the comparison is none of the archive
            text = f"the comparison failed: {type(error).__name__}: {' '.join(str(error).split())}"
            self.uncompared.append(UncomparedCheckpoint(snapshot.name, snapshot.offset, text))
            return []
        return _contradictions(snapshot, differences)

    def add(self, run: ArchivedRun, *, is_checkpoint_wrong: bool, is_log_damaged: bool) -> None:
        """Take the next run: it begins the chain anew unless its checkpoint is wrong."""
        if is_log_damaged:
            self._runs = []
            self._reason = "the archived log before it is damaged"
        elif not is_checkpoint_wrong:
            self._runs = [run]
        elif self._runs:
            self._runs.append(run)
        else:
            self._reason = "the checkpoint before it is damaged"


@dataclass(slots=True)
class _ObjectCheck:
    """The problems of one object."""

    found: ArchivedSegment | ArchivedSnapshot
    offset: int
    """The offset of the next record."""
    position: int = 0
    problems: list[BackupProblem] = field(default_factory=list)

    def problem(self, text: str) -> None:
        self.problems.append(BackupProblem(self.found.name, self.position, self.offset, text))

    def batches(self, store: ObjectStore) -> Iterator[PlacedBatch]:
        """Yield the sound batches; afterwards, compare the whole object with the manifest."""
        digest = hashlib.sha256()
        size = 0

        def read() -> Iterator[bytes]:
            nonlocal size
            for chunk in store.chunks(self.found.name):
                digest.update(chunk)
                size += len(chunk)
                yield chunk
                if size > self.found.size:
                    text = f"the object has more than the {self.found.size} bytes of the manifest"
                    raise BackupError(text)

        try:
            for position, header, batch in batches_in(read()):
                self.position = position
                if not verify_crc(batch, 0, header):
                    self.problem("the checksum of the batch is wrong")
                    self.offset = header.end_offset
                    continue
                yield position, header, batch
        except MissingObjectError:
            self.problem(MISSING)
        except OSError as error:
            # Stores and disks have checksums of their own.
            self.problem(f"the object cannot be read: {' '.join(str(error).split())}")
        except (BackupError, RecordsError) as error:
            self.position = getattr(error, "position", self.position)
            self.problem(getattr(error, "reason", str(error)))
        else:
            self.position = size
            self._compare(size, digest.hexdigest())

    def _compare(self, size: int, sha256: str) -> None:
        if self.problems:
            return
        if size != self.found.size:
            self.problem(f"the object has {size} bytes, and the manifest says {self.found.size}")
        elif sha256 != self.found.sha256:
            self.problem("the SHA-256 of the object is not that of the manifest")


def _in_segment(store: ObjectStore, segment: ArchivedSegment, epoch: int) -> list[BackupProblem]:
    """The problems of one segment. epoch: of the record before the segment."""
    check = _ObjectCheck(segment, segment.base)
    timestamp = 0
    first_epoch: int | None = None
    for _, header, batch in check.batches(store):
        if header.base_offset != check.offset:
            check.problem(f"a batch with offset {header.base_offset} is there")
        if header.epoch < epoch:
            check.problem(f"epoch {header.epoch} follows epoch {epoch}")
        if header.is_control:
            _decoded(check, (0, header, batch))
        first_epoch = header.epoch if first_epoch is None else first_epoch
        epoch = header.epoch
        timestamp = max(timestamp, header.max_timestamp)
        check.offset = header.end_offset
    if not check.problems:
        found = (check.offset, first_epoch, epoch, timestamp)
        if found != (segment.end, segment.first_epoch, segment.last_epoch, segment.last_timestamp):
            check.problem("the manifest has other offsets, epochs or times for the object")
    return check.problems


def _in_snapshot(store: ObjectStore, snapshot: ArchivedSnapshot) -> list[BackupProblem]:
    """A checkpoint's batches have offsets from 0; the problems name the checkpoint's offset."""
    check = _ObjectCheck(snapshot, snapshot.offset)
    expected = 0
    last: tuple[ControlRecord, ...] = ()
    timestamp: int | None = None
    for placed in check.batches(store):
        _, header, _ = placed
        check.offset = snapshot.offset
        if header.base_offset != expected:
            check.problem(f"a batch with offset {header.base_offset} follows {expected - 1}")
        last = _decoded(check, placed) if header.is_control else ()
        if expected == 0 and last and isinstance(last[0], SnapshotHeader):
            timestamp = last[0].last_contained_log_timestamp
        expected = header.end_offset
    if not check.problems:
        if timestamp is None or not last or not isinstance(last[-1], SnapshotFooter):
            check.problem("the checkpoint is not whole: its header or its footer is missing")
        elif timestamp != snapshot.last_timestamp:
            check.problem("the manifest has another time for the checkpoint")
    return check.problems


def _decoded(check: _ObjectCheck, placed: PlacedBatch) -> tuple[ControlRecord, ...]:
    try:
        return decode_control_batch(placed[2], placed[1])
    except RecordsError as error:
        check.problem(f"a control batch is broken: {error}")
        return ()
