"""The production modules, parsed once: what the tidy rules look at."""

from __future__ import annotations

import ast
import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
ROOTS = (ROOT / "services", ROOT / "operator")
GENERATED = ROOT / "services/quorate/v1"
NOT_OURS = frozenset({"node_modules", "build", "dist", "__pycache__"})

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef


@dataclass(frozen=True, eq=False)
class Module:
    """A module of production code."""

    name: str
    path: Path
    text: str
    tree: ast.Module
    nodes: tuple[ast.AST, ...]
    """Every node of the tree."""

    @property
    def short(self) -> str:
        """The last part of the name, which survives a move to another package."""
        return self.name.rpartition(".")[2]

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def lines(self) -> int:
        return self.text.count("\n")


def _parse(root: Path, path: Path) -> Module:
    parts = path.relative_to(root).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text, str(path))
    return Module(name, path, text, tree, tuple(ast.walk(tree)))


@functools.cache
def modules() -> tuple[Module, ...]:
    """All hand-written modules of production code."""
    return tuple(
        _parse(root, path)
        for root in ROOTS
        for path in sorted(root.rglob("*.py"))
        if GENERATED not in path.parents
    )


@functools.cache
def files() -> tuple[Path, ...]:
    """All files of the repository, without what tools leave behind."""
    found: list[Path] = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(n for n in folders if (n not in NOT_OURS and n[0] != ".") or n == ".ci")
        found += (Path(folder, name) for name in sorted(names))
    return tuple(found)


def place(path: Path, line: int = 0) -> str:
    """Where something is, for a message."""
    return f"{path.relative_to(ROOT)}:{line}" if line else str(path.relative_to(ROOT))


def definitions(module: Module) -> Iterator[tuple[str, Definition, ast.ClassDef | None]]:
    """Functions and classes with their dotted name in the module and the class that has them."""

    def walk(
        body: list[ast.stmt], prefix: str, owner: ast.ClassDef | None
    ) -> Iterator[tuple[str, Definition, ast.ClassDef | None]]:
        for node in body:
            if isinstance(node, Definition):
                yield f"{prefix}{node.name}", node, owner
                inner = node if isinstance(node, ast.ClassDef) else None
                yield from walk(node.body, f"{prefix}{node.name}.", inner)

    return walk(module.tree.body, "", None)


def name_of(node: ast.expr) -> str:
    """The last name of an expression such as `a.b.C`, `C[int]` or `C()`; empty if it has none."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=inner) | ast.Call(func=inner) | ast.Starred(value=inner):
            return name_of(inner)
    return ""


def targets(node: ast.stmt, *, attributes: bool = True) -> Iterator[str]:
    """The names that an assignment binds; with `attributes`, those of attributes too."""
    match node:
        case ast.Assign(targets=found):
            parts = [part for t in found for part in (t.elts if isinstance(t, ast.Tuple) else [t])]
        case ast.AnnAssign(target=target):
            parts = [target]
        case _:
            parts = []
    for part in parts:
        if isinstance(part, ast.Name) or (attributes and isinstance(part, ast.Attribute)):
            yield name_of(part)
