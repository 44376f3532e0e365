"""What a mutant is."""

from __future__ import annotations

from dataclasses import dataclass

Change = tuple[str, str, str]
"""(module of `quorate.raft`, old text, new text); the old text stands there exactly once."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """rule: the guard that is gone, or the guards, where one stands behind the other."""

    name: str
    rule: str
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Redundant:
    """A guard that no run can miss, because another stands behind it; `both` is the mutant that
    lacks the two.
    """

    guard: str
    behind: str
    both: str


FORGETTING: Change = (
    "core",
    "{k: v for k, v in self.inflight.items() if v.epoch == role.epoch}",
    "dict(self.inflight)",
)
"""A change of the epoch forgets what was asked in the old one."""


def mutant(
    name: str,
    rule: str,
    module: str,
    *changes: str,
    also: tuple[Change, ...] = (),
) -> Mutant:
    """changes: old and new text in turn, in `module`; also: changes of other modules."""
    pairs = zip(changes[::2], changes[1::2], strict=True)
    return Mutant(name, rule, (*((module, old, new) for old, new in pairs), *also))
