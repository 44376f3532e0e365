"""Reads the metadata image from files, read-only, even while a controller writes them.

A directory is read as a controller reads it at its start: the newest checkpoint, then the segments
after it. The high watermark is not stored anywhere, so the entire log counts; if the logs of the
last leader and of another replica end differently, read the leader's. Bytes after the last complete
batch are ignored. Nothing is locked and nothing is changed.

Source: KIP-630; Kafka's metadata shell.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from quorate.log.errors import LogError
from quorate.log.metadata_log import partition_directory
from quorate.log.scan import end_of_data, scan
from quorate.log.segments import LOG_SUFFIX, parse_offset_name
from quorate.log.snapshots import CHECKPOINT_SUFFIX, parse_snapshot_name, scan_snapshot
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.raft.types import OffsetAndEpoch
from quorate.records.batch import BatchHeader
from quorate.records.errors import CorruptBatchError, RecordsError, TruncatedBatchError
from quorate.runtime.gc_tuning import collection_paused
from quorate.runtime.metadata_batches import apply_batch, holds_metadata, load_batch, place

READS_MAX = 5
READ_AGAIN_S = 0.02
"""How often, and at which interval in seconds, to read a log's end before it counts as damaged."""

Progress = Callable[[int, int], None]
"""Called occasionally with the number of bytes read and the total."""


def _silent(_done: int, _all: int) -> None:
    return


def read_snapshot(path: Path, progress: Progress = _silent) -> MetadataImage:
    """The image in one checkpoint. Raises LogError, ReplayError, OSError."""
    image = MetadataImage()
    snapshot = parse_snapshot_name(path.name.removesuffix(CHECKPOINT_SUFFIX))
    _replay_snapshot(path, image, progress)
    if snapshot is not None:
        place(image, snapshot)
    return image


def read_directory(directory: Path, progress: Progress = _silent) -> MetadataImage:
    """The image in a metadata log directory (`metadata.log.dir`, or the partition's directory).

    Raises LogError, ReplayError, OSError.
    """
    partition = partition_directory(directory)
    if not partition.is_dir():
        partition = directory
    checkpoints = sorted(_named_checkpoints(partition))
    segments = sorted(_named_segments(partition))
    if not checkpoints and not segments:
        raise LogError(f"{directory} holds no metadata log: no segments, no checkpoints")
    image = MetadataImage()
    offset = 0
    if checkpoints:
        snapshot, path = checkpoints[-1]
        _replay_snapshot(path, image, progress)
        place(image, snapshot)
        offset = snapshot.offset
    if segments and segments[0][0] > offset:
        raise LogError(
            f"{partition} is incomplete: the log begins at offset {segments[0][0]} and the newest "
            f"checkpoint ends at {offset}"
        )
    for index, (_, path) in enumerate(segments):
        behind = index + 1 < len(segments) and segments[index + 1][0] <= offset
        if not behind:
            offset = _replay_segment(
                path, image, offset, progress, is_last=index + 1 == len(segments)
            )
    return image


def _named_checkpoints(partition: Path) -> Iterator[tuple[OffsetAndEpoch, Path]]:
    for path in partition.glob("*" + CHECKPOINT_SUFFIX):
        snapshot = parse_snapshot_name(path.name.removesuffix(CHECKPOINT_SUFFIX))
        if snapshot is not None:
            yield snapshot, path


def _named_segments(partition: Path) -> Iterator[tuple[int, Path]]:
    for path in partition.glob("*" + LOG_SUFFIX):
        offset = parse_offset_name(path.name.removesuffix(LOG_SUFFIX))
        if offset is not None:
            yield offset, path


def _replay_snapshot(path: Path, image: MetadataImage, progress: Progress) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        done = 0
        with collection_paused():
            for header, batch, _ in scan_snapshot(path, descriptor, size):
                load_batch(image, header, batch)
                done += len(batch)
                progress(done, size)
    finally:
        os.close(descriptor)


def _replay_segment(
    path: Path, image: MetadataImage, offset: int, progress: Progress, *, is_last: bool
) -> int:
    """Apply the batches from `offset` on; returns the offset after the segment's last batch."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    end = 0
    try:
        size = os.fstat(descriptor).st_size
        for attempt in range(READS_MAX):
            try:
                for position, header, batch, sound in scan(descriptor, size, end):
                    if not sound:
                        raise CorruptBatchError(position, "the checksum is wrong")
                    if header.end_offset > offset:
                        _apply(image, header, batch)
                        offset = header.end_offset
                    end = position + header.size_bytes
                    progress(end, size)
                break
            except RecordsError as error:
                # Allocated space that has not been written yet reads as zeros.
                if end_of_data(descriptor, end, size) == end:
                    break
                if is_last and isinstance(error, TruncatedBatchError):
                    break
                if not is_last or attempt + 1 == READS_MAX:
                    raise LogError(f"{path} is damaged: {error}") from error
                # A controller may be writing this batch.
                time.sleep(READ_AGAIN_S)
    finally:
        os.close(descriptor)
    return offset


def _apply(image: MetadataImage, header: BatchHeader, batch: memoryview) -> None:
    if holds_metadata(batch, header):
        apply_batch(image, header, batch)
