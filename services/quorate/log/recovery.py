"""Opening a log: what the disk holds, and what to make of it.

1. The newest checkpoint is read wholly: it gives the voters, the kraft.version and a lower bound.
2. All segments are scanned, batch by batch: header, checksum, offset and epoch must follow.
3. At the first fault in the last segment, `tail` decides: a torn tail is dropped; what is ambiguous
   is dropped after `required-end` says durably what the log must reach again; the rest is damage.
   A fault is always damage when a later segment follows, when it lies below the recovery point,
   and when the batch is whole but not the one that belongs there: DamagedLogError, and nothing is
   changed.
4. If the log ends below the newest checkpoint, or another epoch precedes the checkpoint's offset,
   the process died between receiving the checkpoint and dropping the log: it is dropped now.
5. The log starts at 0, or at the oldest checkpoint that the segments reach; what they hold before
   that is not part of it.

The recovery point is void if Kafka had the directory after us, for Kafka truncates without telling
it: Kafka leaves an index beside the last segment, we leave none.

Source: KIP-630 (log start and snapshots); Kafka's LogLoader and KafkaMetadataLog for what they do.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from quorate.log.disk import Disk
from quorate.log.epochs import clip_epochs
from quorate.log.errors import (
    DamagedLogError,
    DamagedSnapshotError,
    LogError,
    MissingRecordsError,
)
from quorate.log.offset_files import read_recovery_point, write_epochs, write_recovery_point
from quorate.log.required_end import RequiredEndFile, later_required_end
from quorate.log.scan import scan
from quorate.log.segments import (
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
from quorate.log.tail import Tail, judge_tail, lacks_first_bytes
from quorate.raft.batches import KRaftVersion, VotersRecord
from quorate.raft.types import BOOTSTRAP_SNAPSHOT, OffsetAndEpoch, RequiredEnd, VoterSet
from quorate.records.batch import BatchHeader, decode_control_batch
from quorate.records.errors import RecordsError

LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RecoveredLog:
    """What the protocol needs to know of a log that was opened, or replaced by a checkpoint."""

    start: OffsetAndEpoch
    """The first offset that can be read, and the epoch of the record before it: 0@0 or the id of a
    checkpoint.
    """
    end_offset: int
    epochs: tuple[OffsetAndEpoch, ...] = ()
    """Each epoch with the offset at which it starts."""
    voters: tuple[tuple[int, VoterSet], ...] = ()
    """The voter sets, each with the offset of its control record. The offset of a checkpoint's is
    the checkpoint's less one.
    """
    kraft_versions: tuple[tuple[int, int], ...] = ()
    """The values of kraft.version, each with such an offset."""
    latest_snapshot: OffsetAndEpoch | None = None
    """The newest checkpoint; 0@0 is the bootstrap checkpoint."""
    last_timestamp: int = 0
    """The timestamp of the last record, in milliseconds since 1970; 0 if there is none."""
    truncated_bytes: int = 0
    """The length of the tail that was dropped."""
    dropped_end: OffsetAndEpoch | None = None
    """The end of the last sound batch in that tail; None if there was none."""
    required_end: RequiredEnd | None = None
    """What the log must reach again, from this start or an earlier one."""

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, even if it is in a checkpoint only; 0 without records."""
        return self.epochs[-1].epoch if self.epochs else self.start.epoch

    @property
    def start_offset(self) -> int:
        return self.start.offset


def recovered_snapshot(snapshot: OffsetAndEpoch, info: SnapshotInfo) -> RecoveredLog:
    """A log that consists of a checkpoint alone."""
    at = snapshot.offset - 1
    return RecoveredLog(
        start=snapshot,
        end_offset=snapshot.offset,
        voters=() if info.voters is None else ((at, info.voters),),
        kraft_versions=() if info.kraft_version is None else ((at, info.kraft_version),),
        latest_snapshot=snapshot,
        last_timestamp=info.last_timestamp,
    )


@dataclass(slots=True)
class _Scan:
    """The result of the scan of the segments so far."""

    control_from: int
    end_offset: int | None = None
    stream: int = 0
    epochs: list[OffsetAndEpoch] = field(default_factory=list)
    voters: list[tuple[int, VoterSet]] = field(default_factory=list)
    kraft_versions: list[tuple[int, int]] = field(default_factory=list)
    last_timestamp: int = 0
    tail: Tail = field(default_factory=Tail)

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
            if isinstance(record, VotersRecord):
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
    """Fill `segments` from the disk and repair what may be repaired; the steps are above.

    The caller closes the segments, also after an error.
    """
    latest, info = _newest_checkpoint(store)
    control_from = 0 if latest is None else latest.offset
    found = _Scan(control_from)
    opened = _open_segments(segments)
    stored_point = read_recovery_point(directory)
    recovery_point = 0 if stored_point is None or _had_kafka(opened) else stored_point
    required_end = RequiredEndFile(segments.directory, disk).read()
    for index, segment in enumerate(opened):
        _scan_segment(found, segment, opened[index + 1 :], recovery_point)
    end_offset = found.end_offset or 0
    is_replaced = latest is not None and _is_replaced(found, latest)
    known_end = latest.offset if latest is not None and is_replaced else end_offset
    # A log has a segment before it has a recovery point, or a checkpoint that replaces it.
    is_gone = stored_point is not None and not opened and not is_replaced
    if known_end < recovery_point or is_gone:
        raise MissingRecordsError(segments.directory, known_end, recovery_point)
    start = latest if is_replaced else _start(opened, store, segments.directory)
    assert start is not None
    # A process that was killed may have left names that are not durable yet. A segment that it
    # deleted must not come back beside one that begins anew.
    disk.sync_directory(segments.directory)
    disk.sync_directory(directory)
    required_end = _require_end(segments.directory, required_end, found.tail, disk)
    # A void recovery point is corrected while the index that makes it void is still there.
    if stored_point is not None and stored_point > recovery_point:
        write_recovery_point(disk, directory, recovery_point)
    _clean_up(segments, latest)
    if is_replaced or not opened:
        segments.reset(start.offset, 0)
        write_epochs(disk, segments.directory, ())
        log = RecoveredLog(start, start.offset)
        if latest is not None and info is not None:
            log = recovered_snapshot(latest, info)
    else:
        _make_durable(segments, recovery_point)
        epochs = clip_epochs(found.epochs, start.offset)
        write_epochs(disk, segments.directory, epochs)
        base = None if latest is None or info is None else recovered_snapshot(latest, info)
        log = RecoveredLog(
            start=start,
            end_offset=end_offset,
            epochs=tuple(epochs),
            voters=(base.voters if base else ()) + tuple(found.voters),
            kraft_versions=(base.kraft_versions if base else ()) + tuple(found.kraft_versions),
            latest_snapshot=latest,
            last_timestamp=found.last_timestamp or (base.last_timestamp if base else 0),
        )
    # What was deleted here must not come back: an index makes the recovery point void.
    disk.sync_directory(segments.directory)
    return replace(
        log,
        truncated_bytes=found.tail.size,
        dropped_end=found.tail.dropped_end,
        required_end=required_end,
    )


def _require_end(
    partition: Path, required_end: RequiredEnd | None, tail: Tail, disk: Disk
) -> RequiredEnd | None:
    """Store what the log must reach again, durably, before anything of the tail is dropped."""
    if tail.dropped_end is None:
        return required_end
    dropped = RequiredEnd(tail.dropped_end, tail.may_stand)
    stricter = later_required_end(required_end, dropped)
    if stricter != required_end:
        RequiredEndFile(partition, disk).write(stricter)
    return stricter


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


def _had_kafka(opened: Sequence[Segment]) -> bool:
    """Whether Kafka had the directory after us: then the recovery point is void."""
    return bool(opened) and opened[-1].path.with_suffix(".index").exists()


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
            assert found.end_offset is not None
            if lacks_first_bytes(position, header, found.end_offset):
                fault = "the first bytes are missing"
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
    """A fault at segment.size: a tail to drop (noted), or damage (raised)."""
    assert found.end_offset is not None
    start, end = segment.size, segment.allocated
    expected = found.end_offset
    if later:
        reason = f"{fault}; a later segment, {later[0].path.name}, follows"
        raise DamagedLogError(segment.path, start, end, expected, reason)
    if expected < recovery_point:
        reason = f"{fault}; everything before offset {recovery_point} was synced"
        raise DamagedLogError(segment.path, start, end, expected, reason)
    place = OffsetAndEpoch(expected, found.last_epoch)
    found.tail = judge_tail(segment.path, segment.descriptor, start, end, place, fault)


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


def _make_durable(segments: SegmentList, recovery_point: int) -> None:
    """Drop the tail and unused room, and let the disk hold all that is left.

    What lies behind the recovery point may be in memory only: the process may have been killed
    before its sync, and after a failed sync the kernel takes the pages for written. So it is
    written again. Kafka's indexes must not outlive our appends.
    """
    active = segments.active
    segments.drop_indexes(active)
    segments.rewrite(recovery_point)
    segments.trim(active)


def log_recovery(log: RecoveredLog) -> None:
    """Report what was found and what was dropped. The protocol reports a required end."""
    LOGGER.info(
        "recovered offsets %d to %d, latest snapshot %s",
        log.start_offset,
        log.end_offset,
        log.latest_snapshot,
    )
    if log.dropped_end is not None:
        LOGGER.warning(
            "dropped %d bytes behind offset %d, among them whole batches up to epoch %d, offset "
            "%d: a part of them is missing, after a power failure or a fault of the disk. They may "
            "have been acknowledged",
            log.truncated_bytes,
            log.end_offset,
            log.dropped_end.epoch,
            log.dropped_end.offset,
        )
    elif log.truncated_bytes:
        LOGGER.warning(
            "dropped %d bytes of an unfinished write behind offset %d",
            log.truncated_bytes,
            log.end_offset,
        )
