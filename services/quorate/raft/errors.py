"""The protocol's exceptions, for what must not happen.

Errors that one replica answers to another, or to a client, are values: see `common.error_codes`.

    RaftError
    ├── MisuseError       the caller broke the contract of this package
    ├── ViolationError    a peer broke the protocol: its message is dropped
    └── FatalError        an invariant does not hold: the process must stop
        └── CorruptionError   what lies on disk contradicts itself
"""

from __future__ import annotations


class RaftError(Exception):
    """The root of this package's exceptions."""


class MisuseError(RaftError):
    """The caller broke the contract of this package.

    Example:
        try:
            await client.append([])
        except quorate.MisuseError as error:
            print(error)
    """


class ViolationError(RaftError):
    """A peer broke the protocol."""


class FatalError(RaftError):
    """An invariant does not hold; the process must stop."""


class CorruptionError(FatalError):
    """The data on disk are inconsistent."""
