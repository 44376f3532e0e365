"""Restores a backup into the directory of the only voter of a new quorum.

Steps of `restore_backup`:

1. Find the offset at which the restored log ends, and verify all that is needed up to it
   (`verify.verified_point`). Nothing exists yet.
2. Mark the directory as incomplete (`restore.incomplete`). A directory with this file and without
   meta.properties is begun anew by the next restore, and no controller starts on it.
3. Install the archived checkpoint, if there is one, and append the archived batches before that
   offset, byte for byte, with the log's own writer. The last batch may be cut (`batches`).
4. Open the log again, as a controller does at its start, and compare its end with the backup.
5. Write quorum-state, then append one batch: LeaderChange in an epoch above every archived one, and
   the VotersRecords that lead from the archived voter set to the new replica alone.
6. Write meta.properties with the cluster id and a new directory id, and remove the mark.

The new cluster id keeps the old quorum apart: its nodes, clients and brokers reject calls of the
other one. With the old cluster id, nothing but the epoch does, which no old voter can have reached
(`recovery.choice`), and only for voters that reach the new quorum.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from quorate.backup.archive import verified_chunks
from quorate.backup.batches import RestorePoint, batches_before
from quorate.backup.errors import BackupError
from quorate.backup.manifest import BackupManifest
from quorate.backup.stores import ObjectStore
from quorate.common.endpoints import Endpoint
from quorate.log.config import LogConfig
from quorate.log.disk import Disk, make_directories
from quorate.log.errors import LogFailedError
from quorate.log.lock import LOCK_FILE, DirectoryLock
from quorate.log.meta_properties import META_PROPERTIES_FILE, MetaProperties, random_uuid
from quorate.log.metadata_log import MetadataLog, partition_directory
from quorate.log.quorum_state import QuorumStateFile
from quorate.log.recovery import RecoveredLog
from quorate.raft.batches import ControlRecord, KRaftVersion, LeaderChange, VotersRecord
from quorate.raft.types import ElectionState, ReplicaKey, Voter, VoterSet
from quorate.records.batch import build_control_batch, stamp
from quorate.recovery.choice import forced_epoch, single_changes

INCOMPLETE_FILE = "restore.incomplete"
IGNORED = frozenset({LOCK_FILE, "lost+found"})
"""What an empty directory may contain."""
QUEUED_BYTES_MAX = 64 << 20
WAIT_S = 0.005
KRAFT_VERSION_DYNAMIC = 1

Advance = Callable[[int, int], None]
"""Called with the number of offsets that are restored, and with their number."""


@dataclass(frozen=True, slots=True)
class RestoreTarget:
    """The new replica."""

    directory: Path
    """The setting `metadata.log.dir`."""
    node_id: int
    endpoints: tuple[Endpoint, ...]
    cluster_id: str


@dataclass(frozen=True, slots=True)
class RestoredQuorum:
    """The result of a restore."""

    target: RestoreTarget
    directory_id: str
    start: int
    end: int
    """The end offset of the restored records."""
    log_end: int
    """The end offset of the log, with the new voter set."""
    epoch: int
    old_voters: VoterSet


def check_directory(directory: Path) -> None:
    """Raise BackupError unless a restore may use the directory."""
    if not directory.exists():
        return
    if not directory.is_dir():
        raise BackupError(f"{directory} is not a directory")
    if (directory / META_PROPERTIES_FILE).exists():
        known = MetaProperties.read(directory)
        raise BackupError(
            f"{directory} belongs to node {known.node_id} of cluster {known.cluster_id}: restore "
            "into an empty directory"
        )
    if (directory / INCOMPLETE_FILE).exists():
        return
    found = sorted(path.name for path in directory.iterdir() if path.name not in IGNORED)
    if found:
        raise BackupError(
            f"{directory} is not empty (it contains {found[0]}): restore into an empty directory"
        )


def restore_backup(
    store: ObjectStore,
    manifest: BackupManifest,
    point: RestorePoint,
    target: RestoreTarget,
    advance: Advance = lambda *_: None,
) -> RestoredQuorum:
    """Run steps 2 to 6 with a manifest that was verified. BackupError, LogError and OSError."""
    epoch = forced_epoch([manifest.last_epoch])
    check_directory(target.directory)
    make_directories(target.directory)
    with DirectoryLock(target.directory):
        check_directory(target.directory)
        _begin(target.directory)
        _write_log(store, point, target.directory, advance)
        key = ReplicaKey(target.node_id, random_uuid())
        voter = Voter(key, target.endpoints)
        old, log_end = _take_over(target.directory, point, voter, epoch)
        MetaProperties(target.cluster_id, key.id, key.directory_id).write(target.directory)
        Disk().unlink(target.directory / INCOMPLETE_FILE)
        Disk().sync_directory(target.directory)
    assert key.directory_id is not None, "the directory has a new id"
    return RestoredQuorum(target, key.directory_id, point.run.start, point.end, log_end, epoch, old)


def _begin(directory: Path) -> None:
    """Mark the directory, and delete what an interrupted restore left."""
    if (directory / INCOMPLETE_FILE).exists():
        for path in directory.iterdir():
            if path.name in IGNORED or path.name == INCOMPLETE_FILE:
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                Disk().unlink(path)
        Disk().sync_directory(directory)
        return
    text = "quorate restore has not finished: run it again, or delete this directory\n"
    Disk().replace_file(directory / INCOMPLETE_FILE, text.encode())


class _OpenLog:
    """The directory's log, open, with the failure of its writer."""

    def __init__(self, directory: Path) -> None:
        self._failures: list[BaseException] = []
        self.log = MetadataLog.open(
            directory,
            LogConfig(preallocate_bytes=0),
            on_durable=lambda _: None,
            on_failure=self._failures.append,
        )

    def append(self, batches: Iterable[memoryview | bytearray]) -> None:
        """Append batches once there is room in the writer's queue. LogFailedError."""
        while self.log.queued_bytes > QUEUED_BYTES_MAX and not self._failures:
            time.sleep(WAIT_S)
        self._check()
        self.log.append(1, list(batches))

    def close(self) -> None:
        """Make everything durable. LogFailedError."""
        self.log.close()
        self._check()

    def _check(self) -> None:
        if self._failures:
            raise LogFailedError(f"the log cannot be restored: {self._failures[0]}")


def _write_log(store: ObjectStore, point: RestorePoint, directory: Path, advance: Advance) -> None:
    """Step 3."""
    with closing(_OpenLog(directory)) as opened:
        snapshot = point.run.snapshot
        if snapshot is not None:
            install = opened.log.begin_install(snapshot.id)
            for chunk in verified_chunks(store, snapshot):
                install.write(install.position, chunk)
            install.finish()
        for group in batches_before(store, point):
            opened.append(group)
            advance(opened.log.end_offset, point.end)


def _take_over(
    directory: Path, point: RestorePoint, voter: Voter, epoch: int
) -> tuple[VoterSet, int]:
    """Steps 4 and 5. Returns the archived voter set, empty if there is none, and the log's end."""
    with closing(_OpenLog(directory)) as opened:
        found = opened.log.recovered
        if found.end_offset != point.end:
            raise BackupError(
                f"the restored log ends at offset {found.end_offset} instead of {point.end}"
            )
        state = ElectionState(epoch, voter.id, voter.key)
        QuorumStateFile(partition_directory(directory)).write(state, KRAFT_VERSION_DYNAMIC)
        old, records = _takeover_records(found, voter)
        batch = build_control_batch(records, time.time_ns() // 1_000_000)
        stamp(batch, point.end, epoch)
        opened.append([batch])
        return old, opened.log.end_offset


def _takeover_records(found: RecoveredLog, voter: Voter) -> tuple[VoterSet, list[ControlRecord]]:
    level = found.kraft_versions[-1][1] if found.kraft_versions else 0
    old = found.voters[-1][1] if found.voters and level >= KRAFT_VERSION_DYNAMIC else VoterSet()
    records: list[ControlRecord] = [LeaderChange(voter.id, (voter.key,), (voter.key,))]
    if level < KRAFT_VERSION_DYNAMIC:
        records.append(KRaftVersion(KRAFT_VERSION_DYNAMIC))
    return old, [*records, *map(VotersRecord, voter_changes(old, voter))]


def voter_changes(old: VoterSet, voter: Voter) -> list[VoterSet]:
    """The voter sets that lead from `old` to the voter alone, in changes of one voter each.

    If the only old voter has the same id, a third one joins in between and is removed again: it
    never exists, and all records are in one batch.
    """
    if not len(old):
        return [VoterSet.of([voter])]
    known = old.get(voter.id)
    if len(old) > 1 or known is None:
        return single_changes(old, voter)
    passing_id = next(number for number in count(1) if number != voter.id)
    passing = Voter(ReplicaKey(passing_id, random_uuid()), voter.endpoints)
    both = old.adding(passing)
    alone = both.removing(known.key)
    return [both, alone, *single_changes(alone, voter)]
