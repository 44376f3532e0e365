"""Imports the log with the source text of some of its modules changed."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType

PACKAGE = "quorate.log"
Change = tuple[str, str, str]
"""(module of `quorate.log`, old text, new text); the old text stands there exactly once."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """rule: the guard that is gone. mode: which failures find it."""

    name: str
    rule: str
    mode: str
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Redundant:
    """A guard that no run can miss, because another stands behind it. both: the mutant that lacks
    the two, or "" where the row gives the reason alone.
    """

    guard: str
    behind: str
    both: str


def source_path(module: str) -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / f"{module}.py"


def mutated_sources(mutant: Mutant) -> dict[str, str]:
    """The changed modules' sources. Raise ValueError if a change does not apply exactly once."""
    texts: dict[str, str] = {}
    for module, old, new in mutant.changes:
        text = texts.get(module) or source_path(module).read_text(encoding="utf-8")
        if text.count(old) != 1:
            raise ValueError(f"{mutant.name}: {text.count(old)} places in {module} for {old!r}")
        texts[module] = text.replace(old, new)
    return texts


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, text: str) -> None:
        super().__init__(fullname, path)
        self._text = text

    def get_code(self, fullname: str) -> CodeType:
        code = compile(self._text, self.path, "exec", dont_inherit=True)
        assert isinstance(code, CodeType)
        return code


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        sources = mutated_sources(mutant)
        self._texts = {f"{PACKAGE}.{module}": text for module, text in sources.items()}
        self._paths = {f"{PACKAGE}.{module}": str(source_path(module)) for module in sources}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._texts:
            return None
        path_of = self._paths[fullname]
        loader = _Loader(fullname, path_of, self._texts[fullname])
        return importlib.util.spec_from_file_location(fullname, path_of, loader=loader)


def install(mutant: Mutant) -> None:
    """From now on, this process imports the mutant."""
    finder = _Finder(mutant)
    prefixes = ("quorate.", "tests.durability.")
    own = ("tests.durability.mutants", "tests.durability.__main__")
    for name in list(sys.modules):
        if name.startswith(prefixes) and not name.startswith(own):
            del sys.modules[name]
    sys.meta_path.insert(0, finder)


def install_named(name: str) -> None:
    """The mutant of the catalogue with this name; nothing for ""."""
    if name:
        from tests.durability.mutants.catalogue import MUTANTS

        install(next(mutant for mutant in MUTANTS if mutant.name == name))
