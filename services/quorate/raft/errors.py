"""Protocol errors as values, and the exceptions.

Errors that one replica answers to another, or to a client, are values of `ErrorCode`: Kafka's names
and numbers. Exceptions are for what must not happen:

    RaftError
    ├── MisuseError       the caller broke the contract of this package
    ├── ViolationError    a peer broke the protocol: its message is dropped
    └── FatalError        an invariant does not hold: the process must stop
        └── CorruptionError   what lies on disk contradicts itself
"""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """Kafka's error codes, as far as the quorum uses them."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    CLUSTER_AUTHORIZATION_FAILED = 31
    UNSUPPORTED_VERSION = 35
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    INVALID_RECORD = 87
    THROTTLING_QUOTA_EXCEEDED = 89
    FEATURE_UPDATE_FAILED = 96
    INVALID_UPDATE_VERSION = 95
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    INCONSISTENT_CLUSTER_ID = 104
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127


class RaftError(Exception):
    """The root of this package's exceptions."""


class MisuseError(RaftError):
    """The caller broke the contract of this package."""


class ViolationError(RaftError):
    """A peer broke the protocol."""


class FatalError(RaftError):
    """An invariant does not hold; the process must stop."""


class CorruptionError(FatalError):
    """What lies on disk contradicts itself."""
