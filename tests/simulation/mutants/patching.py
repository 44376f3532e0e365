"""Imports the protocol with the source text of one module changed."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType

from tests.simulation.mutants.catalogue import Mutant

PACKAGE = "quorate.raft"


def source_path(module: str) -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / f"{module}.py"


def mutated_source(mutant: Mutant) -> str:
    """The module's source, changed. Raise ValueError if a change does not apply exactly once."""
    text = source_path(mutant.module).read_text(encoding="utf-8")
    for old, new in mutant.changes:
        if text.count(old) != 1:
            raise ValueError(f"{mutant.name}: {text.count(old)} places for {old!r}")
        text = text.replace(old, new)
    return text


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
        self._name = f"{PACKAGE}.{mutant.module}"
        self._path = str(source_path(mutant.module))
        self._text = mutated_source(mutant)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        loader = _Loader(fullname, self._path, self._text)
        return importlib.util.spec_from_file_location(fullname, self._path, loader=loader)


def install(mutant: Mutant) -> None:
    """From now on, this process imports the mutant. Nothing of the package may be imported yet."""
    finder = _Finder(mutant)
    for name in [name for name in sys.modules if name.startswith("quorate.")]:
        del sys.modules[name]
    sys.meta_path.insert(0, finder)
