"""What the requests and responses of every domain share (see `requests`)."""

from __future__ import annotations

from dataclasses import dataclass

from quorate.raft.errors import ErrorCode

NO_BROKER = -1
NO_EPOCH = -1
DEFAULT_COUNT = -1
"""For partitions and replication factor: the cluster's default."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one part of a request ended. `name` is what it was about, for people and programs."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
