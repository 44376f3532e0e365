"""What can be written to ZooKeeper, as values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Create:
    """A new persistent znode; its parent must be there."""

    path: str
    data: bytes | None


@dataclass(frozen=True, slots=True)
class SetData:
    """New data of a znode, whatever its version."""

    path: str
    data: bytes | None


@dataclass(frozen=True, slots=True)
class Delete:
    """A znode goes; it must have no children."""

    path: str


@dataclass(frozen=True, slots=True)
class CreateSequential:
    """A new persistent znode whose name is the prefix and a number that ZooKeeper counts up."""

    prefix: str
    data: bytes

    @property
    def path(self) -> str:
        return self.prefix


Operation = CreateSequential | Create | SetData | Delete
