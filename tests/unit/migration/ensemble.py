"""ZooKeeper's rules for writing, in memory: what a real one would refuse is refused here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from quorate.migration.operations import Create, CreateSequential, Delete, SetData, ZNodeOperation
from quorate.migration.writing import Scope
from quorate.migration.znodes import Tree, ZNode


class Ensemble:
    """Znodes by path; `write` obeys operations, one after the other."""

    def __init__(self, nodes: Iterable[ZNode] = ()) -> None:
        self.nodes = {node.path: node for node in nodes}
        self.notices: list[tuple[str, bytes]] = []

    @property
    def tree(self) -> Tree:
        return Tree(self.nodes.values())

    def read(self, scope: Scope) -> Tree:
        """What is at and above the places of a scope."""
        single = scope.nodes | scope.trees | scope.ancestors()
        below = tuple(f"{root}/" for root in scope.trees)
        return Tree(
            node for path, node in self.nodes.items() if path in single or path.startswith(below)
        )

    def write(self, operations: Iterable[ZNodeOperation]) -> int:
        count = 0
        for count, operation in enumerate(operations, 1):  # noqa: B007
            path = operation.path
            parent = path.rpartition("/")[0]
            match operation:
                case Create(path, data):
                    assert path not in self.nodes, f"{path} exists"
                    assert not parent or parent in self.nodes, f"{path} has no parent"
                    self.nodes[path] = ZNode(path, data)
                case CreateSequential(prefix, data):
                    assert parent in self.nodes, f"{path} has no parent"
                    name = f"{prefix}{len(self.notices):010}"
                    self.notices.append((prefix, data))
                    self.nodes[name] = ZNode(name, data)
                case SetData(path, data):
                    old = self.nodes[path]
                    self.nodes[path] = replace(old, data=data, version=old.version + 1)
                case Delete(path):
                    assert not any(p.startswith(path + "/") for p in self.nodes), f"{path} is full"
                    del self.nodes[path]
        return count
