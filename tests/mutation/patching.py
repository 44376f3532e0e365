"""Imports a package of `quorate` with the source text of some of its modules changed."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType

from tests.simulation.mutants.mutant import Mutant


def source_path(module: str, package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / f"{module}.py"


def mutated_sources(mutant: Mutant, package: str) -> dict[str, str]:
    """The changed modules' sources. Raise ValueError if a change does not apply exactly once."""
    texts: dict[str, str] = {}
    for module, old, new in mutant.changes:
        text = texts.get(module) or source_path(module, package).read_text(encoding="utf-8")
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
    def __init__(self, mutant: Mutant, package: str) -> None:
        sources = mutated_sources(mutant, package)
        self._texts = {f"{package}.{module}": text for module, text in sources.items()}
        self._paths = {f"{package}.{name}": str(source_path(name, package)) for name in sources}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._texts:
            return None
        path_of = self._paths[fullname]
        loader = _Loader(fullname, path_of, self._texts[fullname])
        return importlib.util.spec_from_file_location(fullname, path_of, loader=loader)


def install(
    mutant: Mutant,
    package: str,
    forgotten: tuple[str, ...] = ("quorate.",),
    kept: tuple[str, ...] = (),
) -> None:
    """From now on, this process imports the mutant.

    forgotten: beginnings of the names of modules that are imported anew; kept: exceptions.
    """
    finder = _Finder(mutant, package)
    for name in list(sys.modules):
        if name.startswith(forgotten) and not name.startswith(kept):
            del sys.modules[name]
    sys.meta_path.insert(0, finder)
