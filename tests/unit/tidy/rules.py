"""The tidy rules: each finds what it forbids, whether the table of exceptions allows it or not."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from tests.unit.tidy.graph import cycle_through, strongly_connected
from tests.unit.tidy.source import (
    ROOT,
    Definition,
    Function,
    Module,
    definitions,
    files,
    modules,
    name_of,
    place,
    targets,
)

# Reduce these: 500 lines for a module, 60 for a function.
MODULE_LINES = 600
TEST_MODULE_LINES = 640
FUNCTION_LINES = 80


class Finding(NamedTuple):
    """Something that a rule forbids."""

    key: str
    """What the table of exceptions calls it. It has no package, so it survives a move."""
    text: str


Rule = Callable[[Collection[str]], Iterator[Finding]]
"""A rule gets the keys of its exceptions; only the rule for cycles needs them."""


def module_length(_: Collection[str]) -> Iterator[Finding]:
    """Long modules, of tests too."""
    for module in modules():
        if module.lines > MODULE_LINES:
            yield Finding(module.short, f"{place(module.path)} has {module.lines} lines")
    for path in files():
        if path.suffix == ".py" and ROOT / "tests" in path.parents:
            lines = path.read_bytes().count(b"\n")
            if lines > TEST_MODULE_LINES:
                yield Finding(path.stem, f"{place(path)} has {lines} lines")


def function_length(_: Collection[str]) -> Iterator[Finding]:
    """Long functions."""
    for module in modules():
        for name, node, _owner in definitions(module):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if isinstance(node, Function) and lines > FUNCTION_LINES:
                at = place(module.path, node.lineno)
                yield Finding(f"{module.short}.{name}", f"{at}: {name} has {lines} lines")


def import_cycles(allowed: Collection[str]) -> Iterator[Finding]:
    """Import cycles; imports for type checking only and imports in functions count.

    An exception names an import, `importer -> imported`. It is needed if that import is part of a
    cycle.
    """
    edges = {module.name: _imported(module) for module in modules()}
    component = {name: index for index, found in strongly_connected(edges) for name in found}
    rest: dict[str, set[str]] = defaultdict(set)
    for importer, imported in edges.items():
        for name in imported:
            key = f"{importer.rpartition('.')[2]} -> {name.rpartition('.')[2]}"
            if component[importer] == component[name] and key in allowed:
                yield Finding(key, f"{importer} imports {name}")
            else:
                rest[importer].add(name)
    for _index, found in strongly_connected({name: rest[name] for name in edges}):
        if len(found) > 1:
            cycle = " -> ".join(cycle_through(found, rest))
            yield Finding(cycle, f"an import cycle: {cycle}")


def _imported(module: Module) -> set[str]:
    """The modules of ours that a module imports anywhere."""
    ours = {found.name for found in modules()}
    found: set[str] = set()
    for node in module.nodes:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in ours else node.module)
    return (found & ours) - {module.name}


def ambiguous_classes(_: Collection[str]) -> Iterator[Finding]:
    """Public classes of one name in two modules."""
    found: dict[str, list[str]] = defaultdict(list)
    for module in modules():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(place(module.path, node.lineno))
    for name, places in found.items():
        if len(places) > 1:
            yield Finding(name, f"{name} is a class in {', '.join(places)}")


def dead_definitions(_: Collection[str]) -> Iterator[Finding]:
    """Definitions that no production code uses: functions, classes, constants and fields.

    What a module defines is used where that module loads it, where another imports it from there,
    and wherever an attribute has its name. A field or method is used where an attribute has its
    name; one that begins with an underscore, where one of its own module has. A decorator with
    arguments registers its function, and libraries call the methods of classes that inherit from
    theirs; neither is dead.
    """
    uses = _Uses()
    foreign = _foreign_classes()
    for module in modules():
        for name, node, owner in definitions(module):
            registered = isinstance(node, Function) and any(
                isinstance(decorator, ast.Call) for decorator in node.decorator_list
            )
            inherited = owner is not None and owner.name in foreign
            if not (registered or inherited) and uses.lacks(module, name):
                yield Finding(name, f"{place(module.path, node.lineno)}: nothing uses {name}")
        for name, line in _assigned(module):
            if uses.lacks(module, name):
                yield Finding(name, f"{place(module.path, line)}: nothing reads {name}")


def _assigned(module: Module) -> Iterator[tuple[str, int]]:
    """Constants, fields of classes but for enums' members, and private attributes of `self`."""
    yield from ((name, s.lineno) for s in module.tree.body for name in targets(s, attributes=False))
    for node in module.nodes:
        if isinstance(node, ast.ClassDef) and not _is_enum(node):
            found: dict[str, int] = {}
            for statement in node.body:
                for name in targets(statement, attributes=False):
                    found.setdefault(name, statement.lineno)
            for inner in ast.walk(node):
                for name in targets(inner) if isinstance(inner, ast.stmt) else ():
                    if name.startswith("_"):
                        found.setdefault(name, inner.lineno)
            yield from ((f"{node.name}.{name}", line) for name, line in found.items())


class _Uses:
    """Which names production code uses, and where."""

    def __init__(self) -> None:
        self._attributes: set[str] = set()
        self._loaded: dict[str, set[str]] = defaultdict(set)
        """By module: names and attributes that it loads."""
        self._imported: set[tuple[str, str]] = set()
        """Names with the module that they are imported from."""
        exports: dict[tuple[str, str], str] = {}
        for module in modules():
            self._look_into(module, exports)
        # A name that a package passes on is imported from where it is defined.
        for name, source in [(name, source) for source, name in self._imported]:
            passed_on = source
            while (passed_on, name) in exports:
                passed_on = exports[passed_on, name]
                if (passed_on, name) in self._imported:
                    break
                self._imported.add((passed_on, name))

    def _look_into(self, module: Module, exports: dict[tuple[str, str], str]) -> None:
        for node in module.nodes:
            match node:
                case ast.Name(id=name, ctx=ast.Load()):
                    self._loaded[module.name].add(name)
                case ast.Attribute(attr=name, ctx=ast.Load()):
                    self._loaded[module.name].add(name)
                    self._attributes.add(name)
                case ast.ImportFrom(module=str(source), names=names):
                    for alias in names:
                        exports[module.name, alias.asname or alias.name] = source
                        if not module.is_package:
                            self._imported.add((source, alias.name))
                case ast.MatchClass(kwd_attrs=names):
                    self._loaded[module.name].update(names)
                    self._attributes.update(names)
                case ast.Constant(value=str(text)) if re.fullmatch(r"[A-Za-z_][\w.:]*", text):
                    # Such as in getattr and in tables of commands, "module:function".
                    self._loaded[module.name].update(re.split("[.:]", text))
                    self._attributes.update(re.split("[.:]", text))

    def lacks(self, module: Module, qualified: str) -> bool:
        """Whether nothing uses a definition of the module."""
        name = qualified.rpartition(".")[2]
        if name.startswith("__") or name == "_":
            return False
        if name in self._loaded[module.name] or (module.name, name) in self._imported:
            return False
        return name.startswith("_") or name not in self._attributes


def _is_enum(node: ast.ClassDef) -> bool:
    """Whether a class is an enum: its members are a table of numbers or names that others use."""
    return any(name_of(base) in {"Enum", "IntEnum", "StrEnum", "IntFlag"} for base in node.bases)


def _foreign_classes() -> set[str]:
    """Classes of ours with a base, however far up, that is neither ours nor of typing's kind."""
    plain = {"ABC", "Protocol", "Generic", "NamedTuple", "TypedDict", "IntEnum", "StrEnum"}
    bases = {
        node.name: {name_of(base) for base in node.bases} - plain
        for module in modules()
        for node in module.nodes
        if isinstance(node, ast.ClassDef)
    }
    foreign = {name for name, above in bases.items() if above - bases.keys()}
    while more := {name for name, above in bases.items() if above & foreign} - foreign:
        foreign |= more
    return foreign


ENTRY = re.compile(r"(?:^|(?<=[.;,] ))`?([a-z_]\w*(?:`?, `?[a-z_]\w*)*)`?: ")
"""The beginning of a field's documentation in a docstring."""


def documented_fields(_: Collection[str]) -> Iterator[Finding]:
    """Fields and parameters that a docstring documents and that do not exist.

    A paragraph documents fields if it begins with `name: ` and that name exists.
    """
    attributes = _attributes()
    for module in modules():
        for name, node, _owner in definitions(module):
            known = _parameters(node) if isinstance(node, Function) else attributes(node)
            for entry in _entries(ast.get_docstring(node) or "", known):
                if entry not in known and f"_{entry}" not in known:
                    at = place(module.path, node.lineno)
                    text = f"{at}: the docstring of {name} documents {entry}, which does not exist"
                    yield Finding(f"{name}.{entry}", text)


def _entries(docstring: str, known: Collection[str]) -> Iterator[str]:
    for paragraph in docstring.split("\n\n"):
        text = " ".join(line.strip() for line in paragraph.splitlines())
        found = ENTRY.match(text)
        if found and any(name in known for name in re.findall(r"\w+", found[1])):
            for entry in ENTRY.finditer(text):
                yield from re.findall(r"\w+", entry[1])


def _parameters(node: Function) -> set[str]:
    found = node.args
    every = [*found.posonlyargs, *found.args, *found.kwonlyargs, found.vararg, found.kwarg]
    return {argument.arg for argument in every if argument is not None}


def _attributes() -> Callable[[ast.ClassDef], set[str]]:
    """A function from a class to its attributes, inherited ones and parameters included."""
    by_name: dict[str, list[ast.ClassDef]] = defaultdict(list)
    for module in modules():
        for node in module.nodes:
            if isinstance(node, ast.ClassDef):
                by_name[node.name].append(node)

    def attributes(node: ast.ClassDef, below: tuple[ast.ClassDef, ...] = ()) -> set[str]:
        found: set[str] = set()
        for inner in ast.walk(node):
            if isinstance(inner, Function):
                found |= {inner.name, *_parameters(inner)}
            elif isinstance(inner, ast.Assign | ast.AnnAssign):
                found.update(targets(inner))
        for base in node.bases:
            for above in by_name[name_of(base)]:
                if above is not node and above not in below:
                    found |= attributes(above, (*below, node))
        return found

    return attributes


FILE = re.compile(
    r"(?<![\w/.:*{}<>$~-])((?:[\w.-]+/)*[\w-]+\.(?:py|md|proto|txt|toml|yaml|jsonl))\b(?![/\w*.:])"
)
DOCUMENTS = frozenset(
    {"README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"}
)


def missing_files(_: Collection[str]) -> Iterator[Finding]:
    """References to missing files, in production code, documents and tests' docstrings."""
    known = {
        "/".join(parts[first:])
        for parts in (path.relative_to(ROOT).parts for path in files())
        for first in range(len(parts))
    }
    texts = [(module.path, module.text) for module in modules()]
    for path in files():
        if path.suffix == ".proto" or path.name in DOCUMENTS or path.parent == ROOT / "docs":
            texts.append((path, path.read_text(encoding="utf-8")))
        elif path.suffix == ".py" and ROOT / "tests" in path.parents:
            docstring = re.match(r'"""(.*?)"""', path.read_text(encoding="utf-8"), re.DOTALL)
            texts.append((path, docstring[1] if docstring else ""))
    for path, text in texts:
        for found in FILE.finditer(text):
            name = re.sub(r"^(\.\./)+", "", found[1])
            if name not in known and "NAME" not in name:
                at = place(path, text.count("\n", 0, found.start()) + 1)
                yield Finding(name, f"{at} names {name}, which does not exist")


REFERENCE = re.compile(r"`(?:quorate\.)?([a-z_]+)\.([A-Za-z_]\w*)`")


def missing_names(_: Collection[str]) -> Iterator[Finding]:
    """References to missing names: `package.module`, `package.Class` and `module.Class`.

    A name in lower case behind a module's is not looked up: settings and files look the same.
    """
    inside: dict[str, set[str]] = defaultdict(set)
    for module in modules():
        parts = module.name.removeprefix("quorate.").split(".")
        names = {name for node in module.nodes for name in _bound(node)}
        for part in parts:
            inside[part] |= names.union(parts)
    packages = {module.short for module in modules() if module.is_package} - {"quorate"}
    texts = [(module.path, module.text) for module in modules()]
    settings = set(re.findall(r'"quorate\.[a-z.]+"', "".join(text for _, text in texts)))
    path = ROOT / "ARCHITECTURE.md"
    texts.append((path, path.read_text(encoding="utf-8")))
    for path, text in texts:
        for found in REFERENCE.finditer(text):
            first, second = found.groups()
            if f'"quorate.{first}.{second}"' in settings:
                continue
            looked_up = first in packages or (first in inside and second[0].isupper())
            if looked_up and second not in {*inside[first], "py"}:
                at = place(path, text.count("\n", 0, found.start()) + 1)
                yield Finding(f"{first}.{second}", f"{at} names {first}.{second}, not to be found")


def _bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, Definition):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        yield from targets(node)


RULES: dict[str, Rule] = {
    "module length": module_length,
    "function length": function_length,
    "import cycles": import_cycles,
    "ambiguous classes": ambiguous_classes,
    "dead definitions": dead_definitions,
    "documented fields": documented_fields,
    "missing files": missing_files,
    "missing names": missing_names,
}
