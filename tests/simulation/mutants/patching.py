"""The simulation's mutants are of the protocol."""

from __future__ import annotations

from functools import partial

from tests.mutation import patching

PACKAGE = "quorate.raft"
source_path = partial(patching.source_path, package=PACKAGE)
mutated_sources = partial(patching.mutated_sources, package=PACKAGE)
install = partial(patching.install, package=PACKAGE)
