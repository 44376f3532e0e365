"""Examines a directory as a controller would at startup, and changes nothing.

The log's own recovery runs over read-only segments, so that one place decides what is a torn tail
and what is damage. For a damaged log, the examination describes the readable part before the
damage.

`as_json` and `from_json` convert an examination to JSON and back, because the directories of a
quorum are on different machines.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from quorate.common.endpoints import Endpoint
from quorate.common.features import VersionRange
from quorate.log.disk import Disk
from quorate.log.errors import LogError, QuorumStateError
from quorate.log.meta_properties import MetaProperties
from quorate.log.metadata_log import partition_directory
from quorate.log.quorum_state import QuorumStateFile
from quorate.log.recovery import RecoveredLog, recover
from quorate.log.scan import scan
from quorate.log.segments import LOG_SUFFIX, Segment, SegmentList, files_by_offset
from quorate.log.snapshots import SnapshotStore
from quorate.raft.batches import KRaftVersion, VotersRecord
from quorate.raft.history import MembershipHistory
from quorate.raft.types import OffsetAndEpoch, ReplicaKey, Voter, VoterSet
from quorate.records.batch import decode_control_batch
from quorate.records.errors import RecordsError
from quorate.records.primitives import Buffer
from quorate.recovery.errors import RecoveryError

JSON_VERSION = 1
IN_USE_TRIES = 5


@dataclass(frozen=True, slots=True)
class Examination:
    """The state of one directory. Epochs and offsets are 0 where nothing was ever written."""

    directory: str
    cluster_id: str
    key: ReplicaKey
    start: int = 0
    """The first readable offset."""
    end: OffsetAndEpoch = OffsetAndEpoch(0, 0)  # noqa: RUF009 - it is frozen
    """The log end offset, and the epoch of the last record. For a damaged log, it is the end of the
    readable part.
    """
    known_committed: int = 0
    """Everything before this offset is known to be committed, because a checkpoint covers it; more
    records may be committed.
    """
    voters: VoterSet = field(default_factory=VoterSet)
    """The voter set in force, from the last VotersRecord."""
    voters_offset: int = -1
    """The offset of the VotersRecord with `voters`."""
    known_committed_voters: VoterSet = field(default_factory=VoterSet)
    """The voter set in force at `known_committed`."""
    kraft_version: int = 0
    epoch: int = 0
    """The epoch in quorum-state."""
    leader_id: int | None = None
    """The leader in quorum-state."""
    voted: ReplicaKey | None = None
    """The vote in quorum-state."""
    torn_bytes: int = 0
    """The size of an unfinished write after the end, which was never acknowledged."""
    damage: str = ""
    """Why a controller refuses to start on this directory, empty if it does not."""
    is_in_use: bool = False
    """Whether a process held the directory, so that its log may have grown since."""

    @property
    def is_sound(self) -> bool:
        return not self.damage

    @property
    def position(self) -> tuple[int, int]:
        """The key for comparing logs: the last epoch, then the log end offset."""
        return self.end.epoch, self.end.offset

    @property
    def highest_epoch(self) -> int:
        return max(self.epoch, self.end.epoch)

    @property
    def is_voter(self) -> bool:
        return self.key in self.voters


def examine(directory: Path) -> Examination:
    """Examine `directory` (`metadata.log.dir`). MetaPropertiesError if it is not a replica's.

    The caller holds its lock, or knows that no process writes to its log.
    """
    meta = MetaProperties.read(directory)
    found = Examination(
        str(directory), meta.cluster_id, ReplicaKey(meta.node_id, meta.directory_id)
    )
    partition = partition_directory(directory)
    try:
        found = _with_log(found, _recover(directory, partition))
    except LogError as error:
        found = replace(_readable_part(found, partition), damage=str(error))
    try:
        election = QuorumStateFile(partition).read()
    except QuorumStateError as error:
        return replace(found, damage=found.damage or str(error))
    if election is None:
        return found
    return replace(found, epoch=election.epoch, leader_id=election.leader_id, voted=election.voted)


def examine_in_use(directory: Path) -> Examination:
    """Examine the directory of a running controller, which keeps its lock.

    The controller may write, roll and delete segments meanwhile, so whatever looks like damage is
    examined again. MetaPropertiesError as for `examine`; RecoveryError if its files keep changing.
    """
    for _ in range(IN_USE_TRIES):
        with suppress(FileNotFoundError):
            found = replace(examine(directory), is_in_use=True)
            if found.is_sound:
                return found
    try:
        return replace(examine(directory), is_in_use=True)
    except FileNotFoundError as error:
        raise RecoveryError(
            f"{directory} changes while it is read ({error}): try again, or stop its controller"
        ) from error


# --- the whole log --------------------------------------------------------------------------------


class _ReadOnlyDisk(Disk):
    """Ignores all writes."""

    def write_all(
        self,
        descriptor: int,  # noqa: ARG002
        buffers: Sequence[Buffer],
        position: int,
    ) -> int:
        return position + sum(map(len, buffers))

    def _ignore(self, *_: Any, **__: Any) -> None:
        """Write nothing."""

    sync_data = sync = allocate = truncate = _ignore
    rename = unlink = sync_directory = replace_file = _ignore


class _ReadOnlySegments(SegmentList):
    """Keeps the files that recovery would delete, and creates none."""

    def reset(self, offset: int, stream_start: int) -> None:
        pass

    def trim(self, segment: Segment) -> None:
        pass


def _recover(directory: Path, partition: Path) -> RecoveredLog:
    disk = _ReadOnlyDisk()
    segments = _ReadOnlySegments(partition, disk)
    try:
        return recover(directory, segments, SnapshotStore(partition, disk), disk)
    finally:
        segments.close()


def _with_log(found: Examination, log: RecoveredLog) -> Examination:
    history = MembershipHistory(VoterSet(), log.voters, log.kraft_versions)
    last_epoch = log.epochs[-1].epoch if log.epochs else log.start.epoch
    snapshot = log.latest_snapshot
    committed = max(log.start.offset, 0 if snapshot is None else snapshot.offset)
    return replace(
        found,
        start=log.start.offset,
        end=OffsetAndEpoch(log.end_offset, last_epoch),
        known_committed=committed,
        voters=history.voters,
        voters_offset=max(history.voters_offset, -1),
        known_committed_voters=history.voters_at(committed),
        kraft_version=history.kraft_version,
        torn_bytes=log.truncated_bytes,
    )


# --- a damaged log --------------------------------------------------------------------------------


def _readable_part(found: Examination, partition: Path) -> Examination:
    """Examine the segments up to the damage; a checkpoint's state is not included."""
    paths = list(files_by_offset(partition, LOG_SUFFIX))
    start = int(paths[0].stem) if paths else 0
    end = OffsetAndEpoch(start, 0)
    for path in paths:
        if int(path.stem) != end.offset:
            break
        found, end = _readable_segment(found, end, path)
    return replace(found, start=start, end=end)


def _readable_segment(
    found: Examination, end: OffsetAndEpoch, path: Path
) -> tuple[Examination, OffsetAndEpoch]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(RecordsError):
            for _, header, batch, sound in scan(descriptor, os.fstat(descriptor).st_size):
                follows = header.base_offset == end.offset and header.epoch >= end.epoch
                if not (sound and follows):
                    break
                end = OffsetAndEpoch(header.end_offset, header.epoch)
                if header.is_control:
                    for delta, record in enumerate(decode_control_batch(batch, header)):
                        if isinstance(record, VotersRecord):
                            offset = header.base_offset + delta
                            found = replace(found, voters=record.voters, voters_offset=offset)
                        elif isinstance(record, KRaftVersion):
                            found = replace(found, kraft_version=record.level)
    finally:
        os.close(descriptor)
    return found, end


# --- JSON -----------------------------------------------------------------------------------------


def voters_json(voters: VoterSet) -> list[dict[str, Any]]:
    return [
        {
            "id": voter.id,
            "directoryId": voter.key.directory_id,
            "endpoints": [
                {"name": each.name, "host": each.host, "port": each.port}
                for each in voter.endpoints
            ],
            "kraftVersion": [voter.kraft_version.min, voter.kraft_version.max],
        }
        for voter in voters
    ]


def _voters_of(entries: Any) -> VoterSet:
    return VoterSet.of(
        Voter(
            ReplicaKey(int(entry["id"]), entry["directoryId"]),
            tuple(Endpoint(e["name"], e["host"], int(e["port"])) for e in entry["endpoints"]),
            VersionRange(*entry["kraftVersion"]),
        )
        for entry in entries
    )


def as_json(found: Examination) -> dict[str, Any]:
    """Convert an examination to the JSON value that `from_json` reads."""
    voted = found.voted
    return {
        "version": JSON_VERSION,
        "directory": found.directory,
        "clusterId": found.cluster_id,
        "nodeId": found.key.id,
        "directoryId": found.key.directory_id,
        "logStartOffset": found.start,
        "logEndOffset": found.end.offset,
        "lastEpoch": found.end.epoch,
        "knownCommittedOffset": found.known_committed,
        "kraftVersion": found.kraft_version,
        "voters": voters_json(found.voters),
        "votersOffset": found.voters_offset,
        "knownCommittedVoters": voters_json(found.known_committed_voters),
        "quorumState": {
            "epoch": found.epoch,
            "leaderId": found.leader_id,
            "voted": None if voted is None else {"id": voted.id, "directoryId": voted.directory_id},
        },
        "tornBytes": found.torn_bytes,
        "damage": found.damage,
        "isInUse": found.is_in_use,
    }


def from_json(value: Any) -> Examination:
    """Read an examination that `as_json` wrote. ValueError for any other value."""
    try:
        if value["version"] != JSON_VERSION:
            raise ValueError(f"its version is {value['version']!r}, not {JSON_VERSION}")
        state = value["quorumState"]
        voted = state["voted"]
        return Examination(
            str(value["directory"]),
            str(value["clusterId"]),
            ReplicaKey(int(value["nodeId"]), value["directoryId"]),
            int(value["logStartOffset"]),
            OffsetAndEpoch(int(value["logEndOffset"]), int(value["lastEpoch"])),
            int(value["knownCommittedOffset"]),
            _voters_of(value["voters"]),
            int(value["votersOffset"]),
            _voters_of(value["knownCommittedVoters"]),
            int(value["kraftVersion"]),
            int(state["epoch"]),
            state["leaderId"],
            None if voted is None else ReplicaKey(int(voted["id"]), voted["directoryId"]),
            int(value["tornBytes"]),
            str(value["damage"]),
            bool(value.get("isInUse", False)),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"it is not an examination of a directory ({error!r})") from error
