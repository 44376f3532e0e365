"""Transcript files: comments, commands, and under `----` what they print, up to an empty line.

    # Why this is so.
    elect 1
    append 1 x
    ----
    1A candidate in epoch 1
    ...

The shape is that of etcd's data-driven tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

SEPARATOR = "----"


@dataclass(frozen=True, slots=True)
class Block:
    """Comment lines as they stand, or commands with the lines that they are expected to print."""

    line: int
    comments: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()

    def render(self) -> str:
        lines = list(self.comments)
        if self.commands:
            lines += [*self.commands, SEPARATOR, *self.expected]
        return "\n".join(lines) + "\n"


def parse(path: Path) -> list[Block]:
    """The blocks of a file, which empty lines separate."""
    blocks: list[Block] = []
    chunk: list[str] = []
    start = 1
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate([*lines, ""], start=1):
        if line.strip():
            if not chunk:
                start = number
            chunk.append(line.rstrip())
        elif chunk:
            blocks.append(_block(start, chunk))
            chunk = []
    return blocks


def _block(start: int, lines: list[str]) -> Block:
    cut = lines.index(SEPARATOR) if SEPARATOR in lines else len(lines)
    head, expected = lines[:cut], lines[cut + 1 :]
    commands = tuple(line for line in head if not line.startswith("#"))
    comments = tuple(line for line in head if line.startswith("#"))
    return Block(start, comments, commands, tuple(expected))


def run(path: Path, execute: Callable[[str], list[str]]) -> list[Block]:
    """The same blocks with what happens now as the expectation."""
    actual: list[Block] = []
    for block in parse(path):
        printed: list[str] = []
        for offset, command in enumerate(block.commands):
            try:
                printed += execute(command)
            except Exception as error:
                error.add_note(
                    f"{path.name}:{block.line + len(block.comments) + offset}: {command}"
                )
                raise
        actual.append(replace(block, expected=tuple(printed)))
    return actual


def render(blocks: list[Block]) -> str:
    return "\n".join(block.render() for block in blocks)
