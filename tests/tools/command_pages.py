"""The generated part of docs/cli.md: every command of `quorate`, as its help has it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import Any

from quorate.cli.commands import COMMANDS, load

KEPT = "\b"
"""Marks a paragraph that is not wrapped."""


def commands() -> str:
    """A section for each command."""
    return "\n\n".join(
        section
        for name, lazy in COMMANDS.items()
        for section in _sections(load(name, lazy), f"quorate {name}", "##")
    )


def _sections(command: Any, path: str, level: str) -> Iterator[str]:
    context = command.context_class(command, info_name=path)
    children = getattr(command, "commands", {})
    usage = " ".join((path, *command.collect_usage_pieces(context)))
    parts = [f"{level} {path.removeprefix('quorate ')}", *_paragraphs(command.help or "")]
    parts.append(f"```text\n{usage}\n```")
    rows = [_row(param, context) for param in command.get_params(context)]
    if lines := [row for row in rows if row]:
        parts.append("\n".join(("| option | meaning |", "|---|---|", *lines)))
    yield "\n\n".join(part for part in parts if part)
    for name, child in children.items():
        yield from _sections(child, f"{path} {name}", "###")


def _row(param: Any, context: Any) -> str:
    """The row of an option or argument; empty for `--help`."""
    record = param.get_help_record(context)
    if record is None or "--help" in param.opts:
        return ""
    names, text = record
    shown = names.replace("|", "\\|")
    return f"| `{shown}` | {_plain(text)} |"


def _paragraphs(text: str) -> Iterator[str]:
    """The paragraphs of a help. One that begins with a backspace keeps its lines."""
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        if paragraph.lstrip(" ").startswith(KEPT):
            lines = textwrap.dedent(paragraph.partition(KEPT)[2].lstrip("\n")).rstrip()
            language = "" if "quorate " in lines else "text"
            yield f"```{language}\n{lines}\n```"
        else:
            yield _plain(paragraph)


def _plain(text: str) -> str:
    """Text as Markdown, for one line."""
    joined = " ".join(text.split())
    for character, escaped in (("<", "&lt;"), (">", "&gt;"), ("|", "\\|"), ("*", "\\*")):
        joined = joined.replace(character, escaped)
    return joined
