"""Kafka's small text checkpoints: a version, a count, one entry a line.

`leader-epoch-checkpoint` in the partition's directory: epoch and start offset of each epoch in the
log. `recovery-point-offset-checkpoint` in the root: topic, partition, and the offset below which
everything is known to be synced. Other partitions' lines in the latter are kept as they are.

The log is scanned at every start, so the first file only serves Kafka; the second is a lower bound
that recovery holds the log to.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from quorate.log.disk import Disk
from quorate.log.errors import LogError
from quorate.raft.types import OffsetAndEpoch

LEADER_EPOCH_FILE = "leader-epoch-checkpoint"
RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
METADATA_TOPIC = "__cluster_metadata"
METADATA_PARTITION = 0
VERSION = 0


REBUILD = "delete it, it is rebuilt"
REFORMAT = (
    "without it this replica does not know how far its log was synced: remove it from the quorum "
    "(metadata-quorum remove-controller), format an empty directory and add it again"
)


def _parse(path: Path, fields: int, remedy: str = REBUILD) -> list[list[str]]:
    """The entries of a checkpoint, [] if there is no such file."""
    try:
        lines = path.read_text("ascii").splitlines()
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise LogError(f"{path} is not a checkpoint: {error}; {remedy}") from error
    try:
        version, count = int(lines[0]), int(lines[1])
        entries = [line.split() for line in lines[2:]]
    except (ValueError, IndexError) as error:
        raise LogError(f"{path} is not a checkpoint: {error}; {remedy}") from error
    if version != VERSION or count != len(entries) or any(len(e) != fields for e in entries):
        raise LogError(f"{path} is not a checkpoint of version {VERSION}; {remedy}")
    return entries


def _format(entries: Sequence[Sequence[object]]) -> bytes:
    lines = [str(VERSION), str(len(entries)), *(" ".join(map(str, entry)) for entry in entries)]
    return ("\n".join(lines) + "\n").encode("ascii")


def format_epochs(epochs: Sequence[OffsetAndEpoch]) -> bytes:
    """The content of leader-epoch-checkpoint; `epochs` hold the offsets at which they start."""
    return _format([(entry.epoch, entry.offset) for entry in epochs])


def read_epochs(partition_directory: Path) -> tuple[OffsetAndEpoch, ...]:
    """What leader-epoch-checkpoint says, () if there is none."""
    entries = _parse(partition_directory / LEADER_EPOCH_FILE, 2)
    return tuple(OffsetAndEpoch(int(offset), int(epoch)) for epoch, offset in entries)


def write_epochs(disk: Disk, partition_directory: Path, epochs: Sequence[OffsetAndEpoch]) -> None:
    """Bring leader-epoch-checkpoint up to date, if it is not."""
    path = partition_directory / LEADER_EPOCH_FILE
    content = format_epochs(epochs)
    if not path.exists() or path.read_bytes() != content:
        disk.replace_file(path, content)


def _is_ours(entry: Sequence[str]) -> bool:
    return entry[0] == METADATA_TOPIC and entry[1] == str(METADATA_PARTITION)


def read_recovery_point(directory: Path) -> int | None:
    """The offset below which the metadata log was synced; None if no log was opened here."""
    for entry in _recovery_points(directory):
        if _is_ours(entry):
            return int(entry[2])
    return None


def _recovery_points(directory: Path) -> list[list[str]]:
    path = directory / RECOVERY_POINT_FILE
    entries = _parse(path, 3, REFORMAT)
    if not all(entry[2].isascii() and entry[2].isdigit() for entry in entries):
        raise LogError(f"{path} contains an offset that is not a number; {REFORMAT}")
    return entries


def recovery_point_content(directory: Path, offset: int) -> tuple[bytes, int]:
    """The file with our line replaced, all others kept, and where our offset's digits begin."""
    entries: list[Sequence[object]] = [(METADATA_TOPIC, METADATA_PARTITION, f"{offset:020d}")]
    others = _recovery_points(directory)
    entries += [entry for entry in others if not _is_ours(entry)]
    content = _format(entries)
    return content, content.index(f"{offset:020d}".encode("ascii"))


def write_recovery_point(disk: Disk, directory: Path, offset: int) -> None:
    """Replace our line, keep all others; durable on return."""
    content, _ = recovery_point_content(directory, offset)
    disk.replace_file(directory / RECOVERY_POINT_FILE, content)
