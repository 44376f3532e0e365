"""Reads the metadata log of a stopped replica, of Quorate or of Kafka, as its files hold it.

Unlike recovery, it changes nothing and does not end at a fault. What follows the last whole batch
of the last segment is no fault: it is preallocated, or a write that the end of the process cut off.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from quorate.log.errors import DamagedSnapshotError
from quorate.log.meta_properties import MetaProperties
from quorate.log.metadata_log import PARTITION_DIRECTORY
from quorate.log.quorum_state import QuorumStateFile
from quorate.log.segments import LOG_SUFFIX, files_by_offset
from quorate.log.snapshots import (
    CHECKPOINT_SUFFIX,
    SnapshotInfo,
    inspect_snapshot,
    parse_snapshot_name,
)
from quorate.raft.batches import Batch, ControlRecord
from quorate.raft.types import BOOTSTRAP_SNAPSHOT, ElectionState, OffsetAndEpoch, ReplicaKey
from quorate.records.batch import (
    BatchHeader,
    decode_control_batch,
    iter_batches,
    read_header,
    verify_crc,
)
from quorate.records.errors import RecordsError


@dataclass(slots=True)
class ReplicaLog:
    """The log of a replica.

    batches: of all segments, in their order. snapshots: by their ids, the bootstrap checkpoint
    included. election: what quorum-state holds. faults: bytes that are no batch of this log.
    """

    key: ReplicaKey
    batches: list[Batch] = field(default_factory=list)
    snapshots: dict[OffsetAndEpoch, SnapshotInfo] = field(default_factory=dict)
    election: ElectionState | None = None
    faults: list[str] = field(default_factory=list)

    @property
    def start(self) -> OffsetAndEpoch | None:
        """Where the log begins: 0@0, or the oldest snapshot that its batches reach; None if there
        is no such snapshot. What the segments hold before that is not part of the log.
        """
        latest = self.latest
        end = self.batches[-1].end_offset if self.batches else 0
        if latest is not None and end < latest.offset:
            return latest  # the process ended before it dropped what a received snapshot replaces
        base = self.batches[0].base_offset if self.batches else 0
        if base == 0:
            return BOOTSTRAP_SNAPSHOT
        return next((each for each in sorted(self.snapshots) if each.offset >= base), None)

    @property
    def latest(self) -> OffsetAndEpoch | None:
        """The newest snapshot, without the bootstrap checkpoint."""
        return max((each for each in self.snapshots if each.offset > 0), default=None)

    @property
    def last(self) -> OffsetAndEpoch:
        """The log end and the epoch before it."""
        found = self.latest or BOOTSTRAP_SNAPSHOT
        if not self.batches:
            return found
        end = OffsetAndEpoch(self.batches[-1].end_offset, self.batches[-1].epoch)
        return max(end, found, key=lambda each: (each.epoch, each.offset))


def timestamp_ms(batch: Batch) -> int:
    """When the leader made the batch, in milliseconds since 1970."""
    assert isinstance(batch.data, bytes)
    return read_header(batch.data).max_timestamp


def read_log(directory: Path) -> ReplicaLog:
    """The log in a node's directory. MetaPropertiesError if it is not formatted."""
    properties = MetaProperties.read(directory)
    partition = directory / PARTITION_DIRECTORY
    log = ReplicaLog(ReplicaKey(properties.node_id, properties.directory_id))
    log.election = QuorumStateFile(partition).read()
    for path in files_by_offset(partition, LOG_SUFFIX):
        if log.batches and log.batches[-1].end_offset != int(path.stem):
            log.faults.append(f"{path.name} follows {log.batches[-1].last_offset}")
        log.batches += _batches(path, log.faults)
    for path in sorted(partition.glob("*" + CHECKPOINT_SUFFIX)):
        name = parse_snapshot_name(path.stem)
        if name is None:
            continue
        try:
            log.snapshots[name] = inspect_snapshot(path)
        except DamagedSnapshotError as error:
            log.faults.append(str(error))
    return log


def _batches(path: Path, faults: list[str]) -> Iterator[Batch]:
    """The whole batches of a segment, up to bytes that are none."""
    data = path.read_bytes()
    try:
        for header, view in iter_batches(data):
            if not verify_crc(view, 0, header):
                faults.append(f"{path.name}: the checksum of offset {header.base_offset} is wrong")
            yield _batch(header, view, faults)
    except RecordsError:
        return


def _batch(header: BatchHeader, view: memoryview, faults: list[str]) -> Batch:
    control: tuple[ControlRecord, ...] = ()
    if header.is_control:
        try:
            control = decode_control_batch(view, header)
        except RecordsError as error:
            faults.append(f"the control batch at offset {header.base_offset} is broken: {error}")
    return Batch(header.base_offset, header.last_offset, header.epoch, control, bytes(view))
