"""Opening a log: what the disk holds, and what to make of it.

1. The newest checkpoint is read wholly: it gives the voters, the kraft.version and a lower bound.
2. All segments are scanned, batch by batch: header, checksum, offset and epoch must follow.
3. At the first fault, the log ends there if what follows was never promised to anyone:
   - only zeros follow: room that was allocated;
   - nothing sound follows: a torn write;
   - a sound batch follows, but pages in between were never written, and all of it fits into one
     write: the system stopped while the pages of one group commit were on their way.
   Otherwise, and always when there is a later segment, when the fault lies below the recovery
   point, and when the batch is whole but not the one that belongs there, the log is damaged:
   DamagedLogError, and nothing is changed.
4. If the log ends below the newest checkpoint, or another epoch precedes the checkpoint's offset,
   the process died between receiving the checkpoint and dropping the log: it is dropped now.
5. The log starts at 0, or at the oldest checkpoint that the segments reach; what they hold before
   that is not part of it.

The recovery point is void if Kafka had the directory after us, for Kafka truncates without telling
it: Kafka leaves an index beside the last segment, we leave none.

Source: KIP-630 (log start and snapshots); Kafka's LogLoader and KafkaMetadataLog for what they do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from quorate.log.disk import Disk
from quorate.log.epochs import clip_epochs
from quorate.log.errors import DamagedLogError, DamagedSnapshotError, LogError
from quorate.log.offset_files import read_recovery_point, write_epochs, write_recovery_point
from quorate.log.scan import end_of_data, find_batch, has_unwritten_page, scan
from quorate.log.segments import (
    GROUP_BYTES_MAX,
    LOG_SUFFIX,
    Segment,
    SegmentList,
    files_by_offset,
)
from quorate.log.snapshots import (
    PART_SUFFIX,
    SnapshotInfo,
    SnapshotStore,
    inspect_snapshot,
    parse_snapshot_name,
)
from quorate.raft.batches import KRaftVersion, Voters
from quorate.raft.types import BOOTSTRAP_SNAPSHOT, OffsetAndEpoch, VoterSet
from quorate.records.batch import BatchHeader, decode_control_batch
from quorate.records.errors import RecordsError


@dataclass(frozen=True, slots=True)
class RecoveredLog:
    """What the protocol needs to know of a log that was opened, or replaced by a checkpoint.

    start: the first offset that can be read, and the epoch of the record before it: 0@0 or the id
    of a checkpoint. epochs: each epoch with the offset at which it starts. voters, kraft_versions:
    with the offset of their control record; a checkpoint's stand at its offset less one.
    latest_snapshot: 0@0 is the bootstrap checkpoint. last_timestamp: of the last record, in
    milliseconds since 1970, 0 if there is none. truncated_bytes: how long the torn tail was.
    """

    start: OffsetAndEpoch
    end_offset: int
    epochs: tuple[OffsetAndEpoch, ...] = ()
    voters: tuple[tuple[int, VoterSet], ...] = ()
    kraft_versions: tuple[tuple[int, int], ...] = ()
    latest_snapshot: OffsetAndEpoch | None = None
    last_timestamp: int = 0
    truncated_bytes: int = 0

    @property
    def start_offset(self) -> int:
        return self.start.offset


def recovered_snapshot(
    snapshot: OffsetAndEpoch, info: SnapshotInfo, truncated_bytes: int = 0
) -> RecoveredLog:
    """A log that consists of a checkpoint alone."""
    at = snapshot.offset - 1
    return RecoveredLog(
        start=snapshot,
        end_offset=snapshot.offset,
        voters=() if info.voters is None else ((at, info.voters),),
        kraft_versions=() if info.kraft_version is None else ((at, info.kraft_version),),
        latest_snapshot=snapshot,
        last_timestamp=info.last_timestamp,
        truncated_bytes=truncated_bytes,
    )


@dataclass(slots=True)
class _Scan:
    """What the segments hold so far."""

    control_from: int
    end_offset: int | None = None
    stream: int = 0
    epochs: list[OffsetAndEpoch] = field(default_factory=list)
    voters: list[tuple[int, VoterSet]] = field(default_factory=list)
    kraft_versions: list[tuple[int, int]] = field(default_factory=list)
    last_timestamp: int = 0
    torn_bytes: int = 0

    @property
    def last_epoch(self) -> int:
        return self.epochs[-1].epoch if self.epochs else 0

    def take(self, path: Path, position: int, header: BatchHeader, batch: memoryview) -> None:
        if not self.epochs or header.epoch > self.last_epoch:
            self.epochs.append(OffsetAndEpoch(header.base_offset, header.epoch))
        self.end_offset = header.end_offset
        self.last_timestamp = header.max_timestamp
        if not header.is_control or header.base_offset < self.control_from:
            return
        try:
            control = decode_control_batch(batch, header)
        except RecordsError as error:
            raise LogError(
                f"{path} holds control records at byte {position} that this version does not "
                f"understand ({error}): start the version that wrote them"
            ) from error
        for delta, record in enumerate(control):
            if isinstance(record, Voters):
                self.voters.append((header.base_offset + delta, record.voters))
            elif isinstance(record, KRaftVersion):
                self.kraft_versions.append((header.base_offset + delta, record.level))

    def epoch_before(self, offset: int) -> int | None:
        """The epoch of the record before `offset`, None if it is not in the segments."""
        found = None
        for entry in self.epochs:
            if entry.offset < offset:
                found = entry.epoch
        return found


def recover(
    directory: Path, segments: SegmentList, store: SnapshotStore, disk: Disk
) -> RecoveredLog:
    """Fill `segments` from the disk and repair what may be repaired; the steps are above."""
    latest, info = _newest_checkpoint(store)
    control_from = 0 if latest is None else latest.offset
    found = _Scan(control_from)
    opened = _open_segments(segments)
    recovery_point = _recovery_point(directory, opened)
    try:
        for index, segment in enumerate(opened):
            _scan_segment(found, segment, opened[index + 1 :], recovery_point)
        end_offset = found.end_offset or 0
        is_replaced = latest is not None and _is_replaced(found, latest)
        known_end = latest.offset if latest is not None and is_replaced else end_offset
        if known_end < recovery_point:
            where = opened[-1].path if opened else segments.directory
            size = opened[-1].size if opened else 0
            reason = f"everything before {recovery_point} was synced and is gone"
            raise DamagedLogError(where, size, size, end_offset, reason)
        start = latest if is_replaced else _start(opened, store, segments.directory)
    except BaseException:
        segments.close()
        raise
    assert start is not None
    # A void recovery point is corrected while the index that makes it void is still there.
    if read_recovery_point(directory) > known_end:
        write_recovery_point(disk, directory, known_end)
    _clean_up(segments, latest)
    if is_replaced or not opened:
        segments.reset(start.offset, 0)
        empty = RecoveredLog(start, start.offset)
        if latest is not None and info is not None:
            empty = recovered_snapshot(latest, info, found.torn_bytes)
        write_epochs(disk, segments.directory, ())
        return empty
    _cut_tail(segments)
    epochs = clip_epochs(found.epochs, start.offset)
    write_epochs(disk, segments.directory, epochs)
    base = None if latest is None or info is None else recovered_snapshot(latest, info)
    return RecoveredLog(
        start=start,
        end_offset=end_offset,
        epochs=tuple(epochs),
        voters=(base.voters if base else ()) + tuple(found.voters),
        kraft_versions=(base.kraft_versions if base else ()) + tuple(found.kraft_versions),
        latest_snapshot=latest,
        last_timestamp=found.last_timestamp or (base.last_timestamp if base else 0),
        truncated_bytes=found.torn_bytes,
    )


def _newest_checkpoint(store: SnapshotStore) -> tuple[OffsetAndEpoch | None, SnapshotInfo | None]:
    ids = store.ids()
    if not ids:
        return None, None
    latest = ids[-1]
    try:
        return latest, inspect_snapshot(store.path(latest))
    except DamagedSnapshotError as error:
        raise LogError(
            f"{error}. It is this replica's newest one, so its log cannot be trusted to be whole: "
            "remove the replica from the quorum (metadata-quorum remove-controller), format an "
            "empty directory and add it again"
        ) from error


def _open_segments(segments: SegmentList) -> list[Segment]:
    for path in files_by_offset(segments.directory, LOG_SUFFIX):
        segments.segments.append(Segment(path, int(path.stem), 0))
    return segments.segments


def _recovery_point(directory: Path, opened: Sequence[Segment]) -> int:
    if opened and opened[-1].path.with_suffix(".index").exists():
        return 0
    return read_recovery_point(directory)


def _scan_segment(
    found: _Scan, segment: Segment, later: Sequence[Segment], recovery_point: int
) -> None:
    """Scan one segment to its end; DamagedLogError for what is not a torn tail."""
    segment.stream_start = found.stream
    if found.end_offset is None:
        found.end_offset = segment.base_offset
    expected = found.end_offset
    if segment.base_offset != expected:
        reason = f"the segment begins at offset {segment.base_offset}"
        raise DamagedLogError(segment.path, 0, segment.allocated, expected, reason)
    position = 0
    fault: str | None = None
    try:
        for position, header, batch, sound in scan(segment.descriptor, segment.allocated):
            if not sound:
                fault = "the checksum is wrong"
                break
            _check_place(found, segment, position, header)
            found.take(segment.path, position, header, batch)
            segment.note(header.base_offset, position)
            segment.size = position + header.size_bytes
    except RecordsError as error:
        fault = str(error)
    found.stream += segment.size
    if fault is not None:
        _judge(found, segment, later, recovery_point, fault)


def _check_place(found: _Scan, segment: Segment, position: int, header: BatchHeader) -> None:
    """A sound batch in the wrong place was never torn: something misplaced it."""
    assert found.end_offset is not None
    end = position + header.size_bytes
    if header.base_offset != found.end_offset:
        reason = f"a whole batch with offset {header.base_offset} lies there"
        raise DamagedLogError(segment.path, position, end, found.end_offset, reason)
    if header.epoch < found.last_epoch:
        reason = f"a whole batch of epoch {header.epoch} follows epoch {found.last_epoch}"
        raise DamagedLogError(segment.path, position, end, found.end_offset, reason)


def _judge(
    found: _Scan, segment: Segment, later: Sequence[Segment], recovery_point: int, fault: str
) -> None:
    """A fault at segment.size: a torn tail (counted), or damage (raised)."""
    assert found.end_offset is not None
    start, end = segment.size, segment.allocated
    expected = found.end_offset
    if later:
        reason = f"{fault}; a later segment, {later[0].path.name}, follows"
        raise DamagedLogError(segment.path, start, end, expected, reason)
    if expected < recovery_point:
        reason = f"{fault}; everything before offset {recovery_point} was synced"
        raise DamagedLogError(segment.path, start, end, expected, reason)
    data_end = end_of_data(segment.descriptor, start, end)
    if data_end == start:
        return
    follows = find_batch(segment.descriptor, start, end, expected)
    if follows is not None:
        is_one_write = data_end - start <= GROUP_BYTES_MAX
        if not (is_one_write and has_unwritten_page(segment.descriptor, start, follows)):
            reason = f"{fault}; a whole batch follows at byte {follows}"
            raise DamagedLogError(segment.path, start, follows, expected, reason)
    found.torn_bytes = data_end - start


def _is_replaced(found: _Scan, latest: OffsetAndEpoch) -> bool:
    """Whether the newest checkpoint replaces the log instead of summing up a part of it."""
    if latest == BOOTSTRAP_SNAPSHOT:
        return False
    if found.end_offset is None or found.end_offset < latest.offset:
        return True
    before = found.epoch_before(latest.offset)
    return before is not None and before != latest.epoch


def _start(opened: Sequence[Segment], store: SnapshotStore, directory: Path) -> OffsetAndEpoch:
    base = opened[0].base_offset if opened else 0
    if base == 0:
        return BOOTSTRAP_SNAPSHOT
    for snapshot in store.ids():
        if snapshot.offset >= base:
            return snapshot
    raise LogError(
        f"the log in {directory} begins at offset {base} and no checkpoint stands for what was "
        "before: remove this replica from the quorum (metadata-quorum remove-controller), format "
        "an empty directory and add it again"
    )


def _clean_up(segments: SegmentList, latest: OffsetAndEpoch | None) -> None:
    """Delete what a crash, or Kafka, left half done."""
    for path in segments.directory.glob("*.deleted"):
        segments.disk.unlink(path)
    for path in segments.directory.glob("*" + PART_SUFFIX):
        received = parse_snapshot_name(path.name.removesuffix(PART_SUFFIX))
        if received is None or (latest is not None and received.offset <= latest.offset):
            segments.disk.unlink(path)


def _cut_tail(segments: SegmentList) -> None:
    """Drop the torn tail and unused room, durably; let Kafka's indexes not outlive our appends."""
    active = segments.active
    segments.drop_indexes(active)
    if active.allocated > active.size:
        segments.trim(active)
    segments.disk.sync_directory(segments.directory)
