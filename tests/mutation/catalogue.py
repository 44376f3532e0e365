"""What a catalogue of mutants is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.simulation.mutants.mutant import Mutant


@dataclass(frozen=True, slots=True)
class Tested:
    """A mutant and the tests that find it, in pytest's notation: `file` or `file::test`."""

    mutant: Mutant
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.mutant.name


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The mutants of a package."""

    package: str
    mutants: tuple[Tested, ...]


Make = Callable[..., Tested]


def maker(folder: str, prefix: str) -> Make:
    """What makes mutants whose tests lie in `folder`, in files that begin with `prefix`.

    name, rule: as of a `Mutant`. module, old, new: the change. tests: `file test`, or `file` alone,
    without the prefix and `test_`.
    """

    def make(name: str, rule: str, module: str, old: str, new: str, *tests: str) -> Tested:
        named = []
        for each in tests:
            file, _, test = each.partition(" ")
            path = file if "/" in file else f"{folder}/{prefix}{file}.py"
            named.append(f"{path}::test_{test}" if test else path)
        return Tested(Mutant(name, rule, ((module, old, new),)), tuple(named))

    return make
