"""The exceptions of this package.

MigrationError
├── ZNodeError            a znode does not hold what Kafka 3.9 writes there: path and reason
├── FencedError           another controller has claimed ZooKeeper since
├── WrongClusterError     ZooKeeper has no cluster id, or not the quorum's
└── ZooKeeperError        ZooKeeper does not respond, or rejects a request
"""

from __future__ import annotations


class MigrationError(Exception):
    """The root of this package's exceptions. Each message is one line: what, where, what to do."""


class ZNodeError(MigrationError):
    """A znode does not hold what Kafka 3.9 writes there."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class FencedError(MigrationError):
    """Another controller has claimed ZooKeeper since; the rejected transaction wrote nothing."""


class WrongClusterError(MigrationError):
    """ZooKeeper has no cluster id, or not the quorum's."""


class ZooKeeperError(MigrationError):
    """ZooKeeper does not respond, or rejects a request."""
