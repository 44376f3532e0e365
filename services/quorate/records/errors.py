"""The exceptions of this package: all that hostile, torn or foreign bytes can lead to.

    RecordsError
    ├── TruncatedBatchError    the bytes end inside a batch: more may follow, or a write was torn
    ├── CorruptBatchError      the bytes contradict themselves (a checksum, a length, a count)
    └── UnsupportedBatchError  sound, but not ours to read: another magic, a compression codec

Positions are in bytes from the beginning of the buffer that was handed in.
"""

from __future__ import annotations


class RecordsError(Exception):
    """The root of this package's exceptions."""


class TruncatedBatchError(RecordsError):
    """A batch begins at `position` and the bytes end before it does."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"incomplete batch at byte {position}: {reason}")
        self.position = position
        self.reason = reason


class CorruptBatchError(RecordsError):
    """What lies at `position` contradicts itself."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"corrupt at byte {position}: {reason}")
        self.position = position
        self.reason = reason


class UnsupportedBatchError(RecordsError):
    """What lies at `position` is a format that this implementation does not read."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"unsupported at byte {position}: {reason}")
        self.position = position
        self.reason = reason
