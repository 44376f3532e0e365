"""The exceptions of this package.

MigrationError
├── ZNodeError            a znode does not hold what Kafka 3.9 writes there: path and reason
├── FencedError           another controller has claimed ZooKeeper since
├── WrongClusterError     ZooKeeper holds no cluster, or another one than the quorum's
└── ZooKeeperError        ZooKeeper does not answer, or refuses us
"""

from __future__ import annotations


class MigrationError(Exception):
    """The root of this package's exceptions; each says in one line what, where and what to do."""


class ZNodeError(MigrationError):
    """A znode does not hold what Kafka 3.9 writes there."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class FencedError(MigrationError):
    """Another controller has claimed ZooKeeper since; nothing was written."""


class WrongClusterError(MigrationError):
    """ZooKeeper holds no cluster, or another one than the quorum's."""


class ZooKeeperError(MigrationError):
    """ZooKeeper does not answer, or refuses us."""
