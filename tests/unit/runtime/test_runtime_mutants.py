"""The catalogue of the runtime's mutants: each changes the source as it is now."""

from __future__ import annotations

from tests.mutation.patching import mutated_sources
from tests.mutation.runtime import CATALOGUE


def test_every_mutant_applies() -> None:
    names = [each.name for each in CATALOGUE.mutants]
    assert len(set(names)) == len(names)
    for each in CATALOGUE.mutants:
        for source in mutated_sources(each.mutant, CATALOGUE.package).values():
            compile(source, each.name, "exec")
