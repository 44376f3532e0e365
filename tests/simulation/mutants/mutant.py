"""What a mutant is."""

from __future__ import annotations

from dataclasses import dataclass

Change = tuple[str, str, str]
"""(module of `quorate.raft`, old text, new text); the old text stands there exactly once."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """rule: the guard that is gone. second_line: why no run can tell, if another guard stands
    behind this one; None for those that must be killed.
    """

    name: str
    rule: str
    changes: tuple[Change, ...]
    second_line: str | None = None


def mutant(
    name: str,
    rule: str,
    module: str,
    *changes: str,
    also: tuple[Change, ...] = (),
    second_line: str | None = None,
) -> Mutant:
    """changes: old and new text in turn, in `module`; also: changes of other modules."""
    pairs = zip(changes[::2], changes[1::2], strict=True)
    return Mutant(name, rule, (*((module, old, new) for old, new in pairs), *also), second_line)
