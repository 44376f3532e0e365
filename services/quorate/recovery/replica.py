"""Recovers from a log that is damaged in the middle: the replica restarts as a new replica.

A voter that has lost records it acknowledged must not return with the same identity. Its vote and
its acknowledgements would count for records that it does not have, and a majority could lose
committed records (KAFKA-14077). A replica is identified by (id, directory id), so the emptied
directory gets a new directory id. For the quorum it is another replica: the old one is removed and
the new one added, as with a new disk (KIP-853, "Disk failure recovery").

Steps, under the directory's lock. After an interruption between steps 2 and 4, the directory counts
as unformatted, and no controller starts on it:

1. Copy meta.properties to the backup folder.
2. Delete meta.properties, durably.
3. Move the entire log into the backup folder, as evidence, without a copy.
4. Write meta.properties with the same cluster and node, and a new directory id.

The remedy refuses a sound log, and the log of the only voter, which no other replica could rebuild.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quorate.common.identifiers import DirectoryId
from quorate.log.disk import Disk
from quorate.log.meta_properties import META_PROPERTIES_FILE, MetaProperties, random_uuid
from quorate.log.metadata_log import create_partition_directory, partition_directory
from quorate.log.offset_files import RECOVERY_POINT_FILE
from quorate.raft.types import ReplicaKey
from quorate.recovery.change import create_backup_folder, timestamp, write_report
from quorate.recovery.errors import RecoveryError
from quorate.recovery.examine import Examination, as_json, examine


@dataclass(frozen=True, slots=True)
class NewReplica:
    """The planned or completed replacement."""

    old: Examination
    new_directory_id: DirectoryId | None = None
    """The new directory id, None if the replacement is only planned."""
    backup: Path | None = None
    report: Path | None = None

    @property
    def new_key(self) -> ReplicaKey:
        return ReplicaKey(self.old.key.id, self.new_directory_id)

    def commands(self) -> tuple[str, ...]:
        """The commands to run next; the first only if the old replica is still a voter."""
        old = self.old.key
        directory = f" -d {old.directory_id}" if old.directory_id else ""
        ask = "quorate metadata-quorum --bootstrap-controller HOST:PORT"
        return (
            f"{ask} remove-controller -i {old.id}{directory}",
            "quorate controller FILE",
            f"{ask} add-controller -c FILE",
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "version": 1,
            "kind": "replica",
            "time": timestamp(),
            "done": self.backup is not None,
            "directory": self.old.directory,
            "clusterId": self.old.cluster_id,
            "nodeId": self.old.key.id,
            "oldDirectoryId": self.old.key.directory_id,
            "newDirectoryId": self.new_directory_id,
            "damage": self.old.damage,
            "backup": None if self.backup is None else str(self.backup),
            "commands": list(self.commands()),
            "before": as_json(self.old),
        }


def plan_new_replica(found: Examination) -> NewReplica:
    """Plan the replacement. RecoveryError if this is not the right remedy."""
    if found.is_sound:
        raise RecoveryError(
            f"the log in {found.directory} is sound up to {found.end}: there is nothing to recover"
        )
    if found.voters.is_only(found.key):
        raise RecoveryError(
            f"{found.key} is the only voter, as far as its log can be read: no other replica could "
            f"rebuild it. Restore {found.directory} from a backup"
        )
    return NewReplica(found)


def become_new_replica(directory: Path) -> NewReplica:
    """Run all steps. The caller holds the lock."""
    plan = plan_new_replica(examine(directory))
    disk = Disk()
    folder = create_backup_folder(directory)
    meta = MetaProperties.read(directory)
    content = (directory / META_PROPERTIES_FILE).read_bytes()
    disk.replace_file(folder / META_PROPERTIES_FILE, content)
    disk.unlink(directory / META_PROPERTIES_FILE)
    disk.sync_directory(directory)
    partition = partition_directory(directory)
    _move(disk, (partition, directory / RECOVERY_POINT_FILE), folder)
    create_partition_directory(directory, disk)
    fresh = replace(meta, directory_id=random_uuid())
    fresh.write(directory, disk)
    done = replace(plan, new_directory_id=fresh.directory_id, backup=folder)
    return replace(done, report=write_report(directory, done.as_json()))


def _move(disk: Disk, paths: Iterable[Path], folder: Path) -> None:
    for path in paths:
        if path.exists():
            disk.rename(path, folder / path.name)
            disk.sync_directory(folder)
            disk.sync_directory(path.parent)
