"""The types that requests and responses of all domains share (see `requests`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from quorate.common.error_codes import ErrorCode

NO_BROKER = -1
NO_EPOCH = -1
DEFAULT_COUNT = -1
"""Stands for the cluster's default number of partitions or replication factor."""


class Request:
    """A request to change metadata. The active controller handles it."""

    __slots__ = ()


class Read:
    """A request that is answered from a committed image."""

    __slots__ = ()


class Response:
    """The response to a request."""

    __slots__ = ()


class MutationQuota(Protocol):
    """Limits how many partitions a client creates and deletes (KIP-599)."""

    def take(self, partitions: int) -> bool:
        """Count these partitions; False if the client must not create or delete them."""


@dataclass(frozen=True, slots=True)
class Refused(Response):
    """The whole request was rejected, with an error that its own response class cannot carry."""

    error: ErrorCode
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutcome:
    """The base of results: an error, NONE for success, and its message."""

    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class PartResult:
    """The result of one part of a request. `name` identifies the part, for people and programs."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
