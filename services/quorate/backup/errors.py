"""The exceptions of backups: each text is one line for the operator.

BackupError
├── MissingObjectError   the archive lacks an object
└── ContradictionError   the quorum's log and the archive have different histories
"""

from __future__ import annotations

from quorate.log.errors import LogError


class BackupError(LogError):
    """The backup or the restore is not possible."""


class MissingObjectError(BackupError):
    """The archive lacks an object."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is missing")


class ContradictionError(BackupError):
    """The archive is not a part of the quorum's log."""
