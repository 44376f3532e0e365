"""The exceptions of backups: each text is one line for the operator.

BackupError
├── MissingObjectError   the archive lacks an object
├── UnencryptedError     an object is plaintext, although there is a key
└── ContradictionError   the quorum's log and the archive have different histories
KeyChoiceError           the archive is encrypted and there is no key, or the other way around
"""

from __future__ import annotations

from quorate.log.errors import LogError


class BackupError(LogError):
    """The backup or the restore is not possible."""


class MissingObjectError(BackupError):
    """The archive lacks an object."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is missing")
        self.name = name


class UnencryptedError(BackupError):
    """An object is plaintext, although there is a key: anybody may have written it."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is not encrypted")


class KeyChoiceError(LogError):
    """The archive is encrypted and there is no key, or it is not and there is one.

    No BackupError, because the archive has no fault.
    """


class ContradictionError(BackupError):
    """The archive is not a part of the quorum's log."""
