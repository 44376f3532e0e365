"""The exceptions of this package: all that hostile, torn or foreign bytes can lead to.

    RecordsError
    ├── TruncatedBatchError    the bytes end inside a batch: more may follow, or a write was torn
    ├── CorruptBatchError      the bytes contradict themselves (a checksum, a length, a count)
    └── UnsupportedBatchError  sound, but not ours to read: another magic, a compression codec

Positions are in bytes from the beginning of the buffer that was handed in.
"""

from __future__ import annotations

from typing import ClassVar


class RecordsError(Exception):
    """The root of this package's exceptions."""


class _BatchError(RecordsError):
    """An error at a position. SUMMARY: begins the message."""

    SUMMARY: ClassVar[str]

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"{self.SUMMARY} at byte {position}: {reason}")
        self.position = position
        self.reason = reason


class TruncatedBatchError(_BatchError):
    """A batch begins at `position` and the bytes end before it does."""

    SUMMARY = "incomplete batch"


class CorruptBatchError(_BatchError):
    """The bytes at `position` are inconsistent."""

    SUMMARY = "corrupt"


class UnsupportedBatchError(_BatchError):
    """The bytes at `position` have a format that this implementation does not read."""

    SUMMARY = "unsupported"
