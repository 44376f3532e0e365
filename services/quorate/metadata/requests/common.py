"""What the requests and responses of every domain share (see `requests`)."""

from __future__ import annotations

from dataclasses import dataclass

from quorate.raft.errors import ErrorCode

NO_BROKER = -1
NO_EPOCH = -1
DEFAULT_COUNT = -1
"""For partitions and replication factor: the cluster's default."""


class Request:
    """A request to change something. The active controller handles it."""

    __slots__ = ()


class Read:
    """A request that is answered from a committed image."""

    __slots__ = ()


class Response:
    """The answer to a request."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Refused(Response):
    """The request as a whole was refused: no response of its own class can say so."""

    error: ErrorCode
    message: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one part of a request ended. `name` is what it was about, for people and programs."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
