"""Checkpoints: what replaces the log before an offset (KIP-630; KIP-853, "Snapshots").

A checkpoint `<offset, 20 digits>-<epoch, 10 digits>.checkpoint` holds batches with offsets from 0:

1. a control batch: SnapshotHeader, and at kraft.version 1 KRaftVersion and VotersRecord;
2. data batches, restamped to follow it, of the epoch that the name says: metadata first, then the
   records of applications;
3. a control batch with SnapshotFooter: what lacks it is incomplete.

A batch of applications keeps its base offset of the log as its producer id
(`BatchHeader.log_base_offset`). Those of checkpoints of earlier versions have none, and neither
have metadata and control batches, which are as Kafka writes them.

It appears under its name whole or not at all: written as `.part`, synced, renamed, directory
synced. A checkpoint that is being received keeps its `.part` so that it can be resumed.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from quorate.log.disk import FILE_MODE, Disk
from quorate.log.errors import DamagedSnapshotError, SnapshotNotFoundError
from quorate.log.scan import read_range, scan
from quorate.raft.batches import (
    Batch,
    ControlRecord,
    KRaftVersion,
    SnapshotFooter,
    SnapshotHeader,
    VotersRecord,
)
from quorate.raft.types import OffsetAndEpoch, VoterSet
from quorate.records.batch import (
    BatchHeader,
    build_control_batch,
    decode_control_batch,
    has_keys,
    read_header,
    stamp,
)
from quorate.records.errors import RecordsError
from quorate.records.primitives import Buffer

CHECKPOINT_SUFFIX = ".checkpoint"
PART_SUFFIX = ".checkpoint.part"
WRITING_SUFFIX = "-writing.checkpoint.part"
WRITE_BYTES = 1 << 20
"""How much is gathered before it is written."""
SYNC_BYTES = 16 * 1024 * 1024
"""How much of a new checkpoint may be in memory only: a sync of the log may have to wait for it."""

_NAME = re.compile(r"^(\d{20})-(\d{10})$", re.ASCII)


def snapshot_name(snapshot: OffsetAndEpoch) -> str:
    return f"{snapshot.offset:020d}-{snapshot.epoch:010d}"


def parse_snapshot_name(stem: str) -> OffsetAndEpoch | None:
    match = _NAME.match(stem)
    return OffsetAndEpoch(int(match[1]), int(match[2])) if match else None


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """What a whole checkpoint says of itself."""

    size: int
    """The size of the file, bytes."""
    last_timestamp: int
    """The timestamp of the last record that it stands for, in milliseconds since 1970."""
    kraft_version: int | None
    """None if it has no such record."""
    voters: VoterSet | None
    """None if it has no such record."""


def scan_snapshot(
    path: Path, descriptor: int, size: int
) -> Iterator[tuple[BatchHeader, memoryview, tuple[ControlRecord, ...]]]:
    """Each batch with its control records, all checked. DamagedSnapshotError at the first fault."""
    position = expected = 0
    footer = False
    try:
        for position, header, batch, sound in scan(descriptor, size):
            if not sound:
                raise DamagedSnapshotError(path, position, "the checksum is wrong")
            if header.base_offset != expected:
                reason = f"offset {header.base_offset} where {expected} is expected"
                raise DamagedSnapshotError(path, position, reason)
            if footer:
                raise DamagedSnapshotError(path, position, "there is more after the footer")
            control = decode_control_batch(batch, header) if header.is_control else ()
            if expected == 0 and not (control and isinstance(control[0], SnapshotHeader)):
                raise DamagedSnapshotError(path, position, "it does not begin with SnapshotHeader")
            footer = bool(control) and isinstance(control[-1], SnapshotFooter)
            expected = header.end_offset
            yield header, batch, control
    except RecordsError as error:
        raise DamagedSnapshotError(path, position, str(error)) from error
    if not footer:
        raise DamagedSnapshotError(path, size, "it does not end with SnapshotFooter")


def inspect_snapshot(path: Path) -> SnapshotInfo:
    """Read a checkpoint wholly. DamagedSnapshotError unless it is whole."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        timestamp = 0
        version: int | None = None
        voters: VoterSet | None = None
        for _, _, control in scan_snapshot(path, descriptor, size):
            for record in control:
                if isinstance(record, SnapshotHeader):
                    timestamp = record.last_contained_log_timestamp
                elif isinstance(record, KRaftVersion):
                    version = record.level
                elif isinstance(record, VotersRecord):
                    voters = record.voters
        return SnapshotInfo(size, timestamp, version, voters)
    finally:
        os.close(descriptor)


class SnapshotReader:
    """A checkpoint, open: it can be read to its end even when it is deleted meanwhile."""

    def __init__(self, path: Path) -> None:
        self.descriptor = -1
        self.path = path
        try:
            self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise SnapshotNotFoundError(f"there is no checkpoint {path}") from error
        self.size = os.fstat(self.descriptor).st_size

    def read(self, position: int, max_bytes: int) -> bytes:
        """Up to `max_bytes` from `position`, empty at or after the end."""
        if position < 0 or max_bytes < 0:
            raise ValueError(f"no range: {max_bytes} bytes at {position}")
        return read_range(self.descriptor, position, min(max_bytes, self.size - position, 1 << 30))

    def batches(self, from_offset: int = 0, *, include_control: bool = False) -> Iterator[Batch]:
        """The data batches, one after the other; then the reader is closed.

        from_offset: in the log. All metadata, and of the records of applications what is not known
        to lie before it: batches without a known offset are left out where one that follows begins
        at or before it. include_control: the control batches, too. DamagedSnapshotError at the
        first fault.
        """
        with self:
            wanted = self.size
            unknown: int | None = None
            position = 0
            for header, batch, control in scan_snapshot(self.path, self.descriptor, self.size):
                at, position = position, position + header.size_bytes
                if control and not include_control:
                    continue
                if from_offset <= 0 or not has_keys(batch, header):
                    yield _as_batch(header, batch)
                    continue
                base = header.log_base_offset
                if base is None:
                    unknown = at if unknown is None else unknown
                elif base + header.last_offset_delta < from_offset:
                    unknown = None
                else:
                    wanted = at if base <= from_offset or unknown is None else unknown
                    unknown = None
                    break
            yield from self._from(wanted if unknown is None else unknown, include_control)

    def _from(self, start: int, include_control: bool) -> Iterator[Batch]:
        position = start
        try:
            for position, header, batch, sound in scan(self.descriptor, self.size, start):
                if not sound:
                    raise DamagedSnapshotError(self.path, position, "the checksum is wrong")
                if include_control or not header.is_control:
                    yield _as_batch(header, batch)
        except RecordsError as error:
            raise DamagedSnapshotError(self.path, position, str(error)) from error

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __del__(self) -> None:
        # `batches` may be given up in a thread, or before it began.
        self.close()

    def __enter__(self) -> SnapshotReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SnapshotStore:
    """The checkpoints of one partition directory."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self.directory = directory
        self.disk = disk

    def ids(self) -> tuple[OffsetAndEpoch, ...]:
        """All checkpoints, oldest first."""
        found = (
            parse_snapshot_name(path.name.removesuffix(CHECKPOINT_SUFFIX))
            for path in self.directory.glob("*" + CHECKPOINT_SUFFIX)
        )
        return tuple(sorted(snapshot for snapshot in found if snapshot is not None))

    def path(self, snapshot: OffsetAndEpoch) -> Path:
        return self.directory / (snapshot_name(snapshot) + CHECKPOINT_SUFFIX)

    def part_path(self, snapshot: OffsetAndEpoch) -> Path:
        return self.directory / (snapshot_name(snapshot) + PART_SUFFIX)

    def last_timestamp(self, snapshot: OffsetAndEpoch) -> int:
        """The timestamp of the last record that a checkpoint covers, from its header."""
        with self.open(snapshot) as reader:
            path = self.path(snapshot)
            for _, _, control in scan_snapshot(path, reader.descriptor, reader.size):
                if control and isinstance(control[0], SnapshotHeader):
                    return control[0].last_contained_log_timestamp
        raise DamagedSnapshotError(path, 0, "it does not begin with SnapshotHeader")

    def open(self, snapshot: OffsetAndEpoch) -> SnapshotReader:
        return SnapshotReader(self.path(snapshot))

    def delete(self, snapshots: Iterable[OffsetAndEpoch]) -> None:
        for snapshot in snapshots:
            self.disk.unlink(self.path(snapshot))
        self.disk.sync_directory(self.directory)

    def delete_parts(self, keep: OffsetAndEpoch | None = None) -> None:
        """Delete what was begun and not finished, by us or by Kafka, but for one reception."""
        kept = None if keep is None else self.part_path(keep)
        for path in self.directory.glob("*" + PART_SUFFIX):
            if path != kept:
                self.disk.unlink(path)

    def complete(self, part: Path, snapshot: OffsetAndEpoch) -> None:
        """Give a synced file its name, durably."""
        self.disk.rename(part, self.path(snapshot))
        self.disk.sync_directory(self.directory)

    def batches(
        self, snapshot: OffsetAndEpoch, from_offset: int = 0, *, include_control: bool = False
    ) -> Iterator[Batch]:
        """The batches, one after the other: see `SnapshotReader.batches`."""
        return self.open(snapshot).batches(from_offset, include_control=include_control)

    def write(
        self,
        snapshot: OffsetAndEpoch,
        kraft_version: int,
        voters: VoterSet | None,
        last_timestamp: int,
        batches: Iterable[Buffer],
    ) -> None:
        """Write a checkpoint; it is there, durably, on return."""
        part = self.directory / (snapshot_name(snapshot) + WRITING_SUFFIX)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
        try:
            position = synced = 0
            pending: list[Buffer] = []
            pending_bytes = 0
            for batch in restamped(snapshot, kraft_version, voters, last_timestamp, batches):
                pending.append(batch)
                pending_bytes += len(batch)
                if pending_bytes >= WRITE_BYTES:
                    position = self.disk.write_all(descriptor, pending, position)
                    pending, pending_bytes = [], 0
                if position - synced >= SYNC_BYTES:
                    self.disk.sync_data(descriptor)
                    synced = position
            self.disk.write_all(descriptor, pending, position)
            self.disk.sync(descriptor)
        except BaseException:
            self.disk.unlink(part)
            raise
        finally:
            os.close(descriptor)
        self.complete(part, snapshot)


def restamped(
    snapshot: OffsetAndEpoch,
    kraft_version: int,
    voters: VoterSet | None,
    last_timestamp: int,
    batches: Iterable[Buffer],
) -> Iterator[bytearray]:
    """All batches of a checkpoint, offsets consecutive from 0. voters: at kraft.version 1."""
    records: list[ControlRecord] = [SnapshotHeader(last_timestamp)]
    if kraft_version >= 1:
        assert voters is not None, "a checkpoint at kraft.version 1 holds the voter set"
        records += [KRaftVersion(kraft_version), VotersRecord(voters)]
    head = build_control_batch(records, _now_ms())
    stamp(head, 0, snapshot.epoch)
    yield head
    offset = len(records)
    for batch in batches:
        data = batch if isinstance(batch, bytearray) else bytearray(batch)
        count = read_header(data).last_offset_delta + 1
        stamp(data, offset, snapshot.epoch)
        yield data
        offset += count
    foot = build_control_batch([SnapshotFooter()], _now_ms())
    stamp(foot, offset, snapshot.epoch)
    yield foot


def _as_batch(header: BatchHeader, batch: memoryview) -> Batch:
    return Batch(header.base_offset, header.last_offset, header.epoch, (), bytes(batch))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
