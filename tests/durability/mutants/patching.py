"""The fault model's mutants are of the log."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tests.mutation import patching
from tests.simulation.mutants import mutant as any_package

PACKAGE = "quorate.log"
source_path = partial(patching.source_path, package=PACKAGE)
mutated_sources = partial(patching.mutated_sources, package=PACKAGE)
install = partial(
    patching.install,
    package=PACKAGE,
    forgotten=("quorate.", "tests.durability."),
    kept=("tests.durability.mutants", "tests.durability.__main__"),
)


@dataclass(frozen=True, slots=True)
class Mutant(any_package.Mutant):
    """mode: which failures find it."""

    mode: str


def install_named(name: str) -> None:
    """The mutant of the catalogue with this name; nothing for ""."""
    if name:
        from tests.durability.mutants.catalogue import MUTANTS

        install(next(mutant for mutant in MUTANTS if mutant.name == name))
