"""Output of all subcommands: one-line errors, exit statuses, tables, JSON, progress.

Exit statuses: 0 success, 1 failure, 2 invalid command line, 130 interrupted. Data goes to stdout,
errors, warnings and progress go to stderr. `--json` prints one JSON value.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NoReturn

from quorate.telemetry.logs import ESCAPES

FAILED = 1
USAGE = 2
INTERRUPTED = 130

_ESCAPES = {code: text for code, text in ESCAPES.items() if code != ord("\t")}
_ESCAPES_IN_LINES = {code: text for code, text in _ESCAPES.items() if code != ord("\n")}


class CommandError(Exception):
    """The command failed. The message is one line for the user."""


class UsageError(Exception):
    """The command line is invalid. The message is one line for the user."""


def fail(message: str) -> NoReturn:
    raise CommandError(message)


def one_line(message: object) -> str:
    return printable(" ".join(str(message).split())) or type(message).__name__


def print_error(message: object) -> None:
    print(f"quorate: error: {one_line(message)}", file=sys.stderr)


def print_warning(message: object) -> None:
    print(f"quorate: warning: {one_line(message)}", file=sys.stderr)


def printable(text: str, *, keep_lines: bool = False) -> str:
    """Escape, as in JSON, the characters that a terminal interprets.

    These are control characters except tabs, line separators, and characters that change the text
    direction. keep_lines: do not escape line feeds, which then are layout and not data.
    """
    return text.translate(_ESCAPES_IN_LINES if keep_lines else _ESCAPES)


def print_line(line: str = "") -> None:
    """Print one line of text, with special characters in its names and values escaped."""
    print(printable(line))


def print_json(value: object) -> None:
    text = json.dumps(value, indent=2, ensure_ascii=False)
    sys.stdout.write(printable(text, keep_lines=True) + "\n")


def print_result(as_json: bool, json_form: object, *lines: str) -> None:
    """Print a result as JSON or as lines of text."""
    if as_json:
        print_json(json_form)
        return
    for line in lines:
        print_line(line)


def kafka_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a table like Kafka's tools: each cell padded to its column's width, then a tab."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [
        max(len(name), *(len(row[column]) for row in rows)) if rows else len(name)
        for column, name in enumerate(header)
    ]
    return "\n".join(
        "".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True))
        for row in (header, *rows)
    )


@contextmanager
def progress(text: str) -> Iterator[None]:
    """Show a spinner on stderr during a wait, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


@contextmanager
def bar(text: str, total: int | None) -> Iterator[Callable[..., None]]:
    """Yield a function that updates a progress bar on stderr, if stderr is a terminal.

    Its arguments are those of rich's `Progress.update`.
    """
    if not sys.stderr.isatty():
        yield lambda **_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as shown:
        yield partial(shown.update, shown.add_task(text, total=total))
