"""The exceptions of the log: each text says what is wrong, where, and what to do about it.

LogError
├── MetaPropertiesError    meta.properties is missing, broken, or of another cluster
├── QuorumStateError       quorum-state cannot be read
├── RequiredEndError       required-end cannot be read
├── LostVotesError         the log is newer than quorum-state: votes were lost
├── DirectoryLockedError   another process has this directory
├── DamagedLogError        bytes in the middle of the log are not what was written there
│   └── MissingRecordsError   the log ends before what was synced, or is gone
├── DamagedSnapshotError   a checkpoint is incomplete or its bytes are wrong
├── SnapshotNotFoundError  no checkpoint has this id (any more)
├── OffsetOutOfRangeError  the offset lies outside of [start, end]
├── DiskFullError          the disk is full; what was appended is not durable
└── LogFailedError         a write or a sync failed; the log takes nothing until it is reopened
"""

from __future__ import annotations

import errno
from pathlib import Path


class LogError(Exception):
    """The root of this package's exceptions."""


class MetaPropertiesError(LogError):
    """The file meta.properties cannot be used."""


class QuorumStateError(LogError):
    """The file quorum-state cannot be used."""


class RequiredEndError(LogError):
    """The file required-end cannot be used."""


class LostVotesError(LogError):
    """The file quorum-state is missing, or older than the log in its directory."""


class DirectoryLockedError(LogError):
    """Another process works on this directory."""


class DamagedLogError(LogError):
    """The log is damaged where it cannot be a torn tail.

    path: the file; start, end: the range of bytes that is wrong, end exclusive; expected_offset: of
    the record that should begin there.
    """

    def __init__(self, path: Path, start: int, end: int, expected_offset: int, reason: str) -> None:
        super().__init__(
            f"{path} is damaged from byte {start} to {end}, where offset {expected_offset} is "
            f"expected: {reason}. Nothing was changed. This replica must not vote with what is "
            "left: remove it from the quorum (metadata-quorum remove-controller), format an empty "
            "directory (storage format --no-initial-controllers) and add it again; it is then "
            "rebuilt from the leader"
        )
        self.path = path
        self.start = start
        self.end = end
        self.expected_offset = expected_offset
        self.reason = reason


class MissingRecordsError(DamagedLogError):
    """The log ends before its recovery point, or has no files at all: what was synced is gone.

    start, end: 0, for no byte is wrong. expected_offset: where the log ends.
    """

    def __init__(self, partition: Path, end_offset: int, recovery_point: int) -> None:
        if end_offset < recovery_point:
            self.reason = f"everything before {recovery_point} was synced and is gone"
            found = f"ends at offset {end_offset}, but {self.reason}"
        else:
            self.reason = "it has a recovery point and no segment"
            found = f"is gone ({self.reason})"
        Exception.__init__(
            self,
            f"the log in {partition} {found}: files were deleted, or came from an older copy. "
            "Nothing was changed. This replica must not vote with what is left: remove it from the "
            "quorum (metadata-quorum remove-controller), format an empty directory (storage format "
            "--no-initial-controllers) and add it again; it is then rebuilt from the leader",
        )
        self.path = partition
        self.start = self.end = 0
        self.expected_offset = end_offset


class DamagedSnapshotError(LogError):
    """A checkpoint is not whole."""

    def __init__(self, path: Path, position: int, reason: str) -> None:
        super().__init__(f"checkpoint {path} is damaged at byte {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


class SnapshotNotFoundError(LogError):
    """No checkpoint has this id."""


class OffsetOutOfRangeError(LogError):
    """The offset lies outside of the log."""


class LogFailedError(LogError):
    """A write or a sync failed: what the disk holds is unknown until the log is read again."""


class DiskFullError(LogFailedError):
    """The disk, or this user's part of it, is full."""


DISK_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT})


def write_failure(path: Path, error: OSError) -> LogFailedError:
    """The typed error for a failed write or sync of `path`."""
    if error.errno in DISK_FULL_ERRNOS:
        return DiskFullError(
            f"no space is left to write {path}: {error.strerror}. Free or add space, then restart; "
            "nothing that was reported durable is lost"
        )
    return LogFailedError(
        f"writing {path} failed: {error}. What reached the disk is unknown; check the disk, then "
        "restart: the log is read again from there"
    )
