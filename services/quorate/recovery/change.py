"""The common steps of all remedies: a backup first, forced control records, a report last.

Rules:

1. Nothing is overwritten before its copy is durable in `recover-backup-<time>`, a folder in the
   metadata log directory itself, and so on the same volume. Segments and checkpoints that a remedy
   does not change are not copied. `.lock` is never opened here: closing it would release the lock
   of the copying process (see `log.lock`).
2. `quorum-state` is written before the log. A crash in between leaves a replica with a higher epoch
   and its old log, which is harmless; the operator repeats the remedy.
3. Forced records are one batch: LeaderChange, then the VotersRecords. After a crash the log
   contains either the whole batch or none of it.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

from quorate.log.config import LogConfig
from quorate.log.disk import DIRECTORY_MODE, Disk
from quorate.log.lock import LOCK_FILE
from quorate.log.metadata_log import MetadataLog, partition_directory
from quorate.log.quorum_state import REMOVED_MARKER, QuorumStateFile
from quorate.log.segments import LOG_SUFFIX, files_by_offset
from quorate.log.snapshots import CHECKPOINT_SUFFIX
from quorate.raft.batches import ControlRecord, LeaderChange, VotersRecord
from quorate.raft.types import ElectionState, ReplicaKey, VoterSet
from quorate.records.batch import build_control_batch, stamp
from quorate.recovery.errors import RecoveryError
from quorate.recovery.examine import Examination

BACKUP_PREFIX = "recover-backup-"
REPORT_PREFIX = "recover-report-"

NAMES_MAX = 100
"""The most backups with a name of the same second."""


def timestamp() -> str:
    """The current UTC time to the second, for file names."""
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")


def _suffixes() -> Iterator[str]:
    """Yield what tells names of the same second apart: nothing, -2, -3 and so on."""
    return chain([""], (f"-{number}" for number in count(2)))


def create_backup_folder(directory: Path) -> Path:
    """Create a backup folder with a durable name. RecoveryError if no name is free."""
    name = BACKUP_PREFIX + timestamp()
    for suffix in islice(_suffixes(), NAMES_MAX):
        folder = directory / f"{name}{suffix}"
        try:
            folder.mkdir(DIRECTORY_MODE)
        except FileExistsError:
            continue
        Disk().sync_directory(directory)
        return folder
    raise RecoveryError(f"{directory} already has {NAMES_MAX} backups from this second: try again")


def back_up(directory: Path) -> Path:
    """Copy the files that a log append and a new quorum-state change; return the durable folder.

    RecoveryError if less than twice the needed space is free.
    """
    partition = partition_directory(directory)
    chosen = [path for path in directory.iterdir() if _is_small_file(path)]
    closed_segments = list(files_by_offset(partition, LOG_SUFFIX))[:-1]
    chosen += [
        path
        for path in partition.iterdir()
        if path.is_file()
        and path not in closed_segments
        and not path.name.endswith(CHECKPOINT_SUFFIX)
    ]
    needed = sum(path.stat().st_size for path in chosen)
    free = shutil.disk_usage(directory).free
    if needed * 2 > free:
        raise RecoveryError(
            f"the backup needs {needed} bytes and the same amount in reserve, but only {free} are "
            f"free in {directory}: free up space"
        )
    return back_up_files(directory, chosen)


def back_up_files(directory: Path, chosen: Iterable[Path]) -> Path:
    """Copy those files of `directory` and its log that exist; return the durable folder."""
    partition = partition_directory(directory)
    folder = create_backup_folder(directory)
    (folder / partition.name).mkdir(DIRECTORY_MODE)
    for path in chosen:
        if path.exists():
            _copy(path, folder / path.relative_to(directory))
    Disk().sync_directory(folder / partition.name)
    Disk().sync_directory(folder)
    return folder


def _is_small_file(path: Path) -> bool:
    mine = path.name.startswith((REPORT_PREFIX, BACKUP_PREFIX))
    return path.is_file() and path.name != LOCK_FILE and not mine


def _copy(source: Path, target: Path) -> None:
    shutil.copy2(source, target)
    descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def force_epoch(
    directory: Path,
    found: Examination,
    epoch: int,
    voter_sets: Sequence[VoterSet],
    granting: Iterable[ReplicaKey],
) -> int:
    """Record this replica as the leader of `epoch`, with a first batch that changes the voters.

    It does not lead when it starts: it has resigned in that epoch, and a majority of the last of
    `voter_sets` elects it in a later one. Returns the new log end offset. The caller holds the lock
    and has made the backup. RecoveryError if the batch cannot be written.
    """
    assert found.is_sound, "nothing is appended to a damaged log"
    assert epoch > found.highest_epoch, f"epoch {epoch} was used already"
    partition = partition_directory(directory)
    state = ElectionState(epoch, found.key.id, found.key)
    QuorumStateFile(partition).write(state, found.kraft_version)
    final = voter_sets[-1]
    records: list[ControlRecord] = [
        LeaderChange(found.key.id, tuple(voter.key for voter in final), tuple(granting)),
        *map(VotersRecord, voter_sets),
    ]
    batch = build_control_batch(records, time.time_ns() // 1_000_000)
    failures: list[BaseException] = []
    log = MetadataLog.open(
        directory,
        LogConfig(preallocate_bytes=0),
        on_durable=lambda _: None,
        on_failure=failures.append,
    )
    try:
        assert log.end_offset == found.end.offset, "the log is what was examined"
        stamp(batch, log.end_offset, epoch)
        log.append(1, [batch])
        end_offset = log.end_offset
    finally:
        log.close()
    if failures:
        raise RecoveryError(f"cannot write the forced records: {failures[0]}")
    if found.key in final:
        Disk().unlink(partition / REMOVED_MARKER)
        Disk().sync_directory(partition)
    return end_offset


def write_report(directory: Path, report: dict[str, Any]) -> Path:
    """Write a report of the remedy, and of possible data loss, to the directory."""
    name = REPORT_PREFIX + timestamp()
    paths = (directory / f"{name}{suffix}.json" for suffix in _suffixes())
    path = next(path for path in paths if not path.exists())
    Disk().replace_file(path, (json.dumps(report, indent=2) + "\n").encode())
    return path
