"""Finds the files of a metadata log: in node directories, partition directories, archives or files.

A replica is named "id-directoryId" from its meta.properties, else by its path. Segments are sorted
by offset and cut at batch boundaries into pieces of about `piece_bytes`, so that Spark can read
them in parallel. This module uses only file names, meta.properties, manifests and batch headers.

An archive of a backup (`backup`) is a replica without a node: the objects that its newest manifest
lists are its segments and checkpoints. Runs with a gap between them are replicas of their own.

Source: KIP-630 and KIP-853 for the names; `log.segments`, `log.snapshots`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from quorate.backup.archive import require_manifest
from quorate.backup.errors import BackupError, KeyChoiceError
from quorate.backup.manifest import LOG_FOLDER, MANIFEST_FOLDER, ArchivedRun
from quorate.backup.stores import LocalStore
from quorate.log.disk import Disk
from quorate.log.errors import MetaPropertiesError
from quorate.log.meta_properties import META_PROPERTIES_FILE, MetaProperties
from quorate.log.metadata_log import PARTITION_DIRECTORY
from quorate.log.segments import LOG_SUFFIX, files_by_offset, parse_offset_name
from quorate.log.snapshots import CHECKPOINT_SUFFIX, SnapshotStore, parse_snapshot_name
from quorate.raft.types import OffsetAndEpoch
from quorate.spark.decoding.framing import hop, read_chunks
from quorate.spark.errors import FileGoneError, NotALogError

PIECE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A segment of the log. base_offset: the offset in the file name."""

    path: Path
    base_offset: int


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    path: Path
    id: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class ArchivedLog:
    """What a manifest says of a log in an archive. All of its records are committed."""

    cluster_id: str
    end: int


@dataclass(frozen=True, slots=True)
class LogReplica:
    """One copy of the log.

    properties: None for a single file, an archive, or if meta.properties is missing. archive: None
    if it is none.
    """

    name: str
    directory: Path
    partition: Path
    properties: MetaProperties | None
    segments: tuple[SegmentFile, ...]
    snapshots: tuple[SnapshotFile, ...]
    archive: ArchivedLog | None = None

    @property
    def cluster_id(self) -> str | None:
        """The cluster's id by meta.properties or by the manifest, None if unknown."""
        if self.archive is not None:
            return self.archive.cluster_id
        return None if self.properties is None else self.properties.cluster_id

    @property
    def start_offset(self) -> int:
        """The log start offset; without segments, the newest snapshot's end offset."""
        if self.segments:
            return self.segments[0].base_offset
        return self.snapshots[-1].id.offset if self.snapshots else 0

    @property
    def files(self) -> list[Path]:
        """The paths of its segments and checkpoints."""
        return [*(one.path for one in self.segments), *(one.path for one in self.snapshots)]

    def segments_between(self, start: int, end: int) -> Iterator[tuple[SegmentFile, int | None]]:
        """Yield the segments that can hold offsets in [start, end).

        With each, yields the base offset of the next segment, None if it is the last one.
        """
        following = [*(segment.base_offset for segment in self.segments[1:]), None]
        for segment, after in zip(self.segments, following, strict=False):
            if segment.base_offset < end and (after is None or after > start):
                yield segment, after


@dataclass(frozen=True, slots=True)
class Piece:
    """A byte range of a file, cut at batch boundaries. first_offset: that of its first batch.

    next_offset: the first offset after it, None if unknown (the file's last piece).
    """

    path: str
    start: int
    end: int
    first_offset: int
    next_offset: int | None


def find_replica(path: Path) -> LogReplica:
    """Find the log at a path: a node's directory, its partition directory, or one file.

    Raises NotALogError if there is none.
    """
    if not path.exists():
        raise NotALogError(f"{path} does not exist")
    if path.is_file():
        return _single(path)
    partition = path / PARTITION_DIRECTORY if (path / PARTITION_DIRECTORY).is_dir() else path
    directory = path if partition != path else path.parent
    segments, snapshots = _segments(partition), _snapshots(partition)
    if not segments and not snapshots:
        raise NotALogError(
            f"{path} is not a metadata log: neither it nor {PARTITION_DIRECTORY} in it contains "
            "*.log or *.checkpoint files named by their offsets"
        )
    name, properties = str(path), _properties(directory, partition)
    if properties is not None:
        name = f"{properties.node_id}-{properties.directory_id or 'unknown'}"
    return LogReplica(name, directory, partition, properties, segments, snapshots)


def _properties(directory: Path, partition: Path) -> MetaProperties | None:
    if partition.name != PARTITION_DIRECTORY or not (directory / META_PROPERTIES_FILE).exists():
        return None
    try:
        return MetaProperties.read(directory)
    except MetaPropertiesError as error:
        raise NotALogError(str(error)) from None


def _single(path: Path) -> LogReplica:
    offset = parse_offset_name(path.stem) if path.suffix == LOG_SUFFIX else None
    snapshot = parse_snapshot_name(path.stem) if path.suffix == CHECKPOINT_SUFFIX else None
    if offset is None and snapshot is None:
        raise NotALogError(
            f"{path} is not a file of a metadata log: expected a name such as "
            f"{0:020}{LOG_SUFFIX} or {0:020}-{0:010}{CHECKPOINT_SUFFIX}"
        )
    return LogReplica(
        str(path),
        path.parent,
        path.parent,
        None,
        () if offset is None else (SegmentFile(path, offset),),
        () if snapshot is None else (SnapshotFile(path, snapshot),),
    )


def find_replicas(paths: list[Path]) -> list[LogReplica]:
    """Find all logs at the paths. A directory that holds node directories stands for all of them.

    Raises NotALogError for a path without a log.
    """
    found: list[LogReplica] = []
    for path in paths:
        if (path / MANIFEST_FOLDER).is_dir():
            found += _archived(path)
            continue
        try:
            found.append(find_replica(path))
        except NotALogError:
            inner = sorted(path.glob(f"*/{PARTITION_DIRECTORY}")) if path.is_dir() else []
            inner += sorted(path.glob(f"*/data/{PARTITION_DIRECTORY}")) if path.is_dir() else []
            if not inner:
                raise
            found += [find_replica(each.parent) for each in inner]
    return found


def _archived(path: Path) -> list[LogReplica]:
    """The logs in an archive, one for each sequence of runs without a gap."""
    try:
        manifest = require_manifest(LocalStore(path))
    except KeyChoiceError:
        raise NotALogError(
            f"{path} is an encrypted archive, which cannot be read here: restore it, and read the "
            "directory"
        ) from None
    except BackupError as error:
        raise NotALogError(f"{path}: {error}") from None
    for name in sorted(manifest.names):
        if not (path / name).is_file():
            raise NotALogError(f"{path} lacks {name}, which its manifest lists")
    logs: list[list[ArchivedRun]] = []
    for run in manifest.runs:
        if logs and logs[-1][-1].end == run.start:
            logs[-1].append(run)
        else:
            logs.append([run])
    return [_archived_log(path, runs, manifest.cluster_id, len(logs) == 1) for runs in logs]


def _archived_log(
    path: Path, runs: Sequence[ArchivedRun], cluster_id: str, is_only: bool
) -> LogReplica:
    start, end = runs[0].start, runs[-1].end
    segments = [segment for run in runs for segment in run.segments]
    snapshots = [run.snapshot for run in runs if run.snapshot is not None]
    return LogReplica(
        str(path) if is_only else f"{path}, offsets {start} to {end}",
        path,
        path / LOG_FOLDER,
        None,
        tuple(SegmentFile(path / each.name, each.base) for each in segments),
        tuple(SnapshotFile(path / each.name, each.id) for each in snapshots),
        ArchivedLog(cluster_id, end),
    )


def _segments(partition: Path) -> tuple[SegmentFile, ...]:
    return tuple(
        SegmentFile(path, int(path.stem)) for path in files_by_offset(partition, LOG_SUFFIX)
    )


def _snapshots(partition: Path) -> tuple[SnapshotFile, ...]:
    store = SnapshotStore(partition, Disk())
    return tuple(SnapshotFile(store.path(snapshot), snapshot) for snapshot in store.ids())


@contextmanager
def opened(path: Path | str) -> Iterator[tuple[int, int]]:
    """Open a file for reading: its descriptor and size. Raises FileGoneError if it is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise FileGoneError(
            f"{path} was deleted since the directory was listed: its node is running, and a "
            "snapshot replaced the records. Read again, or read the running quorum (bootstrap)"
        ) from None
    try:
        yield descriptor, os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def size_of(path: Path) -> int:
    """The size of a file in bytes. Raises FileGoneError if it is gone."""
    with opened(path) as (_, size):
        return size


def cut(path: Path, piece_bytes: int = PIECE_BYTES) -> list[Piece]:
    """Cut a file into pieces that begin at batch boundaries. Raises FileGoneError if it is gone."""
    with opened(path) as (descriptor, size):
        marks = hop(descriptor, size, piece_bytes)
    if not marks:
        return [Piece(str(path), 0, size, 0, None)]
    ends = [position for position, _ in marks[1:]] + [size]
    following = [*(offset for _, offset in marks[1:]), None]
    return [
        Piece(str(path), position, end, offset, after)
        for (position, offset), end, after in zip(marks, ends, following, strict=True)
    ]


def end_offset(replica: LogReplica) -> int:
    """The offset after the last whole batch of the log."""
    for segment in reversed(replica.segments):
        end = end_of_file(segment.path, cut(segment.path)[-1].start)
        if end is not None:
            return end
    return replica.start_offset


def end_of_file(path: Path, start: int = 0) -> int | None:
    """The offset after the last whole batch from a position on, None if there is none."""
    end = None
    with opened(path) as (descriptor, size):
        for chunk in read_chunks(descriptor, start, size):
            if len(chunk.starts):
                end = int(chunk.last_offsets[-1]) + 1
    return end
