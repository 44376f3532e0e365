"""One line of the report of `quorate takeover check`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class State(StrEnum):
    """OK and NOTE allow the takeover; a NOTE says what changes with it."""

    OK = "ok"
    NOTE = "note"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """check: what was looked at. text: what was found. todo: what to do about it, "" if nothing."""

    check: str
    state: State
    text: str
    todo: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def ok(check: str, text: str) -> Finding:
    return Finding(check, State.OK, text)


def note(check: str, text: str) -> Finding:
    return Finding(check, State.NOTE, text)


def failed(check: str, text: str, todo: str) -> Finding:
    return Finding(check, State.FAILED, text, todo)
