"""Write operations on ZooKeeper, as values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Create:
    """Create a persistent znode; its parent must exist."""

    path: str
    data: bytes | None


@dataclass(frozen=True, slots=True)
class SetData:
    """Set the data of a znode, regardless of its version."""

    path: str
    data: bytes | None


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a znode, which must have no children."""

    path: str


@dataclass(frozen=True, slots=True)
class CreateSequential:
    """Create a persistent sequential znode: ZooKeeper appends a counter to the prefix."""

    prefix: str
    data: bytes

    @property
    def path(self) -> str:
        return self.prefix


ZNodeOperation = CreateSequential | Create | SetData | Delete
