"""The commands in the documents exist, and so do their options; programs are valid Python."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from quorate.cli.commands import COMMANDS, load

from tests.tools.documents import ROOT, code_blocks, code_spans, documents

COMMAND = re.compile(r"(?:^|[\s(])(?<!kubectl )quorate +([a-z].*)")
ENDS = frozenset({"&&", "||", "|", ">", ";"})
OMITTED = "…"


def commands(text: str) -> Iterator[str]:
    """The command lines of `quorate` in a document, without that word."""
    blocks = "\n".join(code_blocks(text)).replace("\\\n", " ")
    for line in blocks.splitlines():
        if found := COMMAND.search(line):
            yield re.sub(r"\)$", "", found[1]) if "$(quorate" in line else found[1]
    for span in code_spans(text):
        if found := COMMAND.search(span):
            yield found[1]
        elif span.partition(" ")[0] in COMMANDS and " -" in span:
            yield span


def split(line: str) -> list[str]:
    """The words of a line, which may begin or end within quotes."""
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return re.sub("['\"]", " ", line).split()


def problem(line: str) -> str:
    """What is wrong with a command line; "" if nothing is. An ellipsis stands for options."""
    words = [word for word in split(line.replace(";", " ; ")) if word != OMITTED]
    words = words[: next((n for n, word in enumerate(words) if word in ENDS), len(words))]
    if words[0] not in COMMANDS:
        return f"no such command: {words[0]}"
    command: Any = load(words[0], COMMANDS[words[0]])
    rest = iter(words[1:])
    for word in rest:
        if word.startswith("-"):
            name, has_value, _ = word.partition("=")
            option = next((p for p in command.params if name in (*p.opts, *p.secondary_opts)), None)
            if option is None and name != "--help":
                return f"{command.name} has no option {name}"
            if option is not None and not option.is_flag and not has_value:
                next(rest, "")
        elif hasattr(command, "commands") and len(command.commands) > 1:
            if word not in command.commands:
                return f"{command.name} has no command {word}"
            command = command.commands[word]
    return ""


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_and_options_exist(document: Path) -> None:
    found = {line: problem(line) for line in commands(document.read_text())}
    assert {line: why for line, why in found.items() if why} == {}


def test_wrong_commands_are_found() -> None:
    text = """`quorate helth --strict` and `features … upgrade --featur x`
```
X=$(quorate storage random-uid)
kubectl exec POD -- quorate recover inspect \\
  --dir D > file   # not -x
helm install meta charts/quorate --wrong
```
"""
    assert sorted(map(problem, commands(text))) == [
        "inspect has no option --dir",
        "no such command: helth",
        "storage has no command random-uid",
        "upgrade has no option --featur",
    ]


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_programs_are_valid(document: Path) -> None:
    for program in code_blocks(document.read_text(), "python"):
        ast.parse(program)
